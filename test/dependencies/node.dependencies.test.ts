import { relative } from 'node:path'
import t from 'tap'
import { failureOf, makeNpmBed } from '../helpers/npm-bed.ts'

// Interpreters and installers are slow on a busy machine.
t.setTimeout(180_000)

t.test(
  '[dependencies/node.4, dependencies/node.11] hostile manifests and lock files are refused before npm is started',
  async t => {
    const cases: [string, unknown, RegExp][] = [
      [
        'git',
        { left: 'git+ssh://git@host/x.git' },
        /f\/package\.json:1: dependencies: left comes from "git\+ssh:.*, not from the registry/,
      ],
      ['credentials', { left: 'https://user:planted-token@h/x?k=planted' }, /comes from "https:\/\/h\/x", not/],
      ['url', { left: 'http://127.0.0.1:1/x.tgz' }, /not from the registry/],
      ['option', { '--registry=http://x': '1' }, /"--registry" is not a package name/],
      ['path', { '../../x': '1' }, /"\.\.\/\.\.\/x" is not a package name/],
      ['shell', { left: '$(touch x)' }, /left: "\$\(touch" is not a version range/],
      ['workspace', { left: 'workspace:*' }, /left: "workspace:\*" is understood by other package managers than npm/],
      ['file', { left: 'file:../../../../etc' }, /file:\.\.\/\.\.\/\.\.\/\.\.\/etc is not in the functions root/],
      ['type', { left: 5 }, /left must be a version range as text, got 5/],
    ]
    for (const [name, dependencies, message] of cases) {
      const bed = await makeNpmBed(t, { 'f/handler.js': '', 'f/package.json': JSON.stringify({ dependencies }) })
      const error = await failureOf(bed.builds.prepare(bed.fn('f')))
      t.match(error.message, message, name)
      t.match(error.detail, { file: 'f/package.json', line: 1 })
      t.same(bed.registry.asked, [])
      t.notOk(bed.has('f/node_modules'))
    }
    const lock = {
      lockfileVersion: 3,
      packages: { '': { dependencies: { left: '1' } }, 'node_modules/left': { resolved: 'git+ssh://h/x' } },
    }
    const bed = await makeNpmBed(t, {
      'f/handler.js': '',
      'f/package.json': '{"dependencies":{"left":"1"}}',
      'f/package-lock.json': JSON.stringify(lock),
    })
    t.match(
      (await failureOf(bed.builds.prepare(bed.fn('f')))).message,
      /f\/package-lock\.json: left comes from "git\+ssh/,
    )
  },
)

t.test(
  '[dependencies/node.8, dependencies/node.2] nothing is installed for packs, for what a folder above has, and for nothing',
  async t => {
    const bed = await makeNpmBed(t, {
      'node_modules/above/index.js': '',
      'a/handler.js': "require('above'); require('fs')",
      'b/handler.js': "require('base')",
      'c/handler.js': '',
      'c/package.json': '{"type":"commonjs"}',
    })
    for (const fn of [bed.fn('a'), bed.fn('b', { sharedDeps: ['base'] }), bed.fn('c')]) await bed.builds.prepare(fn)
    t.same(bed.registry.asked, [])
    t.same(bed.seen.told, [])
    for (const name of ['a', 'b', 'c']) t.notOk(bed.has(`${name}/node_modules`))
  },
)

t.test(
  '[dependencies/node.17] without inference the manifest alone counts; strict refuses imports that are no package',
  async t => {
    const plain = await makeNpmBed(t, { 'f/handler.js': "require('left')" }, { infers: false })
    await plain.builds.prepare(plain.fn('f'))
    t.notOk(plain.has('f/node_modules'))
    const files = { 'f/handler.js': "require('left')\nimport('https://x/lib')" }
    const strict = await makeNpmBed(t, files, { isStrict: true })
    const error = await failureOf(strict.builds.prepare(strict.fn('f')))
    t.match(error.message, /f\/handler\.js:2: import of "https:\/\/x\/lib" is not a package that npm can install$/)
    t.match(error.detail, {
      file: 'f/handler.js',
      line: 2,
      hint: /import a file by \.\/ or \.\.\/, or a package by its name.*FN_AUTO_INFER_STRICT=0/,
    })
    const loose = await makeNpmBed(t, files)
    await loose.builds.prepare(loose.fn('f'))
    t.same(loose.json('f/node_modules/.svc-deps-state.json').unresolved_imports, ['https://x/lib'])
  },
)

