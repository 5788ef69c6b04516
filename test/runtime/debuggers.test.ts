import { spawnSync } from 'node:child_process'
import { chmodSync, existsSync } from 'node:fs'
import { request } from 'node:http'
import { connect } from 'node:net'
import { fileURLToPath } from 'node:url'
import { once } from 'node:events'
import t, { type Test } from 'tap'
import {
  createGateway,
  type Gateway,
  type GatewayOptions,
  type LogRecord,
  type RequestRecord,
} from '../../lib/index.ts'
import { CdpClient, ScriptMap } from '../helpers/cdp.ts'
import { DapClient, DbgpEditor } from '../helpers/debug-clients.ts'
import { makeTree, type Tree, type TreeEntry } from '../helpers/tree.ts'

/** Its requests end with 504 after as many milliseconds as a stopped function would have had. */
const LATE = {
  'late/handler.mjs': `export const handler = () => new Promise(() => {})`,
  'late/fn.config.json': { json: { timeout_ms: 150 } },
}

interface Bed {
  gateway: Gateway
  tree: Tree
  /** Of the debugger's doors, by handler file. */
  urlOf: (file: string) => Promise<string>
  requests: RequestRecord[]
  logs: LogRecord[]
  /** Resolves when longer has passed than the functions of the tree may take. */
  outlast: () => Promise<void>
}

async function open(t: Test, entries: Record<string, TreeEntry>, options: GatewayOptions): Promise<Bed> {
  const tree = makeTree({ ...LATE, ...entries })
  const requests: RequestRecord[] = []
  const logs: LogRecord[] = []
  const gateway = await createGateway({
    functionsRoot: tree.root,
    hotReload: true,
    runtimes: ['node'],
    ...options,
    beforeStart: async opening => {
      opening.on('request', record => requests.push(record))
      opening.on('log', record => logs.push(record))
    },
  })
  t.teardown(async () => {
    await gateway.close({ timeoutMs: 0 })
    tree.cleanup()
  })
  const urlOf = async (file: string) => {
    const text = logs.find(({ message }) => message.startsWith(`debugger of ${file}:`))!.message
    return urlAt(Number(/port (\d+)/.exec(text)![1]))
  }
  const outlast = async () => {
    t.equal((await gateway.inject('/late')).status, 504)
  }
  return { gateway, tree, urlOf, requests, logs, outlast }
}

async function urlAt(port: number): Promise<string> {
  const list = await fetch(`http://127.0.0.1:${port}/json/list`)
  return ((await list.json()) as { webSocketDebuggerUrl: string }[])[0]!.webSocketDebuggerUrl
}

/** A free port to begin with: a debugger may run on this machine. */
const NODE = { port: 21_000 + (process.pid % 20_000) }

/** Stops at a line of a file. */
async function stopAt(client: CdpClient, file: string, line: number): Promise<ScriptMap> {
  const { scriptId, url } = await client.event('Debugger.scriptParsed', ({ url }) => url.startsWith(`file://${file}`))
  const { scriptSource } = await client.send('Debugger.getScriptSource', { scriptId })
  const map = new ScriptMap(scriptSource)
  await client.send('Debugger.setBreakpointByUrl', { url, ...map.toCompiled(line) })
  return map
}

async function evaluate(client: CdpClient, { callFrameId }: { callFrameId: string }, expression: string) {
  return (await client.send('Debugger.evaluateOnCallFrame', { callFrameId, expression })).result.value
}

const HANDLER = (factor: string) => `import { multiply } from './numbers.ts'

interface Event {
  query: { n: string }
}

export const handler = async ({ query }: Event) => {
  const value: number = multiply(Number(query.n), ${factor})

  return { status: 200, body: { value } }
}
`
const NUMBERS = `/** Of a helper. */
type Factor = number

export function multiply(n: number, factor: Factor): number {
  const product = n * factor
  return product
}
`

