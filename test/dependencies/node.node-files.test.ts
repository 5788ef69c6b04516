import { readFileSync, writeFileSync } from 'node:fs'
import t from 'tap'
import { makeNpmBed } from '../helpers/npm-bed.ts'

// Interpreters and installers are slow on a busy machine.
t.setTimeout(180_000)

t.test('[dependencies/node.5] imports become a manifest, with what was installed', async t => {
  const bed = await makeNpmBed(t, {
    'f/handler.js': "exports.handler = () => require('left')\nrequire('@test/right/x')",
  })
  await bed.builds.prepare(bed.fn('f'))
  t.match(bed.json('f/package.json'), {
    name: 'fn-f',
    private: true,
    dependencies: { left: '^2.1.0', '@test/right': '^1.5.0' },
  })
  t.match(bed.json('f/package-lock.json'), { name: 'fn-f', packages: { '': { dependencies: { left: '^2.1.0' } } } })
  t.equal(bed.print('f', "require('left') + ', ' + require('@test/right')"), 'left 2, right with left 1')
  t.match(bed.json('f/node_modules/.svc-deps-state.json'), {
    runtime: 'node',
    mode: 'inferred',
    manifest_path: 'f/package.json',
    manifest_generated: true,
    infer_backend: 'native',
    inferred_imports: ['left', '@test/right'],
    resolved_packages: ['left@2.1.0', '@test/right@1.5.0'],
    unresolved_imports: [],
    last_install_status: 'ok',
    last_error: null,
    lockfile_path: 'f/package-lock.json',
  })
  t.same(bed.seen.told, ['installing packages of f', 'f: left@2.1.0, @test/right@1.5.0'])
})

t.test('[dependencies/node.5] a manifest keeps its pins; what is imported and missing is appended', async t => {
  const manifest = '{\n    "name": "mine",\n    "dependencies": { "left": "1.0.0" }\n}\n'
  const bed = await makeNpmBed(t, {
    'f/handler.js': "require('left'); require('@test/right')",
    'f/package.json': manifest,
  })
  await bed.builds.prepare(bed.fn('f'))
  t.match(readFileSync(bed.tree.path('f/package.json'), 'utf8'), '"left": "1.0.0", "@test/right": "^1.5.0"')
  t.equal(bed.json('f/package.json').name, 'mine')
  t.equal(bed.json('f/package-lock.json').name, 'mine')
  t.equal(bed.print('f', "require('left')"), 'left 1')
  t.match(bed.json('f/node_modules/.svc-deps-state.json'), { mode: 'manifest', manifest_generated: false })
})

t.test('[dependencies/node.9] a lock file is installed from as it is; one that does not fit is made again', async t => {
  const bed = await makeNpmBed(t, {
    'f/handler.js': "require('left')",
    'f/package.json': JSON.stringify({ dependencies: { left: '*' } }),
  })
  await bed.builds.prepare(bed.fn('f'))
  const lock = bed.json('f/package-lock.json')
  // As an author would pin an older one.
  const pinned = { ...lock.packages['node_modules/left'], version: '1.0.0' }
  delete pinned.integrity
  delete pinned.resolved
  pinned.resolved = `${bed.registry.url}/left/-/left-1.0.0.tgz`
  writeFileSync(
    bed.tree.path('f/package-lock.json'),
    JSON.stringify({ ...lock, packages: { ...lock.packages, 'node_modules/left': pinned } }),
  )
  await bed.again().prepare(bed.fn('f'))
  t.equal(bed.print('f', "require('left')"), 'left 1', 'the lock file pins what the range leaves open')
  writeFileSync(bed.tree.path('f/package.json'), JSON.stringify({ dependencies: { left: '^2.0.0' } }))
  await bed.again().prepare(bed.fn('f'))
  t.equal(bed.print('f', "require('left')"), 'left 2', 'npm ci refused it, npm install made it anew')
  t.equal(bed.json('f/package-lock.json').packages['node_modules/left'].version, '2.1.0')
})

t.test(
  '[dependencies/node.17] with FN_AUTO_INFER_WRITE_MANIFEST=0 packages are installed and nothing is written',
  async t => {
    const bed = await makeNpmBed(t, { 'f/handler.js': "require('left')" }, { writesManifest: false })
    await bed.builds.prepare(bed.fn('f'))
    t.equal(bed.print('f', "require('left')"), 'left 2')
    t.notOk(bed.has('f/package.json'))
    t.notOk(bed.has('f/package-lock.json'))
    t.match(bed.json('f/node_modules/.svc-deps-state.json'), {
      mode: 'inferred',
      manifest_path: null,
      manifest_generated: false,
    })
  },
)
