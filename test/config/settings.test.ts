import t from 'tap'
import { BINARY_ENV, SETTING_OPTIONS, type SettingOption } from '../../lib/config/setting-options.ts'
import { resolveSettings, type SettingInputs } from '../../lib/config/settings.ts'

const CWD = '/project/work'
const resolve = (inputs: Omit<SettingInputs, 'cwd'>) => resolveSettings({ cwd: CWD, ...inputs })
const optionOf = (name: string) => (SETTING_OPTIONS as unknown as Record<string, SettingOption<unknown>>)[name]!

t.test('[config/settings.4] all problems come back at once, each with source, name, rule and value', async t => {
  const { problems, settings } = resolve({
    flags: { host: 'a b' },
    env: { FN_PORT: '80x', FN_NAMESPACE_DEPTH: '9', FN_RUNTIMES: 'node,ruby' },
    file: { 'log-level': 'loud', 'force-url': 1 },
    options: { forceUrl: 'x' },
  })
  t.same(
    problems.map(({ source, name, rule, value }) => ({ source, name, rule, value })),
    [
      { source: 'flag', name: '--host', rule: 'an IP address or host name', value: '"a b" (string)' },
      { source: 'env', name: 'FN_PORT', rule: 'an integer from 0 to 65535', value: '"80x" (string)' },
      { source: 'file', name: 'log-level', rule: 'one of debug, info, warn, error, silent', value: '"loud" (string)' },
      { source: 'env', name: 'FN_NAMESPACE_DEPTH', rule: 'an integer from 1 to 5', value: '"9" (string)' },
      { source: 'option', name: 'options.forceUrl', rule: 'true or false', value: '"x" (string)' },
      {
        source: 'env',
        name: 'FN_RUNTIMES[1]',
        rule: 'one of python, node, php, lua, go, rust',
        value: '"ruby" (string)',
      },
    ],
  )
  t.equal(problems[1]!.message, 'FN_PORT must be an integer from 0 to 65535, got "80x" (string)')
  t.same(settings.runtimes, ['python', 'node', 'php', 'lua'], 'nothing of a wrong value is used')
})

t.test('[config/settings.5] option, flag, environment, file, default', async t => {
  const all = {
    options: { port: 1 },
    flags: { port: '2' },
    env: { FN_PORT: '3', FN_HOST_PORT: '4', PORT: '5' },
    file: { port: 6 },
  }
  const cases: [inputs: Omit<SettingInputs, 'cwd'>, port: number, source: object][] = [
    [all, 1, { source: 'option', name: 'options.port' }],
    [{ ...all, options: { port: null } }, 2, { source: 'flag', name: '--port' }],
    [{ env: all.env, file: all.file }, 3, { source: 'env', name: 'FN_PORT' }],
    [{ env: { FN_HOST_PORT: '4', PORT: '5' } }, 4, { source: 'env', name: 'FN_HOST_PORT' }],
    [{ env: { PORT: '5' }, file: all.file }, 5, { source: 'env', name: 'PORT' }],
    [{ env: { FN_PORT: ' ', PORT: '' }, file: all.file }, 6, { source: 'file', name: 'fngw.json: port' }],
    [{ defaults: { port: 7 } }, 7, { source: 'default', name: 'default' }],
    [{}, 8080, { source: 'default', name: 'default' }],
  ]
  for (const [inputs, port, source] of cases) {
    const { settings, sources, problems } = resolve(inputs)
    t.equal(settings.port, port)
    t.same(sources.port, source)
    t.equal(settings.portExplicit, port < 7)
    t.same(problems, [])
  }
  t.match(resolve({ env: all.env }).warnings, [
    { message: 'FN_HOST_PORT is not used, because FN_PORT is given' },
    { message: 'PORT is not used, because FN_PORT is given' },
  ])
  t.same(resolve({ env: { FN_PORT: '3', PORT: '3' } }).warnings, [], 'the same value twice is no news')
})

t.test('[config/settings.6] a wrong value that a stronger source overrides is a warning', async t => {
  const { settings, problems, warnings } = resolve({ flags: { port: '90' }, env: { FN_PORT: 'x' }, file: { port: [] } })
  t.equal(settings.port, 90)
  t.same(problems, [])
  t.match(warnings, [
    { message: /^FN_PORT must be .* got "x" \(string\); not used, because --port is given$/ },
    { message: /^fngw\.json: port must be .*; not used, because --port is given$/ },
  ])
})

