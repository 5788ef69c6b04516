import t from 'tap'
import { OpenApiSchemas } from '../../lib/http/openapi.ts'
import { parseSchemaFile } from '../../lib/validation/schema-file.ts'
import { makeFn } from '../helpers/fn.ts'

const parse = (value: unknown) => parseSchemaFile(JSON.stringify(value), 'x').file

t.test('[http/openapi.9] definitions of different functions do not meet', async t => {
  const all = new OpenApiSchemas()
  const file = parse({ $defs: { A: { type: 'string' } }, body: { $ref: '#/$defs/A' } })
  const first = makeFn({ name: 'a/b' })
  const second = makeFn({ name: 'a_b' })
  const added = all.add(first, file)
  t.equal(all.add(first, file), added, 'once')
  t.same(all.add(second, file)!.embed({ $ref: '#/$defs/A' }), { $ref: '#/components/schemas/node_a_b_default_A_2' })
  t.same(all.schemas, { node_a_b_default_A: { type: 'string' }, node_a_b_default_A_2: { type: 'string' } })
  t.same(all.add(makeFn({ name: 'c' }), null).security, [], 'without a file')
})

t.test('[http/openapi.9] ways to show who one is are named once, for all functions that ask for them', async t => {
  const all = new OpenApiSchemas()
  const ways = ['bearer', 'basic', 'none', 'header:X-Key']
  const added = all.add(makeFn({ name: 'a' }), parse({ security: ways }))
  t.same(added?.security, [{ bearer: [] }, { basic: [] }, {}, { 'header_X-Key': [] }])
  all.add(makeFn({ name: 'b' }), parse({ security: ['bearer'] }))
  t.same(all.securitySchemes, {
    bearer: { type: 'http', scheme: 'bearer' },
    basic: { type: 'http', scheme: 'basic' },
    'header_X-Key': { type: 'apiKey', in: 'header', name: 'X-Key' },
  })
})
