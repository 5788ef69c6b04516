import t from 'tap'
import { type Choice, toMatches } from '../../console/choices.ts'

const CHOICES: readonly Choice[] = ['Overview', 'hello', 'users/[id]', 'other-hello', 'halo'].map(text => ({
  text,
  kind: 'node',
  href: `/console/${text}`,
}))

t.test(
  '[console/console.6] the palette finds by letters: what begins with them, has them, has them in order',
  async t => {
    const textsOf = (typed: string, most = 12) => toMatches(CHOICES, typed, most).map(({ text }) => text)
    t.same(textsOf(''), ['Overview', 'hello', 'users/[id]', 'other-hello', 'halo'])
    t.same(textsOf('  HEL '), ['hello', 'other-hello'])
    t.same(textsOf('hlo'), ['hello', 'other-hello', 'halo'])
    t.same(textsOf('[id]'), ['users/[id]'], 'a sign is a sign')
    t.same(textsOf('zz'), [])
    t.same(textsOf('h', 1), ['hello'])
  },
)