const WORKSPACE = {
  'packages/left/package.json': '{"name":"left","version":"1.1.0"}',
  'packages/left/index.js': "module.exports = 'left of the workspace'",
  'node_modules/left': { symlink: '../packages/left' },
  'f/handler.js': "require('left')",
}

t.test("[dependencies/node.21] the workspace's package runs, not the public one of its name", async t => {
  for (const spec of ['*', 'workspace:*', '^1.0.0', 'file:../packages/left', 'latest']) {
    const manifest = { dependencies: { left: spec }, devDependencies: { config: 'workspace:*' } }
    const bed = await makeNpmBed(t, { ...WORKSPACE, 'f/package.json': JSON.stringify(manifest) })
    await bed.builds.prepare(bed.fn('f'))
    t.equal(bed.print('f', "require('left')"), 'left of the workspace', spec)
    t.same(bed.registry.asked, [], spec)
    t.notOk(bed.has('f/node_modules'))
    t.notOk(bed.has('f/package-lock.json'))
  }
})

t.test('[dependencies/node.21] what the workspace lacks is installed beside the function, once', async t => {
  const manifest = '{"dependencies":{"left":"*","scripted":"^1.0.0"},"devDependencies":{"config":"workspace:*"}}'
  const bed = await makeNpmBed(t, { ...WORKSPACE, 'f/package.json': manifest })
  const fn = bed.fn('f')
  await bed.builds.prepare(fn)
  t.equal(bed.print('f', "require('left')"), 'left of the workspace')
  t.equal(bed.print('f', "require('scripted/package.json').version"), '1.0.0')
  t.notOk(bed.has('f/node_modules/left'))
  t.same(Object.keys(bed.json('f/package-lock.json').packages[''].dependencies), ['scripted'])
  bed.seen.told.length = 0
  bed.tree.write({ 'f/handler.js': "require('left') // edited" })
  await bed.again().prepare({ ...fn, signature: 'edited' })
  t.same(bed.seen.told, [])
})

t.test('[dependencies/node.21] an install in the workspace is seen by the next call, without a save', async t => {
  const manifest = '{"dependencies":{"left":"workspace:*"}}'
  const { 'node_modules/left': link, ...files } = WORKSPACE
  const bed = await makeNpmBed(t, { ...files, 'f/package.json': manifest })
  const error = await failureOf(bed.builds.prepare(bed.fn('f')))
  t.match(error.detail, { hint: /run its install in the workspace/ })
  bed.tree.write({ 'node_modules/left': link })
  await bed.builds.prepare(bed.fn('f'))
  t.equal(bed.print('f', "require('left')"), 'left of the workspace')
})

t.test('[dependencies/node.21] a public package that was installed before the workspace had it is removed', async t => {
  const { 'node_modules/left': link, ...files } = WORKSPACE
  const bed = await makeNpmBed(t, { ...files, 'f/package.json': '{"dependencies":{"left":"*"}}' })
  await bed.builds.prepare(bed.fn('f'))
  t.equal(bed.print('f', "require('left')"), 'left 2')
  bed.tree.write({ 'node_modules/left': link })
  await bed.again().prepare(bed.fn('f'))
  t.equal(bed.print('f', "require('left')"), 'left of the workspace')
})

t.test("[dependencies/install.5] another tool's node_modules is used whatever the manifest names", async t => {
  for (const spec of ['workspace:*', 'file:../../outside', 'git+ssh://h/x']) {
    const bed = await makeNpmBed(t, {
      'f/handler.js': "require('left')",
      'f/package.json': JSON.stringify({ dependencies: { left: spec } }),
      'f/node_modules/left/index.js': "module.exports = 'theirs'",
    })
    await bed.builds.prepare(bed.fn('f'))
    t.equal(bed.print('f', "require('left')"), 'theirs', spec)
    t.same(bed.seen.told, [])
  }
})

