import { spawn, spawnSync } from 'node:child_process'
import { chmodSync, existsSync, readFileSync, statSync } from 'node:fs'
import net from 'node:net'
import { dirname } from 'node:path'
import t from 'tap'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import { findProgram, findVersionProblem, toInstallHint } from '../../lib/runtime/binaries.ts'
import { Daemon, type DaemonEvent } from '../../lib/runtime/daemon.ts'
import { NO_TRUST } from '../../lib/runtime/worker-socket.ts'
import { encodeFrame, FrameReader, KIND } from '../../lib/runtime/wire-protocol.ts'
import { FROM_SOURCES } from '../helpers/cli.ts'
import { FakeClock } from '../helpers/clock.ts'
import { isAlive, childrenOf, commandOf } from '../helpers/processes.ts'
import { runtimeFile } from '../../lib/runtime/package-files.ts'
import { makeRuntimes, TestCall } from './runtime-bed.ts'
import { makeTree } from '../helpers/tree.ts'
import { startDaemon, until } from '../helpers/worker-client.ts'

// Many processes are started; a busy machine takes its time.
t.setTimeout(120_000)

const HELLO = 'export const handler = () => "hello"'
/** Everything below a process. */
const treeOf = (pid: number): number[] => childrenOf(pid).flatMap(child => [child, ...treeOf(child)])
const daemonPids = () => childrenOf(process.pid).filter(pid => commandOf(pid).includes('daemon.mjs'))

t.test('[runtime/daemon.1] the program of a runtime is the configured one or the first on PATH', async t => {
  const tree = makeTree({ 'a/python3': '', 'b/python3': '#!/bin/sh\n', 'b/mine': '#!/bin/sh\n', 'b/folder/x': '' })
  t.teardown(() => tree.cleanup())
  for (const file of ['b/python3', 'b/mine']) chmodSync(tree.path(file), 0o755)
  const path = `${tree.path('a')}:${tree.path('b')}`
  const cases: [string, Parameters<typeof findProgram>, object][] = [
    ['first that can be run', ['python', {}, path], { path: tree.path('b/python3') }],
    ['a name', ['python', { python: 'mine' }, path], { path: tree.path('b/mine') }],
    ['a path', ['php', { php: tree.path('b/mine') }, ''], { path: tree.path('b/mine') }],
    ['own node', ['node', {}, ''], { path: process.execPath }],
    ['missing', ['php', {}, path], { path: null, problem: `php not found: ${toInstallHint('php')} or set FN_PHP_BIN` }],
    [
      'missing name',
      ['node', { node: 'nope' }, path],
      { problem: 'FN_NODE_BIN is nope, which is not an executable program' },
    ],
    ['a folder', ['php', { php: tree.path('b/folder') }, ''], { path: null, problem: /FN_PHP_BIN is .*folder/ }],
  ]
  for (const [name, args, expected] of cases) t.match(findProgram(...args), expected, name)
  const versions: [Parameters<typeof findVersionProblem>, RegExp | null][] = [
    [
      ['python', '3.8.10'],
      /^python 3\.8\.10 is too old: 3\.9 or newer is needed; install it from https:\/\/www\.python\.org\S+ or set FN_PYTHON_BIN$/,
    ],
    [['python', '3.9.0'], null],
    [['python', '3.13.1'], null],
    [['php', '7.4.33'], /8\.0 or newer/],
    [['php', '8.0.0'], null],
    [['node', '20.18.1'], /20\.19 or newer/],
    [['node', '22.0.0'], null],
    [['lua', '5.3'], null],
    [['php', ''], null],
  ]
  for (const [args, expected] of versions) {
    const problem = findVersionProblem(...args)
    if (expected === null) t.equal(problem, null, args.join(' '))
    else t.match(problem ?? '', expected, args.join(' '))
  }
})

