import t from 'tap'
import { ComposerLock, readComposerLock } from '../../lib/dependencies/composer-manifest.ts'
import { makeTree } from '../helpers/tree.ts'

const make = (json: unknown) => new ComposerLock(JSON.stringify(json), 'f/composer.lock')

t.test('[dependencies/php.6] a lock file tells versions and types, and is read from its folder', t => {
  const lock = make({
    packages: [
      { name: 'Acme/Shape', version: 'v1.2' },
      { name: 'a/plug', version: '1', type: 'composer-plugin' },
      7,
      { version: '1' },
    ],
  })
  t.equal(lock.versionOf('acme/Shape'), 'v1.2')
  t.equal(lock.versionOf('acme/none'), null)
  t.match(lock.packages, [
    { name: 'acme/shape', type: 'library' },
    { name: 'a/plug', type: 'composer-plugin' },
  ])
  const tree = makeTree({ 'f/composer.lock': '{"packages":[]}' })
  t.teardown(tree.cleanup)
  t.equal(readComposerLock(tree.path('f'), 'f')?.label, 'f/composer.lock')
  t.equal(readComposerLock(tree.root, '.'), null)
  t.end()
})

t.test('[dependencies/php.5] what is none is told', t => {
  for (const text of ['', '{', '[]', '{}', '{"packages":{}}', '"x"'])
    t.throws(() => new ComposerLock(text, 'f/composer.lock'), {
      message: /^install failed: f\/composer\.lock: is (?:not JSON|no lock file of Composer 2)$/,
      detail: { file: 'f/composer.lock', hint: /delete it/ },
    })
  t.end()
})

t.test('[dependencies/php.7] each place of a package is a path, https, or an address', t => {
  const kindsOf = (dist: unknown, source?: unknown) =>
    make({ packages: [], 'packages-dev': [{ name: 'a/b', dist, source }] }).sources.map(({ kind }) => kind)
  const zip = 'https://api.github.com/repos/a/b/zipball/1'
  t.same(kindsOf({ type: 'zip', url: zip }, { type: 'git', url: 'HTTPS://github.com/a/b.git' }), ['https', 'https'])
  for (const url of [
    'https://h/x.zip',
    'https://github.com.h/x',
    'https://github.com@h/x',
    'https://github.com:99/x',
    'https://',
  ])
    t.same(kindsOf({ type: 'zip', url }), ['address'], url)
  t.same(kindsOf({ type: 'path', url: '../x' }), ['path'])
  t.same(kindsOf({ type: 'zip', url: '../x.zip' }), ['path'])
  const addresses = ['http://h/x', 'file:///etc', 'git@h:x.git', 'git://h/x', 'ssh://h', 'ext::sh -c x', 'phar://x']
  for (const url of addresses) t.same(kindsOf({ type: 'zip', url }), ['address'], url)
  t.same(kindsOf(null, { type: 'git', url: '../x' }), ['address'], 'a repository beside it')
  t.same(kindsOf(7, { type: 'git' }), [])
  t.end()
})

t.test(
  '[dependencies/php.3, dependencies/php.8] links are left out of what Composer gets; spaces decide nothing',
  t => {
    const packages = [{ name: 'a/b', 'transport-options': { symlink: true, relative: true } }]
    const lock = make({ packages, 'packages-dev': packages })
    t.notMatch(lock.toStaged(), /symlink/)
    t.equal(lock.toStaged().match(/relative/g)?.length, 2)
    t.match(lock.text, /symlink/)
    t.equal(new ComposerLock(JSON.stringify({ packages, 'packages-dev': packages }, null, 9), 'x').digest, lock.digest)
    t.not(make({ packages }).digest, lock.digest)
    t.end()
  },
)
