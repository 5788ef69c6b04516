import t from 'tap'
import { INVOKE_BODY_BYTES } from '../../lib/control/invoke-endpoints.ts'
import { createGateway } from '../../lib/index.ts'
import { injectBuilt, missingToolchain, shareCrates } from '../helpers/compiled.ts'
import { RUNTIMES, serveTree } from '../helpers/gateway-bed.ts'
import { httpUpstream } from '../helpers/upstream.ts'

const TREE = {
  'echo/handler.js': `exports.handler = event => {
    console.log('out'); console.error('err')
    const { method, path, params, query, headers, body, body_base64, client, context } = event
    return { status: 201, headers: { 'X-A': 'a' }, body: { method, path, params, query, headers, body, body_base64, client, user: context.user } }
  }\n`,
  'echo/fn.config.json': '{ "runtime": "node", "invoke": { "methods": ["GET", "POST"] }, "max_body_bytes": 64 }',
  'echo/v2/handler.js': 'exports.handler = () => ({ version: 2 })\n',
  'users/[id].js': 'exports.handler = (event, { id }) => ({ id, path: event.path })\n',
  'bytes.js':
    'exports.handler = () => ({ status: 200, headers: { "Content-Type": "image/png" }, body: Buffer.from([0, 255]) })\n',
  'two/handler.js': 'exports.handler = () => "node"\n',
  'two/fn.config.json': '{ "runtime": "node", "name": "twice" }',
  'lua/handler.lua': 'function handler() return "lua" end\n',
  'lua/fn.config.json': '{ "runtime": "lua", "name": "twice" }',
  'slow.js': 'exports.handler = () => new Promise(() => {})\n',
  'fn.config.json': '{ "timeout_ms": 20000 }',
  'one/handler.js': 'exports.handler = () => new Promise(() => {})\n',
  'one/fn.config.json': '{ "runtime": "node", "max_concurrency": 1, "timeout_ms": 60000 }',
  'throws.js': 'exports.handler = () => { throw new TypeError("broken here") }\n',
  'wrong.js': 'exports.handler = () => ({ status: 999 })\n',
  'short/handler.js': 'exports.handler = () => new Promise(() => {})\n',
  'short/fn.config.json': '{ "runtime": "node", "timeout_ms": 50 }',
  'stream.js': 'exports.handler = () => ({ status: 200, body: (async function* () { yield "a"; yield "b" })() })\n',
  'endless.js':
    'exports.handler = () => ({ status: 200, body: (async function* () { for (;;) yield Buffer.alloc(65536) })() })\n',
}

type Json = Record<string, unknown>

t.setTimeout(180_000)

async function serve(t: import('tap').Test, extra: Record<string, string> = {}) {
  const bed = await serveTree(t, { ...TREE, ...extra }, { runtimes: ['node', 'lua'], adminToken: 'right' })
  const invoke = async (body: unknown, headers: Record<string, string> = {}) => {
    const {
      status,
      json,
      headers: answered,
    } = await bed.gateway.inject({
      method: 'POST',
      url: '/_fn/invoke',
      headers,
      body,
    })
    return { status, body: json() as Json, headers: answered }
  }
  return { ...bed, invoke }
}

