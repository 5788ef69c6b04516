import t from 'tap'
import { toInvokeRecord } from '../../lib/control/call-fields.ts'

const RESULT = {
  id: 'call-1',
  status: 201,
  headers: ['Content-Type', 'text/plain', 'Set-Cookie', 'a=1', 'set-cookie', 'b=2', '__proto__', 'p'],
  body: Buffer.from('héllo'),
  stdout: 'out',
  stderr: 'err',
  latencyMs: 1.23456,
  queuedMs: 0.41,
  trace: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
  error: null,
}

t.test('[control/invoke.1, control/invoke.3, control/invoke.9] a result as a record', async t => {
  const record = toInvokeRecord(RESULT, '/users/7', '/users/:id')
  t.same(JSON.parse(JSON.stringify(record)), {
    status: 201,
    latency_ms: 1.235,
    route: '/users/7',
    route_template: '/users/:id',
    headers: JSON.parse('{"content-type":"text/plain","set-cookie":["a=1","b=2"],"__proto__":"p"}'),
    body: 'héllo',
    stdout: 'out',
    stderr: 'err',
    timing: { queue_ms: 0.41, worker_ms: 0.825, total_ms: 1.235 },
    request_id: 'call-1',
    trace_id: '4bf92f3577b34da6a3ce929d0e0e4736',
  })
  const bytes = toInvokeRecord({ ...RESULT, body: Buffer.from([255, 0]) }, '/', null)
  t.match(bytes, { is_base64: true, body_base64: '/wA=', route_template: null })
  t.notOk('body' in bytes)
  t.equal(toInvokeRecord({ ...RESULT, body: Buffer.alloc(0) }, '/', null).body, '')
})
