import t from 'tap'
import { isRequestId, RequestIds } from '../../lib/invocation/event.ts'

t.test('[http/public.6] ids are unique, and taken from the client only when well-formed', async t => {
  const ids = new RequestIds('p')
  const made = new Set(Array.from({ length: 1000 }, () => ids.next()))
  t.equal(made.size, 1000)
  for (const id of made) if (!isRequestId(id)) t.fail(id)
  for (const [offered, isTaken] of [
    ['abc-1.2_3', true],
    ['x'.repeat(128), true],
    ['x'.repeat(129), false],
    ['', false],
    ['a b', false],
    ['a"b', false],
    ['a\nb', false],
    ['a\n', false],
    ['é', false],
    [null, false],
  ] as const)
    t.equal(ids.take(offered) === offered, isTaken, String(offered))
})
