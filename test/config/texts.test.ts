import t from 'tap'
import { type Field, type Finding, toPlace } from '../../lib/config/fields.ts'
import * as texts from '../../lib/config/texts.ts'

/** What a field makes of a text; undefined when it refuses it. */
function read<T>(field: Field<T>, value: unknown): T | undefined {
  return field.read(value, toPlace('f', 'x', []))
}

t.test('[config/function-config.6] hosts, and lists of them that stay closed', async t => {
  const host = texts.hostRule()
  for (const [given, kept] of [
    ['Example.COM', 'example.com'],
    [' a.example:8080 ', 'a.example:8080'],
    ['*.example.com', '*.example.com'],
    ['[::1]:80', '[::1]:80'],
    ['127.0.0.1', '127.0.0.1'],
  ])
    t.equal(read(host, given), kept)
  for (const bad of ['http://x', 'a/b', 'a b', '*', '*.*.x', 'a..b', '', ':80', 'x:999999', 5, 'x'.repeat(300)])
    t.equal(read(host, bad), undefined, String(bad))
  const list = texts.hostAllowList('Hosts.')
  t.same(read(list, ['A', 'b c']), ['a'])
  for (const bad of [['b c'], 5, {}, 'b c']) t.same(read(list, bad), [texts.NO_HOST], 'a broken list opens nothing')
  t.same(list.readText('A, b', toPlace('f', 'x', [])), ['a', 'b'])
  t.same(list.readText('a b', toPlace('f', 'x', [])), [texts.NO_HOST])
})

t.test('[config/function-config.1] relative paths stay below their folder', async t => {
  for (const [given, kept] of [
    ['a/b.js', 'a/b.js'],
    ['././a/', 'a'],
    ['..a/b', '..a/b'],
    ['a b', 'a b'],
  ] as const)
    t.equal(texts.parseRelativePath(given), kept)
  for (const bad of ['', '.', './', '/a', '..', '../a', 'a/../b', 'a//b', 'a/./b', 'a\\b', 'a\0'])
    t.equal(texts.parseRelativePath(bad), null, JSON.stringify(bad))
  t.equal(read(texts.relativePath('d', 'a file'), '../x'), undefined)
})

t.test('[config/function-config.19] public paths', async t => {
  for (const path of ['/', '/a/:id', '/a/{id}', '/files/*', '/%2e', '/_fnx', '/a.b'])
    t.ok(texts.isPublicPath(path), path)
  for (const path of [
    'a',
    '',
    '/_fn',
    '/_fn/x',
    '//_fn/x',
    '/console',
    '/a b',
    '/a?b',
    '/a#b',
    '/a\\b',
    '/a/../b',
    '/./a',
    `/${'x'.repeat(2000)}`,
  ])
    t.notOk(texts.isPublicPath(path), path)
  const findings: Finding[] = []
  texts.publicPath('d').read('x', toPlace('f', 'route', findings))
  t.match(findings, [{ message: /must be a path that starts with \/ and is not below \/_fn or \/console/ }])
})

t.test('[config/function-config.9] targets of a home', async t => {
  for (const [given, kept] of [
    ['/list', '/list'],
    ['./list', 'list'],
    ['a/b', 'a/b'],
  ] as const)
    t.equal(texts.parseHomeRoute(given), kept)
  for (const bad of ['/', '//', '', 'http://x', 'javascript:1', '/_fn', '../x', '/console/x'])
    t.equal(texts.parseHomeRoute(bad), null, bad)
  for (const good of ['/a', '/a?b=c', 'https://x.example/y']) t.equal(texts.parseHomeRedirect(good), good)
  for (const bad of ['/', '//evil.example', '/a b', '/\\evil', 'ftp://x', 'x', 'http://', 'https://[', 'javascript:1'])
    t.equal(texts.parseHomeRedirect(bad), null, bad)
})

t.test('[config/fields.9] URLs of upstreams, header values, scalars', async t => {
  const url = texts.baseUrl('d')
  t.equal(read(url, 'HTTPS://X.example/base//'), 'https://x.example/base')
  for (const bad of ['http://u@x', 'http://:p@x', 'http://x?a', 'http://x#a', 'ftp://x', 'http://', '//x', 5])
    t.equal(read(url, bad), undefined, String(bad))
  t.ok(texts.isHeaderValue('a\tb é'))
  for (const value of ['a\r', 'a\nb', '\0']) t.notOk(texts.isHeaderValue(value))
  t.same([1.5, true, 'x', null, [], {}, undefined].map(texts.toScalarText), [
    '1.5',
    'true',
    'x',
    undefined,
    undefined,
    undefined,
    undefined,
  ])
})
