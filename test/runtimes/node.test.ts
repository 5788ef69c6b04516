import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
} from 'node:fs'
import module from 'node:module'
import net from 'node:net'
import { basename } from 'node:path'
import t from 'tap'
import { KIND } from '../../lib/runtime/wire-protocol.ts'
import { listTree } from '../../runtimes/daemon/memory.mjs'
import { SpareCount } from '../../runtimes/daemon/spare-count.mjs'
import { Workers } from '../../runtimes/daemon/workers.mjs'
import { encodeFrame as encodeNodeFrame, FrameReader as NodeFrameReader } from '../../runtimes/node/wire.mjs'
import { FakeClock } from '../helpers/clock.ts'
import { isAlive, childrenOf, killIfThere } from '../helpers/processes.ts'
import { makeTree } from '../helpers/tree.ts'
import {
  type Answer,
  type DaemonClient,
  FrameClient,
  startDaemon,
  until,
  type WorkerClient,
  type WorkerStart,
} from '../helpers/worker-client.ts'

const DAEMON = new URL('../../runtimes/daemon/daemon.mjs', import.meta.url).pathname
const WINDOW_BYTES = 256 * 1024
const MEMORY_MB = 128

/** One handler file with many cases, chosen by `event.query.case`. */
const CASES = `
import { writeSync } from 'node:fs'
import { spawn } from 'node:child_process'
import { Worker } from 'node:worker_threads'
const sleep = ms => new Promise(r => setTimeout(r, ms))
const bytes = new Uint8Array([0, 255, 10])
async function* numbers(n, size) { for (let i = 0; i < n; i++) yield size ? new Uint8Array(size).fill(i) : String(i) }
let released = () => {}
globalThis.state = []
const cases = {
  event: (event, params) => ({ event, params, signal: event.signal instanceof AbortSignal }),
  change: event => { event.env.A = 'changed'; event.context.worker_pool.max_workers = 99; return 1 },
  show: event => [event.env, event.context],
  echo: event => Buffer.from(event.body_base64, 'base64'),
  process: () => ({ cwd: process.cwd(), env: process.env, stdin: process.stdin.constructor.name }),
  // Returns.
  string: () => 'text', number: () => 4.5, boolean: () => false, array: () => [1], object: () => ({ body: 'plain' }),
  nothing: () => undefined, null: () => null, bytes: () => bytes, buffer: () => Buffer.from(bytes), arrayBuffer: () => bytes.buffer,
  envelope: () => ({ status: 201, headers: { 'X-A': 'b', n: 5, 'Set-Cookie': ['a=1', 'b=2'], gone: null }, body: { ok: true } }),
  statusCode: () => ({ statusCode: 202, body: 'text' }),
  html: () => ({ status: 200, headers: { 'Content-Type': 'text/html' }, body: '<p>' }),
  headersBody: () => ({ headers: {}, body: 'x' }),
  base64: () => ({ status: 200, is_base64: true, body_base64: Buffer.from(bytes).toString('base64') }),
  alias64: () => ({ statusCode: 200, isBase64Encoded: true, body: 'AP8K' }),
  bodyBytes: () => ({ status: 200, body: bytes }), empty: () => ({ status: 204 }), bodyNumber: () => ({ status: 200, body: 7 }),
  proxy: () => ({ proxy: { path: '/x', method: 'POST', headers: { a: 'b' }, body: { j: 1 } } }),
  response: () => new Response('hi', { status: 203, headers: [['set-cookie', 'a=1'], ['set-cookie', 'b=2'], ['x-a', 'y']] }),
  responseJson: () => Response.json({ a: 1 }), responseEmpty: () => new Response(null, { status: 204 }),
  map: () => ({ status: 200, headers: new Map([['x-a', 'b']]), body: '' }),
  toJSON: () => ({ toJSON: () => ({ made: true }) }),
  // Broken contracts.
  textStatus: () => ({ status: '200', body: '' }), status99: () => ({ status: 99 }), status600: () => ({ status: 600 }),
  nan: () => ({ status: Number.NaN }), half: () => ({ status: 200.5 }), nullStatus: () => ({ status: null }),
  headerList: () => ({ status: 200, headers: ['a'] }), headerObject: () => ({ status: 200, headers: { a: {} } }),
  longHeader: () => ({ status: 200, headers: { a: 'x'.repeat(512 * 1024) } }),
  headerBreak: () => ({ status: 200, headers: { a: 'b\\r\\nc: d' } }), headerName: () => ({ status: 200, headers: { 'a b': 'c' } }),
  cycle: () => { const a = {}; a.a = a; return a }, bigint: () => ({ status: 200, body: { n: 1n } }), function: () => () => 1,
  bad64: () => ({ status: 200, is_base64: true, body_base64: '%%' }), missing64: () => ({ status: 200, is_base64: true }),
  flag64: () => ({ status: 200, is_base64: 'yes', body_base64: '' }), badProxy: () => ({ proxy: 'x' }),
  usedResponse: async () => { const r = new Response('x'); await r.text(); return r },
  // Failures.
  throw: () => { throw new TypeError('went wrong') }, reject: async () => { await null; throw new Error('later') },
  longError: () => { throw Object.assign(new Error('\\u0001'.repeat(100_000)), { hint: '\\u0001'.repeat(100_000) }) },
  throwText: () => { throw 'just text' }, throwNull: () => { throw null },
  throwTrap: () => { throw { get message() { throw 1 }, get stack() { throw 2 } } },
  trap: () => new Proxy({}, { get() { throw new Error('trap') }, has() { throw new Error('trap') } }),
  deep: () => { const f = () => f(); return f() },
  // Streams.
  generator: () => numbers(3), bodyStream: () => ({ status: 206, headers: { 'content-type': 'text/csv' }, body: numbers(3) }),
  slow: async function* () { yield 'a'; await sleep(30); yield 'b' },
  syncGenerator: function* () { yield 'x'; yield new Uint8Array([1]) },
  large: () => Buffer.alloc(3 * 1024 * 1024, 'x'), largeJson: () => 'y'.repeat(2 * 1024 * 1024),
  flow: async function* () { for (let i = 0; i < 64; i++) { globalThis.state.push(i); yield new Uint8Array(64 * 1024) } },
  webStream: () => new Response(new ReadableStream({ pull(c) { c.enqueue(new TextEncoder().encode('web')); c.close() } })),
  events: () => ({ status: 200, headers: { 'content-type': 'text/event-stream' }, body: (async function* () { await sleep(60); yield 'data: 1\\n\\n' })() }),
  failEarly: async function* () { throw new Error('early') }, failLate: async function* () { yield 'a'; await sleep(20); throw new Error('late') },
  badPiece: async function* () { yield {} }, noPieces: async function* () {},
  endless: async function* (event) { try { for (;;) { yield 'tick'; await sleep(5) } } finally { globalThis.state.push('finally') } },
  state: () => { const s = globalThis.state; globalThis.state = []; return s },
  // Waiting.
  wait: async event => { await new Promise((_, reject) => event.signal.addEventListener('abort', () => reject(event.signal.reason))) },
  hang: () => new Promise(r => { released = r }), release: () => { released('late'); return 1 },
  tick: async event => { await sleep(Number(event.query.ms)); return event.query.name },
  twice: () => ({ then(f) { f(1); f(2) } }),
  // Output.
  print: async event => { console.log('out ' + event.query.name); await sleep(5); console.error('err', event.query.name); process.stdout.write('more\\n'); return 1 },
  flood: () => { for (let i = 0; i < 3000; i++) console.log('x'.repeat(99)); return 1 },
  outside: () => { const print = left => { console.log('z'.repeat(50000)); if (left > 1) setTimeout(print, 1, left - 1) }; setTimeout(print, 5, 5); return 1 },
  afterwards: () => { setTimeout(() => console.log('afterwards'), 20); return 1 },
  raw: () => { writeSync(1, 'raw bytes\\n'); writeSync(2, 'raw error\\n'); return 1 },
  rawFlood: async () => { for (let i = 0; i < 200; i++) { writeSync(1, Buffer.alloc(65536, 'f')) } await sleep(150); return 1 },
  // Ends.
  exit: () => process.exit(3), exitLater: async () => { await sleep(5); process.exit(0) },
  uncaught: () => { setTimeout(() => { throw new Error('out of nowhere') }, 1); return new Promise(() => {}) },
  rejection: () => { Promise.reject(new Error('nobody cares')); return 1 },
  abort: () => process.abort(), kill: () => process.kill(process.pid, 'SIGKILL'), killParent: () => { process.kill(process.ppid, 'SIGKILL'); return new Promise(() => {}) },
  loop: () => { for (;;); }, heap: () => { const a = []; for (;;) a.push(new Array(1000).fill({})) },
  native: () => { const all = []; for (;;) all.push(Buffer.alloc(50 * 1024 * 1024, 1)) },
  hungryChild: () => { spawn(process.execPath, ['-e', 'const a = []; setInterval(() => { if (a.length < 40) a.push(Buffer.alloc(16 << 20, 1)) }, 5)']); return new Promise(() => {}) },
  threads: () => Promise.all([1, 2, 3].map(n => new Promise((done, fail) => new Worker('require("worker_threads").parentPort.postMessage(' + n + ')', { eval: true }).once('message', done).once('error', fail)))),
  child: () => { const c = spawn('sleep', ['1000'], { stdio: 'ignore' }); return c.pid },
  patch: () => { JSON.stringify = () => 'patched'; JSON.parse = () => null; Buffer.from = () => null; Object.keys = () => []; return { still: 'right' } },
  closeStd: () => { process.stdout.end(); process.stdin.destroy(); return 1 },
  garbage: async () => { const { readdirSync } = await import('node:fs'); for (const fd of readdirSync('/proc/self/fd')) if (Number(fd) > 3) try { writeSync(Number(fd), 'garbage') } catch {} ; return 1 },
}
export function handler(event, params) { return cases[event.query.case](event, params) }
`

