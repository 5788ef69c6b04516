import { renameSync, rmSync, symlinkSync, utimesSync } from 'node:fs'
import t from 'tap'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import { LoadedFiles, type LoadedFolders, MAX_LOADED_FILES } from '../../lib/discovery/loaded-files.ts'
import { makeFn } from '../helpers/fn.ts'
import { makeTree } from '../helpers/tree.ts'

function setUp(t: { teardown: (fn: () => void) => void }) {
  const tree = makeTree({ 'root/': '', 'lib/a.js': 'a', 'lib/b.js': 'b', 'lib/deep/c.js': 'c', 'other/d.py': 'd' })
  t.teardown(tree.cleanup)
  const loaded = new LoadedFiles(tree.path('root'))
  const version = (name: string, signature = '1'): FunctionVersion => ({ ...makeFn({ name }), signature })
  const adopt = (...functions: FunctionVersion[]) => loaded.adopt(new Map(functions.map(fn => [fn.key, fn])))
  const one = version('one')
  const two = version('two')
  adopt(one, two)
  let folders: LoadedFolders = new Map()
  let told = 0
  loaded.follow(next => {
    folders = next
    told++
  })
  const shown = () =>
    Object.fromEntries([...folders].map(([folder, files]) => [folder.slice(tree.root.length + 1), files.size]))
  let time = 1000
  const change = (path: string, text = 'changed'): string => {
    tree.write({ [path]: text })
    utimesSync(tree.path(path), time, time++)
    return tree.path(path)
  }
  return { tree, loaded, version, adopt, one, two, shown, change, times: () => told }
}

const revisionsOf = (loaded: LoadedFiles) => Object.fromEntries([...loaded.revisions].sort())
const ONE = 'node/one@default'
const TWO = 'node/two@default'

t.test('[discovery/layouts.46] a changed file makes exactly the functions out of date that loaded it', async t => {
  const { tree, loaded, one, two, shown, change } = setUp(t)
  loaded.report(one, [tree.path('lib/a.js'), tree.path('lib/b.js')])
  loaded.report(two, [tree.path('lib/b.js')])
  loaded.report(two, [tree.path('lib/deep/c.js')])
  t.same(shown(), { lib: 2, 'lib/deep': 1 })
  t.notOk(loaded.note([tree.path('lib/a.js')]), 'told of, but the same as before')
  const before = loaded.revisions
  t.equal(loaded.note([change('lib/a.js')]), true)
  t.same(revisionsOf(loaded), { [ONE]: 1 })
  t.not(loaded.revisions, before, 'another map')
  t.equal(loaded.note([change('lib/b.js'), change('lib/deep/c.js')]), true)
  t.same(revisionsOf(loaded), { [ONE]: 2, [TWO]: 1 }, 'once for two files')
  t.notOk(loaded.note([tree.path('lib/b.js')]), 'a second event of one save')
  t.notOk(loaded.note([tree.path('other/d.py'), tree.path('nowhere')]))
  rmSync(tree.path('lib/b.js'))
  t.ok(loaded.note([tree.path('lib/b.js')]), 'gone')
  t.equal(loaded.sizeOf(tree.path('lib/b.js')), null)
  t.ok(loaded.note([change('lib/b.js')]), 'and back')
  t.equal(loaded.sizeOf(tree.path('lib/b.js')), 7)
})

t.test('[discovery/layouts.46] folders, links and paths below the root stand for the files they hold', async t => {
  const { tree, loaded, one, change } = setUp(t)
  change('root/in/x.js')
  symlinkSync('../lib', tree.path('root/linked'))
  loaded.report(one, [tree.path('lib/a.js'), tree.path('lib/deep/c.js'), tree.path('root/in/x.js')])
  const steps: [string, string][] = [
    ['lib/a.js', 'linked/a.js'],
    ['lib/a.js', 'linked'],
    ['lib/deep/c.js', tree.path('lib')],
    ['root/in/x.js', 'in/x.js'],
    ['root/in/x.js', 'in'],
    ['lib/deep/c.js', ''],
  ]
  for (const [index, [changed, told]] of steps.entries()) {
    change(changed, `v${index}`)
    t.ok(loaded.note([told]), `${changed} by ${told}`)
  }
  renameSync(tree.path('root/in'), tree.path('root/moved'))
  t.ok(loaded.note(['in', 'moved']), 'a folder that is gone')
  t.same(revisionsOf(loaded), { [ONE]: steps.length + 1 })
})

t.test('[discovery/layouts.46] what counts is what the version in force loaded', async t => {
  const { tree, loaded, version, adopt, one, two, shown, change, times } = setUp(t)
  loaded.report(one, [tree.path('lib/a.js')])
  const next = version('one', '2')
  adopt(next, two)
  t.same(shown(), { lib: 1 }, 'watched until the new version has loaded its own')
  loaded.report(one, [tree.path('other/d.py')])
  t.same(shown(), { lib: 1 }, 'a worker of the old version finishes its calls')
  t.ok(loaded.note([change('lib/a.js')]), 'an edit while the new worker starts')
  loaded.report(next, [tree.path('other/d.py')])
  t.same(shown(), { other: 1 })
  t.notOk(loaded.note([change('lib/a.js')]))
  const count = times()
  loaded.report(next, [tree.path('other/d.py')])
  t.equal(times(), count, 'nothing new, nothing told')
  adopt(two)
  t.same(shown(), {}, 'the function is gone')
  loaded.report(next, [tree.path('lib/a.js')])
  t.same(shown(), {})
})

t.test('[discovery/layouts.46] the number of files is bounded, and files that are not there are left out', async t => {
  const { tree, loaded, one, two, shown } = setUp(t)
  const many: Record<string, string> = {}
  for (let i = 0; i < MAX_LOADED_FILES + 5; i++) many[`many/${i}.js`] = ''
  tree.write(many)
  loaded.report(one, [tree.path('gone.js'), ...Object.keys(many).map(tree.path)])
  t.same(shown(), { many: MAX_LOADED_FILES })
  loaded.report(two, [tree.path('many/0.js'), tree.path('lib/a.js')])
  t.same(shown(), { many: MAX_LOADED_FILES }, 'one that is known already has another user')
})

t.test('[discovery/layouts.46] a version that tells without end is not listened to', async t => {
  const { tree, loaded, version, adopt, one, two, shown } = setUp(t)
  const nowhere = Array.from({ length: MAX_LOADED_FILES }, (_, index) => `/nowhere/${index}`)
  loaded.report(one, nowhere)
  loaded.report(one, nowhere)
  loaded.report(one, [tree.path('lib/a.js')])
  t.same(shown(), {})
  loaded.report(two, [tree.path('lib/a.js')])
  t.same(shown(), { lib: 1 }, 'others are')
  const next = version('one', '2')
  adopt(next, two)
  loaded.report(next, [tree.path('other/d.py')])
  t.same(shown(), { lib: 1, other: 1 }, 'and so is the next version')
})
