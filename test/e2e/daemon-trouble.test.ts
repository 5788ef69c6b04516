/** Daemons on systems that lack something: no shell, no more processes. Owner: pages runtime/daemon and runtimes/node. */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { chmodSync, chownSync, existsSync, rmSync } from 'node:fs'
import { dirname } from 'node:path'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { type GatewayOptions, createGateway } from '../../lib/index.ts'
import { startCli } from '../helpers/cli.ts'
import { missingToolchain, shareCrates } from '../helpers/compiled.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'
import { until as untilWithin } from '../helpers/worker-client.ts'

t.setTimeout(240_000)

const until = (condition: () => boolean | Promise<boolean>) => untilWithin(condition, 60_000)

const RUNTIMES = fileURLToPath(new URL('../../runtimes', import.meta.url))
/** Nobody has it: the limit of processes is counted for each user. */
const UID = 54_321
const DAEMONS: Record<'python' | 'node' | 'php', { command: string[]; text: string; name: string }> = {
  python: {
    command: [findFor(UID, 'python3', '/usr/bin/python3'), `${RUNTIMES}/python/daemon.py`],
    text: "def handler(event): return 'hello'\n",
    name: 'py',
  },
  node: {
    command: [process.execPath, `${RUNTIMES}/daemon/daemon.mjs`],
    text: "export const handler = () => 'hello'\n",
    name: 'mjs',
  },
  php: {
    command: [findFor(UID, 'php', '/usr/bin/php'), `${RUNTIMES}/php/daemon.php`],
    text: "<?php function handler($event) { return 'hello'; }\n",
    name: 'php',
  },
}

/** The first of these programs that the user may run; the last one where none is. */
function findFor(uid: number, ...programs: [string, ...string[]]): string {
  const user = [`--reuid=${uid}`, `--regid=${uid}`, '--clear-groups', '--']
  const canRun = (program: string) => spawnSync('setpriv', [...user, program, '--version']).status === 0
  return programs.find(canRun) ?? programs.at(-1)!
}

/** The reason why this cannot be tried here, false when it can. */
function toSkip(...programs: string[]): string | false {
  if (process.getuid?.() !== 0) return 'only root can take processes away from another user'
  const missing = programs.find(program => spawnSync(program, ['--version']).error !== undefined)
  return missing === undefined ? false : `there is no ${missing}`
}

async function readiness(url: string): Promise<{ ready: boolean; reasons?: string[] }> {
  return (await fetch(`${url}/_fn/health?ready=1`)).json()
}

for (const [runtime, { command, text, name }] of Object.entries(DAEMONS)) {
  const skip = toSkip('setpriv', 'prlimit', command[0]!)
  t.test(
    `[runtime/daemon.19] a ${runtime} daemon that gets no process is down until it gets one`,
    { skip },
    async t => {
      const tree = makeTree({ [`a.${name}`]: text, [`b.${name}`]: text, [`c.${name}`]: text, 'own/': '' })
      t.teardown(tree.cleanup)
      chmodSync(tree.root, 0o755)
      chownSync(tree.path('own'), UID, UID)
      const daemon = startAs(t, command, tree.path('own/d.sock'), tree.root)
      const gateway = await createGateway({
        functionsRoot: tree.root,
        runtimes: [runtime as 'node'],
        runtimeSockets: { [runtime]: [`unix:${tree.path('own/d.sock')}`] },
      } satisfies GatewayOptions)
      t.teardown(() => gateway.close())
      const ready = async () => (await gateway.inject('/_fn/health?ready=1')).status
      const status = async (path: string) => (await gateway.inject(path)).status
      await until(() => isUp(gateway, runtime))
      t.equal(await status('/a'), 200)
      t.equal(await ready(), 200)

      limit(daemon, 1)
      // One that was there before the limit may serve the first.
      t.ok((await Promise.all(['/b', '/c'].map(status))).includes(503))
      await until(() => !isUp(gateway, runtime))
      t.equal(await ready(), 503)
      const { runtimes } = gateway.health() as unknown as Health
      t.match(
        runtimes[runtime]!.health.reason,
        /^no worker can be started: cannot start a process: |: spawn .* EAGAIN$/,
      )
      t.equal(await status('/a'), 200, 'the workers that it has go on')

      limit(daemon, 500)
      await until(async () => (await status('/b')) === 200 && (await status('/c')) === 200)
      await until(() => isUp(gateway, runtime))
      t.equal(await ready(), 200)
    },
  )
}