t.test(
  '[runtime/debuggers.1, runtime/debuggers.3, runtime/debuggers.6] stops at the line of a TypeScript handler for longer than its timeout, also after an edit',
  async t => {
    const entries = {
      'hello/handler.ts': HANDLER('2'),
      'hello/numbers.ts': NUMBERS,
      'hello/fn.config.json': { json: { timeout_ms: 100 } },
    }
    const { gateway, tree, urlOf, requests, outlast } = await open(t, entries, { debug: { node: NODE } })
    const url = await urlOf('hello/handler.ts')
    for (const [factor, expected] of [
      ['2', 14],
      ['3', 21],
    ] as const) {
      // The door is there before the worker: it lets in with the first request.
      const first = gateway.inject('/hello?n=1')
      const client = await CdpClient.open(url)
      await client.send('Debugger.enable')
      await first
      const map = await stopAt(client, tree.path('hello/handler.ts'), 9)
      t.same(map.sourcesContent, [HANDLER(factor)], 'Chrome, which reads no files, gets the text of the file')
      const answer = gateway.inject('/hello?n=7')
      const { callFrames } = await client.event('Debugger.paused')
      const { lineNumber, columnNumber } = callFrames[0].location
      t.same(map.toOriginal(lineNumber, columnNumber), { file: tree.path('hello/handler.ts'), line: 9 })
      t.equal(await evaluate(client, callFrames[0], 'value'), expected)
      await outlast()
      await client.send('Debugger.resume')
      const { status, body } = await answer
      t.same([status, JSON.parse(body.toString())], [200, { value: expected }])
      t.same(
        requests.filter(({ fn }) => fn === 'hello').map(({ note }) => note),
        [undefined, 'paused by debugger'],
      )
      requests.length = 0
      if (factor === '2') {
        tree.write({ 'hello/handler.ts': HANDLER('3') })
        // So that the editor connects to the new worker.
        await client.closed
      } else client.close()
    }
  },
)

t.test(
  '[runtime/debuggers.1, runtime/debuggers.2] stops in JavaScript of both styles and in a helper, at each of several workers',
  async t => {
    const entries = {
      'common.js': `exports.handler = async ({ query }) => {\n  const twice = query.n * 2\n  return { twice }\n}\n`,
      'module.mjs': `import { double } from './_double.mjs'\nexport const handler = ({ query }) => ({ twice: double(query.n) })\n`,
      '_double.mjs': `export function double(n) {\n  const twice = n * 2\n  return twice\n}\n`,
      'several/handler.mjs': `export const handler = () => {\n  const pid = process.pid\n  return { pid }\n}\n`,
      'several/fn.config.json': { json: { worker_pool: { min_warm: 2, max_workers: 2 } } },
    }
    const { gateway, tree, urlOf, logs } = await open(t, entries, { debug: { node: NODE } })
    const cases = [
      ['common.js', 'common.js', 3],
      ['module.mjs', '_double.mjs', 3],
    ] as const
    for (const [entry, file, line] of cases) {
      const opening = CdpClient.open(await urlOf(entry))
      const path = `/${entry.split('.')[0]}?n=4`
      const first = gateway.inject(path)
      const client = await opening
      await client.send('Debugger.enable')
      await first
      await client.send('Debugger.setBreakpointByUrl', { lineNumber: line - 1, url: `file://${tree.path(file)}` })
      const answer = gateway.inject(path)
      const { callFrames } = await client.event('Debugger.paused')
      t.equal(callFrames[0].location.lineNumber, line - 1, file)
      t.equal(await evaluate(client, callFrames[0], 'twice'), 8)
      await client.send('Debugger.resume')
      t.equal((await answer).body.toString(), '{"twice":8}')
      client.close()
    }
    const doors = () => logs.filter(({ message }) => message.startsWith('debugger of several/handler.mjs:'))
    await gateway.inject('/several')
    while (doors().length < 2) await new Promise(resolve => gateway.on('log', resolve))
    const ports = doors().map(({ message }) => Number(/port (\d+)/.exec(message)![1]))
    const pids = new Set<number>()
    for (const port of ports) {
      const client = await CdpClient.open(await urlAt(port))
      pids.add((await client.send('Runtime.evaluate', { expression: 'process.pid' })).result.value)
      client.close()
    }
    t.equal(pids.size, 2)
  },
)

t.test('[runtime/debuggers.4] a function waits for the debugger before it loads', async t => {
  const entries = { 'hello.mjs': `const loadedBy = 'debugger'\nexport const handler = () => loadedBy\n` }
  const debug = { node: { ...NODE, waits: true }, fn: 'hello' }
  const { gateway, tree, urlOf } = await open(t, entries, { debug })
  const opening = CdpClient.open(await urlOf('hello.mjs'))
  const answer = gateway.inject('/hello')
  const client = await opening
  await client.send('Debugger.enable')
  await client.send('Debugger.setBreakpointByUrl', { lineNumber: 1, url: `file://${tree.path('hello.mjs')}` })
  await client.send('Runtime.runIfWaitingForDebugger')
  const { callFrames } = await client.event('Debugger.paused')
  t.equal(await evaluate(client, callFrames[0], 'loadedBy'), 'debugger', 'stops while the file loads')
  await client.send('Debugger.resume')
  t.equal((await answer).body.toString(), '"debugger"')
  client.close()
})

