import t, { type Test } from 'tap'
import { type MemberReport, Members } from '../../lib/fleet/members.ts'
import { Store } from '../../lib/fleet/fleet-store.ts'
import { until } from '../helpers/worker-client.ts'
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
  canLead: true,
  historyFormat: 1,
}

async function member(t: Test, redis: RedisBed, id: string, more: Partial<MemberReport> = {}, prefix = 'm') {
  const store = await Store.open({ url: redis.url, prefix, isRequiredAtStart: true, onLog: () => {} })
  const clock = new FakeClock()
  const followed: string[] = []
  const follow = async (): Promise<void> => void followed.push(id)
  const members = new Members({ store, clock, id, report: () => ({ ...REPORT, ...more }), follow })
  t.teardown(async () => {
    await members.close()
    store.close()
  })
  return { store, clock, members, followed }
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

  await t.test('[fleet/members.10] ready gateways of another release are newer or older', async t => {
    const old = await member(t, redis, 'old', {}, 'r')
    await old.members.start()
    t.same(old.members.rivals(), { hasNewer: false, hasOlder: false })
    const idle = await member(t, redis, 'idle', { release: 'r2', canLead: false }, 'r')
    const starting = await member(t, redis, 'starting', { release: 'r2', state: 'starting' }, 'r')
    const same = await member(t, redis, 'same', {}, 'r')
    for (const { members } of [idle, starting, same, old]) await members.start()
    t.same(old.members.rivals(), { hasNewer: false, hasOlder: false }, 'one that takes nothing over does not count')
    t.same(starting.members.rivals(), { hasNewer: false, hasOlder: true })
    const young = await member(t, redis, 'young', { release: 'r2' }, 'r')
    for (const { members } of [young, old]) await members.start()
    t.same(
      [young.members.rivals(), old.members.rivals()],
      [
        { hasNewer: false, hasOlder: true },
        { hasNewer: true, hasOlder: false },
      ],
    )
  })

  await t.test('[fleet/members.5] a report that is damaged or forged has the types of a report', async t => {
    const client = redis.client()
    const [reports, seen] = [b.store.key('gateways'), b.store.key('gateways', 'seen')]
    const forged = {
      addresses: [5, 'x'.repeat(9999)],
      state: 7,
      pid: 'x',
      release: {},
      leads: 1,
      startedAt: null,
      historyFormat: '1',
    }
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
      historyFormat: 0,
    })
    t.notOk(b.members.list().some(({ id }) => id === 'damaged'))
    await client.hdel(reports, 'forged', 'damaged')
    await client.zrem(seen, 'forged', 'damaged')
    await b.members.start()
    const own = b.members.list().map(({ id }) => id)
    const crowd = Array.from({ length: 20_000 }, (_, i) => `crowd-${i}`)
    const ahead = Date.now() + 3_600_000
    await client.hset(reports, 'huge', JSON.stringify({ state: 'x'.repeat(100_000) }), 'ahead', '{}')
    await client.hset(reports, ...crowd.flatMap(id => [id, '{}']))
    await client.zadd(seen, Date.now(), 'huge', ahead, 'ahead', ...crowd.flatMap(id => [Date.now() - 60_000, id]))
    await b.members.start()
    const known = b.members.list().map(({ id }) => id)
    t.equal(known.length, 999, 'without the one that is too large')
    t.strictSame(
      known.filter(id => !id.startsWith('crowd')),
      own,
    )
    await client.hdel(reports, 'huge', 'ahead', ...crowd)
    await client.zrem(seen, 'huge', 'ahead', ...crowd)
  })

  await t.test('[fleet/members.3] one that ends takes itself out', async t => {
    await b.members.close()
    await a.members.start()
    t.same(
      a.members.list().map(({ id }) => id),
      ['a'],
    )
  })

  await t.test(
    '[fleet/members.6] a change reaches all gateways, and those that have it in force are counted',
    async t => {
      const [one, two] = [await member(t, redis, 'one', {}, 'c'), await member(t, redis, 'two', {}, 'c')]
      for (const { members } of [one, two]) await members.open()
      for (const { members } of [one, two, one]) await members.start()
      t.same([one.followed, two.followed], [[], []], 'nothing was changed yet')
      const told = one.members.announce()
      await until(() => {
        for (const { clock } of [one, two]) clock.advance(10)
        return two.followed.length > 0
      })
      const reach = await settled(told, one.clock, 10)
      t.same(reach, { gateways: 2, in_force: 2, missing: [] })
      t.same([one.followed, two.followed], [[], ['two']], 'the one that changed it has read it')

      t.comment('both at once')
      const both = [one.members.announce(), two.members.announce()]
      await Promise.all(both.map((announced, i) => settled(announced, [one, two][i]!.clock, 10, [one, two])))
      await one.members.report()
      const changes = new Set(one.members.list().map(({ change }) => change))
      t.equal(changes.size, 1, 'both have the last change')

      t.comment('another release has another tree')
      const other = await member(t, redis, 'other', { release: 'r2' }, 'c')
      await other.members.open()
      await other.members.start()
      const reached = await settled(one.members.announce(), one.clock, 10, [two, other])
      t.same(reached, { gateways: 3, in_force: 2, missing: ['other'] })
      await other.members.close()
    },
  )

  await t.test('[fleet/members.7] one that does not follow is named, and a failed reading is tried once', async t => {
    const one = await member(t, redis, 'one', {}, 'f')
    const broken = await member(t, redis, 'broken', {}, 'f')
    let tries = 0
    const store = broken.store
    const report = () => REPORT
    const follow = async (): Promise<void> => {
      tries += 1
      throw new Error('the tree cannot be read')
    }
    const failing = new Members({ store, clock: broken.clock, id: 'broken', report, follow })
    t.teardown(() => failing.close())
    await failing.open()
    await failing.start()
    await one.members.open()
    await one.members.start()
    const told = one.members.announce()
    await until(() => {
      broken.clock.advance(10)
      return tries > 0
    })
    t.same(await settled(told, one.clock, 6000), { gateways: 2, in_force: 1, missing: ['broken'] })
    await failing.report()
    await failing.report()
    t.equal(tries, 1)
  })

  await t.test(
    '[fleet/members.8] a gateway that missed the message, and a change that could not be announced, are made up for',
    async t => {
      const one = await member(t, redis, 'one', {}, 'l')
      const two = await member(t, redis, 'two', {}, 'l')
      for (const { members } of [one, two]) await members.open()
      for (const { members } of [one, two, one]) await members.start()
      two.store.ignore(two.store.key('changes'))
      const told = one.members.announce()
      const seen = await settled(told, one.clock, 6000)
      t.match(seen, { missing: ['two'] })
      await two.members.report()
      await until(() => two.followed.length === 1)

      await redis.end()
      t.match(await one.members.announce(), {
        gateways: 2,
        in_force: 1,
        missing: ['two'],
        problem: /^the store does not/,
      })
      await redis.begin()
      await until(() => one.store.problem === null && two.store.problem === null)
      await one.members.report()
      await two.members.report()
      await until(() => two.followed.length === 2)
    },
  )

  await t.test(
    '[fleet/members.9] messages are only reasons to look, and a number that is none counts as 0',
    async t => {
      const one = await member(t, redis, 'one', {}, 'h')
      await one.members.open()
      await one.members.start()
      const client = redis.client()
      for (const text of ['', '{"reload":true}', '../../etc', 'x'.repeat(100_000)])
        await client.publish(one.store.key('changes'), text)
      await one.store.redis.ping()
      one.clock.advance(10)
      await one.members.report()
      t.same(one.followed, [], 'nothing was changed')
      await client.set(one.store.key('change'), 'not a number')
      await one.members.report()
      t.same(one.followed, [])
      t.same(await one.members.announce(), { gateways: 1, in_force: 1, missing: [] })
    },
  )
})

/** What was announced, with the clocks going on meanwhile. */
async function settled<T>(
  told: Promise<T>,
  clock: FakeClock,
  ms: number,
  more: { clock: FakeClock }[] = [],
): Promise<T> {
  let outcome: { value: T } | null = null
  void told.then(value => (outcome = { value }))
  await until(() => {
    for (const one of [clock, ...more.map(({ clock }) => clock)]) one.advance(ms)
    return outcome !== null
  })
  return outcome!.value
}
