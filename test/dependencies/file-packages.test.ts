import { chmodSync, existsSync, readFileSync, statSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { FilePackages } from '../../lib/dependencies/file-packages.ts'
import { OwnFolder } from '../../lib/files/own-folder.ts'
import { makeTree } from '../helpers/tree.ts'

const fail = (why: string) => new Error(why)
const makePackages = (functionsRoot: string, label: string) =>
  new FilePackages({ functionsRoot, allowSources: false }, label, 'node_modules')

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
    const packages = makePackages(tree.root, 'shop/cart')
    const draft = new OwnFolder(tree.root, '.svc', 'draft')
    t.equal(await packages.stage(draft), draft, 'without packages')
    t.ok(packages.add(tree.path('lib'), fail))
    t.notOk(packages.add(tree.path('lib'), fail), 'known already')
    t.ok(packages.add(tree.path('secret.txt'), fail), 'a single file')
    await packages.digest()
    const cwd = await packages.stage(draft)
    t.equal(cwd.path, tree.path('.svc/draft/tree/shop/cart'))
    t.equal(readFileSync(join(cwd.path, '../../lib/src/a.txt'), 'utf8'), 'a')
    t.equal(statSync(join(cwd.path, '../../lib/run.sh')).mode & 0o777, 0o755)
    for (const name of ['link.txt', 'node_modules', '.git'])
      t.notOk(existsSync(join(cwd.path, '../../lib', name)), name)
    const top = makePackages(tree.root, '.')
    top.add(tree.path('lib'), fail)
    await top.digest()
    t.equal((await top.stage(draft)).path, tree.path('.svc/draft/tree'))
    tree.write({ 'lib/src/a.txt': 'saved' })
    await t.rejects(top.stage(draft), { message: /a package in a path was changed while it was read/ })
    t.end()
  },
)

t.test('[dependencies/install.11] they are bounded, and what they hold is part of the key', async t => {
  const entries = Object.fromEntries(Array.from({ length: 51 }, (_, at) => [`many/${at}/`, '']))
  const tree = makeTree({ ...entries, 'a/x': '1', 'b/x': '1' })
  t.teardown(tree.cleanup)
  const digest = (name: string, label: string) => {
    const packages = makePackages(tree.root, label)
    packages.add(tree.path(`${name}/x`), fail)
    return packages.digest()
  }
  const before = await digest('a', 'f')
  t.equal(await digest('a', 'g'), before, 'the same way from another folder')
  t.not(await digest('a', 'f/deep'), before)
  t.not(await digest('b', 'f'), before)
  tree.write({ 'a/x': '2' })
  t.not(await digest('a', 'f'), before)
  for (let at = 0; at < 51; at++)
    tree.write(Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`many/${at}/${i}`, ''])))
  t.throws(() => makePackages(tree.root, '.').add(tree.path('many'), fail), {
    message: 'more than 5000 files or 64 MiB in packages named by paths',
  })
  t.end()
})

t.test('[dependencies/install.11] inside is what really lies there', t => {
  const tree = makeTree({ 'root/a/x': '', 'root2/x': '' })
  t.teardown(tree.cleanup)
  symlinkSync('../root2', tree.path('root/out'))
  symlinkSync('a', tree.path('root/in'))
  const packages = makePackages(tree.path('root'), '.')
  t.equal(packages.find(tree.path('root/a')), tree.path('root/a'))
  t.equal(packages.find(tree.path('root/in/x')), tree.path('root/a/x'))
  for (const path of ['root/out', 'root/none', 'root2', 'root', 'root/../root2'])
    t.equal(packages.find(tree.path(path)), null)
  t.end()
})