t.test('[runtime/debuggers.7] a close of the gateway lets stopped code go on', async t => {
  const entries = {
    'hello.mjs': `export const handler = ({ query }) => {\n  if (query.stops) debugger\n  return 'done'\n}\n`,
  }
  const { gateway, urlOf } = await open(t, entries, { debug: { node: NODE, fn: 'hello' } })
  const opening = CdpClient.open(await urlOf('hello.mjs'))
  await gateway.inject('/hello')
  const client = await opening
  await client.send('Debugger.enable')
  const answer = gateway.inject('/hello?stops=1')
  await client.event('Debugger.paused')
  await Promise.all([gateway.close(), client.closed])
  t.equal((await answer).body.toString(), '"done"')
})

t.test('[runtime/debuggers.5] lets in only who knows the address, from this machine', async t => {
  const entries = { 'hello.mjs': `export const handler = () => 'done'\n` }
  const { gateway, urlOf } = await open(t, entries, { debug: { node: NODE, fn: 'hello' } })
  await gateway.inject('/hello')
  const url = await urlOf('hello.mjs')
  const { host, port } = new URL(url)
  await t.rejects(CdpClient.open(`ws://${host}/hello`), /404/, 'a path that can be guessed')
  await t.rejects(CdpClient.open(url, { Host: 'rebound.example' }), /404/, 'a name that leads here')
  for (const [headers, status] of [
    [{ host: 'rebound.example' }, 404],
    [{ host: `localhost:${port}` }, 200],
  ] as const) {
    const [response] = await once(request({ port, path: '/json/list', headers }).end(), 'response')
    response.resume()
    t.equal(response.statusCode, status, headers.host)
  }
})

t.test('[runtime/debuggers.7] a close of the gateway ends connections that have said nothing', async t => {
  const entries = { 'hello.mjs': `export const handler = () => 1`, 'hi.py': 'def handler(event):\n    return 1\n' }
  const python = { port: NODE.port + 700, path: null }
  const debug = { node: { port: NODE.port + 600 }, python }
  const { gateway } = await open(t, entries, { debug, runtimes: ['node', 'python'] })
  const silent = [debug.node.port, python.port].map(port => connect(port, '127.0.0.1'))
  await Promise.all(silent.map(socket => once(socket, 'connect')))
  // The other side has it too.
  await fetch(`http://127.0.0.1:${debug.node.port}/json`)
  const ended = Promise.all(silent.map(socket => once(socket.resume(), 'close')))
  await gateway.close({ timeoutMs: 0 })
  await t.resolves(ended)
})

t.test('[runtime/debuggers.8] is refused outside of development and at public addresses', async t => {
  const { root, cleanup } = makeTree({})
  t.teardown(cleanup)
  const cases: [GatewayOptions, RegExp][] = [
    [{ production: true }, /production must be development where handlers are debugged/],
    [{ host: '0.0.0.0' }, /host must be a loopback address where handlers are debugged/],
    [{ host: '192.0.2.1' }, /host must be a loopback address/],
    [{ gatewayWorkers: 2 }, /gatewayWorkers must be 1 where handlers are debugged/],
    [{ runtimeSockets: { node: ['tcp://192.0.2.1:7000'] } }, /runtimeSockets must not name daemons/],
  ]
  for (const [options, message] of cases)
    await t.rejects(createGateway({ functionsRoot: root, ...options, debug: { node: NODE } }), { message })
})

const CACHE = fileURLToPath(new URL('../../node_modules/.cache/', import.meta.url))
const DEBUGPY = `${CACHE}fngw-python`
const hasDebugpy = existsSync(`${DEBUGPY}/debugpy`) || 'debugpy is not installed: sh test/python-packages.sh'
const PYTHON = { port: NODE.port + 500, path: DEBUGPY }
const PYTHON_HANDLER = (factor: number) => `from _numbers import multiply

def handler(event):
    value = multiply(int(event['query']['n']), ${factor})
    return {'status': 200, 'body': {'value': value}}
`

t.test(
  '[runtime/debuggers.10, runtime/debuggers.12, runtime/debuggers.3, runtime/debuggers.6] stops at the line of a Python handler for longer than its timeout, also after an edit',
  async t => {
    if (hasDebugpy !== true) return t.pass(hasDebugpy)
    const entries = {
      'hello/handler.py': PYTHON_HANDLER(2),
      'hello/_numbers.py': `def multiply(n, factor):\n    return n * factor\n`,
      'hello/fn.config.json': { json: { timeout_ms: 100 } },
    }
    const options: GatewayOptions = { runtimes: ['node', 'python'], debug: { python: PYTHON } }
    const { gateway, tree, requests, outlast } = await open(t, entries, options)
    for (const [factor, expected] of [
      [2, 14],
      [3, 21],
    ] as const) {
      const client = new DapClient(PYTHON.port)
      const first = gateway.inject('/hello?n=1')
      await client.send('initialize', { adapterID: 'test', pathFormat: 'path', linesStartAt1: true })
      const attached = client.send('attach', { justMyCode: true })
      await client.event('initialized')
      await client.send('setBreakpoints', {
        source: { path: tree.path('hello/handler.py') },
        breakpoints: [{ line: 5 }],
      })
      await client.send('configurationDone')
      await Promise.all([attached, first])
      const answer = gateway.inject('/hello?n=7')
      const { threadId } = await client.event('stopped')
      const { stackFrames } = await client.send('stackTrace', { threadId })
      t.same([stackFrames[0].source.path, stackFrames[0].line], [tree.path('hello/handler.py'), 5])
      const { result } = await client.send('evaluate', { expression: 'value', frameId: stackFrames[0].id })
      t.equal(result, String(expected))
      await outlast()
      await client.send('continue', { threadId })
      t.equal((await answer).body.toString(), `{"value":${expected}}`)
      t.same(
        requests.filter(({ fn }) => fn === 'hello').map(({ note }) => note),
        [undefined, 'paused by debugger'],
      )
      requests.length = 0
      if (factor === 2) {
        tree.write({ 'hello/handler.py': PYTHON_HANDLER(3) })
        await client.closed
      } else client.close()
    }
  },
)

