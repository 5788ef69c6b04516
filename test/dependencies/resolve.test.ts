import {
  existsSync,
  lutimesSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { setImmediate } from 'node:timers/promises'
import t, { type Test } from 'tap'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import { GatewayError } from '../../lib/core/errors.ts'
import type { Builder, BuildPlan, InstallResult } from '../../lib/dependencies/build.ts'
import { createBuilds } from '../../lib/dependencies/resolve.ts'
import { Builds } from '../../lib/dependencies/resolve.ts'
import { OwnFolder } from '../../lib/files/own-folder.ts'
import { type BuildTools, runTool } from '../../lib/dependencies/run-tool.ts'
import { sourceError } from '../../lib/dependencies/tool-failure.ts'
import { type Clock, systemClock } from '../../lib/core/clock.ts'
import { isAlive } from '../helpers/processes.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeFn } from '../helpers/fn.ts'
import { makeTree } from '../helpers/tree.ts'
import { until } from '../helpers/worker-client.ts'

const SHELL = '/bin/sh'
const MADE: InstallResult = { packages: null, bytes: 1000, names: [], isShared: false }

/** A builder whose builds last until the test lets them go. */
function makeBed(t: Test, options: { concurrency?: number; env?: Record<string, string> } = {}) {
  const tree = makeTree()
  const clock = new FakeClock()
  const started: string[] = []
  const events: string[] = []
  const told: string[] = []
  const gates = new Map<string, (error?: Error) => void>()
  const seen: BuildTools[] = []
  const disk = { change: null as string | null }
  let program: string | null = SHELL
  let built: ReadonlySet<string> = new Set()
  const builder: Builder = {
    runtime: 'go',
    concurrency: options.concurrency ?? 2,
    timeoutMs: 1000,
    readVersion: async path => {
      started.push(`version of ${path}`)
      return 'go1.26'
    },
    plan: (fn, toolchain) => {
      const binary = `/bin/${fn.name}-${toolchain.version.split('\n')[0]}`
      if (built.has(fn.key)) return { binary, build: null }
      const build = (tools: BuildTools) => {
        started.push(fn.name)
        seen.push(tools)
        return new Promise<InstallResult>((resolve, reject) =>
          gates.set(fn.name, error => (error === undefined ? resolve(MADE) : reject(error))),
        )
      }
      return { binary, build }
    },
  }
  const builds = new Builds({
    isPrivate: false,
    clock,
    temporaryFolder: new OwnFolder(tree.root, 'tmp'),
    hostEnv: options.env ?? {},
    builders: [builder],
    waitMs: 0,
    changeOf: () => disk.change,
    findProgram: () => (program === null ? { path: null, problem: 'go not found' } : { path: program, problem: null }),
    onBegin: fn => told.push(`began ${fn.name}`),
    onEnd: fn => told.push(`ended ${fn.name}`),
    onBuilt: ({ fn }) => events.push(`built ${fn.name}`),
    onFailure: (fn, error) => events.push(`${fn.name}: ${error.message}`),
  })
  t.teardown(async () => {
    for (const open of gates.values()) open()
    await builds.close()
    tree.cleanup()
  })
  return {
    tree,
    clock,
    builds,
    started,
    events,
    told,
    seen,
    disk,
    setProgram: (path: string | null) => (program = path),
    setBuilt: (...keys: string[]) => (built = new Set(keys)),
    finish: (name: string, error?: Error) => gates.get(name)!(error),
    isStarted: (name: string) => until(() => started.includes(name)),
  }
}

function fn(name: string, signature = '1'): FunctionVersion {
  return makeFn({ runtime: 'go', name, signature, entryPath: `/srv/${name}/handler.go` })
}

t.test(
  '[dependencies/resolve.6] one build serves everyone who asks; places are few, whoever is waited for goes first',
  async t => {
    const bed = makeBed(t)
    const background = ['a', 'b', 'c', 'd'].map(name => bed.builds.prepare(fn(name)))
    await bed.isStarted('b')
    await setImmediate()
    t.same(bed.started, ['version of /bin/sh', 'a', 'b'], 'the toolchain is asked once, two builds run')
    const wanted = [bed.builds.prepare(fn('d')), bed.builds.prepare(fn('d'))]
    bed.finish('a')
    await bed.isStarted('d')
    t.notOk(bed.started.includes('c'))
    bed.finish('d')
    bed.finish('b')
    await bed.isStarted('c')
    bed.finish('c')
    t.same(
      await Promise.all([...background, ...wanted]),
      ['a', 'b', 'c', 'd', 'd', 'd'].map(name => `/bin/${name}-go1.26`),
    )
    t.same(bed.events.sort(), ['built a', 'built b', 'built c', 'built d'])
    await bed.builds.prepare(fn('a'))
    t.equal(bed.started.filter(name => name === 'a').length, 1)
  },
)

t.test('[observe/events.7] a build is told from its beginning to its end, whatever becomes of it', async t => {
  const bed = makeBed(t, { concurrency: 1 })
  const [good, bad, gone] = ['good', 'bad', 'gone'].map(name => bed.builds.prepare(fn(name)))
  await bed.isStarted('good')
  t.same(bed.told, ['began good'], 'not while it waits for a place')
  bed.finish('good')
  await bed.isStarted('bad')
  bed.finish('bad', new Error('no'))
  await bed.isStarted('gone')
  bed.builds.retain(new Map())
  bed.finish('gone')
  await Promise.allSettled([good, bad, gone])
  t.same(bed.told, ['began good', 'ended good', 'began bad', 'ended bad', 'began gone', 'ended gone'])
  bed.setBuilt('go/there@default')
  await bed.builds.prepare(fn('there'))
  t.equal(bed.told.length, 6, 'nothing is built that is there')
})

t.test('[dependencies/resolve.5] a program that is there is not built again', async t => {
  const bed = makeBed(t)
  bed.setBuilt('go/a@default')
  t.equal(await bed.builds.prepare(fn('a')), '/bin/a-go1.26')
  t.same(bed.events, [])
})

t.test('[dependencies/resolve.8, runtime/worker-set.19] sources that were half saved are built again', async t => {
  const { builds, started, finish, isStarted, disk } = makeBed(t)
  const fn = makeFn({ runtime: 'go', name: 'a' })
  const builtCount = () => started.filter(name => name === 'a').length
  const first = builds.prepare(fn)
  await isStarted('a')
  finish('a', sourceError('syntax error', { file: 'a.go' }))
  await t.rejects(first, { code: 'LOAD_FAILED' })
  await t.rejects(builds.prepare(fn), { code: 'LOAD_FAILED' })
  t.equal(builtCount(), 1)
  disk.change = 'whole'
  const second = builds.prepare(fn)
  await until(() => builtCount() === 2)
  finish('a')
  t.match(await second, '/bin/a-')
})

t.test(
  '[dependencies/resolve.8] a failure stays until the sources change, a passing one is tried again after 10 s',
  async t => {
    const bed = makeBed(t)
    const fail = async (version: FunctionVersion, error: Error) => {
      const building = bed.builds.prepare(version)
      const times = bed.started.length
      await until(() => bed.started.length > times || bed.started.at(-1) === version.name)
      bed.finish(version.name, error)
      return t.rejects(building)
    }
    await fail(fn('a'), sourceError('a/handler.go:1:1: bad', { file: 'a/handler.go', line: 1 }))
    bed.clock.advance(60_000)
    await t.rejects(bed.builds.prepare(fn('a')), { code: 'LOAD_FAILED', message: 'a/handler.go:1:1: bad' })
    const next = bed.builds.prepare(fn('a', '2'))
    await until(() => bed.started.filter(name => name === 'a').length === 2)
    bed.finish('a')
    t.equal(await next, '/bin/a-go1.26')

    await fail(fn('b'), new GatewayError('LOAD_FAILED', 'build failed: no network'))
    await t.rejects(bed.builds.prepare(fn('b')), { message: 'build failed: no network' })
    bed.clock.advance(10_000)
    const again = bed.builds.prepare(fn('b'))
    await until(() => bed.started.filter(name => name === 'b').length === 2)
    bed.finish('b')
    t.equal(await again, '/bin/b-go1.26')

    const denied = Object.assign(new Error('EROFS: read-only file system'), { code: 'EROFS', path: '/srv/c/.go-build' })
    await fail(fn('c'), denied)
    await t.rejects(bed.builds.prepare(fn('c')), {
      code: 'LOAD_FAILED',
      message: /build failed: EROFS/,
      detail: { hint: /\.go-build/ },
    })
    t.equal(bed.events.length, 5, 'each failure is told once')
  },
)

t.test('[dependencies/resolve.8] a retry that fails as before is not reported again', async t => {
  const bed = makeBed(t)
  const fail = async (version: FunctionVersion, message: string) => {
    const times = bed.started.length
    const building = bed.builds.prepare(version)
    await until(() => bed.started.length > times)
    bed.finish(version.name, new GatewayError('LOAD_FAILED', message))
    await t.rejects(building)
    bed.clock.advance(10_000)
  }
  await fail(fn('a'), 'no network')
  await fail(fn('a'), 'no network')
  t.same(bed.events, ['a: no network'])
  await fail(fn('a'), 'no space')
  await fail(fn('a', '2'), 'no space')
  t.same(bed.events, ['a: no network', 'a: no space', 'a: no space'])
})

t.test('[dependencies/resolve.11] without a toolchain the runtime is down, until there is one', async t => {
  const bed = makeBed(t)
  bed.setProgram(null)
  await t.rejects(bed.builds.prepare(fn('a')), { code: 'RUNTIME_DOWN', status: 503, detail: { hint: 'go not found' } })
  bed.setProgram(SHELL)
  bed.clock.advance(10_000)
  const building = bed.builds.prepare(fn('a'))
  await bed.isStarted('a')
  bed.finish('a')
  await building

  const tree = makeTree()
  t.teardown(() => tree.cleanup())
  writeFileSync(tree.path('old'), '#!/bin/sh\n[ "$1" = env ] && echo go1.18.3 || echo "cargo 1.62.0"\n', {
    mode: 0o755,
  })
  writeFileSync(tree.path('rustc'), '#!/bin/sh\necho "rustc 1.62.0"\n', { mode: 0o755 })
  const builds = createBuilds({
    isPrivate: false,
    clock: systemClock,
    functionsRoot: tree.root,
    goBuildTimeoutSeconds: 5,
    rustBuildTimeoutSeconds: 5,
    waitMs: 0,
    hostEnv: { PATH: `${tree.root}:${process.env.PATH}` },
    workerFolder: runtime => join(import.meta.dirname, '../../runtimes', runtime, 'worker'),
    findProgram: () => ({ path: tree.path('old'), problem: null }),
    onBegin: () => {},
    onEnd: () => {},
    onBuilt: () => {},
    onFailure: () => {},
  })
  for (const [runtime, hint] of [
    ['go', 'go 1.18.3 is too old: 1.19 or newer is needed'],
    ['rust', 'rustc 1.62 is too old: 1.63 or newer is needed'],
  ] as const) {
    const old = makeFn({ runtime, name: runtime, fnDir: tree.root })
    await t.rejects(builds.prepare(old), { code: 'RUNTIME_DOWN', detail: { hint } })
  }
  await builds.close()
})

t.test(
  '[dependencies/resolve.9] a build ends with its function, its version and the gateway; nobody hears of it',
  async t => {
    const bed = makeBed(t, { concurrency: 1 })
    const pids = bed.tree.path('pids')
    const builder = { runtime: 'go', concurrency: 1, timeoutMs: 60_000, readVersion: async () => 'go1.26' } as const
    const failures: string[] = []
    const builds = new Builds({
      isPrivate: false,
      waitMs: 0,
      clock: systemClock,
      temporaryFolder: new OwnFolder(bed.tree.root, 'tmp'),
      hostEnv: { PATH: process.env.PATH },
      builders: [
        {
          ...builder,
          plan: () => ({
            binary: 'x',
            build: async tools => {
              const script = `sleep 60 & echo $$ $! >> ${pids}; wait`
              const { code } = await tools.run({ command: SHELL, args: ['-c', script], cwd: bed.tree.root })
              if (code !== 0) throw new Error('ended')
              return MADE
            },
          }),
        },
      ],
      findProgram: () => ({ path: SHELL, problem: null }),
      onBegin: () => {},
      onEnd: () => {},
      onBuilt: () => {},
      onFailure: (_fn, error) => failures.push(error.message),
    })
    const processes = () => readPids(pids)
    const gone = builds.prepare(fn('gone'))
    await until(() => processes().length === 2)
    builds.retain(new Map())
    await t.rejects(gone, { code: 'LOAD_FAILED', message: 'build was stopped' })
    const old = builds.prepare(fn('a', '1'))
    await until(() => processes().length === 4)
    const young = builds.prepare(fn('a', '2'))
    await t.rejects(old, { message: 'build was stopped' })
    await until(() => processes().length === 6)
    const waiting = builds.prepare(fn('b'))
    const closing = builds.close()
    await t.rejects(young, { code: 'SHUTTING_DOWN' })
    await t.rejects(waiting, { code: 'SHUTTING_DOWN' })
    await closing
    await t.rejects(builds.prepare(fn('c')), { code: 'SHUTTING_DOWN' })
    await until(() => processes().every(pid => !isAlive(pid)))
    t.same(failures, [])
    t.same(readdirSync(bed.tree.path('tmp')), [], 'no temporary files stay')
  },
)

t.test('[dependencies/resolve.9] a tool has one time limit for all its steps and everything it started', async t => {
  const tree = makeTree()
  t.teardown(() => tree.cleanup())
  const pids = tree.path('pids')
  const signal = new AbortController().signal
  const run = (script: string, clock: Clock = systemClock) =>
    runTool(
      {
        isPlain: false,
        command: SHELL,
        args: ['-c', script],
        cwd: tree.root,
        env: { PATH: process.env.PATH! },
        timeoutMs: 60_000,
        signal,
      },
      clock,
    )
  const clock = new FakeClock()
  const slow = run(`echo begun; sleep 60 & echo $$ $! >> ${pids}; wait`, clock)
  await until(() => readPids(pids).length === 2)
  clock.advance(60_000)
  t.match(await slow, { code: null, timedOut: true, problem: null, output: 'begun\n' })
  await until(() => readPids(pids).every(pid => !isAlive(pid)))
  const left = await run(`sleep 60 & echo $! >> ${pids}; echo done; exit 3`)
  t.match(left, { code: 3, timedOut: false, output: 'done\n' }, 'a child left behind holds nothing up')
  await until(() => readPids(pids).every(pid => !isAlive(pid)))
  const chatty = await run(
    'echo first; i=0; while [ $i -lt 3000 ]; do echo "line $i of a long text that nobody reads"; i=$((i+1)); done; echo last >&2',
  )
  t.match(chatty.output, /^first\n.*\n\[\d+ bytes left out\]\n.*last\n$/s)
  t.ok(chatty.output.length < 66_000)
  t.match(await run('kill -9 $$'), { code: null, problem: /ended by SIGKILL/ })
  const missing = {
    command: '/nowhere/go',
    args: [],
    cwd: tree.path('nowhere'),
    env: {},
    timeoutMs: 1000,
    isPlain: false,
    signal,
  }
  t.match(await runTool(missing, systemClock), { code: null, problem: /cannot run/ })
})

t.test('[dependencies/resolve.10] a tool sees few variables and a temporary folder of its own', async t => {
  const env = {
    PATH: process.env.PATH!,
    HOME: '/h',
    GOPROXY: 'off',
    CARGO_HOME: '/c',
    SECRET: 's',
    AWS_KEY: 'k',
    RUSTFLAGS: 'x',
    CARGO_REGISTRY_TOKEN: 't',
    CARGO_REGISTRIES_OURS_TOKEN: 't',
    CARGO_REGISTRIES_OURS_INDEX: 'sparse+https://crates.example/',
    NPM_TOKEN: 't',
    NODE_AUTH_TOKEN: 't',
    TMPDIR: '/elsewhere',
  }
  const bed = makeBed(t, { env })
  const stale = bed.tree.path('tmp/b-oldold')
  bed.tree.write({ 'tmp/b-oldold/file': 'x' })
  bed.clock.jumpWall(Date.now() + 2 * 3_600_000 - bed.clock.wall())
  const building = bed.builds.prepare(fn('a'))
  await bed.isStarted('a')
  const { output } = await bed.seen[0]!.run({
    command: SHELL,
    args: ['-c', 'env; touch $TMPDIR/here'],
    cwd: '/',
    env: { GOWORK: 'off' },
  })
  const names = Object.fromEntries(
    output
      .trim()
      .split('\n')
      .map(line => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
  )
  const { TMPDIR, GOTMPDIR, PWD, ...rest } = names
  t.same(rest, {
    PATH: env.PATH,
    HOME: '/h',
    GOPROXY: 'off',
    CARGO_HOME: '/c',
    CARGO_REGISTRIES_OURS_INDEX: env.CARGO_REGISTRIES_OURS_INDEX,
    GOWORK: 'off',
  })
  t.equal(TMPDIR, GOTMPDIR)
  t.ok(TMPDIR!.startsWith(bed.tree.path('tmp/')))
  t.notOk(existsSync(stale), 'what a killed gateway left is removed')
  bed.finish('a')
  await building
  t.notOk(existsSync(TMPDIR!))
})

t.test('[runtime/stand-in.2] who waits is told when a tool has to work, and only then', async t => {
  const bed = makeBed(t, { concurrency: 1 })
  const told: string[] = []
  const prepare = (name: string, times = '') => bed.builds.prepare(fn(name), () => told.push(`${name}${times}`))
  bed.setBuilt('go/there@default')
  await prepare('there')
  t.same(told, [])
  const [a, b] = [prepare('a'), prepare('b')]
  await bed.isStarted('a')
  await setImmediate()
  t.same(told, ['a', 'b'], 'also when it waits for a place')
  const again = prepare('a', ' again')
  t.same(told, ['a', 'b', 'a again'], 'who asks later is told at once')
  bed.finish('a')
  await bed.isStarted('b')
  bed.finish('b')
  await Promise.all([a, b, again])
})

t.test('[runtime/stand-in.2] a look that takes long counts as work; so many look at once', async t => {
  const tree = makeTree()
  const clock = new FakeClock()
  const most = 2
  const looks: { name: string; resolve: (plan: BuildPlan) => void }[] = []
  const builds = new Builds({
    isPrivate: false,
    clock,
    temporaryFolder: new OwnFolder(tree.root, 'tmp'),
    hostEnv: {},
    builders: [
      {
        runtime: 'go',
        concurrency: 1,
        looksAtOnce: most,
        timeoutMs: 1000,
        readVersion: async () => 'go1.26',
        plan: ({ name }) => new Promise(resolve => looks.push({ name, resolve })),
      },
    ],
    waitMs: 0,
    findProgram: () => ({ path: SHELL, problem: null }),
    onBegin: () => {},
    onEnd: () => {},
    onBuilt: () => {},
    onFailure: () => {},
  })
  t.teardown(tree.cleanup)
  const told: string[] = []
  const names = Array.from({ length: most + 3 }, (_, at) => `f${at}`)
  const done = names.map(name => builds.prepare(fn(name), () => told.push(name)))
  await until(() => looks.length === most)
  builds.prepare(fn(names.at(-1)!)).catch(() => {})
  const end = (at: number) => looks[at]!.resolve({ binary: 'x', build: null })
  end(0)
  await until(() => looks.length === most + 1)
  t.equal(looks[most]!.name, names.at(-1), 'who is waited for is next')
  t.same(told, [])
  clock.advance(1_999)
  t.same(told, [])
  clock.advance(1)
  t.same(told, names.slice(1), 'those that wait for their turn too')
  builds.retain(new Map())
  for (let at = 1; at < looks.length; at++) end(at)
  const outcomes = await Promise.allSettled(done)
  t.equal(looks.length, most + 1, 'functions that are gone are not looked at')
  t.equal(outcomes.filter(({ status }) => status === 'rejected').length, 2)
  t.equal(clock.pending, 0)
})

t.test(
  '[control/dependencies.1, control/dependencies.2] how far a function is, from its first look to its end',
  async t => {
    const bed = makeBed(t, { concurrency: 1 })
    const stateOf = (name: string, signature = '1') => bed.builds.stateOf(fn(name, signature))
    t.equal(stateOf('a'), null, 'nobody asked')
    const begun = bed.clock.monotonic()
    const [a, b] = [bed.builds.prepare(fn('a')), bed.builds.prepare(fn('b'))]
    t.match(stateOf('a'), { state: 'preparing', since: begun, step: 'resolving dependencies', error: null })
    await bed.isStarted('a')
    await setImmediate()
    t.match(stateOf('b'), { state: 'preparing', step: 'waiting in the queue' })
    bed.clock.advance(700)
    bed.finish('a')
    await a
    t.match(stateOf('a'), { state: 'ready', since: begun + 700, step: null, error: null })
    t.equal(stateOf('a', '2'), null, 'another version of its files')
    await bed.isStarted('b')
    bed.clock.advance(100)
    bed.finish('b', sourceError('no such thing'))
    await t.rejects(b)
    t.match(stateOf('b'), { state: 'failed', since: begun + 800, step: null, error: { message: 'no such thing' } })
    bed.builds.retain(new Map())
    t.equal(stateOf('a'), null)
  },
)

t.test('[dependencies/resolve.6] where one start of a tool looks at all, all are looked at at once', async t => {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  const looks: ((plan: BuildPlan) => void)[] = []
  const builds = new Builds({
    isPrivate: false,
    clock: new FakeClock(),
    temporaryFolder: new OwnFolder(tree.root, 'tmp'),
    hostEnv: {},
    builders: [
      {
        runtime: 'go',
        concurrency: 1,
        timeoutMs: 1000,
        readVersion: async () => 'go1.26',
        plan: () => new Promise(resolve => looks.push(resolve)),
      },
    ],
    waitMs: 0,
    findProgram: () => ({ path: SHELL, problem: null }),
    onBegin: () => {},
    onEnd: () => {},
    onBuilt: () => {},
    onFailure: () => {},
  })
  const done = Array.from({ length: 200 }, (_, at) => builds.prepare(fn(`f${at}`)))
  await until(() => looks.length === 200)
  for (const look of looks) look({ binary: 'x', build: null })
  await Promise.all(done)
})

t.test('[dependencies/resolve.7] the step is named by function and version', async t => {
  const bed = makeBed(t)
  t.equal(bed.builds.toStep(fn('hello')), 'building go function hello')
  t.equal(bed.builds.toStep(makeFn({ runtime: 'rust', name: 'a/b', version: 'v2' })), 'building rust function a/b@v2')
})

t.test('[dependencies/resolve.3] builds write to .svc/build and the build folders only', async t => {
  const tree = makeTree({ 'f/handler.go': 'package f\n' })
  t.teardown(() => tree.cleanup())
  const tool = join(tree.root, 'fake-go')
  writeFileSync(
    tool,
    '#!/bin/sh\n[ "$1" = env ] && echo go1.26 && exit 0\necho "./fngw_0.go:1:1: broken" >&2\nexit 1\n',
    { mode: 0o755 },
  )
  const builds = createBuilds({
    isPrivate: false,
    clock: systemClock,
    functionsRoot: tree.root,
    goBuildTimeoutSeconds: 5,
    rustBuildTimeoutSeconds: 5,
    waitMs: 0,
    hostEnv: { PATH: process.env.PATH },
    workerFolder: runtime => join(import.meta.dirname, '../../runtimes', runtime, 'worker'),
    findProgram: () => ({ path: tool, problem: null }),
    onBegin: () => {},
    onEnd: () => {},
    onBuilt: () => {},
    onFailure: () => {},
  })
  tree.write({ 'f/handler.go': 'package f\n\nfunc handler(e map[string]any) map[string]any { return nil }\n' })
  const handler = { fnDir: tree.path('f'), entryPath: tree.path('f/handler.go'), entryFile: 'f/handler.go' }
  await t.rejects(builds.prepare(makeFn({ runtime: 'go', name: 'f', ...handler })), { code: 'LOAD_FAILED' })
  await builds.close()
  const paths = readdirSync(tree.root, { recursive: true }).map(String).sort()
  t.same(
    paths.filter(path => !/^(?:f\/\.go-build|\.svc\/build)(?:\/|$)/.test(path)),
    ['.svc', '.svc/.gitignore', 'f', 'f/handler.go', 'fake-go'],
  )
})

function readPids(path: string): number[] {
  if (!existsSync(path)) return []
  return readFileSync(path, 'utf8').trim().split(/\s+/).map(Number)
}

t.test('[files/own-folder.8] a tree whose .svc leads elsewhere: nothing there is deleted or written', async t => {
  const tree = makeTree({ 'f/handler.go': 'package f\nfunc handler(e map[string]any) map[string]any { return nil }\n' })
  t.teardown(() => tree.cleanup())
  const tool = join(tree.root, 'fake-go')
  writeFileSync(tool, '#!/bin/sh\necho go1.26\n', { mode: 0o755 })
  for (const link of ['.svc', '.svc/build', '.svc/build/tmp']) {
    for (const name of ['.svc', 'mine']) tree.remove(name)
    tree.write({ 'mine/b-aaaaaa/file': '1', 'mine/tmp/b-aaaaaa/file': '1', 'mine/build/tmp/notes': '1' })
    const entries = () => readdirSync(tree.path('mine'), { recursive: true }).map(String).sort()
    for (const name of entries()) utimesSync(tree.path(`mine/${name}`), 1, 1)
    const before = entries()
    mkdirSync(dirname(tree.path(link)), { recursive: true })
    symlinkSync(tree.path('mine'), tree.path(link))
    const builds = createBuilds({
      isPrivate: false,
      clock: systemClock,
      functionsRoot: tree.root,
      goBuildTimeoutSeconds: 5,
      rustBuildTimeoutSeconds: 5,
      waitMs: 0,
      hostEnv: { PATH: process.env.PATH },
      workerFolder: runtime => join(import.meta.dirname, '../../runtimes', runtime, 'worker'),
      findProgram: () => ({ path: tool, problem: null }),
      onBegin: () => {},
      onEnd: () => {},
      onBuilt: () => {},
      onFailure: () => {},
    })
    const handler = { fnDir: tree.path('f'), entryPath: tree.path('f/handler.go'), entryFile: 'f/handler.go' }
    await t.rejects(
      builds.prepare(makeFn({ runtime: 'go', name: 'f', ...handler })),
      {
        code: 'LOAD_FAILED',
        message: `build failed: ${link} is a symbolic link, not a folder`,
        detail: { hint: /\.svc/ },
      },
      link,
    )
    await builds.close()
    t.same(entries(), before, link)
  }
})

t.test('[dependencies/resolve.14] of the folder for temporary files only left-over ones of builds go', async t => {
  const bed = makeBed(t)
  bed.tree.write({
    'tmp/b-aaaaaa/file': 'x',
    'tmp/b-bbbbbb/file': 'x',
    'tmp/notes/file': 'x',
    'tmp/b-cccccc': 'a file',
  })
  bed.tree.write({ 'other/file': 'x', 'tmp/b-dddddd': { symlink: '../other' } })
  const old = (bed.clock.wall() - 7_200_000) / 1000
  for (const name of ['b-aaaaaa', 'notes', 'b-cccccc']) utimesSync(bed.tree.path(`tmp/${name}`), old, old)
  lutimesSync(bed.tree.path('tmp/b-dddddd'), old, old)
  utimesSync(bed.tree.path('tmp/b-bbbbbb'), bed.clock.wall() / 1000, bed.clock.wall() / 1000)
  const building = bed.builds.prepare(fn('a'))
  await bed.isStarted('a')
  await bed.seen[0]!.run({ command: SHELL, args: ['-c', ''], cwd: '/' })
  bed.finish('a')
  await building
  t.same(readdirSync(bed.tree.path('tmp')).sort(), ['b-bbbbbb', 'b-cccccc', 'b-dddddd', 'notes'])
  t.same(readdirSync(bed.tree.path('other')), ['file'])
})

/** Builds of a builder that needs nothing built, but for what a test changes. */
function makePlain(t: Test, builder: Partial<Builder>, options: Partial<ConstructorParameters<typeof Builds>[0]> = {}) {
  const tree = makeTree()
  const clock = new FakeClock()
  const failures: string[] = []
  const builds = new Builds({
    isPrivate: false,
    clock,
    temporaryFolder: new OwnFolder(tree.root, 'tmp'),
    hostEnv: {},
    builders: [
      {
        runtime: 'node',
        concurrency: 1,
        timeoutMs: 1000,
        readVersion: async () => '1',
        plan: () => ({ binary: null, build: null }),
        ...builder,
      },
    ],
    waitMs: 15_000,
    findProgram: () => ({ path: SHELL, problem: null }),
    onBegin: () => {},
    onEnd: () => {},
    onBuilt: () => {},
    onFailure: (fn, error, others) =>
      failures.push(`${[fn, ...others].map(({ name }) => name).join(' ')}: ${error.message}`),
    ...options,
  })
  t.teardown(async () => {
    await builds.close()
    tree.cleanup()
  })
  return { tree, clock, builds, failures }
}

const nodeFn = (name: string, fields: Parameters<typeof makeFn>[0] = {}) => makeFn({ runtime: 'node', name, ...fields })

t.test(
  '[dependencies/resolve.18] functions that need nothing get no build; the others are prepared before a call',
  async t => {
    const needed = new Set(['b', 'c'])
    const looked: string[] = []
    const { builds } = makePlain(t, {
      isAhead: true,
      isNeeded: ({ name }) => {
        looked.push(name)
        if (name === 'c') throw new GatewayError('LOAD_FAILED', 'shared pack not found: x')
        return needed.has(name)
      },
    })
    const functions = ['a', 'b', 'c'].map(name => nodeFn(name))
    builds.retain(new Map(functions.map(fn => [fn.key, fn])))
    for (const fn of functions) builds.prepareAhead(fn)
    t.match(builds.stateOf(functions[0]!), { state: 'preparing' }, 'it waits for its look')
    await until(() => builds.stateOf(functions[2]!)?.state === 'failed')
    t.equal(builds.stateOf(functions[0]!), null)
    t.match(builds.stateOf(functions[1]!), { state: 'ready', error: null })
    t.match(builds.stateOf(functions[2]!)?.error, { message: /shared pack not found/ })
    const count = looked.length
    for (const fn of functions.slice(0, 2)) builds.prepareAhead(fn)
    t.equal(await builds.prepare(functions[0]!), null)
    t.equal(looked.length, count, 'what is known is not looked at again')
    t.equal(builds.waitMs, 15_000)
  },
)

t.test('[dependencies/resolve.18] a runtime that prepares at the first call is left alone before', async t => {
  const looked: string[] = []
  const { builds } = makePlain(t, {
    isAhead: false,
    isNeeded: ({ name }) => looked.push(name) > 0,
    recordOf: fn => ({ of: fn.name }),
  })
  const [a] = [nodeFn('a')]
  t.equal(builds.isAhead(a!), false)
  builds.prepareAhead(a!)
  t.equal(builds.stateOf(a!), null)
  t.same(looked, [])
  t.same(builds.recordOf(a!), { of: 'a' })
  t.equal(builds.recordOf(nodeFn('b', { runtime: 'lua' })), null)
  await t.rejects(builds.prepare(nodeFn('b', { runtime: 'lua' })), { message: 'nothing builds lua functions' })
})

t.test('[dependencies/resolve.8] a failure that names a file is reported again when that file changes', async t => {
  const { builds, tree, clock, failures } = makePlain(t, {
    ask: () => {},
    plan: () => {
      throw new GatewayError('LOAD_FAILED', 'install failed: no package x', { detail: { file: 'a/package.json' } })
    },
  })
  tree.write({ 'a/package.json': '{}', 'a/handler.js': '' })
  const make = (signature: string) =>
    nodeFn('a', { signature, entryFile: 'a/handler.js', entryPath: tree.path('a/handler.js'), fnDir: tree.path('a') })
  await t.rejects(builds.prepare(make('1')))
  await t.rejects(builds.prepare(make('2')))
  t.equal(failures.length, 1, 'the manifest was not touched')
  writeFileSync(tree.path('a/package.json'), '{ "name": "changed" }')
  await t.rejects(builds.prepare(make('3')))
  t.equal(failures.length, 2)
  clock.advance(10_000)
})

t.test('[dependencies/resolve.8] a handler that cannot be read is named, with what to do', async t => {
  const entryPath = '/srv/a/handler.py'
  const { builds } = makePlain(t, {
    plan: () => {
      throw Object.assign(new Error(`EACCES: permission denied, open '${entryPath}'`), {
        code: 'EACCES',
        path: entryPath,
      })
    },
  })
  await t.rejects(builds.prepare(nodeFn('a', { entryFile: 'a/handler.py', entryPath })), {
    message: 'cannot read a/handler.py: EACCES',
    detail: { file: 'a/handler.py', hint: 'make it readable for the user that runs fngw' },
  })
})

t.test("[files/function-file.1] a manifest that is not the function's own is not read by a tool", async t => {
  const reads: string[] = []
  const { builds, tree } = makePlain(
    t,
    { manifests: ['package.json'] },
    {
      readFile: path => {
        reads.push(path)
        throw Object.assign(new Error('package.json is a symbolic link'), { code: 'NOT_OF_FUNCTION' })
      },
    },
  )
  const fn = nodeFn('a', { fnDir: tree.path('a'), entryFile: 'a/handler.js' })
  await t.rejects(builds.prepare(fn), {
    message: /package\.json is a symbolic link/,
    detail: { file: 'a/package.json' },
  })
  t.same(reads, [tree.path('a/package.json')])
})

t.test(
  '[dependencies/resolve.17] sixteen are looked at in a turn, in order, and what a call asks for goes first',
  async t => {
    const looked: string[] = []
    const { builds } = makePlain(t, { isNeeded: ({ name }) => looked.push(name) === 0 })
    const functions = Array.from({ length: 50 }, (_, at) => nodeFn(`f${at}`))
    for (const fn of functions) builds.prepareAhead(fn)
    t.same(looked, [], 'none within the turn of the caller')
    const asked = [40, 41, 40].map(at => builds.prepare(functions[at]!))
    t.match(builds.stateOf(functions[49]!), { state: 'preparing', step: 'resolving dependencies' })
    const counts: number[] = []
    while (looked.length < 50) {
      const before = looked.length
      await setImmediate()
      counts.push(looked.length - before)
    }
    t.same(await Promise.all(asked), [null, null, null])
    const others = functions.map(({ name }) => name).filter(name => name !== 'f40' && name !== 'f41')
    t.same(looked, ['f40', 'f41', ...others])
    t.ok(
      counts.every(count => count <= 16),
      `${counts}`,
    )
    await builds.prepare(nodeFn('late'))
    t.equal(looked.at(-1), 'late', 'one that comes when none waits')
  },
)

t.test('[dependencies/resolve.18] functions that are gone, replaced or left at the end are not looked at', async t => {
  const looked: string[] = []
  const { builds, failures } = makePlain(t, { isNeeded: fn => looked.push(`${fn.name} ${fn.signature}`) === 0 })
  const [kept, gone, old] = [nodeFn('kept'), nodeFn('gone'), nodeFn('moved', { signature: '1' })]
  for (const fn of [gone, old, kept]) builds.prepareAhead(fn)
  const stopped = t.rejects(builds.prepare(gone), { message: 'build was stopped' })
  const young = nodeFn('moved', { signature: '2' })
  builds.retain(new Map([kept, young].map(fn => [fn.key, fn])))
  for (const fn of [kept, young]) builds.prepareAhead(fn)
  await stopped
  await until(() => looked.length === 2)
  t.same(looked, [`kept ${kept.signature}`, 'moved 2'])
  builds.prepareAhead(nodeFn('late'))
  await builds.close()
  builds.prepareAhead(nodeFn('later'))
  await setImmediate()
  t.equal(looked.length, 2)
  t.same(failures, [])
})
