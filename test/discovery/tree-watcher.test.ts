import { type FSWatcher, mkdirSync, renameSync, rmSync, watch, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import t, { type Test } from 'tap'
import { systemClock } from '../../lib/core/clock.ts'
import { ChangeQueue } from '../../lib/discovery/watch.ts'
import type { DirNode } from '../../lib/discovery/snapshot.ts'
import { TreeWatcher, type TreeWatchOptions, watchPlain } from '../../lib/discovery/tree-watcher.ts'
import { ReadTree, snapshotOf } from '../helpers/discovery.ts'
import { makeTree, type Tree, type TreeEntry } from '../helpers/tree.ts'

/** Collects what a watcher marks, as it is told later; `until` waits for it. */
class LineMessage {
  readonly paths = new Set<string>()
  readonly #queue = new ChangeQueue({
    clock: systemClock,
    delayMs: 10,
    isHalfSaved: () => false,
    onChange: paths => {
      this.reload(paths)
      for (const path of paths) this.paths.add(path)
      this.#wake()
    },
  })
  #wake: () => void = () => {}
  /** Reads the tree again, as a gateway does. */
  reload: (paths: ReadonlySet<string>) => void = () => {}

  readonly mark = (path: string): void => this.#queue.add(path)

  /** Resolves when every path has been marked since the last `clear`. */
  async until(...paths: string[]): Promise<void> {
    while (!paths.every(path => this.paths.has(path))) {
      await new Promise<void>(resolve => {
        this.#wake = resolve
      })
    }
  }

  clear(): void {
    this.paths.clear()
  }
}

async function watching(t: Test, entries: Record<string, TreeEntry>, options: Partial<TreeWatchOptions> = {}) {
  const tree: Tree = makeTree({
    'root/': '',
    ...Object.fromEntries(Object.entries(entries).map(([path, entry]) => [`root/${path}`, entry])),
  })
  const told = new LineMessage()
  const read = new ReadTree(tree.path('root'))
  let watcher!: TreeWatcher
  told.reload = paths => {
    read.read(paths)
    watcher.sync()
  }
  await new Promise<void>(onReady => {
    watcher = new TreeWatcher({
      clock: systemClock,
      rootPath: tree.path('root'),
      snapshot: () => read.snapshot,
      watchFolder: watchPlain,
      mark: told.mark,
      onReady,
      onLimit: code => t.fail(code),
      ...options,
    })
  })
  // The watcher keeps no process alive, this one has to wait for it.
  const alive = setInterval(() => {}, 1000)
  t.teardown(() => {
    clearInterval(alive)
    watcher.close()
    tree.cleanup()
  })
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
  await told.until('n')
  told.clear()
  write({ 'n/e/w/deep.js': 'in a folder that came up while watching' })
  await told.until('n/e/w/deep.js')
  told.clear()
  renameSync(path('b'), path('moved'))
  await told.until('b', 'moved')
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
})

t.test('[discovery/layouts.37] data and folders that are not read cause nothing', async t => {
  const { told, write } = await watching(t, {
    'a/x.js': '',
    'node_modules/p/index.js': '',
    'site/s.js': '',
    '.git/HEAD': '',
    'fn.config.json': '{"assets": {"directory": "site"}}',
  })
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
  t.same([...told.paths], ['a/x.js'])
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
  t.same([...told.paths], ['a/new.js'], 'the loop is not followed')
})

