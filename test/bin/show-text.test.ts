import t from 'tap'
import { createEventShow } from '../../bin/show-events.ts'
import { createLogShow } from '../../bin/show-log.ts'
import { createTextShow, toAccessText, toLogText } from '../../bin/show-text.ts'
import type { LogRecord } from '../../lib/index.ts'
import type { GatewayEvents } from '../../lib/observe/events.ts'
import { toPrintable } from '../../lib/observe/log-line.ts'
import { followed, REQUEST } from '../helpers/shown.ts'

const style = (name: unknown, text: string): string => `<${String(name)}>${text}</>`
const plain = { clean: toPrintable, style: (_name: unknown, text: string) => text }
const RECORD: LogRecord = { time: REQUEST.time, level: 'info', message: 'built a' }
const FAILURE: LogRecord = {
  ...RECORD,
  level: 'error',
  message: 'a.js:2: TypeError: boom',
  requestId: 'r-1',
  method: 'GET',
  path: '/a\nFAKE',
  code: 'HANDLER_FAILED',
  detail: { stack: '\tat inner (a.js:2)\n  at handler\u001b[2J', hint: 'do it' },
}

const show = (production: boolean) =>
  followed(output => createTextShow({ output, version: '1', program: 'fngw', production }), { production })

t.test('[bin/dev.1] a person sees the start, the address, and what happens', async t => {
  const { events, show: shown, stdout, stderr } = show(false)
  t.equal(stdout(), 'ready http://h:1\n')
  t.match(stderr(), /^before\nfngw 1 {2}http:\/\/h:1\n[\s\S]*warning W: is odd\n {2}fix: mend it\n/)
  const from = stderr().length
  events.emit('request', REQUEST)
  events.emit('request', { ...REQUEST, path: '/_fn/health' })
  for (const path of ['/_fn/catalog', '/console', '/console/jobs', '/_fn/events'])
    events.emit('request', { ...REQUEST, path, status: path === '/_fn/events' ? 499 : 200 })
  events.emit('request', { ...REQUEST, path: '/_fn/jobs', status: 401 })
  events.emit('request', { ...REQUEST, path: '/_fn/jobs', method: 'POST', status: 201 })
  events.emit('request', { ...REQUEST, path: '/consoles' })
  events.emit('log', { ...RECORD, level: 'debug' })
  events.emit('log', RECORD)
  events.emit('warning', { code: 'X', path: '.', message: 'm', hint: 'h' })
  events.emit('build', {
    time: 0,
    action: 'building',
    state: 'began',
    key: 'go/a@default',
    runtime: 'go',
    fn: 'a',
    version: 'default',
  })
  const reload = { time: 0, cause: 'watch', functions: 3, routes: 2, durationMs: 4.4 }
  events.emit('reload', { ...reload, warnings: 0 })
  events.emit('reload', { ...reload, functions: 1, warnings: 1 })
  shown.stopping('SIGINT')
  await shown.close()
  t.match(stderr().slice(from).split('\n'), [
    /^\d\d:03:04 200 GET \/a node a\.js 3\.1ms 312B$/,
    / 401 GET \/_fn\/jobs /,
    / 201 POST \/_fn\/jobs /,
    / 200 GET \/consoles /,
    'built a',
    'warning X: m',
    '  fix: h',
    'building go/a@default',
    'reloaded in 4 ms: 3 functions',
    'reloaded in 4 ms: 1 function, 1 warning',
    /^SIGINT: finishing/,
    '',
  ])
})

t.test('[bin/dev.7] in production access lines go to standard output', async t => {
  const { events, show: shown, stdout, stderr } = show(true)
  events.emit('request', { ...REQUEST, path: '/x\nFAKE' })
  await shown.close()
  t.match(stdout(), /^ready .*\n\d\d:03:04 200 GET \/x\\nFAKE node a\.js 3\.1ms 312B\n$/)
  t.notMatch(stderr(), /FAKE/)
})

