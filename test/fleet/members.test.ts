import t, { type Test } from 'tap'
import { type MemberReport, Members } from '../../lib/fleet/members.ts'
import { Store } from '../../lib/fleet/fleet-store.ts'
import { FakeClock } from '../helpers/clock.ts'
import { type RedisBed, startRedis, WITHOUT_REDIS } from '../helpers/redis.ts'

const REPORT: MemberReport = {
  version: '1.0.0',
  release: 'r1',
  addresses: ['http://127.0.0.1:1'],
  state: 'ready',
  startedAt: 7,
  runningCalls: 3,
  queuedCalls: 1,
  loadAverage: 0.5,
  cpus: 2,
  leads: false,
}

async function member(t: Test, redis: RedisBed, id: string, more: Partial<MemberReport> = {}) {
  const store = await Store.open({ url: redis.url, prefix: 'm', isRequiredAtStart: true, onLog: () => {} })
  const clock = new FakeClock()
  const members = new Members({ store, clock, id, report: () => ({ ...REPORT, ...more }) })
  t.teardown(async () => {
    await members.close()
    store.close()
  })
  return { store, clock, members }
}

t.test('[fleet/members.1] members of a fleet', { skip: WITHOUT_REDIS }, async t => {
  const redis = await startRedis(t)
  const a = await member(t, redis, 'a')
  const b = await member(t, redis, 'b', { leads: true, state: 'draining' })

  await t.test('[fleet/members.1] each gateway sees all of them', async t => {
    await a.members.start()
    t.equal(a.members.hasOthers(), false)
    await b.members.start()
    t.match(b.members.list(), [
      { id: 'a', ...REPORT, pid: process.pid, isGone: false },
      { id: 'b', leads: true, state: 'draining' },
    ])
    t.equal(b.members.hasOthers(), true)
  })

  await t.test('[fleet/members.2] a silent one counts as gone by the clock of the store, and is forgotten', async t => {
    const client = redis.client()
    const seen = a.store.key('gateways', 'seen')
    await client.zadd(seen, Date.now() - 20_000, 'a')
    await b.members.start()
    t.match(b.members.list()[0], { id: 'a', isGone: true })
    t.equal(b.members.hasOthers(), false)
    await client.zadd(seen, Date.now() - 400_000, 'a')
    await b.members.start()
    t.same(
      b.members.list().map(({ id }) => id),
      ['b'],
    )
  })

  await t.test(
    '[fleet/members.4] a release is as old as its first report, also when the store has lost that',
    async t => {
      const client = redis.client()
      const later = await member(t, redis, 'later', { release: 'r2' })
      await later.members.start()
      const since = () => Object.fromEntries(later.members.list().map(one => [one.release, one.releaseSince]))
      const before = since()
      t.ok(before.r1! < before.r2!, 'the first report of r1 came earlier')
      await client.del(later.store.key('release', 'r1'), later.store.key('release', 'r2'))
      await later.members.start()
      await b.members.start()
      await later.members.start()
      t.same(since(), before)
      t.ok((await client.pttl(later.store.key('release', 'r2'))) > 0)
      await later.members.close()
    },
  )

  await t.test('[fleet/members.5] a report that is damaged or forged has the types of a report', async t => {
    const client = redis.client()
    const [reports, seen] = [b.store.key('gateways'), b.store.key('gateways', 'seen')]
    const forged = { addresses: [5, 'x'.repeat(9999)], state: 7, pid: 'x', release: {}, leads: 1, startedAt: null }
    await client.hset(reports, 'forged', JSON.stringify(forged), 'damaged', '{')
    await client.zadd(seen, Date.now(), 'forged', Date.now(), 'damaged')
    await b.members.start()
    const listed = b.members.list().find(({ id }) => id === 'forged')
    t.match(listed, {
      addresses: ['', 'x'.repeat(300)],
      state: 'starting',
      pid: 0,
      release: '',
      leads: false,
      startedAt: 0,
    })
    t.notOk(b.members.list().some(({ id }) => id === 'damaged'))
    await client.hdel(reports, 'forged', 'damaged')
    await client.zrem(seen, 'forged', 'damaged')
  })

  await t.test('[fleet/members.3] one that ends takes itself out', async t => {
    await b.members.close()
    await a.members.start()
    t.same(
      a.members.list().map(({ id }) => id),
      ['a'],
    )
  })
})
