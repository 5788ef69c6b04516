import t from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import {
  cutCall,
  fromErrorHeader,
  fromFactsHeader,
  joinCall,
  toErrorHeader,
  toFactsHeader,
} from '../../lib/processes/link.ts'
import { FRAME_LIMITS } from '../../lib/runtime/wire-protocol.ts'

t.test('[processes/processes.10] a call says which function it is for before its event', async t => {
  t.same(cutCall(joinCall('node/users/[id]@default', '{"id":"a\\n"}')), {
    key: 'node/users/[id]@default',
    event: '{"id":"a\\n"}',
  })
  t.throws(() => cutCall('{"id":1}'), /call without a key/)
})

t.test('[processes/processes.10] a failure arrives as it was', async t => {
  const errors = [
    new GatewayError('TIMEOUT', 'runtime timeout after 1 ms'),
    new GatewayError('POOL_OVERFLOW', 'worker pool overflow', { status: 503, headers: { 'Retry-After': '1' } }),
    new GatewayError('HANDLER_FAILED', 'kaputt \u2028 "', {
      detail: { file: 'a.js', line: 3, stack: 'x\ny', hint: 'h' },
    }),
  ]
  for (const error of errors) {
    const read = fromErrorHeader(toErrorHeader(error))
    for (const field of ['code', 'message', 'status', 'headers', 'detail'] as const)
      t.same(read?.[field], error[field], field)
  }
  t.equal(fromErrorHeader(''), null)
  t.match(fromErrorHeader('{"code":"toString","message":"m"}'), { code: 'INTERNAL', message: 'm' })
})

t.test('[processes/processes.10] a failure with a long text fits its frame', async t => {
  const long = '\u0000'.repeat(100_000)
  const error = new GatewayError('HANDLER_FAILED', long, { detail: { stack: long, hint: long, file: long } })
  const header = toErrorHeader(error)
  t.ok(Buffer.byteLength(header) <= FRAME_LIMITS.error.header, `${Buffer.byteLength(header)} bytes`)
  t.match(fromErrorHeader(header)?.message, /^\0+\.\.\.$/)
})

t.test('[processes/processes.10] how a call reached its worker arrives', async t => {
  const facts = { cold: true, socketIndex: 3, queuedMs: 12.5, loadError: null }
  t.same(fromFactsHeader(toFactsHeader(facts)), facts)
  t.same(fromFactsHeader('{}'), { cold: false, socketIndex: 1, queuedMs: 0, loadError: null })
  const loadError = new GatewayError('LOAD_FAILED', 'bad', { detail: { file: 'a.py', line: 3 } })
  const { code, message, detail } = fromFactsHeader(toFactsHeader({ ...facts, loadError })).loadError!
  t.same([code, message, detail], ['LOAD_FAILED', 'bad', { file: 'a.py', line: 3 }])
})
