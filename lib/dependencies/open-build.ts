/** One function's way to what it needs, and how it is stopped. Owner: §2.16, page dependencies/resolve. */

import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError } from '../core/errors.ts'

export interface Build {
  fn: FunctionVersion
  state: 'pending' | 'ready' | 'failed'
  error: GatewayError | null
  /** Monotonic ms when its state became what it is. */
  since: number
  /** False when its function turned out to need nothing. */
  isNeeded: boolean
  /** What had changed on disk when its sources were read. */
  change: string | null
  /** Of a failed one: the builder's `stampOf`; null when a catalog came while it ran. */
  stamp: string | null
  done: Promise<string | null>
  /** Made when something is begun that may have to be stopped: most functions need nothing. */
  abort: AbortController | null
  isStopped: boolean
  /** True when a tool has to work for it, and who is to be told. */
  isWork: boolean
  onWork: (() => void)[]
}

export function stopped(): GatewayError {
  return new GatewayError('LOAD_FAILED', 'build was stopped')
}

export function stop(build: Build): void {
  build.isStopped = true
  build.abort?.abort()
}

export function signalOf(build: Build): AbortSignal {
  build.abort ??= new AbortController()
  if (build.isStopped) build.abort.abort()
  return build.abort.signal
}
