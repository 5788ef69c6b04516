/** Everything that reads input of clients, functions, peers or people, with what it must hold whatever it is given. */

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { once } from 'node:events'
import { createConnection, type Socket } from 'node:net'
import { join } from 'node:path'
import fc from 'fast-check'
import { resolveSettings } from '../../lib/config/settings.ts'
import { nextCronTime, nextWallTime, parseCron, toZone } from '../../lib/core/cron.ts'
import type { RuntimeName } from '../../lib/core/identity.ts'
import { callableOf } from '../../lib/discovery/callable.ts'
import { createGateway, type Gateway, startRemoteDaemon } from '../../lib/index.ts'
import { normalizePath } from '../../lib/router/radix-tree.ts'
import { buildRouteTable } from '../../lib/router/route-table.ts'
import { dial, type PeerTrust, toBinding } from '../../lib/runtime/worker-socket.ts'
import { greetDaemon } from '../../lib/runtime/greeting.ts'
import { encodeFrame, FrameReader, KIND, ProtocolError } from '../../lib/runtime/wire-protocol.ts'
import { makeClaim } from '../helpers/claims.ts'
import { makeBuilds, missingToolchain } from '../helpers/compiled.ts'
import { naiveMatch, naiveOrder, naivePattern, naiveSegments } from '../router/naive-router.ts'
import { hasOpenssl, makeCertificate, SECRET } from '../helpers/remote-bed.ts'
import { makeTree, type Tree } from '../helpers/tree.ts'
import { type DaemonClient, startDaemon } from '../helpers/worker-client.ts'
import type { Target } from './fuzz.ts'
import { mutated, mutatedText } from './mutate.ts'

/** Milliseconds after which a peer that says nothing hangs. */
const HANGS_MS = 20_000

// --- frames

interface Sent {
  bytes: Buffer
  /** Shares of 256 at which the bytes are cut. */
  cuts: number[]
}

const HELLO = encodeFrame(KIND.hello, 0, '{"role":"worker"}', Buffer.from([1]))
const CONTROL = encodeFrame(KIND.hello, 0, '{"role":"control"}', Buffer.from([1]))

interface Vector {
  hex: string
}

const VECTORS = (JSON.parse(readFileSync(new URL('../runtime/vectors.json', import.meta.url), 'utf8')) as Vector[]).map(
  ({ hex }) => Buffer.from(hex, 'hex'),
)

const toSent = (seeds: readonly Buffer[]) => ({ bytes: mutated(seeds), cuts: fc.array(fc.nat(255), { maxLength: 4 }) })

function sent(seeds: readonly Buffer[]): fc.Arbitrary<Sent> {
  return fc.record(toSent(seeds))
}

function toPieces({ bytes, cuts }: Sent): Buffer[] {
  const at = [...new Set(cuts.map(cut => Math.floor((cut / 256) * bytes.length)))].sort((a, b) => a - b)
  return [0, ...at].map((from, i) => bytes.subarray(from, at[i] ?? bytes.length))
}

/** The frames of the pieces, and how it ended. */
function decode(pieces: readonly Buffer[]): string {
  const seen: unknown[] = []
  const reader = new FrameReader((kind, id, header, body) => {
    seen.push([kind, id, header, body.toString('hex')])
  })
  try {
    for (const piece of pieces) reader.push(piece)
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error
    seen.push(error.code)
  }
  return JSON.stringify(seen)
}

const gatewayFrames: Target<Sent> = {
  name: 'frames-gateway',
  async open() {
    return {
      inputs: sent([Buffer.concat(VECTORS), ...VECTORS]),
      check: input => assert.equal(decode(toPieces(input)), decode([input.bytes]), 'cuts change what is read'),
    }
  },
}

const HANDLERS = {
  node: ['handler.js', 'exports.handler = event => ({ status: 200, body: event.body })'],
  ts: [
    'handler.ts',
    'export const handler = (event: { body: string }): object => ({ status: 200, body: event.body })\n',
  ],
  python: ['handler.py', 'def handler(event):\n    return {"status": 200, "body": event["body"]}\n'],
  php: ['handler.php', '<?php function handler($event) { return ["status" => 200, "body" => $event["body"]]; }'],
  go: [
    'handler.go',
    'package main\n\nfunc handler(event map[string]any) any {\n\treturn map[string]any{"status": 200, "body": event["body"]}\n}\n',
  ],
  rust: [
    'handler.rs',
    'use serde_json::{json, Value};\n\npub fn handler(event: Value) -> Value {\n    json!({"status": 200, "body": event["body"]})\n}\n',
  ],
} as const