/** What handlers do with a body, chosen by `event.query.case`. */
const BODIES = `
import { inspect } from 'node:util'
const kept = []
const looks = {
  json: event => JSON.parse(JSON.stringify(event)),
  spread: event => ({ ...event }),
  assign: event => Object.assign({}, event),
  entries: event => Object.fromEntries(Object.entries(event)),
  clone: event => structuredClone(event),
  loop: event => { const all = {}; for (const name in event) all[name] = event[name]; return all },
  derived: event => { const own = Object.create(event); return { body: own.body, is_base64: own.is_base64, body_base64: own.body_base64 } },
  proxy: event => { const { body, is_base64, body_base64 } = new Proxy(event, {}); return { body, is_base64, body_base64 } },
  frozen: event => { const { body, is_base64, body_base64 } = Object.freeze(event); return { body, is_base64, body_base64 } },
  late: async event => { await new Promise(r => setTimeout(r, 5)); return { ...event } },
  printed: event => ({ text: inspect(event, { maxStringLength: 40 }), body: event.body, is_base64: event.is_base64, body_base64: event.body_base64 }),
}
const cases = {
  untouched: () => 1,
  has: event => [Object.keys(event), 'body' in event, Object.hasOwn(event, 'body_base64'), event.propertyIsEnumerable('is_base64')],
  change: event => { event.body = 'mine'; event.is_base64 = 0; const had = delete event.body_base64; return [event.body, event.is_base64, had, 'body_base64' in event] },
  keep: event => { kept.push(event); return 1 },
  kept: () => kept.map(event => event.body ?? event.body_base64),
  echo: event => event.is_base64 ? { status: 200, is_base64: true, body_base64: event.body_base64 } : { status: 200, body: event.body },
  alias: event => ({ status: 200, isBase64Encoded: event.is_base64, body: event.body ?? event.body_base64 }),
  longer: event => ({ status: 200, body: event.body + '!' }),
  same: event => ({ status: 200, body: event.body.slice(0, 1).toUpperCase() + event.body.slice(1) }),
  proxied: event => ({ proxy: { path: '/x', ...(event.is_base64 ? { is_base64: true, body_base64: event.body_base64 } : { body: event.body }) } }),
  text: event => 'h\u00e9\ud83d\ude00'.repeat(Number(event.query.n)),
  lone: event => ({ status: 200, body: '\ud800x'.repeat(Number(event.query.n)) }),
  reused: async function* (event) { const bytes = Buffer.alloc(Number(event.query.n)); for (let i = 0; i < 40; i++) yield bytes.fill(i) },
}
export const handler = event => {
  const name = event.query.case
  return name in looks ? Promise.resolve(looks[name](event)).then(seen => ({ seen })) : cases[name](event)
}
`

// Many processes are started; a busy machine takes its time.
t.setTimeout(120_000)

const tree = makeTree({
  'cases.mjs': CASES,
  'pass.mjs': 'export const handler = () => "pass"',
  'bodies.mjs': BODIES,
  'boom.ts':
    'enum Kind { a }\ninterface Gone {\n  x: string\n}\n\nexport const handler = (): never => {\n  throw new Error(String(Kind.a))\n}\n',
})
t.teardown(() => tree.cleanup())
const daemon: DaemonClient = await startDaemon('node', {
  root: tree.root,
  env: { FNGW_WORKER_MEMORY_MB: String(MEMORY_MB), FNGW_STYLES: 'js,ts', FN_ADMIN_TOKEN: 'planted' },
})
t.teardown(() => daemon.close())

const load = (entry: string, start: Partial<WorkerStart> = {}): Promise<WorkerClient> =>
  daemon.worker({ dir: tree.root, entry, ...start })
const byCase = (name: string, query: Record<string, string> = {}) => ({ query: { case: name, ...query } })
const parsed = (answer: Answer) => JSON.parse(answer.text)
/** The `exited` frame of a worker that was told to. */
const endOf = async (worker: WorkerClient) => (await daemon.ended(worker)).header

async function withWorker(entry: string, start: Partial<WorkerStart>, act: (worker: WorkerClient) => Promise<unknown>) {
  const worker = await load(entry, start)
  await act(worker)
  await worker.close()
}

/** Loads a function that must fail to load. */
async function loadError(entry: string, start: Partial<WorkerStart> = {}) {
  const worker = await load(entry, start)
  const { header, kind } = await worker.ready()
  t.equal(kind, KIND.error, `${entry} must not load`)
  await worker.closed
  return header
}

t.test('[runtimes/node.1] the daemon greets, answers pings and refuses what it does not speak', async t => {
  t.equal(daemon.info.runtime, 'node')
  t.match(daemon.info.version, /^\d+\.\d+\.\d+$/)
  t.equal(daemon.info.pid, daemon.child.pid)
  daemon.control.send(KIND.ping, 9)
  t.equal((await daemon.control.wait(frame => frame.kind === KIND.pong)).id, 9)
  const strangers: [string, (client: FrameClient) => void][] = [
    ['protocol version 2', client => client.send(KIND.hello, 0, { role: 'control' }, Buffer.from([2]))],
    ['role control only', client => client.send(KIND.hello, 0, { role: 'worker' }, Buffer.from([1]))],
    ['first frame must be hello', client => client.send(KIND.ping, 1)],
    ['unknown frame kind 99', client => client.send(99 as never, 1)],
    ['above', client => client.socket.write(Buffer.from('ffffffff01000000000000000000', 'hex'))],
  ]
  for (const [reason, speak] of strangers) {
    const client = new FrameClient(daemon.uri)
    speak(client)
    const { header } = await client.wait(frame => frame.kind === KIND.error)
    t.match(header, { code: 'protocol', message: new RegExp(reason) })
    await client.closed
  }
})

t.test('[runtimes/node.2] starts are answered by spares, also when a spare has died', async t => {
  await Promise.all(
    [1, 2, 3, 4, 5].map(() =>
      withWorker('pass.mjs', {}, async worker => {
        t.equal((await worker.call()).text, '"pass"')
      }),
    ),
  )
  await until(() => childrenOf(daemon.child.pid!).length >= 2)
  const spares = childrenOf(daemon.child.pid!)
  // One of the five above may be ending by itself, and one that was started just now may not lead a group yet.
  for (const pid of spares) for (const target of [-pid, pid]) killIfThere(target)
  // The next ones may be there before the last of these is seen to be gone.
  await until(() => !childrenOf(daemon.child.pid!).some(pid => spares.includes(pid)))
  await withWorker('pass.mjs', {}, async worker => t.equal((await worker.call()).text, '"pass"'))
})

t.test('[runtimes/node.42] starts that follow each other keep up to two more spares of their style', t => {
  let free = 2 * 1024 ** 3
  const count = new SpareCount(1, () => free)
  const wantedAfter = (...starts: number[]): number => {
    for (const at of starts) count.noteStart('ts', at)
    return count.wanted('ts', starts.at(-1) ?? 0)
  }
  t.equal(wantedAfter(), 1)
  t.equal(wantedAfter(0), 1, 'a single start adds none')
  t.equal(wantedAfter(4999), 2)
  t.equal(wantedAfter(5000), 2, 'the first one no longer counts')
  t.equal(wantedAfter(5200, 5400, 5600), 3, 'no more than two')
  t.equal(count.wanted('js', 5600), 1, 'of the other style none was started')
  free = 1024 ** 3 - 1
  t.equal(count.wanted('ts', 5600), 1, 'memory is short')
  free = 1024 ** 3
  t.equal(count.wanted('ts', 10_400), 1, 'one start of the last five seconds')
  t.equal(new SpareCount(0).wanted('ts', 0), 0)
  t.end()
})

t.test('[runtimes/node.42] additional spares are stopped five seconds after the last start', async t => {
  const clock = new FakeClock()
  const workers = new Workers({
    address: { path: tree.path('additional.sock') },
    root: tree.root,
    runtime: 'node',
    memoryMb: 0,
    spares: 1,
    styles: ['js'],
    clock,
  })
  t.teardown(() => workers.close())
  const messages: { worker: string; pid: number }[] = []
  const owner = {
    send: (kind: number, _id: number, header: object) => {
      if (kind === KIND.started) messages.push(header as never)
    },
    sendLog: () => {},
    takesReady: true,
    takesPrograms: false,
  }
  const before = new Set(childrenOf(process.pid))
  const mine = (): number[] => childrenOf(process.pid).filter(pid => !before.has(pid))
  const addSpare = async (count: number): Promise<void> => {
    clock.advance(50)
    await until(() => mine().length === count)
  }
  workers.meet(owner)
  clock.advance(0)
  await until(() => messages.length === 1)
  await workers.take(owner, { worker: messages[0]!.worker })
  await addSpare(2)
  await until(() => messages.length === 2)
  await workers.take(owner, { worker: messages[1]!.worker })
  await addSpare(3)
  await until(() => messages.length === 3)
  await addSpare(4)
  t.equal(mine().length, 4, 'two in use, one offered, one more')
  clock.advance(5000)
  await until(() => mine().length === 3)
  t.ok(isAlive(messages[2]!.pid), 'the one that was offered stays')
  t.equal(messages.length, 3, 'the additional one was not offered')
  await workers.take(owner, { worker: messages[2]!.worker })
})

t.test('[runtimes/node.31] a spare has no socket, and a worker’s is its owner’s alone', async t => {
  const umask = process.umask(0)
  const open = await startDaemon('node', { root: tree.root, socket: `unix:${tree.path('spare.sock')}` })
  process.umask(umask)
  await until(() => childrenOf(open.child.pid!).length === 1)
  const [spare] = childrenOf(open.child.pid!)
  const before = readdirSync(tree.root)
  const { uri, pid } = await open.startWorker({ entry: 'pass.mjs' })
  t.equal(pid, spare)
  t.match(uri, /\/spare-[0-9a-f]{10}\.sock$/)
  t.notOk(before.includes(basename(uri)), 'nothing had its name before')
  t.equal(statSync(uri.replace('unix:', '')).mode & 0o777, 0o600)
  await open.close()
})

t.test('[runtimes/node.32] what the daemon inherited beyond its standard descriptors no worker has', async t => {
  // Beyond a gap: of descriptors in one row node itself takes care.
  const wrap = [
    'python3',
    '-c',
    `import os, sys\nos.dup2(os.open(${JSON.stringify(tree.path('pass.mjs'))}, 0), 40)\nos.execvp(sys.argv[1], sys.argv[1:])`,
  ]
  const heir = await startDaemon('node', { root: tree.root, wrap })
  tree.write({
    'open.mjs':
      "import { readdirSync, readlinkSync } from 'node:fs'\nconst link = fd => { try { return readlinkSync('/proc/self/fd/' + fd) } catch {} }\nexport const handler = () => readdirSync('/proc/self/fd').map(link)\n",
  })
  const worker = await heir.worker({ dir: tree.root, entry: 'open.mjs' })
  const links: string[] = JSON.parse((await worker.call()).text)
  t.ok(links.some(link => link === '/dev/null'))
  t.notOk(links.some(link => link?.endsWith('pass.mjs')))
  await worker.close()
  await heir.close()
})

const notRoot = process.getuid?.() === 0 ? false : 'only root can start a worker as another user'
t.test('[runtimes/node.34] nothing of what the worker was before goes on as that user', { skip: notRoot }, async t => {
  const uid = 54_321
  tree.write({
    'helpers.ts': `import { readdirSync, readFileSync } from 'node:fs'
const field = (text: string, name: string): string => new RegExp('^' + name + ':\\\\s+(\\\\d+)', 'm').exec(text)?.[1] ?? ''
const status = (pid: string): string => { try { return readFileSync('/proc/' + pid + '/status', 'utf8') } catch { return '' } }
// While the module is loaded, before anything is told to be ready.
const mine = readdirSync('/proc').filter(pid => field(status(pid), 'PPid') === String(process.pid) && !status(pid).includes('zombie'))
const users = mine.map(pid => Number(field(status(pid), 'Uid')))
export const handler = () => ({ uid: process.getuid!(), users })
`,
  })
  const folder = tree.path('user')
  mkdirSync(`${folder}/tmp`, { recursive: true })
  for (const path of [folder, `${folder}/tmp`]) chownSync(path, uid, uid)
  chmodSync(tree.root, 0o755)
  // The spare for TypeScript has the compiler running.
  await until(() => childrenOf(daemon.child.pid!).length >= 2)
  const start = { dir: tree.root, entry: 'helpers.ts' }
  const { id, uri, pid } = await daemon.startWorker({ ...start, user: { uid, folder } } as never)
  const worker = daemon.connect(uri, id, pid, start)
  const { header, text } = await worker.call()
  t.match(header, { status: 200 })
  const { uid: own, users } = JSON.parse(text)
  t.equal(own, uid)
  t.ok(
    users.every((user: number) => user === uid),
    `helper processes run as ${users.join(', ')}`,
  )
  await worker.close()
})

