import t from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import { Backlog } from '../../lib/runtime/backlog.ts'
import { SeenCall } from '../helpers/fake-worker.ts'
import { makeFn } from '../helpers/fn.ts'

t.test('[runtime/worker-set.1] calls come out in their order, those that nobody waits for are passed over', async t => {
  const backlog = new Backlog()
  t.same([backlog.isEmpty, backlog.size, backlog.first, backlog.shift()], [true, 0, undefined, null])
  const fn = makeFn()
  const calls = Array.from({ length: 5000 }, () => new SeenCall(fn))
  // Against a plain list, with additions in between and in front.
  const expected: SeenCall[] = []
  let next = 0
  for (let round = 0; next < calls.length; round++) {
    const added = calls.slice(next, next + 1 + (round % 7))
    next += added.length
    if (round % 11 === 0) {
      backlog.putBack(added)
      expected.unshift(...added)
    } else {
      for (const call of added) backlog.push(call, 0)
      expected.push(...added)
    }
    for (let i = 0; i < round % 5; i++) if (backlog.shift() !== (expected.shift() ?? null)) t.fail('another call')
    if (backlog.size !== expected.length || backlog.first !== expected[0]) t.fail('another size or first call')
  }
  t.ok(backlog.size > 1024, 'long enough to have dropped what was taken')
  const [first, second, third] = expected as [SeenCall, SeenCall, SeenCall]
  first.phase = 'done'
  t.equal(backlog.shift(), null)
  t.equal(backlog.shift(), second)
  third.phase = 'done'
  backlog.fail(new GatewayError('RUNTIME_DOWN', 'runtime down'))
  t.same([backlog.isEmpty, third.seen, second.seen], [true, [], []])
  t.ok(expected.slice(3).every(call => call.seen.join() === 'error 503 runtime down' && call.phase === 'done'))
})
