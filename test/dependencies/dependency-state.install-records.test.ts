import { readFileSync } from 'node:fs'
import t from 'tap'
import { InstallRecords } from '../../lib/dependencies/dependency-state.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeTree } from '../helpers/tree.ts'

const FACTS = {
  mode: 'inferred',
  manifest: null,
  inferBackend: 'native',
  inferenceDurationMs: 3,
  inferredImports: ['left', 'right'],
} as const
const OUTCOME = { resolvedPackages: ['left@1.0.0'], unresolvedImports: ['right'] }
const SETTLED = { isManifestGenerated: true, manifest: 'package.json', lockFile: 'package-lock.json' }

t.test('[dependencies/install.4] what was found and done is kept with the packages', async t => {
  const tree = makeTree({
    'shop/cart/handler.js': '',
    'shop/cart/node_modules/.fngw-set': { json: { key: 'k1' } },
  })
  t.teardown(tree.cleanup)
  const unit = { folder: tree.path('shop/cart'), label: 'shop/cart' }
  const records = new InstallRecords('node', new FakeClock())
  t.equal(records.of(unit.folder), null)
  records.note(unit, { facts: FACTS, key: 'k1' }, 'signed', {
    status: 'ok',
    error: null,
    outcome: OUTCOME,
    settled: SETTLED,
  })
  const written: unknown = JSON.parse(readFileSync(tree.path('shop/cart/node_modules/.svc-deps-state.json'), 'utf8'))
  t.same(written, records.of(unit.folder))
  t.match(written, {
    runtime: 'node',
    mode: 'inferred',
    manifest_path: 'shop/cart/package.json',
    manifest_generated: true,
    lockfile_path: 'shop/cart/package-lock.json',
    resolved_packages: ['left@1.0.0'],
    unresolved_imports: ['right'],
    install_signature: 'signed',
    set: 'k1',
    updated_at: /^20\d\d-/,
  })
  const fresh = new InstallRecords('node', new FakeClock())
  t.same(fresh.of(unit.folder), written, 'a gateway that starts again knows it')
  fresh.note(unit, { facts: FACTS, key: 'k2' }, 'edited', { status: 'error', error: 'no network' })
  t.match(fresh.of(unit.folder), {
    last_install_status: 'error',
    last_error: 'no network',
    manifest_generated: true,
    unresolved_imports: ['left', 'right'],
    set: 'k1',
  })
})

t.test('[dependencies/install.4] a folder that cannot be written is told of all the same', async t => {
  // A folder has the name of the file, which root could write otherwise.
  const tree = makeTree({ '.deps/.fngw-set': { json: { key: 'k' } }, '.deps/.svc-deps-state.json/mine/': '' })
  t.teardown(tree.cleanup)
  const records = new InstallRecords('python', new FakeClock())
  const unit = { folder: tree.root, label: '.' }
  records.note(unit, { facts: { ...FACTS, manifest: 'requirements.txt' }, key: 'k' }, 's', {
    status: 'ok',
    error: null,
  })
  t.match(records.of(unit.folder), { manifest_path: 'requirements.txt', lockfile_path: null, set: null })
})
