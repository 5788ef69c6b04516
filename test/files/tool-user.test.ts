import { spawn } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { OwnFolder } from '../../lib/files/own-folder.ts'
import { removeAsUser, ToolUser } from '../../lib/files/tool-user.ts'
import { UserSignals } from '../../lib/files/user-signals.ts'
import { isRunning } from '../helpers/processes.ts'
import { makeTree } from '../helpers/tree.ts'
import { until } from '../helpers/worker-client.ts'

const NO_ROOT =
  process.platform === 'linux' && process.geteuid?.() === 0 ? false : 'changing users needs Linux and root'
const UID = 34_321
const signals = new UserSignals()
t.teardown(() => signals.close())

function makeUser(t: Test) {
  const tree = makeTree({ 'victim/secret': 'secret' })
  t.teardown(() => tree.cleanup())
  chmodSync(tree.root, 0o755)
  const user = new ToolUser(new OwnFolder(tree.root, '.svc'), UID, signals)
  user.prepare('node/fn@default')
  const draft = user.folder.makeTemporary('d-')
  const result = new OwnFolder(tree.root, 'result')
  result.make()
  return { tree, user, draft, result }
}

/** As the user would leave a file. */
function leave(path: string, text = 'x', mode = 0o640): void {
  writeFileSync(path, text)
  chmodSync(path, mode)
  chownSync(path, UID, UID)
}

t.test(
  '[files/tool-user.1] the user enters its folder and changes nothing in it but what it was given',
  { skip: NO_ROOT },
  t => {
    const { user, draft, tree } = makeUser(t)
    t.match(statSync(user.folder.path), { uid: 0, gid: UID, mode: 0o40710 })
    t.equal(statSync(tree.path('.svc/users')).mode & 0o777, 0o711)
    t.match(statSync(user.home), { uid: UID })
    draft.write('package.json', '{}')
    draft.below('tree', 'a').make()
    draft.below('tree', 'a').write('b', 'c')
    symlinkSync(tree.path('victim/secret'), draft.pathOf('link'))
    user.give(draft)
    for (const name of ['', 'package.json', 'tree', 'tree/a', 'tree/a/b'])
      t.match(statSync(join(draft.path, name)), { uid: UID, gid: UID }, name)
    t.equal(statSync(tree.path('victim/secret')).uid, 0, 'no link is followed')
    t.equal(user.dweller, 'node/fn@default')
    user.prepare('node/fn@default')
    t.equal(user.dweller, 'node/fn@default')
    t.end()
  },
)

t.test(
  '[files/tool-user.2] what tools left is copied with plain rights, links inside it as links',
  { skip: NO_ROOT },
  async t => {
    const { user, draft, result } = makeUser(t)
    draft.write('staged', 'by the gateway')
    mkdirSync(draft.pathOf('bin'))
    leave(draft.pathOf('program'), 'run', 0o4755)
    leave(draft.pathOf('closed'), 'text', 0o600)
    symlinkSync('../program', join(draft.path, 'bin/program'))
    await user.take(draft, result)
    t.equal(readFileSync(result.pathOf('staged'), 'utf8'), 'by the gateway')
    t.match(statSync(result.pathOf('program')), { uid: 0, mode: 0o100755 }, 'not with the rights of its owner')
    t.match(statSync(result.pathOf('closed')), { uid: 0, mode: 0o100644 })
    t.ok(lstatSync(result.pathOf('bin/program'.split('/')[0]!)).isDirectory())
    t.equal(readFileSync(join(result.path, 'bin/program'), 'utf8'), 'run')
  },
)