type Language = keyof typeof HANDLERS
type DaemonRuntime = Exclude<Language, 'ts'>

function missingProgram(runtime: DaemonRuntime): string | null {
  if (runtime === 'go' || runtime === 'rust') return missingToolchain(runtime)
  const program = { node: process.execPath, python: 'python3', php: 'php' }[runtime]
  return spawnSync(program, ['--version']).status === 0 ? null : `${program} is not installed`
}

/** @throws when it takes longer than a peer that hangs */
async function withinLimit<T>(promise: Promise<T>, what: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} within ${HANGS_MS} ms`)), HANGS_MS)
  })
  try {
    return await Promise.race([promise, late])
  } finally {
    clearTimeout(timer)
  }
}

/** Sends bytes on a connection and closes it from this side; resolves when the peer has closed its side too. */
function sendAndClose(connect: () => Socket, input: Sent): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect()
    const timer = setTimeout(() => {
      socket.destroy()
      reject(new Error(`the peer does not close the connection within ${HANGS_MS} ms`))
    }, HANGS_MS)
    socket.on('error', () => {})
    socket.on('close', () => {
      clearTimeout(timer)
      resolve()
    })
    socket.resume()
    for (const piece of toPieces(input)) socket.write(piece)
    socket.end()
  })
}

/** A daemon and its workers of one language: broken frames end a connection, never the daemon, and never another worker. */
function peer(language: Language): Target<Sent & { role: 'worker' | 'control' }> {
  const [file, text] = HANDLERS[language]
  const runtime = language === 'ts' ? 'node' : language
  return {
    name: `frames-${language}`,
    missing: missingProgram(runtime),
    async open() {
      const builds = runtime === 'go' || runtime === 'rust' ? makeBuilds({ [file]: text }) : null
      const tree: Tree = builds?.tree ?? makeTree({ [file]: text })
      const binary = builds === null ? undefined : (await builds.builds.prepare(builds.fn(file)))!
      const daemon: DaemonClient = await startDaemon(runtime, { root: tree.root })
      const start = { dir: tree.root, root: tree.root, entry: tree.path(file), ...(binary !== undefined && { binary }) }
      const healthy = await daemon.worker(start)
      const header = JSON.stringify({
        key: `${runtime}/test@default`,
        runtime,
        name: 'test',
        version: null,
        callable: callableOf(runtime as RuntimeName, { handler: null, adapter: 'native' }),
        adapter: 'native',
        env: { A: 'b' },
        packs: [],
        production: false,
        context: { runtime, function_name: 'test', version: 'default', timeout_ms: 2500, max_body_bytes: 1 << 20 },
        ...start,
      })
      const call = JSON.stringify({
        id: 'r',
        ts: 1,
        method: 'POST',
        path: '/x',
        raw_path: '/x',
        params: {},
        query: { a: ['1'] },
        headers: { a: 'b' },
      })
      const session = [
        encodeFrame(KIND.start, 0, header, null),
        encodeFrame(KIND.call, 1, call, Buffer.from('ünï')),
        encodeFrame(KIND.call, 2, call, null),
        encodeFrame(KIND.cancel, 2, '', null),
        encodeFrame(KIND.more, 1, '{"bytes":1024}', null),
        encodeFrame(KIND.ping, 3, '', null),
      ]
      const control = [
        CONTROL,
        encodeFrame(KIND.ping, 3, '', null),
        encodeFrame(KIND.start, 4, header, null),
        encodeFrame(KIND.stop, 0, '{"worker":"none","grace_ms":0}', null),
      ]
      const seeds = [Buffer.concat([HELLO, ...session]), Buffer.concat(control), Buffer.concat(VECTORS)]
      let round = 0
      return {
        inputs: fc.record({ ...toSent(seeds), role: fc.constantFrom('worker', 'control') }),
        check: async input => {
          const worker = input.role === 'worker' ? await daemon.startWorker(start) : null
          const uri = worker?.uri ?? daemon.uri
          await sendAndClose(() => createConnection(uri.replace(/^unix:/, '')), input)
          if (worker !== null) {
            // A worker to which nobody said hello goes on listening for its gateway, which stops it.
            daemon.control.send(KIND.stop, 0, { worker: worker.id, grace_ms: 0 })
            await withinLimit(daemon.ended(worker), 'the worker does not end')
          }
          assert.equal(daemon.child.exitCode ?? daemon.child.signalCode, null, 'the daemon ended')
          assert.equal(daemon.output, '', 'the daemon printed something')
          const text = `round ${++round}`
          const answer = await healthy.call({ method: 'POST' }, text)
          assert.deepEqual([answer.kind, answer.text], ['reply', text], 'another worker answers')
        },
        close: async () => {
          await healthy.close()
          await daemon.close()
          await (builds === null ? tree.cleanup() : builds.close())
        },
      }
    },
  }
}

/** `fngw daemon --listen tls://`: neither broken TLS records nor a broken greeting inside TLS keep a gateway from greeting it. */
const tlsDaemon: Target<Sent & { isEncrypted: boolean }> = {
  name: 'tls-daemon',
  missing: hasOpenssl() ? null : 'openssl is not installed',
  async open() {
    const tree = makeTree({ 'hello/handler.js': HANDLERS.node[1] })
    makeCertificate(tree, 'good')
    const certFile = tree.path('good.pem')
    const daemon = await startRemoteDaemon({
      runtime: 'node',
      listen: 'tls://127.0.0.1:0',
      functionsRoot: tree.root,
      runtimeSecret: SECRET,
      tls: { certFile, keyFile: tree.path('good.key') },
      onLog: () => {},
    })
    const trust = { secret: SECRET, ca: readFileSync(certFile, 'utf8') }
    const nonce = encodeFrame(KIND.hello, 0, JSON.stringify({ nonce: 'ab'.repeat(32) }), Buffer.from([1]))
    const proof = encodeFrame(KIND.hello, 0, JSON.stringify({ proof: 'cd'.repeat(32) }), Buffer.from([1]))
    // The head of a ClientHello record of TLS 1.2, and one that announces more than a record may hold.
    const records = ['16030100050100000100', '16030140000100ffff0303', '1503010002022800'].map(hex =>
      Buffer.from(hex, 'hex'),
    )
    return {
      inputs: fc.record({
        ...toSent([Buffer.concat([nonce, proof, HELLO]), CONTROL, ...records]),
        isEncrypted: fc.boolean(),
      }),
      check: async input => {
        const uri = input.isEncrypted ? daemon.uri : daemon.uri.replace('tls:', 'tcp:')
        await sendAndClose(() => dial(uri, trust), input)
        await greet(daemon.uri, trust)
      },
      close: async () => {
        await daemon.close()
        tree.cleanup()
      },
    }
  },
}

