import t from 'tap'
import { addRows, findShown, type LogRecord, toFunctionKey, toRow } from '../../console/pages/logs/log-rows.ts'

const record = (part: Partial<LogRecord>): LogRecord => ({
  file: 'runtime',
  time: '2026-11-22T07:00:00.000Z',
  level: 'info',
  request_id: 'r-1',
  trace_id: null,
  runtime: 'node',
  fn: 'hello',
  version: null,
  stream: 'stdout',
  text: 'said hello',
  ...part,
})
const access = (part: Partial<LogRecord>): LogRecord =>
  record({
    file: 'access',
    stream: null,
    method: 'GET',
    path: '/a',
    status: 200,
    duration_ms: 3,
    bytes_out: 5,
    ...part,
  })

t.test('[console/logs.1] a line says what was asked and answered, or what was written', async t => {
  t.equal(toRow(record({}), 0).line, 'said hello')
  t.equal(toRow(access({}), 0).line, 'GET /a → 200 in 3 ms, 5 B')
  t.equal(toRow(access({ status: 404, error: 'not found' }), 0).line, 'GET /a → 404 in 3 ms, 5 B – not found')
  t.equal(toRow(access({ error: null }), 0).line, 'GET /a → 200 in 3 ms, 5 B')
  t.equal(toFunctionKey(record({})), 'node/hello@default')
  t.equal(toFunctionKey(record({ version: 'v2' })), 'node/hello@v2')
  t.equal(toFunctionKey(record({ fn: null })), null)
})

t.test('[console/logs.2] filters of lines', async t => {
  const rows = [
    access({ path: '/_fn/logs' }),
    access({ path: '/console' }),
    access({ path: '/console-like', level: 'warn' }),
    record({ text: 'Écrit', level: 'error', request_id: 'r-2' }),
    record({ level: null, text: 'a note' }),
  ].map(toRow)
  const ids = (level: string, search: string, hasOwn: boolean): number[] =>
    findShown(rows, { level, search, hasOwn }).map(({ id }) => id)
  t.same(ids('', '', true), [0, 1, 2, 3, 4])
  t.same(ids('', '', false), [2, 3, 4])
  t.same(ids('warn', '', true), [2, 3])
  t.same(ids('error', '', true), [3])
  t.same(ids('', 'écrit r-2', true), [3])
  t.same(ids('', 'hello note', true), [4])
  t.same(ids('unknown', '', true), [0, 1, 2, 3, 4])
})

t.test('[console/logs.3] the newest lines are kept', async t => {
  const rows = [1, 2, 3].map(id => toRow(record({}), id))
  t.same(
    addRows(rows.slice(0, 2), rows.slice(2), 2).map(({ id }) => id),
    [2, 3],
  )
  t.equal(addRows(rows, [], 3).length, 3)
})

t.test('[console/logs.1] an error with its stack is one row, with white space kept', async t => {
  const error = (text: string, part: Partial<LogRecord> = {}) =>
    record({ file: 'error', stream: null, level: 'error', text, ...part })
  const records = [
    record({ text: 'began' }),
    error('GET /a: Error: no order'),
    error('  { "id": 7 }'),
    error('    at handler (a.mjs:3:1)'),
    error('GET /a: Error: another', { request_id: 'r-2' }),
    record({ stream: 'stderr', text: 'Traceback:' }),
    record({ stream: 'stderr', text: '  File "a.py"' }),
    record({ text: 'one' }),
    record({ text: 'two' }),
    error('a warning of the gateway', { request_id: null, fn: null }),
    error('another one', { request_id: null, fn: null }),
  ]
  for (const first of [0, 3]) {
    // The lines of an error may come in two parts.
    const rows = addRows(addRows([], records.slice(0, first).map(toRow), 100), records.slice(first).map(toRow), 100)
    t.same(
      rows.map(({ line, more }) => (more === 0 ? line : `${line} +${more}`)),
      [
        'began',
        'GET /a: Error: no order +2',
        'GET /a: Error: another',
        'Traceback: +1',
        'one',
        'two',
        'a warning of the gateway',
        'another one',
      ],
    )
    t.equal(rows[1]!.record.text, 'GET /a: Error: no order\n  { "id": 7 }\n    at handler (a.mjs:3:1)')
    t.same(findShown(rows, { level: '', search: 'a.mjs:3', hasOwn: true }).length, 1, 'all lines are searched')
  }
})
