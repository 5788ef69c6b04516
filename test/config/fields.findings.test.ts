import t from 'tap'
import * as fields from '../../lib/config/fields.ts'
import {
  editDistance,
  type Finding,
  itemOf,
  keyOf,
  nearest,
  report,
  reportUnknownKey,
  reportWrong,
  showText,
  showValue,
  toPlace,
  toWarnings,
} from '../../lib/config/fields.ts'

function read<T>(field: fields.Field<T>, value: unknown, name = 'limit') {
  const findings: Finding[] = []
  const result = field.read(value, toPlace('a.json', name, findings))
  return { value: result, messages: findings.map(finding => finding.message), codes: findings.map(({ code }) => code) }
}

t.test('[config/fields.4] a shown value stays on one line, short, and hides secrets', async t => {
  const cases: [value: unknown, shown: string][] = [
    ['a\nb\u001b[31m', '"a\\u000ab\\u001b[31m" (string)'],
    ['\u202eevil\u2028\u0085', '"\\u202eevil\\u2028\\u0085" (string)'],
    ['x'.repeat(100), `"${'x'.repeat(60)}..." (string)`],
    [{ a: 1 }, 'an object'],
    [[1], 'an array of 1 item'],
    [Number.NaN, 'NaN (number)'],
    [undefined, 'undefined (undefined)'],
  ]
  for (const [value, shown] of cases) t.equal(showValue(value), shown)
  t.equal(showValue('hunter2', true), 'a hidden value (string)')
  const long = read(fields.object({}), { ['k\n'.repeat(200)]: 1 }, '')
  t.notMatch(long.messages[0], /\n/)
  t.ok(long.messages[0]!.length < 400)
})

t.test('[config/fields.18] a file full of mistakes gives a bounded list', async t => {
  const shape = fields.mapOf(fields.integer())
  const findings: Finding[] = []
  const value = Object.fromEntries(Array.from({ length: 150 }, (_, index) => [`key${index}`, 'x']))
  shape.read(value, toPlace('a.json', '', findings))
  fields.object({ name: fields.string() }).read({ ...value, nmae: 1 }, toPlace('a.json', '', findings))
  const warnings = toWarnings(findings)
  t.equal(warnings.length, 202)
  t.match(warnings[100], { code: 'CONFIG_VALUE', message: 'a.json: 50 more like these are not shown' })
  t.match(warnings[201], { code: 'CONFIG_UNKNOWN_KEY', message: 'a.json: 51 more like these are not shown' })
  t.equal(toWarnings(findings.slice(0, 100)).length, 100)
})

t.test('[config/fields.5] which known word a wrong one most likely stands for', async t => {
  const known = ['timeout_ms', 'max_workers', 'force-url', 'name', 'cors']
  const cases: [word: string, near: string | null][] = [
    ['timeout', 'timeout_ms'],
    ['timeoutMs', 'timeout_ms'],
    ['timeuot_ms', 'timeout_ms'],
    ['MAX-WORKERS', 'max_workers'],
    ['max_worker', 'max_workers'],
    ['forceurl', 'force-url'],
    ['nmae', 'name'],
    ['crs', 'cors'],
    ['x', null],
    ['constructor', null],
    ['n'.repeat(5000), null],
  ]
  for (const [word, near] of cases) t.equal(nearest(word, known), near, word.slice(0, 20))
  t.equal(editDistance('kitten', 'sitting'), 3)
  t.equal(editDistance('ab', 'ba'), 1, 'a swap is one step')
})

t.test('[config/fields.5] a foreign key is a note, a problem where only known names make sense', async t => {
  const findings: Finding[] = []
  const at = toPlace('a.json', '', findings)
  reportUnknownKey(keyOf(at, 'tmeout'), 'tmeout', ['timeout'])
  reportUnknownKey(keyOf(at, 'x'), 'x', ['timeout'], 'program', true)
  t.match(findings, [
    {
      code: 'CONFIG_UNKNOWN_KEY',
      message: 'a.json: tmeout is not a known key, did you mean timeout?',
      hint: 'Write timeout.',
    },
    {
      code: 'CONFIG_VALUE',
      message: 'a.json: x is not a known program',
      hint: 'Remove it, or see the table of programs.',
    },
  ])
})

t.test('[config/fields.1] a place names file, keys and items; odd keys are quoted', async t => {
  const findings: Finding[] = []
  const whole = toPlace('a.json', '', findings)
  t.equal(keyOf(keyOf(whole, 'a'), 'b-c/$d').name, 'a.b-c/$d')
  t.equal(itemOf(keyOf(whole, 'list'), 3).name, 'list[3]')
  t.equal(keyOf(whole, 'a key').name, '"a key"')
  t.equal(keyOf(whole, 'x'.repeat(70)).name, `"${'x'.repeat(60)}..."`)
  reportWrong(toPlace(null, 'FN_X', findings, true), 'a number', 'hunter2')
  report(whole, 'CONFIG_CLAMPED', 'is 5', 'Make it 4.')
  t.match(findings, [
    {
      file: null,
      message: 'FN_X must be a number, got a hidden value (string)',
      hint: 'Make it a number, or leave it out.',
    },
    { file: 'a.json', name: '', message: 'a.json is 5', hint: 'Make it 4.', rule: '', value: '' },
  ])
  t.equal(showText('plain'), 'plain')
})
