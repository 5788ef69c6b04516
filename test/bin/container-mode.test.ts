/** `fngw dev` with a client that records what it is asked for; with podman and a real image in test/image.test.ts. */
import { spawn } from 'node:child_process'
import net, { type AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { type CliOptions, FNGW, runCli, startCli, toEnv } from '../helpers/cli.ts'
import { makeFakeDocker } from './fake-docker.ts'
import { makeTree } from '../helpers/tree.ts'

// Each start is two programs; a busy machine takes its time.
t.setTimeout(240_000)

const IMAGE = 'registry.example/fngw:full'

function makeProject(t: Test) {
  const tree = makeTree({
    'fngw.json': { json: { 'functions-dir': 'functions', 'runtime-image': IMAGE } },
    'functions/hello.js': "export const handler = () => ({ m: 'one', key: process.env.API_KEY, own: process.pid })\n",
    'functions/hello/fn.env.json': { json: { API_KEY: 'file' } },
    // Lasts until the process ends.
    'functions/wait.js': 'export const handler = () => new Promise(() => {})\n',
    'functions/fn.config.json': '{ "timeout_ms": 60000 }',
    '.env': 'API_KEY=project\n',
  })
  t.teardown(tree.cleanup)
  const fake = makeFakeDocker()
  t.teardown(fake.cleanup)
  const start = async (args: string[], env: CliOptions['env'] = {}) => {
    const fngw = await startCli(['dev', ...args], { cwd: tree.root, env: { ...fake.env, ...env } })
    t.teardown(async () => {
      fngw.child.kill('SIGKILL')
      await fngw.ended
    })
    return fngw
  }
  return { tree, fake, start }
}

t.test('[bin/container.1] without an image dev is native, and with --native', async t => {
  const tree = makeTree({ 'hello.js': 'export const handler = () => 1\n' })
  t.teardown(tree.cleanup)
  const { env, cleanup } = makeFakeDocker()
  t.teardown(cleanup)
  for (const [args, given] of [
    [[], {}],
    [['--native', '--runtime-image', IMAGE], env],
  ] as const) {
    const fngw = await startCli(['dev', '--port', '0', ...args], { cwd: tree.root, env: given })
    t.equal((await fetch(`${fngw.url}/hello`)).status, 200)
    fngw.child.kill('SIGTERM')
    t.same(await fngw.ended, { code: 0, signal: null })
    t.notMatch(fngw.stderr(), /native mode|container mode/, args.join(' '))
  }
})

t.test('[bin/container.1] run is native, and says that an image changes nothing', async t => {
  const { tree, fake } = makeProject(t)
  const fngw = await startCli(['run', '--port', '0'], { cwd: tree.root, env: fake.env })
  fngw.child.kill('SIGTERM')
  await fngw.ended
  t.match(fngw.stderr(), /FN_RUNTIME_IMAGE is for fngw dev/)
  t.notMatch(fngw.stderr(), /native mode/)
})

t.test('[bin/container.2] no client: what each said, and the command without one', async t => {
  const { tree } = makeProject(t)
  const dead = makeFakeDocker({ info: { ServerVersion: '' }, infoCode: 1, infoError: 'Is the docker daemon running?' })
  t.teardown(dead.cleanup)
  const { status, stdout, stderr } = runCli(['dev', 'functions'], { cwd: tree.root, env: dead.env })
  t.same([status, stdout], [1, ''])
  t.match(stderr, /fngw: nothing runs containers here, and fngw\.json: runtime-image asks for one of registry\.example/)
  t.match(stderr, /docker: Is the docker daemon running\?\n.*FN_DOCKER_BIN\n.* dev functions --native\n/)
  const failing = makeFakeDocker({ createError: 'Error: image not known' })
  t.teardown(failing.cleanup)
  const missing = runCli(['dev', '--port', '0'], { cwd: tree.root, env: failing.env })
  t.equal(missing.status, 1)
  t.match(
    missing.stderr,
    /Trying to pull registry.example\/fngw:full\.\.\.\nfngw: .* cannot make a container: Error: image not known/,
  )
  t.same(failing.containers(), [])
})

t.test(
  '[bin/container.3, bin/container.5, bin/container.6, bin/container.8] the same tree, address and values',
  async t => {
    const { tree, fake, start } = makeProject(t)
    const fngw = await start(['--port', '0', '--json', '--log-level', 'warn'], {
      API_KEY: 'planted-key',
      FN_ADMIN_TOKEN: 'planted-token',
    })
    const { name, image, env, publish, mounts, workdir, args } = fake.last()
    t.equal(image, IMAGE)
    t.same(mounts, [`type=bind,source=${tree.root},target=${tree.root}`])
    t.equal(workdir, tree.root)
    t.same(publish, [`${new URL(fngw.url).host}:8080`], 'the port that is printed')
    t.match(env, { API_KEY: 'planted-key', FN_ADMIN_TOKEN: 'planted-token', FN_LOG_LEVEL: 'warn' })
    t.notMatch(JSON.stringify([fake.calls(), args]), /planted/)
    t.match(fngw.stderr(), new RegExp(`^container mode: ${IMAGE} as ${name}, by ${fake.program}\n`))
    t.match(fngw.stdout(), new RegExp(`"event":"ready".*"pid":${fngw.child.pid}\\b`))
    const hello = async () =>
      (await (await fetch(`${fngw.url}/hello`)).json()) as { m: string; key: string; own: number }
    t.match(await hello(), { m: 'one', key: 'planted-key' })
    tree.write({ 'functions/hello.js': "export const handler = () => ({ m: 'two' })\n" })
    while ((await hello()).m !== 'two') {}
    const catalog = await fetch(`${fngw.url}/_fn/catalog`)
    t.equal(catalog.status, 200, 'a caller of this machine is local')
    fngw.child.kill('SIGTERM')
    t.same(await fngw.ended, { code: 0, signal: null })
    t.same(fake.containers(), [])
  },
)

t.test('[bin/container.5] ports that are busy', async t => {
  const { tree, fake, start } = makeProject(t)
  const busy = net.createServer().listen(0, '127.0.0.1')
  await new Promise(done => busy.once('listening', done))
  t.teardown(() => busy.close())
  const { port } = busy.address() as AddressInfo
  const asked = runCli(['dev', '--port', String(port)], { cwd: tree.root, env: fake.env })
  t.equal(asked.status, 1)
  t.match(asked.stderr, new RegExp(`127\\.0\\.0\\.1:${port} is in use.*--port`))
  const eight = net.createServer()
  await new Promise<void>(done => eight.once('error', () => done()).listen(8080, '127.0.0.1', done))
  t.teardown(() => eight.close())
  const fngw = await start(['--control-port', '0'])
  t.match(fngw.stderr(), /port 8080 is in use, trying 8081/)
  t.equal((await fetch(`${fngw.url}/hello`)).status, 200)
  t.match(fake.last().publish, [/:\d+:8080$/, /:\d+:8081$/])
  t.match(fngw.stderr(), /control plane at http:\/\/127\.0\.0\.1:\d+\/_fn, and only there/)
  t.equal((await fetch(`${/http\S+\/_fn/.exec(fngw.stderr())![0]}/health`)).status, 200)
  fngw.child.kill('SIGTERM')
  await fngw.ended
})

t.test('[bin/container.9] the first signal finishes what runs, the second ends at once; nothing is left', async t => {
  for (const [first, second, code] of [
    ['SIGHUP', null, 0],
    ['SIGINT', 'SIGINT', 130],
  ] as const) {
    const { fake, start } = makeProject(t)
    const fngw = await start(['--port', '0'])
    const pid = fake.pidOf(fake.containers()[0]!)
    const answer = second === null ? null : fetch(`${fngw.url}/wait`).catch(() => 'cut')
    if (answer !== null) await untilRunning(fngw.url)
    const stopping = new Promise<void>(resolve => {
      fngw.child.stderr!.on('data', () => /finishing what runs/.test(fngw.stderr()) && resolve())
    })
    fngw.child.kill(first)
    if (second !== null) {
      await stopping
      fngw.child.kill(second)
      t.equal(await answer, 'cut')
    }
    t.same(await fngw.ended, { code, signal: null }, `${first} ${second}`)
    t.same(fake.containers(), [])
    t.throws(() => process.kill(pid, 0), { code: 'ESRCH' }, 'its process is gone')
  }
})

t.test('[bin/container.9] killed, it takes its container along', async t => {
  const { fake, start } = makeProject(t)
  const fngw = await start(['--port', '0'])
  const pid = fake.pidOf(fake.containers()[0]!)
  fngw.child.kill('SIGKILL')
  await fngw.ended
  while (fake.containers().length > 0) await new Promise(setImmediate)
  t.throws(() => process.kill(pid, 0), { code: 'ESRCH' })
})

/** Runs a program at a terminal of its own, whose keys are its standard input. */
const AT_TERMINAL = 'import pty, sys, os; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))'

t.test('[bin/container.7] keys and colours at a terminal', async t => {
  const { tree, fake } = makeProject(t)
  const words = ['-c', AT_TERMINAL, ...FNGW, 'dev', '--port', '0']
  const env = { ...toEnv(fake.env), TERM: 'xterm' }
  const child = spawn('python3', words, { cwd: tree.root, env, stdio: ['pipe', 'pipe', 'inherit'] })
  t.teardown(() => child.kill('SIGKILL'))
  let text = ''
  const waiting = new Set<() => void>()
  child.stdout.on('data', chunk => {
    text += String(chunk)
    for (const look of waiting) look()
  })
  const until = (pattern: RegExp) =>
    new Promise<void>(resolve => {
      const look = () => {
        if (!pattern.test(text)) return
        waiting.delete(look)
        resolve()
      }
      waiting.add(look)
      look()
    })
  await until(/keys: d docs/)
  t.match(text, /\u001b\[1mfngw/, 'colours')
  child.stdin.write('l')
  await until(/METHODS.*METHODS/s)
  child.stdin.write('r')
  await until(/reloaded in/)
  child.stdin.write('\u0003')
  await until(/finishing what runs/)
  t.equal(await new Promise(resolve => child.once('close', resolve)), 0)
  t.same(fake.containers(), [])
})

/** Until a call is in a handler. */
async function untilRunning(url: string): Promise<void> {
  for (;;) {
    const { functions } = (await (await fetch(`${url}/_fn/health`)).json()) as {
      functions: { summary: { pool_active: number } }
    }
    if (functions.summary.pool_active > 0) return
  }
}
