import t from 'tap'
import {
  badRequest,
  ERROR_STATUS,
  GatewayError,
  isThrottled,
  orNull,
  toErrorBody,
  toGatewayError,
  type Warning,
} from '../../lib/core/errors.ts'

t.test('[core/errors.1] the body is an object with the message alone, whatever the message holds', async t => {
  for (const message of ['not found', 'say "no"', 'a\r\nb', '\u0000\u2028</script>', 'ü', '']) {
    t.same(JSON.parse(toErrorBody(message)), { error: message })
  }
})

t.test('[core/errors.2] the code decides the status', async t => {
  for (const [code, status] of Object.entries(ERROR_STATUS)) {
    const error = new GatewayError(code as keyof typeof ERROR_STATUS, 'text')
    t.equal(error.status, status, code)
    t.equal(error.code, code)
    t.equal(error.message, 'text')
    t.ok(error instanceof Error)
  }
})

t.test('[core/errors.3, core/errors.4] every condition has the status of the table', async t => {
  const rows: [number, (keyof typeof ERROR_STATUS)[]][] = [
    [400, ['BAD_REQUEST']],
    [401, ['UNAUTHORIZED']],
    [403, ['FORBIDDEN']],
    [404, ['NOT_FOUND']],
    [405, ['METHOD_NOT_ALLOWED']],
    [409, ['ROUTE_CONFLICT', 'CONFLICT']],
    [413, ['BODY_TOO_LARGE']],
    [414, ['TARGET_TOO_LONG']],
    [415, ['UNSUPPORTED_TYPE']],
    [421, ['HOST_NOT_ALLOWED']],
    [429, ['CONCURRENCY_LIMIT', 'POOL_OVERFLOW']],
    [431, ['HEADERS_TOO_LARGE']],
    [500, ['INTERNAL', 'HANDLER_FAILED', 'LOAD_FAILED']],
    [501, ['NOT_IMPLEMENTED']],
    [502, ['CONTRACT_BROKEN', 'EDGE_FAILED']],
    [503, ['RUNTIME_DOWN', 'WORKER_DIED', 'SHUTTING_DOWN', 'BUILD_PENDING', 'CONFIG_BROKEN', 'OVERLOADED']],
    [504, ['TIMEOUT']],
    [507, ['STORAGE_FULL']],
  ]
  for (const [status, codes] of rows) for (const code of codes) t.equal(ERROR_STATUS[code], status, code)
  t.same(rows.flatMap(([, codes]) => codes).sort(), Object.keys(ERROR_STATUS).sort(), 'the table is complete')
})

t.test('[core/errors.5] overflow status, response headers and detail are kept', async t => {
  const options = { status: 503, headers: { 'Retry-After': '1' }, detail: { file: 'a.py', line: 3 }, cause: 'why' }
  const error = new GatewayError('POOL_OVERFLOW', 'worker pool overflow', options)
  t.equal(error.status, 503)
  t.same(error.headers, { 'Retry-After': '1' })
  t.same(error.detail, { file: 'a.py', line: 3 })
  t.equal(error.cause, 'why')
  const plain = new GatewayError('POOL_OVERFLOW', 'worker pool overflow')
  t.equal(plain.status, 429)
  t.notOk('cause' in plain)
})

t.test('[core/errors.6] anything else becomes 500 with a fixed message and keeps its cause for the log', async t => {
  const own = new GatewayError('NOT_FOUND', 'not found')
  t.equal(toGatewayError(own), own)
  for (const thrown of [new TypeError('password is hunter2'), 'text', null, undefined, 7, { status: 404 }]) {
    const error = toGatewayError(thrown)
    t.equal(error.status, 500)
    t.equal(error.message, 'gateway exception')
    t.equal(error.cause, thrown)
    t.notOk(toErrorBody(error.message).includes('hunter2'))
  }
})

t.test('[core/errors.7] a warning is data that survives JSON', async t => {
  const warning: Warning = { code: 'ROUTE_TAKEN', path: 'a/fn.config.json', message: 'what', hint: 'how' }
  t.same(JSON.parse(JSON.stringify(warning)), warning)
  t.notOk((warning as unknown) instanceof Error)
})

t.test('[core/errors.2] refusals of requests and of admission', async t => {
  t.match(badRequest('query field a', 'must be 1 or 0'), {
    code: 'BAD_REQUEST',
    status: 400,
    message: 'query field a must be 1 or 0',
  })
  t.ok(isThrottled(new GatewayError('POOL_OVERFLOW', 'full')))
  t.notOk(isThrottled(new GatewayError('TIMEOUT', 'late')))
  t.notOk(isThrottled(null))
  t.equal(
    orNull(() => 1),
    1,
  )
  t.equal(
    orNull(() => JSON.parse('{')),
    null,
  )
})
