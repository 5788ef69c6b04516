import t from 'tap'
import { KeptTrust } from '../../lib/edge/connections.ts'
import { FakeClock } from '../helpers/clock.ts'

function makeBed() {
  const clock = new FakeClock()
  let turns = 0
  const trust = new KeptTrust(clock, () => (turns += 1))
  /** Resolves at the end of the next turn that is planned. */
  const turn = async () => {
    const before = turns
    trust.planTurn()
    while (turns === before) await new Promise(setImmediate)
  }
  return { clock, trust, turns: () => turns, turn, connection: { usedAt: 0, freedTurn: -1 } }
}

t.test('[edge/passthrough.33] a whole turn passes between an answer and the next request', async t => {
  const { trust, connection, turn } = makeBed()
  t.notOk(trust.mayUse({ ...connection, freedTurn: 0 }), 'freed in this turn')
  trust.noteSent(connection)
  trust.noteFree(connection)
  t.notOk(trust.mayUse(connection))
  await turn()
  t.ok(trust.mayUse(connection), 'its end would have been read')
  trust.noteSent(connection)
  trust.noteFree(connection)
  t.notOk(trust.mayUse(connection), 'again from the next answer on')
})

t.test('[edge/passthrough.33] calls back once at the end of a turn, however often it was planned', async t => {
  const { trust, turns, turn } = makeBed()
  trust.planTurn()
  trust.planTurn()
  trust.noteFree({ usedAt: 0, freedTurn: -1 })
  t.equal(turns(), 0, 'not before')
  await turn()
  t.equal(turns(), 1)
  await turn()
  t.equal(turns(), 2)
})

t.test('[edge/passthrough.33] a connection is old a second after its last use', async t => {
  const { clock, trust, connection, turn } = makeBed()
  trust.noteFree(connection)
  await turn()
  clock.advance(1000)
  t.ok(trust.mayUse(connection))
  clock.advance(1)
  t.notOk(trust.mayUse(connection))
})

t.test('[edge/passthrough.33] an upstream that closes soon after a use is not trusted for a minute', async t => {
  const { clock, trust, connection, turn } = makeBed()
  trust.noteSent(connection)
  trust.noteClosed('never answered', connection)
  t.ok(trust.isTrusted('never answered'), 'a first request that fails says nothing of kept connections')
  trust.noteFree(connection)
  await turn()
  clock.advance(1001)
  trust.noteClosed('slow', connection)
  t.ok(trust.isTrusted('slow'))
  trust.noteSent(connection)
  clock.advance(1000)
  trust.noteClosed('quick', connection)
  t.notOk(trust.isTrusted('quick'))
  t.ok(trust.isTrusted('other'))
  clock.advance(30_000)
  trust.noteSent(connection)
  trust.noteClosed('quick', connection)
  clock.advance(59_999)
  t.notOk(trust.isTrusted('quick'), 'from the last time on')
  clock.advance(1)
  t.ok(trust.isTrusted('quick'))
})

t.test('[edge/passthrough.33] of many upstreams that are not trusted the newest are remembered', async t => {
  const { trust, connection } = makeBed()
  trust.noteFree(connection)
  trust.noteClosed('first', connection)
  trust.noteClosed('second', connection)
  trust.noteClosed('first', connection)
  for (let at = 0; at < 999; at++) trust.noteClosed(`${at}`, connection)
  t.ok(trust.isTrusted('second'), 'forgotten')
  t.notOk(trust.isTrusted('first'))
  t.notOk(trust.isTrusted('998'))
})
