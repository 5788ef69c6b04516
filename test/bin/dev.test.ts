import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import net, { type AddressInfo } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { hasColour } from '../../bin/output.ts'
import { runCli, startCli } from '../helpers/cli.ts'
import { makeTree } from '../helpers/tree.ts'

const NODE_TREE = {
  'hello.js': "export const handler = () => ({ message: 'hello' })\n",
  'wait.js': 'export const handler = () => new Promise(done => setTimeout(() => done({ done: true }), 300))\n',
  'escape.js': "export const handler = () => { console.log('\\u001b[2Jred'); return 1 }\n",
  'fail.js': "export const handler = () => { throw new Error('inner secret') }\n",
  'node_modules.txt': '',
}

/** Processes that have the text in their command line. */
function processesWith(text: string): string[] {
  return readdirSync('/proc').filter(pid => {
    if (!/^\d+$/.test(pid) || Number(pid) === process.pid) return false
    try {
      return (
        readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(text) &&
        !/^\S+ \(.*\) Z/.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
      )
    } catch {
      return false
    }
  })
}

t.test('[bin/dev.1, bin/dev.6, bin/dev.10] dev shows the table, says when it is ready, and ends cleanly', async t => {
  const { root, cleanup } = await makeTree({ ...NODE_TREE, 'get.post.x.js': '' })
  t.teardown(cleanup)
  const fngw = await startCli(['dev', '.', '--native', '--port', '0'], { cwd: root })
  t.teardown(() => void fngw.child.kill('SIGKILL'))
  t.match(fngw.stdout(), /^ready http:\/\/127\.0\.0\.1:\d+\n$/, 'standard output has the one line')
  t.match(fngw.stderr(), /METHODS +PATH +RUNTIME +FILE/)
  t.match(fngw.stderr(), /GET +\/hello +node +hello\.js/)
  t.match(fngw.stderr(), /warning [A-Z_]+: .*get\.post\.x\.js[\s\S]*fix: /)
  t.notMatch(fngw.stderr(), /\u001b/, 'no colours in a pipe')
  t.same(await (await fetch(`${fngw.url}/hello`)).json(), { message: 'hello' })
  await (await fetch(`${fngw.url}/escape`)).text()
  const running = fetch(`${fngw.url}/wait`)
  await new Promise(done => setTimeout(done, 100))
  fngw.child.kill('SIGTERM')
  t.same(await (await running).json(), { done: true }, 'what runs is finished')
  t.same(await fngw.ended, { code: 0, signal: null })
  t.match(fngw.stderr(), /\[fn:escape stdout\].*red/)
  t.notMatch(fngw.stderr(), /\u001b/, 'nothing of a function steers the terminal')
  t.same(processesWith(root), [], 'no process is left')
})

t.test('[bin/dev.2] --json prints one object a line', async t => {
  const { root, cleanup } = await makeTree(NODE_TREE)
  t.teardown(cleanup)
  const fngw = await startCli(['dev', '--native', '--port', '0', '--json'], { cwd: root })
  t.teardown(() => void fngw.child.kill('SIGKILL'))
  const request = fngw.line(/"event":"request"/)
  const log = fngw.line(/"event":"log".*red/)
  const reloaded = fngw.line(/"event":"reload"/)
  await (await fetch(`${fngw.url}/escape`)).text()
  t.match(JSON.parse(await request), {
    method: 'GET',
    path: '/escape',
    status: 200,
    runtime: 'node',
    entryFile: 'escape.js',
  })
  t.match(JSON.parse(await log), { fn: 'escape', stream: 'stdout' })
  writeFileSync(join(root, 'later.js'), 'export const handler = () => 1\n')
  t.match(JSON.parse(await reloaded), { cause: 'watch', functions: 5 })
  fngw.child.kill('SIGINT')
  t.same(await fngw.ended, { code: 0, signal: null })
  for (const line of fngw.stdout().trim().split('\n')) t.type(JSON.parse(line).event, 'string')
  t.equal(JSON.parse(fngw.stdout().split('\n')[0]!).pid, fngw.child.pid)
})

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
  const fngw = await startCli(['dev', '--port', '0'], { cwd: root, env: { FN_PORT: '2' } })
  t.ok(Number(new URL(fngw.url).port) > 2, 'flag before environment before file')
  fngw.child.kill('SIGTERM')
  await fngw.ended
})

t.test('[bin/dev.5] wrong settings and wrong usage: everything at once, exit code 2', async t => {
  const { root, cleanup } = await makeTree({ ...NODE_TREE, 'fngw.json': '{ "port": "many", "hots": "x" }' })
  t.teardown(cleanup)
  const { status, stdout, stderr } = runCli(['dev', '--namespace-depth', '9'], {
    cwd: root,
    env: { FN_RUNTIMES: 'cobol' },
  })
  t.same([status, stdout], [2, ''])
  for (const text of [/fngw\.json: port must be/, /--namespace-depth.*5.*9/, /FN_RUNTIMES.*cobol/])
    t.match(stderr, text)
  for (const args of [['nonsense'], ['dev', '--nope'], ['explain'], ['init']]) {
    const run = runCli(args, { cwd: root })
    t.equal(run.status, 2, args.join(' '))
    t.not(run.stderr, '', args.join(' '))
  }
  t.equal(runCli(['dev', 'nowhere'], { cwd: root, env: { FN_PORT: '0' } }).status, 2, 'a root that does not exist')
})

t.test('[bin/dev.7, bin/dev.8] run is for production', async t => {
  const { root, cleanup } = await makeTree(NODE_TREE)
  t.teardown(cleanup)
  const fngw = await startCli(['run', '--port', '0', '--json'], { cwd: root })
  t.teardown(() => void fngw.child.kill('SIGKILL'))
  t.same(await (await fetch(`${fngw.url}/fail`)).json(), { error: 'function failed' })
  const health = (await (await fetch(`${fngw.url}/_fn/health`)).json()) as { hot_reload: { enabled: boolean } }
  t.equal(health.hot_reload.enabled, false)
  fngw.child.kill('SIGTERM')
  await fngw.ended
  t.ok(existsSync(join(root, '.svc', 'logs', 'access.log')), 'requests are in the access log')
})

t.test('[bin/dev.9] version, help and colours', async t => {
  const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
    version: string
  }
  const cwd = t.testdir({})
  for (const args of [['version'], ['--version']]) t.same(runCli(args, { cwd }).stdout, `${version}\n`)
  for (const args of [['--help'], ['dev', '--help'], ['explain', '--help']]) {
    const { status, stdout } = runCli(args, { cwd })
    t.equal(status, 0)
    const widest = Math.max(...stdout.split('\n').map(line => line.length))
    t.ok(widest <= 80, `${args.join(' ')} fits a terminal (${widest} columns)`)
  }
  t.same(
    [
      hasColour({}, true),
      hasColour({}, false),
      hasColour({ NO_COLOR: '1' }, true),
      hasColour({ NO_COLOR: '' }, true),
      hasColour({ TERM: 'dumb' }, true),
      hasColour({ FORCE_COLOR: '1' }, false),
      hasColour({ FORCE_COLOR: '1', NO_COLOR: '1' }, true),
    ],
    [true, false, false, true, false, true, false],
  )
})
