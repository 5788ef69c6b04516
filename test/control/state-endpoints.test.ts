import t from 'tap'
import { createStateEndpoints } from '../../lib/control/state-endpoints.ts'
import { systemClock } from '../../lib/core/clock.ts'
import { serveEndpoints } from '../helpers/control.ts'

t.test(
  '[control/control-plane.5, control/access.7] health takes any query, reload is awaited, a failed one is 500',
  async t => {
    const steps: string[] = []
    let fails = false
    const state = (details: boolean) =>
      ({
        details,
        settings: { defaultTimeoutMs: 1, defaultMaxConcurrency: 1, defaultMaxBodyBytes: 1, functionsRoot: '/r' },
        functions: [],
        routes: { mapped_routes: {}, mapped_route_conflicts: {} },
        homes: [],
        warnings: [],
        ignored: [],
        runtimes: new Map(),
        workerCount: () => 0,
        admission: [],
        configLoadedAt: 0,
        catalogGeneratedAt: 0,
        watching: false,
      }) as never
    const reload = async () => {
      await null
      if (fails) throw new Error('no disk')
      steps.push('reloaded')
    }
    const ask = serveEndpoints(t, createStateEndpoints({ clock: systemClock, state, reload }))
    t.match((await ask({ url: '/_fn/health?probe=%zz' })).json(), { functions_root: '/r' })
    const stranger = await ask({ url: '/_fn/health', remoteAddress: '203.0.113.9' })
    t.equal(stranger.status, 200)
    t.notMatch(stranger.json(), { functions_root: '/r' })
    t.match((await ask({ method: 'POST', url: '/_fn/reload' })).json(), { ok: true })
    t.same(steps, ['reloaded'])
    t.equal((await ask({ url: '/_fn/catalog?x=1' })).status, 400)
    fails = true
    t.match(await ask({ method: 'POST', url: '/_fn/reload' }), { status: 500 })
  },
)
