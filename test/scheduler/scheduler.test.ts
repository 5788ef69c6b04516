import { readFileSync, writeFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import { createGateway, type GatewayOptions, type ScheduleRecord } from '../../lib/index.ts'
import { makeControlBed } from '../helpers/control-bed.ts'
import { makeTree, type Tree, type TreeEntry } from '../helpers/tree.ts'

const HANDLER = 'exports.handler = e => ({ status: Number(e.query.status ?? 200), headers: {}, body: e })'
const ECHO = 'exports.handler = e => { console.log(JSON.stringify(e)); return { status: 200, headers: {}, body: "" } }'

const config = (schedule: object, more: object = {}): TreeEntry => ({ json: { schedule, ...more } })

/** Resolves with the first run of each function. */
function firstRuns(gateway: Awaited<ReturnType<typeof createGateway>>, count: number) {
  const runs = new Map<string, ScheduleRecord>()
  return new Promise<Map<string, ScheduleRecord>>(resolve => {
    const stop = gateway.on('schedule', record => {
      if (record.fn !== 'fails' && !runs.has(record.fn)) runs.set(record.fn, record)
      if (runs.size < count) return
      stop()
      resolve(runs)
    })
  })
}

t.test(
  '[scheduler/schedule.2] runs of a gateway: the policy path of HTTP, functions, file routes, versions',
  async t => {
    const { gateway, say } = await makeControlBed(t, {
      'fine/handler.js': HANDLER,
      'fine/fn.config.json': config({ cron: '* * * * * *', method: 'POST', query: { status: 201 } }),
      'fine/v2/handler.js': HANDLER,
      'page.js': HANDLER,
      'one/only.js': HANDLER,
      'one/fn.config.json': config({ every_seconds: 1 }),
      'method/handler.js': HANDLER,
      'method/fn.config.json': config({ every_seconds: 1, method: 'DELETE' }, { invoke: { methods: ['GET'] } }),
      'large/handler.js': HANDLER,
      'large/fn.config.json': config(
        { every_seconds: 1, method: 'POST', body: 'x'.repeat(20) },
        { max_body_bytes: 10 },
      ),
      'fails/handler.js': HANDLER,
      'fails/fn.config.json': config({
        every_seconds: 1,
        query: { status: 500 },
        retry: { base_delay_seconds: 3600, max_delay_seconds: 3600 },
      }),
      'lua/handler.lua': 'function handler() return { status = 200, headers = {}, body = "" } end',
      'lua/fn.config.json': config({ every_seconds: 1 }),
    })
    const runs = await firstRuns(gateway, 5)
    t.same([...runs.values()].map(({ fn, status, attempt }) => [fn, status, attempt]).sort(), [
      ['fine', 201, 1],
      ['large', 413, 1],
      ['lua', 200, 1],
      ['method', 405, 1],
      ['one/only', 200, 1],
    ])
    type Rows = { schedules: { key: string; last_status: number | null }[] }
    const read = async () => ((await say('GET', '/_fn/schedules'))[1] as unknown as Rows).schedules
    let schedules = await read()
    // It runs once, maybe before anybody listened.
    while (schedules[1]?.last_status === null) {
      await new Promise(setImmediate)
      schedules = await read()
    }
    t.match(
      schedules.map(({ key }) => key),
      [
        'lua/lua@default',
        'node/fails@default',
        'node/fine@default',
        'node/large@default',
        'node/method@default',
        'node/one/only@default',
      ],
      'the version has none of its own',
    )
    t.match(schedules[1], { retry_attempt: 2, last_status: 500, last_error: /^retrying 2\/3 in \d+\.\d\ds: HTTP 500$/ })
    const metrics = await gateway.inject('/_fn/metrics')
    t.match(metrics.text(), /fn_schedule_runs_total\{result="failed"\} [1-9]/)
  },
)

t.test('[scheduler/schedule.2] what the handler sees', async t => {
  const { gateway } = await makeControlBed(t, {
    'echo/handler.js': ECHO,
    'echo/fn.config.json': config({
      cron: '* * * * * *',
      tz: 'Z',
      method: 'PUT',
      query: { a: 1 },
      headers: { 'X-A': 'b' },
      body: 'text',
      context: { by: 'cron' },
      retry: true,
    }),
  })
  const event = await new Promise<Record<string, unknown>>(resolve => {
    gateway.on('log', ({ stream, message }) => stream === 'stdout' && resolve(JSON.parse(message)))
  })
  t.match(event, {
    method: 'PUT',
    path: '/echo',
    query: { a: '1' },
    headers: { 'x-a': 'b', 'user-agent': 'fngw-schedule', 'x-fn-trigger': 'schedule' },
    body: 'text',
    client: { ip: null, ua: 'fngw-schedule' },
    context: {
      user: { by: 'cron' },
      trigger: { type: 'schedule', cron: '* * * * * *', timezone: 'Z', attempt: 1, max_attempts: 3 },
    },
  })
})

/** A tree whose gateways are all closed before it goes. */
function makeRoot(
  t: Test,
  entries: Record<string, TreeEntry>,
): { tree: Tree; start: (options?: GatewayOptions) => ReturnType<typeof createGateway> } {
  const tree = makeTree(entries)
  const gateways: Awaited<ReturnType<typeof createGateway>>[] = []
  t.teardown(async () => {
    for (const gateway of gateways) await gateway.close()
    tree.cleanup()
  })
  const start = async (options: GatewayOptions = {}) => {
    const gateway = await createGateway({ functionsRoot: tree.root, runtimes: ['node'], ...options })
    gateways.push(gateway)
    return gateway
  }
  return { tree, start }
}

const SECONDLY = { 'a/handler.js': HANDLER, 'a/fn.config.json': config({ every_seconds: 1 }) }

t.test(
  '[scheduler/schedule-store.5, scheduler/scheduler.4] two gateways on one root, and the state that they leave',
  async t => {
    const { tree, start } = makeRoot(t, SECONDLY)
    const first = await start()
    const second = await start()
    t.match(second.warnings, [{ code: 'SCHEDULES_ELSEWHERE' }])
    const told: unknown[] = []
    second.on('schedule', record => told.push(record))
    await firstRuns(first, 1)
    t.same(told, [])
    const run = firstRuns(second, 1)
    await first.close()
    const [state] = Object.values(JSON.parse(readFileSync(tree.path('.svc/scheduler-state.json'), 'utf8')).schedules)
    t.match(state, { last_status: 200, running: null })
    t.match((await run).get('a'), { status: 200 }, 'it takes over')
    t.same(second.warnings, [])
  },
)

t.test(
  '[scheduler/schedule.11, scheduler/schedule.12] a reload takes schedules away, brings new ones, and tells of wrong ones',
  async t => {
    const { tree, start } = makeRoot(t, { ...SECONDLY, 'a/fn.config.json': config({ cron: '99 * * * *' }) })
    const gateway = await start()
    const rows = async () => ((await gateway.inject('/_fn/schedules')).json() as { schedules: unknown[] }).schedules
    const problem = /^a\/fn\.config\.json: schedule\.cron must be .*got "99 \* \* \* \*"/
    t.match(await rows(), [{ schedule: null, next: null, next_at: null, last_status: null, last_error: problem }])
    t.match(gateway.warnings, [
      { path: 'a/fn.config.json', message: problem },
      { path: 'a/fn.config.json', message: /schedule is not used/ },
    ])
    writeFileSync(tree.path('a/fn.config.json'), JSON.stringify({ schedule: { every_seconds: 1 } }))
    await gateway.reload()
    t.match((await firstRuns(gateway, 1)).get('a'), { status: 200 })
    writeFileSync(tree.path('a/fn.config.json'), JSON.stringify({ schedule: { cron: '99 * * * *' } }))
    await gateway.reload()
    t.match((await firstRuns(gateway, 1)).get('a'), { status: 200 }, 'the last good config stays in force')
    t.match(gateway.warnings, [{ message: problem }, { message: /not used/ }, { message: /last good version stays/ }])
    writeFileSync(tree.path('a/fn.config.json'), '{}')
    await gateway.reload()
    t.same(await rows(), [])
  },
)
