/** The handlers of a gateway's sockets: the public one, and one of the control plane's own. Owner: §4.1, §4.2. */

import type { Settings } from './config/settings.ts'
import type { ControlParts } from './control-parts.ts'
import { ControlPlane } from './control/control-plane.ts'
import type { BytePool } from './core/byte-pool.ts'
import type { Clock } from './core/clock.ts'
import { GatewayError } from './core/errors.ts'
import type { RuntimeName } from './core/identity.ts'
import type { Lifecycle } from './core/transitions.ts'
import { DebugHeaders } from './http/http-call.ts'
import type { Descriptors } from './core/host.ts'
import type { Exchange } from './http/exchange.ts'
import { PublicHandler, type PublicCatalog } from './http/public.ts'
import { createRequestListener } from './http/request-record.ts'
import { Responder } from './http/respond.ts'
import { TrustedProxies } from './invocation/forwarded-headers.ts'
import type { Invoker } from './invocation/invoke.ts'
import type { RequestIds } from './invocation/event.ts'
import type { Journal } from './observe/journal.ts'
import type { Metrics } from './observe/metrics.ts'
import { buildRouteTable } from './router/route-table.ts'
import type { Runtimes } from './runtime/runtimes.ts'

interface HttpHandlersOptions {
  settings: Settings
  clock: Clock
  journal: Journal
  metrics: Metrics
  invoker: Invoker
  runtimes: Runtimes
  descriptors: Descriptors
  requestIds: RequestIds
  /** `draining` is true while the gateway stops. */
  lifecycle: Pick<Lifecycle, 'draining' | 'toShed'>
  /** The catalog in force now. */
  catalog: () => PublicCatalog
  controlParts: Omit<ControlParts, 'close'>
}

interface HttpHandlers {
  public: PublicHandler
  /** Serves the control plane alone; null where it shares the public socket. */
  control: PublicHandler | null
}

interface SharedOptions
  extends Pick<HttpHandlersOptions, 'settings' | 'clock' | 'invoker' | 'requestIds' | 'lifecycle'> {
  /** Memory for bodies that clients have not taken yet. */
  pool: BytePool
  descriptors: Descriptors
  /** Told of every exchange that ended. */
  onFinished: (exchange: Exchange) => void
  /** Logged for clients that did not read their responses. */
  onProblem: (message: string) => void
  /** How calls of a runtime find their socket. */
  routingOf: (runtime: RuntimeName) => 'single' | 'round_robin'
}

/** What every public handler of a process is made of. */
export function createSharedParts(options: SharedOptions) {
  const { settings, pool, descriptors, onFinished, onProblem, routingOf, lifecycle, ...shared } = options
  const { clock } = shared
  const { production, responseIdleTimeoutMs } = settings
  return {
    ...shared,
    responder: new Responder({
      clock,
      pool,
      descriptors,
      production,
      lifecycle,
      onFinished,
      onProblem,
      responseIdleTimeoutMs,
    }),
    debug: new DebugHeaders(
      call => ({
        routing: routingOf(call.fn.runtime),
        socketIndex: call.host?.socketIndex ?? null,
        cold: call.cold,
      }),
      production,
    ),
    trustedProxyCidrs: settings.trustedProxyCidrs,
    trustedProxyHeader: settings.trustedProxyHeader,
    namesRoutes: !production,
  }
}

export function createHttpHandlers(options: HttpHandlersOptions): HttpHandlers {
  const { settings, clock, journal, invoker, runtimes, requestIds, lifecycle, catalog, descriptors } = options
  const shared = createSharedParts({
    settings,
    clock,
    invoker,
    requestIds,
    lifecycle,
    pool: runtimes.pool,
    descriptors,
    onFinished: createRequestListener(journal, clock, options.metrics),
    onProblem: message => journal.log('warn', message),
    routingOf: name => runtimes.byName.get(name)?.health().routing ?? 'single',
  })
  const { responder } = shared
  const proxies = new TrustedProxies(settings.trustedProxyCidrs)
  const control = new ControlPlane({
    ...options.controlParts,
    responder,
    isTrustedProxy: address => proxies.isTrusted(address),
  })
  if (settings.controlPort === null)
    return { public: new PublicHandler({ ...shared, catalog, control: control.handle }), control: null }
  // Reserved paths stay reserved where nobody answers them.
  const refuse = (exchange: Exchange) => responder.sendError(exchange, new GatewayError('NOT_FOUND', 'not found'))
  const nothing = { routes: buildRouteTable([], { functions: [], forceUrl: false }), before: [], after: [] }
  return {
    public: new PublicHandler({ ...shared, catalog, control: refuse }),
    control: new PublicHandler({ ...shared, catalog: () => nothing, control: control.handle }),
  }
}
