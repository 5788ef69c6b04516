import t from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import { RequestSchema } from '../../lib/validation/request-schema.ts'
import { SchemaCompiler } from '../../lib/validation/schema-compiler.ts'
import { parseSchemaFile } from '../../lib/validation/schema-file.ts'

const compiler = await SchemaCompiler.load()

function make(value: unknown, bodyType: string | null = null): RequestSchema {
  const { file, warnings } = parseSchemaFile(JSON.stringify(value), 'schema.json')
  if (file === null) throw new Error(JSON.stringify(warnings))
  return new RequestSchema(file, { methods: ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'], bodyType, compiler })
}

interface Given {
  method?: string
  params?: Record<string, string>
  query?: unknown
  headers?: Record<string, string>
}

const texts = (
  schema: RequestSchema,
  { method = 'GET', params = {}, query = {}, headers = {} }: Given,
): string | null =>
  schema.checkTexts({ method, params, queryJson: JSON.stringify(query), headersJson: JSON.stringify(headers) })
    ?.message ?? null
const body = (schema: RequestSchema, text: string | null, type: string | null = 'application/json', method = 'POST') =>
  schema.checkBody(method, type, text === null ? null : Buffer.from(text))

/** Three bytes that are not UTF-8. */
const PNG = Buffer.from([0x89, 0x50, 0xff])

t.test('[validation/request-schema.1] texts are read as what their schema says, and only then', async t => {
  const schema = make({
    query: {
      properties: {
        page: { type: 'integer', minimum: 1 },
        ratio: { type: 'number' },
        on: { type: 'boolean' },
        q: { type: 'string', minLength: 2 },
        maybe: { anyOf: [{ type: 'integer' }, { type: 'null' }] },
        ids: { type: 'array', items: { type: 'integer' } },
        kind: { enum: [1, 2] },
        ref: { $ref: '#/$defs/Count' },
        filter: { type: 'object', required: ['a'] },
      },
      additionalProperties: false,
      $defs: { Count: { type: 'integer' } },
    },
  })
  const right: unknown[] = [
    {},
    { page: '1' },
    { page: '1e2' },
    { ratio: '-0.5' },
    { on: 'false' },
    { q: '12' },
    { maybe: '' },
    { maybe: '7' },
    { ids: '1' },
    { ids: ['1', '2'] },
    { kind: '2' },
    { ref: '3' },
    { filter: '{"a":1}' },
  ]
  for (const query of right) t.equal(texts(schema, { query }), null, JSON.stringify(query))
  const wrong: [query: unknown, message: string][] = [
    [{ page: '0' }, 'query.page must be >= 1, got 0 (number)'],
    [{ page: '0x1' }, 'query.page must be of type integer, got "0x1" (string)'],
    [{ page: ' 1 ' }, 'query.page must be of type integer, got " 1 " (string)'],
    [{ page: '1.5' }, 'query.page must be of type integer, got 1.5 (number)'],
    [{ page: ['1', '2'] }, 'query.page must be of type integer, got an array of 2 items'],
    [{ ratio: 'Infinity' }, 'query.ratio must be of type number, got "Infinity" (string)'],
    [{ on: '1' }, 'query.on must be of type boolean, got "1" (string)'],
    [{ q: 'x' }, 'query.q must be at least 2 characters long, got "x" (string)'],
    [{ maybe: 'x' }, 'query.maybe must be of type integer or null, got "x" (string)'],
    [{ ids: ['1', 'x'] }, 'query.ids[1] must be of type integer, got "x" (string)'],
    [{ kind: '3' }, 'query.kind must be one of 1, 2, got 3 (number)'],
    [{ ref: 'x' }, 'query.ref must be of type integer, got "x" (string)'],
    [{ filter: '{"b":1}' }, 'query.filter.a is required'],
    [{ filter: '{' }, 'query.filter must be of type object, got "{" (string)'],
    [{ other: '1' }, 'query.other is not known'],
  ]
  for (const [query, message] of wrong) t.equal(texts(schema, { query }), message)
  const refused = schema.checkTexts({ method: 'GET', params: null, queryJson: '{"page":"x"}', headersJson: '{}' })
  t.match(refused, { code: 'BAD_REQUEST', status: 400 })
  t.ok(refused instanceof GatewayError)
})

t.test('[validation/request-schema.2] params and headers', async t => {
  const schema = make({
    params: { properties: { id: { type: 'integer' }, list: { type: 'array', maxItems: 2 } } },
    headers: {
      properties: { 'X-Kind': { enum: ['a', 'b'] }, 'X-Ids': { type: 'array', items: { type: 'integer' } } },
      required: ['X-Kind'],
      additionalProperties: false,
    },
  })
  const headers = { 'x-kind': 'a', host: 'x', 'user-agent': 'curl' }
  t.equal(texts(schema, { params: { id: '1', list: 'a,b' }, headers }), null, 'undeclared headers are ignored')
  t.equal(texts(schema, { params: { id: 'x' }, headers }), 'params.id must be of type integer, got "x" (string)')
  t.match(texts(schema, { params: { list: 'a,b,c' }, headers }), 'params.list must be at most 2 items long')
  t.equal(texts(schema, {}), 'headers.x-kind is required')
  t.equal(texts(schema, { headers: { ...headers, 'x-ids': '1, 2' } }), null)
  t.equal(
    texts(schema, { headers: { 'x-kind': 'my token' } }),
    'headers.x-kind must be one of "a", "b", got a hidden value (string)',
  )
})

t.test('[validation/request-schema.3] bodies: JSON by default, absent ones are null, the type is held to', async t => {
  const schema = make({ body: { type: 'object', properties: { a: { items: { type: 'integer' } } }, required: ['a'] } })
  t.equal(body(schema, '{"a":[1]}'), null)
  t.equal(body(schema, '{"a":[1]}', 'application/vnd.x+json; charset=utf-8'), null)
  t.equal(body(schema, '{"a":[1]}', null), null, 'no type')
  t.equal(body(schema, 'anything', 'text/plain', 'GET'), null, 'a GET has no body')
  const wrong: [text: string | null, type: string | null, status: number, message: RegExp][] = [
    ['{"a":[1,"x"]}', 'application/json', 400, /^body\.a\[1\] must be of type integer, got "x"/],
    ['{}', 'application/json', 400, /^body\.a is required/],
    ['{', 'application/json', 400, /^body is not JSON/],
    [null, null, 400, /^body must be of type object, got null/],
    ['{"a":[1]}', 'text/plain', 415, /^body must be application\/json, got "text\/plain" in Content-Type/],
    ['a=1', 'application/x-www-form-urlencoded', 415, /^body must be application\/json/],
  ]
  for (const [text, type, status, message] of wrong) {
    const refused = body(schema, text, type)
    t.equal(refused?.status, status, String(message))
    t.match(refused?.message, message)
  }
  t.match(schema.checkBody('POST', null, Buffer.from([0x22, 0xff, 0x22])), { message: 'body is not UTF-8 text' })
  t.equal(body(make({ body: { type: ['object', 'null'] } }), null), null)
  const form = make(
    { body: { properties: { n: { type: 'integer' }, m: { type: 'array' } }, required: ['n'] } },
    'application/x-www-form-urlencoded',
  )
  t.equal(body(form, 'n=1&m=a&m=b', 'application/x-www-form-urlencoded'), null)
  t.match(body(form, 'n=x', 'application/x-www-form-urlencoded'), { message: /^body\.n must be of type integer/ })
  const plain = make({ body: { type: 'string', maxLength: 3, contentMediaType: 'text/plain' } })
  t.equal(body(plain, 'abc', 'text/plain;charset=utf-8'), null)
  t.match(body(plain, 'abcd', 'text/plain'), { message: /^body must be at most 3 characters long/ })
  const bytes = (type: string, sent = type) =>
    make({ body: { type: 'string', maxLength: 3, contentMediaType: type } }).checkBody('POST', sent, PNG)?.message
  t.equal(bytes('image/png'), undefined)
  const textTypes = [
    'text/csv',
    'application/json',
    'application/x-www-form-urlencoded',
    'application/xml',
    'image/svg+xml',
  ]
  for (const type of textTypes) t.equal(bytes(type), 'body is not UTF-8 text', type)
  const limited = make({ body: { type: 'string', maxLength: 2, contentMediaType: 'image/png' } })
  t.match(limited.checkBody('POST', 'image/png', PNG), { message: /^body must be at most 2 characters long/ })
  t.match(limited.checkBody('POST', 'image/gif', PNG), { status: 415 })
})

t.test('[validation/request-schema.4] a method has its own sections; HEAD those of GET', async t => {
  const schema = make({
    query: { required: ['q'] },
    methods: { POST: { query: true }, DELETE: { body: { const: 1 } } },
  })
  t.equal(texts(schema, { method: 'GET' }), 'query.q is required')
  t.equal(texts(schema, { method: 'HEAD' }), 'query.q is required')
  t.equal(texts(schema, { method: 'POST' }), null)
  t.match(body(schema, '2', null, 'DELETE'), { message: 'body must be 1, got 2 (number)' })
})

t.test('[validation/request-schema.5] answers', async t => {
  const schema = make({ responses: { 200: { type: 'object' }, '4XX': { required: ['error'] }, default: false } })
  const check = (status: number, text: string, type = 'application/json') => {
    const found = schema.checkResponse('GET', status, type, Buffer.from(text))
    return found === null ? null : `${found.name} ${found.text}`
  }
  t.equal(check(200, '{}'), null)
  t.equal(check(200, '"secret"'), 'body must be of type object, got a hidden value (string)')
  t.equal(check(200, 'x'), 'body is not JSON')
  t.equal(check(404, '{}'), 'body.error is required')
  t.equal(check(500, '{}'), 'body is not allowed')
  t.equal(make({ query: true }).checkResponse('GET', 200, null, Buffer.from('x')), null)
  const image = make({ responses: { 200: { type: 'string', contentMediaType: 'image/png' } } })
  t.equal(image.checkResponse('GET', 200, 'image/png', PNG), null)
  t.match(schema.checkResponse('GET', 200, 'image/png', PNG), { text: /type object/ })
})

t.test('[validation/request-schema.6] no value holds the gateway up', async t => {
  const nested = (depth: number) => `${'{"kids":['.repeat(depth)}${']}'.repeat(depth)}`
  const tree = make({
    body: { $defs: { Tree: { properties: { kids: { items: { $ref: '#/$defs/Tree' } } } } }, $ref: '#/$defs/Tree' },
  })
  t.equal(body(tree, nested(50)), null)
  t.match(body(tree, nested(200_000)), { status: 400, message: /nested too deep|too large to be checked/ })
  // Each level is looked at twice: 2^n checks.
  const twice = { $ref: '#/$defs/T' }
  const doubling = make({
    body: {
      $defs: {
        T: {
          anyOf: [
            { allOf: [{ properties: { kids: { items: twice } } }, { required: ['no'] }] },
            { properties: { kids: { items: twice } } },
          ],
        },
      },
      ...twice,
    },
  })
  t.match(body(doubling, nested(60)), { status: 400, message: /too large to be checked/ })
  const pattern = make({ body: { items: { type: 'string', pattern: '^(a+)+$' } } })
  t.match(body(pattern, JSON.stringify([`${'a'.repeat(50)}!`])), {
    message: /must be a string that matches \^\(a\+\)\+\$/,
  })
  t.match(body(pattern, JSON.stringify(['a'.repeat(1_000_000)])), { message: /too large to be checked/ })
  const unique = make({ body: { type: 'array', uniqueItems: true } })
  t.equal(body(unique, JSON.stringify(Array.from({ length: 50_000 }, (_, id) => ({ id })))), null)
  t.match(body(unique, '[{"a":1,"b":2},{"b":2,"a":1}]'), { message: /without duplicates/ })
  t.equal(body(pattern, '["aaa"]'), null, 'and the next check starts with a full budget')
})

t.test('[validation/request-schema.7] names that mean something to objects are plain names', async t => {
  const schema = make({ query: { required: ['toString'], additionalProperties: false, properties: { toString: {} } } })
  t.equal(texts(schema, {}), 'query.toString is required')
  t.equal(texts(schema, { query: JSON.parse('{"toString":"1","__proto__":"x"}') }), 'query.__proto__ is not known')
  const proto = make({ body: { required: ['__proto__'], additionalProperties: { type: 'string' } } })
  t.match(body(proto, '{}'), { message: 'body.__proto__ is required' })
  t.match(body(proto, '{"__proto__":1}'), { message: /body\.__proto__ must be of type string/ })
})
