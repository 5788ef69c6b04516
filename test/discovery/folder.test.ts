import t from 'tap'
import type { FolderView } from '../../lib/discovery/entry-file.ts'
import { FolderFacts } from '../../lib/discovery/folder.ts'
import { findFolder, type Snapshot } from '../../lib/discovery/snapshot.ts'
import { OPTIONS, snapshotOf } from '../helpers/discovery.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'

const TOP: FolderView = { group: null, isInsideFunction: false }

function setUp(t: { teardown: (fn: () => void) => void }, entries: Record<string, TreeEntry>) {
  const tree = makeTree(entries)
  t.teardown(tree.cleanup)
  const snapshot: Snapshot = snapshotOf(tree.root)
  const facts = new FolderFacts(OPTIONS)
  return { facts, at: (path: string) => findFolder(snapshot.root, path)! }
}

t.test('[discovery/layouts.17, discovery/layouts.18] folders that publish nothing', async t => {
  const entries = {
    '_lib/a.js': '',
    'src/a.js': '',
    'node_modules/a.js': '',
    '.git/a.js': '',
    'tests/a.js': '',
    'open/a.js': '',
  }
  const { facts, at } = setUp(t, entries)
  t.match(facts.closed(at('_lib')), /"_"/)
  t.match(facts.closed(at('src')), /source folder/)
  t.match(facts.closed(at('node_modules')), /packages/)
  t.match(facts.closed(at('.git')), /"\."/)
  t.equal(facts.closed(at('tests')), null)
  t.equal(facts.closed(at('open')), null)
})

t.test('[discovery/layouts.5] where handlers are', async t => {
  const { facts, at } = setUp(t, {
    'fn/handler.js': '',
    'fn/util/plain.js': '',
    'fn/util/get.js': '',
    'fn/data/plain.js': '',
    'named/fn.config.json': { json: { entrypoint: 'src/app.js' } },
    'named/src/app.js': '',
    'far/a/b/c.py': '',
    'none/_a.js': '',
    'none/_deep/a.js': '',
    'none/notes.txt': '',
  })
  const inside = facts.viewBelow(at('fn'), TOP)
  t.same(inside, { group: null, isInsideFunction: true })
  t.ok(facts.hasHandler(at('fn'), TOP))
  t.ok(facts.hasHandler(at('fn/util'), inside))
  t.notOk(facts.hasHandler(at('fn/data'), inside))
  t.ok(facts.hasHandler(at('fn/data'), TOP), 'elsewhere its files are routes')
  t.ok(facts.hasHandler(at('named'), TOP))
  t.notOk(facts.hasHandler(at('far'), TOP))
  t.ok(facts.hasHandlerBelow(at('far'), TOP))
  t.notOk(facts.hasHandlerBelow(at('none'), TOP))
  t.notOk(facts.hasHandlerBelow(at('none/_deep'), TOP))
})

t.test('[discovery/layouts.7, discovery/layouts.8] what the folders below are told', async t => {
  const { facts, at } = setUp(t, { 'handler.js': '', 'python/x/handler.py': '', 'plain/a.js': '' })
  t.same(facts.viewBelow(at(''), TOP), TOP, 'the root is no function around others')
  t.same(facts.viewBelow(at('python'), TOP), { group: 'python', isInsideFunction: false })
  t.same(facts.viewBelow(at('plain'), TOP), TOP)
})

t.test('[discovery/layouts.33] helpers in reach of a folder', async t => {
  const { facts, at } = setUp(t, {
    'fn/handler.js': '',
    'fn/util.js': '',
    'fn/util.test.js': '',
    'fn/_private/deep/x.js': '',
    'fn/lib/plain.js': '',
    'fn/lib/more/plain.py': '',
    'fn/route/get.js': '',
    'fn/node_modules/p/i.js': '',
    'tests/t.js': '',
    '_shared.js': '',
  })
  const names = (path: string) =>
    facts
      .helpers(at(path), TOP)
      .map(({ folder, file }) => `${folder}/${file.name}`)
      .sort()
  t.same(names('fn'), ['fn/_private/deep/x.js', 'fn/lib/more/plain.py', 'fn/lib/plain.js', 'fn/util.js'])
  t.same(names(''), ['/_shared.js'], 'of folders with handlers and of tests none')
})

t.test('[discovery/layouts.2] helpers of folders that were there before are those of a first look', async t => {
  const tree = makeTree({
    'fn/handler.js': '',
    'fn/a/plain.js': '',
    'fn/b/route/get.js': '',
    'fn/c/plain.js': '',
    'fn/d/notes.txt': '',
  })
  t.teardown(tree.cleanup)
  const known = new FolderFacts(OPTIONS)
  let snapshot: Snapshot | null = null
  const rows: [string, () => void, string[]][] = [
    ['first', () => {}, ['fn/a/plain.js', 'fn/c/plain.js']],
    ['the same', () => {}, ['fn/a/plain.js', 'fn/c/plain.js']],
    ['one is new', () => tree.write({ 'fn/bb/plain.js': '' }), ['fn/a/plain.js', 'fn/bb/plain.js', 'fn/c/plain.js']],
    [
      'one is another',
      () => tree.write({ 'fn/a/more.js': '' }),
      ['fn/a/more.js', 'fn/a/plain.js', 'fn/bb/plain.js', 'fn/c/plain.js'],
    ],
    ['one is gone', () => tree.remove('fn/a'), ['fn/bb/plain.js', 'fn/c/plain.js']],
    ['the folder is no function', () => tree.remove('fn/handler.js'), []],
    ['and is one again', () => tree.write({ 'fn/handler.js': '' }), ['fn/bb/plain.js', 'fn/c/plain.js']],
  ]
  for (const [name, change, expected] of rows) {
    change()
    snapshot = snapshotOf(tree.root, { previous: snapshot })
    const fn = findFolder(snapshot.root, 'fn')!
    const found = known.helpers(fn, TOP).map(({ folder, file }) => `${folder}/${file.name}`)
    t.same(found, expected, name)
    const first = new FolderFacts(OPTIONS)
    t.same(known.helpers(fn, TOP), first.helpers(fn, TOP), name)
    known.endWalk()
  }
})

t.test('[discovery/layouts.2] what is known of a folder is kept for the same view', async t => {
  const { facts, at } = setUp(t, { 'a/x.js': '' })
  const first = facts.files(at('a'), TOP)
  t.equal(facts.files(at('a'), { ...TOP }), first)
  const inside = facts.files(at('a'), { group: null, isInsideFunction: true })
  t.not(inside, first)
  t.equal(inside.routes.length, 0)
})
