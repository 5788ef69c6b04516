import type { Test } from 'tap'
import { resolveSettings, type Settings } from '../../lib/config/settings.ts'
import { AccessState } from '../../lib/control/access.ts'
import { OwnConsoleStore } from '../../lib/control/console-store.ts'
import { ControlPlane } from '../../lib/control/control-plane.ts'
import type { ControlContext, Endpoint } from '../../lib/control/endpoint.ts'
import { Sessions } from '../../lib/control/session-endpoints.ts'
import { BytePool } from '../../lib/core/byte-pool.ts'
import { systemClock } from '../../lib/core/clock.ts'
import { Descriptors } from '../../lib/core/host.ts'
import { OwnFolder } from '../../lib/files/own-folder.ts'
import { createHttpHandlers } from '../../lib/gateway/compose.ts'
import { inject, type InjectRequest, type InjectResponse } from '../../lib/http/inject.ts'
import { Admission } from '../../lib/invocation/admission.ts'
import { RequestIds } from '../../lib/invocation/event.ts'
import { Invoker } from '../../lib/invocation/invoke.ts'
import { Journal } from '../../lib/observe/journal.ts'
import { Metrics } from '../../lib/observe/metrics.ts'
import { buildRouteTable } from '../../lib/router/route-table.ts'
import type { Runtimes } from '../../lib/runtime/runtimes.ts'
import { FakeRuntime } from './fake-runtime.ts'

/** What the endpoints of a test need of a gateway. */
export function toContext(parts: object): ControlContext {
  return { fleet: null, ...parts } as ControlContext
}

type Ask = (request: InjectRequest) => Promise<InjectResponse>

/** Serves endpoints as a gateway without functions would; asks them without a port, as a local caller. */
export function serveEndpoints(t: Test, endpoints: readonly Endpoint[], options: Record<string, unknown> = {}): Ask {
  const { settings } = resolveSettings({ options: { functionsRoot: t.testdir({}), ...options }, cwd: '/' })
  const sessions = new Sessions(new OwnConsoleStore(systemClock, new OwnFolder(t.testdir({}))), settings)
  return serveParts(settings, { endpoints, access: new AccessState(settings), sessions })
}

/** As `serveEndpoints`, with parts that the test makes. */
export function serveParts(
  settings: Settings,
  parts: Omit<ConstructorParameters<typeof ControlPlane>[0], 'settings'>,
): Ask {
  const clock = systemClock
  const admission = new Admission(clock)
  const { public: handler } = createHttpHandlers(
    {
      settings,
      clock,
      metrics: new Metrics(),
      journal: new Journal({ clock, functionsRoot: null, accessLog: false }),
      invoker: new Invoker({ clock, dispatcher: new FakeRuntime(), admission, edge: null, onLog: null }),
      runtimes: { byName: new Map(), pool: new BytePool(clock) } as unknown as Runtimes,
      descriptors: new Descriptors(),
      requestIds: new RequestIds('t'),
      lifecycle: { draining: false },
      catalog: () => ({ routes: buildRouteTable([], { functions: [], forceUrl: false }), before: [], after: [] }),
    },
    new ControlPlane({ settings, ...parts }).handle,
  )
  return request => inject(handler.handle, request)
}
