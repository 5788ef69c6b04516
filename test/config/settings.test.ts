import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import {
  BINARY_ENV,
  BINARY_WITHOUT_EFFECT,
  SETTING_OPTIONS,
  type SettingOption,
} from '../../lib/config/setting-options.ts'
import { resolveSettings, type SettingInputs } from '../../lib/config/settings.ts'

const CWD = '/project/work'
const resolve = (inputs: Omit<SettingInputs, 'cwd'>) => resolveSettings({ cwd: CWD, ...inputs })
const OPTIONS = Object.entries(SETTING_OPTIONS) as [string, SettingOption<unknown>][]
const optionOf = (name: string) => (SETTING_OPTIONS as unknown as Record<string, SettingOption<unknown>>)[name]!

const SWITCH: [good: [text: string, value: unknown][], badText: string[], badJson: unknown[]] = [
  [
    ['yes', true],
    ['OFF', false],
  ],
  ['2', 'maybe', 'y', '-1'],
  [1, 'true', [], {}],
]
const count = (good: number, ...bad: number[]): typeof SWITCH => [
  [[String(good), good]],
  [...bad.map(String), 'x', '1.5', '0x1', '1e1', '5s'],
  [...bad, 1.5, '5', true, [], {}],
]

/** Every setting: texts that are right, texts that are wrong, JSON values that are wrong. */
const CASES: Record<string, typeof SWITCH> = {
  functionsRoot: [
    [
      ['fns', '/project/work/fns'],
      ['/abs', '/abs'],
    ],
    ['a\u0000b', 'a\nb'],
    [5, '', [], {}],
  ],
  host: [
    [
      ['0.0.0.0', '0.0.0.0'],
      ['[::1]', '::1'],
      ['localhost', 'localhost'],
    ],
    ['a b', 'http://x', '::zz', 'x/y'],
    [5, '', {}],
  ],
  port: count(0, -1, 65_536),
  production: [
    [
      ['production', true],
      ['DEV', false],
    ],
    ['staging', '1', 'true'],
    [1, 'x', []],
  ],
  hotReload: SWITCH,
  publicBaseUrl: [
    [['https://x.example/base/', 'https://x.example/base']],
    ['x.example', 'ftp://x', 'http://', 'http://u:p@x', 'http://x?a=1'],
    [5, []],
  ],
  shutdownTimeoutMs: count(0, -1, 600_001),
  accessLog: SWITCH,
  logFormat: [[['JSON', 'json']], ['xml', '1'], [1, true, []]],
  logFiles: SWITCH,
  logLevel: [[['WARN', 'warn']], ['verbose', '1'], [1, true, []]],
  docsEnabled: SWITCH,
  openapiIncludeInternal: SWITCH,
  namespaceDepth: count(5, 0, 6),
  forceUrl: SWITCH,
  homeFunction: [
    [
      ['users/list', '/users/list'],
      ['/a', '/a'],
    ],
    ['/', '/_fn', 'http://x', '../x'],
    [5, '', []],
  ],
  homeRedirect: [
    [
      ['/a', '/a'],
      ['https://x.example', 'https://x.example'],
    ],
    ['/', '//x', 'x', 'javascript:1', '/a b'],
    [5, ''],
  ],
  trustedProxyCidrs: [
    [['10.0.0.0/8, ::1', ['10.0.0.0/8', '::1']]],
    ['10.0.0.0/33', '::/129', 'proxy', '10.0.0', '1.2.3.4/8/8', '1.2.3.4/'],
    [5, ['x'], {}],
  ],
  defaultTimeoutMs: count(1, 0, 86_400_001),
  defaultMaxConcurrency: count(0, -1),
  defaultMaxQueue: count(0, -1),
  defaultQueueTimeoutMs: count(0, -1, 86_400_001),
  defaultMaxBodyBytes: count(1, 0, 2 ** 31),
  workerMemoryMb: count(16, 15, 0),
  runtimes: [
    [['Node, python', ['node', 'python']]],
    ['ruby', 'node;python', 'node,ruby', ','],
    [5, [], ['ruby'], [5], {}],
  ],
  runtimeDaemons: [
    [
      ['node=2,python=1', { node: 2, python: 1 }],
      ['{"go":3}', { go: 3 }],
    ],
    ['node', 'node=0', 'node=65', 'node=two', 'ruby=1', 'node=1,node=2', '{'],
    [5, [], { node: '2' }, { ruby: 1 }],
  ],
  runtimeSockets: [
    [
      [
        '{"node":["unix:/a.sock","tcp://127.0.0.1:9001"],"php":"unix:///b.sock"}',
        { node: ['unix:/a.sock', 'tcp://127.0.0.1:9001'], php: ['unix:/b.sock'] },
      ],
      ['{"go":"unix:run/go.sock"}', { go: ['unix:/project/work/run/go.sock'] }],
    ],
    [
      'unix:/a',
      '{"node":5}',
      '{"node":[]}',
      '{"node":"/a"}',
      '{"node":"tcp://x"}',
      '{"node":"tcp://x:0"}',
      '{"node":"tcp://x:99999"}',
      `{"node":"unix:/${'x'.repeat(107)}"}`,
      '{"ruby":"unix:/a"}',
      '{',
    ],
    [5, 'unix:/a', [], { node: 5 }],
  ],
  binaries: [[], [], [5, [], { python: 5 }, { ruby: 'x' }, 'python', { python: '' }]],
  runtimeImage: [[['ghcr.io/x/y:1@sha256:a', 'ghcr.io/x/y:1@sha256:a']], ['-rm', 'a b', '$(x)'], [5, '']],
  goBuildTimeoutSeconds: [[['1.5', 1.5]], ['0', '86401', 'x', '-5'], [0, '5', true]],
  rustBuildTimeoutSeconds: [[['60', 60]], ['0', '86401', 'x'], [0, '5', true]],
  depsWaitMs: [
    [
      ['0', 0],
      ['2500', 2500],
    ],
    ['-1', '1.5', 'x'],
    [-1, '5', true],
  ],
  autoRequirements: SWITCH,
  autoInferPyDeps: SWITCH,
  pyInferBackend: [[['pipreqs', 'pipreqs']], ['detective', '1'], [5, []]],
  autoNodeDeps: SWITCH,
  autoInferNodeDeps: SWITCH,
  nodeInferBackend: [[['require-analyzer', 'require-analyzer']], ['pipreqs', '1'], [5, []]],
  autoInferWriteManifest: SWITCH,
  autoInferStrict: SWITCH,
  autoPhpDeps: SWITCH,
  preinstallPyDepsOnStart: SWITCH,
  preinstallNodeDepsOnStart: SWITCH,
  preinstallNodeDepsConcurrency: count(4, 0, 65),
  uiEnabled: SWITCH,
  consoleApiEnabled: SWITCH,
  consoleWriteEnabled: SWITCH,
  consoleLocalOnly: SWITCH,
  adminToken: [[[' tok-en.1 ', 'tok-en.1']], ['two words', 'tökén', 'a\u0007b'], []],
  controlPort: [
    [
      ['0', 0],
      ['9000', 9000],
    ],
    ['70000', '-1', 'x', '1.5'],
    [1.5, true, {}],
  ],
  consoleHosts: [[['Dev.example,box:8080', ['dev.example', 'box:8080']]], ['http://x', 'a b'], [5, ['/x'], {}]],
  schedulerEnabled: SWITCH,
  schedulerIntervalSeconds: [[['2.5', 2.5]], ['x', '3601', '1m'], ['5', true, 3601]],
  schedulerPersistEnabled: SWITCH,
  schedulerPersistIntervalSeconds: [
    [
      ['5', 5],
      ['3600', 3600],
    ],
    ['x', '1m'],
    ['5', true],
  ],
  schedulerStatePath: [[['s.json', '/project/work/s.json']], ['a\nb'], [5, '']],
  jobsEnabled: SWITCH,
  jobsMaxConcurrency: count(1, 0, 1001),
  jobsMaxResultBytes: count(0, -1),
}

