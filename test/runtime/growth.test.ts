import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { setImmediate as afterReads } from 'node:timers/promises'
import t from 'tap'
import {
  Growth,
  type ProcessorTime,
  type Reading,
  systemProcessors,
  toOccupation,
  toProcessors,
} from '../../lib/runtime/growth.ts'
import { FakeClock } from '../helpers/clock.ts'
import { until } from '../helpers/worker-client.ts'

type Row = readonly [ranMs: number, queuedMs: number, isRunnable?: boolean | undefined]

function toReading(at: number, rows: readonly Row[]): Reading {
  const times = rows.map(
    ([ranMs, queuedMs, isRunnable = false], pid) => [pid, { ranMs, queuedMs, isRunnable }] as const,
  )
  return { at, times: new Map(times), held: new Set(rows.keys()) }
}

t.test('[runtime/worker-set.23] workers compute when they ran for longer than they waited for something else', t => {
  const rows = (...times: Row[]): Row[] => times
  for (const [title, expected, times] of [
    ['a processor each', 'computing', rows([100, 0], [98, 2])],
    ['one processor shared by five', 'computing', rows([20, 80], [21, 79])],
    ['sleeping', 'waiting', rows([1, 0], [0, 0])],
    ['sleeping on a busy machine', 'waiting', rows([1, 40], [2, 60])],
    ['a bit more than half', 'computing', rows([51, 0], [51, 0])],
    ['half', 'waiting', rows([50, 0], [50, 0])],
    ['one computes and one waits', 'waiting', rows([100, 0], [0, 0])],
    ['in the queue for a processor all the time', 'computing', rows([0, 99], [0, 99])],
    ['in that queue since before the window', 'computing', rows([0, 0, true], [0, 0, true])],
    ['several threads at once', 'computing', rows([200, 100], [10, 0])],
    ['nothing known', 'waiting', []],
  ] as const) {
    const before = toReading(
      1000,
      times.map(([, , isRunnable]) => [70, 7, isRunnable]),
    )
    const after = toReading(
      1100,
      times.map(([ran, queued, isRunnable]) => [70 + ran, 7 + queued, isRunnable]),
    )
    t.equal(toOccupation(before, after), expected, title)
    if (times.length > 0)
      t.equal(toOccupation(before, { ...after, held: new Set() }), 'computing', `${title}, answered meanwhile`)
  }
  t.equal(toOccupation(toReading(1000, []), toReading(1100, [[100, 0]])), 'waiting', 'other processes')
  t.end()
})

/** @param share - of the time that each worker runs */
function makeGrowth(share: number) {
  const clock = new FakeClock()
  let reads = 0
  let isTold = true
  const growth = new Growth(clock, {
    count: 2,
    read: async pids => {
      reads += 1
      return new Map(
        isTold ? pids.map(pid => [pid, { ranMs: clock.monotonic() * share, queuedMs: 0, isRunnable: false }]) : [],
      )
    },
  })
  /** Looks every 5 ms, as for calls that wait. */
  const workers = [7, 8].map(pid => ({ pid, inflight: { first: {} } }))
  const looks = async (ms: number, busy: Parameters<Growth['limit']>[2] = workers): Promise<(number | null)[]> => {
    const limits = []
    for (let i = 0; i < ms; i += 5) {
      limits.push(growth.limit(clock.monotonic(), 2, busy))
      await afterReads()
      clock.advance(5)
    }
    return limits
  }
  return { clock, growth, looks, reads: () => reads, hide: () => (isTold = false), workers }
}

t.test('[runtime/worker-set.23] up to the processors nothing is asked; beyond, two readings decide', async t => {
  const { clock, growth, looks, reads, workers } = makeGrowth(0.9)
  t.equal(growth.limit(clock.monotonic(), 1, workers), 2)
  t.same([reads(), growth.decision], [0, null])
  t.same(await looks(40), [null, null, null, null, null, null, 2, 2])
  t.same(growth.decision, { decision: 'computing', processors: 2 })
  await looks(60)
  t.equal(reads(), 2, 'one that computes is left alone for a while')
  await looks(1000)
  t.ok(reads() <= 20, `${reads()} readings in a second`)
})

t.test('[runtime/worker-set.23] a function that waits grows, and is read again before it grows further', async t => {
  const { clock, growth, looks, reads } = makeGrowth(0.1)
  t.equal((await looks(40)).at(-1), Number.POSITIVE_INFINITY)
  t.same(growth.decision, { decision: 'waiting', processors: 2 })
  growth.noteAdded(clock.monotonic())
  t.same((await looks(30)).slice(0, 2), [null, null])
  t.equal(reads(), 3, 'the last reading is the first of the next two')
  await looks(300, [])
  growth.noteAdded(clock.monotonic())
  t.equal((await looks(40)).filter(limit => limit !== null).length, 2, 'readings too far apart are not compared')
})

t.test('[runtime/worker-set.23] a worker that gets other calls meanwhile waits for the gateway', async t => {
  const { growth, looks } = makeGrowth(0.1)
  let calls = 0
  const inflight = {
    get first() {
      return ++calls
    },
  }
  const quick = [7, 8].map(pid => ({ pid, inflight }))
  t.equal((await looks(40, quick)).at(-1), 2)
  t.match(growth.decision, { decision: 'computing' })
})

t.test('[runtime/worker-set.23] what the system does not tell counts as waiting', async t => {
  const { clock, growth, looks, hide, workers } = makeGrowth(1)
  t.equal(
    growth.limit(clock.monotonic(), 2, [{ pid: null, inflight: { first: {} } }]),
    Number.POSITIVE_INFINITY,
    'no process is known',
  )
  hide()
  t.equal((await looks(10)).at(-1), Number.POSITIVE_INFINITY, 'nothing is told of them')
  t.equal(new Growth(clock, null).limit(0, 99, workers), Number.POSITIVE_INFINITY, 'nothing is known of the processors')
})

t.test('[runtime/worker-set.23] the quota of each cgroup counts', t => {
  for (const [parallelism, quotas, expected] of [
    [8, [], 8],
    [8, ['', 'max 100000\n'], 8],
    [8, ['200000 100000\n', 'max 100000\n'], 2],
    [8, ['400000 100000\n', '150000 100000\n'], 2],
    [8, ['10000 100000\n'], 1],
    [1, ['400000 100000\n'], 1],
  ] as const)
    t.equal(toProcessors(parallelism, quotas), expected, JSON.stringify([parallelism, quotas]))
  t.ok(systemProcessors().count >= 1)
  t.equal(systemProcessors(1000).count, 1)
  t.end()
})

t.test('[runtime/worker-set.23] what a process and its children ran is read', async t => {
  const script = 'sh -c "while :; do :; done" & wait'
  const child = spawn('sh', ['-c', script], { detached: true })
  t.teardown(async () => {
    process.kill(-child.pid!, 'SIGKILL')
    await once(child, 'exit')
  })
  const { read } = systemProcessors()
  t.notOk((await read([2 ** 30])).has(2 ** 30), 'a process that is not there')
  if (process.platform !== 'linux') return
  let time: ProcessorTime | undefined
  await until(() => {
    void read([child.pid!]).then(times => (time = times.get(child.pid!)))
    return time !== undefined && time.ranMs > 30
  })
  t.equal(time!.isRunnable, true)
})
