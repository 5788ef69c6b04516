import { isDeepStrictEqual } from 'node:util'
import t from 'tap'
import { FolderFacts } from '../../lib/discovery/folder.ts'
import { findFolder } from '../../lib/discovery/snapshot.ts'
import { type Context, ROOT_CONTEXT, Visit } from '../../lib/discovery/visit.ts'
import { OPTIONS, snapshotOf } from '../helpers/discovery.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'

const config = (json: unknown) => ({ json })

/** Goes down a path, as the walk does; the last visit, and null where a folder is not entered. */
function setUp(t: { teardown: (fn: () => void) => void }, entries: Record<string, TreeEntry>) {
  const tree = makeTree(entries)
  t.teardown(tree.cleanup)
  const { root } = snapshotOf(tree.root)
  const facts = new FolderFacts(OPTIONS)
  return (path: string): { visit: Visit; context: Context | null } => {
    let visit = new Visit(root, ROOT_CONTEXT, facts)
    let context: Context | null = ROOT_CONTEXT
    const names = path.split('/')
    for (const [index] of names.entries()) {
      const node = findFolder(root, names.slice(0, index + 1).join('/'))!
      context = visit.enter(node, visit.part)
      if (context === null) return { visit, context }
      visit = new Visit(node, context, facts)
    }
    return { visit, context }
  }
}

t.test('[discovery/layouts.4, core/identity.5] paths and names follow the folders', async t => {
  const go = setUp(t, {
    'users/[id]/posts/get.js': '',
    'python/alice/hello/handler.py': '',
    'a/fn.config.json': config({ timeout_ms: 5 }),
    'a/b/c.js': '',
  })
  t.match(go('users/[id]/posts').context, { level: 3, prefix: '/users/:id/posts', name: 'users/[id]/posts' })
  const group = go('python')
  t.match(group.context, { prefix: '', name: '' }, 'a group has no name of its own')
  t.match(go('python/alice/hello').context, { prefix: '/alice/hello', name: 'alice/hello', groupDepth: 2, level: 3 })
  const { visit } = go('a/b')
  t.same(
    visit.layers.map(layer => layer?.timeoutMs ?? null),
    [null, 5, null],
  )
})

t.test('[discovery/layouts.16, discovery/layouts.10, discovery/layouts.9] folders without a path', async t => {
  const go = setUp(t, {
    'bad name/x.js': '',
    'quiet name/notes.txt': '',
    'a/b/c/d/e/f/g/x.js': '',
    'python/a/b/c/d/handler.py': '',
  })
  const bad = go('bad name')
  t.equal(bad.context, null)
  t.match(bad.visit.part.warnings, [{ code: 'UNSUPPORTED_NAME', path: 'bad name' }])
  t.match(bad.visit.part.ignored, [{ path: 'bad name', reason: /ASCII/ }])
  const quiet = go('quiet name')
  t.same(quiet.visit.part.warnings, [], 'without handlers it is nobody’s question')
  const six = go('a/b/c/d/e/f')
  t.match(six.context, { level: 6, prefix: '/a/b/c/d/e/f' })
  const seven = go('a/b/c/d/e/f/g')
  t.equal(seven.context, null)
  t.match(seven.visit.part.warnings, [{ code: 'ROUTE_DEPTH', path: 'a/b/c/d/e/f/g' }])
  t.ok(go('python/a/b/c').context)
  const deep = go('python/a/b/c/d')
  t.equal(deep.context, null)
  t.match(deep.visit.part.warnings, [{ code: 'NAMESPACE_DEPTH', hint: /at most 5/ }])
})

