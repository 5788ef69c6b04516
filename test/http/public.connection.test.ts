import t, { type Test } from 'tap'
import { DebugHeaders } from '../../lib/http/http-call.ts'
import type { Step } from '../../lib/http/exchange.ts'
import { type PublicCatalog, PublicHandler } from '../../lib/http/public.ts'
import { HttpServer } from '../../lib/http/server.ts'
import { headerOfCall } from '../helpers/fake-runtime.ts'
import { makeFn } from '../helpers/fn.ts'
import { makePublic } from '../helpers/public.ts'
import { RawConnection } from '../helpers/raw-http.ts'

t.test('[invocation/event.1] an event shows its own request, whatever came before on the connection', async t => {
  const fn = makeFn({ policy: { methods: ['GET', 'PUT'] } })
  const made = makePublic({ '/a': fn, '/u/:id': fn, '/u/:id/:sub': fn }, { trustedProxyCidrs: ['127.0.0.1/32'] })
  const server = new HttpServer({ ...made, requestIds: made.requestIds })
  const { port } = await server.listen(0, '127.0.0.1')
  t.teardown(() => server.close(0))
  const requests = [
    'GET /a HTTP/1.1\r\nHost: h\r\n',
    'GET /a?x=1 HTTP/1.1\r\nHost: h\r\n',
    'PUT /a HTTP/1.1\r\nHost: h\r\n',
    'GET /a HTTP/1.1\r\nHost: h\r\nX-More: 1\r\n',
    'GET /a HTTP/1.1\r\nHost: h\r\nX-More: 2\r\n',
    'GET /a HTTP/1.1\r\nHost: h\r\nCookie: sid=1\r\n',
    'GET /a HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 9.9.9.9\r\n',
    'GET /u/1 HTTP/1.1\r\nHost: h\r\n',
    'GET /u/%C3%A9 HTTP/1.1\r\nHost: h\r\n',
    'GET /u/1/2 HTTP/1.1\r\nHost: h\r\n',
    'GET /a HTTP/1.1\r\nHost: other\r\n',
  ]
  // Each alone on a connection, then all of them on one, each three times and in turn with its neighbours.
  const alone: unknown[] = []
  for (const request of requests) alone.push(...(await tell(port, made.runtime.calls, [request])))
  const order = requests.flatMap((_, i) => [i, i, i, (i + 1) % requests.length, i])
  const together = await tell(
    port,
    made.runtime.calls,
    order.map(i => requests[i]!),
  )
  t.same(
    together,
    order.map(i => alone[i]),
  )
  const ids = made.runtime.calls.map(call => headerOfCall(call).id)
  t.equal(new Set(ids).size, ids.length, 'but for the id')
  const traces = made.runtime.calls.map(call => headerOfCall(call).trace)
  t.equal(new Set(traces).size, traces.length, 'and the trace')
})

/** A connection to a server whose catalog may become another one. */
async function connect(
  t: Test,
  made: ReturnType<typeof makePublic>,
  catalog: () => PublicCatalog,
): Promise<RawConnection> {
  const handler = new PublicHandler({
    ...made,
    debug: new DebugHeaders(() => ({ routing: 'single', socketIndex: 1, cold: false })),
    trustedProxyCidrs: [],
    catalog,
    control: () => {},
  })
  return connectTo(t, { ...made, handle: handler.handle })
}

async function connectTo(t: Test, options: ConstructorParameters<typeof HttpServer>[0]): Promise<RawConnection> {
  const server = new HttpServer(options)
  const { port } = await server.listen(0, '127.0.0.1')
  t.teardown(() => server.close(0))
  const raw = await RawConnection.open(port)
  t.teardown(() => raw.socket.destroy())
  return raw
}

