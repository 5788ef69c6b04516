import t from 'tap'
import { isPackageName, toImportTarget, toPackageSource } from '../../lib/dependencies/node-manifest.ts'

t.test(
  '[dependencies/node.3] only the name of a package is a name: nothing that reads as an option, path or address',
  async t => {
    for (const name of ['lodash', 'JSONStream', '@scope/name', 'a.b-c_d~e', '3d-view']) t.ok(isPackageName(name), name)
    const wrong = [
      '',
      '~',
      '~x',
      '-g',
      '--registry=http://x',
      '.hidden',
      '_x',
      '__proto__',
      '../x',
      '/etc',
      'a/b',
      '@scope',
      '@/x',
      '@-s/x',
      '@a/-b',
      'a b',
      'a\nb',
      'a;b',
      '$(x)',
      'a`b`',
      'node_modules',
      'http://x',
      'git+ssh://x',
      'x'.repeat(215),
      'é',
      '@a/b/c',
      'a\0',
    ]
    for (const name of wrong) t.notOk(isPackageName(name), JSON.stringify(name))
  },
)

t.test('[dependencies/node.2] an import is a package by its first part, nothing, or unresolved', async t => {
  const packages: [string, string][] = [
    ['lodash', 'lodash'],
    ['lodash/fp', 'lodash'],
    ['@scope/name/deep/er', '@scope/name'],
    ['punycode/', 'punycode'],
    ['test', 'test'],
  ]
  for (const [specifier, name] of packages) t.same(toImportTarget(specifier), { kind: 'package', name }, specifier)
  const none = [
    './x',
    '../x',
    '.',
    '..',
    '/x',
    '#internal',
    '@/components',
    '~/lib',
    'fs',
    'fs/promises',
    'node:test',
    'data:text/javascript,1',
    'file:///x',
  ]
  for (const specifier of [...none, 'C:\\x']) t.same(toImportTarget(specifier), { kind: 'none' }, specifier)
  const unresolved = ['-g', 'https://esm.sh/x', 'bun:sqlite', '', '@scope', '_x', 'a b']
  for (const specifier of unresolved) t.same(toImportTarget(specifier), { kind: 'unresolved' }, specifier)
})

t.test('[dependencies/node.4] a source is the registry, a path, an address, or wrong', async t => {
  const registry = [
    '1.2.3',
    '^1',
    '>=1 <3 || 5.x',
    '1.0.0 - 2',
    '*',
    '',
    'latest',
    'next-14',
    'npm:lodash@^4',
    'npm:@a/b',
  ]
  for (const spec of registry) t.same(toPackageSource('x', spec), { kind: 'registry' }, spec)
  t.same(toPackageSource('x', 'file:../lib'), { kind: 'file', path: '../lib' })
  t.same(toPackageSource('x', './lib'), { kind: 'file', path: './lib' })
  const addresses = [
    'git+ssh://git@h/x.git',
    'git://h/x',
    'github:a/b',
    'a/b',
    'a/b#v1',
    'https://h/x.tgz',
    'http://h',
    'git@github.com:a/b.git',
    'ext::sh',
  ]
  for (const spec of addresses.slice(0, -1)) t.same(toPackageSource('x', spec), { kind: 'address' }, spec)
  const wrong = ['-g', '--x', '`id`', '$(id)', 'a;b', '1\n2', 'npm:-g', 'npm:a@;', 'x'.repeat(300)]
  for (const spec of ['workspace:*', 'catalog:', 'link:../x']) {
    t.match(toPackageSource('x', spec), { kind: 'foreign', why: /^x: .*other package managers than npm/ }, spec)
  }
  for (const spec of [...wrong, 5, null, {}, true]) {
    t.match(toPackageSource('x', spec), { kind: 'wrong', why: /^x[: ]/ }, JSON.stringify(spec))
  }
  t.match(toPackageSource('../x', '1'), { kind: 'wrong', why: /"\.\.\/x" is no name of a package/ })
})