t.test(
  '[runtime/daemon.2] a missing program: left out with a warning, or down with a reason; found when it appears',
  async t => {
    const tree = makeTree({ 'bin/x': '' })
    t.teardown(() => tree.cleanup())
    const hostEnv = { ...process.env, PATH: tree.path('bin') }
    const bed = makeRuntimes(
      { 'a.php': '<?php', 'b.php': '<?php', 'c.mjs': HELLO },
      { settings: { runtimes: ['php', 'node'], runtimesExplicit: false }, hostEnv },
    )
    t.teardown(() => bed.close())
    t.strictSame([...bed.runtimes.byName.keys()], ['node'])
    const functions = new Map([bed.fn('b.php'), bed.fn('a.php')].map(fn => [fn.key, fn]))
    t.match(bed.runtimes.retain(functions), [
      {
        code: 'RUNTIME_MISSING',
        path: 'a.php',
        message: `php not found: ${toInstallHint('php')} or set FN_PHP_BIN; not served: a.php, b.php`,
        hint: /^install it /,
      },
    ])
    t.strictSame(bed.runtimes.retain(new Map()), [], 'nobody misses a language that is not used')
    tree.write({ 'bin/php': '#!/bin/sh\nexit 1\n' })
    chmodSync(tree.path('bin/php'), 0o755)
    t.strictSame(bed.runtimes.retain(functions), [])
    t.ok(bed.runtimes.byName.has('php'))

    const asked = makeRuntimes({}, { settings: { runtimes: ['python'] }, hostEnv })
    t.teardown(() => asked.close())
    t.match(asked.health('python'), {
      up: false,
      reason: /^python3 not found: .* or set FN_PYTHON_BIN; restarting in \d+ ms$/,
      sockets: [{ index: 1, up: false }],
    })
  },
)

t.test(
  '[runtime/daemon.3, runtime/daemon.4, runtime/daemon.5, runtime/daemon.15] started when needed, clean, private, and nothing is left',
  async t => {
    const bed = makeRuntimes(
      { 'a.mjs': 'export const handler = () => process.env' },
      {
        hostEnv: {
          PATH: process.env.PATH,
          HOME: '/tmp',
          LC_ALL: 'C',
          TZ: 'UTC',
          FN_ADMIN_TOKEN: 'planted',
          NODE_OPTIONS: '--max-old-space-size=1',
        },
      },
    )
    await bed.runtimes.start()
    t.match(bed.health('node'), { routing: 'single', up: true, reason: 'not started: no functions' })
    t.strictSame(daemonPids(), [])
    const fn = bed.fn('a.mjs')
    await bed.runtimes.start()
    const health = bed.health('node')
    t.match(health, {
      up: true,
      reason: 'ok',
      sockets: [{ index: 1, up: true, uri: /^unix:.*\/fngw-\w+\/node-1\.sock$/ }],
    })
    const env = JSON.parse((await bed.call(fn)).text)
    t.strictSame(Object.keys(env).sort(), ['FNGW_WORKER', 'HOME', 'LC_ALL', 'PATH', 'TZ'])
    const [pid] = daemonPids() as [number]
    t.equal(readFileSync(`/proc/${pid}/stat`, 'utf8').split(' ')[4], String(pid), 'its own process group')
    t.notMatch(readFileSync(`/proc/${pid}/environ`, 'utf8'), /planted|NODE_OPTIONS/)
    const folder = dirname(health.sockets[0]!.uri.slice('unix:'.length))
    t.equal(statSync(folder).mode & 0o777, 0o700)
    const all = [pid, ...treeOf(pid)]
    await Promise.all([bed.close(), bed.close()])
    await until(() => all.every(one => !isAlive(one)))
    t.notOk(existsSync(folder))
  },
)

/** A daemon under a fake clock whose program is a script. */
function makeDaemon(script: string, clock: FakeClock, options: { externalUri?: string } = {}) {
  const tree = makeTree({ 'daemon.mjs': script })
  const events: DaemonEvent[] = []
  const uri = `unix:${tree.path('d.sock')}`
  const daemon = new Daemon({
    trust: NO_TRUST,
    runtime: 'node',
    index: 1,
    clock,
    externalUri: options.externalUri ?? null,
    launch: () => ({
      command: process.execPath,
      args: [tree.path('daemon.mjs'), tree.path('d.sock')],
      env: {},
      cwd: tree.root,
      nice: 0,
      uri,
    }),
    onLog: () => {},
    onEvent: event => events.push(event),
  })
  return { daemon, events, tree, uri }
}

