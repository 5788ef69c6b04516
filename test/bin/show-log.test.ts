import { Writable } from 'node:stream'
import t from 'tap'
import { createEventShow } from '../../bin/show-events.ts'
import { createLogShow, createOutputStream } from '../../bin/show-log.ts'
import { createTextShow } from '../../bin/show-text.ts'
import type { Output } from '../../bin/output.ts'
import type { Show } from '../../bin/show.ts'
import { followed, REQUEST } from '../helpers/shown.ts'

const BUILD = { time: 0, action: 'building', key: 'go/a@default', runtime: 'go', fn: 'a', version: 'default' } as const
const RELOAD = { time: 0, cause: 'api', functions: 3, routes: 2, warnings: 0, durationMs: 4.4 }
const linesOf = (text: string) => text.trimEnd().split('\n')

t.test('[bin/dev.7] a log for machines: access lines on standard output, the rest on standard error', async t => {
  const { events, show, stdout, stderr } = followed(createLogShow)
  events.emit('request', { ...REQUEST, path: '/x\nFAKE' })
  events.emit('request', { ...REQUEST, path: '/_fn/health' })
  events.emit('log', { time: 0, level: 'debug', message: 'hidden' })
  events.emit('log', { time: 0, level: 'error', message: 'boom', code: 'TIMEOUT', requestId: 'r-1' })
  events.emit('warning', { code: 'X', path: '.', message: 'm', hint: 'h' })
  events.emit('build', { ...BUILD, state: 'began' })
  events.emit('build', { ...BUILD, state: 'ended' })
  events.emit('reload', RELOAD)
  show.stopping('SIGTERM')
  await show.close()
  const [ready, ...access] = linesOf(stdout())
  t.match(JSON.parse(ready!), { event: 'ready', time: /^\d{4}-.*Z$/, level: 'info', msg: 'ready', url: 'http://h:1' })
  t.match(ready, /^\{"event":"ready",/, 'as with --json')
  t.match(
    access.map(line => JSON.parse(line)),
    [{ msg: 'request', path: '/x\nFAKE', status: 200 }],
  )
  t.match(
    linesOf(stderr()).map(line => JSON.parse(line)),
    [
      { level: 'info', msg: 'before' },
      { level: 'warn', msg: 'W is odd (mend it)' },
      { level: 'info', msg: 'serving /srv/f at http://h:1: 0 routes' },
      { level: 'error', msg: 'boom', code: 'TIMEOUT', req_id: 'r-1' },
      { level: 'warn', msg: 'X m (h)' },
      { level: 'info', msg: 'building go/a@default' },
      { level: 'info', msg: 'reloaded in 4 ms: 3 functions, 2 routes' },
      { level: 'info', msg: 'SIGTERM: finishing what runs' },
    ],
  )
})

t.test('[bin/dev.11] failures of the start are shown, and what it reads and warns of once', async t => {
  const forms: ((output: Output) => Show)[] = [
    createLogShow,
    output => createEventShow(output, false),
    output => createTextShow({ output, version: '1', program: 'fngw', production: false }),
  ]
  for (const form of forms) {
    const { show, stdout, stderr } = followed(form, {}, events => {
      events.emit('log', { time: 0, level: 'error', message: 'first failure', code: 'LOAD_FAILED' })
      events.emit('warning', { code: 'W', path: 'a', message: 'is odd', hint: 'mend it' })
      events.emit('reload', RELOAD)
    })
    await show.close()
    const text = stdout() + stderr()
    t.equal(text.split('first failure').length, 2)
    t.equal(text.split('is odd').length, 2)
    t.notMatch(text, /reloaded|"reload"/)
  }
})

t.test('[bin/dev.7] the access line that the gateway wrote is shown as it is', async t => {
  const { events, show, stdout } = followed(createLogShow)
  const bytes = Buffer.from('before{"path":"/written"}after')
  events.emit('request', REQUEST, { bytes, from: 6, to: bytes.length - 5 })
  events.emit('request', { ...REQUEST, path: '/_fn/health' }, { bytes, from: 0, to: 6 })
  // What was written may be overwritten with the next line.
  bytes.fill('x')
  events.emit('request', { ...REQUEST, path: '/made' }, null)
  await show.close()
  const [, written, made, ...rest] = linesOf(stdout())
  t.equal(written, '{"path":"/written"}')
  t.equal(JSON.parse(made!).path, '/made')
  t.same(rest, [])
})

t.test(
  '[bin/dev.7] lines of other processes are shown as they came, the probe of health among them is not',
  async t => {
    const { events, show, stdout } = followed(createLogShow)
    const toRecord = ({ bytes, from, to }: { bytes: Buffer; from: number; to: number }) => ({
      ...REQUEST,
      ...JSON.parse(bytes.toString('utf8', from, to)),
    })
    const lines = Buffer.from('{"path":"/a"}\n{"path":"/b"}\n')
    events.emitLines(lines, () => t.fail('no record is needed') as never, true)
    lines.fill('x')
    const withProbe = Buffer.from('{"path":"/_fn/health"}\n{"path":"/c","ua":"/_fn/health"}\n')
    events.emitLines(withProbe, toRecord, true)
    await show.close()
    t.same(linesOf(stdout()).slice(1), ['{"path":"/a"}', '{"path":"/b"}', '{"path":"/c","ua":"/_fn/health"}'])
  },
)

t.test('[bin/dev.7] without an access log no request is listened for', async t => {
  const { events } = followed(createLogShow, { accessLog: false })
  t.equal(events.has('request'), false)
})

t.test('[bin/dev.7] lines that a stopped reader missed are counted', async t => {
  const waiting: (() => void)[] = []
  let text = ''
  const stdout = new Writable({
    write(chunk, _encoding, done) {
      text += String(chunk)
      waiting.push(done)
    },
  })
  const lines = createOutputStream({ stdout } as unknown as Output, count => `${count} missed`)
  lines.append('first')
  const first = lines.flush()
  for (let i = 0; i < 2000; i++) lines.append('x'.repeat(8000))
  waiting.shift()!()
  await first
  const rest = lines.flush()
  let isDone = false
  void rest.then(() => {
    isDone = true
  })
  while (!isDone) {
    waiting.shift()?.()
    await new Promise(resolve => setImmediate(resolve))
  }
  t.match(text, /\d+ missed\n$/)
})

t.test(
  '[bin/dev.2] --json: each event is an object a line, at once in development, in batches in production',
  async t => {
    for (const production of [false, true]) {
      const { events, show, stdout } = followed(output => createEventShow(output, production), { production })
      events.emit('request', REQUEST)
      events.emit('request', { ...REQUEST, path: '/_fn/health' })
      events.emit('log', { time: 0, level: 'warn', message: 'x' })
      events.emit('warning', { code: 'X', path: '.', message: 'm', hint: 'h' })
      events.emit('build', { ...BUILD, state: 'began' })
      events.emit('reload', RELOAD)
      if (!production) t.match(stdout(), /"reload"/, 'at once')
      show.stopping('SIGTERM')
      await show.close()
      t.same(
        linesOf(stdout()).map(line => JSON.parse(line).event),
        ['warning', 'ready', 'request', 'log', 'warning', 'build', 'reload'],
      )
    }
  },
)

t.test('[bin/dev.17] the level holds for all that is printed', async t => {
  const forms = [
    createLogShow,
    (output: Output) => createTextShow({ output, version: '1', program: 'fngw', production: false }),
  ]
  for (const [level, count] of [
    ['info', 5],
    ['warn', 3],
    ['error', 1],
    ['silent', 0],
  ] as const) {
    for (const form of forms) {
      const { events, stderr } = followed(form, { logLevel: level })
      const from = stderr().length
      events.emit('log', { time: 0, level: 'error', message: 'e' })
      events.emit('log', { time: 0, level: 'warn', message: 'w' })
      events.emit('warning', { code: 'X', path: '.', message: 'm', hint: 'h' })
      events.emit('build', { ...BUILD, state: 'began' })
      events.emit('reload', RELOAD)
      const lines = stderr()
        .slice(from)
        .split('\n')
        .filter(line => line !== '' && !line.startsWith('  fix'))
      t.equal(lines.length, count, `${level}: ${lines.join(' | ')}`)
    }
  }
})
