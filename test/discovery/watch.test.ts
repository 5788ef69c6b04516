import { EventEmitter } from 'node:events'
import { type FSWatcher, mkdirSync, renameSync, rmSync, watch, writeFileSync } from 'node:fs'
import { basename } from 'node:path'
import t, { type Test } from 'tap'
import type { Warning } from '../../lib/core/errors.ts'
import { watchTree, type WatchOptions } from '../../lib/discovery/watch.ts'
import { makeTree, type Tree, type TreeEntry } from '../helpers/tree.ts'

const DEBOUNCE_MS = 10

/** Collects what a watcher tells; `until` waits for it. */
class Told {
  readonly paths = new Set<string>()
  readonly calls: string[][] = []
  readonly warnings: Warning[] = []
  #wake: () => void = () => {}

  readonly onChange = (paths: ReadonlySet<string>): void => {
    for (const path of paths) this.paths.add(path)
    this.calls.push([...paths].sort())
    this.#wake()
  }

  readonly onWarning = (warning: Warning): void => {
    this.warnings.push(warning)
  }

  /** Resolves when every path has been told since the last `clear`. */
  async until(...paths: string[]): Promise<void> {
    while (!paths.every(path => this.paths.has(path))) {
      await new Promise<void>(resolve => {
        this.#wake = resolve
      })
    }
  }

  clear(): void {
    this.paths.clear()
    this.calls.length = 0
  }
}

async function watching(t: Test, entries: Record<string, TreeEntry>, options: Partial<WatchOptions> = {}) {
  const tree: Tree = makeTree({
    'root/': '',
    ...Object.fromEntries(Object.entries(entries).map(([path, entry]) => [`root/${path}`, entry])),
  })
  const told = new Told()
  const { onChange, onWarning } = told
  const watcher = watchTree({ rootPath: tree.path('root'), onChange, onWarning, debounceMs: DEBOUNCE_MS, ...options })
  // The watcher keeps no process alive, this one has to wait for it.
  const alive = setInterval(() => {}, 1000)
  t.teardown(() => {
    clearInterval(alive)
    watcher.close()
    tree.cleanup()
  })
  await watcher.ready
  const write = (more: Record<string, TreeEntry>): void => {
    tree.write(Object.fromEntries(Object.entries(more).map(([path, entry]) => [`root/${path}`, entry])))
  }
  return { tree, told, watcher, write, path: (relative: string) => tree.path(`root/${relative}`) }
}

t.test('[discovery/layouts.37] written, new, renamed and deleted files and folders are told', async t => {
  const { told, write, path } = await watching(t, { 'a/x.js': '', 'b/y.py': '', 'b/c/z.lua': '' })
  write({ 'a/x.js': 'changed' })
  await told.until('a/x.js')
  told.clear()
  write({ 'a/fn.config.json': '{}', 'b/package.json': '{}' })
  await told.until('a/fn.config.json', 'b/package.json')
  told.clear()
  write({ 'n/e/w/deep.js': '' })
  await told.until('n', 'n/e', 'n/e/w')
  told.clear()
  write({ 'n/e/w/deep.js': 'in a folder that came up while watching' })
  await told.until('n/e/w/deep.js')
  told.clear()
  renameSync(path('b'), path('moved'))
  await told.until('b', 'moved', 'moved/c')
  told.clear()
  write({ 'moved/c/z.lua': 'x' })
  await told.until('moved/c/z.lua')
  told.clear()
  rmSync(path('moved/c'), { recursive: true })
  await told.until('moved/c')
  told.clear()
  rmSync(path('a'), { recursive: true })
  write({ 'a/again.js': '' })
  await told.until('a')
  told.clear()
  write({ 'a/again.js': 'in a folder made again' })
  await told.until('a/again.js')
  rmSync(path('a/again.js'))
  t.same(told.warnings, [])
})

t.test('[discovery/layouts.37] data and folders that are not read cause nothing', async t => {
  const { told, write } = await watching(
    t,
    { 'a/x.js': '', 'node_modules/p/index.js': '', 'site/s.js': '', '.git/HEAD': '' },
    { excluded: () => new Set(['site']) },
  )
  write({
    'a/data.db': 'x',
    'a/notes.txt': 'x',
    'a/.x.js.swp': 'x',
    'node_modules/p/index.js': 'x',
    'site/s.js': 'x',
    'site/new/t.js': 'x',
    '.git/HEAD': 'x',
    'vendor/v.php': 'x',
  })
  write({ 'a/x.js': 'last' })
  await told.until('a/x.js')
  t.same(told.calls, [['a/x.js']])
})

t.test('[discovery/layouts.37] linked files and folders are watched where they lead', async t => {
  const outside = makeTree({ 'pkg/lib.js': '', 'one.js': '' })
  t.teardown(outside.cleanup)
  const { told, write } = await watching(t, {
    pkg: { symlink: outside.path('pkg') },
    'one.js': { symlink: outside.path('one.js') },
    'a/up': { symlink: '..' },
  })
  outside.write({ 'pkg/lib.js': 'x' })
  await told.until('pkg/lib.js')
  outside.write({ 'one.js': 'x' })
  await told.until('one.js')
  told.clear()
  outside.write({ 'one.tmp': 'replaced at once, as editors do' })
  renameSync(outside.path('one.tmp'), outside.path('one.js'))
  await told.until('one.js')
  told.clear()
  write({ 'a/new.js': '' })
  await told.until('a/new.js')
  t.same(told.calls.flat(), ['a/new.js'], 'the loop is not followed')
})

