import { readdirSync } from 'node:fs'
import t from 'tap'
import { InstallRecords, readState } from '../../lib/dependencies/package-set.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeTree } from '../helpers/tree.ts'

const STATE = '.svc-deps-state.json'

const FIELDS = {
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
} as const

const clock = new FakeClock()
const recordOf = (runtime: string) => ({ runtime, ...FIELDS, updated_at: new Date(clock.wall()).toISOString() })
const write = (folder: string, runtime: string) => new InstallRecords(runtime, clock).note(folder, FIELDS)

t.test(
  '[dependencies/install.4, dependencies/php.16] the state is in the folder of packages that the gateway installed',
  t => {
    const MARK = { json: { key: 'key' } }
    const { path, cleanup } = makeTree({
      'f/.deps/.fngw-set': MARK,
      'f/node_modules/.fngw-set': MARK,
      'f/vendor/.fngw-set': MARK,
      'bad/.deps/.svc-deps-state.json': '{',
      'list/.deps/.svc-deps-state.json': '[]',
      'other/.deps/.svc-deps-state.json': { json: recordOf('node') },
      'mine/vendor/autoload.php': '',
      'none/': '',
    })
    t.teardown(cleanup)
    for (const runtime of ['python', 'node', 'php']) {
      t.equal(readState(path('f'), runtime), null)
      write(path('f'), runtime)
    }
    // Languages that share a folder keep a record each.
    for (const runtime of ['python', 'node', 'php']) t.same(readState(path('f'), runtime), recordOf(runtime))
    t.same(readdirSync(path('f')).sort(), ['.deps', 'node_modules', 'vendor'])
    t.same(readdirSync(path('f/.deps')).sort(), ['.fngw-set', '.gitignore', STATE])
    for (const name of ['bad', 'list', 'other', 'none']) t.equal(readState(path(name), 'python'), null, name)
    for (const name of ['mine', 'none']) write(path(name), 'php')
    t.same(readState(path('none'), 'php'), recordOf('php'), 'a first install that failed')
    t.same(readdirSync(path('mine/vendor')), ['autoload.php'], 'packages of the user stay as they are')
    t.same(readdirSync(path('none')), ['vendor'])
    t.end()
  },
)
