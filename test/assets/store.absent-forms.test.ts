import fs, { mkdirSync, renameSync, rmSync, statSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import t, { type Test } from 'tap'
import { AssetStore, FOLDER_SETTLE_MS, lookAtFolder } from '../../lib/assets/store.ts'
import { systemClock } from '../../lib/core/clock.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'

function setUp(t: Test, files: Record<string, TreeEntry> = {}) {
  const tree = makeTree({ 'public/a.js': 'plain', ...files })
  t.teardown(tree.cleanup)
  // Ahead of the disk, so that files are old enough to be kept at once.
  const clock = { ...systemClock, aheadMs: 60_000, wall: () => Date.now() + clock.aheadMs }
  const store = new AssetStore(tree.path('public'), clock)
  /** Texts of the forms that are found. */
  const forms = async () => {
    const asset = await store.find('a.js', true)
    return [asset?.br?.body?.toString() ?? null, asset?.gzip?.body?.toString() ?? null]
  }
  return { tree, clock, store, forms }
}

type Look = (path: string, onStats: (error: Error | null, stats: fs.Stats) => void) => void

/** Looks go through the given function from now on. */
function replaceStat(t: Test, change: (own: Look) => Look): void {
  const own = fs.stat
  Object.assign(fs, { stat: change(own as unknown as Look) })
  syncBuiltinESMExports()
  t.teardown(() => {
    Object.assign(fs, { stat: own })
    syncBuiltinESMExports()
  })
}

t.test('[assets/static-assets.27] a name that comes is seen by the next look', async t => {
  const comes: [string, (path: (name: string) => string) => void, (string | null)[]][] = [
    ['a file', path => writeFileSync(path('public/a.js.br'), 'BR'), ['BR', null]],
    ['a link', path => symlinkSync('sub/far', path('public/a.js.gz')), [null, 'far']],
    ['one of another name', path => renameSync(path('public/sub/far'), path('public/a.js.br')), ['far', null]],
    [
      'another folder of that name',
      path => {
        renameSync(path('public'), path('old'))
        renameSync(path('other'), path('public'))
      },
      [null, 'GZ'],
    ],
  ]
  for (const [what, come, expected] of comes) {
    for (const aheadMs of [60_000, -60_000]) {
      const { tree, clock, forms } = setUp(t, { 'public/sub/far': 'far', 'other/a.js': 'plain', 'other/a.js.gz': 'GZ' })
      t.same(await forms(), [null, null])
      clock.aheadMs = aheadMs
      t.same(await forms(), [null, null])
      t.same(await forms(), [null, null])
      come(name => tree.path(name))
      const name = `${what}, ${aheadMs > 0 ? 'a settled folder' : 'one whose times are not reliable'}`
      t.same(await forms(), expected, name)
      t.same(await forms(), expected, `${name}, again`)
    }
  }
})

t.test('[assets/static-assets.27] a form that is there and cannot be used may turn good in its place', async t => {
  const { tree, forms } = setUp(t, {
    'public/sub/x': '',
    'public/a.js.gz': { symlink: 'sub/far' },
    'public/a.js.br': 'BR',
  })
  const [before, after] = [new Date(Date.now() - 10_000), new Date()]
  utimesSync(tree.path('public/a.js.br'), before, before)
  t.same(await forms(), [null, null], 'out of date, and a link that leads nowhere')
  t.same(await forms(), [null, null])
  // None of it changes the folder of the file.
  writeFileSync(tree.path('public/sub/far'), 'far')
  t.same(await forms(), [null, 'far'])
  utimesSync(tree.path('public/a.js.br'), after, after)
  t.same(await forms(), ['BR', 'far'])
})

t.test('[assets/static-assets.27] other names come and go', async t => {
  const { tree, forms, store } = setUp(t)
  await forms()
  const looked: string[] = []
  replaceStat(t, own => (path, onStats) => {
    looked.push(path.slice(tree.path('public').length))
    own(path, onStats)
  })
  for (const come of [() => writeFileSync(tree.path('public/b.js.br'), ''), () => mkdirSync(tree.path('public/c'))]) {
    come()
    looked.length = 0
    t.same(await forms(), [null, null])
    t.same(looked.sort(), ['', '/a.js'], 'the file and its folder')
  }
  rmSync(tree.path('public'), { recursive: true })
  t.equal(await store.find('a.js', true), null)
})

t.test('[assets/static-assets.27] each request gets a look at the folder that begins later, one at a time', async t => {
  const { tree, store } = setUp(t, { 'public/b.js': 'b', 'public/c.js': 'c' })
  for (const name of ['a.js', 'b.js', 'c.js']) await store.find(name, true)
  const open: (() => void)[] = []
  replaceStat(t, own => (path, onStats) => {
    if (path === tree.path('public')) open.push(() => own(path, onStats))
    else own(path, onStats)
  })
  const turn = () => new Promise(setImmediate)
  const first = store.find('a.js', true)
  await turn()
  t.equal(open.length, 1)
  const [second, third] = [store.find('b.js', true), store.find('c.js', true)]
  await turn()
  t.equal(open.length, 1, 'a look that is under way may have seen what was before')
  open.shift()!()
  t.ok(await first)
  await turn()
  t.equal(open.length, 1, 'one for both')
  open.shift()!()
  t.ok((await second) && (await third))
  t.equal(open.length, 0)
})

t.test(
  '[assets/static-assets.27] times are settled two seconds after the last change, by the clock before the look',
  async t => {
    const { tree } = setUp(t)
    const path = tree.path('public')
    const { ctimeMs } = statSync(path)
    const isSettled = async (at: number, atEnd = at) => {
      const readings = [at, atEnd]
      return (await lookAtFolder(path, { wall: () => readings.shift() ?? atEnd }))?.isSettled
    }
    t.equal(await isSettled(ctimeMs + FOLDER_SETTLE_MS), true)
    t.equal(await isSettled(ctimeMs + FOLDER_SETTLE_MS - 1), false)
    t.equal(await isSettled(ctimeMs - 1000), false, 'a clock that is behind')
    t.equal(await isSettled(ctimeMs, ctimeMs + FOLDER_SETTLE_MS), false, 'a look that took long')
    const later = ctimeMs / 1000 + 100
    utimesSync(path, later, later)
    t.equal(await isSettled(ctimeMs + FOLDER_SETTLE_MS + 1000), false, 'the later of both times')
    t.equal(await lookAtFolder('/nowhere/at/all', systemClock), null)
  },
)
