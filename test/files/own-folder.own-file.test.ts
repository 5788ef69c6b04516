import { mkdirSync, readFileSync, statSync, symlinkSync } from 'node:fs'
import t from 'tap'
import { openNew, openToAppend, openToRead, openToUpdate, syncFolder } from '../../lib/files/own-folder.ts'
import { makeTree } from '../helpers/tree.ts'

t.test('[files/own-folder.9] a file is opened for its use, and made for its owner only', async t => {
  const tree = makeTree({ old: 'abc' })
  t.teardown(tree.cleanup)
  const update = await openToUpdate(tree.path('old'))
  await update.write(Buffer.from('X'), 0, 1, 1)
  await update.close()
  t.equal(readFileSync(tree.path('old'), 'utf8'), 'aXc')
  const made = await openNew(tree.path('new'))
  await made.close()
  if (process.platform !== 'win32') t.equal(statSync(tree.path('new')).mode & 0o777, 0o600)
  await t.rejects(openNew(tree.path('new')), { code: 'EEXIST' })
  t.equal(await openToRead(tree.path('none')), null)
  await syncFolder(tree.root)
  await t.rejects(syncFolder(tree.path('none')), { code: 'ENOENT' })
})

t.test('[files/own-folder.9] anything but a regular file is refused, and nothing behind a link is touched', async t => {
  const tree = makeTree({ 'outside/file': 'kept' })
  t.teardown(tree.cleanup)
  symlinkSync(tree.path('outside/file'), tree.path('link'))
  symlinkSync(tree.path('outside/none'), tree.path('dangling'))
  mkdirSync(tree.path('folder'))
  for (const name of ['link', 'dangling', 'folder']) {
    for (const open of [openToAppend, openToUpdate])
      await t.rejects(open(tree.path(name)), { code: 'UNSAFE_PATH' }, `${name} ${open.name}`)
    await t.rejects(openNew(tree.path(name)), { code: 'EEXIST' }, name)
  }
  t.equal(readFileSync(tree.path('outside/file'), 'utf8'), 'kept')
})
