import { spawn } from 'node:child_process'
import { rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { createGateway, type Gateway, type GatewayOptions, type ReloadRecord, SettingsError } from '../../lib/index.ts'
import { findProgram } from '../../lib/runtime/binaries.ts'
import { FROM_SOURCES } from '../helpers/cli.ts'
import { commandOf, isAlive, listProcesses } from '../helpers/processes.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeTree } from '../helpers/tree.ts'

const POLYGLOT = {
  'js/handler.js': 'export const handler = event => ({ from: "node", q: event.query })\n',
  'ts/handler.ts': 'export const handler = (event: { method: string }) => ({ from: "ts", method: event.method })\n',
  'py/handler.py': 'def handler(event):\n    return {"from": "python"}\n',
  'php/handler.php': "<?php\nfunction handler($event) { return ['from' => 'php']; }\n",
  'lua/handler.lua': 'function handler(event) return { from = "lua" } end\n',
}

interface Bed {
  root: string
  gateway: Gateway
}

async function serve(t: Test, files: Record<string, string>, options: GatewayOptions = {}): Promise<Bed> {
  const { root, cleanup } = await makeTree(files)
  t.teardown(cleanup)
  const gateway = await createGateway({ functionsRoot: root, env: process.env, ...options })
  t.teardown(() => gateway.close())
  return { root, gateway }
}

/** The next reload after now. */
function nextReload(gateway: Gateway): Promise<ReloadRecord> {
  return new Promise(resolve => {
    const stop = gateway.on('reload', record => {
      stop()
      resolve(record)
    })
  })
}

t.test('[gateway/gateway.1, gateway/gateway.2] a tree in several languages answers through real processes', async t => {
  const { gateway } = await serve(t, POLYGLOT)
  for (const [path, from] of [
    ['/js', 'node'],
    ['/ts', 'ts'],
    ['/py', 'python'],
    ['/php', 'php'],
    ['/lua', 'lua'],
  ] as const) {
    if (from === 'php' && findProgram('php', {}, process.env.PATH ?? '').path === null) {
      t.comment('php is not installed: apt-get install php-cli')
      continue
    }
    const response = await gateway.inject(path)
    t.match([response.status, response.json()], [200, { from }], path)
  }
  const health = gateway.health() as { runtimes: Record<string, { health: { up: boolean } }> }
  for (const [name, { health: state }] of Object.entries(health.runtimes)) t.equal(state.up, true, name)
})

t.test('[gateway/gateway.1] settings that break their rules reject with every problem', async t => {
  const wrong = { functionsRoot: t.testdirName, port: 'many', namespaceDepth: 9 } as unknown as GatewayOptions
  const error = await createGateway(wrong).then(
    () => null,
    (problem: unknown) => problem,
  )
  t.type(error, SettingsError)
  t.match(
    (error as SettingsError).message,
    /options\.port[\s\S]*options\.namespaceDepth[\s\S]*options\.functionsRoot must be a folder that exists/,
  )
  t.equal((error as SettingsError).problems.length, 3)
})

t.test('[gateway/gateway.3, gateway/gateway.4] what is missing or broken is told, and the rest serves', async t => {
  const files = {
    ...POLYGLOT,
    'broken/fn.config.json': '{ "timeout_ms": ',
    'broken/handler.js': 'export const handler = () => 1\n',
    'wrong/fn.config.json': '{ "timeout_ms": "soon", "invoke": { "handlers": "x" } }',
    'wrong/handler.js': 'export const handler = () => 1\n',
    'syntax/handler.js': 'export const handler = (\n',
    'nothing/handler.js': 'export const other = 1\n',
  }
  const env = { PATH: '/nonexistent', FN_PHP_BIN: '/nonexistent/php' }
  const { gateway } = await serve(t, files, { env })
  const text = gateway.warnings
    .map(warning => `${warning.code} ${warning.path} ${warning.message} | ${warning.hint}`)
    .join('\n')
  t.match(text, /RUNTIME_MISSING php\/handler\.php .*php[\s\S]*install it [\s\S]*FN_PHP_BIN/)
  t.match(text, /RUNTIME_MISSING py\/handler\.py .*python[\s\S]*install it [\s\S]*FN_PYTHON_BIN/)
  t.match(text, /broken\/fn\.config\.json.*(not JSON|JSON)/)
  t.match(text, /wrong\/fn\.config\.json: timeout_ms must be an integer.*got "soon" \(string\)/)
  t.match(text, /handlers.*handler/)
  t.equal((await gateway.inject('/js')).status, 200)
  t.equal((await gateway.inject('/lua')).status, 200)
  t.equal((await gateway.inject('/wrong')).status, 200, 'a wrong field counts as absent')
  t.match((await gateway.inject('/syntax')).json(), { error: /syntax error.*syntax\/handler\.js/ })
  t.match((await gateway.inject('/nothing')).json(), { error: /handler/, detail: { hint: /other/ } })
  const named = await serve(t, POLYGLOT, { env, runtimes: ['node', 'php'] })
  const php = (named.gateway.health().runtimes as Record<string, { health: { up: boolean; reason: string } }>).php!
  t.match(php.health, { up: false, reason: /FN_PHP_BIN is \/nonexistent\/php, which is not an executable/ })
  t.match([(await named.gateway.inject('/php')).status, (await named.gateway.inject('/js')).status], [503, 200])
})

t.test('[gateway/gateway.5] inject, fetch, handle and listen are one path', async t => {
  const { gateway } = await serve(t, { 'echo/post.js': 'export const handler = e => ({ body: e.body, id: e.id })\n' })
  const request = { method: 'POST', headers: { 'X-Request-Id': 'one' }, body: 'hi' }
  const expected = { body: 'hi', id: 'one' }
  t.same((await gateway.inject({ url: '/echo', ...request })).json(), expected)
  t.same(await (await gateway.fetch(new Request('http://any/echo', request))).json(), expected)
  const { url } = await gateway.listen({ port: 0 })
  t.same(await (await fetch(`${url}/echo`, request)).json(), expected)
  const host = createServer((req, res) => gateway.handle(req, res, () => res.end('host')))
  await new Promise<void>(done => host.listen(0, '127.0.0.1', done))
  t.teardown(() => host.close())
  const base = `http://127.0.0.1:${(host.address() as AddressInfo).port}`
  t.same(await (await fetch(`${base}/echo`, request)).json(), expected)
  t.equal(await (await fetch(`${base}/elsewhere`)).text(), 'host', 'what has no route goes on')
  t.equal((await fetch(`${base}/echo`)).status, 405, 'a wrong method does not')
  await gateway.close()
  const refused = await fetch(`${base}/echo`, request)
  t.same([refused.status, await refused.json()], [503, { error: 'gateway is shutting down' }], 'nor a closed gateway')
  t.match(Object.fromEntries(refused.headers), { 'retry-after': '1', connection: 'close' })
  host.closeAllConnections()
})

t.test('[gateway/gateway.6] two gateways in one process share nothing', async t => {
  const before = { signals: process.eventNames().map(String).sort(), env: { ...process.env }, cwd: process.cwd() }
  const one = await serve(t, {
    'same.js': 'export const handler = e => ({ one: e.env.NAME ?? null })\n',
    'fn.env.json': '{"NAME":"a"}',
  })
  const two = await serve(t, { 'same.js': 'export const handler = e => ({ two: e.env.NAME ?? null })\n' })
  t.same((await one.gateway.inject('/same')).json(), { one: 'a' })
  t.same((await two.gateway.inject('/same')).json(), { two: null })
  await one.gateway.close()
  t.same((await two.gateway.inject('/same')).json(), { two: null }, 'closing one leaves the other')
  t.same({ signals: process.eventNames().map(String).sort(), env: { ...process.env }, cwd: process.cwd() }, before)
})

t.test('[gateway/gateway.7] invoke by name', async t => {
  const { gateway } = await serve(t, {
    'hello/handler.js': 'export const handler = e => ({ user: e.context.user, q: e.query.q })\n',
    'hello/fn.config.json': '{ "runtime": "node" }',
    'hello/v2/handler.js': 'export const handler = () => ({ v: 2 })\n',
    'node/dup/handler.js': 'export const handler = () => 1\n',
    'python/dup/handler.py': 'def handler(event):\n    return 1\n',
    'twice/handler.js': 'export const handler = () => "first"\n',
    'other/handler.js': 'export const handler = () => "second"\n',
    'other/fn.config.json': '{ "name": "twice" }',
  })
  const call = await gateway.invoke('hello', { query: { q: '1' }, context: { id: 7 } })
  t.match([call.status, JSON.parse(call.body.toString())], [200, { user: { id: 7 }, q: '1' }])
  t.same(JSON.parse((await gateway.invoke('hello', { version: 'v2' })).body.toString()), { v: 2 })
  await t.rejects(gateway.invoke('nope'), { code: 'NOT_FOUND' })
  await t.rejects(gateway.invoke('hello', { version: 'v9' }), { code: 'NOT_FOUND' })
  await t.rejects(gateway.invoke('dup'), { code: 'ROUTE_CONFLICT', message: /node.*python|python.*node/ })
  t.equal((await gateway.invoke('dup', { runtime: 'node' })).status, 200)
  t.equal((await gateway.invoke('twice')).status, 200, 'two of one runtime: the one whose warning says so')
})

t.test(
  '[gateway/gateway.8, gateway/gateway.11, gateway/gateway.12, gateway/gateway.13] edits are seen, in the handler, its helper and its config',
  async t => {
    const { root, gateway } = await serve(
      t,
      {
        'a/handler.py':
          'from _text import TEXT\nimport os\ndef handler(event):\n    return {"text": TEXT, "pid": os.getpid()}\n',
        'a/_text.py': 'TEXT = "old"\n',
        'b.js': 'export const handler = () => ({ pid: process.pid })\n',
      },
      { hotReload: true },
    )
    const requests: string[] = []
    gateway.on('request', record => requests.push(`${record.status} ${record.path}`))
    const get = async (path: string) => (await gateway.inject(path)).json() as Record<string, unknown>
    const before = await get('/b')
    t.match(await get('/a'), { text: 'old' })
    let reloaded = nextReload(gateway)
    writeFileSync(join(root, 'a', '_text.py'), 'TEXT = "new text"\n')
    t.match(await reloaded, { cause: 'watch', functions: 2 })
    t.match(await get('/a'), { text: 'new text' }, 'a helper module')
    t.same(await get('/b'), before, 'an unchanged function keeps its worker')
    reloaded = nextReload(gateway)
    writeFileSync(join(root, 'a', 'fn.config.json'), '{ "invoke": { "methods": ["POST"] }, "runtime": "python" }')
    await reloaded
    t.equal((await gateway.inject('/a')).status, 405, 'a config')
    reloaded = nextReload(gateway)
    writeFileSync(join(root, 'c.js'), 'export const handler = () => 1\n')
    await reloaded
    t.equal((await gateway.inject('/c')).status, 200, 'a new file')
    reloaded = nextReload(gateway)
    rmSync(join(root, 'c.js'))
    await reloaded
    t.equal((await gateway.inject('/c')).status, 404, 'a deleted file')
    t.ok(requests.includes('200 /a') && requests.includes('405 /a'))
    t.throws(() => gateway.on('nonsense' as 'log', () => {}), /unknown event/)
  },
)

t.test(
  '[gateway/gateway.12, gateway/gateway.13] no request is lost while handlers change, and none mixes old and new',
  async t => {
    const text = (n: number) => `const a = ${n}\nexport const handler = async () => ({ a, b: ${n} })\n`
    const { root, gateway } = await serve(t, { 'v.js': text(0) })
    let stop = false
    const wrong: string[] = []
    let count = 0
    const load = Promise.all(
      Array.from({ length: 4 }, async () => {
        while (!stop) {
          const response = await gateway.inject('/v')
          const { a, b } = response.json() as { a: number; b: number }
          if (response.status !== 200 || a !== b) wrong.push(`${response.status} ${response.text()}`)
          count++
        }
      }),
    )
    for (let n = 1; n <= 15; n++) {
      writeFileSync(join(root, 'v.js'), text(n))
      await gateway.reload()
      while (((await gateway.inject('/v')).json() as { a: number }).a !== n) {}
    }
    stop = true
    await load
    t.same(wrong, [])
    t.ok(count > 15, `${count} requests`)
  },
)

/** A handler cut off in the middle, which says so when it is loaded, and the whole one. */
const HALF_SAVED: Record<string, { half: string; whole: string }> = {
  'node.js': {
    half: 'console.log("half")\nthrow new Error("cut off")\n',
    whole: 'export const handler = () => "whole"\n',
  },
  'python.py': {
    half: 'print("half")\nraise ValueError("cut off")\n',
    whole: 'def handler(event):\n    return "whole"\n',
  },
  'php.php': {
    half: '<?php\nfwrite(STDERR, "half\\n");\nthrow new Exception("cut off");\n',
    whole: '<?php\nfunction handler($event) { return "whole"; }\n',
  },
  'lua.lua': { half: 'print("half")\nerror("cut off")\n', whole: 'function handler(event) return "whole" end\n' },
}

t.test(
  '[gateway/gateway.12, runtime/worker-set.19] a worker that starts in the middle of a save fails no call',
  async t => {
    for (const [file, { half, whole }] of Object.entries(HALF_SAVED)) {
      const [name] = file.split('.') as [string]
      if (name === 'php' && findProgram('php', {}, process.env.PATH ?? '').path === null) continue
      const { root, gateway } = await serve(t, { [file]: whole })
      writeFileSync(join(root, file), half)
      const isLoaded = new Promise<void>(resolve => {
        gateway.on('log', ({ message }) => {
          if (/half/.test(message)) resolve()
        })
      })
      const answer = gateway.inject(`/${name}`)
      await isLoaded
      writeFileSync(join(root, file), whole)
      const response = await answer
      t.match([response.status, response.text()], [200, /whole/], file)
      writeFileSync(join(root, file), half)
      await gateway.reload()
      const stale = await gateway.inject(`/${name}`)
      t.match(
        [stale.text(), stale.headers['x-fn-load-error']],
        [/whole/, /cut off/],
        `${file}: one that is meant so is not served`,
      )
      await gateway.close()
    }
  },
)

t.test('[gateway/gateway.15, gateway/gateway.19] inspect looks at the tree and starts nothing', async t => {
  const { gateway } = await serve(t, POLYGLOT, { inspect: true, runtimes: ['node', 'python', 'php', 'lua'] })
  const { mapped_routes: routes } = gateway.catalog() as { mapped_routes: object }
  t.same(gateway.counts(), { routes: Object.keys(routes).length, conflicts: 0 })
  t.match(gateway.explain('GET', '/js'), { winner: { file: 'js/handler.js' } })
  for (const path of ['/js', '/ts', '/py', '/php', '/lua']) {
    const response = await gateway.inject(path)
    t.match([response.status, response.json()], [503, { error: /^runtime down: .*only looked at/ }], path)
  }
  await gateway.reload()
  t.equal((await gateway.invoke('js')).status, 503)
  const { functionsRoot } = gateway.settings
  t.same(
    listProcesses().filter(pid => commandOf(pid).includes(functionsRoot)),
    [],
  )
})

t.test('[gateway/gateway.14] reloads asked for during a reload are one more', async t => {
  const { gateway } = await serve(t, POLYGLOT)
  let reloads = 0
  gateway.on('reload', () => reloads++)
  await Promise.all(Array.from({ length: 20 }, () => gateway.reload()))
  t.equal(reloads, 2)
})

t.test('[gateway/gateway.17] a gateway that listens before its tree is read serves what comes meanwhile', async t => {
  const tree = makeTree({ 'hello.js': 'export const handler = () => ({ here: 1 })\n' })
  t.teardown(tree.cleanup)
  const asked: Promise<unknown>[] = []
  let at = ''
  const options = { functionsRoot: tree.root, env: process.env, runtimes: ['node' as const] }
  const gateway = await createGateway({
    ...options,
    beforeStart: async opening => {
      at = (await opening.listen({ port: 0 })).url
      t.same(await (await fetch(`${at}/_fn/health?ready=1`)).json(), {
        ready: false,
        reasons: ['the gateway is starting'],
      })
      t.same(await (await fetch(`${at}/_fn/health?live=1`)).json(), { live: true })
      for (const path of ['/hello', '/_fn/catalog']) asked.push(fetch(at + path).then(answer => answer.json()))
    },
  })
  t.teardown(() => gateway.close())
  t.match(await Promise.all(asked), [{ here: 1 }, { mapped_routes: { '/hello': [] } }])
  t.same(await (await fetch(`${at}/_fn/health?ready=1`)).json(), { ready: true })

  const failed = createGateway({
    ...options,
    beforeStart: async opening => {
      at = (await opening.listen({ port: 0 })).url
      throw new Error('not today')
    },
  })
  await t.rejects(failed, { message: 'not today' })
  await t.rejects(fetch(at), 'nobody listens any more')
})

t.test('[gateway/gateway.18] a stop is told before connections are refused', async t => {
  const clock = new FakeClock()
  const { gateway } = await serve(t, POLYGLOT, { clock, inspect: true, shutdownDelayMs: 5000 })
  const { url } = await gateway.listen({ port: 0 })
  const reasons = async () =>
    ((await (await fetch(`${url}/_fn/health?ready=1`)).json()) as { reasons: string[] }).reasons
  t.notMatch(await reasons(), ['the gateway is stopping'])
  const closed = gateway.close({ timeoutMs: 1000 })
  clock.advance(4999)
  t.same(await reasons(), ['the gateway is stopping'])
  const answer = await fetch(`${url}/nothing`)
  t.same([answer.status, answer.headers.get('connection')], [404, 'close'])
  t.equal((await fetch(`${url}/_fn/health?live=1`)).status, 200)
  clock.advance(1)
  // The drain looks at its connections by the same clock.
  let isClosed = false
  void closed.then(() => {
    isClosed = true
  })
  while (!isClosed) {
    clock.advance(100)
    await new Promise(setImmediate)
  }
  await t.rejects(reasons())
})

t.test('[gateway/gateway.9] close finishes what runs, twice is once, later calls are refused', async t => {
  const { gateway } = await serve(t, {
    'slow.js': 'export const handler = () => new Promise(done => setTimeout(() => done({ done: 1 }), 200))\n',
  })
  await gateway.inject('/slow')
  const { url } = await gateway.listen({ port: 0 })
  const running = fetch(`${url}/slow`)
  await new Promise<void>(resolve => {
    const stop = setInterval(() => {
      const { functions } = gateway.health() as { functions: { summary: { pool_active: number } } }
      if (functions.summary.pool_active === 0) return
      clearInterval(stop)
      resolve()
    }, 1)
  })
  const closed = gateway.close()
  t.equal(gateway.close(), closed)
  t.same(await (await running).json(), { done: 1 })
  await closed
  await t.rejects(gateway.inject('/slow'), { code: 'SHUTTING_DOWN' })
  await t.rejects(gateway.listen({ port: 0 }), { code: 'SHUTTING_DOWN' })
  await t.rejects(gateway.invoke('slow'), { code: 'SHUTTING_DOWN' })
  await gateway.reload()
})

t.test(
  '[gateway/gateway.9] a stream that is open at close may end until the limit, then it is cut; new calls are refused at once',
  async t => {
    const { gateway } = await serve(t, {
      'stream.js':
        'export const handler = () => ({ status: 200, body: (async function* () { yield "begun "; await new Promise(() => {}) })() })\n',
    })
    const { url } = await gateway.listen({ port: 0 })
    const response = await fetch(`${url}/stream`)
    const reader = response.body!.getReader()
    t.equal(Buffer.from((await reader.read()).value!).toString(), 'begun ')
    const injected = gateway.inject('/stream').then(
      () => 'whole',
      () => 'cut',
    )
    const closed = gateway.close({ timeoutMs: 100 })
    for (const call of [
      () => gateway.inject('/stream'),
      () => gateway.fetch('/stream'),
      () => gateway.invoke('stream'),
    ])
      await t.rejects(call() as Promise<unknown>, { code: 'SHUTTING_DOWN' })
    await t.rejects(reader.read())
    t.equal(await injected, 'cut')
    await closed
  },
)

t.test(
  '[gateway/gateway.9, gateway/gateway.10] the process ends by itself after close, and kill -9 leaves nothing',
  async t => {
    const { root, cleanup } = await makeTree(POLYGLOT)
    t.teardown(cleanup)
    const script = fileURLToPath(new URL('../fixtures/embed.ts', import.meta.url))
    for (const mode of ['close', 'stay']) {
      const child = spawn(process.execPath, [...FROM_SOURCES, script, root, mode], {
        stdio: ['ignore', 'pipe', 'inherit'],
      })
      // Asked for at once: on a busy machine its end may be told before its last words.
      const exited = new Promise(done => child.once('exit', done))
      const lines: string[] = []
      const reader = createInterface({ input: child.stdout })
      await new Promise<void>(done => {
        reader.on('line', line => {
          lines.push(line)
          if (line === 'served') done()
        })
        reader.on('close', done)
      })
      const group = JSON.parse(lines[0] ?? '[]') as number[]
      t.ok(group.length >= 2, `${group.length} runtime processes were seen`)
      if (mode === 'stay') child.kill('SIGKILL')
      const code = await exited
      if (mode === 'close') t.equal(code, 0)
      // The daemons end when their standard input does; that takes a moment, and no notice of it reaches a third process.
      for (let tries = 0; group.some(isAlive) && tries < 500; tries++) await new Promise(done => setTimeout(done, 10))
      t.same(group.filter(isAlive), [], `nothing is left after ${mode}`)
    }
  },
)
