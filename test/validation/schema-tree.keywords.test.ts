import t from 'tap'
import { type Finding, toPlace } from '../../lib/config/fields.ts'
import { checkKeywords } from '../../lib/validation/schema-tree.ts'

function check(schema: Record<string, unknown>): string[] {
  const findings: Finding[] = []
  checkKeywords(schema, toPlace('x', 'body', findings))
  return findings.map(({ name }) => name)
}

t.test('[validation/schema-file.3] values that each keyword accepts', async t => {
  const cases: [keyword: string, right: unknown[], wrong: unknown[]][] = [
    ['type', ['string', ['integer', 'null']], ['text', [], ['string', 'string'], null, 1]],
    ['minimum', [0, -1.5], ['1', null]],
    ['multipleOf', [0.1], [0, -1, '1']],
    ['maxLength', [0, 5], [-1, 1.5, '1']],
    ['title', [''], [1, null]],
    ['uniqueItems', [true, false], [1, 'true']],
    ['enum', [[], [1, {}]], [{}, 'a']],
    ['oneOf', [[true]], [[], {}]],
    ['required', [[], ['a']], ['a', [1], ['a', 'a']]],
    ['properties', [{}], [[], true]],
    ['dependentRequired', [{ a: ['b'] }], [{ a: 'b' }, []]],
    ['pattern', ['^a$'], ['(', 1, '(a)\\1']],
    ['x-anything', [1, {}], []],
  ]
  for (const [keyword, right, wrong] of cases) {
    for (const value of right) t.same(check({ [keyword]: value }), [], `${keyword} ${JSON.stringify(value)}`)
    for (const value of wrong)
      t.same(check({ [keyword]: value }), [`body.${keyword}`], `${keyword} ${JSON.stringify(value)}`)
  }
  t.same(check({ patternProperties: { '(?<=a)b': true } }), ['body.patternProperties."(?<=a)b"'])
})

t.test(
  '[validation/schema-file.3] a slip is noted, words of others are not, and what went out of use is refused',
  async t => {
    const findings: Finding[] = []
    const schema = { minimun: 1, addtionalProperties: false, example: 1, 'x-y': 1, nullable: true, readonly: true }
    checkKeywords(schema, toPlace('x', 'body', findings))
    t.match(findings, [
      { code: 'CONFIG_UNKNOWN_KEY', message: /body\.minimun is not a known keyword, did you mean minimum/ },
      { code: 'CONFIG_UNKNOWN_KEY', message: /did you mean additionalProperties/ },
      { code: 'CONFIG_UNKNOWN_KEY', message: /did you mean readOnly/ },
    ])
    t.equal(findings.length, 3)
    t.same(check({ dependencies: {} }), ['body.dependencies'])
    t.same(check({ additionalItems: false }), ['body.additionalItems'])
  },
)