t.test('[discovery/layouts.38, discovery/layouts.36] the root goes and comes back', async t => {
  const { told, path, tree } = await watching(t, { 'a.js': '' })
  rmSync(path(''), { recursive: true })
  await told.until('')
  told.clear()
  mkdirSync(path('sub'), { recursive: true })
  writeFileSync(path('sub/b.js'), '')
  await told.until('')
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

t.test('[discovery/layouts.37] one watch for each folder that is read', async t => {
  const folders: string[] = []
  const listeners = new Set<unknown>()
  const { watcher } = await watching(
    t,
    { 'a/b/x.js': '', 'a/y.js': '', 'node_modules/p/q/r.js': '', '_lib/z.js': '' },
    {
      watchFolder: (path, listener) => {
        folders.push(basename(path))
        listeners.add(listener)
        return watch(path, { persistent: false }, listener)
      },
    },
  )
  t.same(folders.sort(), ['_lib', 'a', 'b', 'root'])
  watcher.close()
})

t.test('[discovery/layouts.37] a folder is watched when discovery reads it, wherever links lead', async t => {
  const watched: string[] = []
  const { tree } = await watching(
    t,
    {
      'a/x.js': '',
      'a/rootlink': { symlink: '/' },
      'a/self': { symlink: '.' },
      'a/up': { symlink: '../..' },
      'b/peer': { symlink: '../a' },
      'b/out': { symlink: '../../outside' },
      'fn.config.json/x.js': '',
      'node_modules/p/index.js': '',
      '_lib/deep/y.js': '',
    },
    {
      watchFolder: (folder, listener) => {
        watched.push(folder)
        if (watched.length > 100) throw new Error('too many')
        return watchPlain(folder, listener)
      },
    },
  )
  const root = tree.path('root')
  const read = (node: DirNode): string[] =>
    node.skipped === null ? [join(root, node.path), ...node.dirs.flatMap(read)] : []
  t.same(watched.sort(), read(snapshotOf(root).root).sort())
  t.equal(watched.length, 6)
})

t.test('[discovery/layouts.37] a folder whose watch fails is watched again when it comes back', async t => {
  const open = new Map<string, FSWatcher>()
  const { told, path, write } = await watching(
    t,
    { 'a/b/x.js': '', 'c/y.js': '' },
    {
      watchFolder: (path, listener) => {
        const watcher = watch(path, { persistent: false }, listener)
        open.set(basename(path), watcher)
        return watcher
      },
    },
  )
  const before = open.get('b')
  open.get('a')!.emit('error', new Error('failed'))
  write({ 'c/y.js': '1' })
  await told.until('c/y.js')
  renameSync(path('a'), path('d'))
  await told.until('d')
  t.not(open.get('b'), before)
  told.clear()
  write({ 'd/b/x.js': '1' })
  await told.until('d/b/x.js')
})

t.test('[discovery/layouts.39] without watches left it closes and says so', async t => {
  let left = 2
  let closed = 0
  const watchFolder = (): FSWatcher => {
    if (left-- === 0) throw Object.assign(new Error('no space'), { code: 'ENOSPC' })
    return { close: () => closed++, on: () => {} } as unknown as FSWatcher
  }
  const tree = makeTree({ 'a/x.js': '', 'b/y.js': '' })
  t.teardown(tree.cleanup)
  const codes: string[] = []
  const watcher = new TreeWatcher({
    clock: systemClock,
    rootPath: tree.root,
    snapshot: () => snapshotOf(tree.root),
    watchFolder,
    mark: path => t.fail(path),
    onReady: () => t.fail('ready'),
    onLimit: code => codes.push(code),
  })
  t.same(codes, ['ENOSPC'])
  t.equal(closed, 2)
  watcher.close()
})

t.test(
  '[discovery/layouts.37, discovery/layouts.32] folders that are excluded no longer are watched after a look',
  async t => {
    const config = (directory: string) => ({ 'fn.config.json': JSON.stringify({ assets: { directory } }) })
    const { told, write } = await watching(t, { ...config('site'), 'site/s.js': '', 'a.js': '', 'web/w.js': '' })
    write(config('web'))
    await told.until('fn.config.json')
    told.clear()
    write({ 'web/w.js': 'x', 'site/s.js': 'x' })
    await told.until('site/s.js')
    t.notOk(told.paths.has('web/w.js'), 'one that is excluded now is not')
  },
)