/** A daemon whose program is missing. */
function withoutProgram(clock: FakeClock): Daemon {
  return new Daemon({
    trust: NO_TRUST,
    runtime: 'php',
    index: 2,
    clock,
    externalUri: null,
    launch: () => ({ command: '/nonexistent/php', args: [], env: {}, cwd: '/', nice: 5, uri: 'unix:/tmp/none.sock' }),
    onLog: () => {},
    onEvent: () => {},
  })
}

/** A server that speaks as much of a daemon as a test wants. */
function listen(path: string, onFrame: (socket: net.Socket, kind: number, id: number, header: string) => void) {
  const sockets = new Set<net.Socket>()
  const server = net.createServer(socket => {
    sockets.add(socket)
    const reader = new FrameReader((kind, id, header) => onFrame(socket, kind, id, header))
    socket.on('data', chunk => reader.push(chunk))
    socket.on('error', () => {})
  })
  server.listen(path)
  return {
    server,
    sockets,
    close: () => {
      for (const socket of sockets) socket.destroy()
      server.close()
    },
  }
}

t.test('[runtime/daemon.6] a daemon that does not greet or does not answer pings is given up', async t => {
  const clock = new FakeClock()
  const tree = makeTree({})
  t.teardown(() => tree.cleanup())
  let answers = true
  let greets = false
  const fake = listen(tree.path('d.sock'), (socket, kind, id) => {
    if (kind === KIND.hello && greets)
      socket.write(encodeFrame(KIND.ready, 0, '{"runtime":"node","version":"22.1.0","pid":5}', null))
    if (kind === KIND.ping && answers) socket.write(encodeFrame(KIND.pong, id, '', null))
  })
  t.teardown(fake.close)
  const { daemon, events } = makeDaemon('', clock, { externalUri: `unix:${tree.path('d.sock')}` })
  t.teardown(() => daemon.close())
  daemon.ensureStarted()
  await until(() => fake.sockets.size === 1)
  clock.advance(10_000)
  await until(() => daemon.state === 'waiting')
  t.equal(daemon.health().reason, 'no answer to hello within 10 s; reconnecting in 20 ms')
  greets = true
  clock.advance(100)
  await until(() => daemon.state === 'up')
  t.match(daemon.health(), { up: true, reason: 'ok' })
  for (let i = 0; i < 10; i++) {
    clock.advance(2000)
    await new Promise(done => setImmediate(done))
    await new Promise(done => setTimeout(done, 5))
  }
  t.equal(daemon.state, 'up')
  answers = false
  for (let i = 0; i < 4; i++) clock.advance(2000)
  t.equal(daemon.state, 'up', 'four are forgiven')
  clock.advance(2000)
  t.equal(daemon.state, 'waiting')
  t.match(daemon.reason, 'no answer for 8 s')
  t.strictSame(
    events.map(event => event.kind),
    ['down', 'up', 'down'],
  )
})

t.test('[runtime/daemon.7] a daemon that ends is restarted with growing delays, its last words in health', async t => {
  const clock = new FakeClock()
  const { daemon, events, tree } = makeDaemon('console.error("first line\\nno such thing"); process.exit(7)', clock)
  t.teardown(() => tree.cleanup())
  daemon.ensureStarted()
  const delays: number[] = []
  for (let i = 0; i < 9; i++) {
    await until(() => daemon.state === 'waiting')
    const { reason, up } = daemon.health()
    t.equal(up, false)
    delays.push(Number(/^exited with code 7: no such thing; restarting in (\d+) ms$/.exec(reason)?.[1]))
    clock.advance(delays.at(-1)! - 1)
    t.equal(daemon.state, 'waiting')
    clock.advance(1)
    t.equal(daemon.state, 'starting')
  }
  t.strictSame(delays, [20, 40, 80, 160, 320, 640, 1280, 2560, 5120])
  t.equal(events.filter(event => event.kind === 'down').length, 1, 'one line for one cause')
  t.ok(events.some(event => event.kind === 'output' && event.text.includes('first line')))
  await daemon.close()
  t.match(daemon.health(), { up: false, reason: 'closed' })
})