t.test('[runtime/debuggers.5] a page in a browser cannot speak to the debugger of Python', async t => {
  if (hasDebugpy !== true) return t.pass(hasDebugpy)
  const entries = { 'hello.py': `def handler(event):\n    return 'done'\n` }
  const { gateway } = await open(t, entries, { runtimes: ['node', 'python'], debug: { python: PYTHON } })
  await gateway.inject('/hello')
  const body = JSON.stringify({ seq: 1, type: 'request', command: 'initialize', arguments: { adapterID: 'page' } })
  await t.rejects(fetch(`http://127.0.0.1:${PYTHON.port}/`, { method: 'POST', body }))
})

const XDEBUG = `${CACHE}fngw-xdebug/${/^PHP (\d+\.\d+)/.exec(spawnSync('php', ['-v'], { encoding: 'utf8' }).stdout ?? '')?.[1]}.so`
const hasXdebug = existsSync(XDEBUG) || 'Xdebug is not there: sh test/xdebug.sh'
const PHP_HANDLER = (factor: number) => `<?php
require_once __DIR__ . '/_numbers.php';

function handler(array $event): array {
    $value = multiply((int) $event['query']['n'], ${factor});
    return ['status' => 200, 'body' => ['value' => $value]];
}
`

t.test(
  '[runtime/debuggers.11, runtime/debuggers.3, runtime/debuggers.6] stops at the line of a PHP handler for longer than its timeout, also after an edit',
  async t => {
    if (hasXdebug !== true) return t.pass(hasXdebug)
    const { path, write, cleanup } = makeTree({ 'ini/xdebug.ini': `zend_extension=${XDEBUG}\n` })
    t.teardown(cleanup)
    write({ php: `#!/bin/sh\nPHP_INI_SCAN_DIR=:${path('ini')} exec php "$@"\n` })
    chmodSync(path('php'), 0o755)
    const editor = new DbgpEditor()
    const port = await editor.listen()
    t.teardown(() => editor.close())
    const entries = {
      'hello/handler.php': PHP_HANDLER(2),
      'hello/_numbers.php': `<?php\nfunction multiply(int $n, int $factor): int {\n    return $n * $factor;\n}\n`,
      'hello/fn.config.json': { json: { timeout_ms: 100 } },
    }
    const options: GatewayOptions = {
      runtimes: ['node', 'php'],
      binaries: { php: path('php') },
      debug: { php: { port } },
    }
    const { gateway, tree, requests, outlast } = await open(t, entries, options)
    for (const [factor, expected] of [
      [2, 14],
      [3, 21],
    ] as const) {
      // Of the edited file a worker starts at the save.
      const first = factor === 2 ? gateway.inject('/hello?n=7') : null
      const session = await editor.session()
      const file = `file://${tree.path('hello/handler.php')}`
      t.match(await session.send(`breakpoint_set -t line -f ${file} -n 6`), /<response [^>]*command="breakpoint_set"/)
      const stopped = session.send('run')
      const answer = first ?? gateway.inject('/hello?n=7')
      t.match(await stopped, /status="break"/)
      const frame = /<stack [^>]*level="0"[^>]*>/.exec(await session.send('stack_get'))?.[0]
      t.match(frame, `filename="${file}" lineno="6"`)
      t.match(await session.send('property_get -n $value'), `<![CDATA[${expected}]]>`)
      await outlast()
      // Its answer comes when code stops the next time.
      void session.send('run')
      t.equal((await answer).body.toString(), `{"value":${expected}}`)
      t.same(
        requests.filter(({ fn }) => fn === 'hello').map(({ note }) => note),
        ['paused by debugger'],
      )
      requests.length = 0
      if (factor === 2) tree.write({ 'hello/handler.php': PHP_HANDLER(3) })
    }
  },
)