t.test('[http/public.3] a repeated request uses the current routes and steps', async t => {
  const old = makeFn({ name: 'old' })
  const made = makePublic({ '/a': old, '/b': old, '/home': old })
  const other = makePublic({ '/a': makeFn({ name: 'new' }), '/home': old })
  let catalog: PublicCatalog = made.catalog
  let target = '/b'
  const homes: Step = exchange => {
    if (exchange.path === '/home') exchange.path = target
    return false
  }
  const raw = await connect(t, made, () => ({ ...catalog, before: [homes] }))
  let count = 0
  const ask = async (path: string) => {
    raw.write(`GET ${path} HTTP/1.1\r\nHost: h\r\n\r\n`)
    const { status } = (await raw.answers(++count))[count - 1]!
    const call = made.runtime.calls.at(-1)!
    return [status, call.fn.name, headerOfCall(call).path]
  }
  for (let i = 0; i < 3; i++) t.same(await ask('/a'), [200, 'old', '/a'])
  for (let i = 0; i < 3; i++) t.same(await ask('/home'), [200, 'old', '/b'])
  target = '/a'
  t.same(await ask('/home'), [200, 'old', '/a'], 'the step is asked again')
  for (let i = 0; i < 3; i++) t.same(await ask('/a'), [200, 'old', '/a'])
  catalog = other.catalog
  t.same(await ask('/a'), [200, 'new', '/a'], 'so are the new routes')
  t.same(await ask('/a'), [200, 'new', '/a'])
  t.same((await ask('/b'))[0], 404)
})

t.test('[http/public.3] a repeated request is refused by the current routes, and no other request is', async t => {
  const made = makePublic({ '/a': makeFn() })
  const later = makePublic({ '/a': makeFn({ policy: { methods: ['GET', 'PUT'] } }), '/none': makeFn() })
  let catalog: PublicCatalog = made.catalog
  const raw = await connect(t, made, () => catalog)
  let count = 0
  const ask = async (line: string, body = 'x'.repeat(1024)) => {
    const length = line.startsWith('PUT') ? `Content-Length: ${body.length}\r\n\r\n${body}` : '\r\n'
    raw.write(`${line} HTTP/1.1\r\nHost: h\r\n${length}`)
    const { status, headers, body: text } = (await raw.answers(++count))[count - 1]!
    return { status, allow: headers.allow, error: status === 200 ? null : JSON.parse(text).error }
  }
  const refused = { status: 405, allow: 'GET, HEAD', error: 'method not allowed' }
  for (let i = 0; i < 4; i++) t.same(await ask('PUT /a'), refused)
  t.same(await ask('PUT /a', 'y'.repeat(1024)), refused, 'a body says nothing about the route')
  t.same(await ask('PUT /a', 'short'), refused)
  t.match(await ask('GET /a'), { status: 200 })
  for (let i = 0; i < 3; i++) t.match(await ask('GET /none'), { status: 404, error: 'not found' })
  catalog = later.catalog
  t.match(await ask('GET /none'), { status: 200 }, 'the new routes have it')
  catalog = made.catalog
  for (let i = 0; i < 3; i++) t.same(await ask('PUT /a'), refused)
  catalog = later.catalog
  for (let i = 0; i < 2; i++) t.match(await ask('PUT /a'), { status: 200 })
  t.equal(made.runtime.calls.length, 4, 'nothing was called but what was answered')
})

t.test('[http/public.16, http/public.29] two gateways on one connection believe their own proxies', async t => {
  const fn = makeFn()
  const near = makePublic({ '/a': fn }, { trustedProxyCidrs: ['127.0.0.1/32'] })
  const far = makePublic({ '/a': fn })
  let turn = 0
  const raw = await connectTo(t, {
    ...near,
    handle: (...request) => (turn++ % 2 === 0 ? near : far).handle(...request),
  })
  for (let i = 1; i <= 4; i++) {
    raw.write('GET /a HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 9.9.9.9\r\n\r\n')
    await raw.answers(i)
  }
  const addresses = (made: typeof near) =>
    made.runtime.calls.map(call => (headerOfCall(call).client as { ip: string }).ip)
  t.same([addresses(near), addresses(far)], [Array(2).fill('9.9.9.9'), Array(2).fill('127.0.0.1')])
})

async function tell(port: number, calls: Parameters<typeof headerOfCall>[0][], requests: string[]): Promise<unknown[]> {
  const from = calls.length
  const raw = await RawConnection.open(port)
  for (const [i, request] of requests.entries()) {
    raw.write(`${request}\r\n`)
    await raw.answers(i + 1)
  }
  raw.socket.destroy()
  return calls.slice(from).map(call => {
    const { id: _, ts: __, trace: ___, ...rest } = headerOfCall(call)
    return rest
  })
}