t.test('[config/settings.7] only the two scheduler times are clamped, with a warning', async t => {
  const cases: [variable: string, text: string, name: string, value: number][] = [
    ['FN_SCHEDULER_INTERVAL', '0.2', 'schedulerIntervalSeconds', 1],
    ['FN_SCHEDULER_INTERVAL', '-7', 'schedulerIntervalSeconds', 1],
    ['FN_SCHEDULER_PERSIST_INTERVAL', '1', 'schedulerPersistIntervalSeconds', 5],
    ['FN_SCHEDULER_PERSIST_INTERVAL', '99999', 'schedulerPersistIntervalSeconds', 3600],
  ]
  for (const [variable, text, name, value] of cases) {
    const { settings, problems, warnings } = resolve({ env: { [variable]: text } })
    t.same(problems, [], `${variable}=${text}`)
    t.equal((settings as unknown as Record<string, unknown>)[name], value)
    t.match(warnings, [{ code: 'CONFIG_CLAMPED', message: new RegExp(`^${variable} is .*, ${value} is used`) }])
  }
})

t.test('[config/settings.8] names that nothing reads are warnings with the nearest name', async t => {
  const { warnings, problems } = resolve({
    env: {
      FN_PROT: '1',
      FN_RUNTIME: 'node',
      FN_STRICT_FS: '1',
      FN_ZZZZZZZZ: '1',
      HOME: '/root',
      GOPATH: '/go',
      FN_GO_BIN: 'go',
    },
    file: { $schema: 'x', prot: 1, 'function-dir': 'x', functionsDir: 'x', __proto: 1, 'swagger-include-admin': true },
    options: { prot: 1, clok: null, nonsense: 1 },
  })
  t.same(
    problems.map(({ source, message }) => [source, message]),
    [
      ['option', 'options.prot is not a known option, did you mean port?'],
      ['option', 'options.clok is not a known option, did you mean clock?'],
      ['option', 'options.nonsense is not a known option'],
    ],
  )
  t.same(
    warnings.map(({ code, message }) => `${code} ${message}`),
    [
      'CONFIG_UNKNOWN_KEY FN_PROT is not a known variable, did you mean FN_PORT?',
      'CONFIG_UNKNOWN_KEY FN_RUNTIME is not a known variable, did you mean FN_RUNTIMES?',
      'CONFIG_NO_EFFECT FN_STRICT_FS has no effect: handlers have the file access of their process',
      'CONFIG_UNKNOWN_KEY FN_ZZZZZZZZ is not a known variable',
      'CONFIG_UNKNOWN_KEY fngw.json: prot is not a known key, did you mean port?',
      'CONFIG_UNKNOWN_KEY fngw.json: function-dir is not a known key, did you mean functions-dir?',
      'CONFIG_UNKNOWN_KEY fngw.json: functionsDir is not a known key, did you mean functions-dir?',
      'CONFIG_UNKNOWN_KEY fngw.json: __proto is not a known key',
    ],
  )
  t.match(resolve({ file: { 'swagger-include-admin': true } }).settings, { openapiIncludeInternal: true })
  const proto = resolve({
    file: JSON.parse('{"__proto__":{"port":1},"constructor":1}'),
    env: JSON.parse('{"__proto__":"x"}'),
  })
  t.equal(proto.settings.port, 8080)
  t.equal(proto.warnings.length, 2)
})

t.test('[config/settings.9] programs are settled one by one', async t => {
  const { settings, sources, problems } = resolve({
    env: { FN_PYTHON_BIN: 'python3.12', FN_NODE_BIN: './node/bin/node' },
    file: { 'runtime-binaries': { python: '/old/python', php: 'bin/php', go: 'go1.26' } },
    filePath: '/project/fngw.json',
    options: { binaries: { node: '/opt/node' } },
  })
  t.same(problems, [])
  t.same(settings.binaries, { node: '/opt/node', python: 'python3.12', php: '/project/bin/php', go: 'go1.26' })
  t.same(sources['binaries.python'], { source: 'env', name: 'FN_PYTHON_BIN' })
  t.same(sources['binaries.php'], { source: 'file', name: '../fngw.json: runtime-binaries.php' })
  t.same(resolve({ file: { 'runtime-binaries': 'python=python3.12, cargo=/c' } }).settings.binaries, {
    python: 'python3.12',
    cargo: '/c',
  })
  for (const [tool, variable] of Object.entries(BINARY_ENV)) {
    t.same(resolve({ env: { [variable]: 'x' } }).settings.binaries, { [tool]: 'x' })
    t.match(resolve({ env: { [variable]: 'a\nb' } }).problems, [{ name: variable }])
  }
})

