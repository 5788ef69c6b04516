import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import t from 'tap'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import { UserSignals } from '../../lib/files/user-signals.ts'
import { FunctionUsers } from '../../lib/runtime/function-users.ts'
import { findClosedFolder } from '../../lib/runtime/function-files.ts'
import { makeFn } from '../helpers/fn.ts'
import { makeTree, type Tree } from '../helpers/tree.ts'

const RANGE = { first: 20_000, last: 29_999 }
const NO_ROOT = process.geteuid?.() === 0 ? false : 'giving folders to users needs root'

/** Users of a tree whose files are nobody's concern here. */
function makeUsers(range: { first: number; last: number }, functionsRoot: string, isServed = (_key: string) => false) {
  return new FunctionUsers({
    range,
    functionsRoot,
    files: 'warn',
    limits: { nproc: 100 },
    signals: new UserSignals(),
    isServed,
  })
}

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
    const first = makeUsers(RANGE, tree.root)
    const warnings = first.retain(toMap(...functions))
    t.notOk(warnings.some(({ code }) => code === 'ISOLATION_STATE'))
    const uids = uidsOf(first, functions, tree.path('sockets'))
    t.equal(new Set(uids).size, functions.length)
    t.ok(uids.every(uid => uid >= RANGE.first && uid <= RANGE.last))
    t.equal(statSync(tree.path('.svc/isolation.json')).mode & 0o777, 0o600)

    const second = makeUsers(RANGE, tree.root)
    second.retain(toMap(...[...functions].reverse()))
    t.same(uidsOf(second, functions, tree.path('sockets')), uids, 'whatever the order')
    second.retain(toMap(functions[5]!))
    second.retain(toMap(...functions))
    t.same(uidsOf(second, functions, tree.path('sockets')), uids, 'also one that was gone for a while')
    writeFileSync(tree.path('.svc/isolation.json'), '{"users": {"node/f0@default": "x", "node/f1@default": 5')
    const broken = makeUsers(RANGE, tree.root)
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
    const users = makeUsers(range, tree.root)
    users.retain(toMap(other, owned))
    const [taken] = uidsOf(users, [other], tree.path('sockets'))
    chownSync(tree.path('owned'), taken!, taken!)
    const forget = () => {
      tree.remove('.svc')
      return makeUsers(range, tree.root)
    }
    for (const [name, make] of [
      ['after a reload', () => users],
      ['after a restart', () => makeUsers(range, tree.root)],
      ['of nothing known', forget],
    ] as const) {
      const order = make()
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
  const users = makeUsers(RANGE, tree.root)
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
    const users = makeUsers({ first: 20_000, last: 20_001 }, tree.root)
    users.retain(toMap(a, b, c))
    t.equal(new Set(uidsOf(users, [a, b], tree.path('sockets'))).size, 2)
    t.throws(() => users.userOf(c, tree.path('sockets')), {
      message: 'no user id is left for this function: FN_ISOLATION_UIDS gives functions 20000-20001',
    })
    const freed = users.userOf(a, tree.path('sockets')).uid
    users.retain(toMap(b, c))
    t.equal(users.userOf(c, tree.path('sockets')).uid, freed)
    const narrowed = makeUsers({ first: 25_000, last: 25_009 }, tree.root)
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
    const users = makeUsers(RANGE, tree.root)
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
  const users = makeUsers(RANGE, tree.root)
  users.retain(toMap(owned, other))
  t.equal(users.userOf(owned, tree.path('sockets')).uid, 20_123)
  t.not(users.userOf(other, tree.path('sockets')).uid, 1000)
  t.equal(JSON.parse(readFileSync(tree.path('.svc/isolation.json'), 'utf8')).users[owned.key], 20_123)
})

t.test('[runtime/isolation.10] a state that cannot be written is a warning', async t => {
  const tree = makeTree({ '.svc': 'a file' })
  t.teardown(() => tree.cleanup())
  const users = makeUsers(RANGE, tree.root)
  const warnings = users.retain(toMap(fnIn(tree, 'a')))
  t.match(warnings.at(-1), { code: 'ISOLATION_STATE', message: /\.svc is a file, not a folder/ })
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

t.test(
  '[runtime/isolation.5] the last worker of a function that is gone ends before its id is used again',
  {
    skip: NO_ROOT,
  },
  async t => {
    const tree = makeTree({ 'sockets/': '' })
    t.teardown(() => tree.cleanup())
    const [a, b] = [fnIn(tree, 'a'), fnIn(tree, 'b')]
    const serving = new Set([a.key])
    const users = makeUsers({ first: 20_000, last: 20_000 }, tree.root, key => serving.has(key))
    users.retain(toMap(a))
    const { folder } = users.userOf(a, tree.path('sockets'))
    writeFileSync(`${folder}/tmp/left`, 'of a')
    users.retain(toMap(b))
    t.throws(
      () => users.userOf(b, tree.path('sockets')),
      { message: /no user id is left/ },
      'a worker still runs as it',
    )
    serving.clear()
    t.equal(users.userOf(b, tree.path('sockets')).uid, 20_000, 'without another look at the files')
    t.notOk(existsSync(`${folder}/tmp/left`), 'what the last one left is gone')
  },
)

t.test('[runtime/isolation.10] what is built of a function is for its user alone', { skip: NO_ROOT }, async t => {
  const tree = makeTree({ 'sockets/': '', 'a/.go-build/handler/bin/0123': 'program' })
  t.teardown(() => tree.cleanup())
  chmodSync(tree.path('a/.go-build/handler'), 0o700)
  const fn = fnIn(tree, 'a')
  const users = makeUsers(RANGE, tree.root)
  users.retain(toMap(fn))
  const { uid } = users.userOf(fn, tree.path('sockets'), tree.path('a/.go-build/handler/bin/0123'))
  t.match(statSync(tree.path('a/.go-build/handler')), { uid: 0, gid: uid, mode: 0o40750 })
})
