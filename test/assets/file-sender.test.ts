import { closeSync, fstatSync, ftruncateSync, openSync } from 'node:fs'
import t, { type Test } from 'tap'
import { FileSender } from '../../lib/assets/file-sender.ts'
import type { GatewayError } from '../../lib/core/errors.ts'
import type { Exchange } from '../../lib/http/exchange.ts'
import { waitUntil } from '../helpers/gateway-bed.ts'
import { makeTree } from '../helpers/tree.ts'

const CHUNK = 128 * 1024

/** A file, its sender, and a client that takes pieces when the test says so. */
function makeSender(t: Test, text: Buffer, start: number, end: number) {
  const tree = makeTree({ 'a.bin': text })
  t.teardown(tree.cleanup)
  const fd = openSync(tree.path('a.bin'), 'r+')
  const pieces: Buffer[] = []
  const ends: (GatewayError | null)[] = []
  const memory: ArrayBufferLike[] = []
  const made = { isSlow: false, isTaking: false, drain: null as (() => void) | null, onTaken: () => {} }
  const exchange = {
    work: null,
    responder: {
      writeStream: (_: Exchange, piece: Buffer, isConstant: boolean, onTaken: (() => void) | null) => {
        t.equal(isConstant, true, 'not copied by the way')
        pieces.push(Buffer.from(piece))
        memory.push(piece.buffer)
        made.onTaken = () => {
          // Whoever still reads it now sees what is wrong.
          piece.fill(0xee)
          onTaken?.()
        }
        if (made.isTaking) made.onTaken()
        return !made.isSlow
      },
      onDrain: (_: Exchange, callback: () => void) => {
        made.drain = callback
      },
      closeStream: (_: Exchange, error: GatewayError | null) => ends.push(error),
    },
  } as unknown as Exchange
  const sender = new FileSender(exchange, fd, start, end)
  const isOpen = (): boolean => {
    try {
      return fstatSync(fd).isFile()
    } catch {
      return false
    }
  }
  const ended = () => waitUntil(() => ends.length > 0, 'the answer ends')
  const closed = () => waitUntil(() => !isOpen(), 'the descriptor is closed')
  return { tree, fd, exchange, sender, pieces, memory, ends, made, isOpen, ended, closed }
}

const bytes = Buffer.from(Array.from({ length: CHUNK * 2 + 10 }, (_, i) => i % 251))

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
  const long = Buffer.from(Array.from({ length: CHUNK * 9 + 3 }, (_, i) => i % 253))
  for (const isTaking of [true, false]) {
    const { sender, pieces, memory, made, ended } = makeSender(t, long, 0, long.length)
    made.isTaking = isTaking
    sender.start()
    await ended()
    t.ok(Buffer.concat(pieces).equals(long), 'every byte in its place')
    t.equal(pieces.length, 10)
    if (isTaking) t.ok(new Set(memory).size <= 2, 'two pieces of memory for ten of the file')
    else t.equal(new Set(memory).size, 10, 'nobody has said that he has it')
  }
})

t.test('[assets/static-assets.24] a slow client holds two pieces, however long it takes', async t => {
  const long = Buffer.alloc(CHUNK * 6, 'x')
  const { sender, pieces, memory, made, ended } = makeSender(t, long, 0, long.length)
  made.isSlow = true
  sender.start()
  for (let count = 1; count <= 6; count++) {
    await waitUntil(() => pieces.length === count && made.drain !== null, 'a piece')
    const drain = made.drain!
    made.drain = null
    made.onTaken()
    drain()
  }
  await ended()
  t.ok(new Set(memory).size <= 2)
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
  for (const { ends } of [waiting, reading]) t.same(ends, [], 'nobody is told')
  t.equal(waiting.pieces.length, 1)
  t.equal(reading.pieces.length, 0)
})
