import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import t from 'tap'
import { findOnPath } from '../../lib/runtime/binaries.ts'
import { makeComposerBed, manifest, NO_COMPOSER, PLUGIN } from '../helpers/composer-bed.ts'

// Composer is slow on a busy machine.
t.setTimeout(180_000)

t.test(
  '[dependencies/php.1] composer.json is installed into vendor with an autoloader',
  { skip: NO_COMPOSER },
  async t => {
    const bed = makeComposerBed(t, {
      'f/composer.json': manifest(
        { php: '>=8', 'acme/shape': '^1', 'acme/frame': '*' },
        { 'require-dev': { 'acme/shape': '*' }, autoload: { 'psr-4': { 'App\\': 'src/' }, classmap: ['old/'] } },
      ),
      'f/src/Own.php': "<?php namespace App; class Own { const NAME = 'own'; }",
      'f/old/names.php': "<?php class Old { const NAME = 'old'; }",
    })
    await bed.builds.prepare(bed.fn('f'))
    t.equal(bed.print('f', "Acme\\Frame::TEXT . ', ' . App\\Own::NAME . ', ' . Old::NAME"), 'frame of 1.2, own, old')
    t.same(bed.seen.told, ['installing packages of f', 'f: acme/shape:1.2.0, acme/frame:1.0.0'])
    t.notOk(existsSync(bed.tree.path('f/vendor/acme/shape/.git')))
    t.same(readdirSync(bed.tree.path('f')).sort(), ['composer.json', 'composer.lock', 'old', 'src', 'vendor'])
  },
)

t.test(
  '[dependencies/php.16] the record has every field, and lies with the packages: php writes no state file beside the handler',
  { skip: NO_COMPOSER },
  async t => {
    const bed = makeComposerBed(t, { 'f/composer.json': manifest({ 'acme/shape': '^2' }) })
    await bed.builds.prepare(bed.fn('f'))
    const record = {
      runtime: 'php',
      mode: 'manifest',
      manifest_path: 'f/composer.json',
      manifest_generated: false,
      infer_backend: null,
      inference_duration_ms: 0,
      inferred_imports: [],
      resolved_packages: ['acme/shape:2.0.0'],
      unresolved_imports: [],
      last_install_status: 'ok',
      last_error: null,
      lockfile_path: 'f/composer.lock',
    }
    t.match(bed.json('f/vendor/.svc-deps-state.json'), record)
    t.match(bed.again().recordOf(bed.fn('f')), record)
    t.notOk(existsSync(bed.tree.path('f/.svc-deps-state.json')))
    writeFileSync(bed.tree.path('f/composer.json'), JSON.stringify({ require: { 'acme/none': '*', 'a b': '1' } }))
    await bed.failure(bed.fn('f', {}, '2'))
    writeFileSync(bed.tree.path('f/composer.json'), JSON.stringify(gone()))
    await bed.failure(bed.fn('f', {}, '3'))
    t.match(bed.again().recordOf(bed.fn('f')), {
      last_install_status: 'error',
      last_error: /acme\/none/,
      resolved_packages: [],
    })
    t.equal(bed.print('f', 'Acme\\Shape::VERSION'), '2.0', 'the old set is in place')
  },
)

const gone = () => ({ repositories: [{ 'packagist.org': false }], require: { 'acme/none': '*' } })

