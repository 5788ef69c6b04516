import { chmodSync, chownSync, linkSync, statSync, symlinkSync } from 'node:fs'
import t, { type Test } from 'tap'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import { FunctionFiles, toCloseCommand, toShown } from '../../lib/runtime/function-files.ts'
import { makeFn } from '../helpers/fn.ts'
import { makeTree, type Tree } from '../helpers/tree.ts'

const RANGE = { first: 20_000, last: 20_009 }
const OWN = 20_001
const NO_ROOT = process.geteuid?.() === 0 ? false : 'giving files to groups needs root'

/** A tree whose folders everybody enters and whose files everybody reads. */
function makeOpenTree(t: Test, names: readonly string[]): Tree {
  const tree = makeTree(Object.fromEntries(names.map(name => [name, '//'])))
  t.teardown(() => tree.cleanup())
  chmodSync(tree.root, 0o755)
  return tree
}

function fnOf(tree: Tree, entryFile: string, kind: FunctionVersion['kind'] = 'function'): FunctionVersion {
  const entryPath = tree.path(entryFile)
  const fnDir = entryPath.slice(0, entryPath.lastIndexOf('/'))
  return makeFn({ kind, name: entryFile, fnDir, entryPath, entryFile })
}

function openOf(tree: Tree, fn: FunctionVersion, functions: readonly FunctionVersion[] = [fn]): string[] {
  const files = new FunctionFiles(RANGE, tree.root, functions)
  return files.findOpen(fn, OWN).map(({ path, mode }) => `${toShown(path, tree.root)} ${mode.toString(8)}`)
}

t.test('[runtime/isolation.10] a folder that is all a function’s is closed as a whole', { skip: NO_ROOT }, async t => {
  const tree = makeOpenTree(t, ['a/handler.py', 'a/helper.py', 'a/fn.env.json'])
  const fn = fnOf(tree, 'a/handler.py')
  const cases: [gid: number, mode: number, open: string[], name: string][] = [
    [0, 0o755, ['a 755'], 'an ordinary folder'],
    [0, 0o711, ['a 711'], 'whoever knows a name reads the file'],
    [OWN, 0o750, [], 'its group and nobody else'],
    [OWN, 0o751, ['a 751'], 'its group and everybody else'],
    [20_002, 0o750, ['a 750'], 'the group of another function'],
    [1000, 0o750, [], 'a group of people'],
    [0, 0o700, [], 'root alone'],
  ]
  for (const [gid, mode, open, name] of cases) {
    chownSync(tree.path('a'), 0, gid)
    chmodSync(tree.path('a'), mode)
    t.same(openOf(tree, fn), open, name)
  }
  chownSync(tree.path('a'), 20_002, OWN)
  chmodSync(tree.path('a'), 0o700)
  t.same(openOf(tree, fn), ['a 700'], 'another function owns it')
})

t.test('[runtime/isolation.10] where functions share a folder each file counts by itself', async t => {
  const names = ['users/get.js', 'users/post.js', 'users/fn.env.json', 'users/_shared.js', 'users/data.json']
  const tree = makeOpenTree(t, names)
  const functions = ['users/get.js', 'users/post.js'].map(file => fnOf(tree, file, 'file'))
  const [get] = functions
  t.same(openOf(tree, get!, functions), ['users/get.js 644', 'users/fn.env.json 644'])
  chmodSync(tree.path('users/get.js'), 0o600)
  chmodSync(tree.path('users/fn.env.json'), 0o600)
  t.same(openOf(tree, get!, functions), [])
  t.same(openOf(tree, functions[1]!, functions), ['users/post.js 644'])
})

t.test('[runtime/isolation.10] a function with others below it: they are not its own', async t => {
  const names = ['a/handler.js', 'a/lib/x.js', 'a/b/handler.js', 'a/node_modules/p/index.js', 'a/_all.js', 'a/get.js']
  const tree = makeOpenTree(t, names)
  const functions = [fnOf(tree, 'a/handler.js'), fnOf(tree, 'a/b/handler.js'), fnOf(tree, 'a/get.js', 'file')]
  t.same(openOf(tree, functions[0]!, functions).sort(), ['a/handler.js 644', 'a/lib 755'])
  t.same(openOf(tree, functions[1]!, functions), ['a/b 755'])
  t.same(openOf(tree, fnOf(tree, 'a/handler.js')), ['a 755'])
})

t.test('[runtime/isolation.10] a root that is one function is closed file by file', async t => {
  const tree = makeOpenTree(t, ['handler.js', '.svc/x'])
  t.same(openOf(tree, fnOf(tree, 'handler.js')), ['handler.js 644'])
})

