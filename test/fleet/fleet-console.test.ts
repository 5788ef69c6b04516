import { randomBytes } from 'node:crypto'
import t from 'tap'
import { FleetConsole } from '../../lib/fleet/fleet-console.ts'
import { Store } from '../../lib/fleet/fleet-store.ts'
import { testConsoleStore } from '../helpers/console-store-bed.ts'
import { startRedis, WITHOUT_REDIS } from '../helpers/redis.ts'

t.test('[control/console-store.1] shared by a fleet', { skip: WITHOUT_REDIS }, async t => {
  const redis = await startRedis(t)
  const client = redis.client()
  const open = async (prefix: string) => {
    const store = await Store.open({ url: redis.url, prefix, isRequiredAtStart: true, onLog: () => {} })
    t.teardown(() => store.close())
    return { store, console: new FleetConsole(store) }
  }

  await testConsoleStore(t, async () => {
    const { store, console } = await open(randomBytes(4).toString('hex'))
    return {
      store: console,
      // What is kept gets older: the clock of a server cannot be moved.
      advance: async ms => {
        for (const key of [store.key('sessions'), store.key('logins')])
          for (const name of await client.zrange(key, 0, -1)) await client.zincrby(key, -ms, name)
      },
      damage: async text => void (await client.set(store.key('ui-state'), text)),
      readUnused: () => client.get(store.key('ui-state', 'unused')),
    }
  })

  await t.test('[control/console-store.6] gateways share it, and the store keeps nothing for ever', async t => {
    const [a, b] = [await open('two'), await open('two')]
    await a.console.beginSession('k', { owner: 'user ann', proof: 'p' }, 60_000)
    for (let i = 0; i < 3; i++) await a.console.beginLogin('n')
    for (let i = 0; i < 2; i++) await b.console.beginLogin('n')
    t.not(await b.console.beginLogin('n'), null, 'failures at both count together')
    t.same(await b.console.findSessions(['k']), [{ owner: 'user ann', proof: 'p' }])
    const keys = (await client.keys('{two}:*')).sort()
    t.same(keys, ['{two}:logins', '{two}:logins:count', '{two}:sessions', '{two}:sessions:of'])
    for (const key of keys) {
      const ttl = await client.pttl(key)
      t.ok(ttl > 0 && ttl <= 300_000, `${key} ${ttl}`)
    }
    await b.console.endSessionsOf('user ann')
    t.same(await a.console.findSessions(['k']), [null])
  })

  await t.test('[control/console-store.7] damaged records are no sessions', async t => {
    const { store, console } = await open('damaged')
    await console.beginSession('k', { owner: 'user ann', proof: 'p' }, 60_000)
    for (const text of ['', '{', '[]', '{"owner":1,"proof":"p"}']) {
      await client.hset(store.key('sessions', 'of'), 'k', text)
      t.same(await console.findSessions(['k']), [null], text)
      await console.endSessionsOf('user ann')
    }
  })

  await t.test('[control/console-store.7] without the store everything is refused', async t => {
    const { console } = await open('away')
    await redis.end()
    const refused = { code: 'RUNTIME_DOWN', message: /the store does not answer/ }
    await t.rejects(console.findSessions(['k']), refused)
    await t.rejects(console.beginLogin('n'), refused)
    await t.rejects(console.readState(), refused)
    await t.rejects(console.endSessionsOf('user ann'), refused)
  })
})
