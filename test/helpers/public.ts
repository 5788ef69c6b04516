import { BytePool } from '../../lib/core/byte-pool.ts'
import type { Claim, FunctionVersion } from '../../lib/core/catalog.ts'
import { type Clock, systemClock } from '../../lib/core/clock.ts'
import { DebugHeaders } from '../../lib/http/http-call.ts'
import type { Exchange, Step } from '../../lib/http/exchange.ts'
import { PublicHandler } from '../../lib/http/public.ts'
import { Responder } from '../../lib/http/respond.ts'
import { type EdgeHandler, Invoker } from '../../lib/invocation/invoke.ts'
import { RequestIds } from '../../lib/invocation/event.ts'
import { Admission } from '../../lib/invocation/admission.ts'
import { buildRouteTable } from '../../lib/router/route-table.ts'
import { patternOf } from './claims.ts'
import { FakeRuntime } from './fake-runtime.ts'

export interface PublicSetup {
  clock?: Clock
  production?: boolean
  trustedProxyCidrs?: readonly string[]
  before?: Step[]
  after?: Step[]
  edge?: EdgeHandler
  pool?: BytePool
  responseIdleTimeoutMs?: number
  onProblem?: (message: string) => void
  control?: (exchange: Exchange) => void
}

/** The whole request path over a fake runtime. `routes` maps patterns to functions. */
export function makePublic(routes: Record<string, FunctionVersion | FunctionVersion[]>, setup: PublicSetup = {}) {
  const clock = setup.clock ?? systemClock
  const runtime = new FakeRuntime()
  const admission = new Admission(clock)
  const lifecycle = { draining: false }
  const finished: Exchange[] = []
  const logs: { stream: string; text: string }[] = []
  const responder = new Responder({
    clock,
    pool: setup.pool ?? new BytePool(clock),
    production: setup.production ?? false,
    ...(setup.responseIdleTimeoutMs !== undefined && { responseIdleTimeoutMs: setup.responseIdleTimeoutMs }),
    ...(setup.onProblem !== undefined && { onProblem: setup.onProblem }),
    lifecycle,
    onFinished: exchange => finished.push(exchange),
  })
  const requestIds = new RequestIds('test')
  const invoker = new Invoker({
    clock,
    dispatcher: runtime,
    admission,
    edge: setup.edge ?? null,
    onLog: (_call, stream, text) => logs.push({ stream, text }),
  })
  const claims = Object.entries(routes).flatMap(([route, fns]) =>
    [fns].flat().map(
      (fn): Claim => ({
        pattern: patternOf(route),
        methods: fn.policy.methods,
        hosts: fn.policy.allowHosts,
        fn,
        source: 'file',
        forced: false,
        origin: fn.entryFile,
        implied: false,
      }),
    ),
  )
  const catalog = {
    routes: buildRouteTable(claims, { functions: Object.values(routes).flat(), forceUrl: false }),
    before: setup.before ?? [],
    after: setup.after ?? [],
  }
  const { handle } = new PublicHandler({
    clock,
    invoker,
    responder,
    requestIds,
    debug: new DebugHeaders(() => ({ routing: 'single', socketIndex: 1, cold: false })),
    trustedProxyCidrs: setup.trustedProxyCidrs ?? [],
    catalog: () => catalog,
    control: setup.control ?? (exchange => responder.sendJson(exchange, 200, { control: exchange.path })),
  })
  return { handle, runtime, admission, invoker, responder, requestIds, lifecycle, finished, logs, clock, catalog }
}