t.test('[dependencies/node.4] with FN_NODE_PACKAGE_SOURCES=1 a path may lead out of the functions root', async t => {
  const away = t.testdir({ 'package.json': '{"name":"mine","version":"1.0.0"}', 'index.js': 'module.exports = 1' })
  const bed = await makeNpmBed(t, { 'f/handler.js': "require('mine')", 'f/package.json': '{}' }, { allowSources: true })
  const spec = `file:${relative(bed.tree.path('f'), away)}`
  bed.tree.write({ 'f/package.json': JSON.stringify({ dependencies: { mine: spec } }) })
  await bed.builds.prepare(bed.fn('f'))
  t.equal(bed.print('f', "require('mine')"), '1')
})

t.test('[dependencies/node.22] a package whose path changes is installed from the new one', async t => {
  const files = {
    'f/handler.js': "require('mine')",
    'lib/a/package.json': '{"name":"mine","version":"1.0.0"}',
    'lib/a/index.js': "module.exports = 'a'",
    'lib/b/package.json': '{"name":"mine","version":"1.0.0"}',
    'lib/b/index.js': "module.exports = 'b'",
  }
  const manifestOf = (dependencies: object) => JSON.stringify({ dependencies })
  const entry = { version: '1.0.0', resolved: 'file:../lib/a' }
  const linked = {
    'node_modules/mine': { resolved: '../lib/a', link: true },
    '../lib/a': { name: 'mine', version: '1.0.0' },
  }
  for (const packages of [{ 'node_modules/mine': entry }, linked]) {
    const bed = await makeNpmBed(t, {
      ...files,
      'f/package.json': manifestOf({ mine: 'file:../lib/b' }),
      'f/package-lock.json': JSON.stringify({
        lockfileVersion: 3,
        packages: { '': { dependencies: { mine: 'file:../lib/a' } }, ...packages },
      }),
    })
    await bed.builds.prepare(bed.fn('f'))
    t.equal(bed.print('f', "require('mine')"), 'b')
    t.match(bed.json('f/package-lock.json').packages, { 'node_modules/mine': { resolved: 'file:../lib/b' } })
    bed.tree.write({ 'f/package.json': manifestOf({ left: '^1.0.0' }), 'f/handler.js': "require('left')" })
    await bed.again().prepare({ ...bed.fn('f'), signature: 'edited' })
    t.equal(bed.print('f', "require('left')"), 'left 1', 'nor does it stand in the way when it is taken out')
  }
})

t.test('[dependencies/node.18] what is a file of the function is not asked of the registry', async t => {
  const entries = {
    'mapped/handler.ts': "import x from 'left'\nexport const handler = () => x\n",
    'mapped/tsconfig.json': '{ "compilerOptions": { "paths": { "left": ["./lib/mine.ts"] } } }',
    'mapped/lib/mine.ts': 'export default 1\n',
    'beside/handler.js': "\nrequire('left')\n",
    'beside/left.js': '',
    'named/handler.js': "require('left')\n",
    'named/left.js': '',
    'named/package.json': '{ "dependencies": { "left": "^1.0.0" } }',
  }
  const bed = await makeNpmBed(t, entries, { isStrict: true })
  await bed.builds.prepare(bed.fn('mapped', {}, 'handler.ts'))
  t.notOk(bed.has('mapped/node_modules'))
  const error = await failureOf(bed.builds.prepare(bed.fn('beside')))
  t.match(error.message, /beside\/handler\.js:2: import of "left" /)
  t.match(error.detail, { hint: /import a file by \.\/ .* name it in package\.json/ })
  t.same(bed.registry.asked, [])
  await bed.builds.prepare(bed.fn('named'))
  t.equal(bed.print('named', "require('left')"), 'left 1')
})

const BAD_FOLDER = {
  'f/good.js': "require('left')",
  'f/plain.js': '',
  'f/bad.js': "\nrequire('lefft')",
}

t.test(
  '[dependencies/install.14] an import that cannot be installed fails its handler, and neighbours get the rest',
  async t => {
    const bed = await makeNpmBed(t, BAD_FOLDER, { isStrict: true })
    const all = ['good', 'plain', 'bad'].map(name => bed.fn('f', {}, `${name}.js`))
    bed.builds.retain(new Map(all.map(fn => [fn.key, fn])))
    const [good, plain, bad] = await Promise.allSettled(all.map(fn => bed.builds.prepare(fn)))
    t.equal(good?.status, 'fulfilled')
    t.equal(plain?.status, 'fulfilled')
    t.match(bad, {
      status: 'rejected',
      reason: { message: /f\/bad\.js:2: .*E404/, detail: { file: 'f/bad.js', line: 2, hint: /lefft is not in/ } },
    })
    t.equal(bed.print('f', "require('left')"), 'left 2')
    t.same(bed.json('f/package.json').dependencies, { left: '^2.1.0' })
    t.same(bed.json('f/node_modules/.svc-deps-state.json').unresolved_imports, ['lefft'])
    t.equal(bed.registry.asked.filter(path => path === '/lefft').length, 1)
  },
)

