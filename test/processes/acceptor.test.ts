import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import t from 'tap'
import { createGateway, type Gateway, type LogRecord, type RequestRecord } from '../../lib/index.ts'
import { connectToAll, nameOfFirst, serveTwice } from '../helpers/processes-bed.ts'
import { makeTree } from '../helpers/tree.ts'

const FILES = {
  'hello.js': 'export const handler = event => ({ hello: event.query.name ?? "world" })\n',
  'boom.js': 'export const handler = () => { throw new Error("kaputt") }\n',
  'stream.js': `export const handler = () => ({ status: 200, body: (async function* () {
    for (let at = 0; at < 64; at++) yield Buffer.alloc(64 * 1024, at) })() })\n`,
  'cut.js': `export const handler = () => ({ status: 200, body: (async function* () { yield 'begun'; await new Promise(resolve => setTimeout(resolve, 20)); throw new Error('cut') })() })\n`,
  'debug/handler.js': `export const handler = () => { console.log('said'); return 'x' }\n`,
  'debug/fn.config.json': '{ "response": { "include_debug_headers": true } }',
  'public/page.html': '<p>page</p>',
  'fn.config.json': '{ "assets": { "directory": "public" } }',
}

/** Calls that have a slot. */
function activeIn(gateway: Gateway): number {
  const { functions } = gateway.health() as { functions: { summary: { pool_active: number } } }
  return functions.summary.pool_active
}

t.test('[processes/processes.6] what fronts count is counted in the first process, to the last request', async t => {
  const { first, front } = await serveTwice(t, FILES)
  for (let at = 0; at < 5; at++) await front.ask('/hello')
  for (let at = 0; at < 3; at++) await first.ask('/hello')
  await front.ask('/boom')
  for (const connection of [front, first]) {
    const { text } = await connection.ask('/_fn/metrics')
    t.match(text, /fn_invocations_total\{runtime="node",fn="hello",version="default",status_class="2xx"\} 8\n/)
    t.match(text, /fn_invocations_total\{runtime="node",fn="boom",version="default",status_class="5xx"\} 1\n/)
    t.match(text, /http_requests_total\{method="GET",code="500"\} 1\n/)
    t.match(
      text,
      /fn_invocation_duration_seconds_count\{runtime="node",fn="hello",version="default",status_class="2xx"\} 8\n/,
    )
  }
})

t.test('[processes/processes.17] a front reports its connections without a scrape of the metrics', async t => {
  const { gateway } = await serveTwice(t, FILES)
  const count = async (): Promise<number> => {
    const { gateway: shown } = (await gateway.inject({ url: '/_fn/workers' })).json() as {
      gateway: { fronts: { connections: number }[] }
    }
    return shown.fronts[0]?.connections ?? 0
  }
  const giveUpAt = performance.now() + 10_000
  while ((await count()) === 0 && performance.now() < giveUpAt) await new Promise(resolve => setTimeout(resolve, 10))
  t.ok((await count()) > 0)
})

t.test('[processes/processes.7] requests at fronts are told and written like any other, failures once', async t => {
  const { gateway, front } = await serveTwice(t, FILES)
  const requests: RequestRecord[] = []
  const failures: LogRecord[] = []
  gateway.on('log', record => {
    if (record.level === 'error') failures.push(record)
  })
  const isTold = new Promise<void>(resolve => {
    gateway.on('request', record => {
      requests.push(record)
      if (record.path === '/last') resolve()
    })
  })
  await front.ask('/hello?name=a', { headers: { 'User-Agent': 'me', 'X-Request-Id': 'one' } })
  await front.ask('/boom')
  await front.ask('/_fn/health')
  await front.ask('/last')
  await isTold
  const told = requests.filter(({ path }) => path !== '/_who')
  t.match(
    told.sort((a, b) => (a.path < b.path ? -1 : 1)),
    [
      { path: '/_fn/health', status: 200, ip: '127.0.0.1' },
      { path: '/boom', status: 500, fn: 'boom', error: 'kaputt' },
      { path: '/hello', id: 'one', status: 200, fn: 'hello', runtime: 'node', userAgent: 'me', ip: '127.0.0.1' },
      { path: '/last', status: 404, fn: null },
    ],
  )
  t.equal(told.length, 4, 'each once')
  t.match(failures, [{ message: /kaputt/, path: '/boom', fn: 'boom' }])
  t.equal(failures.length, 1)
})

