import { EventEmitter } from 'node:events'
import type { FSWatcher } from 'node:fs'
import { dirname } from 'node:path'
import { renameSync, rmSync } from 'node:fs'
import t from 'tap'
import { systemClock } from '../../lib/core/clock.ts'
import { MAX_WATCHED_FOLDERS, OutsideWatcher, type OutsideWatchOptions } from '../../lib/discovery/loaded-files.ts'
import { type WatchFolder, watchPlain } from '../../lib/discovery/tree-watcher.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeTree } from '../helpers/tree.ts'

/** Watches that a test fires; `limit` of them can be made. */
function fakeWatches(limit = Number.POSITIVE_INFINITY) {
  const open = new Map<string, (event: string, fileName: string | null) => void>()
  const watchFolder: WatchFolder = (path, listener) => {
    if (open.size >= limit) throw Object.assign(new Error('no space'), { code: 'ENOSPC' })
    open.set(path, listener)
    return Object.assign(new EventEmitter(), { close: () => open.delete(path) }) as unknown as FSWatcher
  }
  return { open, watchFolder }
}

function setUp(t: { teardown: (fn: () => void) => void }, options: Partial<OutsideWatchOptions> = {}) {
  const tree = makeTree({ 'a/x.js': '', 'a/y.js': '', 'b/z.js': '' })
  const clock = new FakeClock()
  const marked: string[] = []
  const limits: string[] = []
  const changed = new Set<string>()
  const watcher = new OutsideWatcher({
    clock,
    everyMs: 1000,
    isCovered: () => false,
    isChanged: file => changed.delete(file),
    watchFolder: watchPlain,
    mark: file => marked.push(file.slice(tree.root.length + 1)),
    onLimit: code => limits.push(code),
    ...options,
  })
  t.teardown(() => {
    watcher.close()
    tree.cleanup()
  })
  const follow = (...files: string[]): void => {
    const folders = new Map<string, Set<string>>()
    for (const file of files.map(tree.path)) {
      folders.set(dirname(file), new Set([...(folders.get(dirname(file)) ?? []), file]))
    }
    watcher.follow(folders)
  }
  return { tree, clock, marked, limits, changed, watcher, follow, take: () => marked.splice(0) }
}

t.test('[discovery/layouts.46] a folder of loaded files is watched for these files alone', async t => {
  const { open, watchFolder } = fakeWatches()
  const { tree, follow, take } = setUp(t, { watchFolder })
  follow('a/x.js')
  const fire = open.get(tree.path('a'))!
  fire('change', 'x.js')
  fire('rename', 'y.js')
  fire('change', 'new.txt')
  t.same(take(), ['a/x.js'])
  follow('a/x.js', 'a/y.js', 'b/z.js')
  t.equal(open.get(tree.path('a')), fire, 'the watch stays')
  fire('change', 'y.js')
  t.same(take(), ['a/y.js'])
  follow('b/z.js')
  t.same([...open.keys()], [tree.path('b')])
})

t.test('[discovery/layouts.46] an event without a name is looked into', async t => {
  const { open, watchFolder } = fakeWatches()
  const { tree, follow, changed, take } = setUp(t, { watchFolder })
  follow('a/x.js', 'a/y.js')
  changed.add(tree.path('a/y.js'))
  open.get(tree.path('a'))!('change', null)
  t.same(take(), ['a/y.js'])
})

t.test('[discovery/layouts.46] covered folders need no watch', async t => {
  const { open, watchFolder } = fakeWatches()
  const { tree, follow, clock } = setUp(t, { watchFolder, isCovered: folder => folder.endsWith('/a') })
  follow('a/x.js', 'b/z.js')
  t.same([...open.keys()], [tree.path('b')])
  follow('a/x.js')
  t.equal(open.size, 0)
  clock.advance(1000)
  t.equal(clock.pending, 0, 'with nothing to watch nothing is looked at')
})

t.test('[discovery/layouts.46, discovery/layouts.39] beyond the watches there are, files are looked at', async t => {
  const { open, watchFolder } = fakeWatches(1)
  const { tree, follow, clock, changed, limits, take } = setUp(t, { watchFolder })
  follow('a/x.js', 'b/z.js')
  follow('a/x.js', 'a/y.js', 'b/z.js')
  t.same(limits, ['ENOSPC'], 'told once')
  t.same([...open.keys()], [tree.path('a')])
  changed.add(tree.path('b/z.js'))
  clock.advance(999)
  t.same(take(), [])
  clock.advance(1)
  t.same(take(), ['b/z.js'])
  clock.advance(1000)
  t.same(take(), [])
})

t.test('[discovery/layouts.46] so many folders have a watch, the others are looked at', async t => {
  const { open, watchFolder } = fakeWatches()
  const { tree, follow, clock, changed, limits, take } = setUp(t, { watchFolder })
  const files = Array.from({ length: MAX_WATCHED_FOLDERS + 3 }, (_, index) => `many/${index}/x.js`)
  tree.write(Object.fromEntries(files.map(file => [file, ''])))
  follow(...files)
  t.equal(open.size, MAX_WATCHED_FOLDERS)
  t.same(limits, [])
  changed.add(tree.path(files.at(-1)!))
  clock.advance(1000)
  t.same(take(), [files.at(-1)])
})

t.test('[discovery/layouts.46] a folder made anew is watched anew', async t => {
  const { open, watchFolder } = fakeWatches()
  const { tree, follow, clock, changed, take } = setUp(t, { watchFolder })
  follow('a/x.js')
  const first = open.get(tree.path('a'))
  renameSync(tree.path('a'), tree.path('old'))
  clock.advance(1000)
  t.equal(open.size, 0, 'there is none')
  tree.write({ 'a/x.js': 'new' })
  changed.add(tree.path('a/x.js'))
  clock.advance(1000)
  t.same(take(), ['a/x.js'])
  t.not(open.get(tree.path('a')), first)
  open.get(tree.path('a'))!('change', 'x.js')
  t.same(take(), ['a/x.js'])
})

t.test('[discovery/layouts.38, discovery/layouts.46] closed, it watches nothing', async t => {
  const { open, watchFolder } = fakeWatches()
  const { tree, follow, clock, changed, watcher, take } = setUp(t, { watchFolder })
  follow('a/x.js')
  const fire = open.get(tree.path('a'))!
  watcher.close()
  fire('change', 'x.js')
  follow('b/z.js')
  changed.add(tree.path('a/x.js'))
  clock.advance(5000)
  t.same(take(), [])
  t.equal(open.size, 0)
  t.equal(clock.pending, 0)
})

t.test('[discovery/layouts.46] with watches of the system, editors that replace files are seen', async t => {
  const seen: string[] = []
  let wake: () => void = () => {}
  const mark = (file: string): void => {
    seen.push(file)
    wake()
  }
  const { tree, follow } = setUp(t, { clock: systemClock, mark })
  const alive = setInterval(() => {}, 1000)
  t.teardown(() => clearInterval(alive))
  const next = (): Promise<void> =>
    new Promise(resolve => {
      wake = resolve
    })
  follow('a/x.js')
  const written = next()
  tree.write({ 'a/x.js': 'changed' })
  await written
  const replaced = next()
  tree.write({ 'a/x.tmp': 'replaced' })
  renameSync(tree.path('a/x.tmp'), tree.path('a/x.js'))
  await replaced
  t.ok(seen.every(file => file === tree.path('a/x.js')))
  rmSync(tree.path('a'), { recursive: true })
})