/** Greets a daemon as a gateway does. */
async function greet(uri: string, trust: PeerTrust): Promise<void> {
  const socket = dial(uri, trust)
  try {
    await once(socket, 'secureConnect')
    const reader = new FrameReader(() => {})
    const send = (frame: Buffer): void => void socket.write(frame)
    let isDone = false
    greetDaemon(reader, { secret: trust.secret!, send, binding: () => toBinding(socket) }, () => {
      isDone = true
    })
    for await (const chunk of socket) {
      reader.push(chunk as Buffer)
      if (isDone) break
    }
    assert.ok(isDone, 'the daemon proves that it knows the secret')
  } finally {
    socket.destroy()
  }
}

// --- a gateway

const LUA_JSON = `local cjson = require("cjson.safe")
function handler(event)
  local value, problem = cjson.decode(event.body or "")
  if problem then return { status = 400, headers = {}, body = problem } end
  return { status = 200, headers = {}, body = cjson.encode(value) }
end
`

/** Lua functions run in threads of the gateway and read no frames: what they get of clients is JSON. */
const luaJson: Target<string> = {
  name: 'lua-json',
  async open() {
    const { gateway, close } = await serve({
      'functions/json/handler.lua': LUA_JSON,
      'functions/json/fn.config.json': JSON.stringify({ invoke: { methods: ['POST'] } }),
    })
    const seeds = [
      '{"a":[1,-2.5e3,"\\u00fc\\ud83d\\ude00",null,true,{}],"b":{"c":[[],{"d":""}]}}',
      '[0,1e308,"a\\n\\"",false]',
      '"é"',
    ]
    return {
      inputs: fc.oneof(mutatedText(seeds), fc.json({ maxDepth: 6 })),
      check: async body => {
        const { status, text } = await gateway.inject({ method: 'POST', url: '/json', body })
        assert.ok(status === 200 || status === 400, `${status} ${text()}`)
        assert.equal(status === 200, isJson(body), 'takes exactly what is JSON')
        // A number that JSON cannot hold is read, and not written.
        if (status === 200 && text() !== '') JSON.parse(text())
        await checkAlive(gateway)
      },
      close,
    }
  },
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

const LUA = 'function handler(event) return { status = 200, headers = {}, body = "hello" } end\n'

interface Served {
  tree: Tree
  gateway: Gateway
  close(): Promise<void>
}

async function serve(entries: Record<string, string>, env: Record<string, string> = {}): Promise<Served> {
  const tree = makeTree({ 'functions/hello/handler.lua': LUA, 'functions/users/[id].lua': LUA, ...entries })
  const gateway = await createGateway({
    functionsRoot: tree.path('functions'),
    runtimes: ['lua'],
    env: { ...env },
  })
  const close = async (): Promise<void> => {
    await gateway.close({ timeoutMs: 1000 })
    tree.cleanup()
  }
  return { tree, gateway, close }
}

async function checkAlive(gateway: Gateway): Promise<void> {
  assert.equal((await gateway.inject('/_fn/health')).status, 200, 'health answers')
  const { status, text } = await gateway.inject('/hello')
  assert.deepEqual([status, text()], [200, 'hello'], 'another function answers')
}

const REQUESTS = [
  'GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n',
  'POST /hello?a=1&b=%C3%BC HTTP/1.1\r\nHost: localhost:8080\r\nContent-Length: 5\r\nCookie: a=b; c=d\r\n\r\nhello',
  'POST /users/7 HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n',
  'GET /_fn/health HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 1.2.3.4\r\nForwarded: for="[::1]:80"\r\nConnection: keep-alive\r\n\r\n',
  'HEAD //users/%2e%2e/x/../7/ HTTP/1.0\r\nHost: a\r\nExpect: 100-continue\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n',
  'GET /docs HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-1,5-\r\nIf-None-Match: "a", W/"b"\r\ntraceparent: 00-00000000000000000000000000000001-0000000000000001-01\r\n\r\n',
].map(text => Buffer.from(text))

const http: Target<Sent> = {
  name: 'http',
  async open() {
    const { gateway, close } = await serve({})
    const { port } = await gateway.listen({ port: 0, host: '127.0.0.1' })
    return {
      inputs: sent([...REQUESTS, Buffer.concat(REQUESTS)]),
      check: async input => {
        const text = await exchange(port, input)
        assert.match(text, /^$|^HTTP\/1\.1 [1-5]\d\d /, 'what comes back is HTTP')
        assert.doesNotMatch(text, /^HTTP\/1\.1 500/m, 'no request is an internal error')
        await checkAlive(gateway)
      },
      close,
    }
  },
}

/** Sends bytes, closes this side and reads until the gateway closes its side. */
function exchange(port: number, input: Sent): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = createConnection(port, '127.0.0.1')
    const timer = setTimeout(() => {
      socket.destroy()
      reject(new Error(`the connection stays open for ${HANGS_MS} ms`))
    }, HANGS_MS)
    let text = ''
    socket.on('data', bytes => {
      text += bytes.toString('latin1')
    })
    socket.on('error', () => {})
    socket.on('close', () => {
      clearTimeout(timer)
      resolve(text)
    })
    for (const piece of toPieces(input)) socket.write(piece)
    socket.end()
  })
}

