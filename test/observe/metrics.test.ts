import t from 'tap'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import { Metrics, toFamily, toLabels, toSample } from '../../lib/observe/metrics.ts'
import { makeFn } from '../helpers/fn.ts'

const HELLO = makeFn({ name: 'hello' })
const V2 = makeFn({ name: 'hello', version: 'v2' })

function setup(...functions: FunctionVersion[]) {
  const metrics = new Metrics()
  metrics.functions.adopt(new Map(functions.map(fn => [fn.key, fn])))
  const text = () => [...metrics.toText()].join('')
  /** Value of a sample; undefined when there is none. */
  const sampleOf = (sample: string) => {
    const line = text()
      .split('\n')
      .find(one => one.startsWith(`${sample} `))
    return line === undefined ? undefined : Number(line.slice(sample.length + 1))
  }
  return { metrics, text, sampleOf }
}

t.test('[observe/metrics.1] labels and help are escaped', async t => {
  t.equal(toLabels({ a: 'x"y\\z\nw', b: 'é' }), 'a="x\\"y\\\\z\\nw",b="é"')
  t.equal(toSample('m', '', 0.5), 'm 0.5\n')
  t.equal(
    [...toFamily('m', 'gauge', 'one\ntwo \\', [[{ a: '1' }, 2]])].join(''),
    '# HELP m one\\ntwo \\\\\n# TYPE m gauge\nm{a="1"} 2\n',
  )
  t.same([...toFamily('m', 'gauge', 'nothing', [])], [])
})

t.test('[observe/metrics.2] requests by method and status, whatever a client sends', async t => {
  const { metrics, text, sampleOf } = setup()
  for (const method of ['GET', 'GET', 'HEAD', 'PROPFIND', 'x"}\n']) metrics.request(method, 200, null, 1, 0)
  metrics.request('GET', 404, null, 1, 0)
  metrics.request('GET', 999, null, 1, 0)
  metrics.request('GET', 200, null, 2000, 0, true)
  t.equal(sampleOf('http_requests_total{method="GET",code="200"}'), 3)
  t.equal(sampleOf('http_requests_total{method="HEAD",code="200"}'), 1)
  t.equal(sampleOf('http_requests_total{method="other",code="200"}'), 2)
  t.equal(sampleOf('http_requests_total{method="GET",code="404"}'), 1)
  t.equal(sampleOf('http_requests_total{method="GET",code="0"}'), 1)
  t.equal(sampleOf('http_request_duration_seconds_count'), 8, 'those of the control plane too')
  t.equal(sampleOf('http_request_duration_seconds_sum'), 2.007)
  t.equal(sampleOf('http_request_duration_seconds_bucket{le="1"}'), 7)
  t.notMatch(text(), /PROPFIND|fn_invocations/)
})

t.test('[observe/metrics.3, observe/metrics.4] calls by function, version, runtime and class of status', async t => {
  const { metrics, sampleOf } = setup(HELLO, V2)
  const labels = 'runtime="node",fn="hello",version="default"'
  metrics.request('GET', 200, HELLO, 3, 0)
  metrics.request('GET', 204, HELLO, 3, 20)
  metrics.request('GET', 503, HELLO, 1, 0)
  metrics.functions.count(V2, 0, 1, 0)
  metrics.functions.count(V2, 777, 1, 0)
  metrics.functions.coldStart(V2)
  t.equal(sampleOf(`fn_invocations_total{${labels},status_class="2xx"}`), 2)
  t.equal(sampleOf(`fn_invocations_total{${labels},status_class="5xx"}`), 1)
  t.equal(sampleOf(`fn_invocations_total{${labels},status_class="4xx"}`), undefined)
  t.equal(sampleOf(`fn_invocation_duration_seconds_bucket{${labels},status_class="2xx",le="0.005"}`), 2)
  t.equal(sampleOf(`fn_queue_wait_seconds_count{${labels}}`), 1)
  t.equal(sampleOf(`fn_queue_wait_seconds_sum{${labels}}`), 0.02)
  const v2 = labels.replace('default', 'v2')
  t.equal(sampleOf(`fn_invocations_total{${v2},status_class="4xx"}`), 1, 'one that was stopped')
  t.equal(sampleOf(`fn_invocations_total{${v2},status_class="5xx"}`), 1)
  t.equal(sampleOf(`fn_cold_starts_total{${v2}}`), 1)
  t.equal(sampleOf(`fn_cold_starts_total{${labels}}`), undefined)
})

t.test('[observe/metrics.5] a function that is gone has no series, and its last calls make none', async t => {
  const { metrics, text, sampleOf } = setup(HELLO, V2)
  metrics.request('GET', 200, HELLO, 1, 0)
  metrics.request('GET', 200, V2, 1, 0)
  metrics.functions.adopt(new Map([[HELLO.key, { ...HELLO }]]))
  t.notMatch(text(), 'v2')
  metrics.request('GET', 200, V2, 1, 0)
  metrics.functions.coldStart(V2)
  t.notMatch(text(), 'v2')
  t.equal(sampleOf('http_requests_total{method="GET",code="200"}'), 3)
  t.equal(sampleOf('fn_invocations_total{runtime="node",fn="hello",version="default",status_class="2xx"}'), 1)
  metrics.request('GET', 200, HELLO, 1, 0)
  t.equal(sampleOf('fn_invocations_total{runtime="node",fn="hello",version="default",status_class="2xx"}'), 2)
})

t.test('[observe/metrics.6] who keeps numbers himself registers where they are', async t => {
  const { metrics, text, sampleOf } = setup()
  let jobs = 1
  metrics.register(() => toFamily('fn_jobs', 'gauge', 'Jobs.', [[{ state: 'queued' }, jobs]]))
  t.equal(sampleOf('fn_jobs{state="queued"}'), 1)
  jobs = 7
  t.equal(sampleOf('fn_jobs{state="queued"}'), 7)
  metrics.reload('ok')
  metrics.reload('failed')
  metrics.scheduleRun('failed')
  t.equal(sampleOf('fn_reload_total{result="ok"}'), 1)
  t.equal(sampleOf('fn_reload_total{result="failed"}'), 1)
  t.equal(sampleOf('fn_schedule_runs_total{result="failed"}'), 1)
  t.equal(sampleOf('fn_schedule_runs_total{result="ok"}'), 0)
  const names = text().match(/^# TYPE \S+/gm)!
  t.equal(new Set(names).size, names.length, 'each family once')
})
