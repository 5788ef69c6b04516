import { setImmediate } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t from 'tap'
import { NO_OUTER_ENV } from '../../lib/config/function-env.ts'
import { makeFn } from '../helpers/fn.ts'
import { makeTree, type Tree, type TreeEntry } from '../helpers/tree.ts'
import { CatalogLoader, findFunction } from '../../lib/gateway/catalog-loader.ts'
import type { FunctionVersion } from '../../lib/core/catalog.ts'

const DEFAULTS = {
  defaultTimeoutMs: 2500,
  defaultMaxConcurrency: 20,
  defaultQueue: { maxQueue: 500, timeoutMs: 5000, maxWaitMs: 0 },
  defaultMaxBodyBytes: 1024,
}

function setup(entries: Record<string, TreeEntry>) {
  const tree = makeTree(entries)
  return { tree, ...makeLoader(tree) }
}

function makeLoader(tree: Tree) {
  const asked: number[] = []
  const loader = new CatalogLoader({
    rootPath: tree.root,
    runtimes: ['node', 'python'],
    namespaceDepth: 3,
    forceUrl: false,
    checksSources: false,
    defaults: DEFAULTS,
    now: () => 42,
    outerEnv: () => NO_OUTER_ENV,
    steps: discovery => {
      asked.push(discovery.functions.length)
      return { before: [], after: [], homes: [], warnings: [{ code: 'STEP', path: '.', message: 'm', hint: 'h' }] }
    },
  })
  return { loader, asked }
}

t.test(
  '[gateway/gateway.4, gateway/gateway.11] a catalog is whole: functions, routes, steps and what is wrong',
  async t => {
    const { tree, loader, asked } = setup({
      'a.js': 'export const handler = () => 1\n',
      'b/handler.py': 'def handler(event):\n    return 1\n',
      'get.post.x.js': '',
    })
    t.teardown(tree.cleanup)
    const catalog = await loader.load(null)
    t.same([...catalog.functions.values()].map(fn => fn.entryFile).sort(), ['a.js', 'b/handler.py'])
    t.same([catalog.isRead, catalog.generatedAt, asked], [true, 42, [2]])
    const codes = catalog.warnings.map(warning => warning.code)
    t.ok(codes.includes('STEP') && codes.length > 1, 'warnings of discovery and of the steps')
    const records = catalog.records()
    t.equal(catalog.records(), records, 'made once for whoever holds them')
    const again = await loader.load(null)
    t.equal(again.routes, catalog.routes)
    t.equal(again.records(), records, 'nothing changed: not made again')
    tree.write({ 'c.js': 'export const handler = () => 1\n' })
    t.same(Object.keys((await loader.load(['c.js'])).records().mapped_routes).sort(), ['/a', '/b', '/c'])
    t.same(Object.keys(catalog.records().mapped_routes).sort(), ['/a', '/b'])
  },
)

/** The engine's collection of everything. */
function findFullCollector(): () => void {
  setFlagsFromString('--expose-gc')
  return runInNewContext('globalThis.gc') as () => void
}

t.test('[gateway/gateway.19] records of routes are kept while somebody holds them, and made again', async t => {
  const { tree, loader } = setup({ 'a.js': 'export const handler = () => 1\n' })
  t.teardown(tree.cleanup)
  const catalog = await loader.load(null)
  const made = new WeakRef(catalog.records())
  const collect = findFullCollector()
  for (let i = 0; i < 100 && made.deref() !== undefined; i++) {
    await setImmediate()
    collect()
  }
  t.equal(made.deref(), undefined)
  t.same(Object.keys(catalog.records().mapped_routes), ['/a'])
})

t.test('[performance.2] what is known of a function that nobody called', async t => {
  const collect = findFullCollector()
  const measure = (): number => {
    for (let i = 0; i < 2; i++) collect()
    return process.memoryUsage().heapUsed
  }
  const count = 3000
  const files = Array.from({ length: count }, (_, i) => `group-${i % 20}/fn-${i}/handler.js`)
  const { tree, loader } = setup(Object.fromEntries(files.map(file => [file, 'export const handler = () => 1\n'])))
  t.teardown(tree.cleanup)
  // Compiled code is on the heap too: the first catalog is not counted, and 3,000 functions make the rest of it small.
  const kept: unknown[] = [await loader.load(null)]
  const sizes: number[] = []
  for (let i = 0; i < 3; i++) {
    const another = makeLoader(tree).loader
    const before = measure()
    const catalog = await another.load(null)
    kept.push(another, catalog)
    sizes.push((measure() - before) / count)
    t.equal(catalog.functions.size, count)
  }
  t.ok(Math.min(...sizes) < 3000, `tree, discovery and routes: ${sizes.map(Math.round)} bytes`)
  t.equal(kept.length, 7)
})

t.test('[gateway/gateway.13] what did not change is the same object after a reload', async t => {
  const { tree, loader } = setup({ 'a.js': 'export const handler = () => 1\n', 'b.js': '1\n' })
  t.teardown(tree.cleanup)
  const before = (await loader.load(null)).functions
  tree.write({ 'b.js': 'export const handler = () => 22\n' })
  const after = (await loader.load(['b.js'])).functions
  t.equal(fileOf(after, 'a.js'), fileOf(before, 'a.js'))
  t.not(fileOf(after, 'b.js'), fileOf(before, 'b.js'))
})

t.test('[gateway/gateway.7] a function is found by name, version and runtime', async t => {
  const functions: FunctionVersion[] = [
    makeFn({ name: 'a' }),
    makeFn({ name: 'a', version: 'v2' }),
    makeFn({ name: 'both' }),
    makeFn({ name: 'both', runtime: 'python' }),
    makeFn({ name: 'a', key: 'node/a#other.js', entryFile: 'other.js' }),
  ]
  t.equal(findFunction(functions, 'a', null, null), functions[0], 'not the second of that name')
  t.equal(findFunction(functions, 'a', 'v2', 'node'), functions[1])
  t.equal(findFunction(functions, 'both', null, 'python'), functions[3])
  t.throws(() => findFunction(functions, 'both', null, null), { code: 'ROUTE_CONFLICT', message: /node, python/ })
  for (const [name, version, runtime] of [
    ['nope', null, null],
    ['a', 'v3', null],
    ['a', null, 'php'],
  ] as const)
    t.throws(() => findFunction(functions, name, version, runtime), { code: 'NOT_FOUND' })
})

function fileOf(functions: ReadonlyMap<string, FunctionVersion>, entryFile: string): FunctionVersion {
  const found = [...functions.values()].find(fn => fn.entryFile === entryFile)
  if (found === undefined) throw new Error(`no function of ${entryFile}`)
  return found
}
