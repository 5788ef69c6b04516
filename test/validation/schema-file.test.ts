import t from 'tap'
import { parseSchemaFile, sectionsOf } from '../../lib/validation/schema-file.ts'

const parse = (value: unknown) => parseSchemaFile(JSON.stringify(value), 'a/schema.json')

t.test('[validation/schema-file.1] sections for all methods and for one', async t => {
  const { file, warnings } = parse({
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    params: { properties: { id: { type: 'integer' } } },
    body: { type: 'object' },
    methods: { POST: { query: true }, DELETE: { body: { type: 'string' } } },
    responses: { 200: { type: 'array' }, '4XX': true, default: {} },
  })
  t.same(warnings, [])
  t.same(Object.keys(sectionsOf(file!, 'GET')), ['params', 'responses'], 'a GET has no body')
  t.match(sectionsOf(file!, 'POST'), { params: {}, query: true, body: { type: 'object' } })
  t.match(sectionsOf(file!, 'DELETE'), { body: { type: 'string' } })
  t.same([...file!.common.responses!.keys()], ['200', '4XX', 'default'])
})

t.test('[validation/schema-file.2] pasted output of zod and pydantic refers to the section it stands in', async t => {
  const { file, warnings } = parse({
    $defs: { Shared: { type: 'boolean' } },
    body: {
      $id: 'x',
      $defs: { Item: { type: 'object', properties: { self: { $ref: '#' }, next: { $ref: '#/$defs/Item' } } } },
      type: 'object',
      properties: {
        item: { $ref: '#/$defs/Item' },
        shared: { $ref: '#/$defs/Shared' },
        odd: { $ref: '#/properties/a~1b%20c' },
        'a/b c': false,
      },
    },
    query: { $defs: { Item: { type: 'string' } }, properties: { q: { $ref: '#/$defs/Item' } } },
  })
  t.same(warnings, [])
  t.same(Object.fromEntries(file!.definitions), {
    Item: { type: 'string' },
    Item_2: { type: 'object', properties: { self: { $ref: '#/$defs/Self' }, next: { $ref: '#/$defs/Item_2' } } },
    Self: {
      type: 'object',
      properties: {
        item: { $ref: '#/$defs/Item_2' },
        shared: { $ref: '#/$defs/Shared' },
        odd: { $ref: '#/$defs/a_1b_20c' },
        'a/b c': false,
      },
    },
    Shared: { type: 'boolean' },
    a_1b_20c: false,
  })
  t.same(file!.common.query, { properties: { q: { $ref: '#/$defs/Item' } } })
})

t.test('[validation/schema-file.3] reports a mistake with its place and uses nothing of the file', async t => {
  const cases: [value: unknown, message: RegExp][] = [
    [[], /must be an object, got an array/],
    [{ type: 'object' }, /has none of params, query, headers, body/],
    [{ body: 3 }, /body must be a JSON Schema/],
    [{ body: { type: 'strin' } }, /body\.type must be one of string, .*got "strin"/],
    [{ body: { type: [] } }, /body\.type must be one of/],
    [{ body: { properties: { a: { items: 'x' } } } }, /body\.properties\.a\.items must be a JSON Schema/],
    [{ body: { properties: { a: { minimum: '1' } } } }, /body\.properties\.a\.minimum must be a number/],
    [{ body: { required: 'a' } }, /body\.required must be a list of distinct strings/],
    [{ body: { required: ['a', 'a'] } }, /body\.required must be/],
    [{ body: { minLength: -1 } }, /minLength must be an integer of at least 0/],
    [{ body: { anyOf: [] } }, /anyOf must be a list of at least one schema/],
    [{ body: { allOf: [{ pattern: '(' }] } }, /body\.allOf\.0\.pattern Invalid regular expression/],
    [{ body: { patternProperties: { '(a)\\1': true } } }, /has a backreference/],
    [{ body: { items: { $ref: 'http://x/y' } } }, /body\.items\.\$ref is "http:\/\/x\/y", which is not in this file/],
    [{ body: { items: { $ref: 'other.json#/a' } } }, /not in this file/],
    [{ body: { $ref: '#/$defs/No' } }, /is not the path of a schema in this file/],
    [{ body: { $ref: '#/constructor' } }, /is not the path of a schema in this file/],
    [{ body: { $ref: '#name' } }, /is not the path of a schema in this file/],
    [{ body: { $dynamicRef: '#x' } }, /\$dynamicRef is not supported/],
    [{ methods: { get: {} } }, /methods\.get is not a known method, did you mean GET/],
    [{ methods: { GET: 1 } }, /methods\.GET must be an object/],
    [{ responses: { ok: true } }, /responses\.ok is not a status/],
    [{ responses: [] }, /responses must be an object/],
    [{ security: ['token'] }, /security\[0\] must be a list of "bearer"/],
    [{ security: ['header:a b'] }, /security\[0\] must be/],
    [{ security: 'bearer' }, /security must be/],
  ]
  for (const [value, message] of cases) {
    const { file, warnings } = parse(value)
    t.equal(file, null, String(message))
    t.match(warnings[0], { path: 'a/schema.json', message, hint: /\w/ }, JSON.stringify(value))
    t.match(warnings[0]!.message, /^a\/schema\.json/)
  }
  const unknown = parse({ body: true, querry: {} })
  t.ok(unknown.file)
  t.match(unknown.warnings, [{ code: 'CONFIG_UNKNOWN_KEY', message: /did you mean query/ }])
  t.equal(parseSchemaFile('{', 'x').file, null)
})

