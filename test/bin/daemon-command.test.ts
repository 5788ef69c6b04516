import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { createInterface } from 'node:readline'
import t, { type Test } from 'tap'
import { runDaemon } from '../../bin/daemon-command.ts'
import { createOutput } from '../../bin/output.ts'
import { FNGW, runCli, toEnv } from '../helpers/cli.ts'
import { gatewayAt, SECRET } from '../helpers/remote-bed.ts'
import { makeTree, type Tree } from '../helpers/tree.ts'
import { isAlive, childrenOf } from '../helpers/processes.ts'
import { until } from '../helpers/worker-client.ts'

const TREE = { 'hello.js': 'exports.handler = e => ({ said: e.method })' }

async function start(t: Test, tree: Tree, args: string[], env: Record<string, string> = {}) {
  const child = spawn(FNGW[0], [...FNGW.slice(1), 'daemon', ...args], {
    cwd: tree.root,
    env: toEnv(env),
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const ended = new Promise<number | null>(resolve => child.once('close', resolve))
  t.teardown(async () => {
    child.kill('SIGKILL')
    await ended
  })
  let err = ''
  child.stderr.on('data', bytes => {
    err += bytes
  })
  for await (const line of createInterface({ input: child.stdout }))
    return { child, ready: line, ended, stderr: () => err }
  throw new Error(err)
}

t.test('[bin/daemon.1, bin/daemon.2] it says where it listens, serves, and leaves nothing behind', async t => {
  const tree = makeTree({ ...TREE, 'fns/hello.js': TREE['hello.js'] })
  t.teardown(() => tree.cleanup())
  const args = ['node', '--listen', 'tcp://127.0.0.1:0', '--functions', 'fns', '--json']
  const { child, ready, ended } = await start(t, tree, args, { FN_RUNTIME_SECRET: SECRET })
  const { event, uri } = JSON.parse(ready)
  t.match([event, uri], ['ready', /^tcp:\/\/127\.0\.0\.1:\d+$/])
  const own = { ...tree, root: tree.path('fns') }
  const { gateway } = await gatewayAt(t, own, { node: [uri] })
  t.match((await gateway.inject('/hello')).json(), { said: 'GET' })
  const processes = childrenOf(child.pid!).flatMap(pid => [pid, ...childrenOf(pid)])
  t.ok(processes.length >= 2, `${processes.length} processes`)
  child.kill('SIGTERM')
  t.equal(await ended, 0)
  await until(() => processes.every(pid => !isAlive(pid)))
  t.equal((await gateway.inject('/hello')).status, 503)

  const socket = tree.path('d.sock')
  const second = await start(t, tree, ['node', '--listen', `unix:${socket}`, '--functions', 'fns'])
  t.equal(second.ready, `ready unix:${socket}`)
  await until(() => second.stderr().includes(`node functions of ${tree.path('fns')}`))
  t.ok(existsSync(socket))
  second.child.kill('SIGINT')
  t.equal(await second.ended, 0)
  t.notOk(existsSync(socket))
})

t.test('[bin/daemon.3] what is wrong is told', async t => {
  const tree = makeTree(TREE)
  t.teardown(() => tree.cleanup())
  const output = createOutput(process.stdout, process.stderr, {})
  for (const [runtime, flags, exitCode, message] of [
    ['lua', { listen: 'unix:x' }, 2, /^Lua runs inside the gateway process/],
    ['node', { listen: 'udp://x:1' }, 2, /^--listen must be unix:\/path or tcp:\/\/host:port, got "udp:\/\/x:1"$/],
    ['node', { listen: 'tcp://h:99999' }, 2, /^--listen must be/],
    ['node', { listen: 'tcp://h' }, 2, /^--listen must be/],
    ['node', { listen: 'tcp://127.0.0.1:0', tlsCert: 'x' }, 2, /belong together/],
    ['node', { listen: 'unix:x', tlsCert: 'x', tlsKey: 'y' }, 2, /^--tls-cert is for/],
    ['node', { listen: 'tcp://0.0.0.0:0' }, 1, /can be reached from other machines.*FN_RUNTIME_SECRET_FILE/],
    ['node', { listen: 'tcp://127.0.0.1:0', tlsCert: 'x', tlsKey: 'y' }, 1, /^certificate and key cannot be used/],
  ] as const)
    await t.rejects(
      runDaemon(runtime, flags, { functionsRoot: tree.root }, output),
      { exitCode, message },
      String(message),
    )
  const ended = runCli(['daemon', 'node', '--listen', 'tcp://[::]:0'], { cwd: tree.root })
  t.equal(ended.status, 1)
  t.match(ended.stderr, /can be reached from other machines/)
  t.equal(ended.stdout, '')
})