t.test('[processes/processes.9] answers of every kind are the same at a front', async t => {
  const { first, front } = await serveTwice(t, FILES)
  for (const path of [
    '/hello?name=a',
    '/boom',
    '/stream',
    '/debug',
    '/page.html',
    '/nope',
    '/docs',
    '/openapi.json',
    '/hello%00',
    '/../x',
  ]) {
    // A first call may be a cold one.
    await first.ask(path)
    const [here, there] = [await first.ask(path), await front.ask(path)]
    t.equal(there.status, here.status, path)
    t.equal(there.text, here.text, path)
    const names = (headers: object): string[] => Object.keys(headers).filter(name => name !== 'x-fn-latency-ms')
    t.same(names(there.headers), names(here.headers), path)
    for (const name of ['x-fn-stdout', 'x-fn-function-state', 'x-fn-runtime-socket-index', 'content-type'])
      t.equal(there.headers[name], here.headers[name], `${path} ${name}`)
  }
  t.equal((await front.ask('/stream')).text.length, 64 * 64 * 1024)
  await t.rejects(front.ask('/cut'), 'an answer that is cut off breaks its connection')
})

t.test(
  '[processes/processes.11] an answer that is fetched elsewhere is fetched by the front, and has its slot meanwhile',
  async t => {
    const upstream = createServer((_req, res) => res.end('from upstream')).listen(0, '127.0.0.1')
    await once(upstream, 'listening')
    t.teardown(() => upstream.close())
    const { port } = upstream.address() as AddressInfo
    const { front, first, gateway, url } = await serveTwice(t, {
      'edge/handler.js': `export const handler = event => ({ proxy: { url: event.query.to } })\n`,
      'edge/fn.config.json': JSON.stringify({
        max_concurrency: 1,
        edge: { allow_private: true, allow_hosts: ['127.0.0.1', 'localhost'] },
      }),
    })
    const to = (target: string): string => `/edge?to=${encodeURIComponent(target)}`
    for (let at = 0; at < 3; at++)
      t.match(await front.ask(to(`http://127.0.0.1:${port}/`)), { status: 200, text: 'from upstream' })
    // The first process hears a moment after the client that the slot is free.
    while (activeIn(gateway) > 0) await new Promise(resolve => setImmediate(resolve))
    for (const connection of [first, front])
      t.equal((await connection.ask(to(`${url}/_fn/health`))).status, 502, 'its own control plane is refused')
    const { text } = await first.ask('/_fn/metrics')
    t.match(text, /fn_edge_requests_total\{result="answered"\} 3\n/)
    while (activeIn(gateway) > 0) await new Promise(resolve => setImmediate(resolve))
  },
)

t.test('[processes/processes.13] a stop lets every process finish what it has begun', async t => {
  let arrived: (release: () => void) => void = () => {}
  const gate = createServer((_req, res) => arrived(() => res.end('go'))).listen(0, '127.0.0.1')
  await once(gate, 'listening')
  t.teardown(() => gate.close())
  const { port } = gate.address() as AddressInfo
  const { root, cleanup } = makeTree({
    'slow/handler.js': `export const handler = async () => (await fetch('http://127.0.0.1:${port}/')).text()\n`,
    'slow/fn.config.json': '{ "timeout_ms": 60000 }',
  })
  t.teardown(cleanup)
  const gateway = await createGateway({ functionsRoot: root, env: process.env, gatewayWorkers: 2 })
  const { url } = await gateway.listen({ port: 0 })
  const all = await connectToAll(t, url, 2)
  const firstName = await nameOfFirst(gateway)
  const [front] = [...all].filter(([name]) => name !== firstName).map(([, connection]) => connection)
  const held = new Promise<() => void>(resolve => {
    arrived = resolve
  })
  const running = front!.ask('/slow')
  const release = await held
  const closing = gateway.close({ timeoutMs: 30_000 })
  release()
  t.match(await running, { status: 200, text: '"go"', headers: { connection: 'close' } })
  await closing
  await t.rejects(front!.ask('/slow'), 'nobody listens any more')
})
