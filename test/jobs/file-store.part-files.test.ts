import { existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import t from 'tap'
import { OwnFolder } from '../../lib/files/own-folder.ts'
import { PartFiles } from '../../lib/jobs/file-store.ts'
import { readWhole } from '../../lib/jobs/job.ts'
import { makeTree } from '../helpers/tree.ts'

const ID = 'job-1700000000000-1-000000000001'
const OTHER = 'job-1700000000000-2-000000000002'

t.test('[jobs/file-store.5] a part is there when it is whole, and replaces an older one', async t => {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  const parts = new PartFiles(new OwnFolder(tree.root, '.svc', 'results'))
  t.equal(await parts.read(ID), null)
  for (const text of ['first', 'second']) {
    const writer = await parts.write(ID)
    await writer.write(Buffer.from(text.slice(0, 2)))
    await writer.write(Buffer.from(text.slice(2)))
    t.notOk(existsSync(tree.path(`.svc/results/${ID}`)) && text === 'first', 'not before its end')
    await writer.end()
    t.equal((await readWhole((await parts.read(ID))!)).toString(), text)
  }
  const dropped = await parts.write(OTHER)
  await dropped.write(Buffer.from('x'))
  await dropped.discard()
  t.same(readdirSync(tree.path('.svc/results')), [ID])
  await parts.remove(ID)
  await parts.remove(ID)
  t.same(readdirSync(tree.path('.svc/results')), [])
})

t.test('[jobs/file-store.6] what a killed process left is deleted, what is not ours stays', async t => {
  const tree = makeTree({
    [`.svc/results/${ID}`]: 'kept',
    [`.svc/results/${ID}.part`]: 'torn',
    [`.svc/results/${OTHER}`]: 'of no job',
    '.svc/results/job-notes': 'mine',
    '.svc/results/readme': 'mine',
  })
  t.teardown(tree.cleanup)
  const parts = new PartFiles(new OwnFolder(tree.root, '.svc', 'results'))
  parts.sweep(id => id === ID)
  t.same(readdirSync(tree.path('.svc/results')).sort(), [ID, 'job-notes', 'readme'].sort())
  writeFileSync(tree.path(`.svc/results/${ID}.part`), 'torn')
  const writer = await parts.write(ID)
  await writer.write(Buffer.from('new'))
  await writer.end()
  t.equal(readFileSync(tree.path(`.svc/results/${ID}`), 'utf8'), 'new', 'over a torn one')
})

t.test('[jobs/file-store.7] links are not followed, a folder in the way is told', async t => {
  const tree = makeTree({ 'outside/secret': 'secret' })
  t.teardown(tree.cleanup)
  mkdirSync(tree.path('.svc/results'), { recursive: true })
  symlinkSync(tree.path('outside/secret'), tree.path(`.svc/results/${ID}`))
  const parts = new PartFiles(new OwnFolder(tree.root, '.svc', 'results'))
  await t.rejects(parts.read(ID), { code: 'UNSAFE_PATH' })
  const writer = await parts.write(ID)
  await writer.write(Buffer.from('mine'))
  await writer.end()
  t.equal(readFileSync(tree.path('outside/secret'), 'utf8'), 'secret', 'the link was replaced')
  mkdirSync(tree.path(`.svc/results/${OTHER}/x`), { recursive: true })
  const blocked = await parts.write(OTHER)
  await t.rejects(blocked.end(), Error)
  t.notOk(existsSync(tree.path(`.svc/results/${OTHER}.part`)), 'and no draft is left')
})
