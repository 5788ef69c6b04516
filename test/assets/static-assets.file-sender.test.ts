import { closeSync, fstatSync, ftruncateSync, openSync, read } from 'node:fs'
import t, { type Test } from 'tap'
import { FileSender, LARGE_TRANSFERS } from '../../lib/assets/static-assets.ts'
import { BytePool } from '../../lib/core/byte-pool.ts'
import { systemClock } from '../../lib/core/clock.ts'
import type { GatewayError } from '../../lib/core/errors.ts'
import { Descriptors } from '../../lib/core/host.ts'
import { Semaphore } from '../../lib/core/semaphore.ts'
import type { Exchange } from '../../lib/http/exchange.ts'
import { waitUntil } from '../helpers/gateway-bed.ts'
import { makeTree } from '../helpers/tree.ts'

const CHUNK = 128 * 1024
const LARGE = 512 * 1024
/** No byte of the files here. */
const UNREAD = 0xee

/** A file, its sender, and a client that takes pieces when the test says so. */
function makeSender(t: Test, text: Buffer, start: number, end: number, large = new Semaphore(LARGE_TRANSFERS)) {
  const tree = makeTree({ 'a.bin': text })
  t.teardown(tree.cleanup)
  const fd = openSync(tree.path('a.bin'), 'r+')
  const pieces: Buffer[] = []
  const ends: (GatewayError | null)[] = []
  const memory: ArrayBufferLike[] = []
  const made = { isSlow: false, slowFrom: 0, isTaking: false, drain: null as (() => void) | null, onTaken: () => {} }
  // A read of released memory shows up as wrong bytes.
  const pool = new BytePool(systemClock, bytes => bytes.fill(UNREAD))
  let lastTaken: Buffer = Buffer.alloc(0)
  const take = (length: number): Buffer => {
    lastTaken = pool.take(length).fill(UNREAD)
    return lastTaken
  }
  /** The disk has filled what was taken last, and the sender knows. */
  const hasRead = async (): Promise<void> => {
    await waitUntil(() => lastTaken.at(-1) !== UNREAD, 'the next piece is read')
    await new Promise(done => read(fd, Buffer.alloc(1), 0, 1, 0, done))
  }
  const exchange = {
    work: null,
    responder: {
      descriptors: new Descriptors(),
      pool: { take, free: (bytes: Buffer) => pool.free(bytes) },
      writeStream: (_: Exchange, piece: Buffer, isConstant: boolean, onTaken: (() => void) | null) => {
        t.equal(isConstant, true, 'not copied by the way')
        pieces.push(Buffer.from(piece))
        memory.push(piece.buffer)
        made.onTaken = () => onTaken?.()
        if (made.isTaking) made.onTaken()
        if (piece.length === made.slowFrom) made.isSlow = true
        return !made.isSlow
      },
      onDrain: (_: Exchange, callback: () => void) => {
        made.drain = callback
      },
      closeStream: (_: Exchange, error: GatewayError | null) => ends.push(error),
    },
  } as unknown as Exchange
  const sender = new FileSender(exchange, fd, start, end, large)
  const isOpen = (): boolean => {
    try {
      return fstatSync(fd).isFile()
    } catch {
      return false
    }
  }
  const ended = () => waitUntil(() => ends.length > 0, 'the answer ends')
  const closed = () => waitUntil(() => !isOpen(), 'the descriptor is closed')
  return { tree, fd, exchange, sender, hasRead, pieces, memory, ends, made, isOpen, ended, closed }
}

const bytes = Buffer.from(Array.from({ length: CHUNK * 2 + 10 }, (_, i) => i % 229))

t.test('[assets/static-assets.24] a part of a file, piece by piece, and the descriptor is closed', async t => {
  for (const [start, end] of [
    [0, bytes.length],
    [5, 6],
    [CHUNK - 1, CHUNK + 1],
    [7, 7],
  ] as const) {
    const { sender, exchange, pieces, ends, ended, closed } = makeSender(t, bytes, start, end)
    sender.start()
    t.equal(exchange.work, sender, 'a client that leaves stops it')
    await ended()
    t.same(ends, [null])
    t.ok(Buffer.concat(pieces).equals(bytes.subarray(start, end)), `${start} to ${end}`)
    t.ok(pieces.every(piece => piece.length <= CHUNK))
    await closed()
  }
})

t.test('[assets/static-assets.24] nothing is read ahead of a slow client', async t => {
  const { sender, pieces, made, ended, ends } = makeSender(t, bytes, 0, bytes.length)
  made.isSlow = true
  sender.start()
  for (let count = 1; count <= 3; count++) {
    await waitUntil(() => pieces.length === count && made.drain !== null, 'a piece')
    const drain = made.drain!
    made.drain = null
    t.equal(pieces.length, count)
    drain()
  }
  await ended()
  t.same(ends, [null])
})

t.test('[assets/static-assets.24] memory is used again once the system has its bytes, and not before', async t => {
  const long = Buffer.from(Array.from({ length: CHUNK * 2 + LARGE * 9 + 3 }, (_, i) => i % 227))
  for (const isTaking of [true, false]) {
    const { sender, pieces, memory, made, ended } = makeSender(t, long, 0, long.length)
    made.isTaking = isTaking
    sender.start()
    await ended()
    t.ok(Buffer.concat(pieces).equals(long), 'every byte in its place')
    t.ok(pieces.length > 10)
    if (isTaking) t.ok(new Set(memory).size <= 5, 'two pieces of memory of each size, and the rest')
    else t.equal(new Set(memory).size, pieces.length, 'none of it is acknowledged')
  }
})

