import fs, { chmodSync, mkdirSync, statSync, symlinkSync, utimesSync } from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import t, { type Test } from 'tap'
import { ASSET_TRUST, AssetStore, MAX_CACHED_ASSET_BYTES, toFileTrouble } from '../../lib/assets/store.ts'
import { systemClock } from '../../lib/core/clock.ts'
import { GatewayError } from '../../lib/core/errors.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'

/** Ahead of the disk, so that files are old enough to be kept at once. */
const LATE_CLOCK = { ...systemClock, wall: () => Date.now() + 60_000 }

const find = (store: AssetStore, name: string, wantsCoding = true) => store.find(name, wantsCoding)

function makeStore(t: Test, files: Record<string, TreeEntry>) {
  const tree = makeTree(files)
  t.teardown(tree.cleanup)
  mkdirSync(tree.path('public'), { recursive: true })
  const store = new AssetStore(tree.path('public'), LATE_CLOCK)
  const read = async (name: string, wantsCoding = true) => {
    const asset = await find(store, name, wantsCoding)
    return asset === null ? null : (asset.plain.body?.toString() ?? 'large')
  }
  return { tree, store, read }
}

t.test('[assets/static-assets.1, assets/static-assets.9] files and folders that exist', async t => {
  const { tree, read } = makeStore(t, {
    'public/a.txt': 'a',
    'public/sub/index.html': 'sub',
    'public/empty/x/y.txt': 'y',
    'public/index.html': 'root',
  })
  for (const [name, text] of [
    ['a.txt', 'a'],
    ['sub', 'sub'],
    ['sub/', 'sub'],
    ['', 'root'],
    ['empty', null],
    ['missing', null],
    ['a.txt/x', null],
    ['x'.repeat(300), null],
  ] as const) {
    t.equal(await read(name), text, JSON.stringify(name.slice(0, 20)))
    t.equal(await read(name, false), text, 'again, from memory where it is')
  }
  tree.remove('public')
  t.equal(await read('a.txt'), null, 'the directory is gone')
})

t.test('[assets/static-assets.8, assets/static-assets.9] links count by where they lead', async t => {
  const { tree, read } = makeStore(t, {
    'public/a.txt': 'a',
    'public/.hidden/b.txt': 'secret',
    'outside/c.txt': 'secret',
    'public-not/d.txt': 'secret',
  })
  const link = (target: string, name: string) => symlinkSync(tree.path(target), tree.path(`public/${name}`))
  link('public/a.txt', 'inside.txt')
  link('public/.hidden/b.txt', 'hidden.txt')
  link('outside/c.txt', 'outside.txt')
  link('public-not/d.txt', 'neighbour.txt')
  link('outside', 'folder')
  link('public/loop', 'loop')
  link('dev-null', 'dangling')
  symlinkSync('/dev/null', tree.path('public/device'))
  for (const [name, text] of [
    ['inside.txt', 'a'],
    ['hidden.txt', null],
    ['outside.txt', null],
    ['neighbour.txt', null],
    ['folder/c.txt', null],
    ['loop', null],
    ['dangling', null],
    ['device', null],
  ] as const)
    t.equal(await read(name), text, name)
  // A directory that is a link itself is served as what it leads to.
  symlinkSync(tree.path('outside'), tree.path('mount'))
  t.equal((await find(new AssetStore(tree.path('mount'), LATE_CLOCK), 'c.txt'))?.plain.body?.toString(), 'secret')
})

t.test('[assets/static-assets.22, assets/static-assets.23] compressed files beside a file', async t => {
  const { tree, store } = makeStore(t, { 'public/a.js': 'plain', 'public/a.js.br': 'BR', 'public/a.js.gz/x': 'folder' })
  const forms = async (wantsCoding = true) => {
    const asset = await find(store, 'a.js', wantsCoding)
    return [asset?.br?.body?.toString() ?? null, asset?.gzip?.body?.toString() ?? null]
  }
  t.same(await forms(), ['BR', null], 'a folder is not a form')
  tree.remove('public/a.js.gz')
  tree.write({ 'public/a.js.gz': 'GZ' })
  t.same(await forms(), ['BR', 'GZ'], 'a new one is seen')
  const old = new Date(Date.now() - 10_000)
  utimesSync(tree.path('public/a.js.br'), old, old)
  t.same(await forms(), [null, 'GZ'], 'out of date')
  tree.remove('public/a.js.gz')
  t.same(await forms(), [null, null], 'gone')
  tree.write({ 'public/b.js.br': 'own', 'public/b.js.br.br': 'twice' })
  t.match(await find(store, 'b.js.br'), { br: null, plain: { meta: { coding: null } } }, 'not compressed again')
})

