import t, { type Test } from 'tap'
import type { FunctionVersion, KeepWarmPolicy } from '../../lib/core/catalog.ts'
import { createGateway, type Gateway } from '../../lib/index.ts'
import { KeepWarm, pingMethod, type PingOutcome } from '../../lib/scheduler/keep-warm.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeFn } from '../helpers/fn.ts'
import { waitUntil } from '../helpers/gateway-bed.ts'
import { makeTree } from '../helpers/tree.ts'
import { WorkQueue } from '../../lib/scheduler/keep-warm.ts'

const POLICY: KeepWarmPolicy = { enabled: true, minWarm: 1, pingEverySeconds: 45, idleTtlSeconds: 300 }

function bed(...made: FunctionVersion[]) {
  const clock = new FakeClock()
  const functions = new Map(made.map(fn => [fn.key, fn]))
  const pinged: string[] = []
  const open: ((outcome: PingOutcome) => void)[] = []
  const queue = new WorkQueue({ clock, tickMs: 1000, onSetBack: now => keepWarm.setBack(now) })
  const keepWarm = new KeepWarm({
    clock,
    queue,
    ping: fn => {
      pinged.push(`${fn.name} ${fn.signature}`)
      return new Promise(resolve => open.push(resolve))
    },
  })
  const answer = async (outcome: PingOutcome = { status: 200, error: null }): Promise<void> => {
    for (const resolve of open.splice(0)) resolve(outcome)
    await Promise.resolve()
    await Promise.resolve()
  }
  keepWarm.adopt(functions)
  queue.start()
  return { clock, functions, pinged, keepWarm, queue, answer }
}

const warm = (name: string, policy: Partial<KeepWarmPolicy> = {}, signature = '1') =>
  makeFn({ name, signature, policy: { keepWarm: { ...POLICY, ...policy } } })

t.test('[scheduler/keep-warm.3] due at once, then an interval after the end, never twice at a time', async t => {
  const { clock, pinged, answer, queue } = bed(
    warm('a'),
    warm('off', { enabled: false }),
    warm('none', { minWarm: 0 }),
    makeFn({ name: 'plain' }),
  )
  clock.advance(1000)
  t.same(pinged, ['a 1'])
  clock.advance(100_000)
  t.same(pinged, ['a 1'], 'the first still runs')
  await answer()
  clock.advance(44_000)
  t.equal(pinged.length, 1)
  clock.advance(1000)
  t.equal(pinged.length, 2)
  await answer({ status: 500, error: null })
  clock.jumpWall(-3_600_000)
  clock.advance(1000)
  t.equal(pinged.length, 3, 'a clock that was set back an hour')
  queue.stop()
  t.equal(clock.pending, 0)
})

t.test('[scheduler/keep-warm.4] deleted and changed functions', async t => {
  const { clock, functions, pinged, answer, keepWarm, queue } = bed(warm('a'), warm('b'))
  clock.advance(1000)
  await answer()
  functions.clear()
  const changed = warm('a', {}, '2')
  functions.set(changed.key, changed)
  keepWarm.adopt(functions)
  clock.advance(1000)
  t.same(pinged, ['a 1', 'b 1', 'a 2'], 'the new code is pinged at once, the deleted function no more')
  await answer({ status: 0, error: 'runtime down' })
  clock.advance(200_000)
  t.same(
    pinged.filter(name => name.startsWith('b')),
    ['b 1'],
  )
  t.match(keepWarm.rows(), [{ fn: { name: 'a' }, state: { lastError: 'runtime down', lastStatus: 0, warmAt: null } }])
  queue.stop()
})

t.test('[scheduler/keep-warm.4] a reload keeps the state and the due time of unchanged functions', async t => {
  const { clock, functions, pinged, answer, keepWarm, queue } = bed(warm('same'), warm('reread'))
  clock.advance(1000)
  await answer()
  clock.advance(10_000)
  const reread = warm('reread', { pingEverySeconds: 60 })
  functions.set(reread.key, reread)
  keepWarm.adopt(functions)
  t.match(keepWarm.rows(), [
    { fn: reread, policy: { pingEverySeconds: 60 }, state: { lastStatus: 200 } },
    { fn: { name: 'same' }, state: { lastStatus: 200 } },
  ])
  clock.advance(34_000)
  t.same(pinged, ['same 1', 'reread 1'], 'not due yet')
  clock.advance(1000)
  t.same(pinged, ['same 1', 'reread 1', 'same 1', 'reread 1'])
  queue.stop()
})

