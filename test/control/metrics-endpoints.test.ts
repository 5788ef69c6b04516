import { once } from 'node:events'
import { connect } from 'node:net'
import t, { type Test } from 'tap'
import { createMetricsEndpoints } from '../../lib/control/metrics-endpoints.ts'
import { systemClock } from '../../lib/core/clock.ts'
import { GatewayError } from '../../lib/core/errors.ts'
import type { GatewayOptions } from '../../lib/index.ts'
import { History } from '../../lib/observe/history.ts'
import { Metrics } from '../../lib/observe/metrics.ts'
import { serveEndpoints, toContext } from '../helpers/control.ts'
import { makeFn } from '../helpers/fn.ts'
import { askClosing, HELD_FUNCTION, serveTree } from '../helpers/gateway-bed.ts'

const REST = {
  clock: systemClock,
  history: { read: () => null },
  state: () => ({ functions: [] }),
  processes: () => null,
}
const LINE = `m ${'1'.repeat(1000)}\n`

t.test('[observe/metrics.8] a long text is made in pieces, and others have their turn between two', async t => {
  let turns = 0
  const ticker = setInterval(() => {
    turns += 1
  }, 0)
  t.teardown(() => clearInterval(ticker))
  let turnsAtEnd = 0
  const metrics = {
    *toText() {
      for (let i = 0; i < 2000; i++) yield LINE
      turnsAtEnd = turns
    },
  }
  const ask = serveEndpoints(t, createMetricsEndpoints(toContext({ ...REST, metrics })))
  const answer = await ask({ url: '/_fn/metrics' })
  t.equal(answer.status, 200)
  t.ok(answer.body.toString().startsWith(LINE.repeat(2000)))
  t.match(answer.body.toString(), /\nprocess_resident_memory_bytes \d+\n/)
  t.ok(turnsAtEnd > 0, `${turnsAtEnd}`)
  const head = await ask({ method: 'HEAD', url: '/_fn/metrics' })
  t.match(head, { status: 200, headers: { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' } })
  t.equal(head.body.length, 0)
  t.equal((await ask({ url: '/_fn/metrics?names=x' })).status, 400)
})

t.test('[observe/metrics.8] numbers that cannot be read are an error of this answer alone', async t => {
  const failing = (lines: number) => ({
    *toText() {
      for (let i = 0; i < lines; i++) yield LINE
      throw new GatewayError('INTERNAL', 'no numbers')
    },
  })
  const ask = (lines: number) =>
    serveEndpoints(t, createMetricsEndpoints(toContext({ ...REST, metrics: failing(lines) })))({ url: '/_fn/metrics' })
  t.equal((await ask(0)).status, 500)
  await t.rejects(ask(1000), 'an answer that has begun is cut')
})

t.test('[observe/metrics.8] a reader who leaves in the middle ends the answer', async t => {
  const { port, gateway } = await serveTree(t, { 'a.lua': 'function handler() return 1 end\n' }, { runtimes: ['lua'] })
  const socket = connect(port, '127.0.0.1')
  socket.write('GET /_fn/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n')
  await once(socket, 'data')
  socket.destroy()
  t.equal((await gateway.inject('/_fn/metrics')).status, 200)
})

interface Shown {
  generated_at: number
  started_at: number
  window: string
  step_ms: number
  times: number[]
  series: Record<string, (number | null)[]>
  totals: { requests: number; errors_4xx: number; errors_5xx: number; p95_ms: number | null; spark: number[] }
  functions: { key: string; requests: number; errors_5xx: number; last_error: string | null; spark: number[] }[]
  runtimes: Record<string, { requests: number }>
  functions_left_out: number
}

const TREE = {
  'hello.js': 'exports.handler = () => "hi"\n',
  'broken.js': 'exports.handler = () => { throw new Error("boom") }\n',
  'light.lua': 'function handler() return "light" end\n',
}

async function setupHistory(t: Test, options: GatewayOptions = {}) {
  const bed = await serveTree(t, TREE, { runtimes: ['node', 'lua'], uiEnabled: true, ...options })
  const read = async (search = '') => {
    const answer = await bed.gateway.inject(`/_fn/metrics?format=json${search}`)
    t.equal(answer.status, 200, answer.body.toString().slice(0, 200))
    return answer.json() as Shown
  }
  return { ...bed, read }
}

const sum = (row: (number | null)[] | undefined): number =>
  row!.reduce<number>((total, value) => total + (value ?? 0), 0)

t.test(
  '[observe/metrics.9, observe/history.1, observe/history.2] every number is the number of requests that were sent',
  async t => {
    const { gateway, url, read } = await setupHistory(t)
    const begun = await read()
    t.equal(sum(begun.series.requests), 0, 'what asks for the numbers is not among them')
    const sent = { '/hello': 17, '/broken': 3, '/light': 5, '/nowhere': 4 }
    for (const [path, count] of Object.entries(sent))
      for (let i = 0; i < count; i++) {
        if (i % 2 === 0) await gateway.inject(path)
        else await (await fetch(url + path)).text()
      }
    await gateway.invoke('hello')
    for (let i = 0; i < 3; i++) await (await fetch(`${url}/_fn/catalog`)).text()
    await gateway.reload()
    // Node tells of the end of an answer over a socket when the client may have it already.
    let shown = await read()
    for (let i = 0; i < 1000 && sum(shown.series.requests) < 29; i++) shown = await read()
    for (const window of ['5m', '1h', '24h']) {
      const { series, totals, functions, runtimes, times, ...rest } = await read(`&window=${window}`)
      t.equal(sum(series.requests), 29, window)
      t.equal(sum(series.errors_4xx), 4)
      t.equal(sum(series.errors_5xx), 3)
      t.match(totals, { requests: 29, errors_4xx: 4, errors_5xx: 3, p95_ms: Number })
      t.equal(sum(totals.spark), 29)
      t.equal(sum(series.cold_starts), 3)
      t.ok(series.workers!.at(-1)! >= 3)
      t.same(functions.map(({ key, requests, errors_5xx }) => [key, requests, errors_5xx]).sort(), [
        ['lua/light@default', 5, 0],
        ['node/broken@default', 3, 3],
        ['node/hello@default', 18, 0],
      ])
      for (const { requests, spark } of functions) t.equal(sum(spark), requests)
      t.match(
        functions.find(({ key }) => key.includes('broken')),
        { last_error: /boom/ },
      )
      t.match(runtimes, { node: { requests: 21 }, lua: { requests: 5 } })
      t.equal(times.length, series.p95_ms!.length)
      t.match(rest, { window, functions_left_out: 0 })
      t.ok(times.at(-1)! <= rest.generated_at && times.at(-1)! > rest.generated_at - 2 * (rest.step_ms / 1000))
      t.ok(rest.started_at <= rest.generated_at)
    }
    const hello = await read('&key=node/hello@default')
    t.equal(sum(hello.series.requests), 18)
    t.equal(hello.totals.requests, 18)
    t.same(
      hello.functions.map(({ key }) => key),
      ['node/hello@default'],
    )
    const lua = await read('&runtime=lua&window=1h')
    t.equal(sum(lua.series.requests), 5)
    t.equal(lua.totals.requests, 5)
    t.same(
      lua.functions.map(({ key }) => key),
      ['lua/light@default'],
    )
  },
)

t.test('[observe/history.10] what cannot be asked is refused with the field and the rule', async t => {
  const { gateway } = await setupHistory(t)
  for (const [search, status, error] of [
    ['format=xml', 400, /format must be text or json/],
    ['format=json&window=1d', 400, /window must be one of 5m, 1h, 24h/],
    ['format=json&runtime=perl', 400, /runtime must be one of/],
    ['format=json&key=node/none@default', 404, /no function has the key "node\/none@default"/],
    ['format=json&key=node/hello@default&runtime=node', 400, /key and runtime cannot both/],
    ['format=json&scope=all', 400, /scope must be gateway or fleet/],
    ['format=json&scope=fleet&key=node/hello@default', 400, /key cannot be given with scope=fleet/],
    ['format=json&scope=fleet&runtime=node', 400, /runtime cannot be given with scope=fleet/],
    ['window=5m', 400, /window is for format=json only/],
    ['format=text&key=x', 400, /key is for format=json only/],
  ] as const) {
    const answer = await gateway.inject(`/_fn/metrics?${search}`)
    t.equal(answer.status, status, search)
    t.match((answer.json() as { error: string }).error, error)
  }
  const never = await gateway.inject('/_fn/metrics?format=json&key=node/hello@default')
  t.match(never.json(), { functions: [{ requests: 0, p50_ms: null, last_error: null }] })
})

t.test('[observe/history-report.6] without a fleet the sum is the history of the gateway', async t => {
  const { gateway, read } = await setupHistory(t)
  await gateway.inject('/hello')
  t.match(await read('&scope=fleet'), { fleet: null, totals: { requests: 1 }, functions: [{ requests: 1 }] })
  t.notOk('fleet' in (await read()))
})

t.test('[observe/history.6] the history is kept while the console is on', async t => {
  const { gateway, read } = await setupHistory(t, { uiEnabled: false, consoleWriteEnabled: true })
  const off = await gateway.inject('/_fn/metrics?format=json')
  t.equal(off.status, 404)
  t.match(off.json(), { error: /FN_UI_ENABLED=1/ })
  await gateway.inject('/hello')
  const put = (ui_enabled: boolean) =>
    gateway.inject({
      method: 'PUT',
      url: '/_fn/ui-state',
      headers: { 'content-type': 'application/json' },
      body: { ui_enabled },
    })
  t.equal((await put(true)).status, 200)
  t.equal(sum((await read()).series.requests), 0, 'it begins with the numbers of now')
  await gateway.inject('/hello')
  const shown = await read()
  t.equal(sum(shown.series.requests), 1)
  t.match(shown.functions, [{ key: 'node/hello@default', requests: 1 }])
  await put(false)
  t.equal((await gateway.inject('/_fn/metrics?format=json')).status, 404)
})

t.test('[observe/history.6] a gateway that stops tells it to the last request', async t => {
  const tree = { 'held.mjs': HELD_FUNCTION, 'hello.mjs': 'export const handler = () => 1' }
  const bed = await serveTree(t, tree, { runtimes: ['node'], uiEnabled: true })
  await bed.gateway.inject('/hello')
  const { status, body } = await askClosing(bed, '/_fn/metrics?format=json')
  t.equal(status, 200, body)
  t.match(JSON.parse(body), { functions: [{ key: 'node/hello@default', requests: 1 }] })
})

t.test('[observe/history.10] a thousand functions are read in pieces', async t => {
  const functions = Array.from({ length: 1000 }, (_, i) => makeFn({ name: `f${i}` }))
  const metrics = new Metrics()
  metrics.functions.adopt(new Map(functions.map(fn => [fn.key, fn])))
  const history = new History({
    clock: systemClock,
    metrics,
    waiting: () => [],
    workers: () => [],
    onProblem: () => {},
  })
  t.teardown(() => history.stop())
  history.start()
  for (const fn of functions) metrics.request('GET', 200, fn, 1, 0)
  const endpoints = createMetricsEndpoints(
    toContext({ clock: systemClock, metrics, history, state: () => ({ functions }), processes: () => null }),
  )
  const ask = serveEndpoints(t, endpoints)
  let turns = 0
  const turn = () => {
    turns += 1
    immediate = setImmediate(turn)
  }
  let immediate = setImmediate(turn)
  t.teardown(() => clearImmediate(immediate))
  const answer = (await ask({ url: '/_fn/metrics?format=json&window=24h' })).json() as Shown
  t.equal(answer.functions.length, 1000)
  t.ok(turns >= 10, `${turns}`)
  t.equal(sum(answer.functions.map(({ requests }) => requests)), 1000)
})
