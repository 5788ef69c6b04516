import { symlinkSync, writeFileSync } from 'node:fs'
import t from 'tap'
import { makePythonBed } from '../helpers/python-bed.ts'

// Interpreters and installers are slow on a busy machine.
t.setTimeout(180_000)

t.test('[dependencies/python.4, dependencies/python.5] imports make a manifest, and are appended to one', async t => {
  const pinned = '# keep\nalpha==1.0 # pinned'
  const bed = makePythonBed(t, {
    'none/handler.py': 'import alpha\nimport json\n',
    'some/handler.py': 'import alpha, beta\n',
    'some/requirements.txt': pinned,
  })
  await Promise.all(['none', 'some'].map(name => bed.builds.prepare(bed.fn(name))))
  t.match(bed.read('none/requirements.txt'), /^# Made by fngw .*\nalpha\n$/)
  t.equal(bed.read('some/requirements.txt'), `${pinned}\nbeta\n`)
  t.equal(bed.version('none'), "VERSION = '2.0'")
  t.equal(bed.version('some'), "VERSION = '1.0'")
  t.match(bed.record('none'), { mode: 'inferred', manifest_generated: true, manifest_path: 'none/requirements.txt' })
  // The manifest that was made asks for the same set.
  writeFileSync(bed.tree.path('none/handler.py'), 'import json\nimport alpha\n')
  bed.runs.length = 0
  await bed.makeBuilds().prepare(bed.fn('none'))
  t.same(bed.runs, [], 'nothing is installed again')
  t.match(JSON.parse(bed.read('none/.deps/.svc-deps-state.json')!), { mode: 'inferred', manifest_generated: true })
})

t.test('[dependencies/python.10] a manifest that is a link is read and not written', async t => {
  const bed = makePythonBed(t, { 'a/handler.py': 'import alpha\n', 'shared.txt': 'beta\n' })
  symlinkSync('../shared.txt', bed.tree.path('a/requirements.txt'))
  await bed.builds.prepare(bed.fn('a'))
  t.equal(bed.version('a', 'beta'), "VERSION = '1.0'")
  t.equal(bed.read('shared.txt'), 'beta\n')
})