t.test(
  '[config/settings.1, config/settings.2] every setting takes its texts and refuses others, naming the variable',
  async t => {
    t.same(Object.keys(CASES), Object.keys(SETTING_OPTIONS), 'one case per setting')
    for (const [name, option] of OPTIONS) {
      const [goods, badTexts] = CASES[name]!
      for (const variable of option.env) {
        for (const [text, value] of goods) {
          const { settings, problems, sources } = resolve({ env: { [variable]: text } })
          t.same(problems, [], `${variable}=${text}`)
          t.same((settings as unknown as Record<string, unknown>)[name], value, `${variable}=${text}`)
          t.same(sources[name], { source: 'env', name: variable })
        }
        for (const text of badTexts) {
          const { problems, sources } = resolve({ env: { [variable]: text } })
          t.equal(problems.length, 1, `${variable}=${text}`)
          t.match(problems[0], { source: 'env', hint: /./, rule: /./ }, `${variable}=${text}`)
          t.ok(problems[0]!.message.startsWith(variable), problems[0]!.message)
          if (option.secret) t.notMatch(problems[0]!.message, text)
          t.equal(sources[name]!.source, 'default')
        }
      }
    }
  },
)

t.test(
  '[config/settings.2, config/settings.3] wrong values in the file and in options name file, key and option',
  async t => {
    for (const [name, option] of OPTIONS) {
      for (const bad of CASES[name]![2]) {
        const shown = `${name}: ${JSON.stringify(bad)}`
        if (option.key !== null) {
          const { problems } = resolve({ file: { [option.key]: bad }, filePath: '/project/fngw.json' })
          t.ok(problems.length > 0 && problems[0]!.message.startsWith(`../fngw.json: ${option.key}`), shown)
          t.equal(problems[0]!.source, 'file')
        }
        const { problems } = resolve({ options: { [name]: bad } })
        t.ok(problems.length > 0 && problems[0]!.message.startsWith(`options.${name}`), shown)
      }
    }
    for (const file of [[], 'x', 5]) t.match(resolve({ file }).problems, [{ message: /^fngw\.json must be an object/ }])
    t.same(resolve({ file: null }).problems, [])
    for (const options of [[], 'x', 5])
      t.match(resolve({ options: options as never }).problems, [{ message: /^options must be an object/ }])
    t.same(resolve({ options: null as never }).problems, [])
  },
)

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