t.test('[runtime/daemon.7, runtime/daemon.1] a program that cannot run, or is too old, says so', async t => {
  const clock = new FakeClock()
  const old = makeDaemon(
    `import net from 'node:net'
    net.createServer(s => s.write(Buffer.from('${encodeFrame(KIND.ready, 0, '{"runtime":"node","version":"18.0.0","pid":1}', null).toString('hex')}', 'hex'))).listen(process.argv[2])`,
    clock,
  )
  t.teardown(() => old.tree.cleanup())
  old.daemon.ensureStarted()
  await until(() => {
    clock.advance(5)
    return old.daemon.state === 'waiting'
  })
  t.match(old.daemon.reason, /node 18\.0\.0 is too old: 20\.19 or newer is needed/)
  await old.daemon.close()
  const daemon = withoutProgram(clock)
  daemon.ensureStarted()
  await until(() => daemon.state === 'waiting')
  t.match(daemon.reason, /cannot run \/nonexistent\/php: .*ENOENT/)
  await daemon.close()
})

t.test(
  '[runtime/daemon.7, runtime/daemon.10] daemons that are killed again and again cost the calls of their workers alone',
  async t => {
    const bed = makeRuntimes({ 'a.mjs': HELLO })
    t.teardown(() => bed.close())
    const fn = bed.fn('a.mjs')
    t.equal((await bed.call(fn)).error, null)
    for (let i = 0; i < 6; i++) {
      await until(() => daemonPids().length === 1)
      process.kill(daemonPids()[0]!, 'SIGKILL')
      await until(() => bed.events.filter(({ kind }) => kind === 'down').length === i + 1)
      t.equal((await bed.call(fn)).error, null, 'waits for the restart')
    }
    t.equal(bed.failures.length, 0, 'the end of a daemon is no failure of the function')
  },
)

t.test('[runtime/daemon.8] kill -9 of a daemon: its workers are gone, the next call works', async t => {
  const bed = makeRuntimes({
    'a.mjs':
      'import { spawn } from "node:child_process"\nconst child = spawn("sleep", ["1000"])\nexport const handler = e => e.method === "PUT" ? new Promise(() => {}) : child.pid',
  })
  t.teardown(() => bed.close())
  const fn = bed.fn('a.mjs')
  const child = Number((await bed.call(fn)).text)
  const [pid] = daemonPids() as [number]
  const workers = treeOf(pid)
  const open = bed.call(fn, { method: 'PUT' })
  process.kill(pid, 'SIGKILL')
  t.match((await open).error, { status: 503, message: /^runtime worker ended: / })
  const next = await bed.call(fn)
  t.equal(next.error, null)
  t.not(Number(next.text), child)
  await until(() => [...workers, child].every(one => !isAlive(one)))
  t.match(
    bed.events.map(event => event.text),
    [/^node /, /^ended by SIGKILL/, /^node /],
  )
})

t.test('[runtime/daemon.9] kill -9 of the gateway leaves no process', async t => {
  const tree = makeTree({
    'a.mjs':
      'import { spawn } from "node:child_process"\nspawn("sleep", ["1000"])\nexport const handler = e => { if (e.method === "PUT") for (;;); return "ok" }',
  })
  t.teardown(() => tree.cleanup())
  const script = `
    import { makeRuntimes } from ${JSON.stringify(new URL('./runtime-bed.ts', import.meta.url).href)}
    const bed = makeRuntimes({}, {})
    const fn = bed.fn('a.mjs', { timeoutMs: 60000 }, { entryPath: ${JSON.stringify(tree.path('a.mjs'))}, fnDir: ${JSON.stringify(tree.root)} })
    bed.call(fn).then(outcome => { bed.call(fn, { method: 'PUT' }); process.stdout.write(outcome.text) })
    process.on('exit', () => bed.tree.cleanup())
  `
  tree.write({ 'gateway.mts': script })
  const gateway = spawn(process.execPath, [...FROM_SOURCES, tree.path('gateway.mts')], {
    stdio: ['ignore', 'pipe', 'inherit'],
    cwd: process.cwd(),
  })
  await new Promise<void>(done => gateway.stdout.on('data', text => String(text).includes('ok') && done()))
  const all = treeOf(gateway.pid!).filter(pid => !commandOf(pid).includes('esbuild'))
  t.ok(all.length >= 3, 'daemon, shell, worker, child')
  gateway.kill('SIGKILL')
  await until(() => all.every(pid => !isAlive(pid)))
})

