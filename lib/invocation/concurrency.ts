/** How many calls of a function may run and wait, and what a refused one is told. Owner: §2.8, §8. */

import type { Policy } from '../core/catalog.ts'
import { toMaxActive } from '../core/transitions.ts'
import { ERROR_STATUS, GatewayError } from '../core/errors.ts'

/** The admission rules of one function, from `worker_pool` or, without a pool, from `max_concurrency` alone. */
export interface AdmissionLimits {
  /** Calls running at once; 0 means unlimited. */
  maxWorkers: number
  /** Calls waiting; 0 means none waits. */
  maxQueue: number
  queueTimeoutMs: number
  /** Answer to a call that finds no place, and to one that waited too long; made once, so that overload is cheap. */
  overflow: GatewayError
  queueTimeout: GatewayError
}

/** Seconds after which a refused client may try again: queues and calls are short, so the smallest that HTTP can say. */
const RETRY_AFTER = { 'Retry-After': '1' }

/**
 * With a pool its queue decides what happens to further calls. Without one calls wait only when no config sets a limit:
 * then a burst shall not fail for a number that its author has never seen.
 */
export function toAdmissionLimits(policy: Policy): AdmissionLimits {
  const pool = policy.workerPool?.enabled ? policy.workerPool : null
  const options = { status: pool?.overflowStatus ?? ERROR_STATUS.CONCURRENCY_LIMIT, headers: RETRY_AFTER }
  return {
    maxWorkers: toMaxActive(policy),
    maxQueue: pool?.maxQueue ?? policy.defaultQueue?.maxQueue ?? 0,
    queueTimeoutMs: pool?.queueTimeoutMs ?? policy.defaultQueue?.timeoutMs ?? 0,
    overflow:
      pool === null
        ? new GatewayError('CONCURRENCY_LIMIT', 'concurrency limit reached', options)
        : new GatewayError('POOL_OVERFLOW', 'worker pool overflow', options),
    queueTimeout:
      pool === null
        ? new GatewayError('CONCURRENCY_LIMIT', 'concurrency queue timeout', options)
        : new GatewayError('POOL_OVERFLOW', 'worker pool queue timeout', options),
  }
}
