/** Valid inputs with a few random edits. Both shrink: fast-check drops edits until the failure goes away. */

import fc from 'fast-check'

interface Edit {
  kind: 'flip' | 'insert' | 'delete' | 'repeat' | 'number' | 'cut' | 'splice'
  /** Where, as a share of 65,536 of the length. */
  at: number
  value: number
  length: number
}

const edit: fc.Arbitrary<Edit> = fc.record({
  kind: fc.constantFrom('flip', 'insert', 'delete', 'repeat', 'number', 'cut', 'splice'),
  at: fc.nat(65_535),
  value: fc.oneof(
    fc.nat(0xff),
    fc.constantFrom(0, 1, 0x7f, 0x80, 0xff, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff),
    fc.nat(0xffffffff),
  ),
  length: fc.integer({ min: 1, max: 64 }),
})

function apply(bytes: Buffer, { kind, at, value, length }: Edit, other: Buffer): Buffer {
  const from = Math.floor((at / 65_536) * (bytes.length + 1))
  const to = Math.min(bytes.length, from + length)
  const [head, tail] = [bytes.subarray(0, from), bytes.subarray(to)]
  switch (kind) {
    case 'flip':
      return Buffer.from(bytes.map((byte, i) => (i === from ? byte ^ (value & 0xff || 1) : byte)))
    case 'insert':
      return Buffer.concat([head, Buffer.alloc(length, value & 0xff), bytes.subarray(from)])
    case 'delete':
      return Buffer.concat([head, tail])
    case 'repeat':
      return Buffer.concat([head, ...Array(1 + (value % 8)).fill(bytes.subarray(from, to)), tail])
    case 'number': {
      const number = Buffer.alloc(4)
      number.writeUInt32BE(value >>> 0)
      return Buffer.concat([head, number, bytes.subarray(Math.min(bytes.length, from + 4))])
    }
    case 'cut':
      return Buffer.from(head)
    case 'splice':
      return Buffer.concat([head, other.subarray(Math.floor((at / 65_536) * other.length))])
  }
}

/** Bytes: one of `seeds` with up to six edits. */
export function mutated(seeds: readonly Buffer[]): fc.Arbitrary<Buffer> {
  const seed = fc.constantFrom(...seeds)
  return fc
    .tuple(seed, seed, fc.array(edit, { maxLength: 6 }))
    .map(([first, other, edits]) => edits.reduce((bytes, one) => apply(bytes, one, other), first))
}

/** The same for texts; bytes that are not UTF-8 stay as latin1 characters would. */
export function mutatedText(seeds: readonly string[]): fc.Arbitrary<string> {
  return mutated(seeds.map(text => Buffer.from(text))).map(bytes => bytes.toString('utf8'))
}
