import { symlinkSync } from 'node:fs'
import t from 'tap'
import { checkComposerSources, ComposerLock, ComposerManifest } from '../../lib/dependencies/composer-manifest.ts'
import { FilePackages } from '../../lib/dependencies/file-packages.ts'
import { makeTree } from '../helpers/tree.ts'

const manifestOf = (json: object) => new ComposerManifest(JSON.stringify(json, null, 2), 'shop/f/composer.json')
const paths = (...urls: string[]) => ({ repositories: urls.map(url => ({ type: 'path', url })) })

const packagesOf = (functionsRoot: string, label: string, allowSources: boolean) =>
  new FilePackages({ functionsRoot, allowSources }, label, 'vendor')

function makeBed(t: { teardown: (done: () => void) => void }) {
  const tree = makeTree({
    'shop/f/src/A.php': '',
    'shop/f/vendor/x.php': '',
    'shop/lib/composer.json': '{}',
    'shop/lib/src/L.php': '',
    'shop/lib/vendor/dev/x.php': 'no',
    'shop/lib2/composer.json': '{}',
    'shop/.hidden/composer.json': '{}',
    'zips/a.zip': '',
  })
  t.teardown(tree.cleanup)
  const check = (json: object, lock: ComposerLock | null = null, allowSources = false) =>
    checkComposerSources(manifestOf(json), lock, packagesOf(tree.root, 'shop/f', allowSources))
      .files.map(file => file.slice(tree.root.length + 1))
      .sort()
  return { tree, check }
}

t.test(
  '[dependencies/php.3] paths and patterns lead to files of the functions root, without what is installed there',
  t => {
    const { check } = makeBed(t)
    const lib = ['shop/lib/composer.json', 'shop/lib/src/L.php']
    t.same(check(paths('../lib')), lib)
    t.same(check(paths('./../lib/', '../lib')), lib, 'each once')
    t.same(check(paths('../lib*')), [...lib, 'shop/lib2/composer.json'])
    t.same(check(paths('../l?b')), lib)
    t.same(check(paths('../../*/lib2')), ['shop/lib2/composer.json'])
    t.same(check(paths('../none*')), [])
    t.same(check(paths('../*b')), lib)
    t.same(check(paths('../l*i*b*')), [...lib, 'shop/lib2/composer.json'])
    t.same(check(paths('../lib??')), [])
    t.same(check({ repositories: [{ type: 'artifact', url: '../../zips' }] }), ['zips/a.zip'])
    t.same(check({ autoload: { classmap: ['src', 'none'] } }), ['shop/f/src/A.php'])
    t.same(check({ autoload: { classmap: ['.'] } }), ['shop/f/src/A.php'])
    t.end()
  },
)

t.test('[dependencies/php.2] a path that leaves the functions root is refused, with its line', t => {
  const { tree, check } = makeBed(t)
  const away = makeTree({ 'x/composer.json': '{}' })
  t.teardown(away.cleanup)
  symlinkSync(away.root, tree.path('shop/away'))
  symlinkSync('lib', tree.path('shop/alias'))
  const cases: [string, RegExp][] = [
    ['../../../x', /"\.\.\/\.\.\/\.\.\/x" is not in the functions root/],
    [`../../../${tree.root.split('/').at(-1)}/shop/lib`, /is not in the functions root/],
    ['../../../*', /is not in the functions root/],
    ['../away/x', /is not there, or leads out of the functions root/],
    ['../alias', /leads over a link/],
    ['../none', /is not there/],
    ['/etc', /"\/etc" is not a plain path/],
    ['~/x', /not a plain path/],
    ['$HOME/x', /not a plain path/],
    ['%HOME%/x', /not a plain path/],
    ['../{lib,lib2}', /not a plain path/],
    ['C:\\x', /not a plain path/],
    ['../l\nib', /not a plain path/],
  ]
  for (const [url, message] of cases)
    t.throws(() => check(paths(url)), { message, detail: { file: 'shop/f/composer.json', line: 5 } }, url)
  t.same(check(paths('../a*')), [], 'patterns do not follow links')
  tree.write({ [`shop/${'a'.repeat(250)}/x`]: '' })
  t.same(check(paths(`../${'*a'.repeat(100)}*b`)), [], 'no pattern takes long')
  t.throws(() => check({ autoload: { classmap: ['../../../x'] } }), {
    message: /:4: autoload: .* is not in the functions root/,
  })
  t.end()
})

t.test(
  '[dependencies/php.2, dependencies/php.7] other repositories need the setting; what the lock file names is checked too',
  t => {
    const { check } = makeBed(t)
    const vcs = { repositories: [{ type: 'vcs', url: 'https://h/x.git' }] }
    t.throws(() => check(vcs), {
      message:
        /shop\/f\/composer\.json:5: repositories: packages come from "https:\/\/h\/x\.git", not from packagist\.org/,
      detail: { hint: 'take it out, or set FN_PHP_PACKAGE_SOURCES=1' },
    })
    t.same(check(vcs, null, true), [])
    t.throws(() => check({ repositories: [7] }, null, true), { message: /:2: repositories: 7 is not a repository/ })
    const lockOf = (dist: object) =>
      new ComposerLock(JSON.stringify({ packages: [{ name: 'a/b', dist }] }), 'shop/f/composer.lock')
    t.same(check({}, lockOf({ type: 'path', url: '../lib2' })), ['shop/lib2/composer.json'])
    t.same(check({}, lockOf({ type: 'zip', url: 'https://api.github.com/x.zip' })), [])
    t.throws(() => check({}, lockOf({ type: 'path', url: '../../../etc' })), {
      message: /shop\/f\/composer\.lock: "\.\.\/\.\.\/\.\.\/etc" is not in the functions root/,
      detail: { file: 'shop/f/composer.lock' },
    })
    const git = lockOf({ type: 'git', url: 'git@h:x' })
    t.throws(() => check({}, git), { message: /composer\.lock: a\/b comes from "git@h:x", not from packagist\.org/ })
    t.same(check({}, git, true), [])
    t.end()
  },
)

t.test('[dependencies/php.2] with FN_PHP_PACKAGE_SOURCES=1 a path may lead out of the functions root', async t => {
  const tree = makeTree({ 'root/f/composer.json': '{}', 'lib/composer.json': '{}' })
  t.teardown(tree.cleanup)
  const check = (allowSources: boolean) =>
    checkComposerSources(manifestOf(paths('../../lib')), null, packagesOf(tree.path('root'), 'f', allowSources)).files
  t.same(check(true), [tree.path('lib/composer.json')])
  t.throws(() => check(false), {
    message: /is not in the functions root/,
    detail: { hint: /composer install in the folder.*FN_PHP_PACKAGE_SOURCES=1/ },
  })
})
