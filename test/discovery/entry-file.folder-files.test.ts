import t from 'tap'
import { parseFunctionConfig } from '../../lib/config/function-config.ts'
import { RUNTIMES, type RuntimeName } from '../../lib/core/identity.ts'
import { type FolderView, sameView, FileSorter } from '../../lib/discovery/entry-file.ts'
import { snapshotOf } from '../helpers/discovery.ts'
import { makeTree } from '../helpers/tree.ts'

const TOP: FolderView = { group: null, isInsideFunction: false }
const INSIDE: FolderView = { group: null, isInsideFunction: true }

interface Setup {
  config?: unknown
  view?: FolderView
  enabled?: readonly RuntimeName[]
  /** Name of the folder; empty for the root. */
  folder?: string
}

function sort(names: string, { config, view = TOP, enabled = RUNTIMES, folder = 'x' }: Setup = {}) {
  const files = names.split(' ').map(name => [folder === '' ? name : `${folder}/${name}`, ''])
  const tree = makeTree(Object.fromEntries(files))
  try {
    const { root } = snapshotOf(tree.root)
    const node = folder === '' ? root : root.dirs[0]!
    const parsed = config === undefined ? null : parseFunctionConfig(JSON.stringify(config), '').value
    const sorter = new FileSorter(node, parsed, view, new Set(enabled))
    const { kind, entries, takenMethods, routes, helpers, ignored, warnings } = sorter.sort()
    return {
      kind,
      entries: entries.map(file => file.fileName),
      taken: [...takenMethods],
      routes: routes.map(({ file, methods }) => `${methods.join()} ${file.fileName}`).sort(),
      helpers: helpers.map(file => file.name).sort(),
      ignored: Object.fromEntries(ignored.map(({ path, reason }) => [path.split('/').at(-1), reason])),
      codes: warnings.map(({ code, path }) => `${code} ${path}`),
    }
  } finally {
    tree.cleanup()
  }
}

t.test('[discovery/layouts.4, discovery/layouts.5] routes, or one function with private files', async t => {
  const plain = sort('a.js b.py _h.js data.txt')
  t.match(plain, { kind: 'routes', entries: [], routes: ['GET a.js', 'GET b.py'], helpers: ['_h.js'], codes: [] })
  const fn = sort('handler.js a.js get.js [id].py b(1).js')
  t.match(fn, { kind: 'function', entries: ['handler.js'], taken: ['GET'], routes: ['GET [id].py', 'GET get.js'] })
  t.same(fn.helpers, ['a.js', 'b(1).js'])
  t.match(fn.ignored, { 'a.js': /beside the handler of a function/ })
  t.same(fn.codes, [], 'a private helper may be called anything')
  t.same(sort('a(1).js').codes, ['UNSUPPORTED_NAME x/a(1).js'])
  t.same(
    sort('get.post.js handler.js').codes,
    ['AMBIGUOUS_METHOD_PREFIX x/get.post.js'],
    'that one wants to be a route',
  )
})

t.test('[discovery/layouts.6] inside a function explicit files alone are public', async t => {
  const inside = sort('a.js get.js [id].js', { view: INSIDE })
  t.same(inside.routes, ['GET [id].js', 'GET get.js'])
  t.same(sort('a.js index.py', { view: INSIDE }).entries, ['index.py'])
  t.match(inside.ignored, { 'a.js': /inside a function only/ })
  t.same(inside.helpers, ['a.js'])
})

t.test('[discovery/layouts.20] methods of routes', async t => {
  const config = { invoke: { methods: ['PUT', 'POST'] } }
  t.same(sort('a.js delete.b.js', { config }).routes, ['DELETE delete.b.js', 'PUT,POST a.js'])
  t.same(sort('a.js', { config: {} }).routes, ['GET a.js'])
})

