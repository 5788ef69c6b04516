import { cpSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import net from 'node:net'
import t, { type Test } from 'tap'
import { type Gateway, SettingsError } from '../../lib/index.ts'
import { RemoteDaemonError, type RemoteDaemonOptions, startRemoteDaemon } from '../../lib/remote/remote-daemon.ts'
import { findProgram } from '../../lib/runtime/binaries.ts'
import { injectBuilt, missingToolchain, shareCrates } from '../helpers/compiled.ts'
import { gatewayAt, hasOpenssl, makeCertificate, SECRET, startDaemonFor } from '../helpers/remote-bed.ts'
import { childrenOf, commandOf } from '../helpers/processes.ts'
import { makeTree, type Tree, type TreeEntry } from '../helpers/tree.ts'
import { until } from '../helpers/worker-client.ts'

type Runtime = RemoteDaemonOptions['runtime']

/** The same function in every language: it echoes the body and names its secret, or fails. */
const HANDLERS: Record<Runtime, [file: string, text: string]> = {
  node: [
    'echo/handler.js',
    `exports.handler = e => {
      if (e.query.fail) throw new Error('as asked')
      console.log('said')
      return { status: 201, headers: { 'x-key': e.env.API_KEY }, body: e.body }
    }`,
  ],
  python: [
    'echo/handler.py',
    `def handler(event):
    if event['query'].get('fail'):
        raise ValueError('as asked')
    print('said')
    return {'status': 201, 'headers': {'x-key': event['env']['API_KEY']}, 'body': event['body']}
`,
  ],
  php: [
    'echo/handler.php',
    `<?php function handler($e) {
      if (isset($e['query']['fail'])) throw new Exception('as asked');
      echo "said\\n";
      return ['status' => 201, 'headers' => ['x-key' => $e['env']['API_KEY']], 'body' => $e['body']];
    }`,
  ],
  go: [
    'echo/handler.go',
    `package main

import ("errors"; "fmt")

func handler(event map[string]any) (any, error) {
	if event["query"].(map[string]any)["fail"] != nil { return nil, errors.New("as asked") }
	fmt.Println("said")
	key := event["env"].(map[string]any)["API_KEY"]
	return map[string]any{"status": 201, "headers": map[string]any{"x-key": key}, "body": event["body"]}, nil
}
`,
  ],
  rust: [
    'echo/handler.rs',
    `use serde_json::{json, Value};
pub fn handler(event: Value) -> Value {
    if event["query"]["fail"] != Value::Null { panic!("as asked"); }
    println!("said");
    json!({ "status": 201, "headers": { "x-key": event["env"]["API_KEY"] }, "body": event["body"] })
}
`,
  ],
}

function missing(runtime: Runtime): string | null {
  if (runtime === 'go' || runtime === 'rust') return missingToolchain(runtime)
  return findProgram(runtime, {}, process.env.PATH ?? '').problem
}

function toTrees(t: Test, entries: Record<string, TreeEntry>): { here: Tree; there: Tree } {
  const [here, there] = [makeTree(entries), makeTree()]
  cpSync(here.root, there.root, { recursive: true })
  t.teardown(() => {
    here.cleanup()
    there.cleanup()
  })
  return { here, there }
}

const ENV = { 'echo/fn.env.json': { json: { API_KEY: { value: 'of the gateway', is_secret: true } } } }
const NODE_TREE = { ...nodeFunction('echo'), ...ENV }

function nodeFunction(name: string): Record<string, TreeEntry> {
  return { [`${name}/handler.js`]: HANDLERS.node[1], [`${name}/fn.config.json`]: { json: { name } } }
}

async function post(gateway: Gateway, url: string, body = 'hello') {
  return gateway.inject({ method: 'POST', url, body })
}

for (const runtime of Object.keys(HANDLERS) as Runtime[]) {
  t.test(
    `[remote/daemon-server.4, remote/daemon-server.5, runtime/greeting.1] ${runtime} functions run at a daemon elsewhere, in a folder of another name`,
    { skip: missing(runtime) ?? false, timeout: 240_000 },
    async t => {
      const [file, text] = HANDLERS[runtime]
      const config = { json: { name: 'echo', response: { include_debug_headers: true } } }
      const { here, there } = toTrees(t, { [file]: text, 'echo/fn.config.json': config, ...ENV })
      // What it is to do there is not the file here.
      here.write({ [file]: text.replaceAll('201', '299') })
      const built = runtime === 'rust' ? { env: { ...process.env, ...shareCrates() } } : {}
      const { daemon } = await startDaemonFor(t, runtime, there, built)
      const { gateway, warnings } = await gatewayAt(t, here, { [runtime]: [daemon.uri] })
      const request = { method: 'POST', url: '/echo', body: 'hello' }
      const first =
        runtime === 'go' || runtime === 'rust' ? await untilBuilt(gateway, request) : await gateway.inject(request)
      t.match(first, { status: 201, headers: { 'x-key': 'of the gateway', 'x-fn-stdout': 'said' } })
      t.equal(first.text(), 'hello')
      const big = 'ü'.repeat(400_000)
      t.ok((await post(gateway, '/echo', big)).text() === big, 'a large body, both ways')
      const failed = await post(gateway, '/echo?fail=1')
      t.equal(failed.status, 500)
      t.match(failed.json(), { error: /as asked/ })
      t.notMatch(failed.text(), there.root, 'its files are named as the gateway knows them')
      const many = await Promise.all(Array.from({ length: 12 }, (_, n) => post(gateway, '/echo', `n${n}`)))
      t.same(
        many.map(answer => answer.text()),
        many.map((_, n) => `n${n}`),
        'calls at once do not cross',
      )
      await until(() => warnings.some(text => text.includes(`${file} is another one at ${daemon.uri}`)))
    },
  )
}

/** A first build may take longer than one request waits. */
async function untilBuilt(gateway: Gateway, request: Parameters<Gateway['inject']>[0]) {
  return injectBuilt(gateway, request)
}

t.test(
  '[remote/daemon-server.10] over TLS a wrong certificate or a wrong secret gets nothing',
  { skip: !hasOpenssl() },
  async t => {
    const { here, there } = toTrees(t, NODE_TREE)
    const pki = makeTree()
    t.teardown(() => pki.cleanup())
    for (const name of ['good', 'other']) makeCertificate(pki, name)
    const tls = { certFile: pki.path('good.pem'), keyFile: pki.path('good.key') }
    const { daemon, notes } = await startDaemonFor(t, 'node', there, { tls })
    t.match(daemon.uri, /^tls:\/\/127\.0\.0\.1:\d+$/)
    const sockets = { node: [daemon.uri] }
    const { gateway } = await gatewayAt(t, here, sockets, { runtimeTlsCaFile: pki.path('good.pem') })
    t.match(await post(gateway, '/echo'), { status: 201, headers: { 'x-key': 'of the gateway' } })
    const big = 'ü'.repeat(400_000)
    t.ok((await post(gateway, '/echo', big)).text() === big)

    for (const [options, reason] of [
      [{ runtimeTlsCaFile: pki.path('other.pem') }, /self.signed|unable to verify|certificate/],
      [{ runtimeTlsCaFile: pki.path('good.pem'), runtimeSecret: `${SECRET}!` }, /the proof is wrong/],
      [{ runtimeTlsCaFile: pki.path('good.pem'), runtimeSecret: null }, /a shared secret is needed here/],
    ] as const) {
      const { gateway: refused } = await gatewayAt(t, here, sockets, options)
      const answer = await post(refused, '/echo')
      t.match(answer.json(), { error: 'runtime down', detail: { hint: reason } }, String(reason))
      t.equal(answer.status, 503)
    }
    t.ok(
      notes.some(note => /^warn refused 127\.0\.0\.1: the proof is wrong/.test(note)),
      notes.join('\n'),
    )
    const bare = net.connect({ host: '127.0.0.1', port: Number(new URL(daemon.uri).port) })
    bare.on('error', () => {})
    bare.write('GET / HTTP/1.1\r\n\r\n')
    await new Promise(resolve => bare.once('close', resolve))
    await t.rejects(
      startRemoteDaemon({
        ...startOptions(there),
        tls: { certFile: pki.path('good.key'), keyFile: pki.path('good.key') },
      }),
      { message: /^certificate and key cannot be used: / },
    )
  },
)

function startOptions(tree: Tree): RemoteDaemonOptions {
  return { runtime: 'node', listen: 'tcp://127.0.0.1:0', functionsRoot: tree.root, onLog: () => {} }
}

t.test(
  '[remote/daemon-server.2, remote/daemon-server.11] what cannot be trusted, or cannot work, does not start',
  async t => {
    const tree = makeTree(NODE_TREE)
    t.teardown(() => tree.cleanup())
    const start = (options: Partial<RemoteDaemonOptions>) => startRemoteDaemon({ ...startOptions(tree), ...options })
    for (const listen of ['tcp://0.0.0.0:0', 'tcp://[::]:0', 'tcp://10.1.2.3:0', 'tcp://host.example:0'])
      await t.rejects(
        start({ listen }),
        { message: /can be reached from other machines.*FN_RUNTIME_SECRET_FILE/ },
        listen,
      )
    await t.rejects(start({ runtimeSecret: 'short' }), SettingsError)
    await t.rejects(start({ isolation: 'user' }), /./)
    const busy = net.createServer().listen(0, '127.0.0.1')
    await new Promise(done => busy.once('listening', done))
    t.teardown(() => busy.close())
    const { port } = busy.address() as net.AddressInfo
    await t.rejects(start({ listen: `tcp://127.0.0.1:${port}` }), { message: /^cannot listen on tcp:.*EADDRINUSE/ })
    const error = await start({ runtime: 'php', env: { FN_PHP_BIN: '/nonexistent' } }).catch(thrown => thrown)
    t.type(error, RemoteDaemonError)
    t.match(error.message, /^the php daemon does not start: .*FN_PHP_BIN/)
  },
)

t.test('[runtime/greeting.7] secrets of functions are not sent where nobody proved anything', async t => {
  const { here, there } = toTrees(t, { ...NODE_TREE, ...nodeFunction('plain') })
  here.write({ 'echo/fn.env.json': { json: { API_KEY: { value: 'x', is_secret: true } } } })
  const { daemon } = await startDaemonFor(t, 'node', there, { runtimeSecret: null })
  const { gateway } = await gatewayAt(t, here, { node: [daemon.uri] }, { runtimeSecret: null })
  t.equal((await post(gateway, '/plain')).status, 201)
  const refused = await post(gateway, '/echo')
  t.equal(refused.status, 503)
  t.match(refused.json(), { detail: { hint: /value API_KEY is secret, and not sent.*FN_RUNTIME_SECRET/ } })
  const unix = makeTree()
  t.teardown(() => unix.cleanup())
  // The sockets of a gateway's settings are not the daemon's: it would connect to itself.
  const env = { FN_RUNTIME_SOCKETS: JSON.stringify({ node: `unix:${unix.path('d.sock')}` }) }
  const own = await startDaemonFor(t, 'node', there, {
    listen: `unix:${unix.path('d.sock')}`,
    runtimeSecret: SECRET,
    env,
  })
  t.equal(statSync(unix.path('d.sock')).mode & 0o777, 0o600)
  const { gateway: local } = await gatewayAt(t, here, { node: [own.daemon.uri] })
  t.equal((await post(local, '/echo')).headers['x-key'], 'x', 'a socket of this machine is guarded by its rights')
})

t.test('[remote/daemon-server.4] what is missing at the daemon is named, and used once it is there', async t => {
  const { here, there } = toTrees(t, NODE_TREE)
  const { daemon } = await startDaemonFor(t, 'node', there)
  here.write(nodeFunction('late'))
  const { gateway, warnings } = await gatewayAt(t, here, { node: [daemon.uri] })
  const answer = await post(gateway, '/late')
  t.equal(answer.status, 503)
  t.match(answer.json(), { detail: { hint: `node: late/handler.js is missing in the daemon's folder ${there.root}` } })
  await until(() => warnings.some(text => text.includes(`late/fn.config.json is missing at ${daemon.uri}`)))
  there.write({ 'late/handler.js': HANDLERS.node[1].replace('201', '202') })
  await until(async () => (await post(gateway, '/late')).status === 202)
  writeFileSync(there.path('late/handler.js'), HANDLERS.node[1].replace('201', '203'))
  t.equal((await post(gateway, '/late')).status, 202, 'a worker that runs is not ended for it')
})

t.test(
  '[remote/daemon-server.8] a daemon process that ends is started again; the gateway hears why and goes on',
  async t => {
    const { here, there } = toTrees(t, {
      ...ENV,
      'pid/handler.js': 'exports.handler = () => process.pid',
    })
    const { daemon, notes } = await startDaemonFor(t, 'node', there)
    const { gateway } = await gatewayAt(t, here, { node: [daemon.uri] })
    t.equal((await gateway.inject('/pid')).status, 200)
    const [daemonPid] = childrenOf(process.pid).filter(pid => commandOf(pid).includes('daemon.mjs'))
    process.kill(daemonPid!, 'SIGKILL')
    await until(() => JSON.stringify(gateway.health()).includes('"up":false'))
    await until(async () => (await gateway.inject('/pid')).status === 200, 20_000)
    await until(() => notes.some(note => /node daemon 1: ended by SIGKILL/.test(note)))
  },
)

t.test('[remote/daemon-server.8] a daemon that is started anew is found again, and gets no call twice', async t => {
  const count =
    'const fs = require("fs"); exports.handler = e => { fs.appendFileSync(e.query.log, e.query.n + "\\n"); return e.query.n }'
  const { here, there } = toTrees(t, { 'count/handler.js': count })
  const log = there.path('.calls')
  const first = await startDaemonFor(t, 'node', there)
  const { port } = new URL(first.daemon.uri)
  const { gateway } = await gatewayAt(t, here, { node: [first.daemon.uri] })
  const statuses: number[] = []
  const call = async (n: number) => {
    const { status } = await gateway.inject(`/count?n=${n}&log=${encodeURIComponent(log)}`)
    statuses[n] = status
  }
  for (let n = 0; n < 20; n++) await call(n)
  await Promise.all([first.daemon.close(), ...Array.from({ length: 20 }, (_, n) => call(20 + n))])
  const again = await startDaemonFor(t, 'node', there, { listen: `tcp://127.0.0.1:${port}` })
  t.equal(again.daemon.uri, first.daemon.uri)
  await until(async () => (await gateway.inject(`/count?n=x&log=${encodeURIComponent(log)}`)).status === 200, 20_000)
  for (let n = 40; n < 50; n++) await call(n)
  const ran = readFileSync(log, 'utf8')
    .split('\n')
    .filter(line => /^\d/.test(line))
    .map(Number)
  t.equal(new Set(ran).size, ran.length, 'none ran twice')
  for (const [n, status] of statuses.entries()) {
    t.ok([200, 503].includes(status), `call ${n} got ${status}`)
    if (status === 200) t.ok(ran.includes(n))
  }
})