t.test('[dependencies/install.14] without strict the function runs, and a warning names the import', async t => {
  const bed = await makeNpmBed(t, { 'f/handler.js': "require('left')\nif (process.env.NEVER) require('lefft')" })
  await bed.builds.prepare(bed.fn('f'))
  t.equal(bed.print('f', "require('left')"), 'left 2')
  t.match(bed.json('f/node_modules/.svc-deps-state.json'), {
    resolved_packages: ['left@2.1.0'],
    unresolved_imports: ['lefft'],
    last_error: /E404/,
  })
  t.match(bed.seen.notes, [/f\/handler\.js:2: .*E404.*lefft is not in the registry/])
  const asked = bed.registry.asked.length
  await bed.again().prepare(bed.fn('f'))
  t.equal(bed.registry.asked.length, asked, 'a start does not ask for it again')
  bed.tree.write({ 'f/handler.js': "require('left')\nrequire('lefft') // saved" })
  await bed.again().prepare(bed.fn('f'))
  t.ok(bed.registry.asked.length > asked, 'a save does')
})

t.test('[dependencies/node.19] optional imports are not installed, and are recorded', async t => {
  const handler = "require('left')\ntry { require('@test/right') } catch {}\nimport('lefft').catch(() => {})"
  const bed = await makeNpmBed(t, { 'f/handler.js': handler }, { isStrict: true })
  await bed.builds.prepare(bed.fn('f'))
  t.match(bed.json('f/node_modules/.svc-deps-state.json'), {
    resolved_packages: ['left@2.1.0'],
    inferred_imports: ['left', '@test/right', 'lefft'],
    unresolved_imports: ['@test/right', 'lefft'],
    last_error: null,
  })
  t.notOk(bed.registry.asked.some(path => /right|lefft/.test(path)))
})

t.test('[dependencies/node.20] where imports are only reported nothing is installed for them', async t => {
  const entries = {
    'f/handler.js': "\nrequire('left')",
    'g/handler.js': "require('left')\nrequire('@test/right')",
    'g/package.json': '{ "dependencies": { "left": "^1.0.0" } }',
  }
  const strict = await makeNpmBed(t, entries, { infers: 'report', isStrict: true })
  t.match(await failureOf(strict.builds.prepare(strict.fn('f'))), {
    message: 'install failed: f/handler.js:2: imports left, which f/package.json does not name',
    detail: {
      file: 'f/handler.js',
      line: 2,
      hint: /^run: fngw deps add left --to f; or set FN_AUTO_INFER_NODE_DEPS=1/,
    },
  })
  t.same(strict.registry.asked, [])
  const loose = await makeNpmBed(t, entries, { infers: 'report' })
  for (const name of ['f', 'g']) await loose.builds.prepare(loose.fn(name))
  t.equal(loose.print('g', "require('left')"), 'left 1', 'what the manifest names is installed')
  t.notOk(loose.has('f/node_modules/left'))
  t.match(loose.seen.notes, [/f\/handler\.js:2: imports left/, /g\/handler\.js:2: imports @test\/right/])
})

t.test('[bin/deps.5] packages that are asked for are installed and written into package.json', async t => {
  const bed = await makeNpmBed(t, { 'f/handler.js': '', 'g/handler.js': '' }, { infers: 'report' })
  for (const [name, text] of [
    ['f', 'left'],
    ['g', 'left@^1.0.0'],
  ] as const) {
    bed.builds.ask(bed.fn(name), [text])
    await bed.builds.prepare(bed.fn(name))
  }
  t.same(bed.json('f/package.json').dependencies, { left: '^2.1.0' })
  t.same(bed.json('g/package.json').dependencies, { left: '^1.0.0' })
  t.equal(bed.print('g', "require('left')"), 'left 1')
})
