import { existsSync, readdirSync } from 'node:fs'
import t from 'tap'
import { makePythonBed } from '../helpers/python-bed.ts'

// Interpreters and installers are slow on a busy machine.
t.setTimeout(180_000)

t.test('[dependencies/python.9] the toggles hold', async t => {
  const entries = { 'a/handler.py': 'import alpha\n', 'b/handler.py': '', 'b/requirements.txt': 'alpha==1.0\n' }
  const off = makePythonBed(t, entries, { settings: { autoRequirements: false } })
  for (const name of ['a', 'b']) await off.builds.prepare(off.fn(name))
  t.same(
    [...readdirSync(off.tree.path('a')), ...readdirSync(off.tree.path('b'))],
    ['handler.py', 'handler.py', 'requirements.txt'],
  )
  const blind = makePythonBed(t, entries, { settings: { autoInferPyDeps: false } })
  for (const name of ['a', 'b']) await blind.builds.prepare(blind.fn(name))
  t.same(readdirSync(blind.tree.path('a')), ['handler.py'])
  t.match(blind.record('b'), { infer_backend: null, inferred_imports: [], resolved_packages: ['alpha==1.0'] })
  const mute = makePythonBed(t, entries, { settings: { autoInferWriteManifest: false } })
  await mute.builds.prepare(mute.fn('a'))
  t.equal(mute.version('a'), "VERSION = '2.0'")
  t.notOk(existsSync(mute.tree.path('a/requirements.txt')))
  t.match(mute.record('a'), { manifest_path: null, manifest_generated: false })
  t.ok(mute.builds.isAhead(mute.fn('a')))
  const lazy = makePythonBed(t, entries, { settings: { preinstallPyDepsOnStart: false } })
  t.notOk(lazy.builds.isAhead(lazy.fn('a')))
})

t.test('[dependencies/python.11] packs are installed in their folder and not inferred again', async t => {
  const bed = makePythonBed(t, {
    'a/handler.py': 'import alpha, gam\n',
    '.svc/packs/python/tools/requirements.txt': 'gamma-tools\n',
  })
  await bed.builds.prepare(bed.fn('a', ['tools']))
  t.ok(existsSync(bed.tree.path('.svc/packs/python/tools/.deps/gam/__init__.py')))
  t.match(bed.record('a'), { inferred_imports: ['alpha'], unresolved_imports: [] })
  t.equal(bed.read('.svc/packs/python/tools/requirements.txt'), 'gamma-tools\n')
  await t.rejects(bed.builds.prepare(bed.fn('a', ['none'])), { message: /^shared pack not found: none \(looked in: / })
})