t.test('[assets/static-assets.16] memory is bounded, and a file that just changed is not kept', async t => {
  const tree = makeTree({ 'index.html': 'x' })
  t.teardown(tree.cleanup)
  tree.write({ 'now.txt': 'now' })
  const justNow = statSync(tree.path('now.txt')).ctimeMs + 10
  const fresh = new AssetStore(tree.root, { ...systemClock, wall: () => justNow })
  await find(fresh, 'now.txt')
  t.equal(fresh.cachedBytes, 0)
  const store = new AssetStore(tree.root, LATE_CLOCK)
  const block = Buffer.alloc(MAX_CACHED_ASSET_BYTES)
  for (let i = 0; i < 70; i++) tree.write({ [`${i}.bin`]: block })
  for (let i = 0; i < 70; i++) t.equal((await find(store, `${i}.bin`))?.plain.body?.length, block.length)
  t.equal(store.cachedBytes, 64 * MAX_CACHED_ASSET_BYTES)
  tree.write({ 'large.bin': Buffer.alloc(MAX_CACHED_ASSET_BYTES + 1) })
  t.equal((await find(store, 'large.bin'))?.plain.body, null)
  for (let i = 0; i < 70; i++) tree.write({ [`${i}.bin`]: 'small' })
  for (let i = 0; i < 70; i++) await find(store, `${i}.bin`)
  t.equal(store.cachedBytes, 70 * 'small'.length, 'what is replaced is not counted any more')
  // Requests of one moment share what is found.
  const [a, b] = await Promise.all([find(store, 'index.html'), find(store, 'index.html')])
  t.equal(a, b)
})

t.test('[assets/static-assets.16] requests of one moment share a look, and are answered in order', async t => {
  const { store } = makeStore(t, { 'public/a.txt': 'a' })
  const seen: string[] = []
  const ask = (label: string, wantsCoding: boolean) =>
    store.find('a.txt', wantsCoding).then(() => {
      seen.push(label)
    })
  await Promise.all([ask('one', true), ask('two', true), ask('plain', false)])
  t.ok(seen.indexOf('one') < seen.indexOf('two'), 'in order')
  t.equal(seen.length, 3)
})

t.test('[assets/static-assets.12] trouble is not absence', async t => {
  for (const code of ['ENOENT', 'ENOTDIR', 'EACCES', 'ELOOP', 'ENAMETOOLONG'])
    t.equal(toFileTrouble(Object.assign(new Error(), { code })), null, code)
  for (const code of ['EMFILE', 'ENFILE', 'EIO', 'ENOMEM'])
    t.match(toFileTrouble(Object.assign(new Error(), { code })), { status: 503 }, code)
})

t.test(
  '[assets/static-assets.12] an error of the gateway is passed on, and one of the system reaches the request',
  async t => {
    const own = new GatewayError('INTERNAL', 'file keeps changing', { status: 503 })
    t.equal(toFileTrouble(own), own)
    t.match(toFileTrouble(new Error('odd')), { status: 503, message: 'file cannot be read now' })
    if (process.getuid?.() === 0) return
    const { tree, read } = makeStore(t, { 'public/a.txt': 'a' })
    chmodSync(tree.path('public/a.txt'), 0)
    t.equal(await read('a.txt'), null)
  },
)

