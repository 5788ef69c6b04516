import t from 'tap'
import { OpenApiSchemas, type OperationFacts, toOperation, toOperationId } from '../../lib/http/openapi.ts'
import { parseSchemaFile } from '../../lib/validation/schema-file.ts'
import { makeFn } from '../helpers/fn.ts'

interface Operation {
  summary: string
  operationId: string
  parameters: { name: string; description?: string }[]
  requestBody?: { required: boolean; content: Record<string, unknown> }
  responses: Record<string, unknown>
}

function operation(facts: Partial<OperationFacts> = {}, file: unknown = null): Operation {
  const fn = facts.fn ?? makeFn()
  const schema = file === null ? null : parseSchemaFile(JSON.stringify(file), 'x').file
  const schemas = new OpenApiSchemas().add(fn, schema)
  return toOperation({ method: 'GET', fn, params: [], hints: undefined, schemas, operationId: 'x', ...facts }) as never
}

t.test('[http/openapi.8] the refusals that a function’s callers may meet', async t => {
  const statuses = (facts: Partial<OperationFacts>) => Object.keys(operation(facts).responses).join(' ')
  t.equal(statuses({}), '200 400 404 405 429 500 502 503 504 default')
  t.equal(statuses({ method: 'POST' }), '200 400 404 405 413 429 500 502 503 504 default')
  const strict = makeFn({ policy: { validate: true, allowHosts: ['a.example'] } })
  t.equal(statuses({ fn: strict, method: 'PUT' }), '200 400 404 405 413 415 421 429 500 502 503 504 default')
})

t.test(
  '[http/openapi.9] a body is asked for where its schema does not take null, and has the type of its schema',
  async t => {
    const bodyOf = (file: unknown, method: 'GET' | 'POST' | 'DELETE' = 'POST') =>
      operation({ method }, file).requestBody
    t.match(bodyOf({ body: { type: 'object' } }), { required: true, content: { 'application/json': {} } })
    t.match(bodyOf({ body: { type: ['object', 'null'] } }), { required: false })
    t.match(bodyOf({ body: { type: 'string', contentMediaType: 'text/csv' } }), { content: { 'text/csv': {} } })
    t.equal(bodyOf({ body: true }, 'GET'), undefined)
    t.match(bodyOf({ methods: { GET: { body: { type: 'object' } } } }, 'GET'), { required: true })
    t.match(bodyOf({ body: { type: 'object' } }, 'DELETE'), {
      required: false,
      content: { 'application/json': { schema: {} } },
    })
  },
)

t.test('[http/openapi.2] a catch-all says what it takes', async t => {
  const params = [{ name: 'path', own: 'path', isRest: true }]
  t.match(operation({ params }).parameters, [{ name: 'path', description: 'the rest of the path' }])
})

t.test('[http/openapi.3] an operation id has no character that a client generator stumbles over', async t => {
  t.equal(toOperationId('POST', makeFn({ name: 'users/[id]', version: 'v-2' })), 'post_node_users__id__v_2')
  t.equal(toOperationId('GET', makeFn({ name: 'é' })), 'get_node___default')
})

t.test('[http/openapi.4] what the config says comes before what the handler says', async t => {
  const hints = { summary: 'hint', query: { a: '1' }, body: 'x', contentType: 'text/plain' } as OperationFacts['hints']
  const plain = makeFn()
  const said = makeFn({
    version: 'v2',
    policy: {
      summary: 'config',
      exampleQuery: { b: 2 },
      exampleBody: '{"c":3}',
      exampleContentType: 'application/json',
    },
  })
  t.equal(operation({ fn: plain }).summary, 'GET invoke node/hello')
  t.equal(operation({ fn: makeFn({ version: 'v2' }) }).summary, 'GET invoke node/hello@v2')
  t.match(operation({ fn: plain, hints, method: 'POST' }), {
    summary: 'POST hint',
    parameters: [{ name: 'a', in: 'query', required: false, schema: {}, example: '1' }],
    requestBody: { required: false, content: { 'text/plain': { schema: {}, example: 'x' } } },
  })
  t.match(operation({ fn: said, hints, method: 'PUT' }), {
    summary: 'PUT config',
    parameters: [{ name: 'b', example: 2 }],
    requestBody: { content: { 'application/json': { example: { c: 3 } } } },
  })
})