interface PathRequest {
  method: string
  url: string
  headers: Record<string, string>
}

const segment = fc.oneof(
  fc.constantFrom(
    'hello',
    'users',
    '_fn',
    'docs',
    '..',
    '.',
    '',
    '%2e%2e',
    '%2F',
    '%00',
    '%',
    '%c3',
    '%ff',
    '@v1',
    '*',
    '[id]',
    'console',
    '__proto__',
  ),
  fc.string({ maxLength: 12, unit: 'binary-ascii' }).map(encodeURI),
)

const paths: Target<PathRequest> = {
  name: 'paths',
  async open() {
    const { gateway, close } = await serve({})
    const name = fc.constantFrom(
      'host',
      'cookie',
      'x-request-id',
      'traceparent',
      'content-type',
      'accept',
      'origin',
      'x-a',
      'range',
    )
    return {
      inputs: fc.record({
        method: fc.constantFrom('GET', 'POST', 'HEAD', 'OPTIONS', 'DELETE', 'PATCH', 'PUT'),
        url: fc
          .tuple(fc.array(segment, { maxLength: 9 }), fc.option(fc.webQueryParameters(), { nil: '' }))
          .map(([parts, query]) => `/${parts.join('/')}${query === '' ? '' : `?${query}`}`),
        headers: fc.dictionary(
          name,
          fc.string({ maxLength: 24 }).map(text => text.replaceAll(/[^\x20-\x7e]/g, '')),
          { maxKeys: 4 },
        ),
      }),
      check: async request => {
        const { status } = await gateway.inject(request)
        assert.ok(status < 500 || status === 501, `${status}`)
        await checkAlive(gateway)
      },
      close,
    }
  },
}

