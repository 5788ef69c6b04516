import t from 'tap'
import { BytePool, type Bytes, joined, lengthOf, YoungGarbage } from '../../lib/core/byte-pool.ts'
import { inject } from '../../lib/http/inject.ts'
import { Upload } from '../../lib/http/body.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeFn } from '../helpers/fn.ts'
import { makePublic } from '../helpers/public.ts'

const KIB = 1024
const MIB = 1024 * KIB

/** A pool that spoils what is freed, and notes what is taken of it. */
class WatchedPool extends BytePool {
  taken: number[] = []

  constructor() {
    super(new FakeClock(), bytes => bytes.fill(0xdd))
  }

  override take(bytes: number): Buffer {
    this.taken.push(bytes)
    return super.take(bytes)
  }
}

function makeBody(bytes: number): Buffer {
  const body = Buffer.allocUnsafeSlow(bytes)
  for (let i = 0; i < bytes; i++) body[i] = (i * 7 + (i >> 8)) & 0xff
  return body
}

/** Gives a body in pieces whose memory is used again at once where it may be. */
function upload(body: Buffer, pieceBytes: number, declared: number, isOurs = false) {
  const pool = new WatchedPool()
  const one = new Upload(pool, new YoungGarbage(), declared, isOurs)
  const isGathered = Math.max(declared, body.length) > 16 * KIB
  const given: Buffer[] = []
  for (let at = 0; at < body.length; at += pieceBytes) {
    const piece = makePiece(body.subarray(at, at + pieceBytes))
    one.add(piece)
    given.push(piece)
    if (isGathered && at > 16 * KIB && piece.length > 0) piece.fill(0xee)
  }
  return { pool, one, given }
}

/** In memory of its own, as node's parser makes it. */
function makePiece(bytes: Buffer): Buffer {
  const piece = Buffer.allocUnsafeSlow(bytes.length)
  bytes.copy(piece)
  return piece
}

const isInPool = (pool: BytePool, bytes: Bytes): boolean =>
  (Buffer.isBuffer(bytes) ? [bytes] : bytes).every(piece => {
    const isHeld = pool.hold(piece)
    if (isHeld) pool.free(piece)
    return isHeld
  })

t.test('[core/byte-pool.8, core/byte-pool.9] a body is whole at every size, whatever its length says', async t => {
  const edges = [16 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, MIB, 2 * MIB]
  for (const size of [1, ...edges.flatMap(edge => [edge - 1, edge, edge + 1]), 3 * MIB + 5]) {
    const body = makeBody(size)
    for (const declared of [size, -1, 1, 16 * MIB]) {
      for (const [pieceBytes, isOurs] of [
        [65_477, true],
        [size, true],
        [10_000, false],
      ] as const) {
        const { pool, one } = upload(body, pieceBytes, declared, isOurs)
        const bytes = one.take()
        const told = `${size} bytes in pieces of ${pieceBytes}, ${declared} declared`
        t.equal(lengthOf(bytes), size, told)
        t.ok(joined(bytes).equals(body), told)
        t.equal(isInPool(pool, bytes), size > 16 * KIB || declared > 16 * KIB, told)
        one.free()
        t.equal(
          pool.freeBytes,
          pool.taken.reduce((sum, taken) => sum + Math.max(16 * KIB, 2 ** Math.ceil(Math.log2(taken))), 0),
          'all of it is free',
        )
        one.free()
      }
    }
  }
})

t.test(
  '[core/byte-pool.9] a length that is a lie takes no more memory than twice what has come, or 128 KiB',
  async t => {
    const { pool } = upload(makeBody(10), 10, 16 * MIB)
    t.same(pool.taken, [128 * KIB])
    const more = upload(makeBody(900 * KIB), 64 * KIB, 16 * MIB)
    t.ok(more.pool.taken.reduce((sum, bytes) => sum + bytes, 0) <= 1800 * KIB, String(more.pool.taken))
    t.same(upload(makeBody(100 * KIB), 64 * KIB, 100 * KIB).pool.taken, [100 * KIB], 'no more than is needed')
  },
)

t.test('[core/byte-pool.10] pieces of the server’s own requests are given back when they are copied', async t => {
  const isGone = (piece: Buffer): boolean => piece.buffer.byteLength === 0
  const body = makeBody(300 * KIB)
  t.ok(upload(body, 64 * KIB, body.length, true).given.every(isGone), 'all of a body that says it is long')
  t.ok(upload(body, 10 * KIB, -1, true).given.every(isGone), 'and of one that turns out to be')
  t.notOk(upload(body, 64 * KIB, body.length, false).given.some(isGone), 'others may have what a host application read')
  const short = upload(makeBody(16 * KIB), 5 * KIB, -1, true)
  t.notOk(short.given.some(isGone))
  t.ok(joined(short.one.take()).equals(makeBody(16 * KIB)), 'a short one is its pieces')
  const pool = new WatchedPool()
  const beside = Buffer.allocUnsafeSlow(64 * KIB)
  new Upload(pool, new YoungGarbage(), 32 * KIB, true).add(beside.subarray(0, 32 * KIB))
  t.equal(beside.length, 64 * KIB, 'nor is memory that holds more than the piece')
})

t.test('[core/byte-pool.9] the memory is free when the request is over, and not while somebody writes it', async t => {
  const body = makeBody(300 * KIB)
  const pool = new WatchedPool()
  const policy = { methods: ['POST' as const], maxBodyBytes: MIB }
  const { handle, runtime } = makePublic({ '/a': makeFn({ policy }) }, { pool })
  let given: Buffer[] = []
  runtime.answer = call => {
    t.ok(joined(call.body!).equals(body), 'whole in the call')
    given = Buffer.isBuffer(call.body) ? [call.body] : [...call.body!]
    // As a worker's connection does until its write is done.
    pool.hold(given[0]!)
    runtime.reply(call, 200, {}, 'ok')
  }
  t.equal((await inject(handle, { method: 'POST', url: '/a', body })).status, 200)
  t.equal(given.length, 3)
  t.equal(given[0]![0], body[0], 'held')
  t.equal(given[1]![0], 0xdd, 'free')
  pool.free(given[0]!)
  t.equal(given[0]![0], 0xdd, 'free')

  const before = pool.freeBytes
  t.equal((await inject(handle, { method: 'POST', url: '/a', body: makeBody(2 * MIB) })).status, 413)
  t.ok(pool.freeBytes >= before, 'and of one that is refused')
})
