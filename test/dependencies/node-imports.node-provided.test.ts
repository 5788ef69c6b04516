import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { isProvidedAbove, providerOf, stampAbove } from '../../lib/dependencies/node-imports.ts'
import { makeTree } from '../helpers/tree.ts'

t.test('[dependencies/node.8] a package that a folder above has is taken from there', async t => {
  const root = t.testdir({ node_modules: { above: {} }, a: { f: { node_modules: { own: {} } } } })
  t.equal(providerOf('above', join(root, 'a/f')), root)
  t.equal(providerOf('own', join(root, 'a/f')), null)
  t.equal(providerOf('fngw-nobody-has-this', join(root, 'a/f')), null)
})

t.test('[dependencies/node.21] an entry of a manifest is satisfied by what Node resolves from above', async t => {
  const tree = makeTree({
    'packages/mylib/package.json': '{"name":"mylib","version":"1.2.0-rc.1"}',
    'packages/bare/package.json': '{"name":"bare"}',
    'packages/other/package.json': '{"name":"other","version":"1.0.0"}',
    'node_modules/mylib': { symlink: '../packages/mylib' },
    'node_modules/bare': { symlink: '../packages/bare' },
    'node_modules/copy/package.json': '{"name":"other","version":"1.0.0"}',
    'node_modules/left/package.json': '{"name":"left","version":"1.4.0"}',
    'node_modules/renamed/package.json': '{"name":"left","version":"1.4.0"}',
    'node_modules/odd/package.json': 'no JSON',
    'node_modules/lost': { symlink: '../packages/gone' },
    'owned/node_modules/.fngw-set': '{"key":"k"}',
    'owned/node_modules/pack/package.json': '{"name":"pack","version":"1.0.0"}',
    'api/f/handler.js': '',
  })
  t.teardown(tree.cleanup)
  const cases: [name: string, spec: unknown, byItself: boolean, pinned: boolean][] = [
    ['mylib', '*', true, true],
    ['mylib', 'latest', true, true],
    ['mylib', '^1.0.0', true, true],
    ['mylib', '^2.0.0', false, false],
    ['mylib', 'workspace:^', true, true],
    ['mylib', 'link:../../packages/mylib', true, true],
    ['mylib', 'file:../../packages/mylib', true, true],
    ['mylib', 'file:../../packages/other', false, false],
    ['mylib', 'file:../../packages/none', false, false],
    ['copy', 'file:../../packages/other', true, true],
    ['bare', '*', true, true],
    ['bare', '^1.0.0', false, false],
    ['left', '^1.3.0', true, false],
    ['left', ' 1.x || >=3 ', true, false],
    ['left', '^2.0.0', false, false],
    ['left', 'latest', false, false],
    ['left', 'github:me/left', true, false],
    ['left', '$(touch x)', false, false],
    ['left', 5, false, false],
    ['renamed', 'npm:left@^1.0.0', true, false],
    ['renamed', 'npm:left', true, false],
    ['renamed', 'npm:left@^2.0.0', false, false],
    ['renamed', 'npm:right@^1.0.0', false, false],
    ['odd', '^1.0.0', false, false],
    ['lost', '*', false, false],
    ['fngw-nobody-has-this', '*', false, false],
  ]
  for (const [name, spec, byItself, pinned] of cases) {
    t.equal(isProvidedAbove(name, spec, tree.path('api/f'), false), byItself, `${name} ${spec}`)
    t.equal(isProvidedAbove(name, spec, tree.path('api/f'), true), pinned, `${name} ${spec} with a lock file`)
  }
  t.equal(isProvidedAbove('pack', '*', tree.path('owned/f'), false), false, "another function's packages")
})

t.test('[dependencies/node.21] an install above changes the stamp, one beside the function does not', async t => {
  const tree = makeTree({ 'a/f/handler.js': '' })
  t.teardown(tree.cleanup)
  const stamp = () => stampAbove(tree.path('a/f'))
  const before = stamp()
  mkdirSync(tree.path('a/f/node_modules'))
  t.equal(stamp(), before)
  mkdirSync(tree.path('node_modules'))
  t.not(stamp(), before)
})
