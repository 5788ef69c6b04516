import { rmSync, utimesSync } from 'node:fs'
import t from 'tap'
import { NODE_DISK } from '../../lib/discovery/disk.ts'
import { Poller } from '../../lib/discovery/folder-times.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'

async function setUp(t: { teardown: (fn: () => void) => void }, entries: Record<string, TreeEntry>) {
  const tree = makeTree(entries)
  const clock = new FakeClock()
  const marked: string[] = []
  const listed: string[] = []
  const state = { excluded: new Set(['site']) }
  const readdir: typeof NODE_DISK.readdir = path => {
    listed.push(path.slice(tree.root.length + 1))
    return NODE_DISK.readdir(path)
  }
  // Nothing in the tree has changed for a while.
  clock.jumpWall(Date.now() + 60_000 - clock.wall())
  let poller!: Poller
  await new Promise<void>(resolve => {
    poller = new Poller({
      clock,
      rootPath: tree.root,
      everyMs: 1000,
      excluded: () => state.excluded,
      disk: { ...NODE_DISK, readdir },
      mark: path => marked.push(path),
      onReady: resolve,
    })
  })
  t.teardown(() => {
    poller.close()
    tree.cleanup()
  })
  /** Passes the time of one look and waits until the next one is planned. */
  const look = async (): Promise<string[]> => {
    clock.advance(1000)
    while (clock.pending === 0) await new Promise(setImmediate)
    return marked.splice(0).sort()
  }
  while (clock.pending === 0) await new Promise(setImmediate)
  return { tree, clock, poller, look, marked, listed, state }
}

t.test('[discovery/layouts.39] each look marks the files that changed since the last', async t => {
  const { tree, look } = await setUp(t, {
    'a/x.js': '',
    'a/y.js': '',
    'b/z.py': '',
    'b/notes.txt': '',
    'site/s.js': '',
    'fn.config.json': '{}',
  })
  t.same(await look(), [])
  tree.write({ 'a/x.js': 'changed', 'b/notes.txt': 'data', 'site/s.js': 'changed', 'b/fn.config.json': '{}' })
  t.same(await look(), ['a/x.js', 'b', 'b/fn.config.json'])
  utimesSync(tree.path('a/y.js'), 5, 5)
  t.same(await look(), ['a/y.js'])
  tree.write({ 'a/new.js': '', 'c/deep/n.lua': '' })
  t.same(await look(), ['', 'a/new.js'], 'a new folder is marked by the one that holds it')
  rmSync(tree.path('b'), { recursive: true })
  rmSync(tree.path('a/x.js'))
  t.same(await look(), ['', 'a/x.js'])
  t.same(await look(), [])
})

t.test('[discovery/layouts.38, discovery/layouts.39] closed, it looks no more', async t => {
  const { tree, clock, poller, marked } = await setUp(t, { 'a.js': '' })
  tree.write({ 'a.js': 'changed' })
  poller.close()
  t.equal(clock.pending, 0)
  clock.advance(5000)
  await new Promise(setImmediate)
  t.same(marked, [])
})

t.test('[discovery/layouts.39] a root that goes and comes back is seen', async t => {
  const { tree, look } = await setUp(t, { 'a.js': '' })
  rmSync(tree.root, { recursive: true })
  t.same(await look(), ['', 'a.js'])
  tree.write({ 'a.js': '' })
  t.same(await look(), ['', 'a.js'])
})

t.test('[discovery/layouts.50] a look lists only folders that may have changed', async t => {
  const { tree, look, listed, state } = await setUp(t, {
    'a/x.js': '',
    'b/deep/z.py': '',
    'site/s.js': '',
    'fn.config.json': '{}',
  })
  t.same(listed.splice(0).sort(), ['', 'a', 'b', 'b/deep'])
  t.same([await look(), listed.splice(0)], [[], []], 'nothing changed')
  tree.write({ 'b/deep/z.py': 'changed' })
  t.same([await look(), listed.splice(0)], [['b/deep/z.py'], ['b', 'b/deep']])
  state.excluded = new Set()
  t.same(
    [await look(), listed.splice(0).includes('site')],
    [['site', 'site/s.js'], true],
    'another folder may be read now',
  )
  t.same([await look(), listed.splice(0)], [[], []])
})
