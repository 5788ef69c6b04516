import t from 'tap'
import { blankOut, GO_TEXT, lineOf, RUST_TEXT } from '../../lib/dependencies/build.ts'

/** Kept text is in upper case, blanked text in lower case; the check of the length counts the blanks. */
const CASES: readonly [rules: RegExp, name: string, text: string, kept: string][] = [
  [GO_TEXT, 'line comment', 'A // b\nC', 'A     \nC'],
  [GO_TEXT, 'comment at the end', 'A // b', 'A     '],
  [GO_TEXT, 'block comment over lines', 'A /* b\nc */ D', 'A     \n     D'],
  [GO_TEXT, 'blocks do not nest', 'A /* b /* c */ D */', 'A               D */'],
  [GO_TEXT, 'open block', 'A /* b', 'A     '],
  [GO_TEXT, 'text with an escaped quote', 'A "b\\"c" D', 'A        D'],
  [GO_TEXT, 'escaped backslash ends a text', 'A "b\\\\" D', 'A       D'],
  [GO_TEXT, 'raw text over lines, no escapes', 'A `b\\\nc` D', 'A    \n   D'],
  [GO_TEXT, 'comment marks in a text', 'A "// b" D', 'A        D'],
  [GO_TEXT, 'quotes in a comment', 'A // "b\nC "d" E', 'A     \nC     E'],
  [GO_TEXT, 'character', "A '\"' D", 'A     D'],
  [GO_TEXT, 'open text', 'A "b', 'A   '],
  [RUST_TEXT, 'blocks nest', 'A /* b /* c */ d */ E', 'A                   E'],
  [RUST_TEXT, 'lifetime stays', "A<'B> C", "A<'B> C"],
  [RUST_TEXT, 'characters go', "A 'b' '\\'' '\"' C", 'A               C'],
  [RUST_TEXT, 'raw text', 'A r"b\\" C', 'A r     C'],
  [RUST_TEXT, 'raw text with signs', 'A r#"b"c"# D', 'A r#       D'],
  [RUST_TEXT, 'raw bytes', 'A br##"b"#c"## D', 'A br##          D'],
  [RUST_TEXT, 'a name that ends in r', 'VAR"b\\"c" D', 'VAR       D'],
  [RUST_TEXT, 'text over lines', 'A "b\nc" D', 'A   \n   D'],
]

t.test('[dependencies/resolve.8] comments and texts are blanked out, lines and columns stay', async t => {
  for (const [rules, name, text, kept] of CASES) {
    const blanked = blankOut(text, rules)
    t.equal(blanked.replace(/ +/g, ' '), kept.replace(/ +/g, ' '), name)
    t.equal(blanked.length, text.length, `${name}: length`)
  }
})

t.test('[dependencies/resolve.8] no text makes it fail, or changes its length', async t => {
  const pieces = ['"', "'", '`', '/*', '*/', '//', '\n', '\\', 'r#"', '"#', 'a', '']
  let seed = 7
  const next = (): number => {
    seed = (seed * 16_807) % 2_147_483_647
    return seed
  }
  for (let round = 0; round < 2000; round++) {
    const text = Array.from({ length: next() % 12 }, () => pieces[next() % pieces.length]).join('')
    for (const rules of [GO_TEXT, RUST_TEXT]) {
      const blanked = blankOut(text, rules)
      if (blanked.length !== text.length || blanked.split('\n').length !== text.split('\n').length)
        t.fail(JSON.stringify(text))
    }
  }
  t.pass('2000 random texts')
})

t.test('[dependencies/resolve.8] lines count from 1', async t => {
  t.same(
    [0, 1, 2, 3, 9].map(at => lineOf('a\n\nb\n', at)),
    [1, 1, 2, 3, 4],
  )
})
