import { chownSync, linkSync, lstatSync, statSync, symlinkSync } from 'node:fs'
import t from 'tap'
import { giveFolder, handOver, OwnFolder } from '../../lib/files/own-folder.ts'
import { makeTree } from '../helpers/tree.ts'

const NO_ROOT = process.geteuid?.() === 0 ? false : 'giving files away needs root'

t.test(
  '[files/own-folder.10] a folder is handed over with all in it, and no link leads elsewhere',
  { skip: NO_ROOT },
  async t => {
    const tree = makeTree({ '.svc/a/b': '', '.svc/packs/p': '', 'outside/file': '', 'outside/hard': '' })
    t.teardown(() => tree.cleanup())
    symlinkSync(tree.path('outside'), tree.path('.svc/link'))
    linkSync(tree.path('outside/hard'), tree.path('.svc/a/hard'))
    handOver(new OwnFolder(tree.root, '.svc'), 20_000, ['packs'])
    for (const name of ['.svc', '.svc/a', '.svc/a/b'])
      t.match(statSync(tree.path(name)), { uid: 20_000, gid: 20_000 }, name)
    t.equal(lstatSync(tree.path('.svc/link')).uid, 20_000, 'the link itself')
    for (const name of ['outside', 'outside/file', 'outside/hard', '.svc/packs', '.svc/packs/p'])
      t.equal(statSync(tree.path(name)).uid, 0, name)
    handOver(new OwnFolder(tree.root, 'new'), 20_000)
    t.equal(statSync(tree.path('new')).uid, 20_000, 'one that is not there is made')
    chownSync(tree.root, 0, 0)
    t.throws(() => handOver(new OwnFolder(tree.root, '.svc', 'link'), 20_000), { code: 'UNSAFE_PATH' })
  },
)

t.test(
  "[files/own-folder.10] a folder of root's is given away alone, never by a link and never somebody else's",
  { skip: NO_ROOT },
  async t => {
    const tree = makeTree({ 'a/fn/handler.js': '', 'other/handler.js': '', 'outside/fn/handler.js': '' })
    t.teardown(() => tree.cleanup())
    const outside = makeTree({ 'fn/handler.js': '' })
    t.teardown(() => outside.cleanup())
    giveFolder(tree.root, tree.path('a/fn'), 20_000)
    t.match(statSync(tree.path('a/fn')), { uid: 20_000, gid: 0 })
    for (const name of ['a', 'a/fn/handler.js', 'outside/fn']) t.equal(statSync(tree.path(name)).uid, 0, name)
    chownSync(tree.path('other'), 1234, 1234)
    giveFolder(tree.root, tree.path('other'), 20_000)
    t.equal(statSync(tree.path('other')).uid, 1234)
    symlinkSync(outside.root, tree.path('link'))
    symlinkSync(outside.path('fn'), tree.path('a/link'))
    for (const path of ['link/fn', 'a/link', 'gone', 'gone/fn', 'a/fn/handler.js'])
      giveFolder(tree.root, tree.path(path), 20_000)
    t.equal(statSync(outside.path('fn')).uid, 0)
    t.equal(statSync(tree.path('a/fn/handler.js')).uid, 0)
    giveFolder(tree.root, tree.root, 20_000)
    t.equal(statSync(tree.root).uid, 20_000, 'the base itself')
  },
)