t.test(
  '[config/settings.15] the table names each variable, key and flag once, and the page shows every row',
  async t => {
    const page = readFileSync(new URL('../../spec/config/settings.md', import.meta.url), 'utf8')
    const rows = OPTIONS.map(([, option]) => option)
    for (const names of [
      rows.flatMap(row => row.env),
      rows.flatMap(row => row.key ?? []),
      rows.flatMap(row => row.flags),
    ]) {
      t.same(names.length, new Set(names).size)
    }
    for (const [name, option] of OPTIONS) {
      t.ok(page.includes(toRow(name, option)), toRow(name, option))
      for (const flag of option.flags.filter(flag => flag.startsWith('--'))) {
        const attribute = flag.replace(/^--(no-)?/, '').replace(/ .*/, '')
        t.equal(
          attribute.replace(/-([a-z])/g, (_, letter: string) => letter.toUpperCase()),
          name,
          'commander attribute',
        )
      }
    }
    for (const [tool, variable] of Object.entries(BINARY_ENV))
      t.ok(page.includes(`| \`${tool}\` | \`${variable}\` |`), tool)
  },
)

const PACKAGE = fileURLToPath(new URL('../..', import.meta.url))

/** Texts of every module outside `lib/config`: what a setting does is done there. */
function productTexts(): string[] {
  return ['lib', 'bin'].flatMap(folder =>
    readdirSync(join(PACKAGE, folder), { recursive: true })
      .map(file => join(folder, String(file)))
      .filter(file => file.endsWith('.ts') && !file.startsWith(join('lib', 'config')))
      .map(file => readFileSync(join(PACKAGE, file), 'utf8')),
  )
}

