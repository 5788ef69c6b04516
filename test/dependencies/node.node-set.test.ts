import { execFileSync } from 'node:child_process'
import { lstatSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import t from 'tap'
import { makeTree } from '../helpers/tree.ts'
import { failureOf, makeNpmBed } from '../helpers/npm-bed.ts'
import { startNpmRegistry } from '../helpers/npm-registry.ts'

// Interpreters and installers are slow on a busy machine.
t.setTimeout(180_000)

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
    t.match(bed.json('g/package.json'), { name: 'fn-g', dependencies: { left: '^2.1.0' } })
    t.equal(bed.json('f/node_modules/.svc-deps-state.json').manifest_generated, true)
  },
)

t.test('[dependencies/node.14] conflicting versions of one package stand side by side', async t => {
  const manifest = (range: string) => JSON.stringify({ dependencies: { left: range } })
  const bed = await makeNpmBed(t, {
    'a/handler.js': "require('left')",
    'a/package.json': manifest('^1.0.0'),
    'b/handler.js': "require('left')",
    'b/package.json': manifest('^2.0.0'),
  })
  await Promise.all([bed.builds.prepare(bed.fn('a')), bed.builds.prepare(bed.fn('b'))])
  t.equal(bed.print('a', "require('left')"), 'left 1')
  t.equal(bed.print('b', "require('left')"), 'left 2')
})

t.test(
  '[dependencies/node.15] install scripts run for the packages that allow_scripts names, and for no other',
  async t => {
    const bed = await makeNpmBed(t, { 'a/handler.js': "require('scripted')", 'b/handler.js': "require('scripted')" })
    await bed.builds.prepare(bed.fn('a'))
    t.notOk(bed.has('a/node_modules/scripted/made.txt'))
    t.match(bed.seen.notes, [/^a: install scripts of scripted did not run; name what needs them in allow_scripts/])
    await bed.builds.prepare(bed.fn('b', { allowScripts: ['scripted', 'absent'] }))
    t.ok(bed.has('b/node_modules/scripted/made.txt'))
    t.notOk(bed.has('a/node_modules/scripted/made.txt'), 'not the same set')
    const env = readFileSync(bed.tree.path('b/node_modules/scripted/made.txt'), 'utf8')
    t.notMatch(env, 'SECRET_TOKEN')
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
  t.equal(bed.print('shop/cart', "require('local')"), 'local with left 1')
  t.match(bed.json('shop/cart/node_modules/.svc-deps-state.json').resolved_packages, ['local@3.0.0'])
  writeFileSync(bed.tree.path('shop/lib/index.js'), "module.exports = 'changed'")
  writeFileSync(bed.tree.path('shop/cart/handler.js'), "require('local') // again")
  await bed.again().prepare(bed.fn('shop/cart'))
  t.equal(bed.print('shop/cart', "require('local')"), 'changed')
})

t.test('[dependencies/node.16] a package that is not there names the import, the line and what to do', async t => {
  const bed = await makeNpmBed(t, { 'f/handler.js': "\n\nrequire('lefft')" }, { isStrict: true })
  const error = await failureOf(bed.builds.prepare(bed.fn('f')))
  t.match(error.message, /^install failed: f\/handler\.js:3: f: npm: code E404 \| 404 Not Found/)
  t.match(error.detail, { file: 'f/handler.js', line: 3, hint: /^lefft is not in the registry: correct the name/ })
  t.notOk(bed.has('f/package.json'), 'a name that does not exist is not written down')
  t.match(bed.builds.recordOf(bed.fn('f')), {
    last_install_status: 'error',
    last_error: /E404/,
    unresolved_imports: ['lefft'],
  })
  const asked = bed.registry.asked.length
  await failureOf(bed.builds.prepare(bed.fn('f')))
  t.equal(bed.registry.asked.length, asked, 'not tried again until something changes')
})

