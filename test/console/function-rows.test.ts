import t from 'tap'
import type { History } from '../../console/data/history.ts'
import type { Catalog, RouteClaim } from '../../console/data/records.ts'
import { parseFunctionAddress, parseFunctionKey } from '../../console/data/function-records.ts'
import { filterRows, toRows } from '../../console/pages/functions/rows.ts'

function claim(name: string, file: string, methods: string[]): RouteClaim {
  const rest = { source: 'file', source_rank: 1, force_url: false, origin: file }
  // The catalog has null for the default version.
  return { runtime: 'node', name, fn_name: name, version: null as unknown as string, methods, file, ...rest }
}

const CATALOG: Catalog = {
  generated_at: 1,
  runtime_order: ['node', 'lua'],
  mapped_routes: {
    '/hello/*': [claim('hello', 'hello/handler.js', ['GET'])],
    '/hello': [claim('hello', 'hello/handler.js', ['GET', 'POST'])],
    '/bad': [claim('bad', 'bad/handler.js', ['GET'])],
  },
  mapped_route_conflicts: {},
  runtimes: {
    node: {
      functions: [
        { name: 'hello', has_default: true, versions: ['v2'], file: 'hello/handler.js' },
        { name: 'bad', has_default: true, versions: [], file: 'bad/handler.js' },
      ],
    },
    lua: { functions: [{ name: 'only', has_default: false, versions: ['v1'], file: null }] },
  },
  warnings: [
    { code: 'A', path: 'hello/fn.config.json', message: 'x' },
    { code: 'B', path: 'hello', message: 'x' },
    { code: 'C', path: 'hello2/handler.js', message: 'x' },
  ],
}

const totals = (key: string, requests: number, failed: number, p95: number | null) => ({
  key,
  runtime: 'node',
  name: 'x',
  version: 'default',
  requests,
  errors_4xx: 0,
  errors_5xx: failed,
  throttled: 0,
  p50_ms: p95,
  p95_ms: p95,
  p99_ms: p95,
  spark: [],
  last_error_at: failed > 0 ? 5 : null,
  last_error: failed > 0 ? 'bad/handler.js:3: Error: Boom' : null,
})

const METRICS = {
  generated_at: 1000,
  started_at: 990,
  times: [700],
  functions: [totals('node/hello@default', 20, 0, 1500), totals('node/bad@default', 5, 5, 2)],
} as unknown as History

const HEALTH = { functions: { states: [{ key: 'node/hello@default', state: 'warm', workers: 2, load_error: null }] } }

const rows = toRows({ catalog: CATALOG, metrics: METRICS, health: HEALTH })
const rowOf = (key: string) => rows.find(row => row.key === key)

t.test('[console/functions.1] every function and version is a row with what is known of it', async t => {
  t.same(
    rows.map(({ key }) => key),
    ['node/hello@default', 'node/hello@v2', 'node/bad@default', 'lua/only@v1'],
  )
  t.match(rowOf('node/hello@default'), { routes: ['GET,POST /hello', 'GET /hello/*'], workers: 2, rate: 2 })
  t.match(rowOf('node/hello@v2'), { routes: ['/hello@v2'], workers: 0, rate: 0, summary: null })
  const early = toRows({ catalog: CATALOG, metrics: null, health: null })
  t.match(early[0], { workers: null, rate: null, summary: null }, 'not known is not zero')
})

t.test('[console/functions.3] states, the worst first', async t => {
  t.match(rowOf('node/hello@default'), { state: 'slow', warnings: 2 })
  t.same([...rowOf('node/hello@default')!.states], ['slow', 'warnings', 'warm'])
  t.match(rowOf('node/bad@default'), { state: 'failing', warnings: 0 })
  t.equal(rowOf('lua/only@v1')?.state, null)
  const [full] = METRICS.functions
  const throttled = { ...METRICS, functions: [{ ...full!, throttled: 3 }] }
  const [limited] = toRows({ catalog: CATALOG, metrics: throttled, health: HEALTH })
  t.same([...limited!.states], ['throttled', 'slow', 'warnings', 'warm'])
  const stale = { key: 'node/hello@default', state: 'stale', workers: 1, load_error: 'hello/handler.js:3: bad' }
  const [broken] = toRows({ catalog: CATALOG, metrics: null, health: { functions: { states: [stale] } } })
  t.same([...broken!.states], ['broken', 'warnings', 'warm'])
})

t.test('[console/functions.2] rows by text, runtime and state', async t => {
  const keys = (text: string, runtime = '', state = ''): string[] =>
    filterRows(rows, { text, runtime, state }).map(({ key }) => key)
  t.same(keys('HELLO v2'), ['node/hello@v2'])
  t.same(keys('boom'), ['node/bad@default'])
  t.same(keys('/hello/*'), ['node/hello@default'])
  t.same(keys('', 'lua'), ['lua/only@v1'])
  t.same(keys('', '', 'warm'), ['node/hello@default'])
  t.same(keys('', '', 'nothing'), [])
  t.equal(filterRows(rows, { text: ' ', runtime: '', state: '' }), rows)
})

t.test('[console/function.1] the address of a function', async t => {
  t.same(parseFunctionKey('node/users/[id]@v2'), { runtime: 'node', name: 'users/[id]', version: 'v2' })
  t.same(parseFunctionKey('node/hello'), { runtime: 'node', name: 'hello', version: 'default' })
  t.same(parseFunctionKey('node/hello@'), { runtime: 'node', name: 'hello', version: 'default' })
  for (const text of ['', 'node', '/x', 'node/', 'node/@v1']) t.equal(parseFunctionKey(text), null, text)
  t.same(parseFunctionAddress('node/users/[id]@v2'), { runtime: 'node', name: 'users/[id]', version: 'v2' })
  t.same(parseFunctionAddress('boom'), { runtime: null, name: 'boom', version: 'default' })
  t.same(parseFunctionAddress('team/orders@v2'), { runtime: null, name: 'team/orders', version: 'v2' })
  t.equal(parseFunctionAddress(''), null)
})
