import t from 'tap'
import type { FunctionState, Health } from '../../console/data/health-record.ts'
import type { Workers } from '../../console/data/workers.ts'
import { toPlaceRows, toSocketRows, toWorkerRows } from '../../console/pages/health/rows.ts'

const worker = (key: string, state: string, pid: number | null) => ({
  ...{ key, state, pid, socket: 1, inflight: 0, calls: 1, started_at: 5, memory_bytes: null },
})
const WORKERS = {
  runtimes: {
    lua: {
      daemons: [],
      growth: [],
      workers: [worker('lua/a@default', 'idle', null), worker('lua/a@default', 'busy', null)],
    },
    node: {
      daemons: [
        { index: 2, uri: 'unix:b', up: true, reason: 'ok', pid: 7, restarts: 3, started_at: 9, memory_bytes: 10 },
      ],
      growth: [{ key: 'node/b@v2', decision: 'computing', processors: 2 }],
      workers: [worker('node/b@v2', 'idle', 8)],
    },
  },
} as unknown as Workers
const HEALTH = {
  runtime_order: ['node', 'lua'],
  runtimes: {
    lua: { sockets: [{ index: 1, up: true, reason: 'in-process' }] },
    node: {
      sockets: [
        { index: 1, up: false, reason: 'gone', uri: 'unix:a' },
        { index: 2, up: true, reason: 'ok', uri: 'unix:b' },
      ],
    },
  },
} as unknown as Health

t.test('[console/health.1, console/health.3] sockets with the process behind them, where it is known', async t => {
  const shown = (workers: Workers | null) =>
    toSocketRows(HEALTH, workers).map(({ key, up, uri, pid, restarts }) => [key, up, uri, pid, restarts])
  t.same(shown(WORKERS), [
    ['node 1', false, 'unix:a', null, null],
    ['node 2', true, 'unix:b', 7, 3],
    ['lua 1', true, null, null, null],
  ])
  t.same(shown(null)[1], ['node 2', true, 'unix:b', null, null])
})

t.test('[console/health.1, console/health.3] workers, each once, found by function and state', async t => {
  const all = toWorkerRows(WORKERS, '')
  t.equal(all.length, 3)
  t.equal(new Set(all.map(({ id }) => id)).size, 3)
  t.equal(all.find(({ key }) => key === 'lua/a@default')?.growth, null)
  t.match(all.find(({ key }) => key === 'node/b@v2')?.growth, /2/)
  t.same(
    toWorkerRows(WORKERS, ' LUA ').map(({ state }) => state),
    ['idle', 'busy'],
  )
  t.same(
    toWorkerRows(WORKERS, 'idle').map(({ key }) => key),
    ['lua/a@default', 'node/b@v2'],
  )
})

t.test('[console/health.2] only functions with calls, or that turned some away', async t => {
  const state = (key: string, active: number, queued: number, overflow: number, timeout: number) =>
    ({ key, worker_pool: { active, queued, queue_drops: { overflow, timeout } } }) as unknown as FunctionState
  const rows = [
    state('a', 0, 0, 0, 0),
    state('b', 1, 0, 0, 0),
    state('c', 0, 2, 0, 0),
    state('d', 0, 0, 3, 0),
    state('e', 0, 0, 0, 4),
  ]
  t.same(
    toPlaceRows(rows).map(({ key }) => key),
    ['b', 'c', 'd', 'e'],
  )
})