interface ConfigFile {
  file: string
  text: string
}

const CONFIGS: Record<string, string[]> = {
  'x/fn.config.json': [
    JSON.stringify({
      timeout_ms: 100,
      max_concurrency: 2,
      max_body_bytes: 10,
      invoke: {
        methods: ['GET'],
        routes: ['/a/{id}', '/b/*'],
        allow_hosts: ['*.a.test'],
        handler: 'handler',
        adapter: 'native',
      },
    }),
    JSON.stringify({
      worker_pool: { enabled: true, min_warm: 0, max_workers: 2, max_queue: 1, overflow_status: 503 },
      schedule: { enabled: true, cron: '*/5 * * * *', timezone: '+02:00', retry: { max_attempts: 2 } },
    }),
    JSON.stringify({
      runtime: 'lua',
      name: 'x',
      entrypoint: 'handler.lua',
      edge: { base_url: 'http://a.test', allow_hosts: ['a.test'], max_response_bytes: 1 },
      keep_warm: { enabled: true, min_warm: 1 },
      cors: { origins: ['*'] },
      shared_deps: ['a'],
      response: { include_debug_headers: true },
    }),
  ],
  'x/fn.env.json': [JSON.stringify({ A: 'b', KEY: { value: 'c', is_secret: true }, N: 1, B: true, Z: null })],
  'x/.env': ['A=b\nexport B="c d"\n# comment\nC=\'e\'\nD=$A\n'],
  'x/schema.json': [
    JSON.stringify({
      params: { type: 'object' },
      query: { type: 'object', properties: { a: { type: 'integer', minimum: 1 } } },
      body: { oneOf: [{ $ref: '#/$defs/a' }, { type: 'null' }], $defs: { a: { type: 'string', pattern: '^a+$' } } },
    }),
  ],
  'fn.routes.json': [
    JSON.stringify({
      routes: { 'GET,POST /items/:id': 'x/handler.lua', '/y/{z}': 'x/handler.lua', 'GET /w/*': 'x/handler.lua' },
    }),
  ],
}

const configs: Target<ConfigFile> = {
  name: 'configs',
  async open() {
    const { tree, gateway, close } = await serve({ 'functions/x/handler.lua': LUA })
    const files = Object.keys(CONFIGS)
    return {
      inputs: fc.constantFrom(...files).chain(file =>
        fc.record({
          file: fc.constant(file),
          text: fc.oneof(mutatedText(CONFIGS[file]!), fc.json({ maxDepth: 4 })),
        }),
      ),
      check: async ({ file, text }) => {
        const path = join('functions', file)
        tree.write({ [path]: text })
        try {
          await gateway.reload()
          assert.equal((await gateway.inject('/_fn/health')).status, 200, 'health answers')
          assert.ok((await gateway.inject('/hello')).status < 500, 'another function answers')
        } finally {
          tree.remove(path)
        }
      },
      close,
    }
  },
}