t.test('[runtimes/node.35] without tsx node takes the types out itself, or the message says what is missing', t => {
  const tree = makeTree({
    'types.ts':
      "import { type Named, name } from './named.ts'\nexport const handler = (one: Named): string => one.greeting + name\n",
    'named.ts': "export interface Named { greeting: string }\nexport const name: string = ' you'\n",
    'enum.ts': 'const one = 1\nexport enum Colour { Red }\nexport const handler = () => Colour.Red + one\n',
    'run.mjs': `
      import { Loader } from './runtimes/node/loader.mjs'
      const results = []
      for (const entry of ['types.ts', 'enum.ts']) {
        try {
          const loader = new Loader(null)
          loader.warmUpCompiler()
          const { handler } = await loader.load({ dir: import.meta.dirname, entry, production: true })
          loader.stopCompiler()
          results.push(handler({ greeting: 'hello' }))
        } catch ({ name, message, hint }) {
          results.push({ name, message, hint })
        }
      }
      console.log(JSON.stringify(results))`,
  })
  t.teardown(tree.cleanup)
  // Beside no node_modules: as installed without optional packages.
  cpSync(new URL('../../runtimes/node', import.meta.url), tree.path('runtimes/node'), { recursive: true })
  const { stdout, stderr } = spawnSync(process.execPath, [tree.path('run.mjs')], { encoding: 'utf8' })
  t.equal(stderr, '', 'no advice of node in the log')
  const hint = /npm install tsx beside fngw/
  const missing = {
    name: 'LoadError',
    message: 'TypeScript handlers need the package tsx, which is not installed',
    hint,
  }
  const tooMuch = { name: 'LoadError', message: /^syntax error in enum\.ts:2: /, hint }
  const canStrip = Boolean((process.features as { typescript?: unknown }).typescript)
  t.match(JSON.parse(stdout), canStrip ? ['hello you', tooMuch] : [missing, missing])
  t.end()
})

t.test('[runtimes/node.30] a worker loads its function before the gateway connects', async t => {
  const files = {
    'early.mjs':
      "import { writeFileSync } from 'node:fs'\nwriteFileSync('loaded', process.env.A)\nconsole.log('at load')\nexport const handler = () => 'early'\n",
    'broken.mjs': "import { writeFileSync } from 'node:fs'\nwriteFileSync('loaded', 'b')\nthrow new Error('at load')\n",
  }
  tree.write(files)
  const begin = async (entry: string) => {
    tree.remove('loaded')
    const start = { key: 'k', runtime: 'node', name: 'n', version: null, root: tree.root, dir: tree.root, entry }
    const early = JSON.stringify({
      ...start,
      callable: { names: ['handler'] },
      adapter: 'native',
      env: { A: 'b' },
      packs: [],
      context: {},
    })
    const { id, uri } = await daemon.startWorker({ dir: tree.root, entry, early } as never)
    // It is there before its text is.
    await until(() => existsSync(tree.path('loaded')) && readFileSync(tree.path('loaded'), 'utf8') !== '')
    const worker = new FrameClient(uri)
    worker.send(KIND.hello, 0, { role: 'worker' }, Buffer.from([1]))
    return { id, early, worker }
  }
  const whole = await begin('early.mjs')
  t.equal(readFileSync(tree.path('loaded'), 'utf8'), 'b', 'with its environment')
  whole.worker.send(KIND.start, 0, whole.early)
  whole.worker.send(KIND.call, 1, '{"id":"1","headers":{}}')
  t.equal((await whole.worker.wait(frame => frame.kind === KIND.log)).body.toString(), 'at load\n')
  t.equal((await whole.worker.wait(frame => frame.kind === KIND.reply)).body.toString(), '"early"')
  await whole.worker.close()

  const broken = await begin('broken.mjs')
  broken.worker.send(KIND.start, 0, broken.early)
  t.match((await broken.worker.wait(frame => frame.kind === KIND.error)).header, { code: 'load', message: /at load/ })
  await broken.worker.close()

  const other = await begin('early.mjs')
  other.worker.send(KIND.start, 0, other.early.replace('"A":"b"', '"A":"c"'))
  t.match((await other.worker.wait(frame => frame.kind === KIND.error)).header, { code: 'protocol' })
  await other.worker.closed
  t.match(await daemon.ended(other), { header: { worker: other.id } })
})

t.test('[runtimes/node.3] a worker has a clean environment, its own folder and process group', async t => {
  await withWorker('cases.mjs', { env: { A: 'b' } }, async worker => {
    const { cwd, env } = parsed(await worker.call(byCase('process')))
    t.equal(cwd, tree.root)
    t.strictSame(Object.keys(env).sort(), ['A', 'FNGW_WORKER', 'HOME', 'PATH'])
    t.equal(readFileSync(`/proc/${worker.pid}/stat`, 'utf8').split(' ')[4], String(worker.pid), 'leads its group')
    t.equal(readFileSync(`/proc/${worker.pid}/oom_score_adj`, 'utf8').trim(), '1000')
  })
  const worker = await load('cases.mjs')
  const other = await load('pass.mjs')
  worker.open(byCase('killParent'))
  t.equal((await endOf(worker)).signal, 'SIGKILL')
  t.equal((await other.call()).text, '"pass"', 'a worker that kills its parent hits nobody else')
  await other.close()
})

const OUT_OF_MEMORY = new RegExp(`^out of memory: limit ${MEMORY_MB} MB, FN_WORKER_MEMORY_MB`)
// From here on node reserves so much that the system cannot limit data: the daemon looks.
const isMemoryWatched = Number(process.versions.node.split('.')[0]) >= 24

t.test('[runtimes/node.4] memory is bounded, and an end for want of it says so', async t => {
  const worker = await load('cases.mjs')
  if (!isMemoryWatched) {
    t.match((await worker.call(byCase('native'))).header, {
      code: 'exception',
      message: /allocation failed/,
      hint: OUT_OF_MEMORY,
    })
    t.equal((await worker.call(byCase('string'))).text, '"text"')
  } else {
    worker.open(byCase('native'))
    t.match(await endOf(worker), { signal: 'SIGKILL', reason: OUT_OF_MEMORY })
  }
  const heap = isMemoryWatched ? await load('cases.mjs') : worker
  heap.open(byCase('heap'))
  t.match(await endOf(heap), { code: null, signal: /SIGABRT|SIGTRAP/, reason: OUT_OF_MEMORY })
  if (isMemoryWatched) {
    const parent = await load('cases.mjs')
    parent.open(byCase('hungryChild'))
    t.match(await endOf(parent), { signal: 'SIGKILL', reason: OUT_OF_MEMORY }, 'children count')
  }
})

t.test('[runtimes/node.33] a handler may start threads', async t => {
  await withWorker('cases.mjs', {}, async worker => {
    t.same(parsed(await worker.call(byCase('threads'))), [1, 2, 3])
  })
})

t.test(
  '[runtimes/node.4] of a worker with many children so many are looked at, and no more',
  { skip: process.platform === 'linux' ? false : 'the system tells no children' },
  async t => {
    // Each child reads from the pipe, so all end when it does.
    const script = 'i=0; while [ $i -lt 90 ]; do cat <&3 & i=$((i+1)); done; echo up; wait'
    const child = spawn('/bin/sh', ['-c', script], { stdio: ['ignore', 'pipe', 'inherit', 'pipe'] })
    const pipe = child.stdio[3] as net.Socket
    t.teardown(() => pipe.destroy())
    await once(child.stdout!, 'data')
    t.equal(listTree(child.pid!).length, 64)
    t.equal(listTree(child.pid!)[0], child.pid, 'the worker first')
    pipe.destroy()
    await once(child, 'exit')
  },
)

t.test('[runtimes/node.5] no process outlives the daemon, however it ends', async t => {
  const ends: [string, (daemon: DaemonClient) => void][] = [
    ['end of standard input', d => d.child.stdin!.end()],
    ['SIGTERM', d => d.child.kill('SIGTERM')],
    ['SIGKILL', d => d.child.kill('SIGKILL')],
  ]
  for (const [name, end] of ends) {
    const mortal = await startDaemon('node', { root: tree.root })
    const worker = await mortal.worker({ dir: tree.root, entry: 'cases.mjs' })
    const child = Number((await worker.call(byCase('child'))).text)
    worker.open(byCase('loop'))
    const pids = childrenOf(mortal.child.pid!)
    end(mortal)
    await mortal.exited
    await until(() => pids.every(pid => !isAlive(pid)))
    t.pass(name)
    if (name !== 'SIGKILL') await until(() => !isAlive(child))
    else killIfThere(child)
    await mortal.close()
    t.equal(mortal.output, '', 'the daemon prints nothing')
  }
})

t.test('[runtimes/node.5] a socket file left behind is replaced, a living daemon is not', async t => {
  const stale = net.createServer().listen(tree.path('stale.sock'))
  await new Promise(done => stale.once('listening', done))
  execFileSync('cp', ['-a', tree.path('stale.sock'), tree.path('left.sock')])
  stale.close()
  const second = await startDaemon('node', { root: tree.root, socket: `unix:${tree.path('left.sock')}` })
  const third = spawnSync(process.execPath, [DAEMON, '--standalone', '--socket', tree.path('left.sock')], {
    encoding: 'utf8',
  })
  t.equal(third.status, 1)
  t.match(third.stderr, /^cannot listen on .*: another daemon serves it\n$/)
  await second.close()
  t.notOk(existsSync(tree.path('left.sock')))
})

t.test('[runtimes/node.6] a stopped worker is told once, and a lost gateway takes its workers along', async t => {
  const worker = await load('cases.mjs')
  await worker.ready()
  daemon.control.send(KIND.stop, 0, { worker: worker.id, grace_ms: 0 })
  daemon.control.send(KIND.stop, 0, { worker: worker.id, grace_ms: 0 })
  t.match(await endOf(worker), { code: null, signal: 'SIGKILL', reason: 'stopped by the gateway' })
  const second = new FrameClient(daemon.uri)
  second.send(KIND.hello, 0, { role: 'control' }, Buffer.from([1]))
  second.send(KIND.start, 1, { key: 'x', entry: 'x.js' })
  const { header } = await second.wait(frame => frame.kind === KIND.started)
  await second.close()
  await until(() => !isAlive(header.pid))
  t.equal(
    daemon.control.frames.filter(frame => frame.header.worker === worker.id && frame.kind === KIND.exited).length,
    0,
  )
})