t.test(
  '[runtime/daemon.10, runtime/worker-set.16] two daemons: round robin, failover, 503 when none is left',
  async t => {
    const files = Object.fromEntries(['a', 'b', 'c', 'd', 'e', 'f', 'g'].map(name => [`${name}.mjs`, HELLO]))
    const tools = makeTree({ node: `#!/bin/sh\nexec ${process.execPath} "$@"\n` })
    t.teardown(() => tools.cleanup())
    chmodSync(tools.path('node'), 0o755)
    const settings = { runtimeDaemons: { node: 2 }, binaries: { node: tools.path('node') } }
    const bed = makeRuntimes(files, { settings })
    t.teardown(() => bed.close())
    const call = async (name: string) => {
      const test = new TestCall(bed.fn(`${name}.mjs`))
      bed.runtimes.dispatcher.setOf(test.fn).dispatch(test)
      const outcome = await test.outcome
      t.equal(outcome.error, null)
      return test.host?.socketIndex
    }
    bed.fn('a.mjs')
    await bed.runtimes.start()
    t.strictSame([await call('a'), await call('b'), await call('c')].sort(), [1, 1, 2])
    await until(() => bed.runtimes.dispatcher.workerCount('node/a@default') === 2)
    // The second worker is ready when it has answered once.
    const seen: unknown[] = []
    while (new Set(seen).size < 2) seen.push(await call('a'))
    for (let i = 0; i < 4; i++) seen.push(await call('a'))
    for (let i = seen.length - 4; i < seen.length; i++) t.not(seen[i], seen[i - 1], 'in turn')
    t.match(bed.health('node'), {
      routing: 'round_robin',
      up: true,
      reason: 'ok',
      sockets: [
        { index: 1, up: true },
        { index: 2, up: true },
      ],
    })
    const first = daemonPids().find(pid => commandOf(pid).includes('node-1.sock'))!
    chmodSync(tools.path('node'), 0o644)
    process.kill(first, 'SIGKILL')
    await until(() => /^1 of 2 sockets down: FN_NODE_BIN is /.test(bed.health('node').reason))
    t.equal(bed.health('node').up, true)
    t.strictSame([await call('d'), await call('e')], [2, 2])
    chmodSync(tools.path('node'), 0o755)
    await until(() => bed.health('node').sockets.every(socket => socket.up))
    t.strictSame([await call('f'), await call('g')].sort(), [1, 2])

    const broken = makeRuntimes({ 'a.mjs': HELLO, 'bin/node': '#!/bin/sh\necho "does not work" >&2\nexit 3\n' }, {})
    t.teardown(() => broken.close())
    chmodSync(broken.tree.path('bin/node'), 0o755)
    const down = makeRuntimes({ 'a.mjs': HELLO }, { settings: { binaries: { node: broken.tree.path('bin/node') } } })
    t.teardown(() => down.close())
    const outcome = await down.call(down.fn('a.mjs'))
    t.match(outcome.error, {
      code: 'RUNTIME_DOWN',
      status: 503,
      message: 'runtime down',
      headers: { 'Retry-After': '1' },
      detail: { hint: /^node: exited with code 3: does not work$/ },
    })
  },
)

