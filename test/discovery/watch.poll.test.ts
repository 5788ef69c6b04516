import { renameSync, rmSync, utimesSync } from 'node:fs'
import t from 'tap'
import { NO_OUTER_ENV } from '../../lib/config/function-env.ts'
import { NODE_DISK } from '../../lib/discovery/disk.ts'
import { FileWatcher } from '../../lib/discovery/watch.ts'
import { CatalogLoader } from '../../lib/gateway/catalog-loader.ts'
import { FakeClock } from '../helpers/clock.ts'
import { OPTIONS } from '../helpers/discovery.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'

/** A watcher that has no watches, and the loader of a gateway. */
async function setUp(t: { teardown: (fn: () => void) => void }, entries: Record<string, TreeEntry>) {
  const tree = makeTree(entries)
  const clock = new FakeClock()
  // Nothing in the tree has changed for a while.
  clock.jumpWall(Date.now() + 60_000 - clock.wall())
  const loader = new CatalogLoader({
    ...OPTIONS,
    rootPath: tree.root,
    checksSources: false,
    now: () => clock.wall(),
    outerEnv: () => NO_OUTER_ENV,
    steps: () => ({ before: [], after: [], homes: [], warnings: [] }),
  })
  await loader.load(null)
  const told: (string[] | null)[] = []
  const watcher = new FileWatcher({
    clock,
    rootPath: tree.root,
    tree: loader,
    debounceMs: 25,
    pollMs: 1000,
    onChange: async paths => {
      told.push(paths && [...paths].sort())
      await loader.load(paths)
    },
    onWarning: () => {},
    watchFolder: () => {
      throw Object.assign(new Error('no space'), { code: 'ENOSPC' })
    },
  })
  t.teardown(() => {
    watcher.close()
    tree.cleanup()
  })
  await watcher.ready
  const settle = async (): Promise<void> => {
    for (let i = 0; i < 20; i++) await new Promise(setImmediate)
  }
  /** Passes the time of one check, and of what it leads to. */
  const look = async (): Promise<(string[] | null)[]> => {
    clock.advance(1000)
    await settle()
    clock.advance(25)
    await settle()
    return told.splice(0)
  }
  return { tree, clock, watcher, look, told, settle }
}

t.test(
  '[discovery/layouts.39, discovery/layouts.50] each check reports the files that changed since the last',
  async t => {
    const { tree, look } = await setUp(t, {
      'a/x.js': '',
      'a/y.js': '',
      'b/z.py': '',
      'b/notes.txt': '',
      'c/one/two/three.js': '',
      'site/s.js': '',
      'fn.config.json': '{"assets": {"directory": "site"}}',
    })
    t.same(await look(), [])
    tree.write({ 'a/x.js': 'changed', 'site/s.js': 'changed' })
    t.same(await look(), [['a/x.js']], 'a file, and none of a folder that is not read')
    utimesSync(tree.path('a/y.js'), 5, 5)
    t.same(await look(), [['a/y.js']])
    tree.write({ 'b/fn.config.json': '{}' })
    t.same(await look(), [['b']], 'a folder in which something is new')
    tree.write({ 'd/deep/n.lua': '' })
    t.same(await look(), [['']], 'a new folder is reported by the one that holds it')
    rmSync(tree.path('a/x.js'))
    t.same(await look(), [['a']])
    tree.write({ 'fn.config.json': '{"group": "that names no folder"}' })
    t.same(await look(), [['fn.config.json']], 'other folders may be read now')
    tree.write({ 'site/s.js': 'changed again' })
    t.same(await look(), [['site/s.js']])
    t.same(await look(), [])
  },
)

t.test(
  '[discovery/layouts.39, discovery/layouts.49] links are checked each time and reported when they changed',
  async t => {
    const { tree, look } = await setUp(t, {
      'a/far.js': { symlink: '../outside' },
      outside: '1',
      'b/x.js': '',
      'c/x.js': '',
    })
    t.same(await look(), [])
    tree.write({ outside: 'longer' })
    t.same(await look(), [['a']])
    t.same(await look(), [])
  },
)

t.test('[discovery/layouts.44] a half saved file waits where it is polled, too', async t => {
  const { tree, clock, look, told, settle } = await setUp(t, { 'a/x.js': 'x'.repeat(50), 'b/y.js': '', 'c/z.js': '' })
  tree.write({ 'a/x.js': '' })
  t.same(await look(), [])
  clock.advance(100)
  await settle()
  t.same(told, [['a/x.js']])
})

t.test('[discovery/layouts.38, discovery/layouts.39] closed, it checks no more', async t => {
  const { tree, clock, watcher, told, settle } = await setUp(t, { 'a.js': '' })
  tree.write({ 'a.js': 'changed' })
  watcher.close()
  t.equal(clock.pending, 0)
  clock.advance(5000)
  await settle()
  t.same(told, [])
})

t.test('[discovery/layouts.39] a root that goes and comes back is seen', async t => {
  const { tree, look } = await setUp(t, { 'a.js': '' })
  renameSync(tree.root, `${tree.root}-away`)
  t.same(await look(), [null])
  t.same(await look(), [], 'once')
  renameSync(`${tree.root}-away`, tree.root)
  t.same(await look(), [null])
  t.equal(NODE_DISK.readdir(tree.root).length, 1)
})
