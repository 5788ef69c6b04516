import t from 'tap'
import { checkIdempotencyKey, checkJobInput } from '../../lib/jobs/job-input.ts'

t.test('[jobs/jobs.5] every wrong field is told with its rule and value', async t => {
  const rows: [string, Record<string, unknown>, RegExp][] = [
    ['no name', { name: undefined }, /^name is missing$/],
    ['a name that is a path', { name: '../x' }, /name must be the name of a function, got "\.\.\/x" \(string\)/],
    ['a name with NUL', { name: 'a\0' }, /name must be/],
    ['a name of another type', { name: 5 }, /name must be the name of a function, got 5 \(number\)/],
    ['runtime', { runtime: 'perl' }, /runtime must be one of python, node, php, lua, go, rust, got "perl"/],
    ['version', { version: '../x' }, /version must be/],
    ['method', { method: 'FETCH' }, /method must be one of GET, POST, PUT, PATCH, DELETE/],
    ['route', { route: 'x' }, /route must be a path that starts with \//],
    ['params', { params: { id: {} } }, /params\.id must be text that is not empty, or a number, got an object/],
    ['query', { query: [] }, /query must be an object, got an array of 0 items/],
    ['headers: line break', { headers: { a: 'b\r\nc: d' } }, /headers\.a must be text that a header can carry/],
    ['headers: name', { headers: { 'a b': 'c' } }, /headers must be/],
    ['headers: object', { headers: { a: {} } }, /headers\.a must be/],
    ['context', { context: 'x' }, /context must be an object/],
    ['both bodies', { body: 'a', body_base64: 'YQ==' }, /body_base64 must be absent where body is given/],
    ['base64', { body_base64: 'a' }, /body_base64 must be base64 text/],
    ['attempts 0', { max_attempts: 0 }, /max_attempts must be an integer from 1 to 10, got 0/],
    ['attempts 11', { max_attempts: 11 }, /max_attempts/],
    ['attempts 1.5', { max_attempts: 1.5 }, /max_attempts/],
    ['attempts text', { max_attempts: '2' }, /max_attempts must be an integer from 1 to 10, got "2" \(string\)/],
    ['delay', { retry_delay_ms: -1 }, /retry_delay_ms/],
    ['backoff', { backoff: 0.5 }, /backoff must be a number from 1 to 10/],
    ['first delay', { delay_ms: 604_800_001 }, /delay_ms must be an integer from 0 to 604800000/],
    ['callback scheme', { callback_url: 'file:///etc/passwd' }, /callback_url must be an http or https URL/],
    ['callback password', { callback_url: 'http://a:b@c' }, /callback_url/],
    ['unknown field', { max_attempt: 2 }, /^max_attempt is not a known key, did you mean max_attempts\?$/],
  ]
  for (const [title, fields, message] of rows)
    t.throws(() => checkJobInput({ name: 'hello', ...fields }), { code: 'BAD_REQUEST', message }, title)
  for (const input of [null, [], 'x', 5, undefined])
    t.throws(() => checkJobInput(input), { message: /^a job must be an object/ })
  t.throws(() => checkJobInput({ name: 1, method: 'X', backoff: 0 }), {
    message: /name must.*; method must.*; backoff must/,
  })
})

t.test('[jobs/jobs.5] what is not given has its default', async t => {
  t.match(checkJobInput({ name: 'users/[id]' }), {
    runtime: null,
    version: null,
    method: null,
    route: null,
    body: null,
    context: null,
    retry: { maxAttempts: 1, delayMs: 1000, backoff: 1 },
    delayMs: 0,
    callbackUrl: null,
  })
  t.equal(checkJobInput({ name: 'a', body: { b: 1 } }).body?.toString(), '{"b":1}')
  const json = { 'Content-Type': 'application/json' }
  t.same(checkJobInput({ name: 'a', body: { b: 1 } }).headers, json, 'JSON says that it is JSON')
  const own = { 'content-type': 'text/x' }
  t.same(checkJobInput({ name: 'a', body: [1], headers: own }).headers, own, 'unless the caller says otherwise')
  t.same({ ...checkJobInput({ name: 'a', body: 'text' }).headers }, {})
  t.same({ ...checkJobInput({ name: 'a', headers: { a: 1, b: ['x', 'y'] } }).headers }, { a: '1', b: 'x, y' })
  t.equal(checkJobInput({ name: 'a', method: 'get' as never }).method, 'GET')
  t.equal(checkJobInput({ name: 'a', body: 'text' }).body?.toString(), 'text')
  t.equal(checkJobInput({ name: 'a', body: false }).body?.toString(), 'false')
  t.same(checkJobInput({ name: 'a', body_base64: '/wA=' }).body, Buffer.from([255, 0]))
  const { params } = checkJobInput({ name: 'a', params: JSON.parse('{"id": 5, "__proto__": "x"}') })
  t.same([params.id, Object.hasOwn(params, '__proto__')], ['5', true], 'names are plain data')
})

t.test('[jobs/jobs.13] keys are short and visible', async t => {
  t.equal(checkIdempotencyKey(null), null)
  t.equal(checkIdempotencyKey('a-1'), 'a-1')
  for (const key of ['', ' ', 'a b', 'é', 'x'.repeat(256)])
    t.throws(() => checkIdempotencyKey(key), { code: 'BAD_REQUEST', message: /^Idempotency-Key must be/ })
})