t.test(
  '[dependencies/php.8] nothing is installed again when nothing changed: after an edit, a restart, in another function',
  { skip: NO_COMPOSER },
  async t => {
    const bed = makeComposerBed(t, {
      'f/composer.json': manifest({ 'acme/shape': '*' }),
      'f/handler.php': '<?php',
      'g/composer.json': manifest({ 'acme/shape': '*' }),
    })
    await bed.builds.prepare(bed.fn('f'))
    const { ino } = statSync(bed.tree.path('f/vendor/acme/shape/src/Shape.php'))
    writeFileSync(bed.tree.path('f/handler.php'), '<?php // edited')
    await bed.again().prepare(bed.fn('f'))
    await bed.again().prepare(bed.fn('f'))
    t.equal(statSync(bed.tree.path('f/vendor/acme/shape/src/Shape.php')).ino, ino)
    t.equal(bed.fills(), 1, 'the lock file stands for the set that it came with')
    writeFileSync(
      bed.tree.path('_lib/shape2/src/Shape.php'),
      "<?php namespace Acme; class Shape { const VERSION = 'x'; }",
    )
    await bed.again().prepare(bed.fn('f', {}, '2'))
    t.equal(bed.print('f', 'Acme\\Shape::VERSION'), 'x', 'a package in a path was edited')
  },
)

t.test(
  '[dependencies/php.9] equal manifests share their files; conflicting versions stand side by side',
  { skip: NO_COMPOSER },
  async t => {
    const bed = makeComposerBed(t, {
      'a/composer.json': manifest({ 'acme/shape': '^2' }),
      'one/composer.json': manifest({ 'acme/shape': '^1' }),
      'two/composer.json': manifest({ 'acme/shape': '^2' }),
    })
    await Promise.all(['a', 'one', 'two'].map(name => bed.builds.prepare(bed.fn(name))))
    const inode = (name: string) => statSync(bed.tree.path(`${name}/vendor/acme/shape/src/Shape.php`)).ino
    t.equal(inode('a'), inode('two'))
    t.equal(bed.fills(), 2)
    t.equal(bed.print('one', 'Acme\\Shape::VERSION'), '1.2')
    t.equal(bed.print('two', 'Acme\\Shape::VERSION'), '2.0')
  },
)

t.test(
  '[dependencies/php.6] a lock file pins; what it lacks is added, and its other versions stay',
  { skip: NO_COMPOSER },
  async t => {
    const bed = makeComposerBed(t, { 'f/composer.json': manifest({ 'acme/shape': '^1' }) })
    await bed.builds.prepare(bed.fn('f'))
    const lock = bed.read('f/composer.lock')
    t.match(lock, /"content-hash"/)
    // Somebody else's checkout: the lock file, and a range that would take the newer one.
    bed.tree.write({ 'g/composer.json': manifest({ 'acme/shape': '*' }), 'g/composer.lock': lock })
    await bed.builds.prepare(bed.fn('g'))
    t.equal(bed.print('g', 'Acme\\Shape::VERSION'), '1.2', 'the lock file pins what the range leaves open')
    t.match(bed.seen.notes, [/^g\/composer\.lock was made from another composer\.json and is used as it is/])
    t.equal(bed.read('g/composer.lock'), lock, 'not touched')
    bed.tree.write({ 'h/composer.json': manifest({ 'acme/shape': '*', 'acme/frame': '*' }), 'h/composer.lock': lock })
    await bed.builds.prepare(bed.fn('h'))
    t.equal(bed.print('h', 'Acme\\Frame::TEXT'), 'frame of 1.2')
    t.match(
      bed.json('h/composer.lock').packages.map(({ name, version }: Record<string, string>) => `${name} ${version}`),
      ['acme/frame 1.0.0', 'acme/shape 1.2.0'],
    )
    bed.tree.write({ 'i/composer.json': manifest({ 'acme/shape': '^2' }), 'i/composer.lock': lock })
    await bed.builds.prepare(bed.fn('i'))
    t.equal(bed.print('i', 'Acme\\Shape::VERSION'), '2.0', 'what contradicts it is brought up to date')
  },
)

t.test(
  '[dependencies/php.6] a gateway that was killed before it wrote the lock file is followed by one that does',
  { skip: NO_COMPOSER },
  async t => {
    const bed = makeComposerBed(t, { 'f/composer.json': manifest({ 'acme/shape': '^1' }) })
    await bed.builds.prepare(bed.fn('f'))
    const lock = bed.read('f/composer.lock')
    for (const file of ['f/composer.lock', 'f/vendor/.svc-deps-state.json']) rmSync(bed.tree.path(file))
    const fills = bed.fills()
    await bed.again().prepare(bed.fn('f'))
    t.equal(bed.read('f/composer.lock'), lock)
    t.equal(bed.fills(), fills, 'nothing is installed again')
  },
)

