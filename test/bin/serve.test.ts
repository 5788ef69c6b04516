import { writeFileSync } from 'node:fs'
import net, { type AddressInfo } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { runCli, startCli } from '../helpers/cli.ts'
import { makeTree } from '../helpers/tree.ts'

// Each start is a program; a busy machine takes its time.
t.setTimeout(240_000)

const NODE_TREE = {
  'hello.js': "export const handler = () => ({ message: 'hello' })\n",
  // Lasts until the client leaves or the process ends.
  'wait.js': 'export const handler = () => new Promise(() => {})\n',
  'fn.config.json': '{ "timeout_ms": 60000 }',
}

t.test('[bin/dev.3, bin/dev.4] ports: asked for, busy, free', async t => {
  const { root, cleanup } = await makeTree(NODE_TREE)
  t.teardown(cleanup)
  const busy = net.createServer().listen(0, '127.0.0.1')
  await new Promise(done => busy.once('listening', done))
  t.teardown(() => busy.close())
  const { port } = busy.address() as AddressInfo
  for (const [args, env] of [
    [['--port', String(port)], {}],
    [[], { FN_PORT: String(port) }],
  ] as [string[], Record<string, string>][]) {
    const { status, stderr, stdout } = runCli(['dev', ...args], { cwd: root, env })
    t.same([status, stdout], [1, ''])
    t.match(stderr, new RegExp(`127\\.0\\.0\\.1:${port} is in use.*--port`))
  }
  writeFileSync(join(root, 'fngw.json'), JSON.stringify({ port: 1 }))
  const fngw = await startCli(['dev', '-p', '0'], { cwd: root, env: { FN_PORT: '2' } })
  t.ok(Number(new URL(fngw.url).port) > 2, 'flag before environment before file')
  fngw.child.kill('SIGTERM')
  await fngw.ended
})

t.test('[bin/dev.4] a busy default port is passed over, with a line that says so', async t => {
  const { root, cleanup } = await makeTree(NODE_TREE)
  t.teardown(cleanup)
  const busy = net.createServer()
  // Whoever has the default port: the test or another program.
  await new Promise<void>(done => busy.once('error', () => done()).listen(8080, '127.0.0.1', done))
  t.teardown(() => busy.close())
  const fngw = await startCli(['dev'], { cwd: root })
  t.teardown(() => void fngw.child.kill('SIGKILL'))
  t.match(fngw.stderr(), /port 8080 is in use, trying 8081/)
  t.not(new URL(fngw.url).port, '8080')
  t.equal((await fetch(`${fngw.url}/hello`)).status, 200)
  fngw.child.kill('SIGTERM')
  await fngw.ended
})

t.test('[bin/dev.22] the console is on in dev on a loopback address, and nowhere else by itself', async t => {
  const { root, cleanup } = await makeTree(NODE_TREE)
  t.teardown(cleanup)
  const cases: [args: string[], env: Record<string, string>, isOn: boolean][] = [
    [['dev'], {}, true],
    [['dev', '--no-console'], {}, false],
    [['dev'], { FN_UI_ENABLED: '0' }, false],
    [['dev', '--host', '0.0.0.0'], {}, false],
    [['dev', '--host', '0.0.0.0'], { FN_UI_ENABLED: '1' }, true],
    [['run', '--log-format', 'text'], {}, false],
  ]
  for (const [args, env, isOn] of cases) {
    const fngw = await startCli([...args, '--port', '0'], { cwd: root, env })
    const shown = fngw.stderr()
    const state = (await (await fetch(`${fngw.url}/_fn/ui-state`)).json()) as Record<string, unknown>
    const write = await fetch(`${fngw.url}/_fn/function?runtime=node&name=x`, {
      method: 'POST',
      headers: { 'x-fngw-request': '1' },
    })
    fngw.child.kill('SIGTERM')
    await fngw.ended
    const name = `${args.join(' ')} ${JSON.stringify(env)}`
    t.match(state, { ui_enabled: isOn }, name)
    t.equal(write.status, 403, 'writing has to be allowed')
    t.match(shown, / {2}runtimes {2}node \d+\.\d+\.\d+\n {2}docs {6}http:.*\/docs\n/, name)
    t.equal(shown.includes(`  console   ${fngw.url}/console\n`), isOn, name)
  }
})

t.test('[bin/dev.6] the first signal finishes what runs, the second ends at once', async t => {
  const { root, cleanup } = await makeTree(NODE_TREE)
  t.teardown(cleanup)
  const fngw = await startCli(['dev', '--port', '0'], { cwd: root })
  t.teardown(() => void fngw.child.kill('SIGKILL'))
  const cut = fetch(`${fngw.url}/wait`).then(
    () => 'answered',
    () => 'cut',
  )
  const isRunning = async () => {
    const { functions } = (await (await fetch(`${fngw.url}/_fn/health`)).json()) as {
      functions: { summary: { pool_active: number } }
    }
    return functions.summary.pool_active > 0
  }
  while (!(await isRunning())) {}
  const stopping = new Promise<void>(resolve => {
    fngw.child.stderr!.on('data', chunk => /finishing what runs/.test(String(chunk)) && resolve())
  })
  fngw.child.kill('SIGINT')
  await stopping
  fngw.child.kill('SIGINT')
  t.same(await fngw.ended, { code: 130, signal: null })
  t.equal(await cut, 'cut')
})