t.test('[runtimes/node.7] raw writes to descriptors 1 and 2 reach the log, a flood is cut', async t => {
  const logOf = (worker: WorkerClient, stream: string) =>
    daemon.control.frames
      .filter(f => f.kind === KIND.log && f.header.worker === worker.id && f.header.stream === stream)
      .map(f => f.body.toString())
      .join('')
  await withWorker('cases.mjs', {}, async worker => {
    t.equal((await worker.call(byCase('raw'))).text, '1')
    await until(() => logOf(worker, 'stdout') === 'raw bytes\n' && logOf(worker, 'stderr') === 'raw error\n')
    t.equal((await worker.call(byCase('rawFlood'))).text, '1')
    await until(() => /\[\d+ bytes of output dropped\]/.test(logOf(worker, 'stdout')))
    t.ok(logOf(worker, 'stdout').length < 1024 * 1024)
  })
})

t.test('[runtimes/node.8] handlers of every module style load, in folders of every type', async t => {
  const files = {
    'esm.js': 'export const handler = () => "esm"',
    'cjs.js': 'exports.handler = () => "cjs"; require("node:fs")',
    'wait.mjs': 'export const handler = () => (wait, "wait")\nconst wait = await 1',
    'plain.cjs': 'module.exports = () => "plain"',
    'import.ts': 'import { helper } from "./helper"\nexport const handler = (e: object): string => helper(e)',
    'helper.ts': 'export const helper = (e: object): string => "import"',
    'require.cts': 'import fs = require("node:fs")\nexport = { handler: (): string => typeof fs.readFileSync }',
    'top.ts': 'const x: number = await Promise.resolve(1)\nexport const handler = (): number => x',
    'top.mts': 'const x: number = await Promise.resolve(2)\nexport const handler = (): number => x',
  }
  const expected: Record<string, string> = {
    'esm.js': '"esm"',
    'cjs.js': '"cjs"',
    'wait.mjs': '"wait"',
    'plain.cjs': '"plain"',
    'import.ts': '"import"',
    'require.cts': '"function"',
    'top.ts': '1',
    'top.mts': '2',
  }
  for (const type of ['none', 'module', 'commonjs']) {
    for (const [name, text] of Object.entries(files)) tree.write({ [`${type}/${name}`]: text })
    if (type !== 'none') tree.write({ [`${type}/package.json`]: { json: { type } } })
    for (const [entry, text] of Object.entries(expected)) {
      await withWorker(entry, { dir: tree.path(type) }, async worker => {
        const answer = await worker.call()
        t.equal(answer.text, text, `${entry} with type ${type}: ${answer.header.message ?? ''}`)
        const logs = [...daemon.control.frames.filter(frame => frame.header.worker === worker.id), ...worker.frames]
        t.same(
          logs.filter(frame => frame.kind === KIND.log).map(frame => frame.body.toString()),
          [],
          'without advice about styles in the log',
        )
      })
    }
  }
})

t.test('[runtimes/node.8] no compiled code lies in a folder that is shared with other users', async t => {
  const shared = makeTree({})
  const own = makeTree({
    'plain.ts': 'export const handler = (): number => 1',
    'top.ts': 'const x: number = await Promise.resolve(1)\nexport const handler = (): number => x',
    'pack/node_modules/packed/index.js': '',
  })
  const other = await startDaemon('node', { root: own.root, env: { TMPDIR: shared.root } })
  t.teardown(async () => {
    await other.close()
    own.cleanup()
    shared.cleanup()
  })
  for (const [entry, packs] of [['plain.ts'], ['top.ts'], ['top.ts', own.path('pack')]]) {
    const worker = await other.worker({ dir: own.root, entry: entry!, packs: packs === undefined ? [] : [packs] })
    t.equal((await worker.call()).text, '1')
    // Its files are written behind the answer.
    worker.socket.end()
    await other.ended(worker)
    t.strictSame(readdirSync(shared.root), [], `${entry} ${packs ?? ''}`)
  }
})

t.test(
  '[runtimes/node.9] the callable is a named export, one of the default export, or the default export',
  async t => {
    tree.write({
      'named.mjs':
        'export const other = () => "other"; export default { handler() { return this.word }, word: "method" }',
      'default.mjs': 'export default async event => event.method',
      'class.mjs': 'class App { word = "class"; handler() { return this.word } }\nexport default new App()',
      'function.cjs': 'module.exports = event => event.method; module.exports.other = () => "other"',
    })
    const cases: [string, string | null, string][] = [
      ['named.mjs', null, '"method"'],
      ['named.mjs', 'other', '"other"'],
      ['default.mjs', null, '"GET"'],
      ['class.mjs', null, '"class"'],
      ['function.cjs', null, '"GET"'],
      ['function.cjs', 'other', '"other"'],
      ['default.mjs', 'default', '"GET"'],
    ]
    for (const [entry, handler, text] of cases) {
      await withWorker(entry, { handler }, async worker =>
        t.equal((await worker.call()).text, text, `${entry} ${handler}`),
      )
    }
  },
)

t.test('[runtimes/node.10] what cannot be loaded says which file and line, why, and what to do', async t => {
  tree.write({
    'bad/none.js': 'exports.start = 1',
    'bad/type.mjs': 'export const handler = 5',
    'bad/empty.mjs': '',
    'bad/esm.mjs': 'export const a = 1\nexport function handler() {\n  return {;\n}\n',
    'bad/cjs.cjs': 'exports.handler = () => {\n  return {;\n}\n',
    'bad/ts.ts': 'export const handler = (): number => {\n  return 1\n}}\n',
    'bad/nested.mjs': 'import "./nested-part.mjs"\nexport const handler = 1',
    'bad/nested-part.mjs': '\n\nexport const = 1',
    'bad/package.mjs': 'import x from "left-pad/sub"\nexport const handler = 1',
    'bad/relative.cjs': '\nrequire("./nope")',
    'bad/throws.mjs': '\nthrow new Error("at load")\n',
    'bad/import.mjs': '\nimport { nope } from "node:fs"\nexport const handler = 1',
    'bad/[id].mjs': '\nimport x from "./nope.mjs"\nexport const handler = 1',
    'bad/[id].ts': 'import x from "./nope.js"\nexport const handler = () => x',
    'bad/[q].mjs': 'import { nope } from "./none.js"\nexport const handler = 1',
    'bad/[s].mjs': 'export const = 1',
    'bad/[t].mjs': 'throw new Error("at load")',
    'bad/named.mjs': 'export default () => 1',
    'bad/scoped.cjs': 'require("@acme/left/deep")',
    'bad/address.cjs': 'require("https://x/y")',
    'bad/alias.cjs': 'require("@/lib")',
    'bad/lazy.cjs': 'exports.handler = () => require("./gone")',
  })
  for (const name of ['loop.js', 'loop.ts']) symlinkSync(name, tree.path(`bad/${name}`))
  const cases: [string, object, Partial<WorkerStart>?][] = [
    [
      'none.js',
      { message: /bad\/none\.js has no function "handler" \(it exports start\)/, hint: /export function handler/ },
    ],
    ['type.mjs', { message: /has "handler", but it is a value of type number/ }],
    ['empty.mjs', { message: /it exports nothing/ }],
    ['none.js', { message: /no function "toString"/ }, { handler: 'toString' }],
    ['gone.js', { message: /handler file bad\/gone\.js does not exist/ }],
    ...['loop.js', 'loop.ts'].map(
      // A link to itself: root may read every real file.
      name => [name, { message: `cannot read bad/${name}: ELOOP`, hint: /make it readable/ }] as [string, object],
    ),
    ['esm.mjs', { message: /syntax error in bad\/esm\.mjs:3: /, line: 3 }],
    [
      'cjs.cjs',
      {
        message: /syntax error in bad\/cjs\.cjs:2: Unexpected token/,
        line: 2,
        stack: / {4}at \/.*\/bad\/cjs\.cjs:2:\d+\n {4}1 \| .*\n {4}2 \| .*\n {6}\| +\^$/,
      },
    ],
    [
      'ts.ts',
      {
        message: /syntax error in bad\/ts\.ts:3: Unexpected "\}"/,
        line: 3,
        stack: /ts\.ts:3:\d+\n.*\n.*\n {6}\| +\^$/,
      },
    ],
    ['nested.mjs', { message: /syntax error in bad\/nested-part\.mjs:3: / }],
    ['package.mjs', { message: /Cannot find package 'left-pad'/, hint: 'npm install left-pad' }],
    ['scoped.cjs', { hint: 'npm install @acme/left' }],
    ...['address.cjs', 'alias.cjs'].map(
      name => [name, { hint: 'import a file by ./ or ../, or a package by its name' }] as [string, object],
    ),
    [
      'relative.cjs',
      { message: /cannot load bad\/relative\.cjs:2: Cannot find module '\.\/nope'/, hint: /path of the import/ },
    ],
    ['throws.mjs', { message: /cannot load bad\/throws\.mjs:2: at load/, line: 2 }],
    ['import.mjs', { message: /does not provide an export named 'nope'/, line: 2 }],
    [
      '[id].mjs',
      { message: /^cannot load bad\/\[id\]\.mjs:2: Cannot find module/, file: tree.path('bad/[id].mjs'), line: 2 },
    ],
    [
      '[id].ts',
      { message: /^cannot load bad\/\[id\]\.ts:1: Cannot find module/, file: tree.path('bad/[id].ts'), line: 1 },
    ],
    [
      '[q].mjs',
      {
        // Read in the thread, or by `import()`: node says it in two ways.
        message: (process.features as { require_module?: boolean }).require_module
          ? /^syntax error in bad\/\[q\]\.mjs:1: The requested module '\.\/none\.js' does not/
          : /^syntax error in bad\/\[q\]\.mjs:1: Named export 'nope'/,
        line: 1,
      },
    ],
    ['[s].mjs', { message: /^syntax error in bad\/\[s\]\.mjs:1: / }],
    ['[t].mjs', { message: /^cannot load bad\/\[t\]\.mjs:1: at load/, line: 1 }],
    ['named.mjs', { message: /has no function "other" \(it exports nothing\)/ }, { handler: 'other' }],
  ]
  for (const [entry, expected, start] of cases) {
    const header = await loadError(entry, { dir: tree.path('bad'), root: tree.root, ...start })
    t.match(header, { code: 'load', ...expected }, `${entry}: ${header.message}`)
    for (const key of ['message', 'file', 'stack'])
      t.notMatch(String(header[key]), /%5B|\?namespace|\/tsx\/|compiler\.mjs|Require stack/, `${entry}: ${key}`)
  }
  await withWorker('lazy.cjs', { dir: tree.path('bad'), root: tree.root }, async worker => {
    const { header } = await worker.call()
    t.match(header, { code: 'exception', message: /^Cannot find module '\.\/gone'$/, line: 1 })
    t.notMatch(String(header.stack), /Require stack/)
  })
})

