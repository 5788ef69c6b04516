/** Calls of functions that no client of HTTP makes: a host program's by name, the scheduler's pings. Owner: §1. */

import { type Catalog, findFunction } from './catalog-loader.ts'
import type { FunctionVersion } from './core/catalog.ts'
import { toFunctionPath } from './core/versions.ts'
import type { InvokeRequest } from './gateway-types.ts'
import { type InternalRequest, type InternalResult, invokeInternal } from './invocation/internal-call.ts'
import type { Invoker } from './invocation/invoke.ts'
import type { RequestIds } from './invocation/request-ids.ts'
import type { Journal } from './observe/journal.ts'
import type { PingOutcome } from './scheduler/keep-warm.ts'
import { ping } from './scheduler/ping.ts'

interface FunctionCallsOptions {
  invoker: Invoker
  requestIds: RequestIds
  journal: Pick<Journal, 'callFailed'>
  /** The catalog in force now. */
  catalog: () => Pick<Catalog, 'discovery'>
}

export class FunctionCalls {
  readonly #options: FunctionCallsOptions

  constructor(options: FunctionCallsOptions) {
    this.#options = options
  }

  /** Runs a call through the same admission as public HTTP. Never rejects; nobody but the log would hear of its failure. */
  async run(request: InternalRequest): Promise<InternalResult> {
    const { invoker, journal } = this.#options
    const result = await invokeInternal(invoker, request)
    if (result.error !== null) journal.callFailed(request, result.error)
    return result
  }

  /** @throws GatewayError NOT_FOUND; ROUTE_CONFLICT when several runtimes have that name */
  async byName(name: string, request: InvokeRequest): Promise<InternalResult> {
    const { functions } = this.#options.catalog().discovery
    const fn = findFunction(functions, name, request.version ?? null, request.runtime ?? null)
    return this.run({
      fn,
      id: this.#options.requestIds.next(),
      method: request.method ?? fn.policy.methods[0] ?? 'GET',
      path: toFunctionPath(fn.name, fn.version),
      query: request.query ?? {},
      headers: request.headers ?? {},
      body: request.body ?? null,
      user: request.context ?? null,
      ...(request.signal !== undefined && { signal: request.signal }),
    })
  }

  /** Keeps a function warm. Never rejects. */
  ping(fn: FunctionVersion): Promise<PingOutcome> {
    return ping(request => this.run(request), this.#options.requestIds, fn)
  }
}
