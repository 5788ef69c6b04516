import t from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import { DebugHeaders } from '../../lib/http/http-call.ts'
import { type Exchange, FIRST_OPEN_EXCHANGES, MAX_OPEN_EXCHANGES } from '../../lib/http/exchange.ts'
import { inject, MemoryRequest, MemoryResponse, MemorySocket } from '../../lib/http/inject.ts'
import { HttpServer } from '../../lib/http/server.ts'
import type { RuntimeCall } from '../../lib/runtime/call.ts'
import { type PublicCatalog, PublicHandler } from '../../lib/http/public.ts'
import { headerOfCall } from '../helpers/fake-runtime.ts'
import { makeFn } from '../helpers/fn.ts'
import { waitUntil } from '../helpers/gateway-bed.ts'
import { makePublic } from '../helpers/public.ts'
import { RawConnection } from '../helpers/raw-http.ts'

const POOL = {
  enabled: true,
  minWarm: 0,
  maxWorkers: 1,
  maxQueue: 0,
  queueTimeoutMs: 0,
  queuePollMs: 20,
  idleTtlSeconds: 300,
  overflowStatus: 503 as const,
}

t.test('[http/public.1] each step refuses with its own status, the first one wins', async t => {
  const { handle, runtime } = makePublic({
    '/ok': makeFn({ name: 'ok', policy: { methods: ['POST'], maxBodyBytes: 3 } }),
    '/two': [makeFn({ name: 'two' }), makeFn({ name: 'dos' })],
    '/host': makeFn({ name: 'host', policy: { allowHosts: ['a.example'] } }),
    '/odd': makeFn({ name: 'odd', policy: { adapter: null, adapterName: 'aws' } }),
    '/busy': makeFn({ name: 'busy', policy: { workerPool: { ...POOL, maxWorkers: 1 } } }),
    '/full': makeFn({ name: 'full', policy: { maxConcurrency: 1 } }),
    '/die': makeFn({ name: 'die' }),
    '/late': makeFn({ name: 'late' }),
    '/bad': makeFn({ name: 'bad' }),
  })
  runtime.answer = (call, own) => {
    if (call.fn.name === 'die') own.fail(call)
    if (call.fn.name === 'late') own.fail(call, new GatewayError('TIMEOUT', 'runtime timeout'))
    if (call.fn.name === 'bad') own.reply(call, 999)
    if (call.fn.name === 'ok') own.reply(call, 200)
  }
  for (const url of ['/busy', '/full']) void inject(handle, { url })
  for (const [method, url, body, status, message] of [
    ['GET', '/%zz', null, 400, 'malformed percent escape in path'],
    ['GET', '/missing', null, 404, 'not found'],
    ['GET', '/ok', '12345', 405, 'method not allowed'],
    ['GET', '/two', null, 409, 'ambiguous route'],
    ['GET', '/host', null, 421, 'host not allowed'],
    ['POST', '/ok', '1234', 413, 'payload too large: the limit is 3 bytes'],
    ['GET', '/odd', null, 500, 'unknown adapter: invoke.adapter is "aws"'],
    ['GET', '/busy', null, 503, 'worker pool overflow'],
    ['GET', '/full', null, 429, 'concurrency limit reached'],
    ['GET', '/die', null, 503, 'worker died'],
    ['GET', '/late', null, 504, 'runtime timeout'],
    ['GET', '/bad', null, 502, /^invalid runtime response: status/],
    ['POST', '/ok', '123', 200, undefined],
  ] as const) {
    const answer = await inject(handle, { method, url, body })
    t.equal(answer.status, status, `${method} ${url}`)
    if (message !== undefined) t.match(answer.json(), { error: message }, `${method} ${url}`)
  }
  t.equal((await inject(handle, { url: 'http://a.example/host', method: 'POST' })).status, 405)
})

