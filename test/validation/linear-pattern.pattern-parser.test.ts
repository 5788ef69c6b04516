import t from 'tap'
import { LinearPattern, WorkBudget } from '../../lib/validation/linear-pattern.ts'

const parse = (pattern: string) => new LinearPattern(pattern, new WorkBudget(10_000))

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
    for (const [pattern, reason] of cases) t.throws(() => parse(pattern), { message: reason }, pattern.slice(0, 40))
    for (const pattern of ['(', '[', 'a**', '\\', '[b-a]', '(?<a>x)(?<a>y)', '\\u{110000}'])
      t.throws(() => parse(pattern), SyntaxError, pattern)
  },
)

t.test(
  '[validation/linear-pattern.4] lookaheads at the beginning, in each alternative and in a group around all',
  async t => {
    for (const pattern of [
      '^(?!a)(?=.*b)\\w+$',
      '(^(?!a)(?=.*b)\\w+$)',
      '((?!a)^(?=.*b)\\w+$|^x$)',
      '^x$|^(?!a)(?=.*b)\\w+$',
    ]) {
      const wanted = new RegExp(pattern, 'u')
      for (const text of ['cb', 'ab', 'cc', 'b', 'x', ''])
        t.equal(parse(pattern).test(text), wanted.test(text), `${pattern} on ${text}`)
    }
    for (const pattern of ['a(^(?!b)c)', '(^(?!b)c)d', '(?:^(?!b)c|d)e'])
      t.throws(() => parse(pattern), { message: /inside the pattern/ }, pattern)
  },
)

t.test('[validation/linear-pattern.2] empty groups, repeated as often as one likes', async t => {
  for (const pattern of ['(?:){4000}', '(?:(?:(?:){4000}){4000}){4000}a', '(?:^)*a', '(?:a*)*$', '(?:|a)+b'])
    for (const text of ['', 'a', 'aab'])
      t.equal(parse(pattern).test(text), new RegExp(pattern, 'u').test(text), pattern)
})
