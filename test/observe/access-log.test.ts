import t from 'tap'
import { AccessLogFormat } from '../../lib/observe/access-log.ts'
import type { RequestRecord } from '../../lib/observe/events.ts'
import { MAX_LOG_LINE_BYTES } from '../../lib/observe/line-buffer.ts'

const RECORD: RequestRecord = {
  time: Date.UTC(2026, 10, 21, 12, 3, 4, 56),
  id: 'r-1',
  method: 'GET',
  path: '/users/7',
  route: '/users/:id',
  fn: 'users/[id]',
  version: 'default',
  runtime: 'node',
  entryFile: 'users/[id].js',
  status: 200,
  durationMs: 3.12449,
  queuedMs: 0,
  bytesIn: 0,
  bytesOut: 312,
  ip: '127.0.0.1',
  userAgent: 'curl/8',
  traceId: '4bf92f3577b34da6a3ce929d0e0e4736',
  error: null,
}
const HOSTILE = '\u001b[2J\r\nGET /fake 200 \u0000\u202e"\\\u2028\u0085é'

t.test('[observe/log-store.9] the line for people', async t => {
  const format = new AccessLogFormat()
  const date = new Date(RECORD.time)
  const clock = [date.getHours(), date.getMinutes(), date.getSeconds()].map(n => String(n).padStart(2, '0')).join(':')
  t.equal(format.toDevLine(RECORD), `${clock} 200 GET /users/7 node users/[id].js 3.1ms 312B`)
  t.equal(
    format.toDevLine({ ...RECORD, runtime: null, entryFile: null, status: 404 }),
    `${clock} 404 GET /users/7 3.1ms 312B`,
  )
  t.notMatch(format.toDevLine({ ...RECORD, time: RECORD.time + 1000 }), clock)
  t.equal(
    format.toDevLine({ ...RECORD, path: `/${HOSTILE}` }).slice(clock.length),
    ' 200 GET /\\x1b[2J\\r\\nGET /fake 200 \\x00\\u202e"\\\\u2028\\x85é node users/[id].js 3.1ms 312B',
  )
})

t.test('[observe/log-store.10] the line for machines', async t => {
  const format = new AccessLogFormat()
  const line = format.toJsonLine(RECORD)
  t.same(JSON.parse(line), {
    time: '2026-11-21T12:03:04.056Z',
    level: 'info',
    msg: 'request',
    req_id: 'r-1',
    method: 'GET',
    path: '/users/7',
    route: '/users/:id',
    fn: 'users/[id]',
    version: 'default',
    runtime: 'node',
    status: 200,
    dur_ms: 3.124,
    queue_ms: 0,
    bytes_in: 0,
    bytes_out: 312,
    ip: '127.0.0.1',
    ua: 'curl/8',
    trace_id: '4bf92f3577b34da6a3ce929d0e0e4736',
  })
  for (const field of ['id', 'method', 'path', 'route', 'fn', 'ip', 'userAgent', 'error'] as const) {
    const text = format.toJsonLine({ ...RECORD, [field]: HOSTILE })
    t.notMatch(text, /[\u0000-\u001f\u0085\u2028\u202e]/, field)
    t.ok(Object.values(JSON.parse(text)).includes(HOSTILE), field)
  }
  for (const long of ['x'.repeat(100_000), '€'.repeat(8000), HOSTILE.repeat(1000)]) {
    const text = format.toJsonLine({ ...RECORD, path: long, userAgent: long, route: long, fn: long, error: long })
    t.ok(Buffer.byteLength(text) <= MAX_LOG_LINE_BYTES)
    t.match(JSON.parse(text).path, /\.\.\.$/)
    t.equal(JSON.parse(format.toJsonLine(RECORD)).route, '/users/:id')
  }
  // Each character takes six bytes, in every text there is.
  const worst = '\ud800'.repeat(5000)
  const texts = ['id', 'method', 'path', 'route', 'fn', 'version', 'runtime', 'ip', 'userAgent', 'error']
  const full = { ...RECORD, ...Object.fromEntries(texts.map(field => [field, worst])) }
  const most = format.write(full, Buffer.alloc(2 * MAX_LOG_LINE_BYTES), 0)
  t.ok(most <= MAX_LOG_LINE_BYTES, `${most} bytes`)
  t.equal(JSON.parse(format.toJsonLine(full)).ua.length, 99)
  t.equal(JSON.parse(format.toJsonLine(RECORD)).error, undefined, 'what one line says of a failure the next does not')
  t.equal(JSON.parse(format.toJsonLine({ ...RECORD, traceId: '0'.repeat(32) })).trace_id, '0'.repeat(32))
  t.equal(JSON.parse(format.toJsonLine({ ...RECORD, durationMs: 12.3456, queuedMs: 0.0004 })).dur_ms, 12.346)
  t.equal(JSON.parse(format.toJsonLine({ ...RECORD, status: 503 })).level, 'error')
  t.equal(JSON.parse(format.toJsonLine({ ...RECORD, status: 404 })).level, 'warn')
  t.equal(JSON.parse(format.toJsonLine({ ...RECORD, path: '\ud800' })).path, '\ud800')
})
