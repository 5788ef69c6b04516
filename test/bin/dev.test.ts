import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { createOutput } from '../../bin/output.ts'
import { createProgram } from '../../bin/program.ts'
import { findProgram } from '../../lib/runtime/binaries.ts'
import { runCli, startCli } from '../helpers/cli.ts'
import { waitUntil } from '../helpers/gateway-bed.ts'
import { makeTree } from '../helpers/tree.ts'

// Each start is a program; a busy machine takes its time.
t.setTimeout(240_000)

const NODE_TREE = {
  'hello.js': "export const handler = () => ({ message: 'hello' })\n",
  // Runs until the test says so.
  'wait.js': `import { existsSync, writeFileSync } from 'node:fs'
export async function handler({ query }) {
  writeFileSync(query.folder + '/begun', '')
  while (!existsSync(query.folder + '/go')) await new Promise(done => setTimeout(done, 20))
  return { done: true }
}
`,
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

const PROGRAM = createProgram({
  output: createOutput(process.stdout, process.stderr, {}),
  version: '0',
  program: 'fngw',
  terminal: null,
})

/** What `fngw <name> --help` prints. */
function helpOf(name: string): string {
  return PROGRAM.commands.find(command => command.name() === name)!.helpInformation()
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
  const signs = makeTree()
  t.teardown(signs.cleanup)
  const running = fetch(`${fngw.url}/wait?folder=${signs.root}`)
  await waitUntil(() => existsSync(signs.path('begun')), 'the request runs')
  fngw.child.kill('SIGTERM')
  await waitUntil(() => /finishing what runs/.test(fngw.stderr()), 'the stop begins')
  signs.write({ go: '' })
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

t.test('[bin/api-client.7] a command in the project finds the gateway, whatever its port', async t => {
  const { root, path, cleanup } = await makeTree({
    '.git/': '',
    'functions/hello.js': 'export const handler = () => 1\n',
  })
  t.teardown(cleanup)
  const fngw = await startCli(['run', 'functions', '--port', '0'], { cwd: root })
  t.teardown(() => void fngw.child.kill('SIGKILL'))
  t.match(runCli(['invoke', 'hello'], { cwd: root }), { status: 0, stdout: '1' })
  fngw.child.kill('SIGTERM')
  await fngw.ended
  t.same(readdirSync(path('functions/.svc/gateways')), [], 'the record is removed at the stop')
})

t.test('[bin/dev.18] the shell of npx is gone: fngw ends too', async t => {
  const { root, cleanup } = await makeTree(NODE_TREE)
  t.teardown(cleanup)
  const fngw = await startCli(['dev', '--port', '0', '--json'], {
    cwd: root,
    env: { npm_command: 'exec' },
    // As npm starts it; the shell waits for it.
    prefix: ['sh', '-c', '"$@" & wait', 'sh'],
  })
  const { pid } = JSON.parse(fngw.stdout().split('\n')[0]!) as { pid: number }
  t.not(pid, fngw.child.pid)
  const ended = new Promise(resolve => fngw.child.stdout!.once('close', resolve))
  fngw.child.kill('SIGTERM')
  await ended
  t.equal((await fngw.ended).signal, 'SIGTERM', 'the shell has ended by it')
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
  t.equal(stderr.match(/^ {2}fix: \S/gm)?.length, 3, 'each with how to mend it')
  for (const args of [['nonsense'], ['dev', '--nope'], ['explain'], ['init']]) {
    const run = runCli(args, { cwd: root })
    t.equal(run.status, 2, args.join(' '))
    t.not(run.stderr, '', args.join(' '))
  }
  t.equal(runCli(['dev', 'nowhere'], { cwd: root, env: { FN_PORT: '0' } }).status, 2, 'a root that does not exist')
})

t.test('[bin/dev.7, bin/dev.8, bin/dev.12] run is for production', async t => {
  const { root, cleanup } = await makeTree(NODE_TREE)
  t.teardown(cleanup)
  const fngw = await startCli(['run', '--port', '0', '--json', '--log-files'], { cwd: root })
  t.teardown(() => void fngw.child.kill('SIGKILL'))
  t.same(await (await fetch(`${fngw.url}/fail`)).json(), { error: 'function failed' })
  const health = (await (await fetch(`${fngw.url}/_fn/health`)).json()) as { hot_reload: { enabled: boolean } }
  t.equal(health.hot_reload.enabled, false)
  fngw.child.kill('SIGTERM')
  await fngw.ended
  const events = fngw
    .stdout()
    .trim()
    .split('\n')
    .map(line => JSON.parse(line))
  t.match(events, [{ event: 'ready' }, { event: 'request', path: '/fail' }, { event: 'log', code: 'HANDLER_FAILED' }])
  t.match(readFileSync(join(root, '.svc', 'logs', 'access.log'), 'utf8'), /"path":"\/fail"/)
  t.match(
    readFileSync(join(root, '.svc', 'logs', 'error.log'), 'utf8'),
    / req=\S+ trace=\S+ .*GET \/fail: fail\.js:1: Error: inner secret\n/,
  )
})

t.test(
  '[bin/dev.7, bin/dev.11] run logs as JSON: access lines on standard output, failures with their request',
  async t => {
    const { root, cleanup } = await makeTree({
      ...NODE_TREE,
      'bad.js': 'export const handler = () => ({ status: 99 })\n',
    })
    t.teardown(cleanup)
    const fngw = await startCli(['run', '--port', '0'], { cwd: root })
    t.teardown(() => void fngw.child.kill('SIGKILL'))
    const id = (await fetch(`${fngw.url}/fail?secret=1`)).headers.get('x-request-id')
    for (const path of ['/bad', '/_fn/health', '/escape']) await (await fetch(fngw.url + path)).text()
    fngw.child.kill('SIGTERM')
    t.same(await fngw.ended, { code: 0, signal: null })
    const [ready, ...access] = fngw.stdout().trim().split('\n')
    t.match(JSON.parse(ready!), { event: 'ready', level: 'info', url: fngw.url, pid: fngw.child.pid })
    t.match(
      access.map(line => JSON.parse(line)),
      [
        { msg: 'request', level: 'error', path: '/fail', status: 500, req_id: id, fn: 'fail' },
        { path: '/bad', status: 502 },
        { path: '/escape', status: 200 },
      ],
    )
    t.equal(access.length, 3)
    const logs = fngw
      .stderr()
      .trim()
      .split('\n')
      .map(line => JSON.parse(line))
    t.match(logs[0], { level: 'info', msg: /^serving .* 5 routes$/ })
    const failed = logs.filter(({ level }) => level === 'error')
    t.match(failed, [
      {
        msg: 'fail.js:1: Error: inner secret',
        req_id: id,
        code: 'HANDLER_FAILED',
        file: 'fail.js',
        line: 1,
        stack: /^ +at \S*handler/,
      },
      { msg: /^bad\.js: invalid runtime response: status must be/, code: 'CONTRACT_BROKEN' },
    ])
    t.match(
      logs.find(({ stream }) => stream === 'stdout'),
      { fn: 'escape', msg: '\u001b[2Jred', req_id: /./ },
    )
    t.notMatch(fngw.stderr(), /\u001b/)
    t.equal(existsSync(join(root, '.svc', 'logs')), false, 'no files unless they are asked for')
  },
)

t.test(
  '[bin/dev.7, bin/dev.12] run logs as text when asked, and log files that cannot be written are a warning',
  async t => {
    const { root, cleanup } = await makeTree({ ...NODE_TREE, '.svc': 'no folder' })
    t.teardown(cleanup)
    const fngw = await startCli(['run', '--port', '0', '--log-format', 'text', '--log-files'], { cwd: root })
    t.teardown(() => void fngw.child.kill('SIGKILL'))
    t.match(fngw.stderr(), /warning LOGS_NOT_WRITTEN: log files cannot be written.*\n +fix: .*--log-files/)
    t.equal((await fetch(`${fngw.url}/hello`)).status, 200)
    await fetch(`${fngw.url}/fail`)
    fngw.child.kill('SIGTERM')
    await fngw.ended
    t.match(fngw.stdout(), /^ready .*\n[\d:]+ 200 GET \/hello node hello\.js \S+ms \d+B\n[\d:]+ 500 GET \/fail /)
    t.match(fngw.stderr(), /error fail\.js:1: Error: inner secret \(GET \/fail req=\S+\)\n +at /)
  },
)

const THROWING: Record<string, [file: string, text: string, seen: RegExp]> = {
  node: [
    'a.js',
    "const inner = () => {\n  throw new TypeError('boom')\n}\nexport const handler = () => inner()\n",
    /error a\.js:2: TypeError: boom\n +at inner .*a\.js:2/,
  ],
  ts: [
    'b.ts',
    "const inner = (x: string): never => {\n  throw new RangeError(x)\n}\nexport const handler = () => inner('boom')\n",
    /error b\.ts:2: RangeError: boom\n +at inner .*b\.ts:2/,
  ],
  python: [
    'c.py',
    'def inner():\n    raise ValueError("boom")\n\ndef handler(event):\n    return inner()\n',
    /error c\.py:2: ValueError: boom\n[\s\S]*c\.py", line 2, in inner/,
  ],
  php: [
    'd.php',
    "<?php\nfunction inner() { throw new RuntimeException('boom'); }\nfunction handler($event) { return inner(); }\n",
    /error d\.php:2: RuntimeException: boom\n[\s\S]*d\.php:2/,
  ],
  lua: [
    'e.lua',
    'local function inner()\n  error("boom")\nend\nfunction handler(event)\n  inner()\nend\n',
    /error e\.lua:2: boom\n[\s\S]*e\.lua:2/,
  ],
}

t.test(
  '[bin/dev.10, bin/dev.11] dev shows what a handler throws, in every language, and no request forges a line',
  async t => {
    const cases = Object.entries(THROWING).filter(
      ([name]) =>
        name === 'ts' || name === 'lua' || findProgram(name as 'php', {}, process.env.PATH ?? '').path !== null,
    )
    const slow = {
      'slow.js': 'export const handler = () => new Promise(() => {})\n',
      'fn.config.json': '{ "timeout_ms": 300 }',
    }
    const { root, cleanup } = await makeTree({
      ...slow,
      ...Object.fromEntries(cases.map(([, [file, text]]) => [file, text])),
    })
    t.teardown(cleanup)
    const fngw = await startCli(['dev', '--port', '0'], { cwd: root, env: { FORCE_COLOR: '1' } })
    t.teardown(() => void fngw.child.kill('SIGKILL'))
    for (const [, [file]] of cases) await (await fetch(`${fngw.url}/${file[0]}`)).text()
    await (await fetch(`${fngw.url}/slow`)).text()
    await (await fetch(`${fngw.url}/%0aFAKE%1b[2J`)).text()
    fngw.child.kill('SIGTERM')
    await fngw.ended
    t.match(fngw.stderr(), /\u001b\[31merror\u001b\[39m \u001b\[31ma\.js:2: TypeError: boom/, 'in colour')
    const text = fngw.stderr().replace(/\u001b\[\d+m/g, '')
    for (const [name, [file, , seen]] of cases) {
      t.match(text, seen, name)
      const block = text.slice(text.indexOf(`error ${file}`)).split(/\n[\d:]+ \d{3} GET /)[0]!
      t.notMatch(block, /runtimes\/|node:internal|tsx/, `${name}: no frames of ours`)
    }
    t.match(text, /504 GET \/slow .*\nerror slow\.js:\d+: runtime timeout/)
    t.match(text, /404 GET \/\\nFAKE\\x1b\[2J /)
    t.notMatch(text, /^FAKE/m)
  },
)

t.test('[bin/dev.9] version, help and colours', async t => {
  const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
    version: string
  }
  const cwd = t.testdir({})
  for (const args of [['version'], ['--version']]) t.same(runCli(args, { cwd }).stdout, `${version}\n`)
  const help = runCli(['--help'], { cwd })
  t.equal(help.status, 0)
  for (const text of [help.stdout, ...['dev', 'run', 'init', 'routes', 'explain'].map(helpOf)]) {
    const widest = Math.max(...text.split('\n').map(line => line.length))
    t.ok(widest <= 80, `${text.slice(0, 20)} fits a terminal (${widest} columns)`)
  }
})
