import t from 'tap'
import { HIDDEN } from '../../lib/core/text.ts'
import {
  isEnvKey,
  isSecretName,
  maskEnv,
  NO_OUTER_ENV,
  parseFunctionEnv,
  parseFunctionEnvValue,
  toFunctionEnv,
} from '../../lib/config/function-env.ts'

const FILE = 'users/fn.env.json'
const parse = (given: unknown) => {
  const { value, warnings: problems } = parseFunctionEnvValue(given, FILE)
  return { ...value, problems }
}
const SECRET = 'hunter2-planted'

t.test('[config/function-env.1, config/function-env.2] scalars become texts, null is left out', async t => {
  const cases: [name: string, given: unknown, value: string | undefined][] = [
    ['text', 'a', 'a'],
    ['empty text', '', ''],
    ['several lines', 'a\nb', 'a\nb'],
    ['number', 1.5, '1.5'],
    ['boolean', false, 'false'],
    ['object form', { value: 'x', is_secret: false }, 'x'],
    ['number in object form', { value: 5 }, '5'],
    ['null', null, undefined],
    ['null in object form', { value: null, is_secret: true }, undefined],
  ]
  for (const [name, given, value] of cases) {
    const { env, problems } = parse({ KEY: given })
    t.same(problems, [], name)
    t.equal(env.KEY?.value, value, name)
  }
  t.same(
    { ...parseFunctionEnv('\uFEFF{"$schema":"x","A":"b"}', FILE).value.env },
    { A: { value: 'b', isSecret: false } },
  )
})

t.test('[config/function-env.3] which values are secret', async t => {
  const names = 'MY_SECRET Token PASSWORD passwd DB_PWD API_KEY apikey PRIVATE_KEY AUTH_URL aws_credentials'.split(' ')
  for (const name of names) t.ok(isSecretName(name), name)
  for (const name of ['KEY', 'URL', 'PASS', 'MODE']) t.notOk(isSecretName(name), name)
  const cases: [key: string, given: unknown, isSecret: boolean][] = [
    ['MODE', 'x', false],
    ['API_KEY', 'x', true],
    ['API_KEY', { value: 'x', is_secret: false }, false],
    ['MODE', { value: 'x', is_secret: true }, true],
    ['API_KEY', { value: 'x' }, true],
    ['MODE', { value: 'x' }, false],
    ['MODE', { value: 'x', is_secret: 'no' }, true],
  ]
  for (const [key, given, isSecret] of cases)
    t.equal(parse({ [key]: given }).env[key]?.isSecret, isSecret, JSON.stringify(given))
})

t.test(
  '[config/function-env.4, config/function-env.5] a wrong entry is left out, and no message holds a value',
  async t => {
    const wrong: [name: string, value: unknown, message: RegExp, left: number][] = [
      ['list', { KEY: [SECRET] }, /KEY must be a text, number, boolean or \{ value, is_secret \}, got an array/, 0],
      ['object without value', { KEY: { is_secret: true } }, /KEY must be/, 0],
      ['object in object', { KEY: { value: { a: SECRET } } }, /KEY\.value must be/, 0],
      ['NUL', { KEY: `${SECRET}\0` }, /without NUL characters, got a hidden value \(string\)/, 0],
      [
        'flag',
        { KEY: { value: SECRET, is_secret: SECRET } },
        /KEY\.is_secret must be true or false, got a hidden value/,
        1,
      ],
      [
        'unknown key',
        { KEY: { value: SECRET, isSecret: true } },
        /KEY\.isSecret is not a known key, did you mean is_secret/,
        1,
      ],
      ['key with =', { 'A=B': SECRET }, /"A=B" must be under a key/, 0],
      ['empty key', { '': SECRET }, /must be under a key/, 0],
      ['no object', [SECRET], /fn\.env\.json must be an object/, 0],
      ['a text', SECRET, /must be an object/, 0],
    ]
    for (const [name, value, message, left] of wrong) {
      const { env, problems } = parse(value)
      t.equal(problems.length, 1, name)
      t.match(problems[0]!.message, message, name)
      t.equal(Object.keys(env).length, left, name)
      t.notMatch(JSON.stringify(problems), SECRET, name)
    }
    const broken = parseFunctionEnv(`{"API_KEY": "${SECRET}", x}`, FILE)
    t.same(Object.keys(broken.value.env), [])
    t.match(broken.warnings, [{ code: 'CONFIG_NOT_JSON', path: FILE }])
    t.notMatch(JSON.stringify(broken.warnings), SECRET)
    t.same(parse({ A: [1], B: 'ok', C: {} }).problems.length, 2, 'every entry is judged alone')
  },
)

t.test('[config/function-env.6] keys are plain data', async t => {
  const { value, warnings } = parseFunctionEnv('{"__proto__":"a","constructor":"b"}', FILE)
  const { env } = value
  t.same(warnings, [])
  t.same(Object.keys(env), ['__proto__', 'constructor'])
  t.equal(Object.getPrototypeOf(env), null)
  t.same(Object.keys(maskEnv(toFunctionEnv(env, NO_OUTER_ENV))), ['__proto__', 'constructor'])
  for (const key of ['A', 'a.b', 'ü', 'x'.repeat(256)]) t.ok(isEnvKey(key), key)
  for (const key of ['', 'A=B', 'A\0', 'x'.repeat(257)]) t.notOk(isEnvKey(key), key)
})

t.test('[config/function-env.7] a shown environment hides the values of secrets', async t => {
  const { env } = parse({ MODE: 'dev', API_KEY: SECRET, OTHER: { value: SECRET, is_secret: true } })
  t.same(
    { ...maskEnv(toFunctionEnv(env, NO_OUTER_ENV)) },
    {
      MODE: { is_secret: false, value: 'dev' },
      API_KEY: { is_secret: true, value: HIDDEN },
      OTHER: { is_secret: true, value: '<hidden>' },
    },
  )
})