/** Finds `settings.name`, `const { name } = this.settings`, `({ name }: Settings)` and `Pick<Settings, 'name'>`. */
function toReadPattern(name: string): RegExp {
  return new RegExp(
    [
      `ettings\\??\\.${name}\\b`,
      `\\{[^{}]*\\b${name}\\b[^{}]*\\}(: \\w+)? = [\\w.#]*ettings\\b`,
      `\\{[^{}]*\\b${name}\\b[^{}]*\\}: [^=;]*Settings\\b`,
      `Pick<\\s*Settings,[^>]*'${name}'`,
    ].join('|'),
  )
}

t.test('[config/settings.21] a setting is read by the product or marked as without effect, never both', async t => {
  const texts = productTexts()
  const isRead = (name: string) => texts.some(text => toReadPattern(name).test(text))
  t.equal(isRead('port'), true, 'the pattern finds a setting that is read')
  t.equal(isRead('noSuchSetting'), false)
  for (const [name, { noEffect }] of OPTIONS) {
    if (name !== 'rustBuildTimeoutSeconds') t.equal(isRead(name), noEffect === null, name)
  }
  for (const tool of Object.keys(BINARY_ENV)) {
    const isRun = texts.some(text => new RegExp(`tool: '${tool}'|binaries\\.${tool}\\b`).test(text))
    t.equal(isRun, !Object.hasOwn(BINARY_WITHOUT_EFFECT, tool), tool)
  }
})

t.test('[config/settings.21] giving a setting without effect is a warning, whatever gives it', async t => {
  const inputs = [
    { env: { FN_UI_ENABLED: '1' }, name: 'FN_UI_ENABLED' },
    { file: { 'ui-enabled': true }, name: 'fngw.json: ui-enabled' },
    { options: { uiEnabled: true }, name: 'options.uiEnabled' },
    { flags: { uiEnabled: true }, name: '--uiEnabled' },
  ]
  for (const { name, ...given } of inputs) {
    const { settings, warnings, problems } = resolve(given)
    t.same(problems, [])
    t.equal(settings.uiEnabled, true)
    const message = `${name} has no effect: there is no console yet`
    t.match(warnings, [{ code: 'CONFIG_NO_EFFECT', message, hint: 'Remove it.' }])
  }
  const binaries = resolve({
    env: { FN_NPM_BIN: 'npm9' },
    file: { 'runtime-binaries': { docker: 'podman', go: 'go' } },
  })
  t.same(
    binaries.warnings.map(({ message }) => message),
    [
      'FN_NPM_BIN has no effect: packages are not installed yet',
      'fngw.json: runtime-binaries.docker has no effect: there is no container mode yet',
    ],
  )
  t.same(resolve({}).warnings, [], 'a default is no use of a setting')
  t.match(resolve({ env: { FN_UI_ENABLED: 'x' } }), { warnings: [], problems: [{ name: 'FN_UI_ENABLED' }] })
})

/** The row of a setting on the page. */
function toRow(name: string, { env, key, flags, field, fallback, unit, description }: SettingOption<unknown>): string {
  const code = (words: readonly string[]) => words.map(word => `\`${word}\``).join(' ')
  const shown =
    fallback === null
      ? ''
      : typeof fallback === 'object'
        ? Object.values(fallback).join(',') || 'none'
        : String(fallback)
  const rule = `${field.rule}${unit === null ? '' : `, ${unit}`}`
  return `| \`${name}\` | ${code(env)} | ${key === null ? '' : code([key])} | ${code(flags)} | ${rule} | ${shown} | ${description} |`
}