t.test('[assets/static-assets.16] a file that is asked for all the time is looked at now and then', async t => {
  const tree = makeTree({ 'a.js': 'one', 'b.js': 'other' })
  t.teardown(tree.cleanup)
  let now = 1000
  const store = new AssetStore(tree.root, { ...LATE_CLOCK, monotonic: () => now })
  const recall = (wantsCoding = false) => store.recall('a.js', wantsCoding)?.plain.body?.toString() ?? null
  t.equal(recall(), null, 'not known')
  await find(store, 'a.js')
  for (let i = 0; i < ASSET_TRUST.asks; i++) t.equal(recall(), null, 'few requests are no load')
  t.equal(recall(), 'one')
  tree.write({ 'a.js': 'two' })
  t.equal(recall(), 'one', 'for a moment')
  t.equal(store.recall('b.js', false), null, 'another file is another matter')
  now += ASSET_TRUST.ms
  t.equal(recall(), 'one', 'at its end')
  now += 1
  t.equal(recall(), null, 'and no longer')
  t.equal((await find(store, 'a.js', false))?.plain.body?.toString(), 'two')
  for (let i = 0; i < ASSET_TRUST.asks * 2; i++) recall()
  t.equal(recall(), 'two')
  // Halfway a look begins beside the answers, and the file is known again for as long.
  now += ASSET_TRUST.ms / 2 + 1
  tree.write({ 'a.js': 'three' })
  t.equal(recall(), 'two', 'the answer does not wait for it')
  while (recall() === 'two') await new Promise(setImmediate)
  t.equal((await find(store, 'a.js', false))?.plain.body?.toString(), 'three')
  // After a pause many requests of long ago count for nothing.
  for (let i = 0; i < ASSET_TRUST.asks * 2; i++) recall()
  now += ASSET_TRUST.ms * 3
  await find(store, 'a.js', false)
  t.equal(recall(), null)
})

t.test('[assets/static-assets.16, assets/static-assets.22] compressed forms have a moment of their own', async t => {
  const tree = makeTree({ 'a.js': 'plain' })
  t.teardown(tree.cleanup)
  let now = 1000
  const store = new AssetStore(tree.root, { ...LATE_CLOCK, monotonic: () => now })
  const ask = (wantsCoding: boolean) => store.recall('a.js', wantsCoding)
  await find(store, 'a.js')
  for (let i = 0; i < ASSET_TRUST.asks * 2; i++) ask(false)
  t.ok(ask(true))
  now += ASSET_TRUST.ms + 1
  await find(store, 'a.js', false)
  for (let i = 0; i < ASSET_TRUST.asks * 2; i++) ask(false)
  t.ok(ask(false), 'the file itself was looked at')
  t.equal(ask(true), null, 'what lies beside it was not')
})

/** Counts looks at the disk from now on, by the names below a folder. */
function countLooks(t: Test, root: string): Map<string, number> {
  const looks = new Map<string, number>()
  const own = { stat: fs.stat, lstat: fs.lstat }
  type Look = (path: string, onStats: (error: Error | null, stats: fs.Stats) => void) => void
  const counting =
    (look: Look): Look =>
    (path, onStats) => {
      const name = path.slice(root.length + 1)
      looks.set(name, (looks.get(name) ?? 0) + 1)
      look(path, onStats)
    }
  const use = (functions: object): void => {
    Object.assign(fs, functions)
    syncBuiltinESMExports()
  }
  use({ stat: counting(own.stat), lstat: counting(own.lstat) })
  t.teardown(() => use(own))
  return looks
}

t.test('[assets/static-assets.27] many files of a folder cost a look each, and the folder a few for all', async t => {
  const names = Array.from({ length: 40 }, (_, i) => `${i}.bin`)
  const { tree, store } = makeStore(t, {
    ...Object.fromEntries(names.map(name => [`public/many/${name}`, 'x'])),
    'public/many/0.bin.br': 'BR',
    'public/many/1.bin.gz': { symlink: 'nowhere' },
  })
  const looks = countLooks(t, tree.path('public'))
  const findAll = () => {
    looks.clear()
    return Promise.all(names.map(name => find(store, `many/${name}`)))
  }
  await findAll()
  await findAll()
  for (const name of names) t.equal(looks.get(`many/${name}`), 1, name)
  t.same([looks.get('many/0.bin.br'), looks.get('many/1.bin.gz')], [1, 1], 'what is there is looked at itself')
  t.ok(looks.get('many')! <= 2, 'who asks meanwhile shares the next look')
  t.equal(looks.size, names.length + 3, 'nothing else')
  // One name more: each is looked for once, and the folder is known again.
  tree.write({ 'public/many/2.bin.br': 'NEW' })
  const found = await findAll()
  t.equal(found[2]?.br?.body?.toString(), 'NEW')
  await findAll()
  t.equal(looks.size, names.length + 4)
  looks.clear()
  await find(store, 'many/5.bin', false)
  t.equal(looks.size, 1, 'who takes no compressed form')
})
