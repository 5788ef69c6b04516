import { execFileSync } from 'node:child_process'
import { symlinkSync, writeFileSync } from 'node:fs'
import t from 'tap'
import { FilePackages } from '../../lib/dependencies/file-packages.ts'
import { checkSources } from '../../lib/dependencies/node-manifest.ts'
import { NodeManifest } from '../../lib/dependencies/node-manifest.ts'
import { failureOf, makeNpmBed } from '../helpers/npm-bed.ts'
import { makeTree } from '../helpers/tree.ts'

/** The packages that a manifest of `a/f` names by paths. */
function check(manifest: NodeManifest, functionsRoot: string, allowSources = false): FilePackages {
  const packages = new FilePackages({ functionsRoot, allowSources }, 'a/f', 'node_modules')
  checkSources(manifest, packages)
  return packages
}

const manifestOf = (dependencies: Record<string, string>) =>
  new NodeManifest(JSON.stringify({ dependencies }, null, 2), 'a/f/package.json')

t.test(
  '[dependencies/node.4] packages named by paths are read with those they name, without links and packages',
  async t => {
    const tree = makeTree({
      'a/f/package.json': '{}',
      'a/lib/package.json': '{"dependencies":{"deep":"file:../../deep"}}',
      'a/lib/index.js': '1',
      'a/lib/node_modules/x/index.js': 'no',
      'deep/package.json': '{"dependencies":{"lib":"file:../a/lib"}}',
      'deep/src/i.js': '2',
      'outside.txt': 'secret',
    })
    t.teardown(() => tree.cleanup())
    symlinkSync(tree.path('outside.txt'), tree.path('a/lib/link.txt'))
    const found = check(manifestOf({ lib: 'file:../lib' }), tree.root)
    const names = ['a/lib/index.js', 'a/lib/package.json', 'deep/package.json', 'deep/src/i.js']
    t.same(
      [...found.files].sort(),
      names.map(name => tree.path(name)),
    )
    const digest = () => found.digest()
    const before = await digest()
    t.equal(await digest(), before)
    writeFileSync(tree.path('deep/src/i.js'), '3')
    t.not(await digest(), before)
  },
)

t.test(
  '[dependencies/node.4] paths out of the functions root, also by a link, and other sources are refused with their line',
  async t => {
    const away = t.testdir({ 'package.json': '{}' })
    const tree = makeTree({ 'a/f/package.json': '{}', 'bad/package.json': '{"dependencies":{"x":"git://h/x"}}' })
    t.teardown(() => tree.cleanup())
    symlinkSync(away, tree.path('a/link'))
    const checking =
      (spec: string, allowSources = false) =>
      () =>
        check(manifestOf({ ok: '1', lib: spec }), tree.root, allowSources)
    for (const spec of [`file:${away}`, 'file:../link', 'file:../none', 'file:../../..', 'file:']) {
      const inFolder = spec === 'file:' ? null : /a\/f\/package\.json:4: lib: file:.* is not in the functions root/
      if (inFolder !== null) t.throws(checking(spec), { message: inFolder }, spec)
    }
    t.throws(checking('git://h/x'), {
      message: /:4: dependencies: lib comes from "git:\/\/h\/x", not from the registry/,
    })
    t.same(checking('git://h/x', true)().files, [])
    t.throws(checking('file:../../bad'), { message: /bad\/package\.json:1: dependencies: x comes from "git/ })
  },
)

t.test(
  '[dependencies/node.4] addresses in devDependencies and overrides are refused at every depth, and allowed by the setting',
  t => {
    const tree = makeTree({ 'a/f/package.json': '{}' })
    t.teardown(() => tree.cleanup())
    const checkJson = (json: object, allowSources = false) =>
      check(new NodeManifest(JSON.stringify(json), 'a/f/package.json'), tree.root, allowSources)
    const address = 'https://evil.test/x.tgz'
    for (const [json, message] of [
      [
        { devDependencies: { x: address } },
        /devDependencies: x comes from "https:\/\/evil\.test\/x\.tgz", not from the registry/,
      ],
      [{ overrides: { a: { b: address } } }, /overrides: b comes from /],
      [{ overrides: { a: 'file:../victim' } }, /overrides: a comes from /],
    ] as const)
      t.throws(() => checkJson(json), { message, detail: { hint: /FN_NODE_PACKAGE_SOURCES=1/ } })
    t.same(
      checkJson({ devDependencies: { x: address }, overrides: { a: { b: address, c: '$c', d: 5 } } }, true).files,
      [],
    )
    t.same(checkJson({ overrides: { a: '1.0.0' } }).files, [])
    t.end()
  },
)

t.test(
  '[dependencies/node.4] an archive is installed, and what it asks for from an address is refused before a script runs',
  async t => {
    const bed = await makeNpmBed(t, {
      'good/handler.js': '',
      'good/package.json': '{"dependencies":{"own":"file:./own.tgz"}}',
      'good/package/package.json': '{"name":"own","version":"1.0.0","dependencies":{"left":"^1.0.0"}}',
      'evil/handler.js': '',
      'evil/package.json': '{"dependencies":{"own":"file:./own.tgz"}}',
    })
    const address = `${bed.registry.url.replace(/\/$/, '')}/scripted/-/scripted-1.0.0.tgz`
    bed.tree.write({
      'evil/package/package.json': { json: { name: 'own', version: '1.0.0', dependencies: { scripted: address } } },
    })
    for (const name of ['good', 'evil'])
      execFileSync('tar', ['-czf', bed.tree.path(`${name}/own.tgz`), '-C', bed.tree.path(name), 'package'])
    await bed.builds.prepare(bed.fn('good'))
    t.equal(bed.print('good', "require('left')"), 'left 1')
    const failure = await failureOf(bed.builds.prepare(bed.fn('evil', { allowScripts: ['scripted'] })))
    t.match(failure.message, /evil\/package\.json: own comes from "http:[^"]*", not from the registry/)
    t.notOk(bed.has('evil/node_modules/own'))
  },
)