t.test('[files/tool-user.2] files of others, and links that lead to them, are refused', { skip: NO_ROOT }, async t => {
  const kinds: Record<string, (path: string, secret: string) => void> = {
    'a link to a file': (path, secret) => symlinkSync(secret, path),
    'a link by .. to a file': path => symlinkSync('../../../victim/secret', path),
    'a link to a folder': (path, secret) => symlinkSync(join(secret, '..'), path),
    'a link to /proc': path => symlinkSync('/proc/self/environ', path),
    'a file of another user': path => {
      leave(path)
      chownSync(path, UID + 1, UID + 1)
    },
  }
  for (const [name, plant] of Object.entries(kinds)) {
    const { user, draft, result, tree } = makeUser(t)
    plant(draft.pathOf('planted'), tree.path('victim/secret'))
    await t.rejects(user.take(draft, result), { message: /^planted / }, name)
    t.notOk(existsSync(result.pathOf('planted')), name)
    const isLink = lstatSync(draft.pathOf('planted')).isSymbolicLink()
    await t.rejects(
      user.takeFile(draft.pathOf('planted'), result.pathOf('program')),
      { message: isLink ? 'planted is missing, or is a link' : `planted belongs to user ${UID + 1}` },
      name,
    )
  }
})

t.test('[files/tool-user.2] a pipe does not hold up the gateway', { skip: NO_ROOT }, async t => {
  const { user, draft, result } = makeUser(t)
  const made = spawn('mkfifo', [draft.pathOf('pipe')])
  await new Promise(resolve => made.once('exit', resolve))
  await t.rejects(user.take(draft, result), { message: 'pipe is not a regular file' })
})

t.test(
  '[files/tool-user.2] a folder that is exchanged for a link while it is copied is not followed',
  { skip: NO_ROOT },
  async t => {
    const { user, draft, result, tree } = makeUser(t)
    mkdirSync(draft.pathOf('a'))
    leave(join(draft.path, 'a/secret'), 'own')
    let isOver = false
    const swap = async (): Promise<void> => {
      while (!isOver) {
        renameSync(draft.pathOf('a'), draft.pathOf('b'))
        symlinkSync(tree.path('victim'), draft.pathOf('a'))
        await new Promise(setImmediate)
        unlinkSync(draft.pathOf('a'))
        renameSync(draft.pathOf('b'), draft.pathOf('a'))
        await new Promise(setImmediate)
      }
    }
    const swapping = swap()
    for (let round = 0; round < 200; round++) {
      const to = result.below(String(round))
      to.make()
      await user.take(draft, to).catch(() => {})
      for (const name of ['a', 'b']) {
        const path = join(to.path, name, 'secret')
        if (existsSync(path)) t.equal(readFileSync(path, 'utf8'), 'own')
      }
    }
    isOver = true
    await swapping
  },
)

t.test('[files/tool-user.3] a folder is deleted as its user, and through no link', { skip: NO_ROOT }, async t => {
  const { user, draft, tree } = makeUser(t)
  mkdirSync(join(draft.path, 'closed/deep'), { recursive: true })
  symlinkSync(tree.path('victim'), draft.pathOf('link'))
  user.give(draft)
  chmodSync(draft.pathOf('closed'), 0)
  await user.remove(draft)
  t.notOk(existsSync(draft.path))
  t.ok(existsSync(tree.path('victim/secret')))
  removeAsUser(draft, UID)
  t.pass('one that is gone is fine')
})

t.test(
  '[files/tool-user.4] what a tool detached is killed, and what this process runs as that user is not',
  { skip: NO_ROOT },
  async t => {
    const { user } = makeUser(t)
    const own = spawn('sleep', ['1000'], { uid: UID, gid: UID, stdio: 'ignore' })
    t.teardown(() => void own.kill('SIGKILL'))
    const parent = spawn('setsid', ['-f', 'env', '-i', 'sh', '-c', 'echo $$; exec sleep 1000'], { uid: UID, gid: UID })
    const text = await new Promise<string>(resolve => parent.stdout.once('data', bytes => resolve(String(bytes))))
    const stray = Number(text)
    await until(() => !isRunning(parent.pid!), 5000)
    t.ok(isRunning(stray))
    await signals.endOrphans(user.uid)
    await until(() => !isRunning(stray), 5000)
    t.ok(isRunning(own.pid!))
  },
)