t.test(
  '[assets/static-assets.24] pieces are large while the client waits for the disk, small when it is waited for',
  async t => {
    const long = Buffer.from(Array.from({ length: LARGE * 8 }, (_, i) => i % 223))
    const { sender, pieces, made, ended } = makeSender(t, long, 0, long.length)
    made.isTaking = true
    sender.start()
    await ended()
    const lengths = pieces.map(piece => piece.length)
    t.same(lengths.slice(0, 2), [CHUNK, CHUNK], 'nothing is known of the client before it has one')
    t.ok(
      lengths.slice(2, -1).every(length => length === LARGE),
      String(lengths),
    )
    t.ok(Buffer.concat(pieces).equals(long))

    const slowing = makeSender(t, long, 0, long.length)
    slowing.made.isTaking = true
    // From there on each piece waits for the one before.
    slowing.made.slowFrom = LARGE
    slowing.sender.start()
    await waitUntil(() => slowing.made.isSlow, 'a large piece')
    const before = slowing.pieces.length
    while (slowing.ends.length === 0) {
      await waitUntil(() => slowing.made.drain !== null || slowing.ends.length > 0, 'the next piece')
      const { drain } = slowing.made
      slowing.made.drain = null
      if (slowing.pieces.reduce((sum, piece) => sum + piece.length, 0) < long.length) await slowing.hasRead()
      drain?.()
    }
    t.ok(Buffer.concat(slowing.pieces).equals(long))
    const later = slowing.pieces.slice(before).map(piece => piece.length)
    t.ok(later.includes(CHUNK), `small again: ${later}`)
  },
)

t.test('[assets/static-assets.24] limits the transfers with large pieces, and the end of one makes room', async t => {
  const large = new Semaphore(LARGE_TRANSFERS)
  const entered: boolean[] = []
  for (let i = 0; i < 17; i++) entered.push(large.tryTake())
  t.same(entered, [...Array(16).fill(true), false])
  const long = Buffer.alloc(LARGE * 6, 'x')
  const sizes = async () => {
    const one = makeSender(t, long, 0, long.length, large)
    one.made.isTaking = true
    one.sender.start()
    await one.ended()
    return Math.max(...one.pieces.map(piece => piece.length))
  }
  t.equal(await sizes(), CHUNK, 'no room')
  large.release()
  t.equal(await sizes(), LARGE)
  t.equal(await sizes(), LARGE, 'finished transfers have left')
  const left = makeSender(t, long, 0, long.length, large)
  left.made.isTaking = true
  left.made.slowFrom = LARGE
  left.sender.start()
  await waitUntil(() => left.made.isSlow, 'a large piece')
  left.sender.abandon()
  await left.closed()
  t.equal(await sizes(), LARGE, 'whose client has left, too')
  const cut = makeSender(t, long, 0, long.length, large)
  cut.made.isTaking = true
  cut.made.slowFrom = LARGE
  cut.sender.start()
  await waitUntil(() => cut.made.isSlow, 'a large piece')
  ftruncateSync(cut.fd, 0)
  while (cut.ends.length === 0) {
    await waitUntil(() => cut.made.drain !== null || cut.ends.length > 0, 'the next piece')
    const { drain } = cut.made
    cut.made.drain = null
    drain?.()
  }
  t.match(cut.ends, [{ message: 'file became shorter while it was sent' }])
  await cut.closed()
  t.equal(await sizes(), LARGE, 'and one whose file was cut off')
})

t.test('[assets/static-assets.24] a slow client holds two pieces, however long it takes', async t => {
  const long = Buffer.alloc(CHUNK * 6, 'x')
  const { sender, pieces, memory, made, ends } = makeSender(t, long, 0, long.length)
  made.isSlow = true
  sender.start()
  while (ends.length === 0) {
    await waitUntil(() => made.drain !== null || ends.length > 0, 'a piece')
    const { drain } = made
    made.drain = null
    made.onTaken()
    drain?.()
  }
  t.ok(Buffer.concat(pieces).equals(long))
  t.ok(new Set(memory).size <= 4, 'of each size')
})

t.test('[assets/static-assets.25] a file that shrinks is not taken for whole', async t => {
  const { sender, made, fd, pieces, ended, ends, closed } = makeSender(t, bytes, 0, bytes.length)
  made.isSlow = true
  sender.start()
  await waitUntil(() => made.drain !== null, 'the first piece')
  ftruncateSync(fd, 100)
  made.drain!()
  await ended()
  t.match(ends, [{ message: 'file became shorter while it was sent' }])
  t.ok(pieces.length <= 2, 'what was read ahead, and no more')
  await closed()
})

t.test('[assets/static-assets.24] a descriptor that cannot be read', async t => {
  const { sender, fd, ended, ends, pieces } = makeSender(t, bytes, 0, 10)
  closeSync(fd)
  sender.start()
  await ended()
  t.match(ends, [{ message: 'file cannot be read', cause: { code: 'EBADF' } }])
  t.equal(pieces.length, 0)
})

t.test('[assets/static-assets.24] a client that leaves, while it is waited for or while the disk is', async t => {
  const waiting = makeSender(t, bytes, 0, bytes.length)
  waiting.made.isSlow = true
  waiting.sender.start()
  await waitUntil(() => waiting.made.drain !== null, 'the first piece')
  waiting.sender.abandon()
  waiting.sender.abandon()
  await waiting.closed()
  waiting.made.drain!()
  const reading = makeSender(t, bytes, 0, bytes.length)
  reading.sender.start()
  reading.sender.abandon()
  t.equal(reading.isOpen(), true, 'not under the hands of a read')
  await reading.closed()
  for (const { ends } of [waiting, reading]) t.same(ends, [], 'no callback')
  t.equal(waiting.pieces.length, 1)
  t.equal(reading.pieces.length, 0)
})