t.test(
  '[dependencies/php.6] no lock file is written over a link, or where the author wants none',
  { skip: NO_COMPOSER },
  async t => {
    const bed = makeComposerBed(t, {
      'f/composer.json': manifest({ 'acme/shape': '^1' }, { config: { lock: false } }),
      'g/composer.json': manifest({ 'acme/shape': '^1' }),
      'old.lock': '{"packages":[],"packages-dev":[]}',
    })
    symlinkSync('../old.lock', bed.tree.path('g/composer.lock'))
    await Promise.all(['f', 'g'].map(name => bed.builds.prepare(bed.fn(name))))
    t.notOk(existsSync(bed.tree.path('f/composer.lock')))
    t.equal(bed.read('old.lock'), '{"packages":[],"packages-dev":[]}')
    for (const name of ['f', 'g']) t.equal(bed.print(name, 'Acme\\Shape::VERSION'), '1.2')
  },
)

t.test(
  '[dependencies/php.3] a package in a path is copied, never linked, whatever the manifest says',
  { skip: NO_COMPOSER },
  async t => {
    const json = {
      repositories: [{ type: 'path', url: '../_lib/shape1', options: { symlink: true } }, { 'packagist.org': false }],
      require: { 'acme/shape': '*' },
    }
    const bed = makeComposerBed(t, { 'f/composer.json': { json } })
    await bed.builds.prepare(bed.fn('f'))
    t.ok(statSync(bed.tree.path('f/vendor/acme/shape')).isDirectory())
    rmSync(bed.tree.path('_lib'), { recursive: true })
    t.equal(bed.print('f', 'Acme\\Shape::VERSION'), '1.2')
  },
)

t.test(
  '[dependencies/php.10] scripts never run; plugins only of packages that allow_scripts names',
  { skip: NO_COMPOSER },
  async t => {
    const scripts = { 'post-install-cmd': 'touch script.txt', 'post-update-cmd': '@php -r "touch(\'script.txt\');"' }
    const bed = makeComposerBed(t, {
      ...PLUGIN,
      'a/composer.json': manifest({ 'acme/plug': '*' }, { scripts, config: { 'allow-plugins': true } }),
      'b/composer.json': manifest({ 'acme/plug': '*' }, { scripts }),
    })
    await bed.builds.prepare(bed.fn('a'))
    t.notOk(existsSync(bed.tree.path('a/vendor/plugged.txt')), 'the manifest cannot allow it')
    t.match(bed.seen.notes, [/^a: the plugins of acme\/plug did not run; name what needs them in allow_scripts/])
    await bed.builds.prepare(bed.fn('b', { allowScripts: ['Acme/Plug', 'esbuild'] }))
    t.ok(existsSync(bed.tree.path('b/vendor/plugged.txt')))
    t.notMatch(bed.read('b/vendor/plugged.txt'), /SECRET_TOKEN|COMPOSER_AUTH/)
    t.equal(bed.seen.notes.length, 1)
    t.notOk(readdirSync(bed.tree.root, { recursive: true }).some(name => String(name).endsWith('script.txt')))
  },
)

