import t from 'tap'
import { askAsAdmin, startMember } from '../helpers/fleet-bed.ts'
import { startRedis, WITHOUT_REDIS } from '../helpers/redis.ts'

t.test(
  '[fleet/fleet.5] without the store functions answer, and a required one makes a gateway not ready',
  { skip: WITHOUT_REDIS },
  async t => {
    const server = await startRedis(t)
    const strict = await startMember(t, server, { storeRequired: true })
    const mild = await startMember(t, server)
    t.match((await askAsAdmin(mild, 'GET', '/_fn/fleet')).body, { store: 'up', gateways: [{}, {}] })
    await server.end()
    t.equal((await askAsAdmin(mild, 'GET', '/hello')).status, 200)
    const refused = await askAsAdmin(mild, 'POST', '/_fn/jobs', { name: 'hello' })
    t.match(refused, { status: 503, body: { error: /^the store does not answer: / } })
    t.match((await askAsAdmin(mild, 'GET', '/_fn/health')).body, { store: 'down' })
    t.match(await askAsAdmin(mild, 'GET', '/_fn/health?ready=1'), { status: 200 })
    t.match(await askAsAdmin(strict, 'GET', '/_fn/health?ready=1'), {
      status: 503,
      body: { ready: false, reasons: [/^the store is away: /] },
    })
    const late = await startMember(t, server, { storeRequired: false })
    t.match((await askAsAdmin(late, 'GET', '/_fn/fleet')).body, { store: 'down' })
  },
)