t.test('[dependencies/install.9] a failure that is kept names the files of each folder that asked', async t => {
  const files = { 'f/handler.js': "require('lefft')", 'g/handler.js': "\n\nrequire('lefft')" }
  const bed = await makeNpmBed(t, files, { isStrict: true })
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

t.test('[dependencies/node.4] a tarball with links and ways out of it writes nothing elsewhere', async t => {
  const outside = makeTree({ 'made/package/package.json': { json: { name: 'evil', version: '1.0.0', main: 'a.js' } } })
  t.teardown(outside.cleanup)
  outside.write({ 'made/package/a.js': "module.exports = 'evil'", 'made/x.txt': '' })
  symlinkSync(outside.root, outside.path('made/package/link'))
  const manifest = { json: { dependencies: { evil: 'file:./evil.tar' } } }
  const bed = await makeNpmBed(t, { 'f/handler.js': "require('evil')", 'f/package.json': manifest })
  const tar = (mode: string, from: string, to: string) =>
    execFileSync('tar', ['-P', mode, bed.tree.path('f/evil.tar'), '--transform', `s,^${from},${to},`, from], {
      cwd: outside.path('made'),
    })
  tar('-cf', 'package', 'package')
  tar('-rf', 'x.txt', 'package/link/by-link.txt')
  tar('-rf', 'x.txt', `package/${'../'.repeat(20)}${outside.path('by-dots.txt').slice(1)}`)
  tar('-rf', 'x.txt', outside.path('by-root.txt'))
  const before = readdirSync(outside.root)
  await bed.builds.prepare(bed.fn('f')).catch(error => t.match(error, { code: 'LOAD_FAILED' }))
  t.same(readdirSync(outside.root), before)
  const link = lstatSync(bed.tree.path('f/node_modules/evil/link'), { throwIfNoEntry: false })
  t.notOk(link?.isSymbolicLink(), 'a link is left out')
})

t.test('[dependencies/node.11] whatever addresses a lock file has, packages come from the registry', async t => {
  const evil = await startNpmRegistry([
    { name: 'left', version: '1.0.0', files: { 'index.js': "module.exports = 'evil'" } },
  ])
  t.teardown(() => evil.close())
  const outside = t.testdir({
    'package.json': '{"name":"left","version":"1.0.0"}',
    'index.js': "module.exports = 'evil'",
  })
  const resolved = `${evil.url}/left/-/left-1.0.0.tgz`
  const manifest = (fields: object) => JSON.stringify({ dependencies: { left: '1.0.0' }, ...fields })
  const root = { dependencies: { left: '1.0.0' } }
  const newer = (left: object, more: object = {}) =>
    JSON.stringify({ lockfileVersion: 3, packages: { '': root, 'node_modules/left': left, ...more } })
  const served = {
    three: newer({ version: '1.0.0', resolved }),
    two: JSON.stringify({
      ...JSON.parse(newer({ version: '1.0.0', resolved })),
      lockfileVersion: 2,
      dependencies: { left: { version: '1.0.0', resolved } },
    }),
    one: JSON.stringify({ lockfileVersion: 1, dependencies: { left: { version: '1.0.0', resolved } } }),
  }
  const refused = {
    outside: newer({ version: '1.0.0', resolved: `file:${outside}` }),
    link: newer({ resolved: outside, link: true }),
    version: newer({ version: resolved }),
    lacking: newer({ version: '1.0.0', dependencies: { other: resolved } }),
    old: JSON.stringify({ lockfileVersion: 1, dependencies: { left: { version: resolved } } }),
  }
  const wishes = {
    peer: manifest({ peerDependencies: { other: resolved } }),
    'peer-file': manifest({ peerDependencies: { other: `file:${outside}` } }),
    dev: manifest({ devDependencies: { other: 'git://h/x' } }),
    override: manifest({ overrides: { left: { '.': resolved } } }),
    'override-file': manifest({ overrides: { left: `file:${outside}` } }),
  }
  const tree: Record<string, string> = {}
  for (const [name, lock] of Object.entries({ ...served, ...refused, ...wishes })) {
    tree[`${name}/handler.js`] = "require('left')"
    tree[`${name}/package.json`] = name in wishes ? lock : manifest({})
    if (!(name in wishes)) tree[`${name}/${name === 'three' ? 'npm-shrinkwrap' : 'package-lock'}.json`] = lock
  }
  const bed = await makeNpmBed(t, tree)
  for (const name of Object.keys(served)) {
    await bed.builds.prepare(bed.fn(name))
    t.equal(bed.print(name, "require('left')"), 'left 1', name)
  }
  t.same(bed.json('three/npm-shrinkwrap.json'), JSON.parse(served.three), 'the file stays as it is')
  for (const name of Object.keys({ ...refused, ...wishes })) {
    t.match(
      (await failureOf(bed.builds.prepare(bed.fn(name)))).message,
      /comes from|is not in the functions root/,
      name,
    )
    t.notOk(bed.has(`${name}/node_modules`), name)
  }
  const wrong = newer({ version: '1.0.0', integrity: `sha512-${'a'.repeat(86)}==` })
  writeFileSync(bed.tree.path('three/npm-shrinkwrap.json'), wrong)
  t.match((await failureOf(bed.again().prepare(bed.fn('three')))).message, /EINTEGRITY|integrity/i, 'digests hold')
  t.same(evil.asked, [], 'nobody else was asked')
})