t.test('[runtimes/node.39] an ES module runs once, whatever it awaits, and in the thread where node can', async t => {
  const log =
    "import { appendFileSync } from 'node:fs'\nexport const note = text => appendFileSync(new URL('./log', import.meta.url), text)\n"
  const tree = makeTree({
    'note.mjs': log,
    'dep.mjs': "import { note } from './note.mjs'\nnote('dep ')\n",
    'slow.mjs': "import './dep.mjs'\nexport const slow = await new Promise(done => setImmediate(done, 'slow'))\n",
    // Who runs before the turn of the event loop ends has waited for no thread.
    'plain.mjs':
      "import { note } from './note.mjs'\nimport './dep.mjs'\nnote('plain ')\nexport const handler = () => [import.meta.filename !== '', new Error().stack.includes('import(')]\n",
    'waits.mjs':
      "import { note } from './note.mjs'\nimport './dep.mjs'\nimport { slow } from './slow.mjs'\nnote('waits ')\nexport const handler = () => slow\n",
    'throws.mjs': "import { note } from './note.mjs'\nnote('throws ')\nthrow new SyntaxError('mine')\n",
    'typed/package.json': '{"type":"module"}',
    'typed/odd.js': "export { x as 'module.exports' }\nconst x = { handler: () => 'odd' }\n",
  })
  t.teardown(() => tree.cleanup())
  const daemon = await startDaemon('node', { root: tree.root })
  t.teardown(() => daemon.close())
  const ask = async (entry: string) => {
    tree.remove('log')
    const worker = await daemon.worker({ dir: tree.root, root: tree.root, entry })
    const told = await worker.ready()
    const text = told.kind === KIND.ready ? (await worker.call()).text : told.header.message
    return [text, existsSync(tree.path('log')) ? readFileSync(tree.path('log'), 'utf8') : '']
  }
  t.strictSame(await ask('plain.mjs'), ['[true,false]', 'dep plain '])
  t.strictSame(await ask('waits.mjs'), ['"slow"', 'dep waits '])
  t.match(await ask('throws.mjs'), [/throws\.mjs.*: mine$/, 'throws '])
  t.strictSame(await ask('typed/odd.js'), ['"odd"', ''])
})

t.test('[runtimes/node.11] shared packs serve import and require, after the function’s own packages', async t => {
  const pack = (name: string, value: string) => ({
    [`${name}/package.json`]: { json: { name: 'x', main: 'index.js' } },
    [`${name}/index.js`]: `module.exports = ${JSON.stringify(value)}`,
  })
  tree.write({
    ...pack('packs/one/node_modules/shared', 'shared'),
    ...pack('packs/one/node_modules/both', 'pack'),
    ...pack('packer/node_modules/both', 'own'),
    'packer/esm.mjs':
      'import shared from "shared"; import both from "both"; export const handler = () => [shared, both]',
    'packer/cjs.cjs': 'exports.handler = () => [require("shared"), require("both")]',
  })
  for (const entry of ['esm.mjs', 'cjs.cjs']) {
    await withWorker(entry, { dir: tree.path('packer'), packs: [tree.path('packs/one')] }, async worker => {
      t.equal((await worker.call()).text, '["shared","own"]', entry)
    })
  }
})

t.test('[runtimes/node.12] ready lists the sources a handler is made of', async t => {
  tree.write({
    'made/main.mjs': 'import { a } from "./a.mjs"; const b = import("../shared.js"); export const handler = () => 1',
    'made/a.mjs': 'export { b as a } from "./b.mjs"',
    'made/b.mjs': 'export const b = 1',
    'shared.js': '',
    'made/tool.cjs': 'require("./part"); exports.handler = () => 1',
    'made/part.js': '',
  })
  for (const [entry, files] of [
    ['main.mjs', ['made/main.mjs', 'made/a.mjs', 'made/b.mjs', 'shared.js']],
    ['tool.cjs', ['made/tool.cjs', 'made/part.js']],
  ] as const) {
    const worker = await load(entry, { dir: tree.path('made') })
    const { header } = await worker.ready()
    t.has(header, { max_inflight: 0 })
    for (const file of files) t.ok((header.files ?? []).includes(tree.path(file)), `${entry}: ${file}`)
    await worker.close()
  }
})

t.test(
  '[runtimes/node.12] files outside the root and linked packages are told, installed packages are not',
  async t => {
    tree.write({
      'elsewhere/helper.mjs': 'export { deep } from "./deep.mjs"',
      'elsewhere/deep.mjs': 'export const deep = 1',
      'elsewhere/shared.cjs': 'exports.shared = 1',
      'packages/linked/package.json': { json: { name: 'linked', main: 'index.cjs' } },
      'packages/linked/index.cjs': 'exports.linked = require("./part.cjs")',
      'packages/linked/part.cjs': '',
      'inside/node_modules/installed/package.json': { json: { name: 'installed', main: 'index.js' } },
      'inside/node_modules/installed/index.js': 'exports.installed = 1',
      'inside/esm.mjs':
        'import { deep } from "../elsewhere/helper.mjs"; import "linked"; import "installed"; export const handler = () => deep',
      'inside/cjs.cjs':
        'require("../elsewhere/shared.cjs"); require("linked"); require("installed"); exports.handler = () => 1',
      'inside/types.ts':
        'import { deep } from "../elsewhere/helper.mjs"\nimport "linked"\nexport const handler = (): number => deep',
      'inside/broken.mjs': 'import "../elsewhere/typo.mjs"; export const handler = () => 1',
      'elsewhere/typo.mjs': 'export const = 1',
    })
    symlinkSync('../../packages/linked', tree.path('inside/node_modules/linked'))
    const linked = ['packages/linked/index.cjs', 'packages/linked/part.cjs']
    for (const [entry, files] of [
      ['esm.mjs', ['elsewhere/helper.mjs', 'elsewhere/deep.mjs', ...linked]],
      ['cjs.cjs', ['elsewhere/shared.cjs', ...linked]],
      ['types.ts', ['elsewhere/helper.mjs', 'elsewhere/deep.mjs', ...linked]],
    ] as const) {
      const worker = await load(entry, { dir: tree.path('inside'), root: tree.path('inside') })
      const { header } = await worker.ready()
      t.strictSame([...header.files].sort(), [`inside/${entry}`, ...files].map(file => tree.path(file)).sort(), entry)
      await worker.close()
    }
    const broken = await load('broken.mjs', { dir: tree.path('inside'), root: tree.path('inside') })
    const { header } = await broken.wait(frame => frame.kind === KIND.loaded)
    t.ok(header.files.includes(tree.path('elsewhere/typo.mjs')), 'what keeps it from loading is watched too')
    t.equal((await broken.ready()).kind, KIND.error)
    await broken.closed
  },
)

t.test('[runtimes/node.12] what is loaded by a call is told in development', async t => {
  tree.write({
    'lazy/main.cjs': 'exports.handler = () => require("./" + "part")()',
    'lazy/part.js': 'module.exports = () => require("../later/more.cjs")',
    'later/more.cjs': 'module.exports = 1',
    'lazy/main.mjs': 'export const handler = async event => (await import("../later/" + event.query.name)).more',
    'later/more.mjs': 'export const more = 2',
  })
  const told = async (entry: string, production: boolean) => {
    const worker = await load(entry, { dir: tree.path('lazy'), production })
    const { header } = await worker.ready()
    t.equal(header.files.length, 1)
    for (let call = 0; call < 2; call++) t.ok(Number((await worker.call({ query: { name: 'more.mjs' } })).text) > 0)
    // Whatever came with these calls is here with the answer of the next one.
    await worker.call()
    const files = worker.frames.filter(frame => frame.kind === KIND.loaded).flatMap(frame => frame.header.files)
    await worker.close()
    return files
  }
  t.strictSame(await told('main.cjs', false), [tree.path('lazy/part.js'), tree.path('later/more.cjs')], 'once')
  t.strictSame(await told('main.cjs', true), [])
  // An ES module's name that is made while it runs is seen by node's own hooks alone.
  if ('registerHooks' in module) t.strictSame(await told('main.mjs', false), [tree.path('later/more.mjs')])
})

t.test('[runtimes/node.13] the event has every field, and is the handler’s own', async t => {
  const context = { runtime: 'node', timeout_ms: 9, max_body_bytes: 32 * 1024 * 1024, worker_pool: { max_workers: 2 } }
  await withWorker('cases.mjs', { env: { A: 'b' }, context, version: 'v2' }, async worker => {
    const header = {
      id: 'req-9',
      ts: 5,
      method: 'POST',
      path: '/a b',
      raw_path: '/a%20b?case=event',
      params: { id: '7' },
      query: { case: 'event' },
      headers: { host: 'h' },
      client: { ip: '1.2.3.4', ua: 'x' },
      session: { id: 's' },
      user: { u: 1 },
      trigger: { type: 'schedule' },
      trace: '00-1',
    }
    const { event, params, signal } = parsed(await worker.call(header, 'text'))
    t.strictSame(event, {
      id: 'req-9',
      ts: 5,
      method: 'POST',
      path: '/a b',
      raw_path: '/a%20b?case=event',
      params: { id: '7' },
      path_params: { id: '7' },
      query: { case: 'event' },
      headers: { host: 'h' },
      body: 'text',
      is_base64: false,
      body_base64: null,
      client: { ip: '1.2.3.4', ua: 'x' },
      session: { id: 's' },
      version: 'v2',
      env: { A: 'b' },
      context: {
        request_id: 'req-9',
        ...context,
        user: { u: 1 },
        trigger: { type: 'schedule' },
        trace: '00-1',
        trace_state: null,
      },
    })
    t.strictSame(params, { id: '7' })
    t.ok(signal)
    const binary = parsed(await worker.call(byCase('event'), Buffer.from([255, 0])))
    t.has(binary.event, { body: null, is_base64: true, body_base64: '/wA=' })
    t.has(parsed(await worker.call(byCase('event'))).event, { body: null, is_base64: false, params: {} })
    const large = Buffer.alloc(17 * 1024 * 1024, 'ab')
    large[0] = 255
    t.ok(
      (await worker.call(byCase('echo'), large)).body.equals(large),
      'a body above the frame limit, within max_body_bytes',
    )
    await worker.call(byCase('change'))
    t.has(parsed(await worker.call(byCase('show'))), [{ A: 'b' }, { worker_pool: { max_workers: 2 } }])
  })
})

const BODY_SIZES = [16 * 1024 - 1, 16 * 1024, 16 * 1024 + 1, 65_536, 300_000, 1024 * 1024, 1024 * 1024 + 1]

