import t from 'tap'
import { toLogRecord } from '../../lib/observe/log-line.ts'

const TRACE_ID = '4bf92f3577b34da6a3ce929d0e0e4736'
const NOTHING = {
  ...{ time: null, level: null, request_id: null, trace_id: null },
  ...{ runtime: null, fn: null, version: null, stream: null },
}

t.test('[observe/log-store.18, control/logs.10] lines of the error and runtime log', async t => {
  const time = '2026-11-22T00:00:00.000Z'
  const fn = { runtime: 'node', fn: 'users/[id]', version: 'v2' }
  const line = `${time} req=r-1 trace=${TRACE_ID} [node] [fn:users/[id]@v2 stderr] [python] [fn:x@y stdout] z`
  t.same(toLogRecord('runtime', line), {
    ...{ file: 'runtime', time, level: 'warn', request_id: 'r-1', trace_id: TRACE_ID, ...fn },
    ...{ stream: 'stderr', text: '[python] [fn:x@y stdout] z' },
  })
  t.match(toLogRecord('runtime', `${time} [node] [fn:a@default stdout] `), {
    level: 'info',
    stream: 'stdout',
    text: '',
  })
  t.same(toLogRecord('error', `${time} error reload failed`), {
    ...{ file: 'error', ...NOTHING, time, level: 'error', text: 'reload failed' },
  })
})

t.test('[control/logs.10] a line of the access log has its request', async t => {
  const line = JSON.stringify({
    ...{ time: '2026-11-22T00:00:00.000Z', level: 'warn', msg: 'request', req_id: 'r-1', method: 'GET', path: '/a' },
    ...{ route: null, fn: null, version: null, runtime: null, status: 404, dur_ms: 0.5, queue_ms: 0, bytes_in: 1 },
    ...{ bytes_out: 9, ip: '127.0.0.1', ua: null, trace_id: TRACE_ID, error: 'not found', file: 'runtime' },
  })
  t.same(toLogRecord('access', line), {
    ...{ file: 'access', time: '2026-11-22T00:00:00.000Z', level: 'warn', request_id: 'r-1', trace_id: TRACE_ID },
    ...{ runtime: null, fn: null, version: null, stream: null, text: 'GET /a 404', method: 'GET', path: '/a' },
    ...{ route: null, status: 404, duration_ms: 0.5, queue_ms: 0, bytes_in: 1, bytes_out: 9, ip: '127.0.0.1' },
    ...{ user_agent: null, error: 'not found' },
  })
})

t.test('[control/logs.10] what is no line is a note', async t => {
  for (const [file, line] of [
    ['access', '{"time":"2026'],
    ['access', '7'],
    ['access', '{"time":5}'],
    ['runtime', '... 5 lines were dropped: the disk is too slow'],
    ['error', ''],
  ] as const)
    t.same(toLogRecord(file, line), { file, ...NOTHING, text: line }, line)
})