interface Health {
  runtimes: Record<string, { health: { up: boolean; reason: string } }>
}

function isUp(gateway: { health(): object }, runtime: string): boolean {
  const { health } = (gateway.health() as Health).runtimes[runtime]!
  return health.up && health.reason === 'ok'
}

/** A daemon of another user, whose process it is. */
function startAs(t: Test, command: readonly string[], socket: string, root: string): ChildProcess {
  const user = [`--reuid=${UID}`, `--regid=${UID}`, '--clear-groups', '--']
  const words = [...command, '--standalone', '--socket', socket, '--root', root]
  const env = { PATH: process.env.PATH, FNGW_SPARES: '1', FNGW_RUNTIME: 'node' }
  const child = spawn('setpriv', [...user, ...words], { stdio: 'ignore', env })
  t.teardown(async () => {
    const ended = new Promise(resolve => child.once('exit', resolve))
    child.kill('SIGTERM')
    await ended
  })
  return child
}

/** @param processes - soft limit, which the user may change for its own processes */
function limit({ pid }: ChildProcess, processes: number): void {
  const user = [`--reuid=${UID}`, `--regid=${UID}`, '--clear-groups', '--']
  const words = [...user, 'prlimit', '--pid', String(pid), `--nproc=${processes}:`]
  const { status, stderr } = spawnSync('setpriv', words, { encoding: 'utf8' })
  if (status !== 0) throw new Error(stderr)
}

const WITHOUT_SHELL = ['unshare', '--mount', '--propagation', 'private', 'sh', '-c']
const HIDE_SHELL = 'mount --bind /dev/null "$(readlink -f /bin/sh)" && exec "$0" "$@"'
const TREE: Record<string, TreeEntry> = {
  'hello.js': 'export const handler = () => process.ppid\n',
  'crash.js': 'export const handler = () => process.kill(process.pid, "SIGSEGV")\n',
}
const canHide = spawnSync(WITHOUT_SHELL[0]!, [...WITHOUT_SHELL.slice(1), HIDE_SHELL, 'true']).status === 0

t.test(
  '[runtimes/node.38] node workers start where there is no shell',
  { skip: canHide ? false : 'the shell cannot be taken away from a process here' },
  async t => {
    const tree = makeTree(TREE)
    t.teardown(tree.cleanup)
    const fngw = await startCli(['dev', '--native', '--port', '0', '--runtimes', 'node'], {
      cwd: tree.root,
      prefix: [...WITHOUT_SHELL, HIDE_SHELL],
    })
    t.teardown(() => void fngw.child.kill('SIGKILL'))
    t.equal((await fetch(`${fngw.url}/hello`)).status, 200)
    t.same(await readiness(fngw.url), { ready: true })
    const crash = await fetch(`${fngw.url}/crash`)
    t.same(
      [crash.status, await crash.json()],
      [503, { error: 'runtime worker ended: ended by SIGSEGV' }],
      'as elsewhere',
    )
    t.equal((await fetch(`${fngw.url}/hello`)).status, 200)
    fngw.child.kill('SIGTERM')
    t.same(await fngw.ended, { code: 0, signal: null })
  },
)

