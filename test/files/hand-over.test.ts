import { chownSync, linkSync, lstatSync, statSync, symlinkSync } from 'node:fs'
import t from 'tap'
import { handOver } from '../../lib/files/hand-over.ts'
import { OwnFolder } from '../../lib/files/own-folder.ts'
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