t.test('[scheduler/keep-warm.2] the method of a ping', async t => {
  t.equal(pingMethod(makeFn({ policy: { methods: ['POST', 'GET'] } })), 'GET')
  t.equal(pingMethod(makeFn({ policy: { methods: ['PUT', 'DELETE'] } })), 'PUT')
})

const HANDLERS: Record<string, string> = {
  'js/handler.js':
    'export const handler = e => { console.log(JSON.stringify([e.context.trigger, e.query, e.headers["x-fn-trigger"], e.client.ua])); return 1 }\n',
  'py/handler.py': 'def handler(event):\n    print(event["context"]["trigger"]["type"])\n    return 1\n',
  'lua/handler.lua': 'function handler(event) print(event.context.trigger.type) return 1 end\n',
}

const warmOf = (gateway: Gateway): number =>
  (gateway.health() as { functions: { summary: { warm: number } } }).functions.summary.warm

async function serve(t: Test, schedulerEnabled: boolean) {
  const config = JSON.stringify({ keep_warm: { enabled: true, min_warm: 2, ping_every_seconds: 3600 } })
  const files = Object.fromEntries(
    Object.keys(HANDLERS).map(path => [path.replace(/handler.*/, 'fn.config.json'), config]),
  )
  const { root, cleanup } = await makeTree({ ...HANDLERS, ...files })
  t.teardown(cleanup)
  const gateway = await createGateway({ functionsRoot: root, env: process.env, schedulerEnabled })
  t.teardown(() => gateway.close())
  return gateway
}

t.test(
  '[scheduler/keep-warm.1, scheduler/keep-warm.2, scheduler/keep-warm.6] workers are there before the first call, and pinged',
  async t => {
    const gateway = await serve(t, true)
    const printed: string[] = []
    await new Promise<void>(resolve => {
      gateway.on('log', record => {
        if (record.fn !== undefined && record.stream === 'stdout') printed.push(record.message.trim())
        if (printed.length === 3) resolve()
      })
    })
    t.same(printed.sort(), [
      '[{"type":"keep_warm"},{"__fn_keep_warm":"1"},"keep_warm","fngw-keep-warm"]',
      'keep_warm',
      'keep_warm',
    ])
    await waitUntil(() => warmOf(gateway) === 3, 'all are warm')
    const { functions } = gateway.health() as { functions: { summary: object; states: { workers: number }[] } }
    t.match(functions.summary, { keep_warm_enabled: 3, warm: 3 })
    t.same(
      functions.states.map(state => state.workers),
      [2, 2, 2],
      'min_warm is honoured',
    )
    let rows: { last_status: number | null }[] = []
    while (rows.length < 3 || rows.some(row => row.last_status === null)) {
      await new Promise(setImmediate)
      rows = ((await gateway.inject('/_fn/schedules')).json() as { keep_warm: typeof rows }).keep_warm
    }
    t.match(rows[0], {
      runtime: 'lua',
      name: 'lua',
      key: 'lua/lua@default',
      keep_warm: { enabled: true, min_warm: 2, ping_every_seconds: 3600, idle_ttl_seconds: 300 },
      state: { warm_state: 'warm', warm_at: Number, next: Number, last: Number, last_status: 200, last_error: '' },
      last_status: 200,
      last_error: '',
    })
  },
)

t.test('[scheduler/keep-warm.7] the scheduler switched off', async t => {
  const gateway = await serve(t, false)
  const body = (await gateway.inject('/_fn/schedules')).json()
  t.match(body, { ts: Number, schedules: [], keep_warm: [{ last: null }, { last: null }, { last: null }] })
  await waitUntil(() => warmOf(gateway) === 3, 'their workers start all the same')
})
