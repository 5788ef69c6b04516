import { spawnSync } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t from 'tap'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import { type AsideRun, CompileAhead, MAX_AHEAD_FUNCTIONS, QUIET_MS } from '../../lib/runtime/runtimes.ts'
import { runtimeFile } from '../../lib/runtime/package-files.ts'
import { MAX_KEPT_FILES } from '../../runtimes/node/compiler.mjs'
import { FakeClock } from '../helpers/clock.ts'
import { makeFn } from '../helpers/fn.ts'
import { makeRuntimes } from './runtime-bed.ts'
import { makeTree } from '../helpers/tree.ts'
import { startDaemon, until, type WorkerStart } from '../helpers/worker-client.ts'

t.setTimeout(120_000)

const SCRIPT = runtimeFile('node/compile-ahead.mjs')

/** Handlers and their answers. */
const HANDLERS = {
  'plain.ts': 'export const handler = (): string => "made first"\n',
  'imports.ts': 'import { word } from "./lib/word"\nexport const handler = (): string => word\n',
  'lib/word.ts': 'export enum Word { One = "made first" }\nexport const word: string = Word.One\n',
  'old.cts': 'export = { handler: (): string => "made first" }\n',
  'throws.ts': 'interface A {\n  b: string\n}\nexport const handler = (): A => {\n  throw new Error("made first")\n}\n',
  'runs.ts':
    'import { writeFileSync } from "node:fs"\nwriteFileSync("ran", "")\nexport const handler = () => "made first"\n',
}

/** A catalog of these entry files, each with a signature. */
function toCatalog(entries: Record<string, string>): Map<string, FunctionVersion> {
  const fns = Object.entries(entries).map(([path, signature], index) =>
    makeFn({ name: `f${index}`, entryPath: path, signature, runtime: path.endsWith('.py') ? 'python' : 'node' }),
  )
  return new Map(fns.map(fn => [fn.key, fn]))
}

/** A clock that stands still, and programs that end when a test says so. */
function makeBed() {
  const clock = new FakeClock()
  const runs: { files: readonly string[]; signal: AbortSignal; end: (error?: Error) => void }[] = []
  const ahead = new CompileAhead(
    clock,
    (files, signal) =>
      new Promise((resolve, reject) =>
        runs.push({ files, signal, end: error => (error === undefined ? resolve() : reject(error)) }),
      ),
  )
  return { clock, runs, ahead }
}

/** Lets what waits for a promise that was settled go on. */
const settled = () => new Promise(resolve => setImmediate(resolve))

t.test(
  '[runtime/compile-ahead.1] TypeScript functions that are new or changed are compiled once no reload came for a moment',
  async t => {
    const { clock, runs, ahead } = makeBed()
    ahead.retain(toCatalog({ '/f/a.ts': '1', '/f/b.mts': '1', '/f/c.cts': '1', '/f/d.js': '1', '/f/e.py': '1' }))
    clock.advance(QUIET_MS - 1)
    ahead.retain(toCatalog({ '/f/a.ts': '1', '/f/b.mts': '2', '/f/d.js': '1' }))
    clock.advance(QUIET_MS - 1)
    t.equal(runs.length, 0, 'a reload begins the moment anew')
    clock.advance(1)
    t.strictSame(
      runs.map(({ files }) => files),
      [['/f/a.ts', '/f/b.mts']],
      'not what went meanwhile, and nothing of other languages',
    )
    ahead.retain(toCatalog({ '/f/a.ts': '1', '/f/b.mts': '3' }))
    clock.advance(QUIET_MS)
    t.equal(runs.length, 1, 'one program at a time')
    runs[0]!.end(new Error('it failed'))
    await settled()
    clock.advance(QUIET_MS)
    t.strictSame(runs[1]?.files, ['/f/b.mts'], 'what changed meanwhile, and nothing again')
    runs[1]?.end()
    await settled()
    ahead.retain(toCatalog({ '/f/a.ts': '1', '/f/b.mts': '3' }))
    t.equal(clock.pending, 0, 'nothing is planned when nothing changed')
    await ahead.close()
  },
)

