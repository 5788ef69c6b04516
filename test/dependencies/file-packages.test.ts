import { chmodSync, existsSync, readFileSync, statSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { digestFiles, FileCollector, findInside, stageFiles } from '../../lib/dependencies/file-packages.ts'
import { OwnFolder } from '../../lib/files/own-folder.ts'
import { makeTree } from '../helpers/tree.ts'

const fail = (why: string) => new Error(why)

t.test(
  '[dependencies/install.11] packages in paths are copied to where the same path leads, without links and packages',
  async t => {
    const tree = makeTree({
      'shop/cart/x.json': '{}',
      'lib/src/a.txt': 'a',
      'lib/run.sh': 'b',
      'lib/node_modules/x': 'no',
      'lib/.git/x': 'no',
      'secret.txt': 'secret',
      '.svc/draft/': '',
    })
    t.teardown(tree.cleanup)
    symlinkSync('../secret.txt', tree.path('lib/link.txt'))
    chmodSync(tree.path('lib/run.sh'), 0o755)
    const collector = new FileCollector('node_modules')
    t.ok(collector.add(tree.path('lib'), fail))
    t.notOk(collector.add(tree.path('lib'), fail), 'known already')
    t.ok(collector.add(tree.path('secret.txt'), fail), 'a single file')
    const draft = new OwnFolder(tree.root, '.svc', 'draft')
    const places = { folder: tree.path('shop/cart'), root: tree.root }
    const { cwd, digest } = await stageFiles(draft, collector, places)
    t.equal(digest, await digestFiles(collector, places.folder))
    t.equal(cwd.path, tree.path('.svc/draft/tree/shop/cart'))
    t.equal(readFileSync(join(cwd.path, '../../lib/src/a.txt'), 'utf8'), 'a')
    t.equal(statSync(join(cwd.path, '../../lib/run.sh')).mode & 0o777, 0o755)
    for (const name of ['link.txt', 'node_modules', '.git'])
      t.notOk(existsSync(join(cwd.path, '../../lib', name)), name)
    t.equal((await stageFiles(draft, { files: [] }, places)).cwd, draft)
    const top = await stageFiles(draft, collector, { folder: tree.root, root: tree.root })
    t.equal(top.cwd.path, tree.path('.svc/draft/tree'))
    t.end()
  },
)

t.test('[dependencies/install.11] they are bounded, and what they hold is part of the key', async t => {
  const entries = Object.fromEntries(Array.from({ length: 51 }, (_, at) => [`many/${at}/`, '']))
  const tree = makeTree({ ...entries, 'a/x': '1', 'b/x': '1' })
  t.teardown(tree.cleanup)
  const digest = (name: string, folder: string) =>
    digestFiles({ files: [tree.path(`${name}/x`), tree.path(`${name}/x`)] }, tree.path(folder))
  const before = await digest('a', 'f')
  t.equal(await digest('a', 'g'), before, 'the same way from another folder')
  t.not(await digest('a', 'f/deep'), before)
  t.not(await digest('b', 'f'), before)
  tree.write({ 'a/x': '2' })
  t.not(await digest('a', 'f'), before)
  for (let at = 0; at < 51; at++)
    tree.write(Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`many/${at}/${i}`, ''])))
  t.throws(() => new FileCollector('vendor').add(tree.path('many'), fail), {
    message: 'more than 5000 files or 64 MiB in packages named by paths',
  })
  t.end()
})

t.test('[dependencies/install.11] inside is what really lies there', t => {
  const tree = makeTree({ 'root/a/x': '', 'root2/x': '' })
  t.teardown(tree.cleanup)
  symlinkSync('../root2', tree.path('root/out'))
  symlinkSync('a', tree.path('root/in'))
  const root = tree.path('root')
  t.equal(findInside(tree.path('root/a'), root), tree.path('root/a'))
  t.equal(findInside(tree.path('root/in/x'), root), tree.path('root/a/x'))
  for (const path of ['root/out', 'root/none', 'root2', 'root', 'root/../root2'])
    t.equal(findInside(tree.path(path), root), null)
  t.end()
})
