/**
 * The decisions of the gateway's state table as pure functions: which claim owns a route, which call runs, which run is repeated.
 * router/route-table, invocation/admission and scheduler/schedule hold the state. Spec: §3.
 */

import type { ClaimSource, Policy, RetryPolicy } from './catalog.ts'
import { backoffDelay } from './clock.ts'

/** The facts that decide between two claims on one route, method and host. */
export interface ClaimStanding {
  /** Key of the claiming function version. */
  fnKey: string
  source: ClaimSource
  /** `invoke.force-url`, or `FN_FORCE_URL` for a config route. */
  forced: boolean
  /** The claim of a pinned version; such a claim is never forced by its own config (§9). */
  versioned: boolean
  /** `FN_FORCE_URL`: only with it a version's route wins. */
  forceUrl: boolean
}

/**
 * map: the route was free. merge: the same function asks again. reject: the holder keeps it.
 * replace: the claim takes it. conflict: neither gets it, requests get 409.
 */
type ClaimDecision = 'map' | 'merge' | 'reject' | 'replace' | 'conflict'

/** From this strength on a claim has been forced. */
export const FORCED_STRENGTH = 4

/**
 * The strength of a claim; equal strengths conflict, so the outcome never depends on the order of discovery.
 * version 0, config 1, file 2, manifest 3, forced 4, version under `FN_FORCE_URL` 5.
 */
export function claimStrength(claim: ClaimStanding): number {
  if (claim.versioned) return claim.forceUrl ? FORCED_STRENGTH + 1 : 0
  if (claim.forced || (claim.forceUrl && claim.source === 'config')) return FORCED_STRENGTH
  if (claim.source === 'manifest') return 3
  return claim.source === 'file' ? 2 : 1
}

/** Decides about a claim on a route that `holder` may already have. Spec: §3 route rows. */
export function decideClaim(holder: ClaimStanding | null, claim: ClaimStanding): ClaimDecision {
  if (holder === null) return 'map'
  if (holder.fnKey === claim.fnKey) return 'merge'
  const difference = claimStrength(claim) - claimStrength(holder)
  if (difference === 0) return 'conflict'
  return difference > 0 ? 'replace' : 'reject'
}

interface AdmissionState {
  /** Calls that run and that wait now. */
  active: number
  queued: number
  /** Calls that may run at once (0 means unlimited) and that may wait. */
  maxWorkers: number
  maxQueue: number
}

/**
 * Calls of a function that may run at once; 0 means unlimited. `max_concurrency` and the pool's `max_workers` both hold where a
 * config sets both. The default of `max_concurrency` does not cut a `max_workers` that a config sets.
 */
export function toMaxActive({ maxConcurrency, defaultQueue, workerPool }: Policy): number {
  if (workerPool?.enabled !== true) return maxConcurrency
  const { maxWorkers } = workerPool
  return maxConcurrency === 0 || defaultQueue !== null ? maxWorkers : Math.min(maxWorkers, maxConcurrency)
}

/** Decides about a call that arrives now. A worker that a waiting call is about to get is not free. Spec: §3 admission rows. */
export function nextAdmission({ active, queued, maxWorkers, maxQueue }: AdmissionState): 'run' | 'queue' | 'reject' {
  if (maxWorkers === 0 || active + queued < maxWorkers) return 'run'
  return queued < maxQueue ? 'queue' : 'reject'
}

interface RunOutcome {
  /** Status of the run; 0 when it never got one. */
  status: number
  /** Number of the run that ended, from 1. */
  attempt: number
  retry: RetryPolicy | null
  /** In [0, 1), spreads the delay by `jitter`. */
  random: number
}

/** True for a status that another attempt may change: 0, 429, and 5xx, which includes 503. */
export function isRetryable(status: number): boolean {
  return status === 0 || status === 429 || status >= 500
}

/**
 * The retry after a scheduled run, or null when the schedule goes back to idle. Spec: §3 schedule rows, §2.13.
 * The delay doubles from `baseDelaySeconds` up to `maxDelaySeconds`, plus or minus `jitter` of it, never below 0.
 */
export function nextRetry({
  status,
  attempt,
  retry,
  random,
}: RunOutcome): { attempt: number; delaySeconds: number } | null {
  if (retry === null || !isRetryable(status) || attempt >= retry.maxAttempts) return null
  const delay = backoffDelay(attempt - 1, { first: retry.baseDelaySeconds, max: retry.maxDelaySeconds })
  const spread = delay * retry.jitter * (random * 2 - 1)
  return { attempt: attempt + 1, delaySeconds: Math.max(0, delay + spread) }
}

/** The state of a gateway between its start and its end. */
export interface Lifecycle {
  /** True until the tree is read and the runtimes are up or have a reason why not. */
  starting: boolean
  /** True from the beginning of a stop on. */
  draining: boolean
  /** Connections that end with their next responses: other processes of the gateway have fewer. */
  toShed?: number
}