t.test('[runtime/compile-ahead.2] many functions are compiled a part at a time, and not all of very many', async t => {
  const { clock, runs, ahead } = makeBed()
  const paths = Array.from({ length: MAX_AHEAD_FUNCTIONS + 500 }, (_, i) => `/f/${i}.ts`)
  ahead.retain(toCatalog(Object.fromEntries(paths.map(path => [path, '1']))))
  const drain = async () => {
    for (let i = 0; ; i++) {
      clock.advance(QUIET_MS)
      if (runs[i] === undefined) return
      runs[i]!.end()
      await settled()
    }
  }
  await drain()
  t.strictSame(
    runs.flatMap(({ files }) => files),
    paths.slice(0, MAX_AHEAD_FUNCTIONS),
    'each once',
  )
  t.ok(
    runs.every(({ files }) => files.length <= 200),
    'few for one program',
  )
  runs.length = 0
  const long = Array.from({ length: 40 }, (_, i) => `/f/${'x'.repeat(4000)}${i}.ts`)
  ahead.retain(toCatalog(Object.fromEntries(long.map(path => [path, '1']))))
  await drain()
  t.strictSame(
    runs.flatMap(({ files }) => files),
    long,
  )
  t.ok(
    runs.every(({ files }) => files.join(' ').length < 100_000),
    'as many as an argument list takes',
  )
  await ahead.close()
})

t.test('[runtime/compile-ahead.3] the program ends with the gateway', async t => {
  const { clock, runs, ahead } = makeBed()
  ahead.retain(toCatalog({ '/f/a.ts': '1' }))
  clock.advance(QUIET_MS)
  ahead.retain(toCatalog({ '/f/a.ts': '1', '/f/b.ts': '1' }))
  let isClosed = false
  const closed = ahead.close().then(() => {
    isClosed = true
  })
  t.ok(runs[0]?.signal.aborted)
  await settled()
  t.notOk(isClosed, 'it is waited for')
  runs[0]?.end()
  await closed
  await settled()
  t.equal(clock.pending, 0, 'and no other follows')
})

t.test(
  '[runtime/compile-ahead.4] nothing is compiled ahead where the code could not be kept, or not be used',
  async t => {
    const tree = makeTree({ 'a.ts': HANDLERS['plain.ts'] })
    t.teardown(tree.cleanup)
    const fn = makeFn({ fnDir: tree.root, entryPath: tree.path('a.ts') })
    const cases: [string, object, number][] = [
      ['one user for all functions', {}, 1],
      ['a user of its own for each function', { settings: { isolation: 'user' } }, 0],
      [
        'a daemon that somebody else runs',
        { settings: { runtimeSockets: { node: [`unix:${tree.path('d.sock')}`] } } },
        0,
      ],
      ['a gateway that starts nothing', { inspect: true }, 0],
      ['without node', { settings: { runtimes: ['lua'] } }, 0],
    ]
    for (const [name, options, count] of cases) {
      const clock = new FakeClock()
      const runs: AsideRun[] = []
      const bed = makeRuntimes({}, { clock, runAside: async run => void runs.push(run), ...options })
      bed.runtimes.retain(new Map([[fn.key, fn]]))
      clock.advance(QUIET_MS)
      t.equal(runs.length, count, name)
      await bed.close()
    }
  },
)

t.test(
  '[runtime/compile-ahead.5] the gateway has functions compiled into the folder in which its workers look',
  async t => {
    let tellRun: (run: AsideRun) => void
    const ran = new Promise<AsideRun>(resolve => {
      tellRun = resolve
    })
    const bed = makeRuntimes(
      { 'plain.ts': HANDLERS['plain.ts'] },
      {
        runAside: async run => {
          spawnSync(run.command, run.args, { cwd: run.cwd, env: run.env })
          tellRun(run)
        },
      },
    )
    t.teardown(bed.close)
    const fn = bed.fn('plain.ts')
    await bed.runtimes.start()
    const [, , cache] = (await ran).args
    const files = readdirSync(cache!).flatMap(name =>
      readdirSync(join(cache!, name)).map(file => join(cache!, name, file)),
    )
    for (const file of files) writeFileSync(file, readFileSync(file, 'utf8').replaceAll('made first', 'kept code'))
    t.equal((await bed.call(fn)).text, '"kept code"')
  },
)

