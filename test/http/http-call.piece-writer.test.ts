import t from 'tap'
import { BytePool } from '../../lib/core/byte-pool.ts'
import type { Exchange } from '../../lib/http/exchange.ts'
import { PieceWriter } from '../../lib/http/http-call.ts'
import { FakeClock } from '../helpers/clock.ts'

const KIB = 1024

/** A writer whose client takes what is written when the test says so; memory that is free is spoiled. */
function makeWriter() {
  const taken: Buffer[] = []
  const pool = new BytePool(new FakeClock(), bytes => bytes.fill(0xdd))
  const take = pool.take.bind(pool)
  pool.take = bytes => {
    const slab = take(bytes)
    taken.push(slab)
    return slab
  }
  const writes: { pieces: readonly Buffer[]; bytes: number; onTaken: () => void }[] = []
  const texts: string[] = []
  const granted: number[] = []
  const watched: boolean[] = []
  const client = { isSlow: false }
  const held = { bytes: 0 }
  const exchange = {
    ended: false,
    connection: {
      hold: (bytes: number) => (held.bytes += bytes),
      release: (bytes: number) => (held.bytes -= bytes),
    },
    responder: {
      pool,
      writePieces: (_: Exchange, pieces: readonly Buffer[], bytes: number, onTaken: () => void) => {
        writes.push({ pieces, bytes, onTaken })
        texts.push(Buffer.concat(pieces).toString())
        return !client.isSlow
      },
      watchClient: (_: Exchange, isSlow: boolean) => watched.push(isSlow),
    },
  }
  const writer = new PieceWriter(exchange as unknown as Exchange, bytes => granted.push(bytes))
  /** As a socket worker does: its memory is read into again afterwards. */
  const add = (bytes: Buffer | string) => {
    const shared = Buffer.from(bytes)
    writer.add(shared)
    shared.fill('?')
  }
  return { pool, taken, writes, granted, exchange, writer, add, texts, watched, client, held }
}

const tick = () => new Promise<void>(resolve => process.nextTick(resolve))

t.test('[http/public.35] what comes in one tick leaves in one write', async t => {
  const { writes, granted, add, texts } = makeWriter()
  add('ab')
  add('')
  add('cd')
  t.equal(writes.length, 0)
  await tick()
  t.same(texts, ['abcd'])
  t.equal(writes[0]!.bytes, 4)
  t.same(granted, [])
  writes[0]!.onTaken()
  t.same(granted, [4])
  add('e')
  await tick()
  t.same(texts.slice(1), ['e'])
  add('')
  await tick()
  t.equal(writes.length, 2, 'nothing is written for nothing')
})

t.test('[http/public.35] one write is under way, what comes meanwhile is the next', async t => {
  const { writes, granted, add, texts, pool } = makeWriter()
  add('a')
  await tick()
  for (const text of ['b', 'c', 'd']) {
    add(text)
    await tick()
  }
  t.same(texts, ['a'])
  writes[0]!.onTaken()
  t.same(texts.slice(1), ['bcd'])
  t.same(granted, [1])
  t.equal(writes[1]!.pieces.length, 1, 'small ones lie in one memory')
  writes[1]!.onTaken()
  t.same(granted, [1, 3])
  t.equal(pool.freeBytes, 32 * KIB, 'all of it is free again')
})

t.test('[http/public.35] whoever is told that it was taken may add more at once', async t => {
  const { writes, add, texts } = makeWriter()
  add('a')
  await tick()
  add('b')
  writes[0]!.onTaken()
  await tick()
  t.same(texts, ['a', 'b'], 'once')
})

t.test('[http/public.35] memory for a slow client is what its pieces need', async t => {
  for (const [bytes, count] of [
    [1, 20_000],
    [100, 2000],
    [16 * KIB, 16],
    [16 * KIB + 1, 15],
    [64 * KIB, 4],
    [256 * KIB, 1],
  ] as const) {
    const { taken, writes, add, writer } = makeWriter()
    add('under way')
    await tick()
    for (let i = 0; i < count; i++) add(Buffer.alloc(bytes, i % 251))
    await tick()
    t.equal(writes.length, 1)
    const memory = taken.slice(1).reduce((sum, slab) => sum + slab.buffer.byteLength, 0)
    t.ok(memory <= 2 * bytes * count + 16 * KIB, `${count} of ${bytes} bytes in ${memory}`)
    writer.flush()
    const all = Buffer.concat(writes[1]!.pieces)
    t.equal(all.length, bytes * count)
    let wrong = 0
    for (let i = 0; i < all.length; i++) if (all[i] !== Math.floor(i / bytes) % 251) wrong += 1
    t.equal(wrong, 0, 'in order')
  }
})

t.test('[http/public.35] the end flushes what is gathered behind what is under way', async t => {
  const { writes, add, writer, texts, granted, pool } = makeWriter()
  add('a')
  writer.flush()
  await tick()
  add('b')
  writer.flush()
  await tick()
  t.same(texts, ['a', 'b'])
  writes[0]!.onTaken()
  writes[1]!.onTaken()
  t.same(granted, [1, 1])
  t.equal(pool.freeBytes, 32 * KIB)
})

t.test('[http/public.35] what waits for a client that left is free', async t => {
  const { exchange, writes, add, pool } = makeWriter()
  add('a')
  await tick()
  add('b')
  exchange.ended = true
  t.equal(pool.freeBytes, 0)
  writes[0]!.onTaken()
  t.equal(pool.freeBytes, 32 * KIB, 'what was under way, and what waited behind it')
  t.equal(writes.length, 1)
  const early = makeWriter()
  early.add('a')
  early.exchange.ended = true
  await tick()
  t.equal(early.writes.length, 0)
  t.equal(early.pool.freeBytes, 16 * KIB)
})

t.test('[http/public.35, http/public.15] a slow client is watched until it has taken everything', async t => {
  const { writes, add, writer, watched, client } = makeWriter()
  add('a')
  await tick()
  writes[0]!.onTaken()
  t.same(watched, [], 'not one that takes it at once')
  client.isSlow = true
  add('b')
  await tick()
  add('c')
  writer.flush()
  t.same(watched, [true])
  writes[1]!.onTaken()
  t.same(watched, [true], 'while the end waits behind it')
  writes[2]!.onTaken()
  t.same(watched, [true, false])
})