t.test('[runtimes/node.36] a long body is made when it is read, and nobody sees that', async t => {
  await withWorker('bodies.mjs', { context: { timeout_ms: 9000, max_body_bytes: 4 * 1024 * 1024 } }, async worker => {
    for (const size of [5, ...BODY_SIZES.slice(0, 4)]) {
      for (const isBinary of [false, true]) {
        const body = Buffer.alloc(size, isBinary ? 'ab' : 'a\u00e9')
        if (isBinary) body[size - 1] = 0xff
        else if (body[size - 1] === 0xc3) body[size - 1] = 0x61
        const expected = {
          body: isBinary ? null : body.toString(),
          is_base64: isBinary,
          body_base64: isBinary ? body.toString('base64') : null,
        }
        const ask = async (name: string) => parsed(await worker.call(byCase(name), body))
        for (const name of 'json spread assign entries clone loop derived proxy frozen printed late'.split(' '))
          t.has((await ask(name)).seen, expected, `${name}, ${size} bytes${isBinary ? ' that are no text' : ''}`)
        const [names, ...rest] = await ask('has')
        t.same(names.slice(9, 13), ['body', 'is_base64', 'body_base64', 'client'])
        t.same(rest, [true, true, true])
        t.same(await ask('change'), ['mine', 0, true, false])
        t.equal(await ask('untouched'), 1)
        t.notMatch((await ask('printed')).seen.text, /Getter/)
        await ask('keep')
      }
    }
    const kept = parsed(await worker.call(byCase('kept')))
    t.same(
      kept.map((text: string) => text.length),
      [5, ...BODY_SIZES.slice(0, 4)].flatMap(size => [
        Buffer.from(Buffer.alloc(size, 'a\u00e9')).toString().length,
        Buffer.alloc(size).toString('base64').length,
      ]),
      'read long after its call',
    )
  })
})

t.test('[runtimes/node.37] bodies come back byte for byte, as they were given or made anew', async t => {
  await withWorker('bodies.mjs', { context: { timeout_ms: 9000, max_body_bytes: 4 * 1024 * 1024 } }, async worker => {
    for (const size of [1, ...BODY_SIZES]) {
      const ascii = Buffer.alloc(size, 'abc')
      const text = Buffer.from('\u00e9'.repeat(size >> 1) + 'x'.repeat(size & 1))
      const binary = Buffer.alloc(size, 'abc')
      binary[0] = 0xff
      for (const body of [ascii, text, binary]) {
        for (const name of ['echo', 'alias', 'proxied'])
          t.ok((await worker.call(byCase(name), body)).body.equals(body), `${name} of ${size} bytes`)
      }
      const longer = (await worker.call(byCase('longer'), text)).body
      t.ok(longer.equals(Buffer.concat([text, Buffer.from('!')])))
      const upper = (await worker.call(byCase('same'), ascii)).body
      t.equal(upper.toString(), `A${ascii.toString().slice(1)}`, 'as long as the one given, and another')
    }
    for (const n of [1, 2730, 2731, 5461, 5462, 40_000, 174_763]) {
      const made = (await worker.call(byCase('text', { n: String(n) }))).body.toString()
      t.ok(JSON.parse(made) === 'h\u00e9\ud83d\ude00'.repeat(n), `${n} times text that takes 1, 2 and 4 bytes`)
      const lone = (await worker.call(byCase('lone', { n: String(n) }))).body
      t.ok(lone.equals(Buffer.from('\ufffdx'.repeat(n))), 'half a character is replaced')
    }
    const bodies = BODY_SIZES.map((size, index) => Buffer.alloc(size, `${index}`))
    const answers = await Promise.all(bodies.map(body => worker.call(byCase('echo'), body)))
    t.ok(
      answers.every((answer, index) => answer.body.equals(bodies[index]!)),
      'many at once',
    )
    const isWhole = (pieces: Buffer, n: number) =>
      pieces.length === 40 * n && Array.from({ length: 40 }, (_, i) => pieces[i * n + n - 1] === i).every(Boolean)
    for (const n of [1000, 20_000, 300_000])
      t.ok(isWhole((await worker.call(byCase('reused', { n: String(n) }))).body, n))
    // More than a socket takes, so that most pieces wait for it.
    const reused = await Promise.all(Array.from({ length: 8 }, () => worker.call(byCase('reused', { n: '200000' }))))
    t.ok(
      reused.every(({ body }) => isWhole(body, 200_000)),
      'a buffer that is used again by many streams at once',
    )
  })
})

const JSON_TYPE = { 'content-type': 'application/json' }
const TEXT_TYPE = { 'content-type': 'text/plain; charset=utf-8' }
const BYTES_TYPE = { 'content-type': 'application/octet-stream' }

t.test('[runtimes/node.14] every return form has its reply', async t => {
  const cases: [string, object, string | Buffer][] = [
    ['string', { status: 200, headers: JSON_TYPE }, '"text"'],
    ['number', { status: 200, headers: JSON_TYPE }, '4.5'],
    ['boolean', { status: 200, headers: JSON_TYPE }, 'false'],
    ['array', { status: 200, headers: JSON_TYPE }, '[1]'],
    ['object', { status: 200, headers: JSON_TYPE }, '{"body":"plain"}'],
    ['toJSON', { status: 200, headers: JSON_TYPE }, '{"made":true}'],
    ['nothing', { status: 200, headers: {} }, ''],
    ['null', { status: 200, headers: {} }, ''],
    ['bytes', { status: 200, headers: BYTES_TYPE }, Buffer.from([0, 255, 10])],
    ['buffer', { status: 200, headers: BYTES_TYPE }, Buffer.from([0, 255, 10])],
    ['arrayBuffer', { status: 200, headers: BYTES_TYPE }, Buffer.from([0, 255, 10])],
    [
      'envelope',
      { status: 201, headers: { 'X-A': 'b', n: '5', 'Set-Cookie': ['a=1', 'b=2'], ...JSON_TYPE } },
      '{"ok":true}',
    ],
    ['statusCode', { status: 202, headers: TEXT_TYPE }, 'text'],
    ['html', { status: 200, headers: { 'Content-Type': 'text/html' } }, '<p>'],
    ['headersBody', { status: 200, headers: TEXT_TYPE }, 'x'],
    ['base64', { status: 200, headers: BYTES_TYPE }, Buffer.from([0, 255, 10])],
    ['alias64', { status: 200, headers: BYTES_TYPE }, Buffer.from([0, 255, 10])],
    ['bodyBytes', { status: 200, headers: BYTES_TYPE }, Buffer.from([0, 255, 10])],
    ['bodyNumber', { status: 200, headers: JSON_TYPE }, '7'],
    ['empty', { status: 204, headers: {} }, ''],
    ['proxy', { proxy: { path: '/x', method: 'POST', headers: { a: 'b' } } }, '{"j":1}'],
    ['map', { status: 200, headers: { 'x-a': 'b', ...TEXT_TYPE } }, ''],
    [
      'response',
      {
        status: 203,
        headers: { 'x-a': 'y', 'content-type': 'text/plain;charset=UTF-8', 'set-cookie': ['a=1', 'b=2'] },
      },
      'hi',
    ],
    ['responseJson', { status: 200, headers: JSON_TYPE }, '{"a":1}'],
    ['responseEmpty', { status: 204, headers: {} }, ''],
    ['twice', { status: 200, headers: JSON_TYPE }, '1'],
  ]
  await withWorker('cases.mjs', {}, async worker => {
    for (const [name, header, body] of cases) {
      const answer = await worker.call(byCase(name))
      t.strictSame(answer.header, header, name)
      t.strictSame(answer.body, Buffer.from(body), name)
    }
  })
})

t.test('[runtimes/node.15] a broken contract names field, rule, value and type', async t => {
  const cases: [string, RegExp][] = [
    ['textStatus', /status must be an integer from 100 to 599, got "200" \(string\)/],
    ['status99', /got 99 \(number\)/],
    ['status600', /got 600 \(number\)/],
    ['nan', /got NaN \(number\)/],
    ['half', /got 200\.5 \(number\)/],
    ['nullStatus', /got null/],
    ['headerList', /headers must be an object, got an array of 1 item/],
    ['headerObject', /header "a" must be a string, a number, a boolean or a list of them, got an object/],
    ['headerBreak', /header "a" holds the character U\+000D/],
    ['headerName', /header name "a b" is not allowed/],
    ['cycle', /the answer cannot be written as JSON: Converting circular structure/],
    ['bigint', /body cannot be written as JSON: Do not know how to serialize a BigInt/],
    ['function', /it is a function/],
    ['bad64', /body_base64 must be base64 text, got "%%" \(string\)/],
    ['missing64', /is_base64 is true, but body_base64 is missing/],
    ['flag64', /is_base64 must be true or false, got "yes" \(string\)/],
    ['badProxy', /proxy must be an object, got "x" \(string\)/],
    ['usedResponse', /already read/],
    ['longHeader', /status and headers take \d+ bytes, above 512 KiB/],
    ['badPiece', /a piece of a streamed body must be text or bytes, got an object/],
  ]
  await withWorker('cases.mjs', {}, async worker => {
    for (const [name, message] of cases) {
      t.match((await worker.call(byCase(name))).header, { code: 'contract', message }, name)
    }
  })
})

t.test('[runtimes/node.16] an exception tells message, file and line of the user’s code', async t => {
  await withWorker('cases.mjs', {}, async worker => {
    const { header } = await worker.call(byCase('throw'))
    t.match(header, {
      code: 'exception',
      message: 'went wrong',
      file: tree.path('cases.mjs'),
      stack: /^TypeError: went wrong\n {4}at /,
    })
    t.equal(header.line, CASES.split('\n').findIndex(line => line.includes('went wrong')) + 1)
    t.notMatch(header.stack, /runtimes\/node|node:|node_modules/)
    const long = (await worker.call(byCase('longError'))).header
    t.ok(Buffer.byteLength(long.stack) <= 8 * 1024 + 3)
    t.ok(long.message.length > 1000)
    t.match((await worker.call(byCase('reject'))).header, { code: 'exception', message: 'later' })
    t.match((await worker.call(byCase('throwText'))).header, { code: 'exception', message: 'just text' })
    t.match((await worker.call(byCase('throwNull'))).header, { code: 'exception', message: 'handler threw null' })
    t.match((await worker.call(byCase('throwTrap'))).header, { code: 'exception', message: /cannot be shown/ })
    t.match((await worker.call(byCase('trap'))).header, { code: 'exception', message: 'trap' })
    t.match((await worker.call(byCase('deep'))).header, { code: 'exception', message: /call stack/ })
  })
  await withWorker('boom.ts', {}, async worker => {
    const { header } = await worker.call()
    t.match(header, { message: '0', file: tree.path('boom.ts'), line: 7 }, 'TypeScript lines')
    t.match(header.stack, /^Error: 0\n {4}at .*boom\.ts:7:\d+\)?$/, 'and no frame of the compiler or node')
  })
})

