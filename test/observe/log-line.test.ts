import t from 'tap'
import type { LogRecord } from '../../lib/observe/events.ts'
import { toJsonLogLines } from '../../lib/observe/log-line.ts'

const RECORD: LogRecord = { time: Date.UTC(2026, 10, 21), level: 'info', message: 'ready' }
const FUNCTION = { runtime: 'node', fn: 'a', version: 'default' }

t.test('[observe/log-store.17] words of the gateway are one JSON object, absent fields are absent', async t => {
  t.same(
    toJsonLogLines({ ...RECORD, message: 'a\nb' }).map(line => JSON.parse(line)),
    [{ time: '2026-11-21T00:00:00.000Z', level: 'info', msg: 'a\nb' }],
  )
})

t.test('[observe/log-store.17] output of a function is one object a line', async t => {
  const record: LogRecord = { ...RECORD, ...FUNCTION, stream: 'stderr', message: 'one\r\ntwo\n\n', requestId: 'r-1' }
  const lines = toJsonLogLines(record).map(line => JSON.parse(line))
  t.same(
    lines.map(line => line.msg),
    ['one', 'two', ''],
  )
  t.match(lines[0], { fn: 'a', version: 'default', runtime: 'node', stream: 'stderr', req_id: 'r-1' })
  const long = 'é'.repeat(40_000)
  const pieces = toJsonLogLines({ ...record, message: long }).map(line => JSON.parse(line).msg)
  t.ok(pieces.length > 1 && pieces.every(piece => piece.length <= 16_384))
  t.equal(pieces.join(''), long)
})

t.test('[observe/log-store.17] a failure is one line with code, file, line and stack', async t => {
  const detail = { file: 'a.js', line: 3, stack: `    at x\n${'y'.repeat(20_000)}`, hint: 'h' }
  const [line = '', ...more] = toJsonLogLines({ ...RECORD, ...FUNCTION, code: 'HANDLER_FAILED', method: 'GET', detail })
  t.same(more, [])
  t.match(JSON.parse(line), {
    code: 'HANDLER_FAILED',
    file: 'a.js',
    line: 3,
    hint: 'h',
    method: 'GET',
    stack: /^ {4}at x\n/,
  })
  t.ok(line.length < 10_000)
})

t.test('[observe/log-store.17] no text of others starts a line or steers a terminal', async t => {
  const hostile = '\u001b[2J\n\r\u2028\u202e\u0085\u0000"\\\ud800'
  const [line = ''] = toJsonLogLines({ ...RECORD, message: hostile, path: hostile, requestId: hostile })
  t.notMatch(line, /[\u0000-\u001f\u007f-\u009f\u2028\u202e\ud800]/)
  t.equal(JSON.parse(line).msg, hostile)
})
