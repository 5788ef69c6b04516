import { findCollector } from '../../lib/core/byte-pool.ts'
import t from 'tap'
import { FnEvent } from '../../runtimes/node/event.mjs'

const KIB = 1024
const LONG_BYTES = 64 * KIB

/** An event whose body was read, and what was read. */
function readEvent(bytes: Buffer): Record<'body' | 'is_base64' | 'body_base64', unknown> {
  const fn = { env: {}, context: {} } as unknown as ConstructorParameters<typeof FnEvent>[0]
  const call = {} as unknown as ConstructorParameters<typeof FnEvent>[3]
  const { body, is_base64, body_base64 } = new FnEvent(fn, {}, bytes, call) as unknown as ReturnType<typeof readEvent>
  return { body, is_base64, body_base64 }
}

t.test('[runtimes/node.36] a body that nobody has any more is taken by the collector of the young', async t => {
  const collect = findCollector()
  const kept = (): number => {
    // Twice: what is seen for the first time may be live.
    collect()
    collect()
    return process.memoryUsage().heapUsed
  }
  readEvent(Buffer.alloc(LONG_BYTES, 'a'))
  const before = kept()
  const count = 64
  for (let i = 0; i < count; i++) readEvent(Buffer.alloc(LONG_BYTES, 'a'))
  const more = kept() - before
  t.ok(more < (count * LONG_BYTES) / 4, `${Math.round(more / KIB)} KiB of ${count} texts of 64 KiB`)
})

t.test('[runtimes/node.36] text is told from bytes, wherever a character lies and the first wrong byte is', async t => {
  for (const character of ['a', '\u00e9', '\u20ac', '\u{1f600}']) {
    for (let shift = 0; shift <= 4; shift++) {
      const text = 'x'.repeat(shift) + character.repeat(20 * KIB)
      t.same(readEvent(Buffer.from(text)), { body: text, is_base64: false, body_base64: null })
    }
  }
  const text = Buffer.alloc(LONG_BYTES, 'a')
  for (const at of [0, 1019, 1020, 1021, 1022, 1023, 1024, 1025, LONG_BYTES - 1]) {
    // Bytes that are in no text, that go on with a character, and that begin one that does not go on.
    for (const wrong of [0xff, 0x80, 0xc3, 0xe2, 0xf0]) {
      const bytes = Buffer.from(text)
      bytes[at] = wrong
      t.same(readEvent(bytes), { body: null, is_base64: true, body_base64: bytes.toString('base64') })
    }
  }
  const onlyGoingOn = Buffer.alloc(LONG_BYTES, 0x80)
  t.equal(readEvent(onlyGoingOn).is_base64, true)
})
