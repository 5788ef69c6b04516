import t from 'tap'
import { createStateEndpoints } from '../../lib/control/state-endpoints.ts'
import { systemClock } from '../../lib/core/clock.ts'
import { FakeClock } from '../helpers/clock.ts'
import { serveEndpoints, toContext } from '../helpers/control.ts'

const RECORD = (runtimes: object) => ({
  details: false,
  settings: { defaultTimeoutMs: 1, defaultMaxConcurrency: 1, defaultMaxBodyBytes: 1, functionsRoot: '/r' },
  functions: [],
  // Only who reads the records may have them made: of ten thousand routes they take longer than anything else here.
  get routes(): never {
    throw new Error('records of routes were asked for')
  },
  routeCounts: { routes: 2, conflicts: 1 },
  homes: [],
  warnings: [],
  ignored: [],
  runtimes,
  workerCount: () => 0,
  admission: [],
  configLoadedAt: 0,
  fleet: null,
  catalogGeneratedAt: 0,
  watching: false,
})

t.test(
  '[control/control-plane.5, control/access.7] health takes any query, reload is awaited, a failed one is 500',
  async t => {
    const steps: string[] = []
    let fails = false
    const state = (details: boolean) => Object.assign(RECORD(new Map()), { details }) as never
    const reload = async () => {
      await null
      if (fails) throw new Error('no disk')
      steps.push('reloaded')
    }
    const lifecycle = { starting: false, draining: false }
    const deps = { clock: systemClock, state, reload, lifecycle, runtimes: new Map() }
    const ask = serveEndpoints(t, createStateEndpoints(toContext(deps)))
    t.match((await ask({ url: '/_fn/health?probe=%zz' })).json(), { functions_root: '/r' })
    const stranger = await ask({ url: '/_fn/health', remoteAddress: '203.0.113.9' })
    t.equal(stranger.status, 200)
    t.notMatch(stranger.json(), { functions_root: '/r' })
    t.match((await ask({ method: 'POST', url: '/_fn/reload' })).json(), { ok: true, routes: 2, conflicts: 1 })
    t.same(steps, ['reloaded'])
    t.equal((await ask({ url: '/_fn/catalog?x=1' })).status, 400)
    fails = true
    t.match(await ask({ method: 'POST', url: '/_fn/reload' }), { status: 500 })
  },
)

t.test('[control/records.9, control/records.10] probes: live, ready, and the record meanwhile', async t => {
  const php = { up: true, reason: 'ok', version: null, routing: 'single' as const, sockets: [] }
  const runtimes = new Map([['php' as const, { health: () => php }]])
  const lifecycle = { starting: true, draining: false }
  // Nothing is known of the tree while it is read.
  const state = () => {
    if (lifecycle.starting) throw new Error('no catalog yet')
    return RECORD(runtimes) as never
  }
  const clock = new FakeClock()
  const endpoints = createStateEndpoints(toContext({ clock, state, reload: async () => {}, lifecycle, runtimes }))
  const ask = serveEndpoints(t, endpoints)
  const stranger = { remoteAddress: '203.0.113.9' }
  const probe = async (query: string, from = {}) => {
    const { status, headers, body } = await ask({ url: `/_fn/health${query}`, ...from })
    return { status, retry: headers['retry-after'] ?? null, body: JSON.parse(String(body)) as Record<string, unknown> }
  }
  const starting = { ready: false, reasons: ['the gateway is starting'] }
  for (const query of ['?ready=1', '?ready', '?a=%zz&READY=true&b', '', '?ready=0', '?live=1&ready=1'])
    t.same(await probe(query, stranger), { status: 503, retry: '1', body: starting }, query)
  t.same((await probe('?live=1', stranger)).body, { live: true })

  lifecycle.starting = false
  for (const from of [{}, stranger]) {
    t.same(await probe('?ready=1', from), { status: 200, retry: null, body: { ready: true } })
    t.match(await probe('', from), { status: 200, body: { runtimes: { php: { health: { up: true } } } } })
    t.match(await probe('?already=1', from), { status: 200, body: { runtimes: {} } }, 'a field of another name')
  }
  Object.assign(php, { up: false, reason: 'cannot run /opt/php' })
  t.same((await probe('?ready=1')).body.reasons, ['runtime php is down: cannot run /opt/php'])
  t.same(await probe('?ready=1', stranger), {
    status: 503,
    retry: '1',
    body: { ready: false, reasons: ['runtime php is down'] },
  })
  t.equal((await probe('?live=1')).status, 200)
  t.equal((await probe('')).status, 503)

  Object.assign(php, { up: true, reason: 'ok' })
  clock.advance(2000)
  t.equal((await probe('', stranger)).status, 200)
  lifecycle.draining = true
  for (const from of [{}, stranger]) {
    t.same((await probe('?ready=1', from)).body, { ready: false, reasons: ['the gateway is stopping'] })
    t.match(await probe('', from), { status: 503, body: { runtimes: { php: { health: { up: true } } } } })
    t.equal((await probe('?live=1', from)).status, 200)
  }
})
