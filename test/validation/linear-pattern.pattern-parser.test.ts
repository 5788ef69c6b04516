import t from 'tap'
import { parsePattern, PatternProblem } from '../../lib/validation/linear-pattern.ts'

t.test(
  '[validation/linear-pattern.4] refuses patterns that cannot be matched in one pass, with the reason',
  async t => {
    const cases: [pattern: string, reason: RegExp][] = [
      ['(a)\\1', /has a backreference/],
      ['(?<x>a)\\k<x>', /has a backreference/],
      ['(?<=a)b', /has a lookbehind/],
      ['(?<!a)b', /has a lookbehind/],
      ['a(?=b)', /inside the pattern/],
      ['(?!a)b', /without \^ in front/],
      ['a{5000}', /too large/],
      ['(a{1000}){1000}', /too large/],
      ['^(?=a{3000})b{3000}', /too large/],
      ['a'.repeat(2001), /more than 2000 characters/],
      ['('.repeat(60) + ')'.repeat(60), /more than 50 deep/],
    ]
    for (const [pattern, reason] of cases)
      t.throws(() => parsePattern(pattern), { message: reason }, pattern.slice(0, 40))
    for (const pattern of ['(', '[', 'a**', '\\', '[b-a]', '(?<a>x)(?<a>y)', '\\u{110000}'])
      t.throws(() => parsePattern(pattern), SyntaxError, pattern)
    t.ok(new PatternProblem('x') instanceof Error)
  },
)

t.test('[validation/linear-pattern.4] lookaheads at the beginning become guards', async t => {
  const [branch] = parsePattern('^(?!a)(?=b)c')
  t.same(
    branch!.guards.map(guard => guard.isWanted),
    [false, true],
  )
  t.equal(parsePattern('a|b|c').length, 3)
})