t.test(
  '[dependencies/php.2, dependencies/php.7] what leads out of the tree is refused before Composer is started',
  async t => {
    const require = { 'acme/shape': '*' }
    const cases: [string, object, RegExp][] = [
      [
        'git',
        { require, repositories: [{ type: 'vcs', url: 'git@host:x.git' }] },
        /packages come from "git@host:x\.git"/,
      ],
      [
        'registry',
        { require, repositories: { mine: { type: 'composer', url: 'http://h' } } },
        /come from "http:\/\/h"/,
      ],
      ['option', { require: { '--no-plugins': '*' } }, /require: "--no-plugins" is no name of a package/],
      ['path', { require: { '../x': '*' } }, /"\.\.\/x" is no name of a package/],
      ['shell', { require: { 'a/b; rm -rf x': '*' } }, /is no name of a package/],
      [
        'outside',
        { require, repositories: [{ type: 'path', url: '../../x' }] },
        /"\.\.\/\.\.\/x" is not in the functions root/,
      ],
      ['home', { require, repositories: [{ type: 'path', url: '~/x' }] }, /"~\/x" is no plain path/],
      ['variable', { require, repositories: [{ type: 'path', url: '$HOME/x' }] }, /"\$HOME\/x" is no plain path/],
    ]
    for (const [name, json, message] of cases) {
      const bed = makeComposerBed(t, { 'f/composer.json': { json } })
      const error = await bed.failure(bed.fn('f'))
      t.match(error, { message, detail: { file: 'f/composer.json', line: 1 } }, name)
      t.match(error.message, /^install failed: f\/composer\.json:1: /)
      t.equal(bed.fills(), 0)
      t.notOk(existsSync(bed.tree.path('f/vendor')))
    }
    const dist = { type: 'zip', url: 'file:///etc/x.zip' }
    const bed = makeComposerBed(t, {
      'f/composer.json': manifest(require),
      'f/composer.lock': { json: { packages: [{ name: 'acme/shape', version: '1', dist }] } },
    })
    const error = await bed.failure(bed.fn('f'))
    t.match(
      error.message,
      /f\/composer\.lock: acme\/shape comes from "file:\/\/\/etc\/x\.zip", not from packagist\.org/,
    )
    t.match(error.detail, { file: 'f/composer.lock', hint: /FN_PHP_PACKAGE_SOURCES=1/ })
  },
)

t.test('[dependencies/php.2] a setting allows other repositories', { skip: NO_COMPOSER }, async t => {
  const json = {
    repositories: [
      { type: 'package', package: { name: 'acme/inline', version: '1.0.0', type: 'metapackage' } },
      { 'packagist.org': false },
    ],
    require: { 'acme/inline': '*' },
  }
  const closed = makeComposerBed(t, { 'f/composer.json': { json } })
  t.match(await closed.failure(closed.fn('f')), { detail: { hint: /FN_PHP_PACKAGE_SOURCES=1/ } })
  const open = makeComposerBed(t, { 'f/composer.json': { json } }, { allowSources: true })
  await open.builds.prepare(open.fn('f'))
  t.match(open.json('f/vendor/.svc-deps-state.json').resolved_packages, ['acme/inline:1.0.0'])
})

t.test(
  '[dependencies/php.12] a failure names the line that asked, what Composer said and what to do',
  { skip: NO_COMPOSER },
  async t => {
    const failing = (require: Record<string, string>) =>
      JSON.stringify(
        { repositories: [{ type: 'path', url: '../_lib/*' }, { 'packagist.org': false }], require },
        null,
        2,
      )
    const cases: [string, Record<string, string>, number, RegExp, RegExp][] = [
      [
        'none',
        { 'acme/shape': '*', 'acme/none': '*' },
        13,
        /acme\/none, it could not be found in any version/,
        /no repository has acme\/none/,
      ],
      [
        'version',
        { 'acme/shape': '^9' },
        12,
        /acme\/shape \^9, found acme\/shape\[1\.2\.0, 2\.0\.0\]/,
        /change the version of acme\/shape/,
      ],
      ['extension', { 'ext-none': '*' }, 12, /PHP extension ext-none \* but it is missing/, /install what is missing/],
      ['php', { php: '>=99' }, 12, /requires php >=99 but your php version/, /install what is missing/],
      [
        'conflict',
        { 'acme/shape': '^2', 'acme/frame': '*' },
        13,
        /acme\/frame 1\.0\.0 requires acme\/shape \^1/,
        /change one of the constraints/,
      ],
      ['constraint', { 'acme/shape': '^^2' }, 12, /Could not parse version constraint \^\^2/, /correct composer\.json/],
    ]
    for (const [name, require, line, said, hint] of cases) {
      const bed = makeComposerBed(t, { 'f/composer.json': failing(require) })
      const error = await bed.failure(bed.fn('f'))
      t.match(
        error.message,
        new RegExp(`^install failed: f/composer\\.json:${line}: f: composer: .*${said.source}`),
        name,
      )
      t.match(error.detail, { file: 'f/composer.json', line, hint }, name)
      await bed.failure(bed.fn('f'))
      t.equal(bed.fills(), 1, 'not tried again until something changes')
      t.ok(error.message.length < 700)
    }
  },
)