t.test('[discovery/layouts.37] changes are told together, and during a reload afterwards', async t => {
  let finish: () => void = () => {}
  const calls: string[][] = []
  const begun: (() => void)[] = []
  const onChange = (paths: ReadonlySet<string>): Promise<void> => {
    calls.push([...paths].sort())
    begun.shift()?.()
    return new Promise(resolve => {
      finish = resolve
    })
  }
  const call = (): Promise<void> => new Promise(resolve => begun.push(resolve))
  const { write, path } = await watching(t, { 'a.js': '', 'b.js': '', 'c.js': '' }, { onChange, debounceMs: 40 })
  const first = call()
  write({ 'a.js': '1', 'b.js': '1' })
  await first
  t.same(calls, [['a.js', 'b.js']])
  const second = call()
  const probe = watch(path(''))
  t.teardown(() => probe.close())
  const seen = new Promise(resolve => probe.on('change', resolve))
  write({ 'c.js': '1' })
  await seen
  // A timer of the same length, begun later, fires later: the running reload is what holds the change back.
  await new Promise(resolve => setTimeout(resolve, 40))
  t.equal(calls.length, 1)
  finish()
  await second
  t.same(calls[1], ['c.js'])
  finish()
})

t.test('[discovery/layouts.38, discovery/layouts.36] the root goes and comes back', async t => {
  const { told, path, tree } = await watching(t, { 'a.js': '' })
  rmSync(path(''), { recursive: true })
  await told.until('')
  told.clear()
  mkdirSync(path('sub'), { recursive: true })
  writeFileSync(path('sub/b.js'), '')
  await told.until('', 'sub')
  told.clear()
  writeFileSync(path('sub/b.js'), 'x')
  await told.until('sub/b.js')
  told.clear()
  renameSync(path(''), tree.path('elsewhere'))
  await told.until('')
  writeFileSync(tree.path('elsewhere/lost.js'), '')
  told.clear()
  mkdirSync(path(''))
  await told.until('')
  told.clear()
  writeFileSync(path('c.js'), '')
  await told.until('c.js')
  t.notOk(told.paths.has('lost.js'))
})

t.test('[discovery/layouts.38] closed, it tells nothing', async t => {
  const { told, write, watcher, path } = await watching(t, { 'a.js': '' })
  const probe = watch(path(''))
  t.teardown(() => probe.close())
  const seen = new Promise(resolve => probe.on('change', resolve))
  write({ 'a.js': 'before' })
  watcher.close()
  watcher.close()
  await seen
  // Timers of one length fire in order: one of the watcher's would have fired by then.
  await new Promise(resolve => setTimeout(resolve, DEBOUNCE_MS))
  t.same(told.calls, [])
})

t.test('[discovery/layouts.39] without watches the tree is looked at', async t => {
  let left = 2
  const watchFolder = (): FSWatcher => {
    if (left-- === 0) throw Object.assign(new Error('no space'), { code: 'ENOSPC' })
    return Object.assign(new EventEmitter(), { close() {} }) as unknown as FSWatcher
  }
  const entries = { 'a/x.js': '', 'b/y.js': '', 'c/fn.config.json': '{}' }
  const { told, write, path } = await watching(t, entries, { watchFolder, pollMs: 5 })
  t.match(told.warnings, [{ code: 'WATCH_LIMITED', path: '.', message: /ENOSPC/, hint: /max_user_watches/ }])
  t.equal(told.warnings.length, 1)
  await told.until('')
  told.clear()
  write({ 'a/x.js': 'changed', 'c/fn.config.json': '{"group": "g"}', 'd/new.js': '' })
  await told.until('a', 'c', '')
  t.notOk(told.paths.has('b'))
  told.clear()
  rmSync(path('b'), { recursive: true })
  await told.until('')
})

t.test('[discovery/layouts.37] polling can be asked for', async t => {
  const { told, write } = await watching(t, { 'a/x.js': '' }, { poll: true, pollMs: 5 })
  write({ 'a/x.js': 'changed' })
  await told.until('a')
  t.same(told.warnings, [])
})

t.test('[discovery/layouts.37] one watch for each folder that is read', async t => {
  const folders: string[] = []
  const { watcher } = await watching(
    t,
    { 'a/b/x.js': '', 'a/y.js': '', 'node_modules/p/q/r.js': '', '_lib/z.js': '' },
    {
      watchFolder: (path, listener) => {
        folders.push(basename(path))
        return watch(path, { persistent: false }, listener)
      },
    },
  )
  t.same(folders.sort(), ['_lib', 'a', 'b', 'root'])
  watcher.close()
})
