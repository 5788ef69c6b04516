import t from 'tap'
import { SchemaCompiler, StepCounter } from '../../lib/validation/schema-compiler.ts'
import type { Schema } from '../../lib/validation/schema-tree.ts'

const compiler = await SchemaCompiler.load()
const NONE = new StepCounter(new Map())

t.test('[validation/request-schema.9] names field, rule and value of a difference', async t => {
  const cases: [schema: Schema, value: unknown, message: string][] = [
    [{ type: 'string' }, 1, 'v must be of type string, got 1 (number)'],
    [{ type: ['string', 'null'] }, 1, 'v must be of type string or null, got 1 (number)'],
    [{ anyOf: [{ type: 'string' }, { type: 'null' }] }, 1, 'v must be of type string or null, got 1 (number)'],
    [
      { items: { properties: { 'a b': { maxItems: 1 } } } },
      [{ 'a b': [1, 2] }],
      'v[0]."a b" must be at most 1 item long, got an array of 2 items',
    ],
    [{ properties: { 'a/b~c': { const: 1 } } }, { 'a/b~c': 2 }, 'v."a/b~c" must be 1, got 2 (number)'],
    [{ required: ['x'] }, {}, 'v.x is required'],
    [
      { dependentRequired: { a: ['b'] } },
      { a: 1 },
      'v must be valid against its schema (dependentRequired: must have property b when property a is present), got an object',
    ],
    [{ additionalProperties: false }, { y: 1 }, 'v.y is not known'],
    [{ unevaluatedProperties: false }, { y: 1 }, 'v.y is not known'],
    [{ propertyNames: { maxLength: 1 } }, { long: 1 }, 'v.long is not an allowed name'],
    [{ format: 'date' }, 'x', 'v must be a valid date, got "x" (string)'],
    [{ pattern: '^a' }, 'x', 'v must be a string that matches ^a, got "x" (string)'],
    [{ multipleOf: 2 }, 3, 'v must be a multiple of 2, got 3 (number)'],
    [{ exclusiveMaximum: 2 }, 2, 'v must be < 2, got 2 (number)'],
    [{ uniqueItems: true }, [1, 1], 'v must be a list without duplicates, got an array of 2 items'],
    [{ properties: { a: false } }, { a: 1 }, 'v.a is not allowed'],
    [false, 1, 'v is not allowed'],
  ]
  for (const [schema, value, message] of cases) {
    const found = compiler.compile(schema, NONE, 'v')(value)
    t.equal(found === null ? null : `${found.name} ${found.text}`, message)
  }
  t.equal(compiler.compile({ format: 'of-my-own', type: 'string' }, NONE, 'v')('x'), null)
  t.match(compiler.compile({ oneOf: [true, true] }, NONE, 'v')(1)?.text, /valid against its schema \(oneOf/)
  t.match(compiler.compile({ type: 'string' }, NONE, 'v', true)(5)?.text, /got a hidden value \(number\)/)
})

t.test('[validation/request-schema.6] items are compared as values, in time that grows with their number', async t => {
  const unique = compiler.compile({ uniqueItems: true }, NONE, 'v')
  t.equal(unique([1, '1', true, 'true', null, [1], ['1'], { a: 1 }, { a: '1' }]), null)
  t.ok(unique([{ a: [1, { b: 2 }] }, { a: [1, { b: 2 }] }]))
  t.ok(unique([0, -0]))
  t.match(unique([Array.from({ length: 2_000_000 }, () => 12345)]), { text: /too large/ })
})