t.test('[http/public.2] steps before and after routes', async t => {
  const seen: string[] = []
  const answer = (text: string) => (exchange: Exchange) => {
    exchange.responder.send(exchange, 200, [], text)
    return true
  }
  const { handle, runtime } = makePublic(
    { '/a': makeFn(), '/docs': makeFn({ name: 'docs' }), '/home': makeFn({ name: 'home' }), '/sub/index': makeFn() },
    {
      before: [
        exchange => {
          seen.push(exchange.path)
          if (exchange.path === '/') exchange.path = '/home'
          return false
        },
        exchange => exchange.path === '/docs' && answer('the docs')(exchange),
      ],
      after: [
        exchange => {
          if (exchange.path === '/sub') exchange.path = '/sub/index'
          if (exchange.path === '/lost') exchange.path = '/nowhere'
          return false
        },
        exchange => exchange.path === '/file.txt' && answer('a file')(exchange),
      ],
    },
  )
  for (const [url, status, text] of [
    ['/docs', 200, 'the docs'],
    ['/file.txt', 200, 'a file'],
    ['/other.txt', 404, '{"error":"not found"}'],
    ['/lost', 404, '{"error":"not found"}'],
    ['/?q=1', 200, 'ok'],
    ['/sub?q=2', 200, 'ok'],
  ] as const) {
    const { status: actual, text: body } = await inject(handle, { url })
    t.equal(actual, status, url)
    t.equal(body(), text, url)
  }
  t.match(headerOfCall(runtime.calls[0]!), { path: '/home', raw_path: '/?q=1', query: { q: '1' } })
  t.match(headerOfCall(runtime.calls[1]!), { path: '/sub/index', raw_path: '/sub?q=2', query: { q: '2' } })
  t.match(seen, ['/docs', '/file.txt'])
})

t.test('[http/public.3] a reload in between changes nothing', async t => {
  const made = makePublic({ '/old': makeFn({ name: 'old' }) })
  const other = makePublic({ '/new': makeFn({ name: 'new' }) })
  let taken = 0
  const catalogs: PublicCatalog[] = [
    {
      ...made.catalog,
      before: [
        () => {
          // The swap happens while the first request is on its way.
          catalogs[0] = other.catalog
          return false
        },
      ],
    },
  ]
  const find = made.catalog.routes.find.bind(made.catalog.routes)
  made.catalog.routes.find = (...lookup) => {
    taken += 1
    return find(...lookup)
  }
  const { handle } = new PublicHandler({
    ...made,
    debug: new DebugHeaders(() => ({ routing: 'single', socketIndex: 1, cold: false })),
    trustedProxyCidrs: [],
    catalog: () => catalogs[0]!,
    control: () => {},
  })
  t.equal((await inject(handle, { url: '/old' })).status, 200)
  t.equal(taken, 1)
  t.equal((await inject(handle, { url: '/old' })).status, 404)
  t.equal((await inject(handle, { url: '/new' })).status, 200)
})

t.test('[http/public.4] reserved prefixes in every spelling', async t => {
  const { handle, runtime } = makePublic({ '/:rest*': makeFn() })
  for (const url of [
    '/_fn',
    '/_fn/health',
    '/_fn/',
    '//_fn//health',
    '/%5Ffn/health',
    '/%5f%66%6e/health',
    '/./_fn/health',
    '/a/../_fn/health',
    '/a/%2e%2e/_fn/health',
    '/_fn%2Fhealth',
    '/_fn%2fhealth',
    '/console',
    '/console/',
    '/%63onsole/x',
    '/console%2Fx',
  ]) {
    const { control } = (await inject(handle, { url })).json() as { control: string }
    t.match(control, /^\/(_fn|console)(\/|%2F|$)/, url)
  }
  for (const url of ['/_fnx', '/consoles', '/_FN/health', '/%255Ffn/health', '/a/_fn', '/_fn;x', '/_fn\\x'])
    t.equal((await inject(handle, { url })).text(), 'ok', url)
  t.equal(runtime.calls.length, 7)
})

t.test('[http/public.5] methods', async t => {
  const { handle, runtime } = makePublic({
    '/a': makeFn({ policy: { methods: ['GET', 'DELETE'] } }),
    '/b': makeFn({ name: 'b', policy: { methods: ['POST'] } }),
  })
  runtime.answer = (call, own) => own.reply(call, 200, { 'X-A': 'b' }, 'hello')
  const head = await inject(handle, { method: 'HEAD', url: '/a' })
  t.match(head, { status: 200, headers: { 'x-a': 'b', 'content-length': '5' } })
  t.equal(head.body.length, 0)
  t.equal(headerOfCall(runtime.calls[0]!).method, 'HEAD')
  for (const [method, url, allow] of [
    ['POST', '/a', 'GET, HEAD, DELETE'],
    ['OPTIONS', '/a', 'GET, HEAD, DELETE'],
    ['HEAD', '/b', 'POST'],
    ['get', '/b', 'POST'],
    ['__proto__', '/b', 'POST'],
  ] as const) {
    const refused = await inject(handle, { method, url })
    t.match(refused, { status: 405, headers: { allow } }, `${method} ${url}`)
    t.equal(refused.body.length > 0, method !== 'HEAD')
  }
})