t.test('[control/invoke.1, control/invoke.3] a call and its answer', async t => {
  const { invoke } = await serve(t)
  const { status, body, headers } = await invoke({
    name: 'echo',
    method: 'POST',
    query: { a: 1 },
    headers: { 'X-B': 'b', 'X-Fn-Admin-Token': 'right', 'X-Fn-Trigger': 'x' },
    body: { c: 'é' },
    context: { name: 'u' },
  })
  t.equal(status, 200)
  t.match(body, {
    status: 201,
    latency_ms: Number,
    route: '/echo',
    route_template: null,
    headers: { 'x-a': 'a', 'content-type': 'application/json' },
    stdout: 'out\n',
    stderr: 'err\n',
  })
  t.notOk('is_base64' in body)
  const seen = JSON.parse(body.body as string) as Json
  t.match(seen, {
    method: 'POST',
    path: '/echo',
    params: {},
    query: { a: '1' },
    headers: { 'x-b': 'b', 'content-type': 'application/json' },
    body: '{"c":"é"}',
    client: { ip: '127.0.0.1' },
    user: { name: 'u' },
  })
  t.notMatch(JSON.stringify(seen), /right|x-fn-trigger/)
  t.type(headers['x-request-id'], 'string')
  const bytes = await invoke({ name: 'echo', method: 'POST', body_base64: '/wA=' })
  t.match(JSON.parse(bytes.body.body as string), { body: null, body_base64: '/wA=' })
  t.match((await invoke({ name: 'bytes', method: 'GET' })).body, {
    headers: { 'content-type': 'image/png' },
    is_base64: true,
    body_base64: 'AP8=',
  })
  t.match((await invoke({ name: 'bytes', method: 'HEAD' })).body, { status: 200, body: '' })
  t.match((await invoke({ name: 'stream', method: 'GET' })).body, { status: 200, body: 'ab' })
})

t.test('[control/invoke.4, control/invoke.7] names, versions, languages, routes', async t => {
  const { invoke } = await serve(t)
  const bodyOf = async (call: object) => {
    const { status, body } = await invoke({ method: 'GET', ...call })
    return status === 200 ? body.body : `${status} ${body.error}`
  }
  t.equal(await bodyOf({ name: 'echo', version: 'v2' }), '{"version":2}')
  t.match(await bodyOf({ name: 'echo', version: null }), /"path":"\/echo"/)
  t.match(await bodyOf({ name: 'echo', version: 'default' }), /"path":"\/echo"/)
  t.equal(await bodyOf({ name: 'echo', version: 'v9' }), '404 unknown function or version')
  t.equal(await bodyOf({ name: 'twice' }), '409 ambiguous function: "twice" exists in lua, node; name the runtime')
  t.equal(await bodyOf({ name: 'twice', runtime: 'lua' }), '"lua"')
  t.equal(await bodyOf({ name: 'twice', runtime: 'node' }), '"node"')
  t.equal(await bodyOf({ name: 'twice', runtime: 'go' }), '404 unknown function or version')
  t.equal(await bodyOf({ name: 'users/[id]', params: { id: '7' } }), '{"id":"7","path":"/users/7"}')
  t.equal(await bodyOf({ name: 'users/[id]', route: '/users/a%2Fb' }), '{"id":"a/b","path":"/users/a/b"}')
  t.match(await bodyOf({ name: 'users/[id]', route: '/bytes' }), /^400 route "\/bytes" leads to node\/bytes@default/)
  for (const name of ['../echo', 'echo/../echo', '/echo', 'echo/', '%2e%2e', 'echo/handler.js', 'users/7', 'echo\0'])
    t.match(await bodyOf({ name }), /^4\d\d /, name)
})

