import { spawn } from 'node:child_process'
import { chownSync, existsSync, statSync, symlinkSync } from 'node:fs'
import t from 'tap'
import { OwnFolder } from '../../lib/files/own-folder.ts'
import { removeAsUser } from '../../lib/files/tool-user.ts'
import { makeUserFolder, removeUserFolders, userFolder } from '../../lib/runtime/function-users.ts'
import { UserSignals } from '../../lib/files/user-signals.ts'
import { isRunning } from '../helpers/processes.ts'
import { makeTree } from '../helpers/tree.ts'
import { until } from '../helpers/worker-client.ts'

const NO_ROOT = process.geteuid?.() === 0 ? false : 'changing users needs root'
const UID = 20_321

t.test('[runtime/isolation.6] made by root, both folders are the user’s', { skip: NO_ROOT }, async t => {
  const tree = makeTree()
  t.teardown(() => tree.cleanup())
  const folder = userFolder(tree.root, UID)
  makeUserFolder(folder, UID)
  t.equal(folder.path, tree.path(`u/${UID}`))
  for (const path of [folder.path, `${folder.path}/tmp`]) t.match(statSync(path), { uid: UID, gid: UID, mode: 0o40700 })
  t.equal(statSync(tree.path('u')).mode & 0o777, 0o711)
  removeAsUser(folder, UID)
  t.notOk(existsSync(folder.path))
})

t.test(
  '[runtime/isolation.12] only folders of users are deleted, whatever they are called',
  { skip: NO_ROOT },
  async t => {
    const tree = makeTree({ 'u/20001/tmp/x': '', 'u/20002/x': '', 'outside/x': '', 'u/name/x': '' })
    t.teardown(() => tree.cleanup())
    chownSync(tree.path('u/20001'), 0, 20_001)
    symlinkSync(tree.path('outside'), tree.path('u/20003'))
    removeUserFolders(new OwnFolder(tree.root))
    t.notOk(existsSync(tree.path('u/20001')))
    for (const path of ['u/20002/x', 'outside/x', 'u/name/x']) t.ok(existsSync(tree.path(path)), path)
  },
)

t.test('[runtime/isolation.6] root has no need to kill as somebody else', { skip: NO_ROOT }, async t => {
  const child = spawn('sleep', ['1000'], { uid: UID, gid: UID, detached: true, stdio: 'ignore' })
  await new Promise(resolve => child.once('spawn', resolve))
  new UserSignals().killGroup(UID, child.pid!)
  t.ok(isRunning(child.pid!))
  process.kill(child.pid!, 'SIGKILL')
  await until(() => !isRunning(child.pid!))
})
