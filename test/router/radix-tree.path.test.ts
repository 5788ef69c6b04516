import t from 'tap'
import { decodePercent } from '../../lib/core/http-text.ts'
import { escapeSegment } from '../../lib/core/pattern.ts'
import { normalizePath, unescapeCanonical } from '../../lib/router/radix-tree.ts'
import { createRandom } from '../helpers/random.ts'

t.test('[router/radix-tree.9, router/radix-tree.10, router/radix-tree.11] the canonical form of a path', async t => {
  const rows: [string, string][] = [
    ['/', '/'],
    ['//', '/'],
    ['///', '/'],
    ['/a', '/a'],
    ['/a/', '/a'],
    ['//a///b//', '/a/b'],
    ['/a%20b', '/a b'],
    ['/%41%42/%43', '/AB/C'],
    ['/a+b', '/a+b'],
    ['/%C3%BC', '/ü'],
    ['/ü', '/ü'],
    ['/a%2Fb', '/a%2Fb'],
    ['/a%2fb/', '/a%2Fb'],
    ['/100%25', '/100%25'],
    ['/%252F', '/%252F'],
    ['/%252e%252e', '/%252e%252e'],
    ['/a/./b', '/a/b'],
    ['/a/../b', '/b'],
    ['/a/b/..', '/a'],
    ['/a/..', '/'],
    ['/.', '/'],
    ['/./', '/'],
    ['/a/%2e/b', '/a/b'],
    ['/a/%2E%2e/b', '/b'],
    ['/a/.%2e/b', '/b'],
    ['/a//../b', '/b'],
    ['/a/..%2Fb', '/a/..%2Fb'],
    ['/...', '/...'],
    ['/.well-known/x', '/.well-known/x'],
    ['/a/.b', '/a/.b'],
    ['/a\\..\\b', '/a\\..\\b'],
    ['/a%5C..', '/a\\..'],
    ['/a;b=1/c', '/a;b=1/c'],
    ['/a%3Fb%23', '/a?b#'],
    ['/__proto__/constructor', '/__proto__/constructor'],
  ]
  for (const [raw, canonical] of rows) t.equal(normalizePath(raw), canonical, raw)
})

t.test('[router/radix-tree.12] what is answered 400', async t => {
  const rows: [string, RegExp][] = [
    ['', /start with a slash/],
    ['a', /start with a slash/],
    ['*', /start with a slash/],
    ['%2Fa', /start with a slash/],
    ['http://x/', /start with a slash/],
    ['/%', /malformed/],
    ['/a%4', /malformed/],
    ['/a%zz', /malformed/],
    ['/a%4g', /malformed/],
    ['/%-1', /malformed/],
    ['/% 1', /malformed/],
    ['/%c0%ae', /malformed/],
    ['/%c0%ae%c0%ae/', /malformed/],
    ['/%ff', /malformed/],
    ['/%ed%a0%80', /malformed/],
    ['/a/%41/%', /malformed/],
    ['/a\0b', /NUL/],
    ['/%00', /NUL/],
    ['/a%00', /NUL/],
    ['/a%20\0', /NUL/],
    ['/..', /leaves the root/],
    ['/../a', /leaves the root/],
    ['/a/../..', /leaves the root/],
    ['/%2e%2e', /leaves the root/],
    ['//..', /leaves the root/],
  ]
  for (const [raw, problem] of rows) t.match(normalizePath(raw), { problem }, JSON.stringify(raw))
})

t.test('[router/radix-tree.13] the canonical form of a canonical path is itself', async t => {
  const pieces = [
    'a',
    '/',
    '//',
    '%2F',
    '%2f',
    '%25',
    '%2e',
    '.',
    '..',
    '%41',
    'ü',
    '%C3%BC',
    '\\',
    '%252F',
    ' ',
    '%7f',
  ]
  const next = createRandom(7)
  let canonical = 0
  for (let round = 0; round < 20_000; round++) {
    const raw = `/${Array.from({ length: next(8) }, () => pieces[next(pieces.length)]).join('')}`
    const path = normalizePath(raw)
    if (typeof path !== 'string') continue
    canonical++
    if (normalizePath(path) !== path) t.fail(`${raw} gave ${path}, which gave ${JSON.stringify(normalizePath(path))}`)
  }
  t.ok(canonical > 10_000)
})

t.test('[router/radix-tree.10] segments are decoded and escaped one way', async t => {
  for (const text of ['plain', 'a/b', '100%', '%2F', '%252F', 'ü/%', '']) {
    t.equal(unescapeCanonical(escapeSegment(text)), text, text)
    t.equal(decodePercent(escapeSegment(text)), text, text)
  }
  t.equal(decodePercent('%zz'), null)
  t.equal(unescapeCanonical('/a%2Fb/%25'), '/a/b/%')
})

t.test('[router/radix-tree.9, router/radix-tree.11] a canonical path stays as it is', async t => {
  for (const path of ['/', '/a', '/a/b.c', '/a..', '/a.', '/a b', '/.a', '/a/.b', '/a/...'])
    t.equal(normalizePath(path), path, path)
  for (const other of ['', 'a', '//', '/a/', '/a//b', '/.', '/..', '/a/.', '/%41', '/\0'])
    t.not(normalizePath(other), other, other)
})