const SETTING_NAMES = Object.keys(resolveSettings({ cwd: '/' }).settings).map(
  name => `FN_${name.replaceAll(/[A-Z]/g, letter => `_${letter}`).toUpperCase()}`,
)

const settings: Target<Record<string, string>> = {
  name: 'settings',
  async open() {
    const text = mutatedText([
      '1',
      'true',
      '127.0.0.1',
      '0',
      '/a',
      '{"node":["unix:/a"]}',
      'node=2,python=1',
      '10.0.0.0/8',
      '5s',
      'auto',
    ])
    return {
      inputs: fc.dictionary(
        fc.constantFrom(...SETTING_NAMES, 'FN_RUNTIMES', 'FN_RUNTIME_SOCKETS', 'FN_RUNTIME_DAEMONS'),
        text,
        { maxKeys: 6 },
      ),
      check: env => {
        // Problems come as values: nothing is thrown, and every problem names what it is about.
        for (const { message } of resolveSettings({ env, cwd: '/' }).problems) assert.match(message, /\S/)
      },
    }
  },
}

// --- the admin API

interface ApiRequest {
  method: string
  path: string
  body: unknown
}

const NAME = fc.oneof(
  fc.constantFrom('x', 'y', 'x/y', '../up', '/etc', '.', '..', '', 'a'.repeat(300), '_p', '__proto__', 'x@v1'),
  fc.string({ maxLength: 8 }),
)
const FIELDS = fc.dictionary(
  fc.constantFrom(
    ...[
      'name',
      'runtime',
      'version',
      'method',
      'route',
      'params',
      'query',
      'headers',
      'body',
      'body_base64',
      'context',
      'code',
      'timeout_ms',
    ],
    ...[
      'methods',
      'routes',
      'invoke',
      'schedule',
      'worker_pool',
      'max_attempts',
      'delay_ms',
      'retry_delay_ms',
      'backoff',
      'value',
      'is_secret',
      'file',
      'username',
      'password',
    ],
  ),
  fc.oneof(NAME, fc.jsonValue({ maxDepth: 2 }), fc.constantFrom('lua', 'GET', 'POST', '1e9', 0, -1, 1e308)),
  { maxKeys: 7 },
)
const ENDPOINTS = [
  'POST /_fn/invoke',
  'POST /_fn/jobs',
  'POST /_fn/function',
  'DELETE /_fn/function',
  'PUT /_fn/function-config',
  'PUT /_fn/function-env',
  'PUT /_fn/function-code',
  'PUT /_fn/ui-state',
  'PATCH /_fn/ui-state',
  'POST /_fn/login',
  'POST /_fn/reload',
  'GET /_fn/logs',
  'GET /_fn/explain',
  'GET /_fn/function',
  'GET /_fn/jobs',
]

const api: Target<ApiRequest> = {
  name: 'api',
  async open() {
    const { tree, gateway, close } = await serve(
      { 'functions/x/handler.lua': LUA, 'outside.txt': 'outside' },
      { FN_CONSOLE_WRITE_ENABLED: '1', FN_UI_ENABLED: '1', FN_JOBS_ENABLED: '1' },
    )
    const word = fc.oneof(NAME, fc.constantFrom('lua', 'node', 'runtime', 'error', '1', '-1', '1e9'))
    const query = fc.dictionary(
      fc.constantFrom('name', 'runtime', 'version', 'file', 'lines', 'format', 'path', 'method', 'limit'),
      word,
      { maxKeys: 4 },
    )
    return {
      inputs: fc
        .tuple(fc.constantFrom(...ENDPOINTS), query, fc.oneof(FIELDS, fc.jsonValue({ maxDepth: 3 })))
        .map(([endpoint, given, body]) => {
          const [method, path] = endpoint.split(' ') as [string, string]
          return { method, path: `${path}?${new URLSearchParams(given)}`, body }
        })
        // The function that shows that others still answer stays.
        .filter(({ path }) => !path.includes('hello')),
      check: async ({ method, path, body }) => {
        const headers = { 'content-type': 'application/json', 'x-fngw-request': '1' }
        const hasBody = method !== 'GET'
        const response = await gateway.inject({
          method,
          url: path,
          headers,
          ...(hasBody && { body: JSON.stringify(body) }),
        })
        assert.ok(response.status < 500, `${response.status} ${response.text()}`)
        if (response.status >= 400)
          assert.equal(typeof (response.json() as { error: unknown }).error, 'string', 'says why')
        assert.deepEqual(readdirSync(tree.root).sort(), ['functions', 'outside.txt'], 'nothing is written elsewhere')
        assert.equal(readFileSync(tree.path('outside.txt'), 'utf8'), 'outside')
        await checkAlive(gateway)
      },
      close,
    }
  },
}

