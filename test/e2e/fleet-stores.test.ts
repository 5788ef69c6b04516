import { setTimeout as delay } from 'node:timers/promises'
import t, { type Test } from 'tap'
import type { Gateway } from '../../lib/index.ts'
import { askAsAdmin, startMember } from '../helpers/fleet-bed.ts'
import { startCluster, startSentinel, WITHOUT_REDIS } from '../helpers/redis.ts'

const create = (gateway: Gateway) => askAsAdmin(gateway, 'POST', '/_fn/jobs', { name: 'hello' })

type Reply = Awaited<ReturnType<typeof askAsAdmin>>

/** Asks as a client that tries again, until the store is back and the response is as it must be. */
async function retry(t: Test, ask: () => Promise<Reply>, isRight: (reply: Reply) => boolean): Promise<Reply> {
  for (;;) {
    const reply = await ask()
    t.notMatch(JSON.stringify(reply), 'planted')
    if (isRight(reply)) return reply
    if (reply.status > 201)
      t.match(reply, { status: 503, body: { error: /^(the store|gateway .* cannot be reached)/ } })
    await delay(100)
  }
}

/** Jobs of each gateway, until the other one hears of the end of one, and a schedule that is run from both. */
async function checkShared(t: Test, a: Gateway, b: Gateway): Promise<void> {
  for (const [one, other] of [
    [a, b],
    [b, a],
  ] as const) {
    const done = new Set<string>()
    other.on('job', ({ id, state }) => state === 'done' && done.add(id))
    const made = new Set<string>()
    // Messages that are sent while a connection is made are lost.
    await retry(
      t,
      () => create(one),
      ({ status, body }) => {
        if (status === 201) made.add(body.id)
        return [...made].some(id => done.has(id))
      },
    )
    const id = [...made].find(id => done.has(id))!
    const read = (): Promise<Reply> => askAsAdmin(other, 'GET', `/_fn/jobs/${id}/result`)
    const result = await retry(t, read, ({ status }) => status === 200)
    t.match(result.body, { body: '{"trigger":"job"}' })
    const run = (): Promise<Reply> => askAsAdmin(one, 'POST', '/_fn/schedules/run', { name: 'tick' })
    t.match(await retry(t, run, ({ status }) => status === 200), { body: { status: 200, error: '' } })
  }
}

t.test(
  '[fleet/fleet-store.8] after a failover of Sentinels the gateways go on at the new master',
  { skip: WITHOUT_REDIS },
  async t => {
    const { url, master } = await startSentinel(t, 'planted')
    const storeUrl = `${url.replace('//', '//:planted@')}?sentinel_password=planted-watch`
    const [a, b] = [await startMember(t, master, { storeUrl }), await startMember(t, master, { storeUrl })]
    await checkShared(t, a, b)
    const made = await Promise.all(Array.from({ length: 20 }, () => create(a)))
    t.equal(await master.client('planted').wait(1, 0), 1, 'the replica has what was acknowledged')
    await master.kill()
    await checkShared(t, a, b)
    for (const { body } of made) {
      const read = (): Promise<Reply> => askAsAdmin(a, 'GET', `/_fn/jobs/${body.id}`)
      await retry(t, read, ({ status, body }) => status === 200 && body.status === 'done')
    }
    t.match((await askAsAdmin(a, 'GET', '/_fn/health')).body, { store: 'up' })
  },
)

t.test(
  '[fleet/fleet-store.9] gateways share a Cluster of three masters, one of which restarts',
  { skip: WITHOUT_REDIS },
  async t => {
    const { url, nodes } = await startCluster(t)
    const [a, b] = [
      await startMember(t, nodes[0]!, { storeUrl: url }),
      await startMember(t, nodes[0]!, { storeUrl: url }),
    ]
    await checkShared(t, a, b)
    const sizes = await Promise.all(nodes.map(node => node.client().dbsize()))
    const owner = nodes[sizes.findIndex(size => size > 0)]!
    t.equal(sizes.filter(size => size > 0).length, 1, 'all keys are in one slot')
    await owner.end()
    t.match(await create(a), { status: 503, body: { error: /^the store / } })
    t.match((await askAsAdmin(a, 'GET', '/_fn/health')).body, { store: 'down' })
    await owner.begin()
    await checkShared(t, a, b)
  },
)