t.test('[runtime/isolation.10] what a link leads to counts, not where the link is', async t => {
  const tree = makeOpenTree(t, ['closed/x', 'open/handler.js', 'open/more.js', 'two/a.js', 'two/b.js'])
  chmodSync(tree.path('closed'), 0o700)
  symlinkSync(tree.path('open'), tree.path('closed/fn'))
  t.same(openOf(tree, fnOf(tree, 'closed/fn/handler.js')), ['closed/fn 755'], 'the folder is reached by its other name')
  const [a, b] = [fnOf(tree, 'two/a.js', 'file'), fnOf(tree, 'two/b.js', 'file')]
  tree.remove('two/a.js')
  symlinkSync(tree.path('open/more.js'), tree.path('two/a.js'))
  t.same(openOf(tree, a!, [a!, b!]), ['two/a.js 644'])
  tree.remove('two/a.js')
  symlinkSync(tree.path('closed/x'), tree.path('two/a.js'))
  t.same(openOf(tree, a!, [a!, b!]), [])
})

t.test('[runtime/isolation.10] closing lets in its owner and the function', { skip: NO_ROOT }, async t => {
  const tree = makeOpenTree(t, ['a/handler.py', 'two/a.sh', 'two/b.js'])
  chmodSync(tree.path('two/a.sh'), 0o777)
  const functions = [fnOf(tree, 'a/handler.py'), fnOf(tree, 'two/a.sh', 'file'), fnOf(tree, 'two/b.js', 'file')]
  for (const fn of functions) {
    const files = new FunctionFiles(RANGE, tree.root, functions)
    for (const path of files.findOpen(fn, OWN)) files.close(path, OWN)
    t.same(files.findOpen(fn, OWN), [], fn.entryFile)
    t.equal(files.findUnreadable(fn, OWN), null, `${fn.entryFile} can be read by its own`)
  }
  for (const [file, mode] of Object.entries({ a: 0o750, 'a/handler.py': 0o644, 'two/a.sh': 0o750, 'two/b.js': 0o640 }))
    t.equal(statSync(tree.path(file)).mode & 0o777, mode, file)
})

t.test('[runtime/isolation.10] closing follows no link out of the tree', { skip: NO_ROOT }, async t => {
  const outside = makeOpenTree(t, ['passwd', 'fn/handler.js', 'hard'])
  const tree = makeOpenTree(t, ['two/b.js'])
  symlinkSync(outside.path('passwd'), tree.path('two/a.js'))
  linkSync(outside.path('hard'), tree.path('two/c.js'))
  symlinkSync(outside.path('fn'), tree.path('fn'))
  const files = ['two/a.js', 'two/b.js', 'two/c.js'].map(file => fnOf(tree, file, 'file'))
  const functions = [...files, fnOf(tree, 'fn/handler.js')]
  for (const fn of functions) {
    if (fn.entryFile === 'two/b.js') continue
    const files = new FunctionFiles(RANGE, tree.root, functions)
    const open = files.findOpen(fn, OWN)
    t.equal(open.length, 1)
    for (const path of open) t.throws(() => files.close(path, OWN), fn.entryFile)
  }
  for (const name of ['passwd', 'fn', 'hard']) t.match(statSync(outside.path(name)), { uid: 0, gid: 0 }, name)
  t.equal(statSync(outside.path('passwd')).mode & 0o777, 0o644)
})

t.test('[runtime/isolation.10] what the function itself cannot reach is named', { skip: NO_ROOT }, async t => {
  const tree = makeOpenTree(t, ['a/b/handler.py'])
  const fn = fnOf(tree, 'a/b/handler.py')
  const closed = () => {
    const found = new FunctionFiles(RANGE, tree.root, [fn]).findUnreadable(fn, OWN)
    return found === null ? null : toShown(found.path, tree.root)
  }
  t.equal(closed(), null)
  chmodSync(tree.path('a/b/handler.py'), 0o600)
  t.equal(closed(), 'a/b/handler.py')
  chmodSync(tree.path('a/b/handler.py'), 0o640)
  chownSync(tree.path('a/b/handler.py'), 0, OWN)
  t.equal(closed(), null)
  chmodSync(tree.path('a'), 0o750)
  t.equal(closed(), 'a')
  chmodSync(tree.root, 0o700)
  t.equal(closed(), '.')
})

t.test('[runtime/isolation.10] commands to type take any name', async t => {
  t.equal(
    toCloseCommand(['a/[id].js', "it's"], 20_001),
    `chgrp 20001 'a/[id].js' 'it'\\''s' && chmod g=rX,o= 'a/[id].js' 'it'\\''s'`,
  )
})
