import t from 'tap'
import { LinearPattern, TooMuchWork, WorkBudget } from '../../lib/validation/linear-pattern.ts'
import { createRandom } from '../helpers/random.ts'

const makeBudget = (left = 1e9): WorkBudget => new WorkBudget(left)

/** Pseudo-random numbers, the same in every run. */
const ATOMS = ['a', 'b', '.', '[ab]', '[^a]', '\\d', '\\w', '\\s', '-', 'é', '😀', '\\u{1F600}', '\\p{L}', '\\.', '\\/']
const REPEATS = ['*', '+', '?', '{2}', '{1,2}', '{0,3}?', '*?', '{2,}']
const CHARACTERS = ['a', 'b', '-', '1', ' ', 'é', '😀', '.', '/', '\n', '_']

function makePattern(random: (below: number) => number, depth: number): string {
  const more = () => makePattern(random, depth - 1)
  const kind = random(10)
  if (depth <= 0 || kind < 4) return ATOMS[random(ATOMS.length)]!
  if (kind < 6) return more() + more()
  if (kind < 7) return `(${more()}|${more()})`
  if (kind < 8) return `(?:${more()})${REPEATS[random(REPEATS.length)]}`
  if (kind < 9) return `${more()}\\b${more()}`
  return `(?<n>${more()}|^${more()}$)`
}

t.test('[validation/linear-pattern.1] it finds what the engine of the language finds', async t => {
  const random = createRandom(7)
  let compared = 0
  for (let i = 0; i < 4000; i++) {
    let pattern = makePattern(random, 4)
    const kind = random(6)
    if (kind === 0) pattern = `^${pattern}`
    if (kind === 1) pattern = `^${pattern}$`
    if (kind === 2) pattern = `^(?!${makePattern(random, 2)})${pattern}`
    if (kind === 3) pattern = `^(?=${makePattern(random, 2)}$)(?!a)${pattern}$|b`
    let wanted: RegExp
    try {
      wanted = new RegExp(pattern, 'u')
    } catch {
      // Two groups of one name.
      continue
    }
    const linear = new LinearPattern(pattern, makeBudget())
    for (let j = 0; j < 6; j++) {
      let text = ''
      for (let count = random(7); count > 0; count--) text += CHARACTERS[random(CHARACTERS.length)]
      compared += 1
      if (wanted.test(text) !== linear.test(text)) t.fail(`${pattern} on ${JSON.stringify(text)}`)
    }
  }
  t.ok(compared > 10_000, `${compared} compared`)
})

t.test('[validation/linear-pattern.1] patterns of real schemas', async t => {
  const cases: [pattern: string, yes: string[], no: string[]][] = [
    ['^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$', ['123e4567-e89b-12d3-a456-426614174000'], ['123e4567', '']],
    [
      "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$",
      ['a.b@example.com', 'a@b.co'],
      ['.a@b.co', 'a..b@c.de', 'a@b', '@b.co'],
    ],
    ['^\\+?[1-9]\\d{1,14}$', ['+4915112345678', '12'], ['0123', '+', '1a']],
    ['[\\]\\\\^-]', [']', '\\', '^', '-'], ['a', '[']],
    ['^$', [''], ['a', '\n']],
  ]
  for (const [pattern, yes, no] of cases) {
    const linear = new LinearPattern(pattern, makeBudget())
    for (const text of yes) t.equal(linear.test(text), true, `${pattern}: ${text}`)
    for (const text of no) t.equal(linear.test(text), false, `${pattern}: ${text}`)
  }
})

t.test('[validation/linear-pattern.2] steps grow with the text, whatever the pattern', async t => {
  const bad = ['(a+)+$', '^(([a-z])+.)+[A-Z]([a-z])+$', '(a|a)*$', '(.*a){12}$', '^(a?){50}a{50}$', '(x+x+)+y']
  for (const pattern of bad) {
    const stepsOf = (length: number): number => {
      const budget = makeBudget()
      new LinearPattern(pattern, budget).test(`${'a'.repeat(length)}!`)
      return 1e9 - budget.left
    }
    const [short, long] = [stepsOf(1000), stepsOf(10_000)]
    t.ok(long <= short * 11, `${pattern}: ${short} steps for 1,000 characters, ${long} for 10,000`)
  }
})

t.test('[validation/linear-pattern.3] a check that exceeds its steps is aborted', async t => {
  const pattern = new LinearPattern('(a+)+$', makeBudget(1000))
  t.throws(() => pattern.test('a'.repeat(100_000)), TooMuchWork)
  const budget = makeBudget(1000)
  const again = new LinearPattern('^a*$', budget)
  t.throws(() => again.test('a'.repeat(100_000)), TooMuchWork)
  budget.left = 1000
  t.equal(again.test('aab'), false, 'nothing is left over from the check before')
})
