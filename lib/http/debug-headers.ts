/** Debug headers of a function that asks for them, and in development the one of a function whose newest version cannot be loaded. Owner: §4.1, rule 3. */

import type { FunctionVersion } from '../core/catalog.ts'
import type { GatewayError } from '../core/errors.ts'
import { DEFAULT_VERSION_LABEL } from '../core/versions.ts'
import { toAdmissionLimits } from '../invocation/concurrency.ts'
import type { Call } from '../invocation/invoke.ts'
import { toFailureText } from '../observe/log-line.ts'

/** Longest `X-Fn-Stdout`, `X-Fn-Stderr` or `X-Fn-Load-Error`, bytes. */
const OUTPUT_PREVIEW_BYTES = 1024

/** How a call reached its worker. */
interface RoutingInfo {
  routing: 'single' | 'round_robin'
  /** From 1; null when the call reached no worker. */
  socketIndex: number | null
  /** True when the call had to wait for its worker's start. */
  cold: boolean
}

/** Makes the headers; one per gateway, because it keeps each function's fixed part. */
export class DebugHeaders {
  readonly #fixed = new WeakMap<FunctionVersion, readonly string[]>()
  readonly #describe: (call: Call) => RoutingInfo
  readonly #production: boolean

  /** @param production - true shows no load errors to clients */
  constructor(describe: (call: Call) => RoutingInfo, production = true) {
    this.#describe = describe
    this.#production = production
  }

  /** @returns names and values in turn */
  of(call: Call, latencyMs: number): string[] {
    const { routing, socketIndex, cold } = this.#describe(call)
    const headers = [
      ...this.#fixedOf(call.fn),
      'X-Fn-Request-Id',
      call.id,
      'X-Fn-Runtime-Routing',
      routing,
      'X-Fn-Latency-Ms',
      latencyMs.toFixed(1),
      'X-Fn-Function-State',
      call.loadError !== null ? 'stale' : cold ? 'cold' : 'warm',
    ]
    if (socketIndex !== null) headers.push('X-Fn-Runtime-Socket-Index', String(socketIndex))
    if (call.stdout !== '') headers.push('X-Fn-Stdout', toPreview(call.stdout))
    if (call.stderr !== '') headers.push('X-Fn-Stderr', toPreview(call.stderr))
    return headers
  }

  /** Says in development that the previous version has served the call. @returns names and values in turn */
  ofLoadError({ entryFile }: FunctionVersion, { message, detail }: GatewayError): string[] {
    if (this.#production) return []
    return ['X-Fn-Load-Error', toPreview(toFailureText(message, entryFile, detail ?? {}).headline)]
  }

  #fixedOf(fn: FunctionVersion): readonly string[] {
    let fixed = this.#fixed.get(fn)
    if (fixed === undefined) {
      const limits = toAdmissionLimits(fn.policy)
      fixed = [
        'X-Fn-Runtime',
        fn.runtime,
        'X-Fn-Function',
        fn.name,
        'X-Fn-Version',
        fn.version ?? DEFAULT_VERSION_LABEL,
        'X-Fn-Worker-Pool-Max-Workers',
        String(limits.maxWorkers),
        'X-Fn-Worker-Pool-Max-Queue',
        String(limits.maxQueue),
      ]
      this.#fixed.set(fn, fixed)
    }
    return fixed
  }
}

/** Captured output as one line of at most OUTPUT_PREVIEW_BYTES: a header carries no line ends and no other alphabet. */
function toPreview(text: string): string {
  const head = text.slice(0, OUTPUT_PREVIEW_BYTES + 1)
  const line = head
    .trimEnd()
    .replace(/\s+/g, ' ')
    .replace(/[^\x20-\x7e]/g, '?')
  const isCut = text.trimEnd().length > OUTPUT_PREVIEW_BYTES
  return isCut ? `${line.slice(0, OUTPUT_PREVIEW_BYTES - 3)}...` : line
}
