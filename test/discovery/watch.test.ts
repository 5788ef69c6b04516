import { EventEmitter } from 'node:events'
import { type FSWatcher, rmSync, truncateSync, watch } from 'node:fs'
import t, { type Test } from 'tap'
import type { Warning } from '../../lib/core/errors.ts'
import { LoadedFiles } from '../../lib/discovery/loaded-files.ts'
import { FileWatcher, type WatchOptions } from '../../lib/discovery/watch.ts'
import { FakeClock } from '../helpers/clock.ts'
import { ReadTree } from '../helpers/discovery.ts'
import { makeFn } from '../helpers/fn.ts'
import { makeTree, type Tree, type TreeEntry } from '../helpers/tree.ts'

const DEBOUNCE_MS = 10

/** Collects the reports of a watcher; `until` waits for them. */
class LineMessage {
  readonly paths = new Set<string>()
  readonly calls: string[][] = []
  readonly warnings: Warning[] = []
  #wake: () => void = () => {}

  readonly onChange = (changed: ReadonlySet<string> | null): void => {
    const paths = changed ?? new Set(['everything'])
    for (const path of paths) this.paths.add(path)
    this.calls.push([...paths].sort())
    this.#wake()
  }

  readonly onWarning = (warning: Warning): void => {
    this.warnings.push(warning)
  }

  /** Resolves when every path has been reported since the last `clear`. */
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
  const told = new LineMessage()
  const read = new ReadTree(tree.path('root'))
  const { onChange = told.onChange, ...more } = options
  const watcher = new FileWatcher({
    rootPath: tree.path('root'),
    tree: read,
    onChange: paths => {
      read.read(paths)
      return onChange(paths)
    },
    onWarning: told.onWarning,
    debounceMs: DEBOUNCE_MS,
    ...more,
  })
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

t.test('[discovery/layouts.37] changes are reported together, and during a reload afterwards', async t => {
  let finish: () => void = () => {}
  const calls: string[][] = []
  const begun: (() => void)[] = []
  const onChange = (paths: ReadonlySet<string> | null): Promise<void> => {
    calls.push([...(paths ?? [])].sort())
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

t.test('[discovery/layouts.38] closed, it reports nothing', async t => {
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
  write({ 'a/x.js': 'changed', 'c/fn.config.json': '{"group": "g"}', 'd/new.js': '' })
  await told.until('everything')
  told.clear()
  rmSync(path('b'), { recursive: true })
  await told.until('everything')
})

/** Resolves when a change of a file in a folder has reached every watcher of this process that was there before. */
function seen(folder: string, fileName: string): Promise<void> {
  return new Promise(resolve => {
    const probe = watch(folder, (_event, name) => {
      if (name !== fileName) return
      probe.close()
      resolve()
    })
  })
}

t.test(
  '[discovery/layouts.44] a half written file is reported when it is whole, with all that changed meanwhile',
  async t => {
    const text = 'export const handler = () => ({ status: 200 })\n'
    const clock = new FakeClock()
    const { told, write, path } = await watching(t, { 'a.js': text, 'b.js': text }, { clock, debounceMs: 25 })
    const truncated = seen(path(''), 'a.js')
    write({ 'b.js': `${text}// saved together` })
    truncateSync(path('a.js'))
    await truncated
    clock.advance(25)
    t.same(told.calls, [], 'the empty file holds both')
    const whole = seen(path(''), 'a.js')
    write({ 'a.js': `${text}// whole` })
    await whole
    clock.advance(99)
    t.same(told.calls, [])
    clock.advance(1)
    t.same(told.calls, [['a.js', 'b.js']])
  },
)

t.test('[discovery/layouts.44] a file that stays short was meant so', async t => {
  const clock = new FakeClock()
  const { told, path } = await watching(t, { 'a.js': 'x'.repeat(50) }, { clock, debounceMs: 25 })
  const truncated = seen(path(''), 'a.js')
  truncateSync(path('a.js'))
  await truncated
  clock.advance(125)
  t.same(told.calls, [['a.js']])
})

t.test('[discovery/layouts.37] an ordinary save waits once', async t => {
  const clock = new FakeClock()
  const { told, write, path } = await watching(t, { 'a.js': '' }, { clock, debounceMs: 25 })
  const saved = seen(path(''), 'a.js')
  write({ 'a.js': 'export const handler = () => 1\n' })
  await saved
  clock.advance(25)
  t.same(told.calls, [['a.js']])
})

t.test('[discovery/layouts.46] files that functions loaded are reported with the changes of the tree', async t => {
  const outside = makeTree({ 'lib/x.js': 'x', 'lib/other.js': '' })
  t.teardown(outside.cleanup)
  const clock = new FakeClock()
  const fn = makeFn({ name: 'one' })
  const loaded = new LoadedFiles('/nowhere')
  loaded.adopt(new Map([[fn.key, fn]]))
  const { told, write, path, watcher } = await watching(
    t,
    { 'a.js': '', 'node_modules/p/y.js': '' },
    { clock, loaded, debounceMs: 25 },
  )
  loaded.report(fn, [outside.path('lib/x.js'), path('a.js'), path('node_modules/p/y.js')])
  const saved = async (folder: string, name: string, save: () => void): Promise<void> => {
    const event = seen(folder, name)
    save()
    await event
    clock.advance(25)
  }
  await saved(outside.path('lib'), 'x.js', () => outside.write({ 'lib/x.js': 'changed' }))
  t.same(told.calls, [[]], 'no file of the tree, and yet something to do')
  t.equal(loaded.revisions.get(fn.key), 1)
  await saved(outside.path('lib'), 'other.js', () => outside.write({ 'lib/other.js': 'changed' }))
  t.equal(told.calls.length, 1, 'nobody loaded that')
  await saved(path('node_modules/p'), 'y.js', () => write({ 'node_modules/p/y.js': 'changed' }))
  t.same(told.calls, [[], []], 'in a folder that discovery does not read')
  await saved(path(''), 'a.js', () => write({ 'a.js': 'changed' }))
  t.same(told.calls, [[], [], ['a.js']])
  t.equal(loaded.revisions.get(fn.key), 2)
  await saved(outside.path('lib'), 'x.js', () => truncateSync(outside.path('lib/x.js')))
  t.equal(told.calls.length, 3, 'half saved: it waits')
  clock.advance(100)
  t.equal(told.calls.length, 4)
  watcher.close()
})
