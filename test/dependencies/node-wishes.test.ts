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
      /f\/package-lock\.json: a package comes from "git\+ssh/,
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
    for (const name of ['a', 'b', 'c']) t.notOk(bed.has(`${name}/.svc-deps-state.json`))
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
    t.same(loose.json('f/.svc-deps-state.json').unresolved_imports, ['https://x/lib'])
  },
)

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
