import { chmodSync, chownSync, mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import t from 'tap'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import { findClosedFolder, FunctionUsers } from '../../lib/runtime/function-users.ts'
import { makeFn } from '../helpers/fn.ts'
import { makeTree, type Tree } from '../helpers/tree.ts'

const RANGE = { first: 20_000, last: 29_999 }
const NO_ROOT = process.geteuid?.() === 0 ? false : 'giving folders to users needs root'

const toMap = (...functions: FunctionVersion[]) => new Map(functions.map(fn => [fn.key, fn]))

function fnIn(tree: Tree, name: string, version: string | null = null): FunctionVersion {
  mkdirSync(tree.path(name), { recursive: true })
  return makeFn({ name, version, fnDir: tree.path(name), entryPath: tree.path(`${name}/handler.js`) })
}

function uidsOf(users: FunctionUsers, functions: readonly FunctionVersion[], sockets: string): number[] {
  return functions.map(fn => users.userOf(fn, sockets).uid)
}

t.test(
  '[runtime/isolation.5] each function and version has an id, the same after restarts',
  { skip: NO_ROOT },
  async t => {
    const tree = makeTree({ 'sockets/': '' })
    t.teardown(() => tree.cleanup())
    const functions = Array.from({ length: 300 }, (_, i) => fnIn(tree, `f${i}`))
    functions.push(fnIn(tree, 'f0', 'v2'))
    const first = new FunctionUsers(RANGE, tree.root)
    t.same(first.retain(toMap(...functions)), [])
    const uids = uidsOf(first, functions, tree.path('sockets'))
    t.equal(new Set(uids).size, functions.length)
    t.ok(uids.every(uid => uid >= RANGE.first && uid <= RANGE.last))
    t.equal(statSync(tree.path('.svc/isolation.json')).mode & 0o777, 0o600)

    const second = new FunctionUsers(RANGE, tree.root)
    second.retain(toMap(...[...functions].reverse()))
    t.same(uidsOf(second, functions, tree.path('sockets')), uids, 'whatever the order')
    second.retain(toMap(functions[5]!))
    second.retain(toMap(...functions))
    t.same(uidsOf(second, functions, tree.path('sockets')), uids, 'also one that was gone for a while')
    writeFileSync(tree.path('.svc/isolation.json'), '{"users": {"node/f0@default": "x", "node/f1@default": 5')
    const broken = new FunctionUsers(RANGE, tree.root)
    broken.retain(toMap(...functions))
    t.equal(new Set(uidsOf(broken, functions, tree.path('sockets'))).size, functions.length)
  },
)

t.test(
  '[runtime/isolation.5] [runtime/isolation.9] the owner of a folder shares the id with no other function',
  { skip: NO_ROOT },
  async t => {
    const tree = makeTree({ 'sockets/': '' })
    t.teardown(() => tree.cleanup())
    const range = { first: 20_000, last: 20_003 }
    const other = fnIn(tree, 'other')
    const owned = fnIn(tree, 'owned')
    const users = new FunctionUsers(range, tree.root)
    users.retain(toMap(other, owned))
    const [taken] = uidsOf(users, [other], tree.path('sockets'))
    chownSync(tree.path('owned'), taken!, taken!)
    for (const [name, order] of [
      ['after a reload', users],
      ['after a restart', new FunctionUsers(range, tree.root)],
      ['of nothing known', new FunctionUsers(range, tree.path('sockets'))],
    ] as const) {
      order.retain(toMap(other, owned))
      const [otherUid, ownedUid] = uidsOf(order, [other, owned], tree.path('sockets'))
      t.equal(ownedUid, taken, name)
      t.not(otherUid, ownedUid, name)
    }
  },
)

t.test('[runtime/isolation.5] a list that gives one id twice is not believed', { skip: NO_ROOT }, async t => {
  const tree = makeTree({ 'sockets/': '' })
  t.teardown(() => tree.cleanup())
  const [a, b] = [fnIn(tree, 'a'), fnIn(tree, 'b')]
  mkdirSync(tree.path('.svc'))
  writeFileSync(
    tree.path('.svc/isolation.json'),
    JSON.stringify({ version: 1, users: { [a.key]: 20_007, [b.key]: 20_007 } }),
  )
  const users = new FunctionUsers(RANGE, tree.root)
  users.retain(toMap(a, b))
  t.equal(new Set(uidsOf(users, [a, b], tree.path('sockets'))).size, 2)
})

t.test(
  '[runtime/isolation.5] ids that run out go to those that are there; the rest is refused',
  { skip: NO_ROOT },
  async t => {
    const tree = makeTree({ 'sockets/': '' })
    t.teardown(() => tree.cleanup())
    const [a, b, c] = ['a', 'b', 'c'].map(name => fnIn(tree, name)) as [
      FunctionVersion,
      FunctionVersion,
      FunctionVersion,
    ]
    const users = new FunctionUsers({ first: 20_000, last: 20_001 }, tree.root)
    users.retain(toMap(a, b, c))
    t.equal(new Set(uidsOf(users, [a, b], tree.path('sockets'))).size, 2)
    t.throws(() => users.userOf(c, tree.path('sockets')), {
      message: 'no user id is left for this function: FN_ISOLATION_UIDS is 20000-20001',
    })
    const freed = users.userOf(a, tree.path('sockets')).uid
    users.retain(toMap(b, c))
    t.equal(users.userOf(c, tree.path('sockets')).uid, freed)
    const narrowed = new FunctionUsers({ first: 25_000, last: 25_009 }, tree.root)
    narrowed.retain(toMap(a, b, c))
    t.ok(
      uidsOf(narrowed, [a, b, c], tree.path('sockets')).every(uid => uid >= 25_000 && uid <= 25_009),
      'a range that was changed holds',
    )
  },
)

t.test(
  '[runtime/isolation.6] the folder of a user is its own, and what leads to it only a way',
  { skip: NO_ROOT },
  async t => {
    const tree = makeTree({ 'sockets/': '', 'outside/': '' })
    t.teardown(() => tree.cleanup())
    const fn = fnIn(tree, 'a')
    const users = new FunctionUsers(RANGE, tree.root)
    users.retain(toMap(fn))
    const { uid, folder } = users.userOf(fn, tree.path('sockets'))
    t.equal(folder, tree.path(`sockets/u/${uid}`))
    for (const path of [folder, `${folder}/tmp`]) t.match(statSync(path), { uid, gid: uid, mode: 0o40700 }, path)
    t.match(statSync(tree.path('sockets/u')), { uid: 0, mode: 0o40711 })
    tree.remove('sockets/u')
    t.ok(statSync(users.userOf(fn, tree.path('sockets')).folder).isDirectory(), 'made again when somebody deleted it')
    tree.remove(`sockets/u/${uid}`)
    symlinkSync(tree.path('outside'), tree.path(`sockets/u/${uid}`))
    t.throws(() => users.userOf(fn, tree.path('sockets')), { code: 'UNSAFE_PATH' })
    t.equal(statSync(tree.path('outside')).uid, process.geteuid?.())
  },
)

t.test('[runtime/isolation.9] the owner of a folder in the range is the user', { skip: NO_ROOT }, async t => {
  const tree = makeTree({ 'sockets/': '' })
  t.teardown(() => tree.cleanup())
  const [owned, other] = [fnIn(tree, 'owned'), fnIn(tree, 'other')]
  chownSync(tree.path('owned'), 20_123, 20_123)
  chownSync(tree.path('other'), 1000, 1000)
  const users = new FunctionUsers(RANGE, tree.root)
  users.retain(toMap(owned, other))
  t.equal(users.userOf(owned, tree.path('sockets')).uid, 20_123)
  t.not(users.userOf(other, tree.path('sockets')).uid, 1000)
  t.equal(JSON.parse(readFileSync(tree.path('.svc/isolation.json'), 'utf8')).users[owned.key], 20_123)
})

t.test('[runtime/isolation.10] a state that cannot be written is a warning', async t => {
  const tree = makeTree({ '.svc': 'a file' })
  t.teardown(() => tree.cleanup())
  const users = new FunctionUsers(RANGE, tree.root)
  t.match(users.retain(toMap(fnIn(tree, 'a'))), [{ code: 'ISOLATION_STATE', message: /\.svc is a file, not a folder/ }])
})

t.test('[runtime/isolation.11] the closed folder on a way is named', async t => {
  const tree = makeTree({ 'a/b/c': '' })
  t.teardown(() => tree.cleanup())
  chmodSync(tree.root, 0o755)
  for (const folder of ['a', 'a/b']) chmodSync(tree.path(folder), 0o711)
  t.equal(findClosedFolder(tree.path('a/b/c')), null)
  chmodSync(tree.path('a'), 0o750)
  t.equal(findClosedFolder(tree.path('a/b/c')), tree.path('a'))
})
