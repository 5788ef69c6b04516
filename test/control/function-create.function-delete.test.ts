import { existsSync, readdirSync } from 'node:fs'
import { dirname } from 'node:path'
import t, { type Test } from 'tap'
import { deleteFunction } from '../../lib/control/function-create.ts'
import { SourceFiles } from '../../lib/control/function-endpoints.ts'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import { makeFn } from '../helpers/fn.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'

function setup(t: Test, entries: Record<string, TreeEntry>) {
  const tree = makeTree(entries)
  t.teardown(tree.cleanup)
  const files = new SourceFiles(tree.root, async () => {})
  const fnAt = (entryFile: string, more: Partial<FunctionVersion> = {}) => {
    const entryPath = tree.path(entryFile)
    return { ...makeFn({ name: entryFile, runtime: 'node' }), entryFile, entryPath, fnDir: dirname(entryPath), ...more }
  }
  const remove = (fn: FunctionVersion, others: readonly FunctionVersion[] = []) =>
    deleteFunction(tree.root, fn, [fn, ...others], files)
  const list = (folder: string) => readdirSync(tree.path(folder)).sort()
  return { tree, fnAt, remove, list }
}

t.test('[control/function.6] alone in its folder: the folder', t => {
  const { tree, fnAt, remove, list } = setup(t, {
    'a/b/handler.js': '',
    'a/b/data/x': '',
    'a/bc/handler.js': '',
    'a/c.js': '',
  })
  remove(fnAt('a/b/handler.js'), [fnAt('a/bc/handler.js'), fnAt('a/c.js', { kind: 'file' })])
  t.same(list('a'), ['bc', 'c.js'], 'a folder whose name begins alike is another one')
  t.same(list('.svc/trash'), [])
  const version = fnAt('a/bc/handler.js', { version: 'bc' })
  remove(version, [fnAt('a/bc/handler.js', { kind: 'file' })])
  t.notOk(existsSync(tree.path('a/bc')), 'the route of the same file is no other function')
  t.end()
})

t.test('[control/function.6] not alone: its own files, and none at all when one would become a route', t => {
  const own = ['handler.js', 'fn.config.json', 'fn.env.json', 'package.json', 'package-lock.json', 'schema.json']
  const entries = Object.fromEntries(own.map(name => [`a/${name}`, '']))
  const { tree, fnAt, remove, list } = setup(t, {
    ...entries,
    'a/node_modules/x/index.js': '',
    'a/get.js': '',
    'a/_shared.js': '',
    'a/notes.md': '',
    'a/v2/handler.js': '',
  })
  const others = [fnAt('a/get.js', { kind: 'file' }), fnAt('a/v2/handler.js', { version: 'v2' })]
  tree.write({ 'a/core.js': '' })
  t.throws(() => remove(fnAt('a/handler.js'), others), {
    status: 409,
    message: /core\.js would become a route/,
  } as never)
  t.equal(list('a').length, own.length + 6, 'nothing is gone')
  tree.remove('a/core.js')
  remove(fnAt('a/handler.js'), others)
  t.same(list('a'), ['_shared.js', 'get.js', 'notes.md', 'v2'])
  t.end()
})

t.test(
  '[control/function.6, control/function.7] a file route is its file, the root stays, links are not followed',
  t => {
    const { tree, fnAt, remove, list } = setup(t, {
      'handler.js': '',
      'fn.config.json': '{}',
      'x.js': '',
      'far/handler.js': '',
      near: { symlink: 'far' },
      'link.js': { symlink: 'far/handler.js' },
    })
    remove(fnAt('handler.js'))
    remove(fnAt('x.js', { kind: 'file' }))
    t.same(list(''), ['far', 'fn.config.json', 'link.js', 'near'])
    for (const fn of [fnAt('near/handler.js'), fnAt('link.js', { kind: 'file' })])
      t.throws(() => remove(fn), { code: 'UNSAFE_PATH' } as never, fn.entryFile)
    t.same(list('far'), ['handler.js'])
    t.same(list(''), ['far', 'fn.config.json', 'link.js', 'near'])
    t.throws(() => remove(fnAt('x.js', { fnDir: dirname(tree.root) })), { status: 403 } as never, 'outside')
    t.end()
  },
)
