import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import t from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import { makeNpmBed } from '../helpers/npm-bed.ts'

type Bed = Awaited<ReturnType<typeof makeNpmBed>>

const json = (bed: Bed, path: string) => JSON.parse(readFileSync(bed.tree.path(path), 'utf8'))
const has = (bed: Bed, path: string) => existsSync(bed.tree.path(path))
const print = (bed: Bed, name: string, code: string) =>
  execFileSync(process.execPath, ['-p', code], { cwd: bed.tree.path(name), encoding: 'utf8' }).trim()

async function failureOf(work: Promise<unknown>): Promise<GatewayError> {
  try {
    await work
  } catch (error) {
    if (error instanceof GatewayError) return error
  }
  throw new Error('nothing failed as it should')
}

t.test('[dependencies/node.5] imports become a manifest, with what was installed', async t => {
  const bed = await makeNpmBed(t, {
    'f/handler.js': "exports.handler = () => require('left')\nrequire('@test/right/x')",
  })
  await bed.builds.prepare(bed.fn('f'))
  t.match(json(bed, 'f/package.json'), {
    name: 'fn-f',
    private: true,
    dependencies: { left: '^2.1.0', '@test/right': '^1.5.0' },
  })
  t.match(json(bed, 'f/package-lock.json'), { name: 'fn-f', packages: { '': { dependencies: { left: '^2.1.0' } } } })
  t.equal(print(bed, 'f', "require('left') + ', ' + require('@test/right')"), 'left 2, right with left 1')
  t.match(json(bed, 'f/.svc-deps-state.json'), {
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

t.test(
  '[dependencies/node.13] what is installed is not installed again: after an edit, a restart, in another function',
  async t => {
    const text = "require('left')"
    const bed = await makeNpmBed(t, { 'f/handler.js': text, 'g/handler.js': text })
    await bed.builds.prepare(bed.fn('f'))
    const asked = bed.registry.asked.length
    const { ino } = statSync(bed.tree.path('f/node_modules/left/index.js'))
    writeFileSync(bed.tree.path('f/handler.js'), `${text} // edited`)
    await bed.again().prepare(bed.fn('f'))
    await bed.again().prepare(bed.fn('f'))
    t.equal(statSync(bed.tree.path('f/node_modules/left/index.js')).ino, ino)
    await bed.builds.prepare(bed.fn('g'))
    t.equal(statSync(bed.tree.path('g/node_modules/left/index.js')).ino, ino, 'one set for both, by hard links')
    t.equal(bed.registry.asked.length, asked, 'npm was not asked')
    t.match(json(bed, 'g/package.json'), { name: 'fn-g', dependencies: { left: '^2.1.0' } })
    t.equal(json(bed, 'f/.svc-deps-state.json').manifest_generated, true)
  },
)

t.test('[dependencies/node.5] a manifest keeps its pins; what is imported and missing is appended', async t => {
  const manifest = '{\n    "name": "mine",\n    "dependencies": { "left": "1.0.0" }\n}\n'
  const bed = await makeNpmBed(t, {
    'f/handler.js': "require('left'); require('@test/right')",
    'f/package.json': manifest,
  })
  await bed.builds.prepare(bed.fn('f'))
  t.match(readFileSync(bed.tree.path('f/package.json'), 'utf8'), '"left": "1.0.0", "@test/right": "^1.5.0"')
  t.equal(json(bed, 'f/package.json').name, 'mine')
  t.equal(json(bed, 'f/package-lock.json').name, 'mine')
  t.equal(print(bed, 'f', "require('left')"), 'left 1')
  t.match(json(bed, 'f/.svc-deps-state.json'), { mode: 'manifest', manifest_generated: false })
})

t.test('[dependencies/node.14] conflicting versions of one package stand side by side', async t => {
  const manifest = (range: string) => JSON.stringify({ dependencies: { left: range } })
  const bed = await makeNpmBed(t, {
    'a/handler.js': "require('left')",
    'a/package.json': manifest('^1.0.0'),
    'b/handler.js': "require('left')",
    'b/package.json': manifest('^2.0.0'),
  })
  await Promise.all([bed.builds.prepare(bed.fn('a')), bed.builds.prepare(bed.fn('b'))])
  t.equal(print(bed, 'a', "require('left')"), 'left 1')
  t.equal(print(bed, 'b', "require('left')"), 'left 2')
})

t.test('[dependencies/node.9] a lock file is installed from as it is; one that does not fit is made again', async t => {
  const bed = await makeNpmBed(t, {
    'f/handler.js': "require('left')",
    'f/package.json': JSON.stringify({ dependencies: { left: '*' } }),
  })
  await bed.builds.prepare(bed.fn('f'))
  const lock = json(bed, 'f/package-lock.json')
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
  t.equal(print(bed, 'f', "require('left')"), 'left 1', 'the lock file pins what the range leaves open')
  writeFileSync(bed.tree.path('f/package.json'), JSON.stringify({ dependencies: { left: '^2.0.0' } }))
  await bed.again().prepare(bed.fn('f'))
  t.equal(print(bed, 'f', "require('left')"), 'left 2', 'npm ci refused it, npm install made it anew')
  t.equal(json(bed, 'f/package-lock.json').packages['node_modules/left'].version, '2.1.0')
})

t.test(
  '[dependencies/node.15] install scripts run for the packages that allow_scripts names, and for no other',
  async t => {
    const bed = await makeNpmBed(t, { 'a/handler.js': "require('scripted')", 'b/handler.js': "require('scripted')" })
    await bed.builds.prepare(bed.fn('a'))
    t.notOk(has(bed, 'a/node_modules/scripted/made.txt'))
    t.match(bed.seen.notes, [/^a: install scripts of scripted did not run; name what needs them in allow_scripts/])
    await bed.builds.prepare(bed.fn('b', { allowScripts: ['scripted', 'absent'] }))
    t.ok(has(bed, 'b/node_modules/scripted/made.txt'))
    t.notOk(has(bed, 'a/node_modules/scripted/made.txt'), 'not the same set')
    const env = readFileSync(bed.tree.path('b/node_modules/scripted/made.txt'), 'utf8')
    t.notMatch(env, 'SECRET_TOKEN')
  },
)

t.test(
  '[dependencies/node.4, dependencies/node.11] hostile manifests and lock files are refused before npm is started',
  async t => {
    const cases: [string, unknown, RegExp][] = [
      [
        'git',
        { left: 'git+ssh://git@host/x.git' },
        /f\/package\.json:1: dependencies: left comes from "git\+ssh:.*, not from the registry/,
      ],
      ['url', { left: 'http://127.0.0.1:1/x.tgz' }, /not from the registry/],
      ['option', { '--registry=http://x': '1' }, /"--registry=http:\/\/x" is no name of a package/],
      ['path', { '../../x': '1' }, /"\.\.\/\.\.\/x" is no name of a package/],
      ['shell', { left: '$(touch x)' }, /left: "\$\(touch x\)" is no version range/],
      ['file', { left: 'file:../../../../etc' }, /file:\.\.\/\.\.\/\.\.\/\.\.\/etc is not in the functions root/],
      ['type', { left: 5 }, /left must be a version range as text, got 5/],
    ]
    for (const [name, dependencies, message] of cases) {
      const bed = await makeNpmBed(t, { 'f/handler.js': '', 'f/package.json': JSON.stringify({ dependencies }) })
      const error = await failureOf(bed.builds.prepare(bed.fn('f')))
      t.match(error.message, message, name)
      t.match(error.detail, { file: 'f/package.json', line: 1 })
      t.same(bed.registry.asked, [])
      t.notOk(has(bed, 'f/node_modules'))
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
      /f\/package-lock\.json: a package comes from "git\+ssh/,
    )
  },
)

t.test('[dependencies/node.4] a package named by a path is copied with all it needs', async t => {
  const bed = await makeNpmBed(t, {
    'shop/cart/handler.js': "require('local')",
    'shop/cart/package.json': JSON.stringify({ dependencies: { local: 'file:../lib' } }),
    'shop/lib/package.json': JSON.stringify({ name: 'local', version: '3.0.0', dependencies: { left: '^1' } }),
    'shop/lib/index.js': "module.exports = 'local with ' + require('left')",
  })
  await bed.builds.prepare(bed.fn('shop/cart'))
  t.equal(print(bed, 'shop/cart', "require('local')"), 'local with left 1')
  t.match(json(bed, 'shop/cart/.svc-deps-state.json').resolved_packages, ['local@3.0.0'])
  writeFileSync(bed.tree.path('shop/lib/index.js'), "module.exports = 'changed'")
  writeFileSync(bed.tree.path('shop/cart/handler.js'), "require('local') // again")
  await bed.again().prepare(bed.fn('shop/cart'))
  t.equal(print(bed, 'shop/cart', "require('local')"), 'changed')
})

t.test('[dependencies/node.16] a package that is not there names the import, the line and what to do', async t => {
  const bed = await makeNpmBed(t, { 'f/handler.js': "\n\nrequire('lefft')" })
  const error = await failureOf(bed.builds.prepare(bed.fn('f')))
  t.match(error.message, /^install failed: f\/handler\.js:3: f: npm: code E404 \| 404 Not Found/)
  t.match(error.detail, { file: 'f/handler.js', line: 3, hint: /^lefft is not in the registry: correct the name/ })
  t.notOk(has(bed, 'f/package.json'), 'a name that does not exist is not written down')
  t.match(json(bed, 'f/.svc-deps-state.json'), {
    last_install_status: 'error',
    last_error: /E404/,
    unresolved_imports: ['lefft'],
  })
  const asked = bed.registry.asked.length
  await failureOf(bed.builds.prepare(bed.fn('f')))
  t.equal(bed.registry.asked.length, asked, 'not tried again until something changes')
})

t.test('[dependencies/install.9] a failure that is kept names the files of each folder that asked', async t => {
  const bed = await makeNpmBed(t, { 'f/handler.js': "require('lefft')", 'g/handler.js': "\n\nrequire('lefft')" })
  await failureOf(bed.builds.prepare(bed.fn('f')))
  const asked = bed.registry.asked.length
  t.match(await failureOf(bed.builds.prepare(bed.fn('g'))), {
    message: /^install failed: g\/handler\.js:3: g: npm: code E404/,
    detail: { file: 'g/handler.js', line: 3 },
  })
  t.equal(bed.registry.asked.length, asked, 'and is not tried again')
})

t.test('[dependencies/node.16] a version that is not there, and a registry that does not answer', async t => {
  const bed = await makeNpmBed(t, {
    'f/handler.js': '',
    'f/package.json': '{\n"dependencies":{"left":"^9"}}',
    'g/handler.js': "require('left')",
  })
  const error = await failureOf(bed.builds.prepare(bed.fn('f')))
  t.match(error, {
    message: /No matching version found for left@\^9/,
    detail: { file: 'f/package.json', hint: /no such version of left/ },
  })
  await bed.registry.close()
  const offline = await failureOf(bed.builds.prepare(bed.fn('g')))
  t.match(offline, {
    message: /^install failed: g: npm: .*ECONNREFUSED/,
    detail: { hint: /check the network and the registry/ },
  })
  t.equal(offline.detail?.file, undefined, 'tried again after a while')
})

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
    for (const name of ['a', 'b', 'c']) t.notOk(has(bed, `${name}/.svc-deps-state.json`))
  },
)

t.test(
  '[dependencies/node.17] with FN_AUTO_INFER_WRITE_MANIFEST=0 packages are installed and nothing is written',
  async t => {
    const bed = await makeNpmBed(t, { 'f/handler.js': "require('left')" }, { writesManifest: false })
    await bed.builds.prepare(bed.fn('f'))
    t.equal(print(bed, 'f', "require('left')"), 'left 2')
    t.notOk(has(bed, 'f/package.json'))
    t.notOk(has(bed, 'f/package-lock.json'))
    t.match(json(bed, 'f/.svc-deps-state.json'), { mode: 'inferred', manifest_path: null, manifest_generated: false })
  },
)

t.test(
  '[dependencies/node.17] without inference the manifest alone counts; strict refuses imports that are no package',
  async t => {
    const plain = await makeNpmBed(t, { 'f/handler.js': "require('left')" }, { infers: false })
    await plain.builds.prepare(plain.fn('f'))
    t.notOk(has(plain, 'f/node_modules'))
    const files = { 'f/handler.js': "require('left')\nimport('https://x/lib')" }
    const strict = await makeNpmBed(t, files, { isStrict: true })
    const error = await failureOf(strict.builds.prepare(strict.fn('f')))
    t.match(
      error.message,
      /f\/handler\.js:2: import of "https:\/\/x\/lib" is no package that npm could install \(FN_AUTO_INFER_STRICT\)/,
    )
    t.match(error.detail, {
      file: 'f/handler.js',
      line: 2,
      hint: /import a file by \.\/ or \.\.\/, or a package by its name/,
    })
    const loose = await makeNpmBed(t, files)
    await loose.builds.prepare(loose.fn('f'))
    t.same(json(loose, 'f/.svc-deps-state.json').unresolved_imports, ['https://x/lib'])
  },
)

t.test('[dependencies/node.12] a pnpm lock file is told; npm that is missing is told with what to do', async t => {
  const bed = await makeNpmBed(t, { 'f/handler.js': "require('left')", 'f/pnpm-lock.yaml': '' })
  await bed.builds.prepare(bed.fn('f'))
  t.match(bed.seen.notes, [/^f\/pnpm-lock\.yaml is not read: packages are installed by npm/])
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
  t.equal(print(bed, '.svc/packs/node/base', "require('left')"), 'left 1')
  t.same(Object.keys(json(bed, 'f/package.json').dependencies), ['@test/right'])
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
  t.notOk(has(bed, 'mapped/node_modules'))
  const error = await failureOf(bed.builds.prepare(bed.fn('beside')))
  t.match(error.message, /beside\/handler\.js:2: import of "left" /)
  t.match(error.detail, { hint: /import a file by \.\/ .* name it in package\.json/ })
  t.same(bed.registry.asked, [])
  await bed.builds.prepare(bed.fn('named'))
  t.equal(print(bed, 'named', "require('left')"), 'left 1')
})
