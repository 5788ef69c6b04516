import { availableParallelism, totalmem } from 'node:os'
import { constants, PerformanceObserver } from 'node:perf_hooks'
import t from 'tap'
import {
  ByteBudget,
  BytePool,
  findCollector,
  joined,
  lengthOf,
  toBudgetBytes,
  YoungGarbage,
} from '../../lib/core/byte-pool.ts'
import { FakeClock } from '../helpers/clock.ts'

const KIB = 1024
const MIB = 1024 * KIB

/** A pool that spoils what is freed. */
function makePool() {
  const clock = new FakeClock()
  return { clock, pool: new BytePool(clock, bytes => bytes.fill(0xdd)) }
}

t.test('[core/byte-pool.1] sizes at each border', async t => {
  const { pool } = makePool()
  for (let size = 16 * KIB; size <= 32 * MIB; size *= 2) {
    for (const [bytes, slabBytes] of [
      [size - 1, size],
      [size, size],
      [size + 1, size * 2],
    ] as const) {
      const taken = pool.take(bytes)
      t.equal(taken.length, bytes)
      if (slabBytes <= 32 * MIB) t.equal(taken.buffer.byteLength, slabBytes, `${bytes} bytes`)
      else t.equal(pool.hold(taken), false, `${bytes} bytes are plain memory`)
    }
  }
  t.equal(pool.take(0).length, 0)
  t.equal(pool.take(1).length, 1)
})

t.test('[core/byte-pool.2] used again when the last user is gone, and not before', async t => {
  const { pool } = makePool()
  const first = pool.take(20_000)
  first.fill(1)
  t.equal(pool.hold(first.subarray(5, 9)), true, 'any view of it counts')
  pool.free(first)
  t.equal(first[19_999], 1, 'one user is left')
  const other = pool.take(20_000)
  t.not(other.buffer, first.buffer)
  pool.free(first.subarray(7))
  t.equal(first[0], 0xdd, 'spoiled: free')
  t.equal(pool.freeBytes, 32 * KIB)
  pool.free(first)
  t.equal(pool.freeBytes, 32 * KIB, 'a second time does nothing')
  const again = pool.take(32 * KIB)
  t.equal(again.buffer, first.buffer)
  t.equal(pool.freeBytes, 0)
  pool.free(Buffer.alloc(20_000))
  t.equal(pool.freeBytes, 0, 'memory of somebody else')
})

t.test('[core/byte-pool.3] kept: held in the pool, else copied', async t => {
  const { pool } = makePool()
  const own = pool.take(100)
  const kept = pool.keep(own.subarray(10, 20))
  t.equal(kept.buffer, own.buffer)
  pool.free(own)
  t.equal(pool.freeBytes, 0)
  pool.free(kept)
  t.equal(pool.freeBytes, 16 * KIB)
  const foreign = Buffer.from('abc')
  const copy = pool.keep(foreign)
  foreign.fill(0)
  t.equal(copy.toString(), 'abc')
  t.equal(copy.buffer, own.buffer, 'in a slab that was free')
})

t.test('[core/byte-pool.4] what is not needed goes back to the system', async t => {
  const { clock, pool } = makePool()
  const taken = Array.from({ length: 8 }, () => pool.take(MIB))
  t.equal(clock.pending, 0)
  for (const bytes of taken) pool.free(bytes)
  t.equal(pool.freeBytes, 8 * MIB)
  clock.advance(1000)
  t.equal(pool.freeBytes, 8 * MIB, 'all were needed in this second')
  const three = [pool.take(MIB), pool.take(MIB), pool.take(MIB)]
  for (const bytes of three) pool.free(bytes)
  clock.advance(1000)
  t.equal(pool.freeBytes, 3 * MIB, 'as many stay as were in use at once')
  t.equal(taken.filter(bytes => bytes.buffer.byteLength === 0).length, 5, 'the others are gone at once')
  clock.advance(2000)
  t.equal(pool.freeBytes, 0)
  t.ok(taken.every(bytes => bytes.buffer.byteLength === 0))
  t.equal(clock.pending, 0, 'no timer when there is nothing to look at')
  const used = pool.take(MIB)
  clock.advance(10_000)
  t.equal(used.buffer.byteLength, MIB, 'what is in use is never touched')
})

t.test('[core/byte-pool.4] no more than 64 MiB lie unused', async t => {
  const { pool } = makePool()
  const taken = Array.from({ length: 5 }, () => pool.take(16 * MIB))
  for (const bytes of taken) pool.free(bytes)
  t.equal(pool.freeBytes, 64 * MIB)
  t.equal(taken.filter(bytes => bytes.buffer.byteLength === 0).length, 1)
})

t.test('[core/byte-pool.7] bytes in pieces', async t => {
  const [a, b] = [Buffer.from('ab'), Buffer.from('c')]
  t.same([lengthOf(a), lengthOf([a, b]), lengthOf([])], [2, 3, 0])
  t.equal(joined(a), a)
  t.equal(joined([b]), b)
  t.equal(joined([a, b]).toString(), 'abc')
  t.equal(joined([]).length, 0)
})

t.test('[core/byte-pool.8] the young are collected after 4 MiB', async t => {
  let found = 0
  let collections = 0
  const garbage = new YoungGarbage(() => {
    found++
    return () => {
      collections++
    }
  })
  garbage.note(4 * MIB - 1)
  t.same([found, collections], [0, 0])
  garbage.note(1)
  t.same([found, collections], [1, 1])
  for (let i = 0; i < 128; i++) garbage.note(64 * KIB)
  t.same([found, collections], [1, 3])
})

t.test('[core/byte-pool.8] the collector is the engine’s, and nobody else gets to see it', async t => {
  const collect = findCollector()
  let [from, to] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY]
  const asked = new Promise<number>(resolve => {
    const observer = new PerformanceObserver(list => {
      for (const entry of list.getEntries()) {
        const { kind, flags } = (entry as unknown as { detail: { kind: number; flags: number } }).detail
        // Ours is forced and begins within the call; the engine may have others of its own.
        const isForced = (flags & constants.NODE_PERFORMANCE_GC_FLAGS_FORCED) !== 0
        if (isForced && entry.startTime >= from && entry.startTime <= to) resolve(kind)
      }
    })
    observer.observe({ entryTypes: ['gc'] })
    // What it is told keeps no process alive.
    const alive = setInterval(() => {}, 1000)
    t.teardown(() => {
      clearInterval(alive)
      observer.disconnect()
    })
  })
  from = performance.now()
  collect()
  to = performance.now()
  t.equal(await asked, constants.NODE_PERFORMANCE_GC_MINOR, 'of the young alone')
  t.equal('gc' in globalThis, false)
})

t.test('[core/byte-pool.11, http/public.38] what bodies may hold', async t => {
  const budget = new ByteBudget(100)
  budget.used = 99
  t.notOk(budget.isFull())
  budget.used = 150
  t.ok(budget.isFull())
  t.notOk(budget.isFull(60), 'one alone may have more')
  t.equal(toBudgetBytes(64, 1), 64 * MIB)
  t.equal(toBudgetBytes(64, 4), 16 * MIB)
  const memory = Math.min(totalmem(), process.constrainedMemory() || Number.POSITIVE_INFINITY)
  t.equal(toBudgetBytes(null, 1), Math.floor(memory / 8))
  t.equal(toBudgetBytes(null, 'auto'), Math.floor(memory / 8 / availableParallelism()))
})