t.test('[http/public.6] request ids', async t => {
  const { handle, runtime } = makePublic({ '/a': makeFn() })
  runtime.answer = (call, own) => own.reply(call, 200, { 'X-Request-Id': 'mine' })
  for (const [offered, isTaken] of [
    ['abc.1-2_3', true],
    ['a b', false],
    ['x'.repeat(129), false],
  ] as const) {
    for (const url of ['/a', '/missing', '/%zz', '/_fn']) {
      const { rawHeaders, headers } = await inject(handle, { url, headers: { 'x-request-id': offered } })
      const id = headers['x-request-id']!
      t.equal(id === offered, isTaken, `${offered} ${url}`)
      t.equal(rawHeaders.filter(text => text.toLowerCase() === 'x-request-id').length, 1)
      if (url === '/a') t.equal(headerOfCall(runtime.calls.at(-1)!).id, id)
    }
  }
})

t.test('[http/public.16, invocation/event.6] forwarding headers count from trusted proxies only', async t => {
  const fn = makeFn({ policy: { allowHosts: ['api.example'] } })
  const { handle, runtime } = makePublic({ '/a': fn }, { trustedProxyCidrs: ['10.0.0.0/8'] })
  const headers = { Host: 'gateway', 'X-Forwarded-For': '1.1.1.1, 203.0.113.9', 'X-Forwarded-Host': 'x, api.example' }
  const trusted = await inject(handle, { url: '/a', headers, remoteAddress: '10.1.1.1' })
  t.equal(trusted.status, 200)
  t.match(headerOfCall(runtime.calls[0]!), { client: { ip: '203.0.113.9' } })
  const forged = await inject(handle, { url: '/a', headers, remoteAddress: '203.0.113.9' })
  t.equal(forged.status, 421)
  const odd = { ...headers, 'X-Forwarded-Host': 'a b' }
  t.equal((await inject(handle, { url: '/a', headers: odd, remoteAddress: '10.1.1.1' })).status, 400)
})

t.test('[http/public.17] bodies of every method', async t => {
  const methods = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'] as const
  const { handle, runtime } = makePublic({ '/a': makeFn({ policy: { methods } }) })
  const bytes = Buffer.from([0, 255, 128, 13, 10])
  for (const method of methods) {
    await inject(handle, { method, url: '/a', body: bytes })
    t.same(runtime.calls.at(-1)!.body, bytes, method)
    await inject(handle, { method, url: '/a', body: '' })
    t.equal(runtime.calls.at(-1)!.body, null, `${method}, empty`)
  }
})

t.test('[http/public.24, http/public.25] debug headers', async t => {
  const policy = { includeDebugHeaders: true, workerPool: { ...POOL, maxWorkers: 4, maxQueue: 2 } }
  const { handle, runtime } = makePublic({
    '/on': makeFn({ name: 'on', version: 'v2', policy }),
    '/off': makeFn({ name: 'off' }),
  })
  runtime.answer = (call, own) => {
    call.onLog('stdout', 'line one\r\nline two\x1b[31m é\n')
    call.onLog('stderr', 'x'.repeat(5000))
    own.reply(call, 200)
  }
  const on = await inject(handle, { url: '/on' })
  t.match(on.headers, {
    'x-fn-runtime': 'node',
    'x-fn-runtime-routing': 'single',
    'x-fn-runtime-socket-index': '1',
    'x-fn-worker-pool-max-workers': '4',
    'x-fn-worker-pool-max-queue': '2',
    'x-fn-request-id': on.headers['x-request-id'],
    'x-fn-function': 'on',
    'x-fn-version': 'v2',
    'x-fn-latency-ms': /^\d+\.\d$/,
    'x-fn-function-state': 'warm',
    'x-fn-stdout': 'line one line two?[31m ?',
  })
  t.equal(on.headers['x-fn-stderr'], `${'x'.repeat(1021)}...`)
  t.notMatch(Object.keys((await inject(handle, { url: '/off' })).headers).join(), 'x-fn-')
  runtime.answer = (call, own) => {
    call.onLog('stderr', 'Traceback')
    own.fail(call, new GatewayError('HANDLER_FAILED', 'boom'))
  }
  const failed = await inject(handle, { url: '/on' })
  t.match(failed, { status: 500, headers: { 'x-fn-stderr': 'Traceback', 'x-fn-function': 'on' } })
})