t.test('[runtime/compile-ahead.5] compiled code that is kept serves workers', async t => {
  const tree = makeTree(HANDLERS)
  const daemon = await startDaemon('node', { root: tree.root, env: { FNGW_STYLES: 'ts' } })
  t.teardown(async () => {
    await daemon.close()
    tree.cleanup()
  })
  const cache = join(dirname(daemon.uri.slice('unix:'.length)), 'cache')
  const compile = (...entries: string[]) => {
    const args = [SCRIPT, tree.root, cache, ...entries.map(entry => tree.path(entry))]
    const { status, stderr } = spawnSync(process.execPath, args, { cwd: tree.root, encoding: 'utf8' })
    t.strictSame({ status, stderr }, { status: 0, stderr: '' })
  }
  const listKept = () =>
    existsSync(cache)
      ? readdirSync(cache).flatMap(name => readdirSync(join(cache, name)).map(file => join(cache, name, file)))
      : []
  /** Writes another word into what was compiled, so that an answer tells where it comes from. */
  const mark = () => {
    for (const file of listKept()) writeFileSync(file, readFileSync(file, 'utf8').replaceAll('made first', 'kept code'))
  }
  const isWhole = (file: string, word: string) =>
    /\}$/.test(readFileSync(file, 'utf8')) && readFileSync(file, 'utf8').includes(word)
  const call = async (start: Omit<WorkerStart, 'dir'>) => {
    const worker = await daemon.worker({ dir: tree.root, ...start })
    try {
      return await worker.call()
    } finally {
      await worker.close()
    }
  }

  await t.test(
    '[runtime/compile-ahead.5] a worker takes the code of a file and of its imports, compiled before, for exactly that text',
    async t => {
      compile('plain.ts', 'imports.ts', 'old.cts')
      t.equal(statSync(cache).mode & 0o777, 0o700, 'closed to others')
      mark()
      for (const entry of ['plain.ts', 'imports.ts', 'old.cts'])
        t.equal((await call({ entry })).text, '"kept code"', entry)
      tree.write({ 'plain.ts': 'export const handler = (): string => "made second"\n' })
      t.equal((await call({ entry: 'plain.ts' })).text, '"made second"', 'an edited file')
      tree.write({ 'lib/word.ts': 'export const word: string = "made second"\n' })
      t.equal((await call({ entry: 'imports.ts' })).text, '"made second"', 'an edited import')
      tree.write({ 'copy.ts': HANDLERS['plain.ts'] })
      t.equal((await call({ entry: 'copy.ts' })).text, '"made first"', 'the same text elsewhere')
    },
  )

  await t.test('[runtime/compile-ahead.6] compiling runs nothing, and errors say what they say without it', async t => {
    tree.write({ 'broken.ts': 'export const handler = (): number => {\n  return 1\n}}\n' })
    compile('runs.ts', 'throws.ts', 'broken.ts', 'missing.ts')
    t.notOk(existsSync(tree.path('ran')))
    mark()
    const thrown = await call({ entry: 'throws.ts' })
    t.match(thrown.header, { message: 'kept code', file: tree.path('throws.ts'), line: 5 }, 'lines of the source')
    const broken = await call({ entry: 'broken.ts' }).catch(error => error)
    t.ok(broken, 'it cannot be loaded')
    const worker = await daemon.worker({ dir: tree.root, entry: 'broken.ts' })
    const { header } = await worker.ready()
    await worker.close()
    t.match(header, { message: /syntax error in broken\.ts:3: Unexpected "\}"/, line: 3 })
  })

  await t.test('[runtime/compile-ahead.7] what one worker compiled the next one need not', async t => {
    tree.write({ 'later.ts': HANDLERS['plain.ts'] })
    const before = listKept()
    const worker = await daemon.worker({ dir: tree.root, entry: 'later.ts' })
    t.equal((await worker.call()).text, '"made first"')
    await until(() => listKept().some(file => !before.includes(file) && isWhole(file, 'made first')), 60_000)
    await worker.close()
    mark()
    t.equal((await call({ entry: 'later.ts' })).text, '"kept code"')
    for (const file of listKept()) writeFileSync(file, readFileSync(file).subarray(0, 20))
    t.equal((await call({ entry: 'later.ts' })).text, '"made first"', 'what was cut off is not used')
  })

  await t.test('[runtime/compile-ahead.8] kept code is deleted when there is too much of it', async t => {
    const [folder] = readdirSync(cache)
    for (let i = 0; i <= MAX_KEPT_FILES; i++) writeFileSync(join(cache, folder!, `17000-${i}`), '')
    // The next one that waits.
    const worker = await daemon.worker({ dir: tree.root, entry: 'plain.ts' })
    await worker.close()
    const again = await daemon.worker({ dir: tree.root, entry: 'plain.ts' })
    t.equal((await again.call()).text, '"made second"')
    await again.close()
    await until(() => listKept().length < 100, 60_000)
    mkdirSync(join(cache, 'other'))
    writeFileSync(join(cache, 'file'), '')
    chmodSync(join(cache, 'other'), 0)
    t.equal((await call({ entry: 'plain.ts' })).text, '"made second"', 'whatever else lies there')
    chmodSync(join(cache, 'other'), 0o700)
  })
})
