import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import t from 'tap'
import { type DependencyRecord, readState, removeState, writeState } from '../../lib/dependencies/dependency-state.ts'
import { makeTree } from '../helpers/tree.ts'

const STATE = '.svc-deps-state.json'

const recordOf = (runtime: string): DependencyRecord => ({
  runtime,
  mode: 'manifest',
  manifest_path: 'f/x',
  manifest_generated: false,
  infer_backend: null,
  inference_duration_ms: 0,
  inferred_imports: [],
  resolved_packages: ['a 1'],
  unresolved_imports: [],
  last_install_status: 'ok',
  last_error: null,
  lockfile_path: null,
  install_signature: 'x y',
  set: 'key',
  updated_at: '2026-01-01T00:00:00.000Z',
})

t.test('[dependencies/install.4] the state lies beside the function, and is that of one language', t => {
  const { path, cleanup } = makeTree({ 'f/': '', 'bad/.svc-deps-state.json': '{', 'list/.svc-deps-state.json': '[]' })
  t.teardown(cleanup)
  t.equal(readState(path('f'), 'node'), null)
  writeState(path('f'), recordOf('node'))
  t.same(readState(path('f'), 'node'), recordOf('node'))
  t.same(JSON.parse(readFileSync(path(`f/${STATE}`), 'utf8')), recordOf('node'))
  t.equal(readState(path('f'), 'python'), null, 'what another language left is not taken for its own')
  for (const name of ['bad', 'list', 'none']) t.equal(readState(path(name), 'node'), null, name)
  removeState(path('f'), 'node')
  t.same(readdirSync(path('f')), [])
  t.end()
})

t.test('[dependencies/php.16] that of php lies in vendor, where that is of the gateway, and nowhere else', t => {
  const { path, cleanup } = makeTree({
    'f/vendor/.fngw-set': { json: { key: 'key' } },
    'mine/vendor/autoload.php': '',
    'none/': '',
  })
  t.teardown(cleanup)
  for (const name of ['f', 'mine', 'none']) writeState(path(name), recordOf('php'))
  t.same(readState(path('f'), 'php'), recordOf('php'))
  t.notOk(existsSync(path(`f/${STATE}`)))
  t.same(readdirSync(path('mine/vendor')), ['autoload.php'])
  t.same(readdirSync(path('none')), [])
  writeFileSync(path(`f/${STATE}`), JSON.stringify(recordOf('python')))
  t.equal(readState(path('f'), 'php')?.runtime, 'php')
  t.equal(readState(path('f'), 'python')?.runtime, 'python')
  removeState(path('f'), 'php')
  t.same(readdirSync(path('f/vendor')), ['.fngw-set'])
  t.end()
})
