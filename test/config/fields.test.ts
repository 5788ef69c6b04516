import t from 'tap'
import * as fields from '../../lib/config/fields.ts'
import { type Finding, showValue, toPlace, toWarning } from '../../lib/config/fields.ts'

function read<T>(field: fields.Field<T>, value: unknown, name = 'limit') {
  const findings: Finding[] = []
  const result = field.read(value, toPlace('a.json', name, findings))
  return { value: result, messages: findings.map(finding => finding.message), codes: findings.map(({ code }) => code) }
}

function readText<T>(field: fields.Field<T>, text: string) {
  const findings: Finding[] = []
  return { value: field.readText(text, toPlace(null, 'FN_X', findings)), messages: findings.map(f => f.message) }
}

t.test('[config/fields.1] a message names file, field, rule, value and type', async t => {
  const cases: [field: fields.Field<unknown>, value: unknown, message: string][] = [
    [fields.integer({ min: 1 }), 'four', 'a.json: limit must be an integer of at least 1, got "four" (string)'],
    [fields.integer({ min: 1, max: 5 }), 9, 'a.json: limit must be an integer from 1 to 5, got 9 (number)'],
    [fields.integer({ max: 5 }), 2.5, 'a.json: limit must be an integer of at most 5, got 2.5 (number)'],
    [fields.number(), true, 'a.json: limit must be a number, got true (boolean)'],
    [fields.boolean(), 'yes', 'a.json: limit must be true or false, got "yes" (string)'],
    [
      fields.string({ maxLength: 3 }),
      'four',
      'a.json: limit must be a text of 1 to 3 characters on one line, got "four" (string)',
    ],
    [fields.oneOf([429, 503]), 500, 'a.json: limit must be 429 or 503, got 500 (number)'],
    [fields.oneOf(['a', 'b', 'c']), null, 'a.json: limit must be one of a, b, c, got null'],
    [fields.list(fields.integer()), {}, 'a.json: limit must be a list, each item an integer, got an object'],
    [fields.object({}), [1, 2], 'a.json: limit must be an object, got an array of 2 items'],
    [fields.mapOf(fields.integer()), 'x', 'a.json: limit must be an object, got "x" (string)'],
    [fields.jsonObject(), 7, 'a.json: limit must be an object, got 7 (number)'],
  ]
  for (const [field, value, message] of cases)
    t.same(read(field, value), { value: undefined, messages: [message], codes: ['CONFIG_VALUE'] })
  t.same(readText(fields.integer({ min: 1 }), '0x10').messages, [
    'FN_X must be an integer of at least 1, got "0x10" (string)',
  ])
  t.match(read(fields.object({}), 1, '').messages, [/^a\.json must be an object/], 'the whole file')
  const findings: Finding[] = []
  fields.integer({ hint: 'Count them.' }).read('x', toPlace('a.json', 'n', findings))
  t.match(findings.map(toWarning), [{ code: 'CONFIG_VALUE', path: 'a.json', hint: 'Count them.' }])
})

t.test('[config/fields.2, config/fields.3] every problem is noted and what is right is kept', async t => {
  const shape = fields.object({
    max_workers: fields.integer({ min: 1 }),
    'force-url': fields.boolean(),
    names: fields.list(fields.string()),
    inner: fields.object({ deep_value: fields.integer() }),
  })
  const value = { max_workers: 'x', 'force-url': true, names: ['a', 5, 'b'], inner: { deep_value: {} }, other: 1 }
  const { value: kept, messages } = read(shape, value, '')
  t.same(kept, { forceUrl: true, names: ['a', 'b'], inner: {} })
  t.same(messages, [
    'a.json: max_workers must be an integer of at least 1, got "x" (string)',
    'a.json: names[1] must be a text of 1 to 1024 characters on one line, got 5 (number)',
    'a.json: inner.deep_value must be an integer, got an object',
    'a.json: other is not a known key',
  ])
})

