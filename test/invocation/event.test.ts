import t from 'tap'
import {
  type EventParts,
  toCallHeader,
  toQueryJson,
  toQueryJsonOf,
  toSessionJson,
  toStaticContext,
} from '../../lib/invocation/event.ts'
import { makeFn } from '../helpers/fn.ts'
import { headerOfCall } from '../helpers/fake-runtime.ts'
import { makePublic } from '../helpers/public.ts'
import { inject } from '../../lib/http/inject.ts'

const TRACE = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'
const PARTS: EventParts = {
  id: 'r-1',
  ts: 1700000000000,
  method: 'GET',
  path: '/hello',
  rawPath: '/hello',
  params: null,
  queryJson: '{}',
  headersJson: '{}',
  ip: '',
  userAgent: null,
  cookie: null,
  userJson: 'null',
  triggerJson: 'null',
  trace: TRACE,
  traceState: null,
}

t.test('[invocation/event.1] nothing is missing from a call', async t => {
  t.same(JSON.parse(toCallHeader(PARTS)), {
    id: 'r-1',
    ts: 1700000000000,
    method: 'GET',
    path: '/hello',
    raw_path: '/hello',
    params: {},
    query: {},
    headers: {},
    client: { ip: null, ua: null },
    session: null,
    user: null,
    trigger: null,
    trace: TRACE,
  })
})

t.test(
  '[invocation/event.2, invocation/event.6, invocation/event.8] path, address and marks of a public request',
  async t => {
    const { handle, runtime } = makePublic({ '/a/:x': makeFn({ policy: { methods: ['GET', 'POST'] } }) })
    const before = Date.now()
    await inject(handle, {
      url: '//a/%41%20b%2Fc/?q=1&__fnctx=eyJ1c2VyIjoxfQ==',
      headers: { 'User-Agent': 'ua"1', 'X-Fn-Trigger': 'x' },
      remoteAddress: '::ffff:10.1.2.3',
    })
    const call = headerOfCall(runtime.calls[0]!)
    t.match(call, {
      path: '/a/A b/c',
      raw_path: '//a/%41%20b%2Fc/?q=1&__fnctx=eyJ1c2VyIjoxfQ==',
      params: { x: 'A b/c' },
      client: { ip: '10.1.2.3', ua: 'ua"1' },
      user: null,
      trigger: null,
    })
    t.ok((call.ts as number) >= before && (call.ts as number) <= Date.now())
  },
)

t.test('[invocation/event.3, invocation/event.10] query strings', async t => {
  for (const [search, expected] of [
    ['', '{}'],
    ['a=1', '{"a":"1"}'],
    ['a=1&b=2', '{"a":"1","b":"2"}'],
    ['a=1&a=2&a=', '{"a":["1","2",""]}'],
    ['a', '{"a":""}'],
    ['=x', '{"":"x"}'],
    ['&&a=1&', '{"a":"1"}'],
    ['a=b=c', '{"a":"b=c"}'],
    ['a+b=c+d%2B', '{"a b":"c d+"}'],
    ['%C3%A9=%E2%82%AC', '{"é":"€"}'],
    ['a=%zz&b=%C0%AE&%=1', '{"a":"%zz","b":"%C0%AE","%":"1"}'],
    ['a=%22%5C%0A%00', '{"a":"\\"\\\\\\n\\u0000"}'],
    ['__proto__=1&constructor=2&toString=3', '{"__proto__":"1","constructor":"2","toString":"3"}'],
    ['__proto__=1&__proto__=2', '{"__proto__":["1","2"]}'],
    ['a[]=1&a[b]=2', '{"a[]":"1","a[b]":"2"}'],
  ] as const) {
    t.equal(toQueryJson(search), expected, search)
    JSON.parse(toQueryJson(search))
  }
})

