import t from 'tap'
import {
  mergeDeclared,
  NO_OUTER_ENV,
  parseFunctionEnvValue,
  toDeclared,
  toFunctionDefaults,
  toFunctionEnv,
} from '../../lib/config/function-env.ts'

const declare = (value: unknown) => parseFunctionEnvValue(value, 'f').value.env

t.test('[config/function-env.9] which source of a value wins', async t => {
  const sources = {
    project: { A: 'project', B: 'project', C: 'project', D: 'project' },
    dotenv: { B: 'dotenv', C: 'dotenv', D: 'dotenv', E: 'dotenv' },
    json: { C: 'json', D: 'json', F: 'json' },
    process: { D: 'process', E: 'process', OTHER: 'process' },
  }
  const declared = mergeDeclared(toDeclared(sources.dotenv), declare(sources.json))
  const env = toFunctionEnv(declared, { defaults: sources.project, process: sources.process })
  t.same(Object.fromEntries(Object.entries(env).map(([key, { value }]) => [key, value])), {
    A: 'project',
    B: 'dotenv',
    C: 'json',
    D: 'process',
    E: 'process',
    F: 'json',
  })
  t.ok(Object.isFrozen(env))
  t.same({ ...toFunctionEnv({}, NO_OUTER_ENV) }, {})
})

t.test('[config/function-env.10] what the process cannot replace', async t => {
  const names = ['FN_ADMIN_TOKEN', 'FN_ANY', 'PORT', 'GO_BUILD_TIMEOUT_S', 'PATH', 'HOME', 'TZ', 'LC_ALL', 'BLANK']
  const process = Object.fromEntries(names.map(name => [name, name === 'BLANK' ? ' ' : 'host']))
  const declared = declare(Object.fromEntries([...names, 'toString'].map(name => [name, 'own'])))
  const env = toFunctionEnv(declared, { defaults: {}, process })
  for (const name of [...names, 'toString']) t.equal(env[name]?.value, 'own', name)
})

t.test('[config/function-env.10] variables that steer the gateway are no values of functions', async t => {
  const values = { FN_ADMIN_TOKEN: 's', FN_NEW: 's', PORT: '1', FN_NODE_BIN: 'x', DATABASE_URL: 'd', TZ: 'UTC' }
  t.same(toFunctionDefaults(values), { DATABASE_URL: 'd', TZ: 'UTC' })
})

t.test('[config/function-env.2] null withholds a key that another source has', async t => {
  const declared = mergeDeclared(toDeclared({ A: '1', B: '1' }), declare({ A: null, C: { value: null } }))
  const env = toFunctionEnv(declared, { defaults: { A: '2', C: '2', D: '2' }, process: { A: '3', C: '3' } })
  t.same(Object.keys(env).sort(), ['B', 'D'])
})

t.test('[config/function-env.3, config/function-env.6] marks stay with the key, keys are plain data', async t => {
  const declared = mergeDeclared(
    toDeclared({ MODE: 'a', API_KEY: 'a' }),
    declare({ MODE: { value: 'b', is_secret: true }, PLAIN_TOKEN: { value: 'c', is_secret: false } }),
  )
  const outer = { defaults: { DB_PASSWORD: 'd' }, process: { MODE: 'host', PLAIN_TOKEN: 'host' } }
  t.same(
    { ...toFunctionEnv(declared, outer) },
    {
      MODE: { value: 'host', isSecret: true },
      API_KEY: { value: 'a', isSecret: true },
      PLAIN_TOKEN: { value: 'host', isSecret: false },
      DB_PASSWORD: { value: 'd', isSecret: true },
    },
  )
  const odd = toFunctionEnv(declare(JSON.parse('{"__proto__":"a","constructor":"b"}')), NO_OUTER_ENV)
  t.same(Object.keys(odd), ['__proto__', 'constructor'])
  t.equal(Object.getPrototypeOf(odd), null)
})
