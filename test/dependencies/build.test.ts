import { join } from 'node:path'
import t from 'tap'
import * as build from '../../lib/dependencies/build.ts'
import { isHelper } from '../../lib/dependencies/go.ts'
import { makeFn } from '../helpers/fn.ts'
import { makeTree } from '../helpers/tree.ts'

t.test('[dependencies/resolve.5] which files below a folder are sources', async t => {
  const deep = Array.from({ length: 14 }, (_, i) => `d${i}`)
  const tree = makeTree({
    'b.go': 'b',
    'a.go': 'a',
    'a.txt': '',
    'sub/c.go': 'c',
    '.git/d.go': '',
    'vendor/e.go': '',
    'target/f.go': '',
    'link.go': { symlink: 'a.go' },
    [`${deep.join('/')}/deep.go`]: '',
    [`${deep.slice(0, 12).join('/')}/seen.go`]: '',
  })
  t.teardown(tree.cleanup)
  const isGo = (name: string): boolean => name.endsWith('.go')
  const found = build.filesBelow(tree.root, isGo).map(path => build.below(tree.root, path))
  t.same(found, ['a.go', 'b.go', `${deep.slice(0, 12).join('/')}/seen.go`, 'sub/c.go'])
  t.equal(build.readOptional(tree.path('a.go')), 'a')
  t.equal(build.readOptional(tree.path('none')), null)
  t.throws(() => build.readOptional(tree.root), { code: 'EISDIR' })
  const sources = build.workerSources(join(tree.root, 'sub'), isGo)
  t.same([...sources()], [['c.go', 'c']])
  t.equal(sources(), sources(), 'read once')
  t.equal(build.toFolderName(tree.root, tree.root), '.')
  t.equal(build.toFolderName(tree.root, tree.path('sub')), 'sub')
})

t.test('[dependencies/resolve.5] which files beside a handler belong to it', async t => {
  const fn = makeFn({ kind: 'function' })
  const file = makeFn({ kind: 'file' })
  for (const name of ['_x.go', '_get.go']) t.ok(isHelper(fn, name) && isHelper(file, name), name)
  for (const name of ['x.go', 'getter.go', 'a.get.go']) {
    t.ok(isHelper(fn, name), name)
    t.notOk(isHelper(file, name), `${name} of a folder of file routes`)
  }
  for (const name of ['.x.go', 'get.go', 'POST.items.go', '[id].go', 'a.[id].go']) t.notOk(isHelper(fn, name), name)
})
