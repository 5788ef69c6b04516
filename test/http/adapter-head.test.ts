import t from 'tap'
import type { AdapterName } from '../../lib/core/identity.ts'
import { inject } from '../../lib/http/inject.ts'
import { headerOfCall } from '../helpers/fake-runtime.ts'
import { makeFn } from '../helpers/fn.ts'
import { serveTree } from '../helpers/gateway-bed.ts'
import { makePublic } from '../helpers/public.ts'

const FORGED = {
  'X-Forwarded-For': '127.0.0.1',
  'x-forwarded-proto': 'https',
  'X-Forwarded-Port': '443',
  Connection: 'x-forwarded-for, x-own',
  'X-Own': 'hop',
}

t.test('[invocation/adapters.13] what the gateway knows, whatever the client says', async t => {
  const cases: [
    name: string,
    from: string,
    host: string,
    headers: Record<string, string>,
    expected: [string | undefined, string, string],
  ][] = [
    ['nothing said', '198.51.100.7', 'h', {}, ['198.51.100.7', 'http', '80']],
    ['a port in the host', '198.51.100.7', 'h:8080', {}, ['198.51.100.7', 'http', '8080']],
    ['forged', '198.51.100.7', 'h', FORGED, ['198.51.100.7', 'http', '80']],
    ['a proxy', '10.0.0.1', 'h', { 'X-Forwarded-For': '203.0.113.9' }, ['203.0.113.9', 'http', '80']],
    [
      'a proxy that tells all',
      '10.0.0.1',
      'h:8080',
      { 'X-Forwarded-For': '1.1.1.1, 203.0.113.9', 'X-Forwarded-Proto': 'http, HTTPS', 'X-Forwarded-Port': '80, 8443' },
      ['203.0.113.9', 'https', '8443'],
    ],
    [
      'a proxy that tells the protocol',
      '10.0.0.1',
      'inner',
      { 'X-Forwarded-For': '203.0.113.9', 'X-Forwarded-Proto': 'https', 'X-Forwarded-Host': 'api.example' },
      ['203.0.113.9', 'https', '443'],
    ],
    [
      'a proxy that tells nonsense',
      '10.0.0.1',
      'h',
      { 'X-Forwarded-For': 'unknown', 'X-Forwarded-Proto': 'gopher', 'X-Forwarded-Port': 'x' },
      [undefined, 'http', '80'],
    ],
  ]
  for (const adapter of ['cloud-lambda', 'edge-worker'] satisfies AdapterName[]) {
    const fn = makeFn({ policy: { adapter, adapterName: adapter } })
    const { handle, runtime } = makePublic({ '/a': fn }, { trustedProxyCidrs: ['10.0.0.0/8'] })
    for (const [name, remoteAddress, host, headers, [ip, proto, port]] of cases) {
      await inject(handle, { url: '/a', headers: { host, ...headers }, remoteAddress })
      const seen = headerOfCall(runtime.calls.at(-1)!).headers as Record<string, string>
      const { 'x-forwarded-for': seenFor, 'x-forwarded-proto': seenProto, 'x-forwarded-port': seenPort } = seen
      t.same([seenFor, seenProto, seenPort], [ip, proto, port], `${adapter}: ${name}`)
      t.equal(seen.host, host)
      t.notOk('x-own' in seen)
    }
  }
})

t.test('[invocation/adapters.13] a native handler sees the headers as they came', async t => {
  const { handle, runtime } = makePublic({ '/a': makeFn() })
  await inject(handle, { url: '/a', headers: { 'X-Forwarded-For': '9.9.9.9' } })
  t.same(headerOfCall(runtime.calls[0]!).headers, { host: 'localhost', 'x-forwarded-for': '9.9.9.9' })
})

t.test('[invocation/adapters.13, invocation/adapters.9] in node and python, over a real connection', async t => {
  const config = (adapter: string) => JSON.stringify({ invoke: { adapter } })
  const { url, port } = await serveTree(t, {
    'lambda-node/handler.js':
      'exports.handler = async event => ({ statusCode: 200, body: JSON.stringify(event.headers) })\n',
    'lambda-node/fn.config.json': config('cloud-lambda'),
    'lambda-python/handler.py':
      'import json\ndef handler(event, context):\n    return {"statusCode": 200, "body": json.dumps(event["headers"])}\n',
    'lambda-python/fn.config.json': config('cloud-lambda'),
    'edge-node/handler.js': 'export const fetch = request => new Response(request.url)\n',
    'edge-node/fn.config.json': config('edge-worker'),
    'edge-python/handler.py': 'def fetch(request, env, ctx):\n    return {"status": 200, "body": request.url}\n',
    'edge-python/fn.config.json': config('edge-worker'),
  })
  const ask = async (path: string) =>
    (await fetch(url + path, { headers: { 'X-Forwarded-For': '9.9.9.9', 'X-Forwarded-Proto': 'https' } })).text()
  for (const path of ['/lambda-node', '/lambda-python'])
    t.match(
      JSON.parse(await ask(path)),
      { 'x-forwarded-for': '127.0.0.1', 'x-forwarded-proto': 'http', 'x-forwarded-port': String(port) },
      path,
    )
  for (const path of ['/edge-node', '/edge-python']) t.equal(await ask(path), `${url}${path}`, path)
})
