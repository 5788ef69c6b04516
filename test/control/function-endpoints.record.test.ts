import t from 'tap'
import {
  SourceFiles,
  toConfigPath,
  toEnvPath,
  toEnvRecord,
  toFileWarnings,
  toFunctionRecord,
} from '../../lib/control/function-endpoints.ts'
import { GatewayError } from '../../lib/core/errors.ts'
import { makeFn } from '../helpers/fn.ts'
import { makeTree } from '../helpers/tree.ts'

t.test('[control/function.1, control/function.2] what is shown of a function, with and without details', t => {
  const tree = makeTree({
    'hello/fn.env.json': {
      json: { A: 'open-value', API_KEY: 'planted', GONE: null, B: { value: 5, is_secret: true } },
    },
  })
  t.teardown(tree.cleanup)
  const files = new SourceFiles(tree.root, async () => {})
  const schedule = {
    ...{ enabled: true, everySeconds: 5, cron: null, timezone: 'UTC', method: 'GET' as const, query: { camelCase: 1 } },
    ...{
      headers: {},
      body: null,
      context: null,
      retry: { maxAttempts: 2, baseDelaySeconds: 1, maxDelaySeconds: 2, jitter: 0 },
    },
  } as const
  const fn = {
    ...makeFn({ name: 'hello', runtime: 'lua', policy: { schedule, timeoutMs: 7 } }),
    entryFile: 'hello/handler.lua',
    entryPath: tree.path('hello/handler.lua'),
    fnDir: tree.path('hello'),
  }
  const owner = { runtime: 'lua', name: 'hello', version: null }
  const state = {
    details: true,
    routes: {
      mapped_routes: { '/hello/*': [owner], '/hello': [owner], '/other': [{ ...owner, name: 'other' }] },
      mapped_route_conflicts: {},
    },
    loadErrorOf: () => new GatewayError('LOAD_FAILED', 'bad', { detail: { file: 'hello/handler.lua', line: 3 } }),
    runtimes: new Map([['lua', { health: () => ({ up: true, reason: 'ok' }) }]]),
    warnings: [
      { code: 'A', path: 'hello/fn.config.json', message: 'own', hint: '' },
      { code: 'A', path: 'hello/v2/fn.config.json', message: 'of a version', hint: '' },
      { code: 'A', path: 'other/fn.config.json', message: 'of another, not xhello/handler.lua', hint: '' },
      { code: 'A', path: 'b/c.js', message: 'claimed by b/c.js (b), hello/fn.config.json (hello)', hint: '' },
      { code: 'A', path: 'hello', message: 'of the folder', hint: 'Close it.' },
    ],
  } as never
  const record = toFunctionRecord(fn, state, files)
  t.match(record, {
    runtime: 'lua',
    name: 'hello',
    function_dir: fn.fnDir,
    config_path: toConfigPath(fn),
    env_path: toEnvPath(fn),
    policy: { timeout_ms: 7, schedule: { every_seconds: 5, query: { camelCase: 1 }, retry: { max_attempts: 2 } } },
    load_error: 'hello/handler.lua:3: bad',
    runtime_health: { up: true, reason: 'ok' },
    metadata: {
      env: { exists: true },
      endpoints: { public_route: '/hello', mapped_routes: ['/hello/*', '/hello'], version_route: null },
    },
    warnings: ['own', /claimed by/, 'of the folder; Close it.'],
  })
  t.match(toFileWarnings(fn, state), ['own', /claimed by/, 'of the folder; Close it.'])
  t.equal(toFileWarnings(fn, state).length, 3)
  t.same(
    { ...toEnvRecord(fn, files, true) },
    {
      A: { is_secret: false, value: 'open-value' },
      API_KEY: { is_secret: true, value: '<hidden>' },
      B: { is_secret: true, value: '<hidden>' },
    },
  )
  const shown = JSON.stringify(toFunctionRecord(fn, { ...(state as object), details: false } as never, files))
  t.notMatch(shown, /open-value|planted|_dir|_path/)
  t.match(shown, /"A":\{"is_secret":false,"value":"<hidden>"\}/)
  const gone = toFunctionRecord(fn, { ...(state as object), runtimes: new Map() } as never, files)
  t.match(gone, { runtime_health: { up: false, reason: 'not enabled' } })
  t.end()
})
