/** Calls of functions that no client of HTTP makes: a host program's by name, the scheduler's pings. Owner: §1. */

import type { FunctionVersion } from '../core/catalog.ts'
import { isThrottled } from '../core/errors.ts'
import { toFunctionPath } from '../core/versions.ts'
import type { RequestIds } from '../invocation/event.ts'
import { type InternalRequest, type InternalResult, invokeInternal } from '../invocation/internal-call.ts'
import type { Invoker } from '../invocation/invoke.ts'
import type { Journal } from '../observe/journal.ts'
import type { Metrics } from '../observe/metrics.ts'
import { findCallRoute } from '../router/call-route.ts'
import type { RouteTable } from '../router/route-table.ts'
import { ping, type PingOutcome } from '../scheduler/keep-warm.ts'
import { type Catalog, findFunction } from './catalog-loader.ts'
import type { InvokeRequest, InvokeResult } from './options.ts'

interface FunctionCallsOptions {
  invoker: Invoker
  requestIds: RequestIds
  journal: Pick<Journal, 'callFailed'>
  metrics: Pick<Metrics, 'functions'>
  /** The catalog in force now. */
  catalog: () => Pick<Catalog, 'discovery' | 'routes'>
}

/** Who asks for a call: the id and trace of the request it was asked for with, and the address that it came from. */
interface Asker {
  id?: string
  ip?: string
  trace?: string
  traceState?: string | null
}

/** A call by name, ready to run. */
interface NamedCall extends InternalRequest {
  /** The route that was asked for; null for the name alone. */
  pattern: string | null
}

export class FunctionCalls {
  readonly #options: FunctionCallsOptions

  constructor(options: FunctionCallsOptions) {
    this.#options = options
  }

  /** Runs a call through the same admission as public HTTP. Never rejects; only the log would show its failure. */
  async run(request: InternalRequest): Promise<InternalResult> {
    const { invoker, journal, metrics } = this.#options
    const result = await invokeInternal(invoker, request)
    metrics.functions.count(request.fn, result.status, result.latencyMs, result.queuedMs, isThrottled(result.error))
    if (result.error !== null) journal.callFailed({ ...request, trace: result.trace }, result.error)
    return result
  }

  /** @throws GatewayError as `prepare` does */
  async byName(name: string, request: InvokeRequest): Promise<InvokeResult> {
    const call = this.prepare(name, request)
    return { ...(await this.run(call)), path: call.path, route: call.pattern }
  }

  /**
   * What `run` takes, for a function by its name.
   * @throws GatewayError NOT_FOUND; ROUTE_CONFLICT when several runtimes have that name; BAD_REQUEST for a route or params that are not its own
   */
  prepare(name: string, request: InvokeRequest, { id, ip = '', trace, traceState }: Asker = {}): NamedCall {
    const { discovery, routes } = this.#options.catalog()
    const fn = findFunction(discovery.functions, name, request.version ?? null, request.runtime ?? null)
    const method = request.method ?? fn.policy.methods[0] ?? 'GET'
    return {
      fn,
      id: id ?? this.#options.requestIds.next(),
      method,
      ...toPlace(routes, fn, method, request),
      query: request.query ?? {},
      headers: request.headers ?? {},
      body: request.body ?? null,
      user: request.context ?? null,
      ip,
      trace: trace ?? null,
      traceState: traceState ?? null,
      ...(request.signal !== undefined && { signal: request.signal }),
    }
  }

  /** Keeps a function warm. Never rejects. */
  ping(fn: FunctionVersion): Promise<PingOutcome> {
    return ping(request => this.run(request), this.#options.requestIds, fn)
  }
}

/** Where a call by name seems to come in: at the route that was asked for, else under the function's own name. */
function toPlace(
  routes: RouteTable,
  fn: FunctionVersion,
  method: string,
  { route = null, params = null, headers = {} }: InvokeRequest,
): Pick<NamedCall, 'path' | 'params' | 'pattern'> {
  if (route === null && params === null) return { path: toFunctionPath(fn.name, fn.version), params: {}, pattern: null }
  const host = Object.entries(headers).find(([name]) => name.toLowerCase() === 'host')?.[1] ?? ''
  return findCallRoute(routes, fn, { method, route, params: params ?? {}, host })
}