t.test('[runtimes/node.17] many calls run at once, and equal answers have equal headers', async t => {
  await withWorker('cases.mjs', {}, async worker => {
    const answers = await Promise.all(
      Array.from({ length: 50 }, (_, i) => worker.call(byCase('tick', { ms: String(20 - (i % 20)), name: `n${i}` }))),
    )
    t.strictSame(
      answers.map(answer => answer.text),
      Array.from({ length: 50 }, (_, i) => `"n${i}"`),
    )
    const hanging = worker.open(byCase('hang'))
    t.equal((await worker.call(byCase('string'))).text, '"text"', 'one that waits delays nobody')
    await worker.call(byCase('release'))
    t.equal((await worker.collect(hanging)).text, '"late"')
  })
})

t.test('[runtimes/node.18] streams: generators, web streams, large bodies, within the window', async t => {
  await withWorker('cases.mjs', {}, async worker => {
    const whole: [string, object, string][] = [
      ['generator', { status: 200, headers: TEXT_TYPE }, '012'],
      ['bodyStream', { status: 206, headers: { 'content-type': 'text/csv' } }, '012'],
      ['syncGenerator', { status: 200, headers: TEXT_TYPE }, 'x\u0001'],
      ['noPieces', { status: 200, headers: TEXT_TYPE }, ''],
    ]
    for (const [name, header, text] of whole) {
      const answer = await worker.call(byCase(name))
      t.strictSame(answer.header, header, `${name} is complete at once`)
      t.equal(answer.text, text)
    }
    const web = await worker.call(byCase('webStream'))
    t.match([web.header, web.text], [{ status: 200, headers: BYTES_TYPE }, 'web'])
    const slow = await worker.call(byCase('slow'))
    t.match([slow.header, slow.text, slow.chunks, slow.end], [{ stream: true, headers: TEXT_TYPE }, 'ab', [1, 1], {}])
    const large = await worker.call(byCase('large'))
    t.match(large.header, { stream: true, length: 3 * 1024 * 1024 })
    t.ok(large.body.equals(Buffer.alloc(3 * 1024 * 1024, 'x')))
    t.ok(large.chunks.every(size => size <= WINDOW_BYTES))
    t.equal((await worker.call(byCase('largeJson'))).body.length, 2 * 1024 * 1024 + 2)

    const id = worker.open(byCase('flow'))
    let seen = 0
    while (seen < WINDOW_BYTES) seen += (await worker.wait(f => f.id === id && f.kind === KIND.chunk)).body.length
    const pulled = parsed(await worker.call(byCase('state')))
    t.ok(pulled.length <= 6, 'a generator is not asked for more than the window takes')
    t.notOk(
      worker.frames.some(frame => frame.id === id && frame.kind === KIND.chunk),
      'nothing beyond the window without a grant',
    )
    worker.send(KIND.more, id, { bytes: WINDOW_BYTES })
    t.equal((await worker.collect(id)).body.length, 64 * 64 * 1024 - WINDOW_BYTES)

    const events = worker.open(byCase('events'))
    t.match(
      (await worker.wait(f => f.id === events)).header,
      { stream: true },
      'an event stream says at once that it stands',
    )
    t.equal((await worker.wait(f => f.id === events)).body.toString(), 'data: 1\n\n')
    t.match((await worker.call(byCase('failEarly'))).header, { code: 'exception', message: 'early' })
    t.match((await worker.call(byCase('failLate'))).end, { error: 'stream broke: late' })
  })
})

t.test('[runtimes/node.19] cancel aborts the signal, stops a stream and is confirmed', async t => {
  await withWorker('cases.mjs', {}, async worker => {
    const waiting = worker.open(byCase('wait'))
    worker.send(KIND.cancel, waiting)
    t.match(await worker.collect(waiting), { kind: 'end', end: { canceled: true } })
    const endless = worker.open(byCase('endless'))
    await worker.wait(f => f.id === endless && f.kind === KIND.chunk)
    worker.send(KIND.cancel, endless)
    await worker.wait(f => f.id === endless && f.kind === KIND.end && f.header.canceled === true)
    t.strictSame(parsed(await worker.call(byCase('state'))), ['finally'])
    const large = worker.open(byCase('large'))
    await worker.wait(f => f.id === large && f.kind === KIND.reply)
    let sent = 0
    while (sent < WINDOW_BYTES) sent += (await worker.wait(f => f.id === large && f.kind === KIND.chunk)).body.length
    worker.send(KIND.cancel, large)
    const end = await worker.wait(f => f.id === large)
    t.match(end, { kind: KIND.end, header: { canceled: true } }, 'also a large body whose reader takes no more')
    worker.send(KIND.cancel, 4_000_000)
    worker.send(KIND.more, 4_000_000, { bytes: 5 })
    t.equal((await worker.call(byCase('string'))).text, '"text"', 'frames for unknown calls are ignored')
  })
})

t.test('[runtimes/node.20] output is captured per call, also under concurrency, within 64 KiB', async t => {
  await withWorker('cases.mjs', {}, async worker => {
    const answers = await Promise.all(['a', 'b', 'c'].map(name => worker.call(byCase('print', { name }))))
    for (const [i, name] of ['a', 'b', 'c'].entries()) {
      t.match(answers[i], { stdout: `out ${name}\nmore\n`, stderr: `err ${name}\n` })
    }
    const flood = await worker.call(byCase('flood'))
    t.match(flood.stdout, /\[output above 64 KiB dropped\]\n$/)
    t.ok(flood.stdout.length < 66_000)
    t.equal((await worker.call(byCase('afterwards'))).stdout, '')
    const late = await worker.wait(frame => frame.kind === KIND.log)
    t.match([late.id, late.header, late.body.toString()], [0, { stream: 'stdout' }, 'afterwards\n'])
    await worker.call(byCase('outside'))
    let printed = 0
    while (printed < 5 * 50_001) printed += (await worker.wait(frame => frame.kind === KIND.log)).body.length
    t.equal(printed, 5 * 50_001, 'what belongs to no call is not limited for good')
    t.equal((await worker.call(byCase('closeStd'))).text, '1')
    t.equal((await worker.call(byCase('print', { name: 'still' }))).stdout, 'out still\nmore\n')
  })
})

t.test('[runtimes/node.21] the end of a worker is told, with the cause', async t => {
  const cases: [string, object, RegExp | null][] = [
    ['exit', { code: 3, signal: null, reason: 'exited with code 3' }, /ended the process with exit code 3/],
    ['exitLater', { code: 0 }, /exit code 0/],
    ['uncaught', { code: 1 }, /out of nowhere/],
    ['abort', { code: null, signal: 'SIGABRT', reason: 'ended by SIGABRT' }, null],
    ['kill', { code: null, signal: 'SIGKILL' }, null],
  ]
  for (const [name, end, message] of cases) {
    const worker = await load('cases.mjs')
    const id = worker.open(byCase(name))
    if (message === null) await t.rejects(worker.collect(id), /connection closed/)
    else t.match((await worker.collect(id)).header, { code: 'exception', message, ends: true }, name)
    await worker.closed
    t.match(await endOf(worker), end, name)
  }
  await withWorker('cases.mjs', {}, async worker => {
    t.equal((await worker.call(byCase('rejection'))).text, '1')
    const log = await worker.wait(frame => frame.kind === KIND.log)
    t.match(log.body.toString(), /^unhandled rejection: Error: nobody cares\n/)
    t.equal((await worker.call(byCase('string'))).text, '"text"', 'an unhandled rejection ends nothing')
  })
})

t.test('[runtimes/node.22] a handler that patches builtins or spoils its connection harms only itself', async t => {
  await withWorker('cases.mjs', {}, async worker => {
    for (let i = 0; i < 2; i++) t.equal((await worker.call(byCase('patch'))).text, '{"still":"right"}')
  })
  const worker = await load('cases.mjs')
  await worker.ready()
  // The reader of this side gives up on the garbage, as the gateway's does.
  worker.socket.removeAllListeners('data')
  worker.open(byCase('garbage'))
  daemon.control.send(KIND.stop, 0, { worker: worker.id, grace_ms: 50 })
  await endOf(worker)
  await withWorker('pass.mjs', {}, async other => t.equal((await other.call()).text, '"pass"'))
})

t.test('[runtimes/node.23] a worker ends with its connection, after what it still runs', async t => {
  const worker = await load('cases.mjs')
  const id = worker.open(byCase('tick', { ms: '50', name: 'last' }))
  await worker.ready()
  worker.socket.end()
  t.equal((await worker.collect(id)).text, '"last"')
  t.match(await endOf(worker), { code: 0 })
  const gone = await load('cases.mjs')
  gone.open(byCase('hang'))
  await gone.ready()
  await gone.close()
  t.match(await endOf(gone), { code: 0 })
})

t.test('[runtimes/node.23] a stranger does not take the place of the gateway', async t => {
  const { id, uri, pid } = await daemon.startWorker({ entry: 'pass.mjs' })
  const stranger = new FrameClient(uri)
  stranger.send(KIND.ping, 1)
  t.match((await stranger.wait(() => true)).header, { code: 'protocol' })
  await stranger.closed
  t.ok(isAlive(pid))
  const silent = new FrameClient(uri)
  const { WorkerClient } = await import('../helpers/worker-client.ts')
  const worker = new WorkerClient(uri, id, pid, { dir: tree.root, entry: 'pass.mjs' }, 'node')
  t.equal((await worker.call()).text, '"pass"')
  worker.socket.write(Buffer.from('00000001', 'hex'))
  t.match((await worker.wait(frame => frame.kind === KIND.error)).header, { code: 'protocol', message: /below 9/ })
  await worker.closed
  await silent.close()
})

t.test('[runtimes/node.24] the frame decoder takes every split, and names what is wrong', async t => {
  const frames = [
    encodeNodeFrame(KIND.call, 7, '{"a":"ü"}', Buffer.from('body')),
    encodeNodeFrame(KIND.ping, 8, ''),
    encodeNodeFrame(KIND.reply, 9, '{}', Buffer.alloc(300, 'z')),
  ]
  const bytes = Buffer.concat(frames)
  for (let cut = 0; cut <= bytes.length; cut++) {
    const seen: string[] = []
    const reader = new NodeFrameReader((kind, id, header, body) => seen.push(`${kind} ${id} ${header} ${body.length}`))
    reader.push(bytes.subarray(0, cut))
    reader.push(bytes.subarray(cut))
    t.strictSame(seen, ['16 7 {"a":"ü"} 4', '32 8  0', '17 9 {} 300'], `cut at ${cut}`)
  }
  const seen: number[] = []
  const reader = new NodeFrameReader(kind => seen.push(kind))
  for (const byte of bytes) reader.push(Buffer.from([byte]))
  t.strictSame(seen, [16, 32, 17], 'byte by byte')
  const broken: [string, RegExp][] = [
    ['00000008', /below 9/],
    ['7fffffff', /above/],
    ['00000009630000000000000000', /unknown frame kind 99/],
    ['0000000910000000000000ffff', /longer than its frame/],
  ]
  for (const [hex, message] of broken)
    t.throws(() => new NodeFrameReader(() => {}).push(Buffer.from(hex, 'hex')), message)
  // Limits are looked at as soon as the fixed fields are here.
  const prefixOf = (kind: number, header: number, body: number) => {
    const prefix = Buffer.alloc(13)
    prefix.writeUInt32BE(9 + header + body, 0)
    prefix[4] = kind
    prefix.writeUInt32BE(header, 9)
    return prefix
  }
  const limits = JSON.parse(readFileSync(new URL('../runtime/frame-limits.json', import.meta.url), 'utf8'))
  t.equal(limits.length, Object.keys(KIND).length)
  for (const { kind, name, header, body } of limits) {
    const push = (...sizes: [number, number]) => new NodeFrameReader(() => {}).push(prefixOf(kind, ...sizes))
    push(header, body)
    t.throws(
      () => push(header + 1, 0),
      new RegExp(`header of a ${name} frame has ${header + 1} bytes, above ${header}$`),
    )
    t.throws(() => push(0, body + 1), /above/, name)
  }
  const larger = new NodeFrameReader(() => {})
  larger.maxBodyBytes = 1000
  larger.push(prefixOf(KIND.call, 0, 16 * 1024 * 1024 + 1000))
})