t.test('[config/fields.5] an unknown key is a note with the nearest known key', async t => {
  const shape = fields.object({ name: fields.string() })
  t.same(read(shape, { nmae: 'x' }, ''), {
    value: {},
    messages: ['a.json: nmae is not a known key, did you mean name?'],
    codes: ['CONFIG_UNKNOWN_KEY'],
  })
  t.same(
    read(fields.object({}, { strict: true }), { x: 1 }, '').codes,
    ['CONFIG_VALUE'],
    'where only known names make sense',
  )
})

t.test('[config/fields.6] __proto__, constructor and toString are plain data', async t => {
  const text = '{"__proto__":5,"constructor":6,"toString":7}'
  const shape = fields.object({ name: fields.string() })
  t.same(read(shape, JSON.parse(text), '').codes, Array(3).fill('CONFIG_UNKNOWN_KEY'))
  const map = read(fields.mapOf(fields.integer()), JSON.parse(text)).value!
  t.same(Object.keys(map), ['__proto__', 'constructor', 'toString'])
  t.equal(Object.getPrototypeOf(map), null)
  t.same(Object.values(map), [5, 6, 7])
  t.equal(read(fields.oneOf(['a', 'b']), 'constructor').value, undefined)
})

t.test('[config/fields.7] null is the same as leaving the key out', async t => {
  const shape = fields.object({ name: fields.string(), count: fields.integer() })
  t.same(read(shape, { name: null, count: 1 }, ''), { value: { count: 1 }, messages: [], codes: [] })
  t.same({ ...read(fields.mapOf(fields.integer()), { a: null, b: 1 }).value }, { b: 1 })
})

t.test('[config/fields.8] aliases mean their field, and the first name wins over them', async t => {
  const shape = fields.object({ timezone: fields.string({ aliases: ['tz', 'zone'] }) })
  const cases: [value: object, kept: string, note: string[]][] = [
    [{ tz: 'a' }, 'a', []],
    [{ timezone: 'a', tz: 'b' }, 'a', ['a.json: timezone is also given as tz']],
    [{ tz: 'b', timezone: 'a' }, 'a', ['a.json: timezone is also given as tz']],
    [{ tz: 'a', zone: 'b' }, 'a', ['a.json: tz is also given as zone']],
  ]
  for (const [value, timezone, messages] of cases) {
    const result = read(shape, value, '')
    t.same(result.value, { timezone })
    t.same(result.messages, messages)
  }
})

t.test('[config/fields.9] numbers in JSON are numbers, numbers in text are digits', async t => {
  const count = fields.integer({ min: -5, max: 5 })
  for (const value of [-5, 0, 5, 1.0]) t.equal(read(count, value).value, value)
  for (const value of [6, -6, 0.5, '1', Number.NaN, Infinity, 2 ** 60, null, true, [], {}]) {
    t.equal(read(count, value).value, undefined, showValue(value))
  }
  for (const [text, value] of [
    ['5', 5],
    [' -5 ', -5],
    ['+3', 3],
  ] as const)
    t.equal(readText(count, text).value, value)
  for (const text of ['', '6', '1.0', '1e0', '0x1', '1_0', 'NaN', 'Infinity', '１', '1 2']) {
    t.equal(readText(count, text).value, undefined, text)
  }
  t.equal(readText(fields.number({ min: 0 }), '.5').value, 0.5)
  t.equal(readText(fields.number({ min: 0 }), '-0.5').value, undefined)
  t.equal(readText(fields.oneOf([429, 503]), '503').value, 503)
  t.equal(read(fields.oneOf([429, 503]), '503').value, undefined)
})

t.test('[config/fields.10] switches in text are eight words, in JSON true and false', async t => {
  for (const text of ['1', 'true', 'YES', ' on ']) t.equal(readText(fields.boolean(), text).value, true)
  for (const text of ['0', 'False', 'no', 'off']) t.equal(readText(fields.boolean(), text).value, false)
  for (const text of ['', 'y', '2', 'enabled', 'tru']) {
    const result = readText(fields.boolean(), text)
    t.equal(result.value, undefined)
    t.match(result.messages, [/one of 1, true, yes, on, 0, false, no, off/])
  }
  for (const value of [1, 0, 'true', null, []]) t.equal(read(fields.boolean(), value).value, undefined)
})

