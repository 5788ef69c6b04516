import { readFileSync } from 'node:fs'
import t from 'tap'
import { MAX_FRAME_BYTES } from '../../lib/core/limits.ts'
import {
  encodeFrame,
  FrameReader,
  FrameWriter,
  KIND,
  type Kind,
  parseHeader,
  ProtocolError,
} from '../../lib/runtime/wire-protocol.ts'

interface Vector {
  name: string
  kind: Kind
  id: number
  header: string
  body: string
  hex: string
}

type Seen = [kind: number, id: number, header: string, body: string]

const vectors = JSON.parse(readFileSync(new URL('./vectors.json', import.meta.url), 'utf8')) as Vector[]
const all = Buffer.concat(vectors.map(vector => Buffer.from(vector.hex, 'hex')))
const expected: Seen[] = vectors.map(vector => [vector.kind, vector.id, vector.header, vector.body])

function collect(maxBodyBytes = 0): { seen: Seen[]; reader: FrameReader } {
  const seen: Seen[] = []
  const reader = new FrameReader(
    (kind, id, header, body) => seen.push([kind, id, header, body.toString('hex')]),
    maxBodyBytes,
  )
  return { seen, reader }
}

t.test('[runtime/wire-protocol.1] every vector encodes to its bytes', async t => {
  for (const vector of vectors) {
    const frame = encodeFrame(vector.kind, vector.id, vector.header, Buffer.from(vector.body, 'hex'))
    t.equal(frame.toString('hex'), vector.hex, vector.name)
  }
  const written: Buffer[] = []
  const writer = new FrameWriter(bytes => {
    written.push(bytes)
    return false
  })
  for (const vector of vectors) writer.add(vector.kind, vector.id, vector.header, Buffer.from(vector.body, 'hex'))
  t.equal(written.length, 0, 'nothing leaves before the flush')
  writer.flush()
  t.equal(written.length, 1, 'the frames of one tick are one write')
  t.equal(written[0]!.toString('hex'), all.toString('hex'))
})

t.test('[runtime/wire-protocol.2] frames cut at every byte, and joined, are read the same', async t => {
  for (let cut = 0; cut <= all.length; cut++) {
    const { seen, reader } = collect()
    reader.push(all.subarray(0, cut))
    reader.push(all.subarray(cut))
    t.same(seen, expected, `cut at ${cut}`)
  }
  const { seen, reader } = collect()
  for (const byte of all) reader.push(Buffer.from([byte]))
  t.same(seen, expected, 'one byte at a time')
})

t.test('[runtime/wire-protocol.2] bodies above and below the copy limit keep their order', async t => {
  const written: Buffer[] = []
  const writer = new FrameWriter(bytes => {
    written.push(bytes)
    return false
  })
  const sizes = [0, 1, 16 * 1024, 16 * 1024 + 1, 70_000, 3, 200_000]
  sizes.forEach((size, i) => {
    writer.add(KIND.chunk, i + 1, `{"n":"${'ü'.repeat(i * 30)}"}`, Buffer.alloc(size, i))
  })
  writer.flush()
  const seen: [number, string, number, boolean][] = []
  const reader = new FrameReader((_kind, id, header, body) => {
    seen.push([id, header, body.length, body.every(byte => byte === id - 1)])
  })
  reader.push(Buffer.concat(written))
  t.same(
    seen,
    sizes.map((size, i) => [i + 1, `{"n":"${'ü'.repeat(i * 30)}"}`, size, true]),
  )
})

t.test('[runtime/wire-protocol.3] a malformed frame is a named error', async t => {
  const frame = (length: number, kind: number, headerBytes: number): Buffer => {
    const bytes = Buffer.alloc(13)
    bytes.writeUInt32BE(length, 0)
    bytes[4] = kind
    bytes.writeUInt32BE(headerBytes, 9)
    return bytes
  }
  const cases: [name: string, bytes: Buffer, code: string][] = [
    ['length 0', frame(0, KIND.call, 0), 'FRAME_TOO_SHORT'],
    ['length 8', frame(8, KIND.call, 0), 'FRAME_TOO_SHORT'],
    ['length 4 GiB', frame(0xffffffff, KIND.call, 0), 'FRAME_TOO_LONG'],
    ['one above the limit', frame(MAX_FRAME_BYTES + 101, KIND.call, 0), 'FRAME_TOO_LONG'],
    ['kind 0', frame(9, 0, 0), 'UNKNOWN_KIND'],
    ['kind 200', frame(9, 200, 0), 'UNKNOWN_KIND'],
    ['header longer than the frame', frame(9, KIND.call, 1), 'HEADER_TOO_LONG'],
    ['header of 4 GiB', frame(9, KIND.call, 0xffffffff), 'HEADER_TOO_LONG'],
  ]
  for (const [name, bytes, code] of cases) {
    const { reader, seen } = collect(100)
    t.throws(() => reader.push(bytes), { name: 'ProtocolError', code }, name)
    t.equal(seen.length, 0)
    const split = collect(100).reader
    t.throws(
      () => {
        for (const byte of bytes) split.push(Buffer.from([byte]))
      },
      { code },
      `${name}, byte by byte`,
    )
  }
  for (const text of ['[]', '1', 'null', '{', 'nope']) {
    t.throws(() => parseHeader(text), { code: 'BAD_HEADER' }, `header ${text}`)
  }
  t.same(parseHeader(''), {})
})

t.test('[runtime/wire-protocol.3] random bytes never hang, crash or hoard memory', async t => {
  const rounds = Number(process.env.FNGW_FUZZ_FRAMES ?? 20_000)
  let seed = 42
  const random = (below: number): number => {
    seed = (Math.imul(seed, 1103515245) + 12345) >>> 0
    return seed % below
  }
  let errors = 0
  let frames = 0
  for (let round = 0; round < rounds; round++) {
    const bytes = Buffer.from(all)
    for (let flips = random(4); flips > 0; flips--) bytes[random(bytes.length)] = random(256)
    const reader = new FrameReader(() => frames++)
    try {
      for (let at = 0; at < bytes.length; ) {
        const next = at + 1 + random(40)
        reader.push(bytes.subarray(at, next))
        at = next
      }
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error
      errors++
    }
  }
  t.ok(errors > rounds / 10 && frames > rounds, `${frames} frames, ${errors} named errors`)
})
