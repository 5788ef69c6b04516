import t, { type Test } from 'tap'
import { serveTree } from '../helpers/gateway-bed.ts'
import { noPrometheus, readMetrics } from './prometheus.ts'
import { httpUpstream } from '../helpers/upstream.ts'

const SLOW = 'exports.handler = () => new Promise(resolve => setTimeout(() => resolve("late"), 150))\n'

async function setup(t: Test) {
  const upstream = await httpUpstream((_req, res) => res.end('from there'))
  t.teardown(upstream.close)
  const bed = await serveTree(
    t,
    {
      'hello.js': 'exports.handler = () => "hi"\n',
      'broken.js': 'exports.handler = () => { throw new Error("boom") }\n',
      'users/[id].js': 'exports.handler = () => "user"\n',
      'slow/handler.js': SLOW,
      'slow/fn.config.json': JSON.stringify({
        runtime: 'node',
        worker_pool: { max_workers: 1, max_queue: 1, queue_timeout_ms: 5000 },
      }),
      'away/handler.js': `exports.handler = event => ({ proxy: { path: event.query.to ?? '/x' } })\n`,
      'away/fn.config.json': JSON.stringify({
        runtime: 'node',
        edge: { base_url: upstream.url, allow_private: true },
      }),
    },
    { runtimes: ['node', 'lua'] },
  )
  const scrape = async () => {
    const answer = await bed.gateway.inject('/_fn/metrics')
    return { ...answer, text: answer.body.toString() }
  }
  return { ...bed, scrape }
}

/** Value of a sample whose labels hold these. */
function sampleOf(text: string, name: string, labels: Record<string, string> = {}): number | undefined {
  const line = text
    .split('\n')
    .find(
      one => /^[^ {]+/.exec(one)?.[0] === name && Object.entries(labels).every(([k, v]) => one.includes(`${k}="${v}"`)),
    )
  return line === undefined ? undefined : Number(line.slice(line.lastIndexOf(' ') + 1))
}

t.test(
  '[observe/metrics.1, observe/metrics.3, observe/metrics.4, observe/metrics.7] what a gateway did is in its metrics',
  async t => {
    const { gateway, scrape } = await setup(t)
    for (const url of ['/hello', '/hello', '/broken', '/users/1', '/users/2', '/nowhere', '/away', '/away?to=/_fn/x'])
      await gateway.inject(url)
    await gateway.invoke('hello')
    const slow = await Promise.all([1, 2, 3].map(() => gateway.inject('/slow')))
    t.same(slow.map(({ status }) => status).sort(), [200, 200, 429])
    await gateway.reload()
    const { status, headers, text } = await scrape()
    t.equal(status, 200)
    t.match(headers, { 'content-type': 'text/plain; version=0.0.4; charset=utf-8', 'cache-control': 'no-store' })
    for (const [name, labels, expected] of [
      ['http_requests_total', { method: 'GET', code: '404' }, 1],
      ['http_requests_total', { method: 'GET', code: '500' }, 1],
      ['fn_invocations_total', { runtime: 'node', fn: 'hello', version: 'default', status_class: '2xx' }, 3],
      ['fn_invocations_total', { fn: 'users/[id]', status_class: '2xx' }, 2],
      ['fn_invocations_total', { fn: 'broken', status_class: '5xx' }, 1],
      ['fn_invocation_duration_seconds_count', { fn: 'hello', status_class: '2xx' }, 3],
      ['fn_invocations_total', { fn: 'slow', status_class: '4xx' }, 1],
      ['fn_queue_wait_seconds_count', { fn: 'slow' }, 1],
      ['fn_cold_starts_total', { fn: 'hello' }, 1],
      ['fn_calls_in_flight', { fn: 'slow' }, 0],
      ['fn_queue_depth', { fn: 'slow' }, 0],
      ['fn_refused_total', { fn: 'slow', reason: 'overflow' }, 1],
      ['fn_refused_total', { fn: 'slow', reason: 'queue_timeout' }, 0],
      ['fn_workers', { fn: 'hello', state: 'idle' }, 1],
      ['fn_workers', { fn: 'hello', state: 'busy' }, 0],
      ['fn_runtime_up', { runtime: 'node' }, 1],
      ['fn_edge_requests_total', { result: 'answered' }, 1],
      ['fn_edge_requests_total', { result: 'refused' }, 1],
      ['fn_edge_in_flight', {}, 0],
      ['fn_reload_total', { result: 'ok' }, 2],
      ['fn_schedule_runs_total', { result: 'ok' }, 0],
      ['fn_jobs', { state: 'queued' }, 0],
      ['fn_jobs', { state: 'done' }, 0],
    ] as const)
      t.equal(sampleOf(text, name, labels), expected, `${name} ${JSON.stringify(labels)}`)
    for (const name of ['process_cpu_seconds_total', 'process_resident_memory_bytes', 'nodejs_heap_size_used_bytes'])
      t.ok(sampleOf(text, name)! > 0, name)
    const begun = sampleOf(text, 'process_start_time_seconds')!
    t.ok(begun > Date.now() / 1000 - 3600 && begun <= Date.now() / 1000, `${begun}`)
    t.notMatch(text, '/nowhere')
  },
)

t.test('[observe/metrics.4] work under way is seen while it goes on', async t => {
  const { gateway, scrape, stateOf, until } = await setup(t)
  const calls = [gateway.inject('/slow'), gateway.inject('/slow')]
  await until(() => stateOf('node/slow@default').worker_pool.queued === 1, 'one runs, one waits')
  const { text } = await scrape()
  t.equal(sampleOf(text, 'fn_calls_in_flight', { fn: 'slow' }), 1)
  t.equal(sampleOf(text, 'fn_queue_depth', { fn: 'slow' }), 1)
  await Promise.all(calls)
})

t.test('[observe/metrics.1] Prometheus reads the text', { skip: noPrometheus ?? false }, async t => {
  const { gateway, scrape } = await setup(t)
  for (const url of ['/hello', '/users/1', '/broken', '/nowhere', '/away']) await gateway.inject(url)
  const { text } = await scrape()
  const families = readMetrics(text)
  const named = [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name, type]) => [name!, type!] as const)
  t.ok(named.length > 15)
  for (const [name, type] of named) {
    // The parser names counters without their ending.
    const family = families.get(name) ?? families.get(name.replace(/_total$/, ''))
    t.equal(family?.type, type, name)
    t.ok(family!.samples.length > 0, name)
  }
  const samples = [...families.values()].reduce((sum, family) => sum + family.samples.length, 0)
  t.equal(samples, text.split('\n').filter(line => line !== '' && !line.startsWith('#')).length, 'every line')
})