t.test('[core/versions.3, core/versions.4, core/versions.5, core/versions.6] versions', async t => {
  const go = setUp(t, {
    'hello/handler.py': '',
    'hello/v2/handler.py': '',
    'hello/1.0.3/handler.py': '',
    'hello/other/handler.py': '',
    'hello/other/fn.config.json': config({ name: 'else' }),
    'space/v1/handler.py': '',
    'space/plain/handler.py': '',
    'named/handler.py': '',
    'named/fn.config.json': config({ name: 'real' }),
    'named/v1/handler.py': '',
  })
  t.ok(go('hello/v2').visit.isVersion)
  t.match(go('hello/v2').context, { parent: { name: 'hello', isFunction: true }, prefix: '/hello/v2' })
  const odd = go('hello/1.0.3')
  t.ok(odd.visit.isVersion)
  t.equal(odd.context?.prefix, null, 'an address, and no path of its own')
  t.notOk(go('hello/other').visit.isVersion, 'a name of its own')
  t.match(go('space/v1').context, { parent: { name: 'space', isFunction: false } })
  t.notOk(go('space/v1').visit.isVersion)
  t.notOk(go('hello').visit.isVersion)
  t.equal(go('named/v1').context?.parent?.name, 'real')
})

t.test('[discovery/layouts.8, discovery/layouts.32] what is not entered, and what is said', async t => {
  const go = setUp(t, {
    'node/x.js': '',
    'node/y/handler.js': '',
    'lua/x.lua': '',
    'shop/fn.config.json': config({ assets: { directory: 'web/js' } }),
    'shop/web/js/app.js': '',
    '_private/x.js': '',
  })
  t.match(go('node').visit.part.warnings, [])
  t.match(new Set(go('shop').visit.part.warnings.map(({ code }) => code)).size, 0)
  const group = go('node/y')
  t.equal(group.context?.prefix, '/node/y', 'a group with a route file is a folder like any other')
  t.equal(go('shop/web/js').context, null)
  t.match(go('shop/web/js').visit.part.ignored, [{ reason: /browsers: the assets of shop\/fn\.config\.json/ }])
  t.equal(go('_private').context, null)
  const { visit } = go('lua')
  visit.warn('CODE', 'says so', 'Do this.')
  t.match(visit.part.warnings, [{ code: 'CODE', path: 'lua/fn.config.json', message: 'lua/fn.config.json says so' }])
})

t.test('[discovery/layouts.8] a runtime folder that groups nothing says so at its parent', async t => {
  const tree = makeTree({
    'node/x.js': '',
    'node/y/handler.js': '',
    'lua/x.lua': '',
    'go/x.go': '',
    'go/y/handler.go': '',
  })
  t.teardown(tree.cleanup)
  const { root } = snapshotOf(tree.root)
  const visit = new Visit(root, ROOT_CONTEXT, new FolderFacts(OPTIONS))
  for (const dir of root.dirs) visit.enter(dir, visit.part)
  t.match(visit.part.warnings, [{ code: 'GROUP_HAS_ROUTES', path: 'node', message: /because it contains x\.js/ }])
  t.equal(visit.part.warnings.length, 1)
})

t.test('[discovery/layouts.2] contexts are compared by what a folder depends on', async t => {
  const parent = { name: 'a', config: null, isFunction: true }
  const base: Context = { ...ROOT_CONTEXT, prefix: '/a', name: 'a', parent, layers: [null] }
  t.ok(isDeepStrictEqual(base, { ...base, parent: { ...parent }, layers: [null], helpers: { ...base.helpers } }))
  const others: Partial<Context>[] = [
    { prefix: null },
    { name: 'b' },
    { groupDepth: 1 },
    { view: { group: 'lua', isInsideFunction: false } },
    { view: { group: null, isInsideFunction: true } },
    { parent: null },
    { parent: { ...parent, name: 'b' } },
    { parent: { ...parent, isFunction: false } },
    { parent: { ...parent, config: {} as never } },
    { layers: [] },
    { layers: [{} as never] },
    { helpers: { ...base.helpers, node: 'x' } },
    { helpers: { ...base.helpers, rust: 'x' } },
  ]
  for (const other of others) t.notOk(isDeepStrictEqual(base, { ...base, ...other }), JSON.stringify(other))
  t.ok(isDeepStrictEqual({ ...base, parent: null }, { ...base, parent: null }))
})