t.test(
  '[http/public.33] a step that serves another path leaves the target, query and host of the request as they are',
  async t => {
    const seen: Exchange[] = []
    const change = (exchange: Exchange): boolean => {
      seen.push(exchange)
      exchange.path = '/real'
      return false
    }
    const { handle } = makePublic({ '/real': makeFn() }, { before: [change], trustedProxyCidrs: ['127.0.0.0/8'] })
    for (const target of ['/asked?x=1', 'http://other.test/asked?x=1'])
      t.equal((await inject(handle, { url: target })).status, 200, target)
    for (const { path, rawPath, search } of seen) t.same([path, rawPath, search], ['/real', '/asked?x=1', 'x=1'])
    t.same(
      seen.map(exchange => exchange.host),
      ['localhost', 'other.test'],
    )
    t.equal(seen.length, 2)
  },
)

/** A handler whose one step holds requests up until the test lets them go on. */
function makeHeld(where: 'before' | 'after') {
  const held: Exchange[] = []
  const outcomes = { next: false as boolean | Error }
  const hold = (exchange: Exchange) => {
    if (!exchange.path.startsWith('/held')) return false
    held.push(exchange)
    return 'later' as const
  }
  const then = (exchange: Exchange) => {
    if (outcomes.next instanceof Error) throw outcomes.next
    if (outcomes.next) exchange.responder.send(exchange, 200, [], 'the step')
    return outcomes.next
  }
  const made = makePublic({ '/held': makeFn() }, { [where]: [hold, then] })
  return { ...made, held, outcomes }
}

t.test('[http/public.2] a step that does not know yet holds the request, and the walk goes on behind it', async t => {
  for (const [where, url] of [
    ['before', '/held'],
    ['after', '/held/file'],
  ] as const) {
    const { handle, held, outcomes, runtime, finished } = makeHeld(where)
    const ask = () => inject(handle, { url })
    const first = ask()
    t.equal(held.length, 1)
    t.equal(runtime.calls.length, 0)
    held[0]!.resume!()
    t.equal((await first).status, where === 'before' ? 200 : 404, 'where no step answers, the route does')
    t.equal(held[0]!.resume, null)
    outcomes.next = true
    const second = ask()
    held[1]!.resume!()
    t.equal((await second).text(), 'the step')
    outcomes.next = new Error('odd')
    const third = ask()
    held[2]!.resume!()
    t.equal((await third).status, 500)
    const fourth = ask().catch(() => null)
    const resume = held[3]!.resume!
    held[3]!.responder.send(held[3]!, 200, [], 'answered meanwhile')
    resume()
    await fourth
    t.equal(finished.length, 4, 'each is answered once')
  }
})

t.test('[http/public.2] a step that throws is a failure of that request alone', async t => {
  const { handle } = makePublic(
    { '/a': makeFn(), '/b': makeFn({ name: 'b' }) },
    {
      before: [
        exchange => {
          if (exchange.path === '/a') throw new Error('secret')
          return false
        },
      ],
    },
  )
  const { status, text } = await inject(handle, { url: '/a' })
  t.equal(status, 500)
  t.notMatch(text(), /secret/)
  t.equal((await inject(handle, { url: '/b' })).status, 200)
})

t.test('[http/public.5] OPTIONS * is of the whole gateway, a preflight of its path', async t => {
  const origins = ['https://app.example']
  const cors = { origins, methods: ['POST'], headers: [], expose: [], credentials: false, maxAgeSeconds: 5 }
  const { handle, runtime } = makePublic({ '/a': makeFn({ policy: { methods: ['POST'], cors } }) })
  const star = await inject(handle, { method: 'OPTIONS', url: '*' })
  t.match(star, { status: 204, headers: { allow: /GET.*OPTIONS/ } })
  const preflight = { Origin: 'https://app.example', 'Access-Control-Request-Method': 'POST' }
  const allowed = await inject(handle, { method: 'OPTIONS', url: '/a', headers: preflight })
  t.match(allowed, { status: 204, headers: { 'access-control-allow-origin': 'https://app.example' } })
  const refused = await inject(handle, { url: '/a', headers: { Origin: 'https://app.example' } })
  t.match(refused, {
    status: 405,
    headers: { allow: 'POST', 'access-control-allow-origin': 'https://app.example' },
  })
  t.equal(runtime.calls.length, 0)
})