t.test(
  '[bin/dev.11] a failure is told below its access line; without one, or in production, with its request',
  async t => {
    const told = (production: boolean, settings: object = {}) => {
      const { events, stderr } = followed(
        output => createTextShow({ output, version: '1', program: 'fngw', production }),
        { production, ...settings },
      )
      const from = stderr().length
      events.emit('log', FAILURE)
      return stderr().slice(from).split('\n')
    }
    t.same(told(false), [
      'error a.js:2: TypeError: boom',
      '      at inner (a.js:2)',
      '      at handler\\x1b[2J',
      '  hint: do it',
      '',
    ])
    const asked = 'error a.js:2: TypeError: boom (GET /a\\nFAKE req=r-1)'
    t.equal(told(true)[0], asked)
    t.equal(told(false, { accessLog: false })[0], asked)
    const { method: _, ...start } = { ...FAILURE, runtime: 'node', fn: 'a' }
    t.equal(toLogText(start as LogRecord, plain)[0], 'error a.js:2: TypeError: boom (node/a)')
  },
)

t.test('[bin/dev.10] what a function writes is a line each, marked with its name', async t => {
  const record: LogRecord = {
    ...RECORD,
    runtime: 'node',
    fn: 'a',
    version: 'default',
    stream: 'stdout',
    message: 'x\r\n\u001b[2Jy\n',
  }
  t.same(toLogText(record, plain), ['[fn:a stdout] x', '[fn:a stdout] \\x1b[2Jy'])
  t.same(toLogText({ ...record, stream: 'stderr', message: 'e' }, { clean: toPrintable, style }), [
    '<yellow>[fn:a stderr]</> e',
  ])
})

t.test('[bin/dev.23] a warning of the gateway begins with its time', async t => {
  const { events, stderr } = show(false)
  const from = stderr().length
  events.emit('log', { ...RECORD, level: 'warn' })
  t.match(stderr().slice(from), /^\d\d:\d\d:\d\d warn built a\n$/)
})

t.test('[bin/dev.11] colours say how bad it is', async t => {
  const line = '12:03:04 500 GET /a'
  t.equal(toAccessText(line, 500, style), '<dim>12:03:04</> <red>500</> GET /a')
  for (const [status, colour] of [
    [200, 'green'],
    [304, 'cyan'],
    [404, 'yellow'],
    [499, 'yellow'],
    [503, 'red'],
  ] as const)
    t.match(toAccessText(line, status, style), `<${colour}>`)
  const words = (level: LogRecord['level']) => toLogText({ ...RECORD, level }, { clean: toPrintable, style })
  t.same(
    [words('info'), words('warn'), words('error')],
    [['built a'], ['<yellow>warn</> built a'], ['<red>error</> built a']],
  )
  t.match(toLogText(FAILURE, { clean: toPrintable, style })[0], /^<red>error<\/> <red>a\.js:2/)
})

t.test('[bin/dev.24] a warning of the start that the catalog lacks is shown once, in every form', t => {
  const lost = { code: 'WATCH_LIMITED', path: '.', message: 'cannot be watched', hint: 'raise it' }
  const catalog = { code: 'W', path: 'a', message: 'is odd', hint: 'mend it' }
  const start = (events: GatewayEvents) => {
    events.emit('warning', catalog)
    events.emit('warning', lost)
  }
  const forms = {
    text: followed(output => createTextShow({ output, version: '1', program: 'fngw', production: false }), {}, start),
    events: followed(output => createEventShow(output, false), {}, start),
    log: followed(output => createLogShow(output), {}, start),
  }
  for (const [name, { stdout, stderr }] of Object.entries(forms)) {
    const shown = stdout() + stderr()
    t.equal(shown.split('cannot be watched').length, 2, name)
    t.equal(shown.split('is odd').length, 2, name)
  }
  t.end()
})