t.test('[invocation/event.4] too many query parameters are refused', async t => {
  const many = (count: number) => Array.from({ length: count }, (_, i) => `k${i}`).join('&')
  t.equal(Object.keys(JSON.parse(toQueryJson(many(1000)))).length, 1000)
  t.throws(() => toQueryJson(many(1001)), { code: 'BAD_REQUEST', status: 400 })
  t.throws(() => toQueryJson('a&'.repeat(1001)), { code: 'BAD_REQUEST' }, 'also of one name')
  const { handle, runtime } = makePublic({ '/a': makeFn() })
  const answer = await inject(handle, { url: `/a?${many(1001)}` })
  t.equal(answer.status, 400)
  t.same(answer.json(), { error: 'more than 1000 query parameters' })
  t.equal(runtime.calls.length, 0)
})

t.test('[invocation/event.5] a query object has the same form', async t => {
  const query = { a: 1, b: 'x', c: [1, 'y', null], d: true, e: null, f: { g: 1 }, h: undefined, ['__proto__']: 'p' }
  t.equal(
    toQueryJsonOf(query),
    '{"a":"1","b":"x","c":["1","y","null"],"d":"true","e":"null","f":"{\\"g\\":1}","__proto__":"p"}',
  )
  t.equal(toQueryJsonOf({}), '{}')
  t.equal(toQueryJsonOf({ a: [] }), '{"a":[]}')
})

t.test('[invocation/event.7] session from cookies', async t => {
  for (const [cookie, expected] of [
    ['a=1', { id: null, raw: 'a=1', cookies: { a: '1' } }],
    ['sid=s; session_id=t', { id: 't', raw: 'sid=s; session_id=t', cookies: { sid: 's', session_id: 't' } }],
    ['sessionid="q r"', { id: 'q r', raw: 'sessionid="q r"', cookies: { sessionid: 'q r' } }],
    ['a=1; a=2;b; =c', { id: null, raw: 'a=1; a=2;b; =c', cookies: { a: '1' } }],
    ['a==b', { id: null, raw: 'a==b', cookies: { a: '=b' } }],
  ] as const) {
    t.same(JSON.parse(toSessionJson(cookie)), expected, cookie)
  }
  t.match(toSessionJson('__proto__=1'), '"cookies":{"__proto__":"1"}')
  t.same((JSON.parse(toCallHeader({ ...PARTS, cookie: 'sid=1' })) as { session: unknown }).session, {
    id: '1',
    raw: 'sid=1',
    cookies: { sid: '1' },
  })
})

t.test('[invocation/event.9] the call names its trace', async t => {
  t.equal(JSON.parse(toCallHeader(PARTS)).trace, TRACE)
  t.notOk('trace_state' in JSON.parse(toCallHeader(PARTS)))
  t.match(JSON.parse(toCallHeader({ ...PARTS, traceState: 'a="\\' })), { trace: TRACE, trace_state: 'a="\\' })
})

t.test('[invocation/event.11] the static part of context', async t => {
  const plain = toStaticContext(makeFn({ name: 'api/users', policy: { includeDebugHeaders: true } }))
  t.same(plain, {
    runtime: 'node',
    function_name: 'api/users',
    version: 'default',
    timeout_ms: 2500,
    max_concurrency: 20,
    max_body_bytes: 1048576,
    worker_pool: null,
    gateway: { worker_pid: 0 },
    debug: { enabled: true },
    edge: false,
  })
  const workerPool = {
    enabled: true,
    minWarm: 1,
    maxWorkers: 2,
    maxQueue: 3,
    queueTimeoutMs: 4,
    queuePollMs: 20,
    idleTtlSeconds: 5,
    overflowStatus: 503 as const,
  }
  const pooled = toStaticContext(makeFn({ version: 'v2', policy: { workerPool } }))
  t.equal(pooled.version, 'v2')
  t.same(pooled.worker_pool, {
    enabled: true,
    min_warm: 1,
    max_workers: 2,
    max_queue: 3,
    queue_timeout_ms: 4,
    queue_poll_ms: 20,
    idle_ttl_seconds: 5,
    overflow_status: 503,
  })
})
