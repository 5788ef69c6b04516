import { rmSync } from 'node:fs'
import t from 'tap'
import { failureOf, makeNpmBed } from '../helpers/npm-bed.ts'

// Interpreters and installers are slow on a busy machine.
t.setTimeout(180_000)

t.test('[dependencies/node.12] a pnpm lock file is told; npm that is missing is told with what to do', async t => {
  const bed = await makeNpmBed(t, { 'f/handler.js': "require('left')", 'f/pnpm-lock.yaml': '' })
  await bed.builds.prepare(bed.fn('f'))
  t.match(bed.seen.notes, [/^f\/pnpm-lock\.yaml is not read: packages are installed by npm/])
  bed.tree.write({ 'g/handler.js': "require('left')", 'g/yarn.lock': '' })
  await bed.builds.prepare(bed.fn('g'))
  t.match(bed.seen.notes[1], /^g\/yarn\.lock is not read/, 'also where the packages are there already')
  const without = await makeNpmBed(t, { 'f/handler.js': "require('left')" }, { findNpm: () => null })
  const error = await failureOf(without.builds.prepare(without.fn('f')))
  t.match(error, { message: 'install failed: f: npm is not on PATH', detail: { hint: /FN_NPM_BIN/ } })
  rmSync(bed.tree.path('f/node_modules'), { recursive: true })
})

t.test('[dependencies/node.8] a pack is installed in its folder, and what it has is not installed again', async t => {
  const bed = await makeNpmBed(t, {
    '.svc/packs/node/base/package.json': '{"dependencies":{"left":"^1.0.0"}}',
    'f/handler.js': "require('left'); require('@test/right')",
  })
  await bed.builds.prepare(bed.fn('f', { sharedDeps: ['base'] }))
  t.equal(bed.print('.svc/packs/node/base', "require('left')"), 'left 1')
  t.same(Object.keys(bed.json('f/package.json').dependencies), ['@test/right'])
})

t.test(
  '[dependencies/node.9] a lock file that is empty or broken is not used, with a warning that names it',
  async t => {
    const manifest = '{"dependencies":{"left":"^1.0.0"}}'
    for (const text of ['', '<<<<<<< HEAD\n{}', '[]', '{"packages":{"node_modules/left":null}}']) {
      const files = { 'f/package.json': manifest, 'f/handler.js': "require('left')", 'f/package-lock.json': text }
      const bed = await makeNpmBed(t, files)
      await bed.builds.prepare(bed.fn('f'))
      t.match(bed.seen.notes, [/^f\/package-lock\.json: /], JSON.stringify(text))
      t.match(bed.seen.notes[0], /installed from package\.json instead/)
      t.equal(bed.print('f', "require('left')"), 'left 1')
      t.match(bed.json('f/package-lock.json'), { packages: { 'node_modules/left': {} } }, 'the file is made again')
    }
  },
)