t.test('[discovery/layouts.21, discovery/entry-file.8] what a method prefix takes', async t => {
  const config = { invoke: { methods: ['GET', 'POST'] } }
  t.same(sort('a.js get.a.js', { config }).routes, ['GET get.a.js', 'POST a.js'])
  const whole = sort('a.js get.a.js')
  t.same(whole.routes, ['GET get.a.js'])
  t.match(whole.ignored, { 'a.js': /method prefix answer all/ })
  t.same(sort('a.py get.a.js').routes, ['GET a.py', 'GET get.a.js'], 'another language is another function')
  t.same(sort('a.js b.js get.b.js').routes, ['GET a.js', 'GET get.b.js'], 'another path is another route')
  t.same(sort('handler.py get.js post.py').taken, ['GET', 'POST'], 'from an entry file in any language')
  t.same(sort('handler.py get.x.js').taken, [])
  t.same(sort('app.py get.js', { config: { entrypoint: 'app.py' } }).taken, [], 'an explicit entrypoint gives nothing')
})

t.test('[discovery/entry-file.8, discovery/entry-file.4] one language twice is settled with a warning', async t => {
  const twice = sort('a.ts a.js a.mjs b.py')
  t.same(twice.routes, ['GET a.js', 'GET b.py'])
  t.same(twice.codes, ['DUPLICATE_ROUTE x/a.js'])
  t.match(twice.ignored, { 'a.ts': 'a.js answers its route', 'a.mjs': 'a.js answers its route' })
  t.same(twice.helpers, ['a.mjs', 'a.ts'])
  const entries = sort('handler.js index.js handler.py')
  t.same(entries.entries, ['handler.py'])
  t.same(entries.codes, ['DUPLICATE_ENTRY x/handler.py'])
  t.same(sort('index.py main.js').entries, ['index.py', 'main.js'])
})

t.test('[discovery/entry-file.1, discovery/entry-file.5] what a config says about the entry', async t => {
  const named = sort('app.js handler.py index.js', { config: { entrypoint: 'app.js' } })
  t.match(named, { kind: 'function', entries: [], codes: [] })
  t.match(named.ignored, { 'handler.py': 'entrypoint is app.js', 'index.js': 'entrypoint is app.js' })
  const narrowed = sort('handler.js handler.py', { config: { runtime: 'node' } })
  t.match(narrowed, { entries: ['handler.js'], codes: [] })
  t.match(narrowed.ignored, { 'handler.py': /sets the runtime node/ })
})

t.test('[discovery/entry-file.9, discovery/layouts.8] languages that are off, and those of other groups', async t => {
  const off = sort('a.py b.js c.go', { enabled: ['node'] })
  t.match(off, { kind: 'routes', routes: ['GET b.js'], helpers: [] })
  t.match(off.ignored, { 'a.py': /python is not enabled/, 'c.go': /go is not enabled/ })
  const canonical = sort('b.js get.js handler.go', { enabled: ['node'] })
  t.match(canonical, { kind: 'function', entries: [], routes: ['GET get.js'] }, 'it opens no file')
  const view: FolderView = { group: 'python', isInsideFunction: false }
  const group = sort('a.py b.js', { view })
  t.same(group.routes, ['GET a.py'])
  t.match(group.ignored, { 'b.js': /below the folder python only python files/ })
  t.same(sort('a.py get.js', { view, config: { runtime: 'node' } }).routes, ['GET get.js'])
})

t.test('[discovery/layouts.7, discovery/layouts.42] the root, and test files', async t => {
  t.match(sort('index.js a.js', { folder: '' }), { kind: 'routes', entries: ['index.js'], routes: ['GET a.js'] })
  t.match(sort('handler.js a.js', { folder: '' }), { kind: 'function', routes: [] })
  const tests = sort('a.test.js vite.config.js setup.py speed_test.js a.js')
  t.same(tests.routes, ['GET a.js'])
  t.same(tests.helpers, ['setup.py', 'vite.config.js'])
  t.match(tests.ignored, {
    'a.test.js': /a test file/,
    'vite.config.js': /defines no handler/,
    'speed_test.js': /no handler/,
  })
  t.match(sort('handler.js vite.config.js').ignored, { 'vite.config.js': /beside the handler/ })
  t.match(sort('a.rb a.txt').ignored, { 'a.rb': /no runtime/ })
})

t.test('[discovery/layouts.2] views are compared by what they say', async t => {
  t.ok(sameView(TOP, { ...TOP }))
  t.notOk(sameView(TOP, INSIDE))
  t.notOk(sameView(TOP, { group: 'lua', isInsideFunction: false }))
})
