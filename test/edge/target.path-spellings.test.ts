import t from 'tap'
import { climbs, isControlPath, namesControl, readSpellings } from '../../lib/edge/target.ts'

t.test('[edge/passthrough.12, edge/passthrough.13] readings of a path', async t => {
  const rows: [string, boolean, boolean, boolean][] = [
    ['/a/b', false, false, false],
    ['/a/_fn', false, true, false],
    ['/a/b%2f%5ffn/x', false, true, false],
    ['/a/../_fn', true, true, true],
    ['/_fn/../a', true, true, true],
    ['/a/%2e%2e/b', false, false, true],
  ]
  for (const [path, isControl, isNamed, isClimbing] of rows) {
    const spellings = readSpellings(path)!
    t.same(
      [isControlPath(spellings), namesControl(spellings), climbs(spellings)],
      [isControl, isNamed, isClimbing],
      path,
    )
  }
})

t.test('[edge/passthrough.12] readings of a path by servers on the way', async t => {
  for (const [path, spellings] of [
    ['/A/b', [['a', 'b']]],
    ['//a///./b/', [['a', 'b']]],
    ['/a\\b', [['a', 'b']]],
    ['/a;x=1/b;y', [['a', 'b']]],
    ['/a\t\u007f/ b', [['a', 'b']]],
    ['/%41', [['%41'], ['a']]],
    ['/%2541', [['%2541'], ['%41'], ['a']]],
    ['/a%2fb', [['a%2fb'], ['a', 'b']]],
    ['/%c3%a9', [['%c3%a9']]],
    ['', [[]]],
  ] as const)
    t.same(readSpellings(path), spellings, JSON.stringify(path))
  const escaped = (rounds: number) => `/%${'25'.repeat(rounds)}41`
  t.equal(readSpellings(escaped(7))?.length, 9)
  t.equal(readSpellings(escaped(8)), null, 'escaped too often')
  t.ok(readSpellings(`/${'%25'.repeat(5000)}${'/..'.repeat(1000)}`) !== undefined)
})

t.test('[edge/passthrough.12] at or below a reserved prefix, with dots resolved or not', async t => {
  for (const path of [
    '/_fn',
    '/_FN/x',
    '/console',
    '/a/../_fn',
    '/..//_fn',
    '/%5ffn',
    '/%25%35%66fn',
    '/_fn;x',
    '/\\_fn',
    '/./_fn',
  ])
    t.ok(isControlPath(readSpellings(path)!), path)
  for (const path of ['/', '/a', '/_fnx', '/a/_fn', '/consoles', '/_f'])
    t.notOk(isControlPath(readSpellings(path)!), path)
})
