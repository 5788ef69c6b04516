import t from 'tap'
import type { Schema } from '../../lib/validation/schema-tree.ts'
import { allowsNull, parametersOf, readText, shapeOf } from '../../lib/validation/request-schema.ts'

const NONE = new Map<string, Schema>()

t.test('[validation/request-schema.1] the types that a text may stand for', async t => {
  const definitions = new Map<string, Schema>([
    ['Id', { type: 'integer' }],
    ['Loop', { properties: { a: { $ref: '#/$defs/Loop' } }, type: 'object' }],
  ])
  const cases: [schema: Schema, types: string[]][] = [
    [{ type: ['integer', 'null'] }, ['integer', 'null']],
    [{ $ref: '#/$defs/Id' }, ['integer']],
    [{ anyOf: [{ type: 'boolean' }, { $ref: '#/$defs/Id' }] }, ['boolean', 'integer']],
    [{ enum: [1, null, [], {}] }, ['array', 'null', 'number', 'object']],
    [{ const: 'x' }, ['string']],
    [{ $ref: '#/$defs/Loop' }, ['object']],
    [true, []],
  ]
  for (const [schema, types] of cases)
    t.same([...shapeOf(schema, definitions).types].sort(), types, JSON.stringify(schema))
})

t.test('[validation/request-schema.1] texts to values', async t => {
  const read = (text: string | string[], schema: Schema, separator: string | null = null) =>
    readText(text, shapeOf(schema, NONE), separator)
  t.equal(read('1', { type: 'string' }), '1')
  t.equal(read('1', { type: ['string', 'integer'] }), '1')
  t.equal(read('-1.5e3', { type: 'number' }), -1500)
  for (const text of ['', '01', '+1', '0x1', ' 1', 'NaN', '1_000']) t.equal(read(text, { type: 'number' }), text)
  t.same(read('a, b', { type: 'array' }, ','), ['a', 'b'])
  t.same(read('a, b', { type: 'array' }), ['a, b'])
  t.same(read(['1', 'x'], { type: 'array', items: { type: 'integer' } }), [1, 'x'])
  t.same(read('{"a":1}', { type: 'object' }), { a: 1 })
})

t.test('[validation/request-schema.1] parameters of a section, through references and alternatives', async t => {
  const section: Schema = {
    $ref: '#/$defs/Base',
    properties: { own: { type: 'string' } },
    required: ['own'],
    allOf: [{ properties: { more: {} }, required: ['more'] }],
    anyOf: [{ properties: { either: {} }, required: ['either'] }],
  }
  const definitions = new Map<string, Schema>([
    ['Base', { properties: { base: { type: 'integer' } }, required: ['base'] }],
  ])
  t.same(
    parametersOf(section, definitions).map(({ name, isRequired }) => [name, isRequired]),
    [
      ['own', true],
      ['base', true],
      ['more', true],
      ['either', false],
    ],
  )
  t.equal(allowsNull({}, NONE), true)
  t.equal(allowsNull({ type: 'object' }, NONE), false)
  t.equal(allowsNull({ type: ['object', 'null'] }, NONE), true)
  t.equal(allowsNull(false, NONE), false)
})