t.test(
  '[runtime/daemon.19] what keeps node from starting any worker is told before the first call, and mended by one',
  { skip: toSkip('setpriv') },
  async t => {
    const tree = makeTree({
      'fn/hello.js': 'export const handler = () => 1\n',
      'bin/setpriv': '#!/bin/sh\necho broken >&2\nexit 1\n',
    })
    t.teardown(tree.cleanup)
    chmodSync(tree.path('bin/setpriv'), 0o755)
    const fngw = await startCli(['dev', '--native', '--port', '0', '--runtimes', 'node'], {
      cwd: tree.path('fn'),
      env: { PATH: `${tree.path('bin')}:${process.env.PATH}` },
    })
    t.teardown(() => void fngw.child.kill('SIGKILL'))
    await until(async () => !(await readiness(fngw.url)).ready)
    t.same(await readiness(fngw.url), {
      ready: false,
      reasons: ['runtime node is down: no worker can be started: worker ended before it listened: broken'],
    })
    tree.write({ 'bin/setpriv': '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n' })
    t.equal((await fetch(`${fngw.url}/hello`)).status, 200)
    await until(async () => (await readiness(fngw.url)).ready)
    fngw.child.kill('SIGTERM')
    t.same(await fngw.ended, { code: 0, signal: null })
  },
)

interface SocketHealth {
  runtimes: Record<string, { sockets: { uri: string }[] }>
}

const COMPILED = ['go', 'rust'] as const
const HELLO: Record<string, readonly [file: string, text: string]> = {
  python: ['handler.py', "def handler(event): return 'hello'\n"],
  node: ['handler.mjs', "export const handler = () => 'hello'\n"],
  php: ['handler.php', "<?php function handler($event) { return 'hello'; }\n"],
  go: [
    'handler.go',
    'package main\n\nfunc Handler(event map[string]any) map[string]any {\n\treturn map[string]any{"status": 200, "body": "hello"}\n}\n',
  ],
  rust: [
    'handler.rs',
    'use serde_json::{json, Value};\npub fn handler(_event: Value) -> Value {\n    json!({"status": 200, "body": "hello"})\n}\n',
  ],
}

t.test('[runtime/daemon.5] workers of every language start after the folder of sockets was deleted', async t => {
  const skipped = new Map(COMPILED.map(runtime => [runtime as string, missingToolchain(runtime)]))
  for (const [runtime, reason] of skipped) if (reason !== null) t.pass(runtime, { skip: reason })
  const runtimes = Object.keys(HELLO).filter(runtime => (skipped.get(runtime) ?? null) === null)
  const tree = makeTree(
    Object.fromEntries(
      runtimes.flatMap(runtime => {
        const [file, text] = HELLO[runtime]!
        return ['a', 'b'].map(name => [`in-${runtime}/${name}/${file}`, text])
      }),
    ),
  )
  t.teardown(tree.cleanup)
  const fngw = await startCli(['dev', '--native', '--port', '0', '--runtimes', runtimes.join(',')], {
    cwd: tree.root,
    env: { ...shareCrates(), FN_DEPS_WAIT_MS: '120000' },
  })
  t.teardown(() => void fngw.child.kill('SIGKILL'))
  const call = async (name: string) => (await fetch(`${fngw.url}/${name}`)).text()
  const health = await (await fetch(`${fngw.url}/_fn/health`)).json()
  const socketOf = (runtime: string) =>
    (health as SocketHealth).runtimes[runtime]!.sockets[0]!.uri.slice('unix:'.length)
  const isAnswered = async (name: string) => t.match(await call(name), 'hello', name)
  await Promise.all(runtimes.map(runtime => isAnswered(`in-${runtime}/a`)))
  const folders = new Set(runtimes.map(runtime => dirname(socketOf(runtime))))
  // A spare worker may put its socket there while the folder is emptied.
  for (const folder of folders) rmSync(folder, { recursive: true, maxRetries: 10, retryDelay: 10 })
  await Promise.all(
    runtimes.map(async runtime => {
      // A worker that waited there for its function is lost, and with it the call that got it.
      await until(async () => (await call(`in-${runtime}/b`)).includes('hello'))
      t.match(await call(`in-${runtime}/a`), 'hello', `${runtime}: a worker that was there`)
      t.ok(existsSync(dirname(socketOf(runtime))), runtime)
    }),
  )
  fngw.child.kill('SIGTERM')
  t.same(await fngw.ended, { code: 0, signal: null })
  for (const folder of folders) t.notOk(existsSync(folder), 'nothing is left')
})