t.test('[validation/schema-file.4] references without an end are refused, those into the value are not', async t => {
  const loops: [defs: Record<string, unknown>, name: string][] = [
    [{ A: { $ref: '#/$defs/A' } }, 'A'],
    [{ A: { $ref: '#/$defs/B' }, B: { allOf: [{ $ref: '#/$defs/A' }] } }, 'A'],
    [{ A: { not: { anyOf: [true, { $ref: '#/$defs/A' }] } } }, 'A'],
    [{ A: { if: { $ref: '#/$defs/A' } } }, 'A'],
    [{ A: { dependentSchemas: { x: { $ref: '#/$defs/A' } } } }, 'A'],
  ]
  for (const [$defs, name] of loops) {
    const { file, warnings } = parse({ $defs, body: { $ref: `#/$defs/${name}` } })
    t.equal(file, null, JSON.stringify($defs))
    t.match(warnings[0], { message: /leads back to itself without an end/ })
  }
  const tree = { properties: { kids: { items: { $ref: '#/$defs/Tree' } } } }
  t.ok(parse({ $defs: { Tree: tree }, body: { $ref: '#/$defs/Tree' } }).file)
  t.match(parse({ body: { $ref: '#' } }).warnings, [{ message: /leads back to itself/ }])
})

t.test('[validation/schema-file.5] a file is bounded in bytes, depth and schemas', async t => {
  t.match(parseSchemaFile(`{"body":"${'x'.repeat(2 ** 20)}"}`, 'x').warnings, [{ code: 'CONFIG_NOT_JSON' }])
  let deep: unknown = true
  for (let i = 0; i < 100; i++) deep = { items: deep }
  t.match(parse({ body: deep }).warnings, [{ code: 'CONFIG_NOT_JSON', message: /nested deeper/ }])
  const many = { body: { anyOf: Array.from({ length: 5001 }, () => true) } }
  t.match(parse(many).warnings, [{ message: /more than 5000 schemas/ }])
  t.ok(parse({ body: { anyOf: Array.from({ length: 4000 }, () => true) } }).file)
})

t.test('[validation/schema-file.6] names that mean something to objects', async t => {
  const text = '{ "body": { "properties": { "constructor": { "type": "integer" }, "toString": true } } }'
  const { file } = parseSchemaFile(text, 'x')
  t.same(Object.keys((file!.common.body as { properties: object }).properties), ['constructor', 'toString'])
  const refused = parseSchemaFile('{ "body": { "properties": { "__proto__": { "type": "string" } } } }', 'x')
  t.match(refused, { file: null, warnings: [{ message: /body\.properties\.__proto__ cannot be used as a name/ }] })
})

t.test('[validation/schema-file.7] how callers prove who they are', async t => {
  const { file } = parse({ security: ['bearer', 'basic', 'none', 'header:X-Api-Key', 'cookie:sid', 'query:key'] })
  t.same(file!.security, [
    { kind: 'bearer' },
    { kind: 'basic' },
    { kind: 'none' },
    { kind: 'apiKey', place: 'header', name: 'X-Api-Key' },
    { kind: 'apiKey', place: 'cookie', name: 'sid' },
    { kind: 'apiKey', place: 'query', name: 'key' },
  ])
})