t.test(
  '[runtime/daemon.11] external daemons on unix and tcp sockets are used, not spawned, and found again',
  async t => {
    const tree = makeTree({})
    t.teardown(() => tree.cleanup())
    const probe = net.createServer().listen(0, '127.0.0.1')
    await new Promise(done => probe.once('listening', done))
    const { port } = probe.address() as net.AddressInfo
    await new Promise(done => probe.close(done))
    const uris = [`unix:${tree.path('x.sock')}`, `tcp://127.0.0.1:${port}`]
    const launch = (uri: string) =>
      spawn(
        process.execPath,
        [new URL('../../runtimes/daemon/daemon.mjs', import.meta.url).pathname, '--socket', uri, '--standalone'],
        { stdio: 'ignore', env: { PATH: process.env.PATH } },
      )
    const own = uris.map(launch)
    t.teardown(() => own.map(child => child.kill('SIGTERM')))
    const bed = makeRuntimes(
      { 'a.mjs': HELLO, 'b.mjs': HELLO, 'c.mjs': HELLO },
      { settings: { runtimeSockets: { node: uris }, binaries: { node: '/nonexistent' } } },
    )
    t.teardown(() => bed.close())
    const a = bed.fn('a.mjs')
    const isUp = (count: number) => () => bed.health('node').sockets.filter(socket => socket.up).length === count
    await until(isUp(2))
    t.match(bed.health('node'), {
      routing: 'round_robin',
      sockets: [{ uri: uris[0] }, { uri: uris[1] }],
    })
    t.equal((await bed.call(a)).text, '"hello"')
    t.equal((await bed.call(bed.fn('b.mjs'))).text, '"hello"', 'a worker on tcp')
    own[0]!.kill('SIGTERM')
    await until(isUp(1))
    t.match(bed.health('node').sockets[0]!.reason, /; reconnecting in \d+ ms$|; reconnecting$/)
    t.equal((await bed.call(bed.fn('c.mjs'))).text, '"hello"')
    own[0] = launch(uris[0]!)
    await until(isUp(2))
    await bed.close()
    t.ok(
      own.every(child => child.exitCode === null),
      'daemons of others live on',
    )
  },
)

t.test(
  '[runtime/daemon.11] calls wait a second for a daemon elsewhere that was lost, not for as long as it is tried',
  async t => {
    const clock = new FakeClock()
    const tree = makeTree({})
    t.teardown(() => tree.cleanup())
    let greets = false
    const fake = listen(tree.path('x.sock'), (socket, kind) => {
      if (kind === KIND.hello && greets)
        socket.write(encodeFrame(KIND.ready, 0, '{"runtime":"node","version":"22.1.0"}', null))
    })
    t.teardown(fake.close)
    const { daemon } = makeDaemon('', clock, { externalUri: `unix:${tree.path('x.sock')}` })
    daemon.ensureStarted()
    await until(() => fake.sockets.size === 1)
    clock.advance(9000)
    t.equal(daemon.delay(clock.monotonic()), 0, 'the first attempt is waited for')
    clock.advance(1000)
    t.match(daemon.health(), { up: false, reason: 'no answer to hello within 10 s; reconnecting in 20 ms' })
    t.equal(daemon.delay(clock.monotonic()), 20)
    clock.advance(20)
    t.match(daemon.health().reason, /^no answer to hello within 10 s; reconnecting$/, 'it still says why')
    t.equal(daemon.delay(clock.monotonic()), 0)
    clock.advance(999)
    t.equal(daemon.delay(clock.monotonic()), 0)
    clock.advance(1)
    t.equal(daemon.delay(clock.monotonic()), Number.POSITIVE_INFINITY)
    greets = true
    clock.advance(9000)
    clock.advance(200)
    await until(() => daemon.state === 'up')
    await daemon.close()
  },
)

t.test('[runtime/daemon.15] what is closed while it connects to a daemon elsewhere tries no more', async t => {
  const clock = new FakeClock()
  const tree = makeTree({})
  t.teardown(() => tree.cleanup())
  const fake = listen(tree.path('x.sock'), () => {})
  t.teardown(fake.close)
  const { daemon } = makeDaemon('', clock, { externalUri: `unix:${tree.path('x.sock')}` })
  daemon.ensureStarted()
  await until(() => fake.sockets.size === 1)
  const [socket] = fake.sockets
  const ended = new Promise(done => socket!.once('close', done))
  await daemon.close()
  t.equal(clock.pending, 0, 'nothing is waited for')
  await ended
  t.equal(daemon.state, 'closed')
  t.equal(clock.pending, 0, 'and nothing is tried when the connection is gone')
})

