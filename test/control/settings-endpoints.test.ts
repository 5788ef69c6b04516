import t from 'tap'
import { BINARY_ENV, SETTING_OPTIONS } from '../../lib/config/setting-options.ts'
import { createGateway } from '../../lib/index.ts'
import { makeTree } from '../helpers/tree.ts'

interface Row {
  name: string
  env: string | null
  flag: string | null
  key: string | null
  value: unknown
  default: unknown
  source: { kind: string; name: string | null; file?: string }
  meaning: string
  secret: boolean
}

async function setup(t: import('tap').Test) {
  const tree = makeTree({
    'fngw.json': { json: { 'functions-dir': 'fns', 'shutdown-timeout-ms': 1234 } },
    '.git/': '',
    '.env': 'FN_MAX_ASSETS=1\nFN_DEFAULT_TIMEOUT_MS=777\nFN_ADMIN_TOKEN=planted-token\n',
    'fns/a.lua': 'function handler() return 1 end\n',
  })
  t.teardown(tree.cleanup)
  const gateway = await createGateway({
    cwd: tree.root,
    project: { explicit: null },
    env: { FN_DEFAULT_MAX_CONCURRENCY: '9', FN_GO_BIN: '/opt/go/bin/go' },
    flags: { port: '8123' },
    defaults: { production: true },
    runtimes: ['lua'],
    consoleLocalOnly: false,
    consoleLoginUsername: 'somebody',
  })
  t.teardown(() => gateway.close())
  const ask = async (headers: Record<string, string> = {}, remoteAddress = '127.0.0.1') => {
    const answer = await gateway.inject({ url: '/_fn/settings', headers, remoteAddress })
    t.equal(answer.status, 200)
    const { settings, ...rest } = answer.json() as { settings: Row[] }
    return { rows: new Map(settings.map(row => [row.name, row])), rest, text: answer.body.toString() }
  }
  return { tree, ask }
}

t.test(
  '[control/settings.1, control/settings.2, control/settings.3] each setting, its value and where it comes from',
  async t => {
    const { tree, ask } = await setup(t)
    const { rows, rest } = await ask()
    t.same(
      [...rows.keys()],
      Object.keys(SETTING_OPTIONS).flatMap(name =>
        name === 'binaries' ? Object.keys(BINARY_ENV).map(tool => `binaries.${tool}`) : [name],
      ),
    )
    t.same(rest, { config_file: tree.path('fngw.json') })
    for (const row of rows.values()) t.ok(row.meaning.length > 5 && 'default' in row && 'value' in row, row.name)
    for (const [name, value, fallback, source] of [
      ['port', 8123, 8080, { kind: 'flag', name: '--port' }],
      ['defaultMaxConcurrency', 9, 20, { kind: 'env', name: 'FN_DEFAULT_MAX_CONCURRENCY' }],
      ['defaultTimeoutMs', 777, 2500, { kind: 'dotenv', name: 'FN_DEFAULT_TIMEOUT_MS', file: '.env' }],
      ['shutdownTimeoutMs', 1234, 10_000, { kind: 'file', name: 'shutdown-timeout-ms', file: 'fngw.json' }],
      ['functionsRoot', tree.path('fns'), null, { kind: 'file', name: 'functions-dir', file: 'fngw.json' }],
      ['runtimes', ['lua'], SETTING_OPTIONS.runtimes.fallback, { kind: 'option', name: 'options.runtimes' }],
      ['production', true, true, { kind: 'default', name: null }],
      ['binaries.go', '/opt/go/bin/go', null, { kind: 'env', name: 'FN_GO_BIN' }],
      ['binaries.python', null, null, { kind: 'default', name: null }],
    ] as const)
      t.match(rows.get(name), { value, default: fallback, source }, name)
    t.match(rows.get('port'), { env: 'FN_PORT', flag: '--port', key: 'port' })
  },
)

t.test('[control/settings.4, control/settings.5] what may not be seen is not shown', async t => {
  const { tree, ask } = await setup(t)
  const local = await ask()
  t.match(local.rows.get('adminToken'), { value: '<hidden>', secret: true, source: { kind: 'dotenv' } })
  t.equal(local.rows.get('consoleLoginPasswordHash')!.value, null)
  t.equal(local.rows.get('consoleLoginUsername')!.value, 'somebody')
  t.notMatch(local.text, 'planted-token')
  const owner = await ask({ 'x-fn-admin-token': 'planted-token' }, '203.0.113.9')
  t.match(owner.rows.get('functionsRoot'), { value: tree.path('fns') })
  t.notMatch(owner.text, 'planted-token')
  const stranger = await ask({}, '203.0.113.9')
  for (const word of [tree.root, 'planted-token', 'somebody', '/opt/go', '"file":']) t.notMatch(stranger.text, word)
  t.match(stranger.rows.get('functionsRoot'), { value: '<hidden>', default: null })
  t.match(stranger.rows.get('port'), { value: 8123 })
  t.match(stranger.rows.get('shutdownTimeoutMs'), { source: { kind: 'file', name: 'shutdown-timeout-ms' } })
})
