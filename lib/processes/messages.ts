/** What the first process and a front say to each other beside calls. Data that the structured clone takes. Owner: page processes/processes. */

import type { Settings } from '../config/settings.ts'
import type { EndpointPath } from '../control/endpoint-table.ts'
import type { Warning } from '../core/errors.ts'
import type { Discovery } from '../discovery/discover.ts'
import type { Listening } from '../http/server.ts'
import type { MetricCounts } from '../observe/metric-counts.ts'

/** What became of upstream requests. */
export type EdgeResult = 'answered' | 'failed' | 'refused' | 'left'

/** A tree as the first process has read it. */
export interface AdoptMessage {
  kind: 'adopt'
  generation: number
  discovery: Discovery
}

export type ToFront =
  | {
      kind: 'begin'
      settings: Settings
      controlPaths: readonly EndpointPath[]
      /** Descriptors of the sockets to listen on. */
      fds: readonly number[]
      /** Where the gateway listens, its control plane's own socket among them: no function may be sent there. */
      addresses: readonly Listening[]
      wantsRequests: boolean
      tree: AdoptMessage
    }
  | AdoptMessage
  | { kind: 'wants'; requests: boolean }
  | { kind: 'count'; id: number }
  | { kind: 'drain' }
  | { kind: 'close'; timeoutMs: number }

/** A failed call of which only its front knows. */
interface FailedMessage {
  kind: 'failed'
  key: string | null
  call: { id: string; trace: string; method: string; path: string }
  /** As a header of the line. */
  error: string
}

export type FromFront =
  | { kind: 'serving'; generation: number }
  | { kind: 'adopted'; generation: number }
  /** @param id - of the question; 0 for none */
  | { kind: 'counts'; id: number; counts: MetricCounts | null; edge: Record<EdgeResult, number> | null }
  | FailedMessage
  | { kind: 'log'; level: 'info' | 'warn' | 'error'; message: string }
  | { kind: 'warning'; warning: Warning }
  | { kind: 'closed' }