// --- pure parts

interface RouteCase {
  patterns: string[]
  path: string
}

const routeSegment = fc.constantFrom('a', 'b', 'ab', 'b%20c', '%C3%BC', 'x%2Fy', '__proto__', '100%25')

const routes: Target<RouteCase> = {
  name: 'routes',
  async open() {
    const pattern = fc
      .tuple(
        fc.array(fc.oneof(routeSegment, fc.constantFrom(':p', ':q', ':r', ':__proto__')), { maxLength: 4 }),
        fc.constantFrom('', '', '/*', '/:rest*', '/:rest*?'),
      )
      .map(
        ([parts, end]) =>
          `/${[...new Set(parts.filter(one => one.startsWith(':'))), ...parts.filter(one => !one.startsWith(':'))].join('/')}${end}`,
      )
      .map(text => text.replace('//', '/'))
    return {
      inputs: fc.record({
        patterns: fc.array(pattern, { minLength: 1, maxLength: 12 }),
        path: fc
          .array(fc.oneof(routeSegment, fc.constantFrom('', '%', '..')), { maxLength: 6 })
          .map(parts => `/${parts.join('/')}`),
      }),
      check: ({ patterns, path }) => {
        const all = new Map(patterns.map(naivePattern).map(pattern => [pattern.shape, pattern]))
        const table = buildRouteTable(
          [...all.values()].map(({ text }, i) => makeClaim(`GET ${text}`, { fn: `f${i}` })),
          { functions: [], forceUrl: false },
        )
        const segments = naiveSegments(path)
        const matching = segments === null ? [] : [...all.values()].filter(one => naiveMatch(one, segments) !== null)
        const expected = matching.sort(naiveOrder)[0]?.text ?? null
        const canonical = normalizePath(path)
        assert.equal(typeof canonical === 'string', segments !== null)
        const found = typeof canonical === 'string' ? table.find('GET', canonical, 'localhost') : null
        assert.equal(found?.kind === 'match' ? found.pattern : null, expected)
      },
    }
  },
}

const cron: Target<{ text: string; zone: string; after: number }> = {
  name: 'cron',
  async open() {
    return {
      inputs: fc.record({
        text: mutatedText([
          '*/5 * * * *',
          '0 9 * * MON-FRI',
          '0 0 29 2 *',
          '@hourly',
          '30 2 1-7 JAN,JUL 7',
          '*/10 */7 1,15 * SUN',
          '0 0 31 4 *',
        ]),
        zone: fc.constantFrom('UTC', 'Europe/Berlin', 'America/New_York', 'Australia/Lord_Howe', '+05:30', '-0330'),
        after: fc.integer({ min: 0, max: 4_102_444_800_000 }),
      }),
      check: ({ text, zone, after }) => {
        const parsed = parseCron(text)
        if ('problem' in parsed) return assert.match(parsed.problem, /\S/)
        const next = nextCronTime(parsed, toZone(zone), after)
        if (next === null) return
        assert.ok(next > after, 'the next time is later')
        assert.equal(next % 1000, 0, 'it is a whole second')
        assert.equal(nextCronTime(parsed, toZone(zone), next - 1), next, 'the same moment follows from just before it')
        const wall = nextWallTime(parsed, after)
        assert.ok(wall !== null && wall > after)
      },
    }
  },
}

export const TARGETS: readonly Target[] = [
  gatewayFrames,
  ...(Object.keys(HANDLERS) as Language[]).map(peer),
  luaJson,
  tlsDaemon,
  http,
  paths,
  api,
  configs,
  settings,
  routes,
  cron,
] as unknown as Target[]