t.test(
  '[dependencies/install.9] a failure that is kept names file and line of each folder that asked',
  { skip: NO_COMPOSER },
  async t => {
    const json = { repositories: [{ 'packagist.org': false }], require: { 'acme/none': '*' } }
    const bed = makeComposerBed(t, {
      'f/composer.json': JSON.stringify(json),
      'g/composer.json': JSON.stringify(json, null, 2),
    })
    t.match(await bed.failure(bed.fn('f')), { message: /f\/composer\.json:1: f: composer: / })
    t.match(await bed.failure(bed.fn('g')), {
      message: /^install failed: g\/composer\.json:8: g: composer: .*acme\/none/,
      detail: { file: 'g/composer.json', line: 8 },
    })
    t.equal(bed.fills(), 1, 'and is not tried again')
  },
)

t.test('[dependencies/install.11] a package that is saved while it is read fills no set', async t => {
  const bed = makeComposerBed(
    t,
    { 'f/composer.json': manifest({ 'acme/shape': '^1' }) },
    {
      findComposer: () => {
        bed.tree.write({ '_lib/shape1/src/Shape.php': '<?php // half' })
        return '/none/composer'
      },
    },
  )
  t.match(await bed.failure(bed.fn('f')), {
    message: 'install failed: f: a package in a path was changed while it was read; it is tried again',
  })
  t.same(readdirSync(bed.tree.path('.svc/deps')), [])
})

t.test(
  '[dependencies/php.11] no version is guessed from a repository that the functions root lies in',
  { skip: NO_COMPOSER || (findOnPath('git', process.env.PATH ?? '') === null && 'git is not installed') },
  async t => {
    const json = {
      repositories: [{ type: 'path', url: '../../_lib/*' }, { 'packagist.org': false }],
      require: { 'acme/loose': '@dev' },
    }
    const bed = makeComposerBed(t, {
      '_lib/loose/composer.json': { json: { name: 'acme/loose' } },
      'a/f/composer.json': { json },
    })
    const git = (...args: string[]) => execFileSync('git', args, { cwd: bed.tree.root, stdio: 'ignore' })
    git('init', '-b', '9.x')
    git('-c', 'user.name=a', '-c', 'user.email=a@b.example', 'commit', '--allow-empty', '-m', 'first')
    await bed.builds.prepare(bed.fn('a/f'))
    t.same(bed.json('a/f/vendor/.svc-deps-state.json').resolved_packages, ['acme/loose:dev-main'])
  },
)

t.test(
  '[dependencies/php.1] a function in the functions root itself has packages too',
  { skip: NO_COMPOSER },
  async t => {
    const json = {
      repositories: [{ type: 'path', url: '_lib/*' }, { 'packagist.org': false }],
      require: { 'acme/shape': '^1' },
    }
    const bed = makeComposerBed(t, { 'composer.json': { json } })
    await bed.builds.prepare(bed.fn('.'))
    t.equal(bed.print('.', 'Acme\\Shape::VERSION'), '1.2')
  },
)

