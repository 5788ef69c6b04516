import { chmodSync, existsSync, statSync, symlinkSync } from 'node:fs'
import t, { type Test } from 'tap'
import type { ProcessPowers } from '../../lib/config/setting-checks.ts'
import { makeTree } from '../helpers/tree.ts'
import { planOwnUser } from '../../lib/gateway/own-user-plan.ts'

const NO_ROOT = process.geteuid?.() === 0 ? false : 'giving files to users needs root'
const ROOT: ProcessPowers = { platform: 'linux', uid: 0, groups: [], capabilities: 0x1ffffffffffn }
const LIMITED: ProcessPowers = { ...ROOT, capabilities: 0b11n << 6n }
const USERS = { isolation: 'user', isolationUids: '21000-21009', runtimes: ['lua', 'go'] } as const

function makeRoot(t: Test) {
  const tree = makeTree({
    'hello/handler.lua': 'return function() return 1 end',
    'hello/fn.env.json': { json: { A: 'b' } },
    'built/handler.go': 'package fn\nfunc handler(event map[string]any) any { return 1 }\n',
  })
  t.teardown(() => tree.cleanup())
  chmodSync(tree.root, 0o755)
  chmodSync(tree.path('hello/fn.env.json'), 0o600)
  return tree
}

t.test('[runtime/isolation.13] nothing is planned where processes keep functions apart, or users cannot', async t => {
  const tree = makeRoot(t)
  const options = { functionsRoot: tree.root }
  t.equal(await planOwnUser(options, ROOT), null)
  t.equal(await planOwnUser({ ...options, ...USERS }, { ...ROOT, uid: 1000, capabilities: 0n }), null)
  t.equal(await planOwnUser({ ...options, ...USERS }, { ...ROOT, platform: 'darwin' }), null)
})

t.test('[runtime/isolation.13] who is not root stays who it is, in the groups of functions', async t => {
  const tree = makeRoot(t)
  const plan = await planOwnUser({ functionsRoot: tree.root, ...USERS }, { ...LIMITED, uid: 1000 })
  t.same(plan, { uid: 1000, home: null, groups: { first: 21_001, last: 21_009 } })
})

t.test('[runtime/isolation.13] root gives the gateway what it writes to', { skip: NO_ROOT }, async t => {
  const tree = makeRoot(t)
  const options = { functionsRoot: tree.root, ...USERS }
  const plan = await planOwnUser(options, ROOT)
  t.same(plan, { uid: 21_000, home: tree.path('.svc/home'), groups: { first: 21_001, last: 21_009 } })
  for (const name of ['.svc', '.svc/home', '.svc/isolation.json', 'built/.go-build'])
    t.match(statSync(tree.path(name)), { uid: 21_000, gid: 21_000 }, name)
  t.match(
    statSync(tree.path('hello/fn.env.json')),
    { gid: 0, mode: 0o100600 },
    'secrets stay closed unless that is asked for',
  )
  await planOwnUser({ ...options, isolationFiles: 'close' }, ROOT)
  t.match(statSync(tree.path('hello/fn.env.json')), { uid: 0, gid: 21_000, mode: 0o100640 })
  t.equal(statSync(tree.path('hello')).mode & 0o777, 0o750)
})

t.test(
  '[runtime/isolation.13, dependencies/install.12] folders that packages are put into, where files may be changed',
  { skip: NO_ROOT },
  async t => {
    const tree = makeRoot(t)
    const mark = { json: { key: 'k' } }
    tree.write({
      'page/handler.js': 'export const handler = () => 1',
      'page/node_modules/.fngw-set': mark,
      'page/node_modules/left/index.js': '',
      'mine/handler.js': 'export const handler = () => 1',
      'mine/node_modules/left/index.js': '',
      '.svc/packs/node/shared/package.json': { json: {} },
    })
    const options = { functionsRoot: tree.root, ...USERS, runtimes: ['lua', 'node'] as ('lua' | 'node')[] }
    const uidOf = (name: string) => statSync(tree.path(name)).uid
    const given = ['page', 'page/node_modules', 'page/node_modules/left/index.js', 'mine', '.svc/packs/node/shared']
    await planOwnUser(options, ROOT)
    await planOwnUser({ ...options, isolationFiles: 'close', autoNodeDeps: false }, ROOT)
    for (const name of given) t.equal(uidOf(name), 0, name)
    await planOwnUser({ ...options, isolationFiles: 'close' }, ROOT)
    for (const name of given) t.equal(uidOf(name), 21_000, name)
    for (const name of [
      'hello',
      'page/handler.js',
      'mine/node_modules',
      '.svc/packs',
      '.svc/packs/node/shared/package.json',
    ])
      t.equal(uidOf(name), 0, name)
  },
)

t.test('[runtime/isolation.13] root with two capabilities makes nothing', { skip: NO_ROOT }, async t => {
  const tree = makeRoot(t)
  const plan = await planOwnUser({ functionsRoot: tree.root, ...USERS }, LIMITED)
  t.match(plan, { uid: 21_000, home: null })
  t.notOk(existsSync(tree.path('.svc')))
})

t.test('[runtime/isolation.13] links in the tree lead root nowhere', { skip: NO_ROOT }, async t => {
  const tree = makeRoot(t)
  const outside = makeRoot(t)
  const plan = () => planOwnUser({ functionsRoot: tree.root, ...USERS, isolationFiles: 'close' }, ROOT)
  tree.remove('hello/fn.env.json')
  symlinkSync(outside.path('hello/fn.env.json'), tree.path('hello/fn.env.json'))
  symlinkSync(outside.path('hello'), tree.path('built/.go-build'))
  await t.rejects(plan(), { message: /cannot be given what it writes to: \.go-build is a symbolic link/ })
  tree.remove('built/.go-build')
  await plan()
  for (const name of ['hello', 'hello/fn.env.json']) t.match(statSync(outside.path(name)), { uid: 0, gid: 0 }, name)
})

t.test('[runtime/isolation.13] a closed folder on a way is named', { skip: NO_ROOT }, async t => {
  const tree = makeRoot(t)
  chmodSync(tree.root, 0o700)
  await t.rejects(planOwnUser({ functionsRoot: tree.root, ...USERS }, ROOT), {
    message: `user 21000, as whom the gateway runs, cannot reach ${tree.root}: ${tree.root} is closed to them; chmod o+x ${tree.root}`,
  })
})