t.test('[config/fields.11] a list is an array or a text with commas, without repetitions', async t => {
  const names = fields.list(fields.string({ pattern: /^[a-z]+$/, rule: 'letters' }), { minItems: 1, maxItems: 3 })
  t.same(read(names, ['a', 'b', 'a']).value, ['a', 'b'])
  t.same(read(names, ' a, b,,a ').value, ['a', 'b'])
  t.same(readText(names, 'a,b').value, ['a', 'b'])
  t.same(read(names, ['a', 'B']), {
    value: ['a'],
    messages: ['a.json: limit[1] must be letters, got "B" (string)'],
    codes: ['CONFIG_VALUE'],
  })
  for (const value of [['B'], [], ['a', 'b', 'c', 'd'], ',', 5, { 0: 'a' }]) {
    const result = read(names, value)
    t.equal(result.value, undefined)
    t.same(result.codes, ['CONFIG_VALUE'], showValue(value))
  }
  const counts = fields.pairs(fields.object({ node: fields.integer({ min: 1 }), php: fields.integer() }), 'node=2')
  t.same(readText(counts, 'node=2, php=1').value, { node: 2, php: 1 })
  t.same(read(counts, { node: 2 }).value, { node: 2 })
  t.same(readText(counts, '{"node":3}').value, { node: 3 })
  for (const text of ['node', 'node=', '=2', 'node=1,node=2', '{"node":'])
    t.equal(readText(counts, text).value, undefined, text)
  t.match(readText(counts, 'node=two').messages, [/^FN_X\.node must be an integer of at least 1, got "two"/])
})

t.test('[config/fields.15] a clamped number and a key without effect are notes', async t => {
  const seconds = fields.number({ min: 5, max: 3600, clamp: true })
  t.same(read(seconds, 1), {
    value: 5,
    messages: ['a.json: limit is 1, 5 is used: it must be a number from 5 to 3600'],
    codes: ['CONFIG_CLAMPED'],
  })
  t.equal(read(seconds, 9999).value, 3600)
  t.equal(read(seconds, '9').value, undefined, 'only numbers are clamped')
  const shape = fields.object({}, { noEffect: { strict_fs: 'there is no jail' } })
  t.same(read(shape, { strict_fs: true }, ''), {
    value: {},
    messages: ['a.json: strict_fs has no effect: there is no jail'],
    codes: ['CONFIG_NO_EFFECT'],
  })
  const needed = fields.object({ directory: fields.string() }, { required: ['directory'] })
  t.same(read(needed, {}, 'assets').messages, ['a.json: assets.directory is missing'])
})

t.test('[config/fields.9] one-line texts, choices without case, and one of two types', async t => {
  const line = fields.string({ maxLength: 5 })
  for (const value of ['', 'sixsix', 'a\nb', 'a\u0000', 5, null])
    t.equal(read(line, value).value, undefined, showValue(value))
  t.equal(read(fields.string({ multiline: true }), 'a\nb').value, 'a\nb')
  t.equal(read(fields.oneOf(['Native'], { spellings: { plain: 'Native' } }), ' NATIVE ').value, 'Native')
  t.equal(read(fields.oneOf(['Native'], { spellings: { plain: 'Native' } }), 'plain').value, 'Native')
  const retry = fields.either(fields.boolean(), fields.object({ n: fields.integer() }))
  t.equal(read(retry, true).value, true)
  t.same(read(retry, { n: 1 }).value, { n: 1 })
  t.same(read(retry, 'x').messages, ['a.json: limit must be true or false, or an object, got "x" (string)'])
  t.same(readText(fields.json(), '{"a":[1]}').value, { a: [1] })
  t.match(readText(fields.jsonObject(), '{a}').messages, [/an object written as JSON, got "{a}"/])
})
