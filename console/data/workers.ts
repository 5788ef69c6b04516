/** `GET /_fn/workers`, described on page control/workers. Owner: page console/health. */

interface DaemonRecord {
  readonly index: number
  readonly uri: string
  readonly up: boolean
  readonly reason: string
  readonly pid: number | null
  readonly restarts: number
  /** Seconds since the epoch. */
  readonly started_at: number | null
  readonly memory_bytes: number | null
}

export interface WorkerRecord {
  readonly key: string
  readonly socket: number | null
  readonly state: string
  /** Null where another process calls it. */
  readonly inflight: number | null
  readonly calls: number | null
  readonly started_at: number
  readonly pid: number | null
  readonly memory_bytes: number | null
}

/** Whether a function that asked for more workers than there are processors got them. */
interface GrowthRecord {
  readonly key: string
  readonly decision: 'computing' | 'waiting'
  readonly processors: number
}

interface GatewayRecord {
  readonly pid: number
  readonly version: string
  readonly uptime_s: number
  readonly memory_bytes: number
  readonly heap_bytes: number
  readonly heap_total_bytes: number
  /** Processes beside it that take connections. */
  readonly fronts: readonly { readonly serving: boolean; readonly memory_bytes: number | null }[]
  readonly event_loop: { readonly active_ms: number; readonly idle_ms: number }
}

export interface Workers {
  readonly runtimes: Readonly<
    Record<
      string,
      {
        readonly daemons: readonly DaemonRecord[]
        readonly workers: readonly WorkerRecord[]
        readonly growth: readonly GrowthRecord[]
      }
    >
  >
  readonly gateway: GatewayRecord
}
