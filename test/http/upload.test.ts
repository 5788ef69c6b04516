import t from 'tap'
import { BytePool } from '../../lib/core/byte-pool.ts'
import { type Bytes, joined, lengthOf } from '../../lib/core/bytes.ts'
import { inject } from '../../lib/http/inject.ts'
import { UploadMemory } from '../../lib/http/upload.ts'
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
function upload(body: Buffer, pieceBytes: number, declared: number) {
  const pool = new WatchedPool()
  const one = new UploadMemory(pool).begin(declared)
  const isGathered = Math.max(declared, body.length) > 128 * KIB
  for (let at = 0; at < body.length; at += pieceBytes) {
    const piece = Buffer.from(body.subarray(at, at + pieceBytes))
    one.add(piece)
    if (isGathered && at > 128 * KIB) piece.fill(0xee)
  }
  return { pool, one }
}

const isInPool = (pool: BytePool, bytes: Bytes): boolean =>
  (Buffer.isBuffer(bytes) ? [bytes] : bytes).every(piece => {
    const isHeld = pool.hold(piece)
    if (isHeld) pool.free(piece)
    return isHeld
  })

t.test('[core/byte-pool.8, core/byte-pool.9] a body is whole at every size, whatever its length says', async t => {
  const edges = [128 * KIB, 256 * KIB, 512 * KIB, MIB, 2 * MIB]
  for (const size of [1, 16 * KIB, ...edges.flatMap(edge => [edge - 1, edge, edge + 1]), 3 * MIB + 5]) {
    const body = makeBody(size)
    for (const declared of [size, -1, 1, 16 * MIB]) {
      for (const pieceBytes of [65_477, size]) {
        const { pool, one } = upload(body, pieceBytes, declared)
        const bytes = one.take()
        const told = `${size} bytes in pieces of ${pieceBytes}, ${declared} declared`
        t.equal(lengthOf(bytes), size, told)
        t.ok(joined(bytes).equals(body), told)
        t.equal(isInPool(pool, bytes), size > 128 * KIB || declared > 128 * KIB, told)
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
  '[core/byte-pool.9] a length that is a lie takes no more memory than twice what has come, or 256 KiB',
  async t => {
    const { pool } = upload(makeBody(10), 10, 16 * MIB)
    t.same(pool.taken, [256 * KIB])
    const more = upload(makeBody(900 * KIB), 64 * KIB, 16 * MIB)
    t.ok(more.pool.taken.reduce((sum, bytes) => sum + bytes, 0) <= 1800 * KIB, String(more.pool.taken))
    t.same(upload(makeBody(200 * KIB), 64 * KIB, 200 * KIB).pool.taken, [200 * KIB], 'no more than is needed')
  },
)

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
  t.equal(given.length, 2)
  t.equal(given[0]![0], body[0], 'held')
  t.equal(given[1]![0], 0xdd, 'free')
  pool.free(given[0]!)
  t.equal(given[0]![0], 0xdd, 'free')

  const before = pool.freeBytes
  t.equal((await inject(handle, { method: 'POST', url: '/a', body: makeBody(2 * MIB) })).status, 413)
  t.ok(pool.freeBytes >= before, 'and of one that is refused')
})
