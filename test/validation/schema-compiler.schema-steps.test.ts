import t from 'tap'
import { parseSchemaFile } from '../../lib/validation/schema-file.ts'
import { MAX_STEPS, SchemaCompiler, StepCounter } from '../../lib/validation/schema-compiler.ts'
import type { Schema } from '../../lib/validation/schema-tree.ts'

const compiler = await SchemaCompiler.load()
const list = <T>(count: number, make: (index: number) => T): T[] => Array.from({ length: count }, (_, i) => make(i))
const toMap = <T>(count: number, make: (index: number) => T, name = 'n'): Record<string, T> =>
  Object.fromEntries(list(count, i => [`${name}${i}`, make(i)]))
const toKind = (i: number): Schema => ({
  type: 'object',
  properties: { kind: { const: `k${i}` } },
  required: ['kind'],
})
const toReference = (i: number): Schema => ({ $ref: `#/$defs/K${i}` })
const toKinds = (count: number): Map<string, Schema> => new Map(list(count, i => [`K${i}`, toKind(i)]))
const last = (count: number, kinds: number): unknown => list(count, () => ({ kind: `k${kinds - 1}` }))
const NAMES = toMap(50_000, () => 1)
const NUMBERS = list(300_000, () => 1)

t.test('[validation/request-schema.6] a check that takes too many steps is given up', async t => {
  const cases: [name: string, schema: Schema, value: unknown, definitions?: Map<string, Schema>][] = [
    ['a union of 250 kinds', { items: { oneOf: list(250, toKind) } }, last(50_000, 250)],
    ['a union of 1,000 kinds', { items: { anyOf: list(1000, toKind) } }, last(50_000, 1000)],
    ['250 kinds whose type differs', { items: { anyOf: [...list(250, toKind), { type: 'number' }] } }, NUMBERS],
    ['250 references', { items: { anyOf: list(250, toReference) } }, last(50_000, 250), toKinds(250)],
    ['26 patterns of names', { patternProperties: toMap(26, () => ({ type: 'number' }), '^a') }, NAMES],
    ['lengths of a text', { anyOf: list(1000, i => ({ maxLength: i + 1 })) }, 'é'.repeat(500_000)],
    ['formats of a text', { anyOf: list(1000, () => ({ format: 'uri', maxLength: 1 })) }, 'é'.repeat(500_000)],
    ['5,000 values', { items: { enum: list(5000, i => `v${i}`) } }, list(50_000, () => 'v4999')],
    ['numbers of names', { anyOf: list(1000, i => ({ minProperties: 60_000 + i })) }, NAMES],
    ['names as values', { anyOf: list(1000, () => ({ propertyNames: { not: { const: 'n49999' } } })) }, NAMES],
    ['items of branches', { anyOf: list(1000, () => ({ contains: { type: 'string' } })) }, NUMBERS],
    ['10,000 required names', { items: { required: list(10_000, i => `n${i}`) } }, list(1000, () => NAMES)],
    [
      'names that no keyword looked at',
      { anyOf: list(1000, () => ({ patternProperties: { '^n': true } })), unevaluatedProperties: false },
      NAMES,
    ],
  ]
  for (const [name, schema, value, definitions = new Map()] of cases)
    t.match(compiler.compile(schema, new StepCounter(definitions), 'v')(value), { text: /too large/ }, name)
})

t.test('[validation/request-schema.6] large bodies pass schemas without many branches', async t => {
  const cases: [name: string, schema: Schema, value: unknown][] = [
    ['half a million numbers', { items: { type: 'integer', minimum: 0 } }, list(500_000, () => 1)],
    [
      'objects with few fields',
      {
        items: { type: 'object', properties: { a: { type: 'number' } }, required: ['a'], additionalProperties: false },
      },
      list(130_000, () => ({ a: 1 })),
    ],
    ['a text', { type: 'string', minLength: 1, maxLength: 2_000_000 }, 'a'.repeat(1_000_000)],
    ['a union of 20 kinds', { items: { oneOf: list(20, toKind) } }, last(5000, 20)],
    ['a union of 250 kinds', { items: { oneOf: list(250, toKind) } }, last(100, 250)],
  ]
  for (const [name, schema, value] of cases)
    t.equal(compiler.compile(schema, new StepCounter(new Map()), 'v')(value), null, name)
})

t.test('[validation/schema-file.9] refuses a schema of which no value can be checked in time', async t => {
  const doubling = Object.fromEntries(
    list(31, i => [`D${i}`, i === 30 ? { type: 'object' } : { allOf: list(2, () => ({ $ref: `#/$defs/D${i + 1}` })) }]),
  )
  const { file, warnings } = parseSchemaFile(
    JSON.stringify({ body: { $ref: '#/$defs/D0' }, $defs: doubling }),
    'x/schema.json',
  )
  t.equal(file, null)
  t.match(warnings, [
    {
      code: 'CONFIG_VALUE',
      path: 'x/schema.json',
      message: /body takes .* steps for the smallest value, more than the 5,000,000/,
    },
  ])
  const few = parseSchemaFile(JSON.stringify({ body: { oneOf: list(1000, toKind) } }), 'x/schema.json')
  t.not(few.file, null)
  const counter = new StepCounter(new Map(Object.entries({ A: { $ref: '#/$defs/A' } })))
  t.ok(counter.leastOf(counter.count({ $ref: '#/$defs/A' })) < MAX_STEPS, 'a loop is not followed')
  t.same([...counter.loops], ['A'])
  const leading = new StepCounter(new Map(Object.entries({ A: { $ref: '#/$defs/B' }, B: { $ref: '#/$defs/B' } })))
  for (const name of ['A', 'B', 'A']) leading.leastOfName(name)
  t.same([...leading.loops], ['B'], 'one that leads to a loop is not one')
})

t.test('[validation/schema-file.5] names in dependentRequired count as schemas', async t => {
  const body = { dependentRequired: toMap(100, () => list(60, i => `x${i}`)) }
  const { warnings } = parseSchemaFile(JSON.stringify({ body }), 'x/schema.json')
  t.match(warnings, [{ message: /more than 5000 schemas in schemas and names in dependentRequired/ }])
})

t.test('[validation/request-schema.6] a schema too large for one function is refused with what to do', async t => {
  const schema = { properties: toMap(4500, () => ({ type: 'number' })) }
  t.throws(() => compiler.compile(schema, new StepCounter(new Map()), 'v'), /too large for one function: move parts/)
})
