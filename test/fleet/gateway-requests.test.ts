import t, { type Test } from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import { Store } from '../../lib/fleet/fleet-store.ts'
import { GatewayRequests } from '../../lib/fleet/gateway-requests.ts'
import { FakeClock } from '../helpers/clock.ts'
import { type RedisBed, startRedis, WITHOUT_REDIS } from '../helpers/redis.ts'
import { until } from '../helpers/worker-client.ts'

async function gateway(t: Test, redis: RedisBed, id: string) {
  const store = await Store.open({ url: redis.url, prefix: 'r', isRequiredAtStart: true, onLog: () => {} })
  const clock = new FakeClock()
  const gone = new Set<string>()
  const requests = new GatewayRequests({ store, clock, id, isThere: other => !gone.has(other) })
  t.teardown(() => {
    requests.close()
    store.close()
  })
  /** Answers, and does so when the server knows. */
  const serve = async (run: Parameters<GatewayRequests['serve']>[1]): Promise<void> => {
    requests.serve('run', run)
    await until(async () => ((await store.redis.pubsub('NUMSUB', store.key('to', id)))[1] as number) > 0)
  }
  return { store, clock, gone, requests, serve }
}

const never = (): Promise<never> => new Promise(() => {})

t.test('[fleet/gateway-requests.1] runs at another gateway', { skip: WITHOUT_REDIS }, async t => {
  const redis = await startRedis(t)
  const asking = await gateway(t, redis, 'asking')
  await asking.serve(never)

  await t.test('[fleet/gateway-requests.1] the outcome and the errors are those of the other gateway', async t => {
    const other = await gateway(t, redis, 'other')
    await other.serve(async key => {
      if (key === 'busy') throw new GatewayError('CONFLICT', 'it runs right now')
      if (key === 'broken') throw new Error('planted')
      return { key, status: 200 }
    })
    const [a, b] = await Promise.all(['a', 'b'].map(key => asking.requests.ask('other', 'run', key, 1000)))
    t.same(
      [a, b],
      [
        { key: 'a', status: 200 },
        { key: 'b', status: 200 },
      ],
    )
    await t.rejects(asking.requests.ask('other', 'run', 'busy', 1000), { status: 409, message: 'it runs right now' })
    await t.rejects(asking.requests.ask('other', 'run', 'broken', 1000), { status: 500, message: 'gateway exception' })
  })

  await t.test('[fleet/gateway-requests.2] a gateway that is not there, ends, or never answers', async t => {
    await t.rejects(asking.requests.ask('nobody', 'run', 'a', 1000), {
      status: 503,
      message: /nobody.*cannot be reached/,
    })
    const silent = await gateway(t, redis, 'silent')
    let asked = 0
    await silent.serve(() => {
      asked += 1
      return never()
    })
    const late = t.rejects(asking.requests.ask('silent', 'run', 'a', 1000), {
      status: 504,
      message: /did not reply within 1000 ms/,
    })
    await until(() => asked === 1)
    asking.clock.advance(1000)
    await late
    const left = t.rejects(asking.requests.ask('silent', 'run', 'a', 1000), {
      status: 503,
      message: /silent ended before it replied: what it did is not known/,
    })
    await until(() => asked === 2)
    asking.gone.add('silent')
    asking.clock.advance(1000)
    await left
    t.equal(asking.clock.pending, 0, 'no timer stays')
  })

  await t.test(
    '[fleet/gateway-requests.3] other messages, and replies without a waiting request, do nothing',
    async t => {
      const other = await gateway(t, redis, 'strict')
      const keys: string[] = []
      await other.serve(async key => {
        keys.push(key)
        return { key }
      })
      const send = (message: unknown) =>
        asking.store.redis.publish(
          asking.store.key('to', 'strict'),
          typeof message === 'string' ? message : JSON.stringify(message),
        )
      for (const message of ['', '{', '[]', '7', {}, { run: 'a', from: 'x' }, { request: 5, run: 'a', from: 'x' }])
        await send(message)
      for (const message of [
        { request: 'r', run: {}, from: 'x' },
        { request: 'r', run: 'a' },
        { request: 'r', reply: {} },
      ])
        await send(message)
      await send({ request: 'r', error: { code: 'toString', message: 5 } })
      t.same(await asking.requests.ask('strict', 'run', 'last', 1000), { key: 'last' })
      t.same(keys, ['last'])
    },
  )
})
