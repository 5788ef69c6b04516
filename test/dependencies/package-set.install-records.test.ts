import { readFileSync } from 'node:fs'
import t from 'tap'
import { InstallRecords } from '../../lib/dependencies/package-set.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeTree } from '../helpers/tree.ts'

const FIELDS = {
  mode: 'inferred',
  manifest_path: 'shop/cart/package.json',
  manifest_generated: true,
  infer_backend: 'native',
  inference_duration_ms: 3,
  inferred_imports: ['left', 'right'],
  resolved_packages: ['left@1.0.0'],
  unresolved_imports: ['right'],
  last_install_status: 'ok',
  last_error: null,
  lockfile_path: 'shop/cart/package-lock.json',
  install_signature: 'signed',
  set: 'k1',
} as const

t.test('[dependencies/install.4] what was found and done is kept with the packages', async t => {
  const tree = makeTree({
    'shop/cart/handler.js': '',
    'shop/cart/node_modules/.fngw-set': { json: { key: 'k1' } },
  })
  t.teardown(tree.cleanup)
  const folder = tree.path('shop/cart')
  const records = new InstallRecords('node', new FakeClock())
  t.equal(records.of(folder), null)
  records.note(folder, FIELDS)
  const written: unknown = JSON.parse(readFileSync(tree.path('shop/cart/node_modules/.svc-deps-state.json'), 'utf8'))
  t.same(written, records.of(folder))
  t.match(written, { runtime: 'node', ...FIELDS, updated_at: /^20\d\d-/ })
  t.same(new InstallRecords('node', new FakeClock()).of(folder), written, 'a gateway that starts again knows it')
})

t.test('[dependencies/install.4] the record of a folder that cannot be written is shown all the same', async t => {
  // A folder has the name of the file, which root could write otherwise.
  const tree = makeTree({ '.deps/.fngw-set': { json: { key: 'k' } }, '.deps/.svc-deps-state.json/mine/': '' })
  t.teardown(tree.cleanup)
  const records = new InstallRecords('python', new FakeClock())
  records.note(tree.root, { ...FIELDS, manifest_path: 'requirements.txt' })
  t.match(records.of(tree.root), { manifest_path: 'requirements.txt', set: 'k1' })
})