t.test(
  '[dependencies/php.12] without network it is told, and tried again after a while',
  { skip: NO_COMPOSER },
  async t => {
    const bed = makeComposerBed(
      t,
      { 'f/composer.json': { json: { require: { 'acme/shape': '*' } } } },
      { env: { COMPOSER_DISABLE_NETWORK: '1' } },
    )
    const error = await bed.failure(bed.fn('f'))
    t.match(error, { message: /^install failed: f: composer: .*packagist/, detail: { hint: /check the network/ } })
    t.equal(error.detail?.file, undefined)
    t.match(bed.installer.recordOf(bed.fn('f')), { last_install_status: 'error', last_error: /packagist/ })
  },
)

t.test(
  '[dependencies/php.14] a missing Composer is told with how to get it, also to who asks for nothing else',
  async t => {
    const bed = makeComposerBed(
      t,
      { 'f/composer.json': manifest({ 'acme/shape': '*' }), 'g/composer.json': '{"description":"asks for nothing"}' },
      { findComposer: () => null },
    )
    t.match(await bed.failure(bed.fn('f')), {
      message: 'install failed: composer is not on PATH',
      detail: {
        hint: /^install it \(apt-get install composer\), set FN_COMPOSER_BIN to it, or set FN_AUTO_PHP_DEPS=0$/,
      },
    })
    await bed.builds.prepare(bed.fn('g'))
    t.same(readdirSync(bed.tree.path('g')), ['composer.json'])
  },
)

t.test('[dependencies/php.13] the toggles hold', async t => {
  const files = { 'f/composer.json': manifest({ 'acme/shape': '*' }) }
  const off = makeComposerBed(t, files, { isOn: false, isAhead: false })
  await off.builds.prepare(off.fn('f'))
  t.same(readdirSync(off.tree.path('f')), ['composer.json'])
  t.equal(off.fills(), 0)
  t.notOk(off.builds.isAhead(off.fn('f')))
  t.ok(makeComposerBed(t, files).builds.isAhead(off.fn('f')))
})

t.test('[dependencies/php.5] what is no manifest or no lock file is told with its place', async t => {
  const cases: [string, string, RegExp][] = [
    ['composer.json', '{\n"require": {\n}', /f\/composer\.json:\d: is not JSON/],
    ['composer.json', '[]', /f\/composer\.json: must be a JSON object/],
    [
      'composer.json',
      '{\n"require": "acme/shape"}',
      /f\/composer\.json:2: require must be an object, got "acme\/shape"/,
    ],
    ['composer.json', '{"require":{"a/b":\n7}}', /f\/composer\.json:1: require: a\/b must be a version constraint/],
    ['composer.lock', '<<<<<<< HEAD', /f\/composer\.lock: is not JSON/],
    ['composer.lock', '{}', /f\/composer\.lock: is no lock file of Composer 2/],
  ]
  for (const [file, text, message] of cases) {
    const bed = makeComposerBed(t, { 'f/composer.json': manifest({ 'acme/shape': '*' }), [`f/${file}`]: text })
    const error = await bed.failure(bed.fn('f'))
    t.match(error, { message, detail: { file: `f/${file}` } })
    t.equal(bed.fills(), 0)
  }
})

t.test(
  '[dependencies/php.17] a path repository whose path changes is installed anew',
  { skip: NO_COMPOSER },
  async t => {
    const of = (url: string) => ({
      json: { repositories: [{ type: 'path', url }, { 'packagist.org': false }], require: { 'acme/shape': '*' } },
    })
    const bed = makeComposerBed(t, { 'f/composer.json': of('../_lib/shape1') })
    await bed.builds.prepare(bed.fn('f'))
    t.equal(bed.print('f', 'Acme\\Shape::VERSION'), '1.2')
    bed.tree.write({ 'f/composer.json': of('../_lib/shape2') })
    await bed.builds.prepare({ ...bed.fn('f'), signature: 'edited' })
    t.equal(bed.print('f', 'Acme\\Shape::VERSION'), '2.0')
    t.match(bed.json('f/composer.lock').packages, [{ name: 'acme/shape', version: '2.0.0' }])
  },
)
