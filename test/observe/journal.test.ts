import { readFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import { ERROR_STATUS, type ErrorCode, GatewayError, type Warning } from '../../lib/core/errors.ts'
import type { LogRecord } from '../../lib/observe/events.ts'
import { Journal, type JournalOptions } from '../../lib/observe/journal.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeFn } from '../helpers/fn.ts'
import { REQUEST } from '../helpers/shown.ts'
import { makeTree } from '../helpers/tree.ts'

function setup(t: Test, options: Partial<JournalOptions> = {}) {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  const clock = new FakeClock()
  const journal = new Journal({ clock, functionsRoot: tree.root, accessLog: true, ...options })
  const logs: LogRecord[] = []
  journal.events.on('log', record => logs.push(record))
  const read = async (file: string): Promise<string> => {
    await journal.close()
    return readFileSync(tree.path(`.svc/logs/${file}.log`), 'utf8')
  }
  return { journal, clock, logs, read }
}

const FN = makeFn({ name: 'a', entryFile: 'a/handler.js' })
const TRACE = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'
const WARNING: Warning = { code: 'X', path: 'a', message: 'is wrong', hint: 'mend it' }

t.test('[observe/events.6] words of the gateway reach listeners and the error log; debug only listeners', async t => {
  const { journal, logs, read, clock } = setup(t)
  journal.log('debug', 'up')
  journal.log('warn', 'careful')
  t.same(logs, [
    { time: clock.wall(), level: 'debug', message: 'up' },
    { time: clock.wall(), level: 'warn', message: 'careful' },
  ])
  t.match(await read('error'), /^\S+ warn careful\n$/)
})

t.test('[observe/events.6] output of a function carries its name, stream and call', async t => {
  const { journal, logs, read } = setup(t)
  journal.output(FN, 'stderr', 'oops\n', { id: 'id-1', trace: TRACE })
  journal.output(FN, 'stdout', '')
  t.match(logs, [
    {
      level: 'warn',
      message: 'oops\n',
      fn: 'a',
      version: 'default',
      stream: 'stderr',
      requestId: 'id-1',
      traceId: TRACE.slice(3, 35),
    },
  ])
  t.equal(logs.length, 1)
  t.match(
    await read('runtime'),
    /^\S+ req=id-1 trace=4bf92f3577b34da6a3ce929d0e0e4736 \[node\] \[fn:a@default stderr\] oops\n$/,
  )
})

t.test('[observe/events.6] a warning is told while it is new, and again when it comes back', async t => {
  const { journal, read } = setup(t)
  const told: string[] = []
  journal.events.on('warning', ({ message }) => told.push(message))
  const other = { ...WARNING, message: 'is odd' }
  for (const warnings of [[WARNING, WARNING], [WARNING, other], [other], [WARNING, other]]) journal.warnNew(warnings)
  t.same(told, ['is wrong', 'is odd', 'is wrong'])
  t.match(await read('error'), /warn X is wrong \(mend it\)\n/)
})

t.test('[observe/log-store.10] a listener of requests gets the access line that was written', async t => {
  for (const accessLog of [true, false]) {
    const { journal, read } = setup(t, { accessLog })
    const told: (string | null)[] = []
    journal.events.on('request', (_record, line) => {
      told.push(line === null ? null : line.bytes.toString('utf8', line.from, line.to))
    })
    journal.request({ ...REQUEST, path: '/one' })
    journal.request({ ...REQUEST, path: '/two' })
    if (!accessLog) {
      t.same(told, [null, null], 'none is written')
      continue
    }
    t.equal(`${told.join('\n')}\n`, await read('access'))
    t.match(
      told.map(line => JSON.parse(line!)),
      [{ path: '/one' }, { path: '/two' }],
    )
  }
})

t.test(
  '[observe/log-store.20] lines of another process go to the log and to who takes them, records are made for others only',
  async t => {
    for (const accessLog of [true, false]) {
      const { journal, read } = setup(t, { accessLog })
      const many = Buffer.from('{"path":"/one"}\n{"path":"/two"}\n')
      let made = 0
      const toRecord = ({ bytes, from, to }: { bytes: Buffer; from: number; to: number }) => {
        made += 1
        return { ...REQUEST, ...JSON.parse(bytes.toString('utf8', from, to)) }
      }
      journal.requestLines(many, toRecord)
      t.equal(made, 0, 'nobody listens')
      const taken: string[] = []
      let isWanted = true
      const stop = journal.on(
        'request',
        ({ path }, line) =>
          taken.push(path, line === null ? 'no line' : line.bytes.toString('utf8', line.from, line.to)),
        lines => isWanted && taken.push(String(lines)) > 0,
      )
      journal.requestLines(many, toRecord)
      t.equal(made, 0, 'they are taken as they are')
      t.same(taken.splice(0), [String(many)])
      const told: string[] = []
      journal.on('request', ({ path }) => told.push(path))
      journal.requestLines(many, toRecord)
      t.equal(made, 2, 'one for each line, for the other listener')
      t.same([told.splice(0), taken.splice(0)], [['/one', '/two'], [String(many)]])
      isWanted = false
      journal.requestLines(many, toRecord)
      const lines = accessLog
        ? ['/one', '{"path":"/one"}', '/two', '{"path":"/two"}']
        : ['/one', 'no line', '/two', 'no line']
      t.same([made, told.splice(0), taken.splice(0)], [4, ['/one', '/two'], lines], 'refused, they come one by one')
      stop()
      journal.requestLines(many, toRecord)
      t.same(taken, [])
      if (accessLog) t.equal(await read('access'), String(many).repeat(5))
    }
  },
)

t.test('[observe/log-store.14] a failed start is told with its file once, its line and its hint', async t => {
  const { journal, logs } = setup(t)
  const detail = { file: 'a/db.js', line: 7, hint: 'export it' }
  journal.failure(FN, new GatewayError('LOAD_FAILED', 'no such export', { detail }))
  journal.failure(FN, new GatewayError('LOAD_FAILED', 'syntax error in a/db.js:7: x', { detail }))
  journal.failure(FN, new GatewayError('WORKER_DIED', 'worker ended'))
  t.match(logs, [
    {
      level: 'error',
      message: 'a/db.js:7: no such export',
      code: 'LOAD_FAILED',
      detail: { hint: 'export it' },
      fn: 'a',
    },
    { message: 'syntax error in a/db.js:7: x' },
    { message: 'a/handler.js: worker ended', code: 'WORKER_DIED' },
  ])
})

t.test('[observe/log-store.14] a module that many functions cannot load is told with its frames once', async t => {
  const { journal, logs } = setup(t)
  const fail = (name: string, line: number) =>
    journal.failure(
      makeFn({ name, entryFile: `${name}.py` }),
      new GatewayError('LOAD_FAILED', 'bad', { detail: { file: '_db.py', line, stack: 'frames', hint: 'mend it' } }),
    )
  fail('a', 1)
  fail('b', 1)
  fail('c', 2)
  t.same(
    logs.map(({ fn, message, detail }) => [fn, message, detail?.stack, detail?.hint]),
    [
      ['a', '_db.py:1: bad', 'frames', 'mend it'],
      ['b', '_db.py:1: bad', undefined, undefined],
      ['c', '_db.py:2: bad', 'frames', 'mend it'],
    ],
  )
})

t.test('[observe/log-store.13] a failed build is told once, not again by each call that waited for it', async t => {
  const { journal, logs, read } = setup(t)
  const error = new GatewayError('LOAD_FAILED', 'build failed: a.go:3:1: bad\n\tdetail of it\n\n\tmore')
  journal.failure(FN, error)
  journal.callFailed({ fn: FN, id: 'r-1', trace: TRACE, method: 'GET', path: '/a' }, error)
  t.same(
    logs.map(({ message, detail }) => [message, detail?.stack]),
    [['a/handler.js: build failed: a.go:3:1: bad', '\tdetail of it\n\tmore']],
  )
  t.match((await read('error')).trimEnd().split('\n'), [/ a\.go:3:1: bad$/, / {3}detail of it$/, / {3}more$/])
})

t.test('[observe/log-store.13] a failed call is in the error log with its request, message and frames', async t => {
  const { journal, logs, read } = setup(t)
  const call = { fn: FN, id: 'r-1', trace: TRACE, method: 'GET', path: '/a\nFAKE' }
  const stack = 'TypeError: boom\n    at inner (a/db.js:7:1)\n    at handler (a/handler.js:2:3)'
  const error = new GatewayError('HANDLER_FAILED', 'boom', { detail: { file: 'a/db.js', line: 7, stack } })
  journal.callFailed(call, error)
  journal.failure(FN, error)
  t.match(logs, [
    {
      level: 'error',
      message: 'a/db.js:7: TypeError: boom',
      requestId: 'r-1',
      method: 'GET',
      code: 'HANDLER_FAILED',
      detail: { line: 7, stack: /^ {4}at inner[^\n]+\n {4}at handler[^\n]+$/ },
    },
  ])
  t.equal(logs.length, 1, 'what a call has told is not told again')
  const lines = (await read('error')).trimEnd().split('\n')
  t.match(lines, [
    /^\S+ error req=r-1 trace=\w{32} \[node\] \[fn:a@default\] GET \/a\\nFAKE: a\/db\.js:7: TypeError: boom$/,
    /^\S+ error req=r-1 trace=\w{32} \[node\] \[fn:a@default\] {5}at inner /,
    /^\S+ error req=r-1 trace=\w{32} \[node\] \[fn:a@default\] {5}at handler /,
  ])
})

t.test(
  '[observe/history.9] the last failure of a function is told with file and line, as the error log has it',
  async t => {
    const { journal } = setup(t)
    const told: string[] = []
    journal.onFailure = (fn, message) => told.push(`${fn.name} ${message}`)
    const call = { fn: FN, id: 'r-1', trace: TRACE, method: 'GET', path: '/a' }
    const detail = { file: 'a/db.js', line: 7, stack: 'TypeError: boom\n    at inner (a/db.js:7:1)' }
    journal.callFailed(call, new GatewayError('HANDLER_FAILED', 'boom', { detail }))
    journal.failure(FN, new GatewayError('WORKER_DIED', 'worker ended'))
    t.same(told, ['a a/db.js:7: TypeError: boom', 'a a/handler.js: worker ended'])
  },
)

t.test('[observe/log-store.13] all lines of a failure have one time', async t => {
  const { journal, clock, read } = setup(t)
  const wall = clock.wall.bind(clock)
  clock.wall = () => {
    clock.jumpWall(1)
    return wall()
  }
  journal.failure(FN, new GatewayError('LOAD_FAILED', 'no order\nfurther', { detail: { stack: 'at a\nat b' } }))
  const times = (await read('error'))
    .trimEnd()
    .split('\n')
    .map(line => line.slice(0, line.indexOf(' ')))
  t.equal(times.length, 4)
  t.equal(new Set(times).size, 1)
})

t.test('[observe/log-store.13] failures are told, refusals are not', async t => {
  const { journal, logs } = setup(t)
  const call = { fn: FN, id: 'r', trace: TRACE, method: 'GET', path: '/a' }
  for (const code of Object.keys(ERROR_STATUS) as ErrorCode[]) journal.callFailed(call, new GatewayError(code, 'why'))
  t.same(
    logs.map(({ code }) => code).sort(),
    'CONFIG_BROKEN CONTRACT_BROKEN EDGE_FAILED HANDLER_FAILED INTERNAL LOAD_FAILED RUNTIME_DOWN TIMEOUT WORKER_DIED'.split(
      ' ',
    ),
  )
  const cause = new Error('ours')
  journal.callFailed({ ...call, fn: null }, new GatewayError('INTERNAL', 'gateway exception', { cause }))
  t.match(
    logs.at(-1),
    { message: 'gateway exception', detail: { stack: /Error: ours\n +at / } },
    'its cause is told here only',
  )
})

t.test('[observe/log-store.11] a function that fails at full speed does not fill the logs', async t => {
  const { journal, logs } = setup(t)
  const call = { fn: FN, id: 'r', trace: TRACE, method: 'GET', path: '/a' }
  for (let i = 0; i < 20_000; i++) journal.callFailed(call, new GatewayError('TIMEOUT', 'runtime timeout'))
  t.ok(logs.length <= 10_001, `${logs.length} of 20000`)
})

t.test('[observe/log-store.15] log files that cannot be written are a warning at the start', async t => {
  const tree = makeTree({ '.svc': 'a file' })
  t.teardown(tree.cleanup)
  const journal = new Journal({ clock: new FakeClock(), functionsRoot: tree.root, accessLog: true })
  t.match(await journal.open(), [{ code: 'LOGS_NOT_WRITTEN', path: '.svc/logs', hint: /--log-files/ }])
  t.same(await setup(t).journal.open(), [])
  t.same(await setup(t, { functionsRoot: null }).journal.open(), [])
})

t.test('[observe/events.5, observe/log-store.10] a request is recorded when somebody wants it', async t => {
  const record = {
    time: 0,
    id: 'i',
    method: 'GET',
    path: '/a',
    route: '/a',
    fn: 'a',
    version: 'default',
    runtime: 'node',
    entryFile: 'a/handler.js',
    status: 200,
    durationMs: 1,
    queuedMs: 0,
    bytesIn: 0,
    bytesOut: 2,
    ip: '',
    userAgent: null,
    traceId: '4bf92f3577b34da6a3ce929d0e0e4736',
    error: null,
  }
  const quiet = setup(t, { accessLog: false })
  t.equal(quiet.journal.wantsRequests, false)
  const paths: string[] = []
  quiet.journal.events.on('request', ({ path }) => paths.push(path))
  t.equal(quiet.journal.wantsRequests, true)
  quiet.journal.request(record)
  t.same(paths, ['/a'])
  const logged = setup(t)
  t.equal(logged.journal.wantsRequests, true)
  logged.journal.request(record)
  t.match(JSON.parse(await logged.read('access')), { req_id: 'i', path: '/a', status: 200 })
})

t.test('[observe/events.3] a listener that throws is told as a log line', async t => {
  const { journal, logs } = setup(t)
  journal.events.on('warning', () => {
    throw new Error('mine')
  })
  journal.warn(WARNING)
  t.match(logs, [{ level: 'error', message: 'listener of "warning" threw: Error: mine' }])
})

t.test('[observe/events.7] builds are told while they go on', async t => {
  const { journal, read } = setup(t)
  const told: string[] = []
  journal.events.on('build', ({ state, key }) => told.push(`${state} ${key}`))
  journal.buildBegan(FN, 'building')
  t.same(
    [...journal.builds].map(({ key }) => key),
    [FN.key],
  )
  journal.buildEnded(FN, 'building')
  t.same([...journal.builds], [])
  t.same(told, [`began ${FN.key}`, `ended ${FN.key}`])
  t.match(await read('error'), / info building node\/a@default\n/)
})