t.test('[http/openapi.4] an example of JSON that is a text is shown as what it says', async t => {
  const exampleOf = (exampleBody: unknown, exampleContentType: string | null = null) => {
    const fn = makeFn({ policy: { exampleBody, exampleContentType } as never })
    const { content } = operation({ fn, method: 'POST' }).requestBody!
    return (Object.values(content)[0] as { example?: unknown }).example
  }
  for (const [body, type, shown] of [
    ['[1]', null, [1]],
    ['{"a":1}', 'application/problem+json', { a: 1 }],
    ['{"a":1}', 'text/plain', '{"a":1}'],
    ['{"a":', null, '{"a":'],
    ['7', null, '7'],
    ['null', null, 'null'],
    [{ a: 1 }, null, { a: 1 }],
  ] as const)
    t.same(exampleOf(body, type), shown, JSON.stringify(body))
  t.equal(exampleOf(null), undefined)
})

t.test('[http/openapi.9] parameters have the types of the schema, and examples that fit their names', async t => {
  const file = {
    params: { properties: { key: { type: 'integer' } } },
    query: {
      properties: { page: { type: 'integer' }, filter: { type: 'object' }, either: { type: ['object', 'string'] } },
      required: ['page'],
    },
    headers: {
      properties: { 'X-Kind': { enum: ['a'] }, Authorization: { type: 'string' }, accept: {} },
      required: ['X-Kind'],
    },
    security: ['basic'],
  }
  const fn = makeFn({ policy: { exampleQuery: { page: '3', filter: '{}', more: 'x' } } })
  const params = [
    { name: 'id', own: 'key', isRest: false },
    { name: 'rest', own: 'rest', isRest: true },
  ]
  const { parameters, requestBody, security } = operation({ fn, params }, file) as Operation & { security: unknown }
  t.same(parameters, [
    { name: 'id', in: 'path', required: true, schema: { type: 'integer' } },
    { name: 'rest', in: 'path', required: true, description: 'the rest of the path', schema: { type: 'string' } },
    { name: 'page', in: 'query', required: true, schema: { type: 'integer' }, example: '3' },
    {
      name: 'filter',
      in: 'query',
      required: false,
      content: { 'application/json': { schema: { type: 'object' }, example: '{}' } },
    },
    { name: 'either', in: 'query', required: false, schema: { type: ['object', 'string'] } },
    { name: 'more', in: 'query', required: false, schema: {}, example: 'x' },
    { name: 'X-Kind', in: 'header', required: true, schema: { enum: ['a'] } },
  ])
  t.equal(requestBody, undefined)
  t.same(security, [{ basic: [] }])
})

t.test(
  '[http/openapi.8, http/openapi.9] answers: those of the schema, the gateway’s own, and both where they meet',
  async t => {
    const error = { $ref: '#/components/schemas/Error' }
    const responses = {
      204: true,
      304: { type: 'object' },
      '1XX': true,
      418: { type: 'string', contentMediaType: 'text/plain', description: 'tea' },
      404: { type: 'string' },
      500: true,
      '5XX': { type: 'object' },
      default: { type: 'array' },
    }
    const answers = operation({}, { responses }).responses as Record<string, { description?: string; content?: object }>
    t.same(answers['204'], { description: 'No Content' })
    t.same(answers['304'], { description: 'Not Modified' }, 'such an answer has no body, whatever the file says')
    t.same(answers['1XX'], { description: 'answer of the function' })
    t.match(answers['418'], { description: 'tea', content: { 'text/plain': { schema: { type: 'string' } } } })
    t.same(answers['404']!.content, { 'application/json': { schema: { anyOf: [{ type: 'string' }, error] } } })
    t.same(
      answers['500']!.content,
      { 'application/json': { schema: {} } },
      'what takes everything takes the refusal too',
    )
    t.same(answers['5XX']!.content, { 'application/json': { schema: { type: 'object' } } })
    t.same(answers.default!.content, { 'application/json': { schema: { type: 'array' } } })
    t.notOk('200' in answers, 'its success is another one')
    t.match(answers['429'], { $ref: /Error429/ })
  },
)