t.test('[http/public.1] who develops is told which routes are near', async t => {
  const made = makePublic({ '/users/:id': makeFn(), '/orders': makeFn({ name: 'orders' }) })
  const { handle } = new PublicHandler({
    ...made,
    debug: new DebugHeaders(() => ({ routing: 'single', socketIndex: 1, cold: false })),
    trustedProxyCidrs: [],
    namesRoutes: true,
    catalog: () => made.catalog,
    control: () => {},
  })
  t.match((await inject(handle, { url: '/order' })).json(), { error: 'not found', detail: { hint: /\/orders/ } })
  t.same((await inject(handle, { url: '/x/y/z' })).json(), { error: 'not found' })
  t.same((await inject(made.handle, { url: '/order' })).json(), { error: 'not found' }, 'nobody else')
})

t.test(
  '[http/public.33] the same request again gets the same event, until the tree or the request changes',
  async t => {
    const made = makePublic({ '/a/:id': makeFn({ name: 'one' }) })
    const other = makePublic({ '/a/:id': makeFn({ name: 'two' }) })
    let catalog: PublicCatalog = made.catalog
    const { handle } = new PublicHandler({
      ...made,
      debug: new DebugHeaders(() => ({ routing: 'single', socketIndex: 1, cold: false })),
      trustedProxyCidrs: [],
      catalog: () => catalog,
      control: () => {},
    })
    const server = new HttpServer({ ...made, handle })
    const { port } = await server.listen(0, '127.0.0.1')
    t.teardown(() => server.close(0))
    const client = await RawConnection.open(port)
    let asked = 0
    const ask = async (more = '', target = '/a/7?q=1') => {
      asked += 1
      client.write(`GET ${target} HTTP/1.1\r\nHost: h\r\n${more}\r\n`)
      t.equal((await client.answers(asked)).at(-1)!.status, 200)
      const call = made.runtime.calls.at(-1)!
      const { id, ts, trace, ...event } = headerOfCall(call) as Record<string, unknown>
      return { name: call.fn.name, event }
    }
    const first = await ask()
    for (let at = 0; at < 3; at++) t.same(await ask(), first)
    t.match((await ask('A: b\r\n')).event, { headers: { a: 'b' } })
    t.match((await ask('', '/a/8?q=1')).event, { params: { id: '8' } })
    for (let at = 0; at < 3; at++) t.same(await ask(), first)
    catalog = other.catalog
    t.equal((await ask()).name, 'two', 'a reload is in force for the next request')
    client.socket.destroy()
  },
)

t.test('[http/public.31] requests behind a full connection wait their turn, in order', async t => {
  const made = makePublic({ '/a': makeFn({ policy: { maxConcurrency: 0 } }) })
  const running: RuntimeCall[] = []
  made.runtime.answer = call => void running.push(call)
  const server = new HttpServer(made)
  const { port } = await server.listen(0, '127.0.0.1')
  t.teardown(() => server.close(0))
  const client = await RawConnection.open(port)
  const count = 2 * MAX_OPEN_EXCHANGES
  client.write(Array.from({ length: count }, (_, at) => `GET /a?n=${at} HTTP/1.1\r\nHost: h\r\n\r\n`).join(''))
  await waitUntil(
    () => running.length === FIRST_OPEN_EXCHANGES,
    'as many as may be open before the first response shows its size',
  )
  const seen: unknown[] = []
  while (seen.length < count) {
    await waitUntil(() => running.length > 0, 'the next one')
    const call = running.shift()!
    seen.push((headerOfCall(call) as { query: { n: string } }).query.n)
    made.runtime.reply(call, 200)
  }
  t.same(
    seen,
    Array.from({ length: count }, (_, at) => `${at}`),
  )
  t.equal((await client.answers(count)).length, count)
  client.socket.destroy()
})

t.test('[http/public.7] behind what cannot be understood nothing is read', async t => {
  const { handle, finished } = makePublic({ '/a': makeFn() })
  const socket = new MemorySocket('127.0.0.1')
  const statuses: number[] = []
  const ask = (headers: string[]) => {
    const request = new MemoryRequest(socket, 'GET', '/a', headers, (async function* () {})())
    const response: MemoryResponse = new MemoryResponse(socket, {
      onHead: () => statuses.push(response.status),
      onChunk: () => true,
      onEnd: () => {},
      onCut: () => {},
    })
    handle(request, response)
  }
  ask(['Host', 'h', 'Host', 'g'])
  ask(['Host', 'h'])
  t.same([statuses, finished.length], [[400], 1])
})