t.test('[control/invoke.5, control/invoke.6] the whole pipeline, and its refusals keep their status', async t => {
  const upstream = await httpUpstream((_request, response) => response.end('from upstream'))
  t.teardown(upstream.close)
  const edge = { allow_private: true, base_url: upstream.url }
  const { invoke, url, gateway, until } = await serve(t, {
    'edge/handler.js': 'exports.handler = () => ({ proxy: { path: "/x" } })\n',
    'edge/fn.config.json': JSON.stringify({ runtime: 'node', edge }),
  })
  t.match((await invoke({ name: 'edge', method: 'GET' })).body, { status: 200, body: 'from upstream' })
  const refused = async (call: object) => {
    const { status, body, headers } = await invoke({ method: 'GET', ...call })
    return { status, error: body.error, allow: headers.allow }
  }
  t.match(await refused({ name: 'echo', method: 'PUT' }), { status: 405, allow: 'GET, HEAD, POST' })
  t.match(await refused({ name: 'echo', method: 'OPTIONS' }), { status: 405 })
  t.match(await refused({ name: 'echo', method: 'POST', body: 'x'.repeat(65) }), { status: 413, error: /64 bytes/ })
  t.match(await refused({ name: 'throws' }), { status: 500, error: /broken here/ })
  t.match(await refused({ name: 'wrong' }), { status: 502, error: /^invalid runtime response/ })
  t.match(await refused({ name: 'short' }), { status: 504, error: 'runtime timeout after 50 ms' })
  t.match(await refused({ name: 'endless' }), { status: 502, error: /too large to keep/ })
  t.match(await refused({ name: 'echo', context: { big: 'x'.repeat(1024 * 1024) } }), { status: 413 })
  const active = () => (gateway.health() as { functions: { summary: Json } }).functions.summary.pool_active
  const leaving = new AbortController()
  const running = fetch(`${url}/_fn/invoke`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: '{"name":"one","method":"GET"}',
    signal: leaving.signal,
  }).catch(() => 'left')
  await until(() => active() === 1, 'the call runs')
  t.match(await refused({ name: 'one' }), { status: 429, error: 'concurrency limit reached' })
  leaving.abort()
  t.equal(await running, 'left')
  await until(() => active() === 0, 'a client that leaves stops its call')
})

t.test('[control/invoke.2] malformed bodies are 400 or 413, and nothing runs', async t => {
  const { gateway } = await serve(t)
  const ask = async (body: string | Buffer) => {
    const headers = { 'content-type': 'application/json' }
    const { status, json } = await gateway.inject({ method: 'POST', url: '/_fn/invoke', headers, body })
    return `${status} ${(json() as Json).error}`
  }
  t.match(await ask(''), /^400 body must be a JSON object, got nothing/)
  t.match(await ask('{"name":'), /^400 body is not JSON: line 1/)
  t.match(await ask('[]'), /^400 body must be a JSON object, got an array/)
  t.match(await ask(Buffer.from([0xff])), /^400 body .*UTF-8/)
  t.match(await ask(`{"context":${'['.repeat(100_000)}`), /^400 body is not JSON/)
  t.match(await ask('{"method":"GET"}'), /^400 name is missing/)
  t.match(await ask('{"name":"echo"}'), /^400 method is missing/)
  t.match(await ask('{"name":"echo","method":"GET","context":1}'), /^400 context must be an object/)
  t.match(await ask('x'.repeat(INVOKE_BODY_BYTES + 1)), /^413 /)
  const unknown = await gateway.inject({ method: 'POST', url: '/_fn/invoke?name=echo', body: {} })
  t.equal(unknown.status, 400)
})

