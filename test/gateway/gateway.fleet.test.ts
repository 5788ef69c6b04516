import t from 'tap'
import { askAsAdmin, askAsUser, logIn, startMember } from '../helpers/fleet-bed.ts'
import { startRedis, WITHOUT_REDIS } from '../helpers/redis.ts'

t.test(
  '[fleet/fleet.5] without the store functions answer, and a required one makes a gateway not ready',
  { skip: WITHOUT_REDIS },
  async t => {
    const server = await startRedis(t)
    const strict = await startMember(t, server, { storeRequired: true })
    const mild = await startMember(t, server, { uiEnabled: true })
    const cookie = await logIn(mild)
    t.match((await askAsUser(mild, cookie, 'GET', '/_fn/ui-state')).body, { current_user: 'admin' })
    t.match((await askAsAdmin(mild, 'GET', '/_fn/fleet')).body, { store: 'up', gateways: [{}, {}] })
    await server.end()
    t.equal((await askAsAdmin(mild, 'GET', '/hello')).status, 200)
    const refused = await askAsAdmin(mild, 'POST', '/_fn/jobs', { name: 'hello' })
    t.match(refused, { status: 503, body: { error: /^the store does not answer: / } })
    t.match(await askAsAdmin(mild, 'POST', '/_fn/schedules/run', { name: 'tick' }), { status: 503 })
    t.match((await askAsAdmin(mild, 'GET', '/_fn/health')).body, { store: 'down' })
    t.match(await askAsAdmin(mild, 'GET', '/_fn/health?ready=1'), { status: 200 })
    t.match(await askAsAdmin(strict, 'GET', '/_fn/health?ready=1'), {
      status: 503,
      body: { ready: false, reasons: [/^the store is away: /] },
    })
    await t.test('[fleet/fleet.8] a session is neither lost nor taken for granted', async t => {
      const unknown = { status: 503, headers: { 'retry-after': '2' }, body: { error: /^the store does not answer: / } }
      for (const url of ['/_fn/catalog', '/_fn/ui-state', '/_fn/nothing'])
        t.match(await askAsUser(mild, cookie, 'GET', url), unknown, url)
      t.match(await askAsUser(mild, cookie, 'POST', '/_fn/logout'), unknown)
      t.match(await askAsUser(mild, 'a=b', 'POST', '/_fn/login', { token: 'a'.repeat(32) }), unknown)
      t.equal((await askAsUser(mild, cookie, 'GET', '/_fn/health')).status, 200)
      t.not((await askAsUser(mild, cookie, 'GET', '/console')).status, 503, 'the page needs no session')
      t.equal((await askAsUser(mild, 'a=b', 'GET', '/_fn/catalog')).status, 200, 'a local caller without a session')
      t.equal((await askAsUser(mild, cookie, 'GET', '/hello')).status, 200)
      const headers = { cookie, 'x-fn-admin-token': 'a'.repeat(32) }
      t.equal((await mild.inject({ url: '/_fn/catalog', headers })).status, 200, 'the token needs no session')
    })
    const late = await startMember(t, server, { storeRequired: false })
    t.match((await askAsAdmin(late, 'GET', '/_fn/fleet')).body, { store: 'down' })
  },
)
