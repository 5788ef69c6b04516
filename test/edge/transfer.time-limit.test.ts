import t from 'tap'
import { EDGE_ANSWER, EDGE_CLIENT_MS, type Overdue, TimeLimit } from '../../lib/edge/transfer.ts'
import { FakeClock } from '../helpers/clock.ts'

function makeLimit(gapMs: number) {
  const clock = new FakeClock()
  const seen: Overdue[] = []
  const limit = new TimeLimit(clock, gapMs, overdue => seen.push(overdue))
  return { clock, seen, limit }
}

t.test('[edge/passthrough.21] the answer must come, and then each piece of it', async t => {
  const { clock, seen, limit } = makeLimit(500)
  limit.begin(200)
  clock.advance(199)
  t.same(seen, [])
  clock.advance(1)
  t.same(seen.splice(0), [{ who: 'answer', ms: 200 }])
  t.equal(clock.pending, 0)
  limit.begin(2000)
  clock.advance(100)
  limit.onHead()
  for (let i = 0; i < 5; i++) {
    clock.advance(499)
    limit.onUpstream()
  }
  t.same(seen, [], 'a sign in time, each time')
  t.equal(clock.pending, 1, 'one timer')
  clock.advance(500)
  t.same(seen, [{ who: 'upstream', ms: 500 }])
})

t.test('[edge/passthrough.31] a client that takes nothing', async t => {
  for (const gapMs of [500, EDGE_CLIENT_MS * 3]) {
    const { clock, seen, limit } = makeLimit(gapMs)
    const clientMs = Math.max(gapMs, EDGE_CLIENT_MS)
    limit.begin(gapMs)
    limit.onHead()
    limit.onClient()
    clock.advance(clientMs - 1)
    t.same(seen, [])
    limit.onUpstream()
    clock.advance(gapMs - 1)
    t.same(seen, [], 'it took some: the upstream is waited for')
    clock.advance(1)
    t.same(seen.splice(0), [{ who: 'upstream', ms: gapMs }], 'no later than any other time')
    limit.onClient()
    clock.advance(clientMs)
    t.same(seen, [{ who: 'client', ms: clientMs }])
  }
})

t.test('[edge/passthrough.32] the whole of an answer', async t => {
  const { minMs, gaps, bytesPerSecond } = EDGE_ANSWER
  for (const [gapMs, perRound, floorMs] of [
    [500, 0, minMs],
    [500, bytesPerSecond / 10, minMs],
    [minMs, 0, minMs * gaps],
  ] as const) {
    const { clock, seen, limit } = makeLimit(gapMs)
    limit.begin(gapMs)
    limit.onHead()
    const startedAt = clock.monotonic()
    while (seen.length === 0) {
      clock.advance(gapMs / 2)
      limit.bytes += perRound * (gapMs / 2000)
      if (seen.length === 0) limit.onUpstream()
    }
    const totalMs = floorMs / (1 - perRound / bytesPerSecond)
    t.ok(Math.abs(clock.monotonic() - startedAt - totalMs) <= gapMs, `a drip every ${gapMs / 2} ms`)
    t.match(seen, [{ who: 'all', ms: Number }])
    t.ok(Math.abs(seen[0]!.ms - totalMs) <= gapMs)
    t.equal(clock.pending, 0)
  }
  const { clock, seen, limit } = makeLimit(500)
  limit.begin(500)
  limit.onHead()
  for (let ms = 0; ms < minMs * 10; ms += 250) {
    clock.advance(250)
    limit.bytes += bytesPerSecond / 4
    limit.onUpstream()
  }
  t.same(seen, [], 'what comes fast enough may be as long as it likes')
  limit.stop()
  t.equal(clock.pending, 0)
  clock.advance(minMs)
  t.same(seen, [])
})