t.test('[control/invoke.8] explain answers as the gateway and the command do', async t => {
  const gateway = await createGateway({ functionsRoot: (await serve(t)).tree.root, inspect: true })
  t.teardown(() => gateway.close())
  const ask = async (query: Record<string, string>) => {
    const { status, json } = await gateway.inject({ url: '/_fn/explain', query })
    return { status, body: json() as Json }
  }
  for (const [method, path, host] of [
    ['GET', '/users/7', ''],
    ['POST', '/users/7?x=1', 'a.example'],
    ['GET', '/nowhere', ''],
    ['GET', '/%zz', ''],
  ] as const) {
    const { status, body } = await ask({ method, path, host })
    t.equal(status, 200)
    t.same(body, JSON.parse(JSON.stringify(gateway.explain(method, path, host))), path)
  }
  t.match((await ask({ path: '/users/7' })).body, {
    method: 'GET',
    winner: { file: 'users/[id].js', params: { id: '7' } },
  })
  t.match((await ask({ method: 'get', path: '/bytes' })).body, { method: 'GET', winner: { file: 'bytes.js' } })
  const cases: [query: Record<string, string>, says: RegExp][] = [
    [{}, /^query field path is missing/],
    [{ path: 'users' }, /^query field path must be a path that starts with \//],
    [{ path: '/x', method: 'G ET' }, /^query field method must be a method/],
    [{ path: '/x', method: 'x'.repeat(33) }, /^query field method must be/],
    [{ path: '/x', hots: 'y' }, /did you mean host\?/],
  ]
  for (const [query, says] of cases) t.match(await ask(query), { status: 400, body: { error: says } })
})

t.test(
  '[control/invoke.1] every language is invoked alike',
  { skip: RUNTIMES.length < 4 && 'python or php is missing' },
  async t => {
    const { gateway } = await serveTree(t, {
      'node-fn.js':
        'exports.handler = e => { console.log("out"); return { m: e.method, b: e.body, u: e.context.user.n } }\n',
      'python-fn.py':
        'def handler(e):\n    print("out")\n    return {"m": e["method"], "b": e["body"], "u": e["context"]["user"]["n"]}\n',
      'php-fn.php':
        '<?php function handler($e) { echo "out\\n"; return ["m" => $e["method"], "b" => $e["body"], "u" => $e["context"]["user"]["n"]]; }\n',
      'lua-fn.lua': 'function handler(e) print("out") return { m = e.method, b = e.body, u = e.context.user.n } end\n',
      'fn.config.json': '{ "timeout_ms": 20000 }',
    })
    for (const runtime of RUNTIMES) {
      const { status, json } = await gateway.inject({
        method: 'POST',
        url: '/_fn/invoke',
        body: { name: `${runtime}-fn`, method: 'GET', body: 'b', context: { n: 'u' } },
      })
      t.equal(status, 200, runtime)
      const record = json() as Json
      t.match(record, { status: 200, stdout: 'out\n' }, runtime)
      t.same(JSON.parse(record.body as string), { m: 'GET', b: 'b', u: 'u' }, runtime)
    }
  },
)

const GO = `package main

import "fmt"

func handler(event map[string]interface{}) interface{} {
	fmt.Println("out")
	user := event["context"].(map[string]interface{})["user"].(map[string]interface{})
	return map[string]interface{}{"status": 200, "body": map[string]interface{}{"m": event["method"], "b": event["body"], "u": user["n"]}}
}
`

const RUST = `use serde_json::{json, Value};

pub fn handler(event: Value) -> Value {
    println!("out");
    json!({ "status": 200, "body": { "m": event["method"], "b": event["body"], "u": event["context"]["user"]["n"] } })
}
`

for (const [runtime, file, code] of [
  ['go', 'handler.go', GO],
  ['rust', 'handler.rs', RUST],
] as const) {
  t.test(
    '[control/invoke.1] a compiled language is invoked alike',
    { skip: missingToolchain(runtime) ?? false },
    async t => {
      const { gateway } = await serveTree(
        t,
        { [`${runtime}-fn/${file}`]: code, 'fn.config.json': '{ "timeout_ms": 60000 }' },
        { runtimes: [runtime], env: { ...process.env, ...shareCrates() } },
      )
      const body = { name: `${runtime}-fn`, method: 'GET', body: 'b', context: { n: 'u' } }
      const answer = await injectBuilt(gateway, { method: 'POST', url: '/_fn/invoke', body })
      t.equal(answer.status, 200, answer.text())
      const record = answer.json() as Json
      t.match(record, { status: 200, stdout: 'out\n' })
      t.same(JSON.parse(record.body as string), { m: 'GET', b: 'b', u: 'u' })
    },
  )
}

t.test('[observe/trace.6] the call is part of the trace of the request that asks for it', async t => {
  const traced = 'exports.handler = ({ context }) => ({ status: 200, body: [context.trace, context.trace_state] })\n'
  const { invoke } = await serve(t, { 'traced.js': traced })
  const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'
  const own = '00-11111111111111111111111111111111-2222222222222222-00'
  const asked = { traceparent, tracestate: 'a=1' }
  t.same(JSON.parse((await invoke({ name: 'traced', method: 'GET' }, asked)).body.body as string), [traceparent, 'a=1'])
  const headers = { traceparent: own }
  t.same(JSON.parse((await invoke({ name: 'traced', method: 'GET', headers }, asked)).body.body as string), [own, null])
})
