import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Command } from 'commander'
import t from 'tap'
import { addSettingFlags } from '../../bin/setting-flags.ts'
import { BINARY_ENV, SETTING_OPTIONS, type SettingOption } from '../../lib/config/setting-options.ts'
import { resolveSettings, type SettingInputs } from '../../lib/config/settings.ts'

const CWD = '/project/work'
const resolve = (inputs: Omit<SettingInputs, 'cwd'>) => resolveSettings({ cwd: CWD, ...inputs })
const OPTIONS = Object.entries(SETTING_OPTIONS) as [string, SettingOption<unknown>][]

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
  gatewayWorkers: [
    [
      ['1', 1],
      ['128', 128],
      ['AUTO', 'auto'],
    ],
    ['0', '129', '-1', '1.5', 'many'],
    [0, 129, 1.5, 'AUTO', true, []],
  ],
  shutdownTimeoutMs: count(0, -1, 600_001),
  shutdownDelayMs: count(0, -1, 600_001),
  accessLog: SWITCH,
  logFormat: [[['JSON', 'json']], ['xml', '1'], [1, true, []]],
  logFiles: SWITCH,
  logLevel: [[['WARN', 'warn']], ['verbose', '1'], [1, true, []]],
  docsEnabled: SWITCH,
  openapiTitle: [[['Shop API', 'Shop API']], ['a\nb', 'x'.repeat(1025)], [5, '', []]],
  openapiVersion: [[['2.3', '2.3']], ['a\nb'], [2.3, '', []]],
  openapiDescription: [[['One\nTwo', 'One\nTwo']], [], [5, []]],
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
  trustedProxyHeader: [[['X-Real-IP', 'x-real-ip']], ['X Real', 'a:b'], [5, '']],
  trustedProxyCidrs: [
    [['10.0.0.0/8, ::1', ['10.0.0.0/8', '::1']]],
    ['10.0.0.0/33', '::/129', 'proxy', '10.0.0', '1.2.3.4/8/8', '1.2.3.4/'],
    [5, ['x'], {}],
  ],
  defaultTimeoutMs: count(1, 0, 86_400_001),
  defaultMaxConcurrency: count(0, -1),
  defaultMaxQueue: count(0, -1),
  defaultQueueTimeoutMs: count(0, -1, 86_400_001),
  defaultQueueWaitMs: count(0, -1, 86_400_001),
  defaultMaxBodyBytes: count(1, 0, 2 ** 31),
  isolation: [[['USER', 'user']], ['root', '1'], [1, true, []]],
  isolationFiles: [[['close', 'close']], ['open', '1'], [5, [], {}]],
  isolationUids: [[['5-9', '5-9']], ['9-5', '0-1', 'x'], [5, [], {}]],
  functionProcesses: count(16, 15, 4_194_305),
  functionOpenFiles: count(32, 31, 1_048_577),
  functionTempMb: count(1, 0),
  workerMemoryMb: count(16, 15, 0),
  workerNice: count(19, -1, 20),
  responseIdleTimeoutMs: count(1000, 999, 86_400_001),
  bodyMemoryMb: count(1, 0),
  luaMemoryMb: count(16, 15, 0),
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
      '{"node":"tls://x"}',
      '{"node":"tcp://x:0"}',
      '{"node":"tcp://x:99999"}',
      `{"node":"unix:/${'x'.repeat(107)}"}`,
      '{"ruby":"unix:/a"}',
      '{',
    ],
    [5, 'unix:/a', [], { node: 5 }],
  ],
  runtimeSecret: [[[` ${'x'.repeat(32)} `, 'x'.repeat(32)]], ['x'.repeat(31), 'x y'.repeat(20), 'ö'.repeat(40)], []],
  runtimeSecretFile: [[['a/b', '/project/work/a/b']], ['a\nb'], [5, [], '']],
  runtimeTlsCaFile: [[['ca.pem', '/project/work/ca.pem']], ['a\nb'], [5, [], '']],
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
  nodePackageSources: SWITCH,
  autoInferWriteManifest: SWITCH,
  autoInferStrict: SWITCH,
  autoPhpDeps: SWITCH,
  phpPackageSources: SWITCH,
  preinstallPhpDepsOnStart: SWITCH,
  preinstallPyDepsOnStart: SWITCH,
  pyRequirementsOptions: SWITCH,
  preinstallNodeDepsOnStart: SWITCH,
  preinstallNodeDepsConcurrency: count(4, 0, 65),
  uiEnabled: SWITCH,
  consoleApiEnabled: SWITCH,
  consoleWriteEnabled: SWITCH,
  consoleLocalOnly: SWITCH,
  adminToken: [[[' tok-en.1 ', 'tok-en.1']], ['two words', 'tökén', 'a\u0007b'], []],
  adminTokenFile: [[['a/b', '/project/work/a/b']], ['a\nb'], [5, [], '']],
  consoleLoginApi: SWITCH,
  consoleLoginUsername: [[[' ann ', 'ann']], ['a\u0007b', 'a'.repeat(201)], [5, [], '']],
  consoleLoginPasswordHash: [
    [
      [
        ` scrypt:16384:8:1:${'ab'.repeat(16)}:${'cd'.repeat(32)} `,
        `scrypt:16384:8:1:${'ab'.repeat(16)}:${'cd'.repeat(32)}`,
      ],
    ],
    ['secret', `sha256:${'ab'.repeat(32)}`, `scrypt:2:8:1:${'ab'.repeat(16)}:${'cd'.repeat(32)}`],
    [],
  ],
  consoleLoginPasswordHashFile: [[['a/b', '/project/work/a/b']], ['a\nb'], [5, [], '']],
  consoleSessionTtlSeconds: count(3600, 59, 2_592_001),
  controlPort: [
    [
      ['0', 0],
      ['9000', 9000],
    ],
    ['70000', '-1', 'x', '1.5'],
    [1.5, true, {}],
  ],
  consoleHosts: [[['Dev.example,box:8080', ['dev.example', 'box:8080']]], ['http://x', 'a b'], [5, ['/x'], {}]],
  consoleLocalCidrs: [[['10.0.0.0/8,::1', ['10.0.0.0/8', '::1']]], ['10.0.0.0/33', 'local'], [5, ['x'], {}]],
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
  jobsCallbackSecret: [[[` ${'x'.repeat(32)} `, 'x'.repeat(32)]], ['x'.repeat(31)], []],
  jobsCallbackSecretFile: [[['a/b', '/project/work/a/b']], ['a\nb'], [5, [], '']],
  storeUrl: [
    [
      ['redis://host', 'redis://host'],
      ['rediss://user:secret@host:6380/2', 'rediss://user:secret@host:6380/2'],
      [' redis+sentinel://:a@h1,h2:1/main/3 ', 'redis+sentinel://:a@h1,h2:1/main/3'],
      ['rediss+cluster://h1,[::1]:7000', 'rediss+cluster://h1,[::1]:7000'],
    ],
    ['http://localhost', 'redis:///7', 'localhost:7000', 'redis://localhost/name', 'redis+sentinel://h1'],
    [5, [], ''],
  ],
  storeUrlFile: [[['a/b', '/project/work/a/b']], ['a\nb'], [5, [], '']],
  storePrefix: [[['shop.live', 'shop.live']], ['a b', 'a:b', 'x'.repeat(65)], [5, [], '']],
  release: [[['v1.2.0+a_b-c', 'v1.2.0+a_b-c']], ['a b', 'a:b', 'x'.repeat(65)], [5, [], '']],
  storeRequired: [
    [
      ['1', true],
      ['0', false],
    ],
    ['maybe'],
    ['yes please', []],
  ],
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

