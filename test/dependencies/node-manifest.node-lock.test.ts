import t from 'tap'
import { NodeLock, NodeManifest, readNodeLock } from '../../lib/dependencies/node-manifest.ts'

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
  const isOf = (json: object) => lock.isOf(new NodeManifest(JSON.stringify(json), 'p'))
  t.equal(isOf({ dependencies: { a: '*' } }), true)
  t.equal(isOf({ dependencies: { a: '*' }, optionalDependencies: {} }), true)
  t.equal(isOf({ dependencies: { a: '*' }, optionalDependencies: { b: '*' } }), false)
  for (const dependencies of [{}, { a: '1' }, { a: '*', b: '*' }, { b: '*' }]) t.equal(isOf({ dependencies }), false)
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
    t.equal(written.isOf(manifest), true)
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
  for (const resolved of ['git+ssh://git@h/x.git#1', 'ssh://h', 'ext::sh -c id', 'git@h:x.git'])
    t.same(lockOf(packages(resolved)).sources, [{ name: 'a', text: resolved, path: null }])
  for (const [resolved, path] of [
    ['file:lib', 'lib'],
    ['file:/outside', '/outside'],
    ['../lib', '../lib'],
  ])
    t.same(lockOf(packages(resolved)).sources, [{ name: 'a', text: resolved, path }])
  for (const resolved of ['https://r/a.tgz', 'http://r/a.tgz', undefined])
    t.same(lockOf(packages(resolved)).sources, [])
  const linked = { packages: { 'node_modules/a': { resolved: 'http://h/x', link: true } } }
  t.match(lockOf(linked).sources, [{ name: 'a', path: 'http://h/x' }], 'a link')
  const version = { packages: { 'node_modules/a': { version: 'http://h/x.tgz' } } }
  t.match(lockOf(version).sources, [{ text: 'http://h/x.tgz', path: null }])
  const lacking = {
    packages: { 'node_modules/a': { version: '1.0.0', dependencies: { b: 'http://h/b.tgz', c: '^1' } } },
  }
  t.match(lockOf(lacking).sources, [{ text: 'http://h/b.tgz', path: null }])
  const old = { a: { version: '1.0.0', resolved: 'http://r/a', dependencies: { b: { version: 'git://h/b' } } } }
  t.match(lockOf({ lockfileVersion: 1, dependencies: old }).sources, [{ name: 'b', text: 'git://h/b' }])
  t.same(lockOf({ lockfileVersion: 1, dependencies: {} }).packages, [], 'the old format')
  for (const text of ['{', '[]', '5']) {
    t.throws(() => new NodeLock('package-lock.json', text, 'f/package-lock.json'), {
      message: /^f\/package-lock\.json: /,
    })
  }
})

t.test('[dependencies/node.11] npm gets no address of a tarball, and the digests', async t => {
  t.match(JSON.parse(lockOf(LOCK).toStaged()).packages, {
    'node_modules/a': { version: '1.2.3', resolved: undefined, integrity: 'sha512-x' },
  })
  const old = { a: { version: '1.0.0', resolved: 'http://r/a', dependencies: { b: { resolved: 'http://r/b' } } } }
  t.notMatch(lockOf({ lockfileVersion: 1, dependencies: old }).toStaged(), 'http://r')
})

t.test('[dependencies/node.12] lock files of other package managers are named with what to do', async t => {
  for (const [file, manager] of [
    ['pnpm-lock.yaml', 'pnpm'],
    ['yarn.lock', 'yarn'],
    ['bun.lock', 'bun'],
  ] as const) {
    const note = readNodeLock(t.testdir({ [file]: '' }), 'shop').note ?? ''
    t.match(note, `shop/${file} is not read`)
    t.match(note, `${manager} install`)
    const beside = t.testdir({ [file]: '', 'package-lock.json': JSON.stringify(LOCK) })
    t.equal(readNodeLock(beside, 'shop').note, null)
  }
  const both = t.testdir({ 'package-lock.json': JSON.stringify(LOCK), 'npm-shrinkwrap.json': '{}' })
  const { lock, note } = readNodeLock(both, 'f')
  t.same([lock?.fileName, note], ['npm-shrinkwrap.json', null], 'as npm does')
})

t.test('[dependencies/node.9] a lock file that is broken is not used, and the reason names it', t => {
  for (const [text, why] of [
    ['', /^f\/package-lock\.json: not valid JSON; packages are installed from package\.json instead/],
    ['[]', /^f\/package-lock\.json: must be a JSON object; /],
    ['{"packages":"x"}', /^f\/package-lock\.json: packages must be an object; /],
    ['{"packages":{"node_modules/a":null}}', /: packages\["node_modules\/a"\] must be an object; /],
    ['{"packages":{"node_modules/a":{"version":5}}}', /: packages\["node_modules\/a"\]\.version must be a version; /],
    ['{"packages":{"node_modules/a":{"version":"x"}}}', /: packages\["node_modules\/a"\]\.version must be a version; /],
    ['{"packages":{"node_modules/a":{"dependencies":[]}}}', /"\]\.dependencies must be an object; /],
    ['{"dependencies":{"a":1}}', /: dependencies\["a"\] must be an object; /],
    [
      '{"dependencies":{"a":{"dependencies":{"b":"1"}}}}',
      /: dependencies\["a"\]\.dependencies\["b"\] must be an object; /,
    ],
  ] as const) {
    const folder = t.testdir({ 'package-lock.json': text })
    const { lock, note } = readNodeLock(folder, 'f')
    t.equal(lock, null)
    t.match(note, why)
  }
  for (const version of [
    '1.2.3-rc.1+5',
    'file:../a',
    'git+ssh://git@h/a.git#1',
    'npm:b@1.0.0',
    'owner/a#1',
    undefined,
  ]) {
    for (const text of [{ packages: { 'node_modules/a': { version } } }, { dependencies: { a: { version } } }])
      t.equal(readNodeLock(t.testdir({ 'package-lock.json': JSON.stringify(text) }), 'f').note, null, String(version))
  }
  t.same(readNodeLock(t.testdir({}), 'f'), { lock: null, note: null })
  t.end()
})
