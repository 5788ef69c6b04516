import t from 'tap'
import { ComposerManifest, isComposerName } from '../../lib/dependencies/composer-manifest.ts'

const make = (json: unknown) => new ComposerManifest(JSON.stringify(json, null, 2), 'f/composer.json')

t.test('[dependencies/php.2] a name is vendor/package, and nothing that reads as an option, path or address', t => {
  for (const name of ['monolog/monolog', 'Acme/Shape', 'a1/b-c', 'a.b/c_d', 'x/y--z']) t.ok(isComposerName(name), name)
  const wrong = ['', 'monolog', '-x/y', '--dev/x', 'a/-b', '../x', 'a/../b', 'a/b/c', '/a/b', 'a /b', 'a/b\n', 'a/b;c']
  for (const name of [...wrong, 'https://x/y', 'a/$(x)', `a/${'b'.repeat(220)}`, 'ä/b'])
    t.notOk(isComposerName(name), name)
  for (const text of ['a'.repeat(214), `a/${'b'.repeat(211)}!`])
    t.notOk(isComposerName(text), 'read once, not in all ways')
  t.throws(() => make({ require: { [`ext-${'a'.repeat(5000)}!`]: '*' } }), { message: /is not a package name/ })
  t.end()
})

t.test('[dependencies/php.2] requirements are packages, PHP and its extensions, with constraints as text', t => {
  const require = {
    php: '>=8',
    'php-64bit': '*',
    'ext-json': '*',
    'lib-icu': '*',
    'composer-runtime-api': '^2',
    'a/b': '1',
  }
  t.same(make({ require }).packages, ['a/b'])
  for (const field of ['require', 'require-dev', 'conflict', 'replace', 'provide']) {
    const at = `f/composer.json:3: ${field}: `
    t.throws(() => make({ [field]: { 'no-vendor': '*' } }), {
      message: `install failed: ${at}"no-vendor" is not a package name`,
    })
    t.throws(() => make({ [field]: { 'a/b': 'x\ny' } }), { message: /a\/b must be a version constraint as text/ })
    t.throws(() => make({ [field]: { 'a/b': null } }), { message: /got null/ })
    t.throws(() => make({ [field]: 'x' }), { message: new RegExp(`:2: ${field} must be an object, got "x"`) })
    t.same(make({ [field]: [] }).packages, [], 'PHP writes an empty object as a list')
  }
  t.end()
})

t.test(
  '[dependencies/php.4] Composer gets what decides about packages and classes, and nothing that runs or leads elsewhere',
  t => {
    const kept = {
      name: 'a/root',
      require: { 'a/b': '*' },
      'require-dev': { 'a/c': '*' },
      repositories: [{ 'packagist.org': false }],
      'minimum-stability': 'dev',
      'prefer-stable': true,
      autoload: { 'psr-4': { 'A\\': 'src/' } },
      extra: { x: [1] },
    }
    const json = {
      ...kept,
      scripts: { 'post-install-cmd': 'evil' },
      bin: ['x'],
      'autoload-dev': { files: ['x.php'] },
      config: {
        platform: { php: '8.1' },
        'vendor-dir': '/evil',
        'bin-dir': '/evil',
        'cache-dir': '/evil',
        'secure-http': false,
        'allow-plugins': true,
        'http-basic': { h: { username: 'u' } },
        lock: false,
      },
    }
    const config = { platform: { php: '8.1' }, 'allow-plugins': { 'a/plug': true, '*': false } }
    t.same(make(json).toStaged(['a/plug']), { ...kept, config })
    t.equal(JSON.stringify(make({}).toStaged([])), '{"config":{"allow-plugins":{"*":false}}}')
    t.equal(make(json).wantsLock, false)
    t.ok(make({}).wantsLock)
    t.end()
  },
)

t.test('[dependencies/php.3] options that make links are left out, others stay', t => {
  const path = (options?: object) => ({ type: 'path', url: '../x', ...(options && { options }) })
  const staged = (repositories: unknown) => make({ repositories }).toStaged([]).repositories
  t.same(staged([path({ symlink: true, reference: 'none' })]), [path({ reference: 'none' })])
  t.same(staged({ mine: path({ symlink: true }), 'packagist.org': false }), { mine: path(), 'packagist.org': false })
  t.same(staged([path({ symlink: false })]), [path({ symlink: false })])
  t.end()
})

t.test('[dependencies/php.2] repositories are paths, off, or addresses', t => {
  const kinds = (repositories: unknown) => make({ repositories }).sources.map(({ kind }) => kind)
  t.same(kinds(undefined), [])
  t.same(kinds([{ type: 'path', url: 'x' }, { type: 'artifact', url: 'x' }, { 'packagist.org': false }]), [
    'path',
    'path',
    'off',
  ])
  t.same(kinds({ packagist: false, x: { type: 'vcs', url: '../x' } }), ['off', 'address'])
  t.same(
    kinds([
      { type: 'composer', url: 'https://x' },
      { type: 'package', package: {} },
    ]),
    ['address', 'address'],
  )
  const wrong = [[null], ['x'], [{}].map(() => ({ url: 'x' })), [{ type: 'path' }], [{ type: 7 }], 'x', 7, null]
  for (const repositories of wrong) t.same(kinds(repositories), ['wrong'], JSON.stringify(repositories))
  t.equal(make({ repositories: [{ type: 'vcs', url: 'https://h' }] }).lineOf('https://h'), 5)
  t.end()
})

t.test(
  '[dependencies/php.1] asking is a requirement or a rule for classes; searched are class maps, and all when they are to be listed',
  t => {
    for (const json of [{}, { require: {} }, { name: 'a/b' }, { 'require-dev': { 'a/b': '*' } }])
      t.notOk(make(json).isAsking)
    for (const json of [{ require: { php: '*' } }, { autoload: { files: ['x.php'] } }]) t.ok(make(json).isAsking)
    const autoload = { classmap: ['a', 'b/'], 'psr-4': { 'X\\': ['c', 'd'], 'Y\\': 'e' }, files: ['f.php'] }
    t.same(make({ autoload }).classPaths, ['a', 'b/'])
    t.same(make({ autoload, config: { 'optimize-autoloader': true } }).classPaths, ['a', 'b/', 'c', 'd', 'e'])
    t.same(make({ autoload: [] }).classPaths, [])
    t.end()
  },
)
