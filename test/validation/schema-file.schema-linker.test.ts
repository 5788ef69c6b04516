import t from 'tap'
import { parseSchemaFile } from '../../lib/validation/schema-file.ts'

function link(value: Record<string, unknown>) {
  const { file, warnings } = parseSchemaFile(JSON.stringify(value), 'x')
  return {
    schema: file?.common.body,
    definitions: file && Object.fromEntries(file.definitions),
    messages: warnings.map(({ message }) => message),
  }
}

t.test('[validation/schema-file.2] a section is looked in before the file, and a definition is made once', async t => {
  const file = {
    $defs: { A: { type: 'string' }, B: { $ref: '#/$defs/A' } },
    body: {
      $defs: { A: { type: 'integer' } },
      allOf: [{ $ref: '#/$defs/A' }, { $ref: '#/$defs/B' }, { $ref: '#/$defs/A' }],
    },
  }
  t.same(link(file), {
    schema: { allOf: [{ $ref: '#/$defs/A' }, { $ref: '#/$defs/B' }, { $ref: '#/$defs/A' }] },
    definitions: { A: { type: 'integer' }, B: { $ref: '#/$defs/A_2' }, A_2: { type: 'string' } },
    messages: [],
  })
})

t.test('[validation/schema-file.3, validation/schema-file.4] the place of a wrong reference', async t => {
  t.match(link({ body: { items: { properties: { a: { $ref: '#/no' } } } } }).messages, [
    /^x: body\.items\.properties\.a\.\$ref is "#\/no"/,
  ])
  t.match(link({ body: { items: { $ref: '#/items' } } }).messages, [
    /^x: body\.items has a \$ref to "items" that leads back/,
  ])
  t.match(link({ $defs: { A: { not: { $ref: 'http://x' } } }, body: { $ref: '#/$defs/A' } }).messages, [
    /^x: "#\/\$defs\/A"\.not\.\$ref is "http:\/\/x"/,
  ])
})

t.test('[validation/schema-file.3] every mistake is reported once, also where a schema should be', async t => {
  const { messages } = link({
    body: { anyOf: [null, 1, { minimum: 'x' }], properties: { a: 'x' }, items: null, $defs: { A: { type: 'no' } } },
    query: { $ref: '#/body/$defs/A' },
  })
  t.same(
    messages.map(message => message.replace(/ must be .*/, '')).sort(),
    [
      'x: body.$defs.A.type',
      'x: body.anyOf.0',
      'x: body.anyOf.1',
      'x: body.anyOf.2.minimum',
      'x: body.items',
      'x: body.properties.a',
    ]
      .map(name => (name === 'x: body.$defs.A.type' ? 'x: "#/body/$defs/A".type' : name))
      .sort(),
  )
})