t.test(
  '[config/settings.10] relative paths start at the folder of the file that holds them, else the working directory',
  async t => {
    const file = {
      'functions-dir': 'functions',
      'scheduler-state-path': '../state.json',
      'runtime-sockets': { go: 'unix:go.sock' },
    }
    const { settings } = resolve({ file, filePath: '/project/fngw.json' })
    t.match(settings, {
      functionsRoot: '/project/functions',
      schedulerStatePath: '/state.json',
      runtimeSockets: { go: ['unix:/project/go.sock'] },
    })
    const env = { FN_FUNCTIONS_ROOT: 'fns' }
    t.equal(resolve({ env }).settings.functionsRoot, '/project/work/fns')
    t.equal(resolve({ env, envFiles: { FN_FUNCTIONS_ROOT: '/project/.env' } }).settings.functionsRoot, '/project/fns')
    t.equal(resolve({ flags: { functionsRoot: '.' } }).settings.functionsRoot, CWD)
    t.equal(resolve({}).settings.functionsRoot, CWD)
    t.equal(resolve({ file: {}, filePath: '/project/fngw.json' }).settings.functionsRoot, '/project')
  },
)

t.test('[config/settings.11] a variable of an env file is named with its file', async t => {
  const { problems, warnings } = resolve({
    env: { FN_PORT: 'x', FN_PROT: '1' },
    envFiles: { FN_PORT: '/project/work/.env', FN_PROT: '/project/work/.env.local' },
  })
  t.match(problems, [{ message: /^\.env: FN_PORT must be/, file: '.env' }])
  t.match(warnings, [{ message: /^\.env\.local: FN_PROT is not a known variable/, path: '.env.local' }])
})

t.test('[config/settings.12] defaults that follow from others', async t => {
  t.match(resolve({}).settings, { production: false, hotReload: true, runtimesExplicit: false, host: '127.0.0.1' })
  t.match(resolve({ env: { FN_ENV: 'production' } }).settings, { production: true, hotReload: false })
  t.match(resolve({ defaults: { production: true }, env: { FN_HOT_RELOAD: '1' } }).settings, {
    production: true,
    hotReload: true,
  })
  t.match(resolve({ defaults: { production: true }, env: { FN_ENV: 'development' } }).settings, { production: false })
  t.match(resolve({ options: { production: true }, file: { env: 'development' } }).settings, { production: true })
  t.match(resolve({ file: { runtimes: 'node' } }).settings, { runtimes: ['node'], runtimesExplicit: true })
})

t.test('[config/settings.13] lua has no daemon: its count and sockets are ignored with a warning', async t => {
  const { settings, problems, warnings } = resolve({
    env: { FN_RUNTIME_DAEMONS: 'lua=3,node=2', FN_RUNTIME_SOCKETS: '{"lua":"unix:/l","node":"unix:/n"}' },
  })
  t.same(problems, [])
  t.match(settings, { runtimeDaemons: { node: 2 }, runtimeSockets: { node: ['unix:/n'] } })
  t.notOk('lua' in settings.runtimeDaemons || 'lua' in settings.runtimeSockets)
  t.match(warnings, [
    { code: 'CONFIG_NO_EFFECT', message: /^FN_RUNTIME_DAEMONS\.lua has no effect/ },
    { code: 'CONFIG_NO_EFFECT', message: /^FN_RUNTIME_SOCKETS\.lua has no effect/ },
  ])
})

t.test('[config/settings.14] the admin token comes from the environment or code, and is never shown', async t => {
  const planted = 'planted secret'
  const wrong = [{ env: { FN_ADMIN_TOKEN: planted } }, { options: { adminToken: planted } }]
  for (const inputs of wrong) {
    const result = resolve(inputs)
    t.match(result.problems, [{ message: /got a hidden value \(string\)/ }])
    t.notMatch(JSON.stringify(result), planted)
  }
  t.equal(optionOf('adminToken').key, null)
  t.same(optionOf('adminToken').flags, [])
  t.match(resolve({ file: { 'admin-token': planted } }).warnings, [{ message: /admin-token is not a known key/ }])
})

t.test('[config/settings.23] the limit of a stop in seconds', async t => {
  const resolve = (env: Record<string, string>) => resolveSettings({ env, cwd: '/' })
  t.equal(resolve({ FN_SHUTDOWN_TIMEOUT: '25' }).settings.shutdownTimeoutMs, 25_000)
  t.equal(resolve({ FN_SHUTDOWN_TIMEOUT: '25', FN_SHUTDOWN_TIMEOUT_MS: '300' }).settings.shutdownTimeoutMs, 300)
  for (const wrong of ['601', '-1', '1.5', '5s'])
    t.match(resolve({ FN_SHUTDOWN_TIMEOUT: wrong }).problems, [
      { message: `FN_SHUTDOWN_TIMEOUT must be an integer from 0 to 600, got "${wrong}" (string)` },
    ])
})