const LAMBDA = `
let calls = 0
const sleep = ms => new Promise(r => setTimeout(r, ms))
export const event = async (event, context) => ({ event, context: { ...context, getRemainingTimeInMillis: typeof context.getRemainingTimeInMillis } })
export const time = async (event, context) => { const a = context.getRemainingTimeInMillis(); await sleep(30); return [a, context.getRemainingTimeInMillis()] }
export const callback = (event, context, callback) => { setTimeout(() => callback(null, { statusCode: 201, body: 'called' }), 5) }
export const callbackError = (event, context, callback) => { callback(new Error('called back')) }
export const succeed = (event, context) => { setTimeout(() => context.succeed('done'), 5) }
export const fail = (event, context) => { context.fail(new Error('failed')) }
export const both = async (event, context, callback) => { callback(null, 'first'); return 'second' }
export const nothing = () => {}
export const cookies = async () => ({ statusCode: 200, headers: { 'Set-Cookie': 'a=1' }, cookies: ['b=2'], body: 'x' })
export const binary = async () => ({ statusCode: 200, isBase64Encoded: true, body: 'AP8K' })
export const plain = async () => ({ hello: 'world' })
`

t.test('[runtimes/node.25] cloud-lambda: gateway-v2 event, context, callbacks, cookies', async t => {
  tree.write({ 'lambda.mjs': LAMBDA })
  const call = async (handler: string, header = {}, body: string | Buffer | null = null) => {
    const worker = await load('lambda.mjs', {
      handler,
      adapter: 'cloud-lambda',
      name: 'shop/pay',
      version: 'v1',
      context: { timeout_ms: 900 },
    })
    const answer = await worker.call(header, body)
    await worker.close()
    return answer
  }
  const { event, context } = parsed(
    await call(
      'event',
      {
        id: 'r1',
        ts: Date.UTC(2024, 2, 12, 19, 3, 58),
        method: 'POST',
        path: '/a b/7',
        raw_path: '/a%20b/7?x=1&x=2&y=',
        params: { id: '7' },
        query: { x: ['1', '2'], y: '' },
        headers: { host: 'h.test:80', cookie: 'a=1; b=2' },
        client: { ip: '1.2.3.4', ua: 'curl' },
      },
      'text',
    ),
  )
  t.match(event, {
    version: '2.0',
    routeKey: 'POST /a%20b/7',
    rawPath: '/a%20b/7',
    rawQueryString: 'x=1&x=2&y=',
    cookies: ['a=1', 'b=2'],
    headers: { host: 'h.test:80', cookie: 'a=1; b=2' },
    queryStringParameters: { x: '1,2', y: '' },
    pathParameters: { id: '7' },
    body: 'text',
    isBase64Encoded: false,
    requestContext: {
      domainName: 'h.test',
      requestId: 'r1',
      stage: '$default',
      time: '12/Mar/2024:19:03:58 +0000',
      timeEpoch: Date.UTC(2024, 2, 12, 19, 3, 58),
      http: { method: 'POST', path: '/a%20b/7', protocol: 'HTTP/1.1', sourceIp: '1.2.3.4', userAgent: 'curl' },
    },
  })
  t.match(context, {
    awsRequestId: 'r1',
    functionName: 'shop/pay',
    functionVersion: 'v1',
    memoryLimitInMB: String(MEMORY_MB),
    getRemainingTimeInMillis: 'function',
  })
  const bare = parsed(await call('event', {}, Buffer.from([255]))).event
  t.match(bare, { body: '/w==', isBase64Encoded: true })
  t.notOk('cookies' in bare || 'queryStringParameters' in bare || 'pathParameters' in bare)
  const [first, second] = parsed(await call('time'))
  t.ok(first <= 900 && second <= first - 25 && second >= 0, `time runs down: ${first} ${second}`)
  t.match(await call('callback'), { header: { status: 201 }, text: 'called' })
  t.match((await call('callbackError')).header, { code: 'exception', message: 'called back' })
  t.equal((await call('succeed')).text, '"done"')
  t.match((await call('fail')).header, { code: 'exception', message: 'failed' })
  t.equal((await call('both')).text, '"first"', 'the first completion wins')
  t.match(await call('nothing'), { header: { status: 200 }, text: '' })
  t.match((await call('cookies')).header.headers, { 'Set-Cookie': ['a=1', 'b=2'] })
  t.strictSame((await call('binary')).body, Buffer.from([0, 255, 10]))
  t.equal((await call('plain')).text, '{"hello":"world"}')
})

const EDGE = `
const sleep = ms => new Promise(r => setTimeout(r, ms))
export default {
  word: 'this',
  async fetch(request, env, ctx) {
    switch (new URL(request.url).pathname) {
      case '/request': return Response.json({ url: request.url, method: request.method, headers: Object.fromEntries(request.headers), text: await request.text(), env, word: this.word, params: ctx.params })
      case '/wait': ctx.waitUntil(sleep(60).then(() => { console.log('background done') })); ctx.waitUntil(Promise.reject(new Error('in the back'))); return new Response('now')
      case '/pass': ctx.passThroughOnException(); throw new Error('pass me on')
      case '/stream': return new Response(new ReadableStream({ async start(c) { c.enqueue(new TextEncoder().encode('a')); await sleep(20); c.enqueue(new TextEncoder().encode('b')); c.close() } }))
      default: return { status: 200, body: 'envelope' }
    }
  },
}
`

t.test('[runtimes/node.26] edge-worker: Request and Response, env, waitUntil, passThroughOnException', async t => {
  tree.write({
    'edge.mjs': EDGE,
    'named.cjs': 'exports.handler = request => new Response(request.method)',
    'no-fetch.mjs': 'export const a = 1',
  })
  const start = { adapter: 'edge-worker', env: { KEY: 'v' } }
  await withWorker('edge.mjs', start, async worker => {
    const answer = await worker.call(
      {
        method: 'PUT',
        path: '/request',
        raw_path: '/request?a=%20b',
        params: { id: '1' },
        headers: {
          host: 'h.test',
          'x-a': 'b',
          connection: 'close',
          'content-length': '4',
          'x-forwarded-proto': 'https',
        },
      },
      'text',
    )
    t.strictSame(parsed(answer), {
      url: 'https://h.test/request?a=%20b',
      method: 'PUT',
      headers: { host: 'h.test', 'x-a': 'b', 'x-forwarded-proto': 'https', 'content-type': 'text/plain;charset=UTF-8' },
      text: 'text',
      env: { KEY: 'v' },
      word: 'this',
      params: { id: '1' },
    })
    const stream = await worker.call({ path: '/stream' })
    t.match([stream.text, stream.chunks.length], ['ab', 2])
    t.match((await worker.call({ path: '/pass' })).header, { code: 'exception', message: 'pass me on' })
    t.equal((await worker.call({ path: '/else' })).text, 'envelope')
    const now = await worker.call({ path: '/wait' })
    t.match(now, { text: 'now', stderr: /^wait_until_rejection: Error: in the back\n/ })
    const log = async (text: RegExp) =>
      worker.wait(frame => frame.kind === KIND.log && text.test(frame.body.toString()))
    worker.socket.end()
    t.equal(
      (await log(/background/)).body.toString(),
      'background done\n',
      'background work is finished before the worker ends',
    )
    t.match(await endOf(worker), { code: 0 })
  })
  await withWorker('edge.mjs', { ...start, context: { edge: true } }, async worker => {
    const passed = await worker.call({ method: 'POST', path: '/pass', raw_path: '/pass?x' }, 'body')
    t.match([passed.header, passed.text], [{ proxy: { path: '/pass?x', method: 'POST' } }, 'body'])
  })
  await withWorker('named.cjs', start, async worker => t.equal((await worker.call()).text, 'GET'))
  t.match(await loadError('no-fetch.mjs', start), {
    message: /has no function "fetch" or "handler"/,
    hint: /async fetch\(request, env, ctx\)/,
  })
})

t.test('[runtimes/node.27] an unknown adapter is named in every answer', async t => {
  await withWorker('pass.mjs', { adapter: 'soap' }, async worker => {
    t.match((await worker.call()).header, {
      code: 'exception',
      message: 'invoke.adapter unsupported: soap',
      hint: /cloud-lambda/,
    })
  })
})

t.test('[runtimes/node.28] a daemon on tcp gives its workers tcp sockets and need not watch its input', async t => {
  const free = net.createServer().listen(0, '127.0.0.1')
  await new Promise(done => free.once('listening', done))
  const { port } = free.address() as net.AddressInfo
  await new Promise(done => free.close(done))
  const remote = await startDaemon('node', {
    root: tree.root,
    socket: `tcp://127.0.0.1:${port}`,
    args: ['--standalone'],
  })
  const worker = await remote.worker({ dir: tree.root, entry: 'pass.mjs' })
  t.equal((await worker.call()).text, '"pass"')
  t.equal(worker.socket.remoteAddress, '127.0.0.1')
  remote.child.stdin!.end()
  t.equal((await worker.call()).text, '"pass"', 'the end of its input means nothing')
  remote.child.kill('SIGTERM')
  t.equal(await remote.exited, 0)
  await until(() => !isAlive(worker.pid))
  await remote.close()
})

t.test(
  '[runtimes/node.29, runtime/wire-protocol.6] the daemon starts the binary a start names, for compiled languages',
  async t => {
    tree.write({
      'bin/worker': `#!/bin/sh\nexec ${process.execPath} ${new URL('../../runtimes/node/worker.mjs', import.meta.url).pathname} "$@"\n`,
    })
    execFileSync('chmod', ['+x', tree.path('bin/worker')])
    const compiled = await startDaemon('node', { root: tree.root, env: { FNGW_RUNTIME: 'go' } })
    t.equal(compiled.info.runtime, 'go')
    const worker = await compiled.worker({ dir: tree.root, entry: 'pass.mjs', binary: tree.path('bin/worker') })
    t.equal((await worker.call()).text, '"pass"')
    await t.rejects(compiled.startWorker({ binary: tree.path('bin/none') }), /ended before it listened/)
    await compiled.close()
  },
)
