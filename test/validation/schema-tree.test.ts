import t from 'tap'
import { childrenOf, copySchema, sameValueChildren, type Schema } from '../../lib/validation/schema-tree.ts'

t.test('[validation/schema-file.3] where schemas stand in a schema, and where data does', async t => {
  const schema = {
    properties: { a: true, $ref: {} },
    items: {},
    allOf: [{}, false],
    if: {},
    enum: [{ $ref: 'data' }],
    default: { items: {} },
    const: { properties: {} },
  }
  t.same(
    childrenOf(schema).map(({ path }) => path.join('/')),
    ['properties/a', 'properties/$ref', 'items', 'allOf/0', 'allOf/1', 'if'],
  )
  t.equal(sameValueChildren(schema).length, 3)
})

t.test('[validation/schema-file.2] a copy has renamed references and no definitions', async t => {
  const schema = JSON.parse(
    '{"$id":"x","$schema":"y","$defs":{"A":true},"$ref":"#/a","properties":{"__proto__":{"$ref":"#/b"}},"enum":[{"$ref":"#/c"}]}',
  ) as Schema
  const seen: string[] = []
  const copy = copySchema(schema, {
    rename: reference => {
      seen.push(reference)
      return `new ${reference}`
    },
  })
  t.same(seen, ['#/a', '#/b'])
  t.equal(
    JSON.stringify(copy),
    '{"$ref":"new #/a","properties":{"__proto__":{"$ref":"new #/b"}},"enum":[{"$ref":"#/c"}]}',
  )
  t.equal(copySchema(true, { rename: String }), true)
  const spelled = copySchema({ anyOf: [true, false], additionalProperties: false }, { rename: String, spellsOut: true })
  t.same(spelled, { anyOf: [{}, { not: {} }], additionalProperties: false })
})
