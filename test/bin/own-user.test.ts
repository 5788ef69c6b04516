import { spawnSync } from 'node:child_process'
import { chmodSync, statSync } from 'node:fs'
import t, { type Test } from 'tap'
import { serveAsOwnUser } from '../../bin/own-user.ts'
import { FNGW, runCli, startCli } from '../helpers/cli.ts'
import { childrenOf, isRunning, statusOf } from '../helpers/processes.ts'
import { makeTree } from '../helpers/tree.ts'
import { until } from '../helpers/worker-client.ts'

t.setTimeout(240_000)

const NO_ROOT =
  process.platform !== 'linux' || process.geteuid?.() !== 0 ? 'changing users needs Linux and root' : false
const TREE = {
  'hello/fn.env.json': { json: { SECRET: 'x' } },
  'hello/handler.lua': 'return function() return { status = 200, body = "hello" } end',
}
const USER = { FN_ISOLATION: 'user', FN_ISOLATION_FILES: 'close', FN_RUNTIMES: 'lua' }

function makeRoot(t: Test) {
  const tree = makeTree(TREE)
  t.teardown(() => tree.cleanup())
  chmodSync(tree.root, 0o755)
  chmodSync(tree.path('hello/fn.env.json'), 0o600)
  return tree
}

t.test('[runtime/isolation.13] what is not isolated by users is served by who started it', async t => {
  t.equal(await serveAsOwnUser({ functionsRoot: '/' }), null)
  t.equal(
    await serveAsOwnUser({ functionsRoot: '/', isolation: 'no level' as 'user' }),
    null,
    'problems are the gateway’s',
  )
})

t.test(
  '[runtime/isolation.13] root is given up, what the gateway writes to is given to its user',
  { skip: NO_ROOT },
  async t => {
    const tree = makeRoot(t)
    const env = { ...USER, FN_ISOLATION_UIDS: '21000-21009' }
    const fngw = await startCli(['run', tree.root, '--native', '--port', '0', '--log-files'], { cwd: tree.root, env })
    t.teardown(() => void fngw.child.kill('SIGKILL'))
    t.equal(await (await fetch(`${fngw.url}/hello`)).text(), 'hello', 'Lua is read in a closed folder too')
    const [gateway] = childrenOf(fngw.child.pid!) as [number]
    t.match(statusOf(gateway), /^Uid:(?:\s21000){4}$/m)
    t.match(statusOf(gateway), /^CapEff:\s0+(?:4)?c0$/m)
    t.match(statusOf(gateway), /^CapBnd:\s0+(?:4)?c0$/m, 'and never more')
    t.match(statusOf(fngw.child.pid!), /^CapPrm:\s0+$/m, 'nor is the one that waits for it root')
    t.match(statusOf(fngw.child.pid!), /^Uid:(?:\s21000){4}$/m)
    for (const name of ['.svc', '.svc/isolation.json', '.svc/logs', '.svc/home'])
      t.equal(statSync(tree.path(name)).uid, 21_000, name)
    const { uid, gid, mode } = statSync(tree.path('hello'))
    t.same([uid, mode & 0o777], [0, 0o750], 'folders of functions keep their owner')
    t.match(
      statSync(tree.path('hello/fn.env.json')),
      { uid: 0, gid: 21_000, mode: 0o100640 },
      'secrets are the gateway’s',
    )
    t.ok(gid > 21_000 && gid <= 21_009)
    fngw.child.kill('SIGINT')
    t.match(await fngw.ended, { code: 0, signal: null }, 'signals reach the gateway, its exit code comes back')
    t.notOk(isRunning(gateway))
  },
)

t.test('[runtime/isolation.13] a gateway ends with the process that was root', { skip: NO_ROOT }, async t => {
  const tree = makeRoot(t)
  const fngw = await startCli(['run', tree.root, '--native', '--port', '0'], { cwd: tree.root, env: USER })
  const [gateway] = childrenOf(fngw.child.pid!) as [number]
  fngw.child.kill('SIGKILL')
  await until(() => !isRunning(gateway), 30_000)
  t.pass()
})

t.test('[runtime/isolation.13] what its user cannot reach, or write to, is said', { skip: NO_ROOT }, async t => {
  const tree = makeRoot(t)
  chmodSync(tree.root, 0o700)
  const closed = runCli(['run', tree.root, '--native', '--port', '0'], { cwd: '/', env: USER })
  t.equal(closed.status, 1)
  t.match(
    closed.stderr,
    `user 20000, as whom the gateway runs, cannot reach ${tree.root}: ${tree.root} is closed to them; chmod o+x ${tree.root}`,
  )
  chmodSync(tree.root, 0o755)
  tree.write({ '.svc': 'a file' })
  const unwritable = runCli(['run', tree.root, '--native', '--port', '0'], { cwd: '/', env: USER })
  t.equal(unwritable.status, 1)
  t.match(
    unwritable.stderr,
    'user 20000, as whom the gateway runs, cannot be given what it writes to: .svc is a file, not a folder',
  )
})

t.test('[runtime/isolation.3] a user without capabilities is refused', { skip: NO_ROOT }, async t => {
  const tree = makeRoot(t)
  const as = ['--reuid', '1234', '--regid', '1234', '--clear-groups', '--']
  const program = [...FNGW, 'run', tree.root, '--port', '0']
  const { status, stderr } = spawnSync('setpriv', [...as, ...program], {
    encoding: 'utf8',
    env: { ...process.env, ...USER },
  })
  t.equal(status, 2)
  t.match(
    stderr,
    'FN_ISOLATION cannot be user: it needs root or capabilities, this process runs as user 1234 without CAP_SETGID, CAP_SETUID',
  )
})
