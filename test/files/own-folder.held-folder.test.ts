import { existsSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { Worker } from 'node:worker_threads'
import t from 'tap'
import { inHeldFolder, removeEntry } from '../../lib/files/own-folder.ts'
import { makeTree } from '../helpers/tree.ts'

const LINUX_ONLY = process.platform !== 'linux' && 'only Linux names open folders by a path'

t.test('[files/own-folder.6] an entry is deleted with everything in it, links themselves', t => {
  const tree = makeTree({ 'own/a/b/c': '', 'own/a/d': '', 'own/file': '', 'outside/kept': '' })
  t.teardown(() => tree.cleanup())
  symlinkSync(tree.path('outside'), tree.path('own/a/link'))
  symlinkSync('nowhere', tree.path('own/dangling'))
  for (const name of ['a', 'file', 'dangling', 'missing'])
    inHeldFolder(tree.root, ['own'], tree.path('own'), held => removeEntry(held, name))
  for (const name of ['a', 'file', 'dangling']) t.notOk(existsSync(tree.path(`own/${name}`)), name)
  t.ok(existsSync(tree.path('outside/kept')))
  t.end()
})

/** Exchanges a folder and a link, again and again. */
const SWAP = `const { renameSync, symlinkSync, unlinkSync } = require('node:fs')
const { folder, outside, flag } = require('node:worker_threads').workerData
const attempt = act => { try { act() } catch {} }
while (Atomics.load(flag, 0) === 0) {
  attempt(() => renameSync(folder, folder + '-away'))
  attempt(() => symlinkSync(outside, folder))
  attempt(() => unlinkSync(folder))
  attempt(() => renameSync(folder + '-away', folder))
}`

t.test(
  '[files/own-folder.11] a folder that is exchanged for a link while it is deleted leads nowhere else',
  { skip: LINUX_ONLY },
  async t => {
    const tree = makeTree({ 'outside/deep/kept': '' })
    t.teardown(() => tree.cleanup())
    const folder = tree.path('own/a/swapped')
    const flag = new Int32Array(new SharedArrayBuffer(4))
    const worker = new Worker(SWAP, { eval: true, workerData: { folder, outside: tree.path('outside'), flag } })
    for (let round = 0; round < 300; round++) {
      try {
        mkdirSync(`${folder}/deep`, { recursive: true })
        writeFileSync(`${folder}/deep/kept`, '')
      } catch {
        // It is the link at this moment, or away.
      }
      try {
        inHeldFolder(tree.root, ['own'], tree.path('own'), held => removeEntry(held, 'a'))
      } catch {
        // Something was put there after the look.
      }
    }
    Atomics.store(flag, 0, 1)
    await new Promise(resolve => worker.once('exit', resolve))
    t.ok(existsSync(tree.path('outside/deep/kept')))
  },
)