t.test('[runtime/daemon.15] what is closed before its program could be run ends', async t => {
  const clock = new FakeClock()
  const daemon = withoutProgram(clock)
  daemon.ensureStarted()
  await daemon.close()
  t.equal(daemon.state, 'closed')
  t.equal(clock.pending, 0)
})

t.test('[runtime/daemon.18] a daemon process listens for nobody on other machines', async t => {
  for (const [program, file] of [
    [process.execPath, 'daemon/daemon.mjs'],
    ['python3', 'python/daemon.py'],
    ['php', 'php/daemon.php'],
  ] as const) {
    if (spawnSync(program, ['--version']).status !== 0) {
      t.comment(`${program} is not installed`)
      continue
    }
    for (const host of ['0.0.0.0', '[::]', '10.0.0.1', 'example.org']) {
      const args = [runtimeFile(file), '--socket', `tcp://${host}:0`, '--standalone']
      const { status, stderr } = spawnSync(program, args, { encoding: 'utf8', input: '' })
      t.equal(status, 1, `${file} ${host}`)
      t.match(stderr, /can be reached from other machines.*use fngw daemon/)
    }
  }
})

t.test('[runtime/daemon.12] a reload keeps the workers of unchanged functions and retires the others', async t => {
  const bed = makeRuntimes({
    'same.mjs': 'export const handler = () => process.pid',
    'new.mjs':
      'export const handler = async e => { if (e.method === "PUT") await new Promise(r => setTimeout(r, 100)); return process.pid }',
    'gone.mjs': 'export const handler = () => process.pid',
  })
  t.teardown(() => bed.close())
  const { dispatcher } = bed.runtimes
  const [same, old, gone] = ['same.mjs', 'new.mjs', 'gone.mjs'].map(file => bed.fn(file)) as [
    FunctionVersion,
    FunctionVersion,
    FunctionVersion,
  ]
  const pids = await Promise.all([same, old, gone].map(async fn => Number((await bed.call(fn)).text)))
  const open = bed.call(old, { method: 'PUT' })
  const changed = { ...old, signature: '2' }
  bed.runtimes.retain(new Map([{ ...same }, changed].map(fn => [fn.key, fn])))
  t.equal(Number((await bed.call(same)).text), pids[0], 'an equal function keeps its worker')
  const fresh = Number((await bed.call(changed)).text)
  t.not(fresh, pids[1])
  t.equal(Number((await open).text), pids[1], 'the open call ends where it began')
  await until(() => !isAlive(pids[1]!) && !isAlive(pids[2]!))
  t.equal(dispatcher.workerCount(gone.key), 0)
  t.equal((await bed.call(gone)).error, null, 'a call of the old catalog is still answered')
  await until(() => dispatcher.workerCount(gone.key) === 0)
  bed.runtimes.retain(new Map([[changed.key, { ...changed, policy: { ...changed.policy, timeoutMs: 99 } }]]))
  await until(() => !isAlive(fresh))
  t.pass('a new policy is a new worker')
})

t.test('[runtime/daemon.13] min_warm workers are started ahead and kept', async t => {
  const bed = makeRuntimes({ 'a.mjs': 'export const handler = () => process.exit(1)', 'b.mjs': HELLO })
  t.teardown(() => bed.close())
  const { dispatcher } = bed.runtimes
  const pool = {
    enabled: true,
    minWarm: 2,
    maxWorkers: 4,
    maxQueue: 0,
    queueTimeoutMs: 0,
    queuePollMs: 20,
    idleTtlSeconds: 1,
    overflowStatus: 429 as const,
  }
  const a = bed.fn('a.mjs', { workerPool: pool })
  const b = bed.fn('b.mjs', { keepWarm: { enabled: true, minWarm: 1, pingEverySeconds: 45, idleTtlSeconds: 1 } })
  await until(() => dispatcher.workerCount(a.key) === 2 && dispatcher.workerCount(b.key) === 1)
  t.ok((await bed.call(a)).error)
  await until(() => dispatcher.workerCount(a.key) === 2)
})

