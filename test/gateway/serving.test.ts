import t, { type Test } from 'tap'
import { resolveSettings } from '../../lib/config/settings.ts'
import { BytePool } from '../../lib/core/byte-pool.ts'
import { systemClock } from '../../lib/core/clock.ts'
import { Descriptors } from '../../lib/core/host.ts'
import { createHttpHandlers } from '../../lib/gateway/compose.ts'
import { inject } from '../../lib/http/inject.ts'
import { Admission } from '../../lib/invocation/admission.ts'
import { RequestIds } from '../../lib/invocation/event.ts'
import { Invoker } from '../../lib/invocation/invoke.ts'
import { Journal } from '../../lib/observe/journal.ts'
import { Metrics } from '../../lib/observe/metrics.ts'
import { buildRouteTable } from '../../lib/router/route-table.ts'
import type { Runtimes } from '../../lib/runtime/runtimes.ts'
import { patternOf } from '../helpers/claims.ts'
import { FakeRuntime } from '../helpers/fake-runtime.ts'
import { makeFn } from '../helpers/fn.ts'
import { createControlPlane } from '../../lib/control/control-plane.ts'

/** Handlers over one function at `/a`, whose runtime is the test's own. */
function setup(t: Test, options: Record<string, unknown> = {}) {
  const clock = systemClock
  const { settings } = resolveSettings({ options: { functionsRoot: t.testdir({}), ...options }, cwd: '/' })
  const runtime = new FakeRuntime()
  const fn = makeFn({ name: 'a', policy: { includeDebugHeaders: true } })
  const journal = new Journal({ clock, functionsRoot: null, accessLog: false })
  const requests: string[] = []
  journal.events.on('request', ({ status, path }) => requests.push(`${status} ${path}`))
  const invoker = new Invoker({ clock, dispatcher: runtime, admission: new Admission(clock), edge: null, onLog: null })
  const claim = { pattern: patternOf('/a'), methods: fn.policy.methods, hosts: [], fn, source: 'file' as const }
  const routes = buildRouteTable([{ ...claim, forced: false, origin: 'a.js', implied: false }], {
    functions: [fn],
    forceUrl: false,
  })
  const metrics = new Metrics()
  let reloads = 0
  const control = createControlPlane({
    settings,
    clock,
    journal,
    history: { start: () => {}, stop: () => {} } as never,
    metrics,
    state: (details: boolean) => ({ details }) as never,
    scheduler: { schedules: null, keepWarm: null } as never,
    jobs: null as never,
    reload: async () => {
      reloads += 1
      throw new Error('no disk')
    },
    // Nothing here is asked for more.
  } as unknown as Parameters<typeof createControlPlane>[0])
  const handlers = createHttpHandlers(
    {
      settings,
      clock,
      journal,
      metrics,
      invoker,
      runtimes: { byName: new Map(), pool: new BytePool(clock) } as unknown as Runtimes,
      descriptors: new Descriptors(),
      requestIds: new RequestIds('t'),
      lifecycle: { draining: false },
      catalog: () => ({ routes, before: [], after: [] }),
    },
    control.handle,
  )
  return { handlers, requests, reloads: () => reloads }
}

t.test(
  '[http/public.1, observe/events.5] one handler serves functions and the control plane, and tells of each request',
  async t => {
    const { handlers, requests, reloads } = setup(t)
    t.equal(handlers.control, null)
    const answer = await inject(handlers.public.handle, { url: '/a' })
    t.match([answer.status, answer.headers['x-fn-runtime-routing']], [200, 'single'])
    t.equal((await inject(handlers.public.handle, { method: 'POST', url: '/_fn/reload' })).status, 500)
    t.equal(reloads(), 1)
    t.match((await inject(handlers.public.handle, { url: '/b' })).json(), { error: 'not found' })
    t.same(requests, ['200 /a', '500 /_fn/reload', '404 /b'])
  },
)

t.test('[control/access.9] with a port of its own the control plane is there alone, and nothing else is', async t => {
  const { handlers, reloads } = setup(t, { controlPort: 0 })
  const statuses = async (handle: typeof handlers.public.handle) => [
    (await inject(handle, { url: '/a' })).status,
    (await inject(handle, { method: 'POST', url: '/_fn/reload' })).status,
    (await inject(handle, { url: '/console' })).status,
  ]
  t.same(await statuses(handlers.public.handle), [200, 404, 404])
  t.equal(reloads(), 0)
  t.same((await statuses(handlers.control!.handle)).slice(0, 2), [404, 500])
  t.equal(reloads(), 1)
})

t.test('[http/public.1] in development a 404 names routes, in production it does not', async t => {
  const body = async (production: boolean) => {
    const { handlers } = setup(t, { production })
    return (await inject(handlers.public.handle, { url: '/aa' })).text()
  }
  t.match(await body(false), /\/a\b/)
  t.equal(await body(true), '{"error":"not found"}')
})
