import t from 'tap'
import { type Finding, toPlace } from '../../lib/config/fields.ts'
import { SchemaLinker } from '../../lib/validation/schema-file.ts'

function link(file: Record<string, unknown>, section: string) {
  const findings: Finding[] = []
  const linker = new SchemaLinker(file)
  const schema = linker.link(file[section], toPlace('x', section, findings))
  linker.reportLoops()
  return { schema, definitions: Object.fromEntries(linker.definitions), names: findings.map(({ name }) => name) }
}

t.test('[validation/schema-file.2] a section is looked in before the file, and a definition is made once', async t => {
  const file = {
    $defs: { A: { type: 'string' }, B: { $ref: '#/$defs/A' } },
    body: {
      $defs: { A: { type: 'integer' } },
      allOf: [{ $ref: '#/$defs/A' }, { $ref: '#/$defs/B' }, { $ref: '#/$defs/A' }],
    },
  }
  t.same(link(file, 'body'), {
    schema: { allOf: [{ $ref: '#/$defs/A' }, { $ref: '#/$defs/B' }, { $ref: '#/$defs/A' }] },
    definitions: { A: { type: 'integer' }, B: { $ref: '#/$defs/A_2' }, A_2: { type: 'string' } },
    names: [],
  })
})

t.test('[validation/schema-file.3, validation/schema-file.4] the place of a wrong reference', async t => {
  t.same(link({ body: { items: { properties: { a: { $ref: '#/no' } } } } }, 'body').names, [
    'body.items.properties.a.$ref',
  ])
  t.same(link({ body: { items: { $ref: '#/items' } } }, 'body').names, ['body.items'])
  const inDefinition = link({ $defs: { A: { not: { $ref: 'http://x' } } }, body: { $ref: '#/$defs/A' } }, 'body')
  t.same(inDefinition.names, ['"#/$defs/A".not.$ref'])
})