t.test('[config/settings.15] the table names each variable, key and flag once', async t => {
  const rows = OPTIONS.map(([, option]) => option)
  for (const names of [
    rows.flatMap(row => row.env),
    rows.flatMap(row => row.key ?? []),
    rows.flatMap(row => row.flags),
  ]) {
    t.same(names.length, new Set(names).size)
  }
  const command = addSettingFlags(new Command(), { defaults: {}, shown: null })
  for (const [name, option] of OPTIONS) {
    for (const flag of option.flags.filter(flag => flag.startsWith('--'))) {
      const added = command.options.find(({ long }) => long === flag.split(' ')[0])
      t.equal(added?.attributeName(), name, flag)
    }
  }
})

const PACKAGE = fileURLToPath(new URL('../..', import.meta.url))

/** Modules of `lib/config` that use settings: defaults of policies, and files that hold secrets. */
const READERS = ['function-config.ts', 'setting-checks.ts'].map(file => join('lib', 'config', file))

/** Texts of every module outside `lib/config`: what a setting does is done there. */
function productTexts(): string[] {
  return ['lib', 'bin'].flatMap(folder =>
    readdirSync(join(PACKAGE, folder), { recursive: true })
      .map(file => join(folder, String(file)))
      .filter(file => file.endsWith('.ts') && (READERS.includes(file) || !file.startsWith(join('lib', 'config'))))
      .map(file => readFileSync(join(PACKAGE, file), 'utf8')),
  )
}

/** Finds `settings.name`, `const { name } = this.settings`, `({ name }: Settings)`, `Pick<Settings, 'name'>` and a row of the table of secret files. */
function toReadPattern(name: string): RegExp {
  return new RegExp(
    [
      `ettings\\??\\.${name}\\b`,
      `\\{[^{}]*\\b${name}\\b[^{}]*\\}(: \\w+)? = [\\w.#]*ettings\\b`,
      `\\{[^{}]*\\b${name}\\b[^{}]*\\}: [^=;]*Settings\\b`,
      `Pick<\\s*Settings,[^>]*'${name}'`,
      `^  \\w+: '${name}',$`,
    ].join('|'),
    'm',
  )
}

t.test('[config/settings.21] every setting is read by the product', async t => {
  const texts = productTexts()
  const isRead = (name: string) => texts.some(text => toReadPattern(name).test(text))
  t.equal(isRead('port'), true, 'the pattern finds a setting that is read')
  t.equal(isRead('noSuchSetting'), false)
  for (const [name] of OPTIONS) t.equal(isRead(name), true, name)
  for (const tool of Object.keys(BINARY_ENV)) {
    const isRun = texts.some(text =>
      new RegExp(`tool: '${tool}'|binaries\\.${tool}\\b|findTool\\('${tool}'`).test(text),
    )
    t.equal(isRun, true, tool)
  }
})

/** The row of a setting on the page. */
