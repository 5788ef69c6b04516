import t from 'tap'
import { MAX_STREAM_LEADS, STREAM_LEAD_BYTES, STREAM_WINDOW_BYTES } from '../../lib/core/limits.ts'
import { Semaphore } from '../../lib/core/semaphore.ts'
import { StreamWindow } from '../../lib/runtime/stream-window.ts'
import { createRandom } from '../helpers/random.ts'

const KIB = 1024
const PIECE = 64 * KIB
const HALF = STREAM_WINDOW_BYTES / 2

/** Pieces that the client takes as soon as they come. @returns what the worker was told of each time */
function pass(window: StreamWindow, count: number, bytes = PIECE): number[] {
  return Array.from({ length: count }, () => {
    window.receive(bytes)
    return window.take(bytes)
  }).filter(told => told > 0)
}

t.test('[runtime/wire-protocol.15] without leads it tells half of the window at a time', async t => {
  const window = new StreamWindow(0, null)
  t.same(
    pass(window, 32),
    Array.from({ length: 16 }, () => HALF),
  )
  t.same(pass(window, 1, HALF - 1), [])
  t.same(pass(window, 1, 1), [HALF])
})

t.test('[runtime/worker-set.22] a fast stream gets a lead, once', async t => {
  const leads = new Semaphore(MAX_STREAM_LEADS)
  const window = new StreamWindow(0, leads)
  t.same(pass(window, 16), [HALF, HALF, HALF, HALF + STREAM_LEAD_BYTES, HALF, HALF, HALF, HALF])
  for (const [name, bytes] of [
    ['small pieces, as events', 1000],
    ['a byte less', PIECE - 1],
  ] as const) {
    const small = new StreamWindow(0, leads)
    t.ok(
      pass(small, 3000, bytes).every(told => told < STREAM_LEAD_BYTES),
      name,
    )
  }
  const slow = new StreamWindow(0, leads)
  slow.receive(PIECE)
  t.ok(
    pass(slow, 32).every(told => told === HALF),
    'not for a client that never has it all',
  )
})

t.test('[runtime/worker-set.22] so many streams have one at once', async t => {
  const leads = new Semaphore(MAX_STREAM_LEADS)
  const make = () => {
    const window = new StreamWindow(0, leads)
    return { window, hasLead: pass(window, 8).some(told => told > STREAM_LEAD_BYTES) }
  }
  const all = Array.from({ length: MAX_STREAM_LEADS }, make)
  t.ok(all.every(({ hasLead }) => hasLead))
  const late = make()
  t.equal(late.hasLead, false)
  late.window.close()
  t.equal(make().hasLead, false, 'one without has none to give back')
  all[0]!.window.close()
  all[0]!.window.close()
  t.equal(
    pass(all[0]!.window, 16).some(told => told > STREAM_LEAD_BYTES),
    false,
    'what is over gets none',
  )
  t.equal(make().hasLead, true)
  t.equal(make().hasLead, false, 'given back once')
})

t.test('[runtime/worker-set.18, runtime/worker-set.22] what is far beyond what was granted is told', async t => {
  const plain = new StreamWindow(0, null)
  t.ok(plain.receive(2 * STREAM_WINDOW_BYTES))
  t.notOk(plain.receive(1))
  const begun = new StreamWindow(1, null)
  t.notOk(begun.receive(2 * STREAM_WINDOW_BYTES))
  const fast = new StreamWindow(0, new Semaphore(MAX_STREAM_LEADS))
  pass(fast, 8)
  t.ok(fast.receive(2 * STREAM_WINDOW_BYTES + STREAM_LEAD_BYTES))
  t.notOk(fast.receive(1))
})

t.test('[runtime/worker-set.22] a worker that keeps none of a lead never waits for ever', async t => {
  const random = createRandom(22)
  for (const most of [STREAM_WINDOW_BYTES, STREAM_WINDOW_BYTES + STREAM_LEAD_BYTES, 300 * KIB]) {
    const window = new StreamWindow(0, new Semaphore(MAX_STREAM_LEADS))
    let credit = STREAM_WINDOW_BYTES
    let untaken = 0
    let sent = 0
    for (let turn = 0; turn < 20_000; turn++) {
      const wish = Math.min(credit, [PIECE, 1 + random(PIECE), STREAM_WINDOW_BYTES][turn % 3]!)
      if (wish > 0 && random(10) < 7) {
        if (!window.receive(wish)) t.fail('within what was granted')
        credit -= wish
        untaken += wish
        sent += wish
      }
      const taken = random(2) === 0 ? untaken : random(untaken + 1)
      untaken -= taken
      if (taken > 0) credit = Math.min(most, credit + window.take(taken))
      if (untaken === 0 && credit < HALF) t.fail(`starved with ${credit}`)
    }
    t.ok(sent > 100 * STREAM_WINDOW_BYTES, `${sent} bytes`)
  }
})
