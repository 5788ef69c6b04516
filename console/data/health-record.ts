/** `GET /_fn/health`, described on page control/records. Owner: page console/overview. */

import { type Loaded, useLoad } from './load.ts'

interface Socket {
  readonly index: number
  readonly uri?: string
  readonly up: boolean
  readonly reason: string
}

interface RuntimeHealth {
  readonly routing: string
  readonly health: { readonly up: boolean; readonly reason: string }
  readonly sockets: readonly Socket[]
}

export interface FunctionState {
  readonly runtime: string
  readonly name: string
  readonly version: string
  readonly key: string
  readonly state: string
  readonly workers: number
  readonly worker_pool: {
    readonly max_workers: number
    readonly max_queue: number
    readonly active: number
    readonly queued: number
    readonly queue_drops: { readonly overflow: number; readonly timeout: number }
  }
}

export interface Health {
  /** Seconds since the epoch. */
  readonly config_loaded_at: number
  readonly functions_root?: string
  readonly runtime_order: readonly string[]
  readonly hot_reload: { readonly enabled: boolean; readonly last_catalog_scan_at: number }
  readonly functions: {
    readonly summary: {
      readonly total: number
      readonly warm: number
      readonly pool_active: number
      readonly pool_queued: number
      readonly pool_queue_overflow_drops: number
      readonly pool_queue_timeout_drops: number
    }
    readonly states?: readonly FunctionState[]
  }
  readonly runtimes: Readonly<Record<string, RuntimeHealth>>
}

/** Milliseconds between two questions. */
const EVERY_MS = 5000

export function useHealth(): Loaded<Health> {
  const loaded = useLoad<Health>('/_fn/health', { every: EVERY_MS, on: ['reload'] })
  const { error } = loaded
  // 503 says that a runtime is down, in the same words.
  if (error?.status === 503 && 'runtimes' in error.body)
    return { data: error.body as unknown as Health, at: Date.now(), error: null }
  return loaded
}
