import t from 'tap'
import { toOperation, type OperationFacts } from '../../lib/http/openapi-operation.ts'
import { OpenApiSchemas } from '../../lib/http/openapi-schemas.ts'
import { parseSchemaFile } from '../../lib/validation/schema-file.ts'
import { makeFn } from '../helpers/fn.ts'

interface Operation {
  summary: string
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
