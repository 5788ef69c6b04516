import { readdirSync } from 'node:fs'
import t from 'tap'
import { systemClock } from '../../lib/core/clock.ts'
import { Dependencies, SharedPacks } from '../../lib/dependencies/dependencies.ts'
import { PackageFolder, PackageSets } from '../../lib/dependencies/package-set.ts'
import type { Builds } from '../../lib/dependencies/resolve.ts'
import { OwnFolder } from '../../lib/files/own-folder.ts'
import { makeFn } from '../helpers/fn.ts'
import { makeTree } from '../helpers/tree.ts'

// Interpreters and installers are slow on a busy machine.
t.setTimeout(180_000)

t.test('[bin/deps.2, bin/deps.4] what is asked for goes to the builds; sets in use stay', async t => {
  const { root, path, cleanup } = makeTree({ 'a/handler.py': '', 'a/.deps/': '' })
  t.teardown(cleanup)
  const asked: string[] = []
  const builds = {
    retain: () => asked.push('retain'),
    recordOf: () => ({ mode: 'manifest' }),
    close: async () => void asked.push('close'),
    prepare: async ({ name }: { name: string }) => {
      if (name === 'bad') throw new Error('install failed: x')
      return null
    },
  } as unknown as Builds
  const packs = new SharedPacks(root)
  const dependencies = new Dependencies({ functionsRoot: root, clock: systemClock, builds, packs })
  const fns = ['a', 'bad'].map(name => makeFn({ runtime: 'python', name, fnDir: path(name) }))
  dependencies.retain(new Map(fns.map(fn => [fn.key, fn])))
  t.same(dependencies.recordOf(fns[0]!), { mode: 'manifest' })
  const told: string[] = []
  const outcomes = await dependencies.install(({ key, error }) => told.push(`${key} ${error?.message ?? 'ready'}`))
  t.same(told, ['python/a@default ready', 'python/bad@default install failed: x'])
  t.equal(outcomes.length, 2)

  const keys = ['1', '2'].map(digit => digit.repeat(32))
  const sets = new PackageSets(root, { clock: systemClock, isPrivate: false })
  for (const key of keys) {
    const { signal } = new AbortController()
    const fill = async (draft: OwnFolder) => {
      draft.below('.deps').make()
      return { resolvedPackages: [], unresolvedImports: [] }
    }
    const asker = { folder: path('a'), signature: '1' }
    const set = await sets.ensure({ runtime: 'python', key, user: null, signal, asker, fill })
    if (key === keys[0]) await new PackageFolder(path('a'), '.deps').put(set)
  }
  new OwnFolder(path('a'), '.deps').write('.svc-deps-state.json', JSON.stringify({ runtime: 'python', set: keys[0] }))
  t.same(dependencies.clean(false), [`.svc/deps/python-${keys[1]}`])
  t.same(dependencies.clean(true), ['.deps of python/a@default', `.svc/deps/python-${keys[0]}`])
  t.same(readdirSync(path('a')), ['handler.py'])
  await dependencies.close()
  t.same(asked, ['retain', 'close'])
})

t.test('[bin/deps.5] packages are added to the functions of one folder and language', async t => {
  const { root, path, cleanup } = makeTree({ 'a/handler.py': '', 'b/handler.go': '', 'mix/x.py': '' })
  t.teardown(cleanup)
  const asked: unknown[] = []
  const builds = {
    retain: () => {},
    recordOf: () => null,
    stateOf: () => null,
    close: async () => {},
    ask: ({ name }: { name: string }, packages: readonly string[]) => asked.push([name, ...packages]),
    prepare: async ({ name }: { name: string }) => void asked.push(name),
  } as unknown as Builds
  const packs = new SharedPacks(root)
  const dependencies = new Dependencies({ functionsRoot: root, clock: systemClock, builds, packs })
  const fns = [
    makeFn({ runtime: 'python', name: 'a', fnDir: path('a') }),
    makeFn({ runtime: 'go', name: 'b', fnDir: path('b') }),
    makeFn({ runtime: 'python', name: 'mix/x', fnDir: path('mix') }),
    makeFn({ runtime: 'node', name: 'mix/y', fnDir: path('mix') }),
  ]
  dependencies.retain(new Map(fns.map(fn => [fn.key, fn])))
  const add = async (to: string, ...packages: string[]) => dependencies.add(to, packages, () => {})
  await t.rejects(add('none'), { message: 'no function is named none or is in a folder of that name' })
  await t.rejects(add('mix'), { message: /mix has functions in several languages/ })
  await t.rejects(add('b'), { message: /^run in b: go get/ })
  t.equal((await add('a', 'left==1')).length, 1)
  t.equal((await add('mix/x')).length, 1)
  t.same(asked, [['a', 'left==1'], 'a', 'mix/x'])
  t.same(dependencies.list(), [])
  t.same(
    [...dependencies.states()].map(({ fn, state }) => [fn.name, state]),
    fns.map(({ name }) => [name, null]),
  )
})