t.test('[runtime/daemon.14] output outside calls comes with its function, load failures with their cause', async t => {
  const bed = makeRuntimes({
    'a.mjs':
      'import { writeSync } from "node:fs"\nconsole.log("loading")\nexport const handler = () => { writeSync(1, "raw"); console.log("in the call"); return 1 }',
    'bad.mjs': 'throw new Error("not today")',
  })
  t.teardown(() => bed.close())
  const fn = bed.fn('a.mjs')
  t.equal((await bed.call(fn)).stdout, 'in the call\n')
  await until(() => bed.logs.get(fn.key)?.includes('raw') === true)
  t.match(bed.logs.get(fn.key), /loading\n/)
  t.match((await bed.call(bed.fn('bad.mjs'))).error, {
    code: 'LOAD_FAILED',
    status: 500,
    message: 'cannot load bad.mjs:1: not today',
    detail: { line: 1 },
  })
  t.match(bed.failures, ['node/bad@default: cannot load bad.mjs:1: not today'])
})

t.test('[runtime/daemon.15] close waits for open calls up to its limit', async t => {
  const bed = makeRuntimes({
    'a.mjs':
      'export const handler = e => e.method === "PUT" ? new Promise(() => {}) : new Promise(r => setTimeout(r, 80, "done"))',
  })
  const fn = bed.fn('a.mjs')
  await bed.call(fn)
  const short = bed.call(fn)
  await bed.runtimes.close(5000)
  t.equal((await short).text, '"done"')
  await bed.close()
  const stuck = makeRuntimes({ 'a.mjs': 'export const handler = () => new Promise(() => {})' })
  const open = stuck.call(stuck.fn('a.mjs'))
  await until(() => daemonPids().length > 0)
  await stuck.runtimes.close(30)
  t.match((await open).error, { status: 503 })
  await stuck.close()
  t.strictSame(daemonPids(), [])
  t.throws(() => bed.runtimes.dispatcher.setOf(fn), { code: 'SHUTTING_DOWN' }, 'a call after close is refused')
})

t.test('[runtime/daemon.17] a process that waits becomes the program of the next function', async t => {
  // Stands for a compiled function: says who it is, and tells where it listens.
  const program = '#!/bin/sh\necho "$$ $*" >>"$0.log"\necho "unix:$2" >&3\nexec sleep 60\n'
  const tree = makeTree({ 'a program': program, 'two\nlines': program, ends: '#!/bin/sh\necho x >>"$0.log"\nexit 3\n' })
  t.teardown(() => tree.cleanup())
  for (const name of ['a program', 'two\nlines', 'ends']) chmodSync(tree.path(name), 0o755)
  const logOf = (name: string) =>
    readFileSync(`${tree.path(name)}.log`, 'utf8')
      .trim()
      .split('\n')
  const daemon = await startDaemon('rust', { root: tree.root })
  t.teardown(() => daemon.close())
  const used = new Set<number>()
  const start = async (name: string) => {
    const started = await daemon.startWorker({ binary: tree.path(name) })
    used.add(started.pid)
    return started
  }
  /** The guard of the process that waits, and that process. */
  const waiting = async (): Promise<[guard: number, process: number]> => {
    let found: number[] = []
    await until(() => {
      found = childrenOf(daemon.child.pid!).filter(pid => !used.has(pid))
      return found.length === 1 && childrenOf(found[0]!).some(pid => commandOf(pid).includes('read -r program'))
    })
    return [found[0]!, childrenOf(found[0]!)[0]!]
  }
  for (let round = 0; round < 2; round++) {
    const [guard, process] = await waiting()
    const { pid, uri } = await start('a program')
    t.equal(pid, guard)
    t.equal(logOf('a program').at(-1), `${process} --socket ${uri.slice('unix:'.length)}`)
  }
  await waiting()
  await t.rejects(start('ends'), /before it listened/)
  t.same(logOf('ends'), ['x'], 'started once')
  await waiting()
  const odd = await start('two\nlines')
  t.equal(logOf('two\nlines').length, 1)
  t.match(logOf('two\nlines')[0], odd.uri.slice('unix:'.length))
})
