/**
 * The images of the Dockerfile: what its text promises in every run, and built and run with podman by `npm run test:image`. The targets
 * that are tried can be named: FNGW_TEST_IMAGE_TARGETS=minimal,python.
 */
import { chmodSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { fetchPage } from './helpers/chromium.ts'
import { startCli } from './helpers/cli.ts'
import { freePort } from './helpers/program.ts'
import { openPodman, type Podman } from './podman.ts'
import { makeTree } from './helpers/tree.ts'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8')
const TARGETS = ['minimal', 'python', 'php', 'full']
const MOST_BYTES = 60_000_000
/** Answers after which a zombie counts as one that stays. */
const MOST_LOOKS = 1000
/** Optional peers that a fleet needs. */
const STORE_PACKAGES = ['bullmq', 'ioredis']
const COMPILERS = ['cc', 'gcc', 'g++', 'clang', 'make', 'go', 'cargo', 'git']

/** What answers in which target. */
const FILES = {
  'index.js': `
    import { spawn } from 'node:child_process'
    import { readdirSync, readFileSync } from 'node:fs'
    // A process that ends after its parent has: nobody but process 1 can reap it.
    const CHILD = 'setTimeout(() => {}, 100)'
    const PARENT = \`require('node:child_process').spawn(process.execPath, ['-e', '\${CHILD}'], { detached: true, stdio: 'ignore' }).unref()\`
    const processes = () => readdirSync('/proc').filter(name => /^\\d+$/.test(name)).flatMap(pid => {
      try {
        const stat = readFileSync('/proc/' + pid + '/stat', 'utf8')
        const [state, parent] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
        return [{ pid, state, parent, command: readFileSync('/proc/' + pid + '/cmdline', 'utf8') }]
      } catch { return [] }
    })
    export const handler = async event => {
      if (event.query.orphan !== undefined)
        await new Promise(resolve => spawn(process.execPath, ['-e', PARENT], { stdio: 'ignore' }).once('exit', resolve))
      return { uid: process.getuid(), processes: processes() }
    }`,
  'leave/handler.js': `
    import { spawn } from 'node:child_process'
    // Without the environment of its worker, and its parent ends.
    const SCRIPT = '/usr/local/bin/node -e "setInterval(() => {}, 1000)//LEFT" & exit'
    export const handler = () => new Promise(() => spawn('/bin/sh', ['-c', SCRIPT], { detached: true, stdio: 'ignore', env: {} }).unref())`,
  'leave/fn.config.json': '{ "timeout_ms": 1000 }',
  'wait/handler.js': 'export const handler = () => { for (;;); }\n',
  'wait/fn.config.json': '{ "timeout_ms": 60000 }',
  'typed.ts': "export const handler = (event: { method: string }): string => event.method + ' ts'\n",
  'answer.lua': "return function(event) return event.method .. ' lua' end\n",
  'py/answer.py':
    "import ssl, sqlite3, zoneinfo\ndef handler(event):\n    return event['method'] + ' ' + str(zoneinfo.ZoneInfo('Europe/Paris'))\n",
  'web/answer.php': "<?php\nfunction handler($event) { return $event['method'] . ' ' . mb_strtoupper('php'); }\n",
}
const ANSWERS: Record<string, Record<string, string>> = {
  minimal: { '/typed': 'GET ts', '/answer': 'GET lua' },
  python: { '/py/answer': 'GET Europe/Paris', '/typed': 'GET ts', '/answer': 'GET lua' },
  php: { '/web/answer': 'GET PHP', '/typed': 'GET ts', '/answer': 'GET lua' },
  full: { '/py/answer': 'GET Europe/Paris', '/web/answer': 'GET PHP', '/typed': 'GET ts', '/answer': 'GET lua' },
}

t.test(
  '[image.1, image.2, image.3, image.4, image.6, image.7, image.8, image.10] the Dockerfile says who runs what, and the build gets every file it needs',
  t => {
    const text = read('Dockerfile')
    const targets = [...text.matchAll(/^FROM (?:scratch|minimal) AS (\w+)$/gm)].map(match => match[1])
    t.same(targets, TARGETS)
    t.same(
      [...text.matchAll(/^ARG (\w+_IMAGE)=docker\.io\/library\/[\w:.-]+$/gm)].map(match => match[1]),
      ['NODE_IMAGE', 'DEBIAN_IMAGE'],
    )
    t.match(text, /^USER 10001:10001$/m)
    t.match(text, / \/usr\/bin\/perl /, 'minimal, python and php have no package with it')
    t.match(text, /^ENTRYPOINT \["\/usr\/bin\/tini", "--", "fngw"\]$/m, 'no shell is between the init and the program')
    t.match(text, /^HEALTHCHECK .*CMD \["fngw", "health", "--ready"\]$/m)
    t.match(text, /^STOPSIGNAL SIGTERM$/m)
    t.match(text, /^ {2}FN_WORKER_NICE=5$/m)
    t.match(text, /^ {2}FN_SHUTDOWN_TIMEOUT=8 \\$/m)
    t.match(text, /^ {2}FNGW_IMAGE=1 \\$/m)
    t.match(text, /podman build --format docker/)
    for (const name of STORE_PACKAGES)
      t.match(text, `dependencies.${name}="$(npm pkg get devDependencies.${name})"`, `${name} is in every target`)
    const { files } = JSON.parse(read('package.json')) as { files: string[] }
    const kept = new Set(read('.dockerignore').trim().split('\n'))
    for (const file of [
      'bin',
      'build',
      'conformance',
      'console',
      'lib',
      'package-lock.json',
      ...files.filter(name => name !== 'dist'),
    ])
      t.notOk(kept.has(file), `${file} reaches the build`)
    t.end()
  },
)

const named = process.env.FNGW_TEST_IMAGE_TARGETS?.split(',') ?? TARGETS
const podman = process.env.FNGW_TEST_IMAGE === '1' ? openPodman() : 'images are built and run by npm run test:image'
const skip = typeof podman === 'string' ? podman : false

for (const target of named) {
  t.test(
    `[image.1, image.2, image.3, image.4, image.5, image.8, image.10] ${target} is built and runs`,
    { skip, timeout: 3_600_000 },
    t => tryTarget(t, podman as Podman, target),
  )
}
t.test(
  '[bin/container.3, bin/container.4, bin/container.5, bin/container.7, bin/container.8, bin/container.9] fngw dev serves in a container',
  { skip, timeout: 3_600_000 },
  t => tryContainerMode(t, podman as Podman, toImage(named[0]!)),
)
if (typeof podman !== 'string') t.teardown(podman.close)

function toImage(target: string): string {
  return `${process.env.FNGW_TEST_IMAGE_NAME ?? 'localhost/fngw'}:${target}`
}

const DEV_TREE = {
  'fngw.json': { json: { 'functions-dir': 'functions' } },
  'functions/hello.js': `
    import { writeFileSync } from 'node:fs'
    import { lib } from '../shared.js'
    export const handler = event => {
      console.log('said')
      writeFileSync(new URL('made.txt', import.meta.url), 'x')
      return { lib, v: 1, key: process.env.API_KEY, file: import.meta.filename }
    }`,
  'functions/fn.env.json': { json: { API_KEY: 'file' } },
  'functions/wait.js': 'export const handler = () => new Promise(() => {})\n',
  'functions/fn.config.json': '{ "timeout_ms": 60000 }',
  'shared.js': 'export const lib = 1\n',
  'package.json': { json: { type: 'module' } },
}

async function tryContainerMode(t: Test, podman: Podman, image: string): Promise<void> {
  const tree = makeTree(DEV_TREE)
  t.teardown(tree.cleanup)
  const env = { ...podman.env, FN_DOCKER_BIN: 'podman', FN_RUNTIME_IMAGE: image, API_KEY: 'mine' }
  const start = async () => {
    const fngw = await startCli(['dev', '--port', '0'], { cwd: tree.root, env })
    t.teardown(async () => {
      fngw.child.kill('SIGKILL')
      await fngw.ended
    })
    const name = /fngw-dev-\S+(?=,)/.exec(fngw.stderr())![0]
    t.teardown(() => podman.run('rm', '-f', name))
    const isThere = () => podman.get('ps', '--all', '--quiet', '--filter', `name=${name}`) !== ''
    return { ...fngw, name, isThere }
  }

  const fngw = await start()
  t.equal(fngw.isThere(), true)
  const hello = async () => (await fetch(`${fngw.url}/hello`)).json()
  t.same(await hello(), { lib: 1, v: 1, key: 'mine', file: tree.path('functions/hello.js') })
  t.equal(statSync(tree.path('functions/made.txt')).uid, process.getuid!(), 'its files are those of who started it')
  tree.write({ 'functions/hello.js': 'export const handler = () => ({ v: 2, uid: process.getuid() })\n' })
  while ((await hello()).v !== 2) {}
  t.equal((await hello()).uid, process.getuid!())
  tree.write({ 'functions/new.js': 'export const handler = () => 1\n' })
  while ((await fetch(`${fngw.url}/new`)).status !== 200) {}
  t.equal((await fetch(`${fngw.url}/_fn/catalog`)).status, 200, 'its caller is local')
  t.equal(fngw.stdout(), `ready ${fngw.url}\n`)
  t.match(fngw.stderr(), /\[fn:hello stdout\] said/)
  fngw.child.kill('SIGINT')
  t.same(await fngw.ended, { code: 0, signal: null })
  t.match(fngw.stderr(), /finishing what runs/)
  t.equal(fngw.isThere(), false)

  const twice = await start()
  const cut = fetch(`${twice.url}/wait`).catch(() => 'cut')
  const stopping = new Promise<void>(resolve => {
    twice.child.stderr!.on('data', () => /finishing what runs/.test(twice.stderr()) && resolve())
  })
  while (!(await isCalled(twice.url))) {}
  twice.child.kill('SIGINT')
  await stopping
  twice.child.kill('SIGINT')
  t.same(await twice.ended, { code: 130, signal: null })
  t.equal(await cut, 'cut')
  t.equal(twice.isThere(), false, 'a second signal')

  const killed = await start()
  killed.child.kill('SIGKILL')
  await killed.ended
  while (killed.isThere()) {}
  t.pass('nothing is left of one that was killed')
}

async function isCalled(url: string): Promise<boolean> {
  const { functions } = await (await fetch(`${url}/_fn/health`)).json()
  return functions.summary.pool_active > 0
}

async function tryTarget(t: Test, podman: Podman, target: string): Promise<void> {
  const built = process.env.FNGW_TEST_IMAGE_NAME
  const image = toImage(target)
  if (built === undefined)
    podman.get('build', '--format', 'docker', '--network=host', ...podman.bases, '--target', target, '-t', image, ROOT)
  const tree = makeTree(FILES)
  t.teardown(tree.cleanup)
  chmodSync(tree.root, 0o755)
  const port = await freePort()
  const name = `fngw-test-${process.pid}-${target}`
  t.teardown(() => podman.run('rm', '-f', name))
  const locked = ['--read-only', '--tmpfs', '/tmp', '--cap-drop=all', '--security-opt=no-new-privileges']
  const place = [
    '--network=host',
    '-e',
    `PORT=${port}`,
    '-e',
    'FN_HOST=127.0.0.1',
    '-e',
    'FN_UI_ENABLED=1',
    '-v',
    `${tree.root}:/functions:ro`,
  ]
  podman.get('run', '-d', '--name', name, ...locked, ...place, image)
  t.equal(podman.get('exec', name, 'fngw', 'health', '--ready', '--wait', '120'), 'ready')
  t.equal(podman.run('healthcheck', 'run', name).status, 0, 'HEALTHCHECK')

  const url = `http://127.0.0.1:${port}`
  for (const [path, answer] of Object.entries(ANSWERS[target]!))
    t.equal(await (await fetch(url + path)).json(), answer, path)
  for (const address of ['/docs', '/console']) {
    const statuses = await fetchPage(url + address)
    t.ok(statuses.size > 4, `${address} names ${statuses.size} files`)
    for (const [link, status] of statuses) t.equal(status, 200, link)
  }
  const { uid, processes } = await (await fetch(`${url}/?orphan`)).json()
  t.equal(uid, 10001)
  t.match(processes[0], { pid: '1', command: /^\/usr\/bin\/tini\0--\0fngw\0run/ })
  t.same(await withoutChildren(url), [], 'what a function left behind is gone, and no zombie stays')
  t.equal((await fetch(`${url}/leave`)).status, 504)
  t.equal(await isLeft(url), false, 'what a function detached ends with its worker')
  const tools = podman.get('exec', name, 'sh', '-c', `for x in ${COMPILERS.join(' ')}; do command -v $x; done; :`)
  t.equal(tools, '', 'no compiler')
  t.not(podman.run('exec', name, 'sh', '-c', 'echo 1 >/app/x').status, 0, 'the root cannot be written')
  const { packages } = JSON.parse(read('package-lock.json')) as { packages: Record<string, { version: string }> }
  for (const packageName of STORE_PACKAGES) {
    const script = `require('/app/node_modules/${packageName}/package.json').version`
    const { version } = packages[`node_modules/${packageName}`]!
    t.equal(podman.get('exec', name, 'node', '-p', script), version, `${packageName} has the locked version`)
  }

  const cut = fetch(`${url}/wait`).catch(() => null)
  while (!(await isCalled(url))) {}
  podman.get('stop', '-t', '10', name)
  await cut
  t.equal(podman.get('inspect', '-f', '{{.State.ExitCode}}', name), '0', 'SIGTERM ends it before SIGKILL comes')

  const { total, node } = sizeOf(t, podman, image)
  t.comment(`${target}: ${(total / 1e6).toFixed(1)} MB compressed, of which node ${(node / 1e6).toFixed(1)} MB`)
  if (target === 'minimal') t.ok(total <= MOST_BYTES, `${total} bytes`)
}

/** True when a detached process is still there MOST_LOOKS answers later. */
async function isLeft(url: string): Promise<boolean> {
  for (let looks = 0; looks < MOST_LOOKS; looks++) {
    const { processes } = (await (await fetch(url)).json()) as { processes: { command: string }[] }
    if (!processes.some(({ command }) => command.includes('LEFT'))) return false
  }
  return true
}

/** Asks until the processes that the handler began are gone. @returns the zombies that are still there MOST_LOOKS answers later */
async function withoutChildren(url: string): Promise<unknown[]> {
  let zombies: unknown[] = []
  for (let looks = 0; looks < MOST_LOOKS; looks++) {
    const { processes } = (await (await fetch(url)).json()) as {
      processes: { state: string; parent: string; command: string }[]
    }
    if (processes.some(({ command }) => command.includes('setTimeout'))) looks = 0
    // One of a child that ended just now is reaped at the next look; those of a living parent are its own matter.
    zombies = processes.filter(({ state, parent }) => state === 'Z' && parent === '1')
    if (looks > 0 && zombies.length === 0) return []
  }
  return zombies
}

/** Bytes of an image as a registry keeps it, and of the program node alone. */
function sizeOf(t: Test, podman: Podman, image: string): { total: number; node: number } {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  podman.get('push', '-q', image, `oci:${tree.path('oci')}:image`)
  const blob = (digest: string) => JSON.parse(readFileSync(tree.path(`oci/blobs/${digest.replace(':', '/')}`), 'utf8'))
  const index = JSON.parse(readFileSync(tree.path('oci/index.json'), 'utf8'))
  const { layers } = blob(index.manifests[0].digest) as { layers: { size: number }[] }
  const mounted = podman.get('image', 'mount', image)
  const node = gzipSync(readFileSync(join(mounted, 'usr/local/bin/node')), { level: 6 }).length
  podman.run('image', 'unmount', image)
  return { total: layers.reduce((sum, layer) => sum + layer.size, 0), node }
}
