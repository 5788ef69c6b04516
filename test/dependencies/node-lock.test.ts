import t from 'tap'
import { foreignLockNote, NodeLock, readNodeLock } from '../../lib/dependencies/node-lock.ts'
import { NodeManifest } from '../../lib/dependencies/node-manifest.ts'

const LOCK = {
  name: 'fngw-function',
  lockfileVersion: 3,
  requires: true,
  packages: {
    '': { name: 'fngw-function', dependencies: { a: '*' } },
    'node_modules/a': { version: '1.2.3', resolved: 'https://r/a.tgz', integrity: 'sha512-x' },
    'node_modules/a/node_modules/@s/b': { version: '2.0.0' },
    lib: { version: '1.0.0' },
  },
}
const lockOf = (json: unknown) => new NodeLock('package-lock.json', JSON.stringify(json), 'f/package-lock.json')

t.test('[dependencies/node.9] a lock file fits a manifest whose wishes it repeats', async t => {
  const lock = lockOf(LOCK)
  t.equal(lock.isOf('dependencies', { a: '*' }), true)
  t.equal(lock.isOf('optionalDependencies', {}), true)
  for (const other of [{}, { a: '1' }, { a: '*', b: '*' }, { b: '*' }]) t.equal(lock.isOf('dependencies', other), false)
  t.equal(lock.versionOf('a'), '1.2.3')
  t.equal(lock.versionOf('@s/b'), null, 'not right in node_modules')
  t.same(
    lock.packages.map(({ name }) => name),
    ['a', '@s/b'],
  )
})

t.test(
  '[dependencies/node.10] it is written with the name and wishes of the manifest beside it, and pins the same',
  async t => {
    const lock = lockOf(LOCK)
    const manifest = new NodeManifest('{"name":"mine","version":"3.0.0","dependencies":{"a":"^1.2.3"}}', 'p')
    const written = new NodeLock('package-lock.json', lock.toTextFor(manifest), 'l')
    t.equal(written.digest, lock.digest)
    t.equal(written.isOf('dependencies', manifest.of('dependencies')), true)
    const root = { name: 'mine', version: '3.0.0', dependencies: { a: '^1.2.3' } }
    t.match(JSON.parse(written.text), {
      name: 'mine',
      lockfileVersion: 3,
      packages: { '': root, 'node_modules/a': {} },
    })
    t.not(lockOf({ ...LOCK, packages: { 'node_modules/a': { version: '1.2.4' } } }).digest, lock.digest)
  },
)

t.test('[dependencies/node.11] sources in a lock file that are no registry are seen', async t => {
  const packages = (resolved: unknown) => ({ packages: { 'node_modules/a': { resolved } } })
  for (const resolved of ['git+ssh://git@h/x.git#1', 'ssh://h', 'ext::sh -c id'])
    t.same(lockOf(packages(resolved)).addresses, [resolved])
  for (const resolved of ['https://r/a.tgz', 'http://r/a.tgz', 'file:lib', '../lib', undefined, 5])
    t.same(lockOf(packages(resolved)).addresses, [])
  t.same(lockOf({ lockfileVersion: 1, dependencies: {} }).packages, [], 'the old format')
  for (const text of ['{', '[]', '5']) {
    t.throws(() => new NodeLock('package-lock.json', text, 'f/package-lock.json'), {
      message: /^install failed: f\/package-lock\.json: /,
    })
  }
})

t.test('[dependencies/node.12] lock files of other package managers are named with what to do', async t => {
  for (const [file, manager] of [
    ['pnpm-lock.yaml', 'pnpm'],
    ['yarn.lock', 'yarn'],
    ['bun.lock', 'bun'],
  ] as const) {
    const folder = t.testdir({ [file]: '' })
    const note = foreignLockNote(folder, 'shop', null) ?? ''
    t.match(note, `shop/${file} is not read`)
    t.match(note, `${manager} install`)
    t.equal(foreignLockNote(folder, 'shop', lockOf(LOCK)), null)
  }
  const both = t.testdir({ 'package-lock.json': JSON.stringify(LOCK), 'npm-shrinkwrap.json': '{}' })
  t.equal(readNodeLock(both, 'f')?.fileName, 'npm-shrinkwrap.json', 'as npm does')
  t.equal(foreignLockNote(both, 'f', null), null)
})
