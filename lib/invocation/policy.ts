/** The place of a function's calls among those that run and wait, and the schema that they are checked against. Owner: §2.8, §8. */

import type { FunctionVersion, Policy } from '../core/catalog.ts'
import { getOrMake } from '../core/collections.ts'
import { ERROR_STATUS, GatewayError } from '../core/errors.ts'
import { headerOf } from '../core/http-text.ts'
import { toMaxActive } from '../core/transitions.ts'
import type { RequestSchema, RequestTexts } from '../validation/request-schema.ts'
import type { Difference } from '../validation/schema-compiler.ts'
import type { ReplyHead } from './response.ts'

/** The admission rules of one function, from `worker_pool` or, without a pool, from `max_concurrency` alone. */
export interface AdmissionLimits {
  /** Calls running at once; 0 means unlimited. */
  maxWorkers: number
  /** Calls waiting; 0 means none waits. */
  maxQueue: number
  queueTimeoutMs: number
  /** When the first waiting call has waited longer, further ones are refused at once; infinite where their number alone decides. */
  maxWaitMs: number
  /** Response to a call that finds no place, and to one that waited too long. @param waitMs - how long the queue probably is */
  overflow: (waitMs: number) => GatewayError
  queueTimeout: (waitMs: number) => GatewayError
}

/** Seconds in `Retry-After` of a refusal, at most. */
const MAX_RETRY_AFTER = 60

const LIMIT_REFUSALS = {
  overflow: new GatewayError('CONCURRENCY_LIMIT', 'concurrency limit reached'),
  queueTimeout: new GatewayError('CONCURRENCY_LIMIT', 'concurrency queue timeout'),
}
const POOL_REFUSALS = {
  overflow: new GatewayError('POOL_OVERFLOW', 'worker pool overflow'),
  queueTimeout: new GatewayError('POOL_OVERFLOW', 'worker pool queue timeout'),
}

/** The refusal with its `Retry-After`: one object for each number of seconds, so that overload is cheap. */
function toRefusal({ code, message }: GatewayError, status: number): (waitMs: number) => GatewayError {
  const made: (GatewayError | undefined)[] = []
  return waitMs => {
    const seconds = Math.min(MAX_RETRY_AFTER, Math.max(1, Math.ceil(waitMs / 1000)))
    made[seconds] ??= new GatewayError(code, message, { status, headers: { 'Retry-After': String(seconds) } })
    return made[seconds]
  }
}

/**
 * With a pool its queue decides what happens to further calls. Without one calls wait only when no config sets a limit:
 * then a burst shall not fail for a number that its author has never seen.
 */
export function toAdmissionLimits(policy: Policy): AdmissionLimits {
  const pool = policy.workerPool?.enabled ? policy.workerPool : null
  const refusals = pool === null ? LIMIT_REFUSALS : POOL_REFUSALS
  const status = pool?.overflowStatus ?? ERROR_STATUS.CONCURRENCY_LIMIT
  const queue = pool === null ? policy.defaultQueue : null
  return {
    maxWorkers: toMaxActive(policy),
    maxQueue: pool?.maxQueue ?? queue?.maxQueue ?? 0,
    queueTimeoutMs: pool?.queueTimeoutMs ?? queue?.timeoutMs ?? 0,
    maxWaitMs: queue?.maxWaitMs || Number.POSITIVE_INFINITY,
    overflow: toRefusal(refusals.overflow, status),
    queueTimeout: toRefusal(refusals.queueTimeout, status),
  }
}

/** Bytes of an answer that is looked at. */
const MAX_ANSWER_BYTES = 1024 * 1024
/** Differences that are reported of one function until it changes. */
const MAX_REPORTED = 20

interface SchemaChecks {
  /** An error answers every call of a function that asks for a check which cannot be made. */
  checkOf(fn: FunctionVersion): RequestSchema | GatewayError
}

/** Gets an answer that differs from its schema. */
export type DifferenceListener = (fn: FunctionVersion, method: string, status: number, difference: Difference) => void

/** Checks calls against the schemas of their functions, whatever door they came through. Owner: page validation/request-schema. */
export class SchemaGate {
  readonly #checks: SchemaChecks
  /** Null where answers are not looked at: in production. */
  readonly #onDifference: DifferenceListener | null
  readonly #reported = new WeakMap<FunctionVersion, Set<string>>()

  constructor(checks: SchemaChecks, onDifference: DifferenceListener | null) {
    this.#checks = checks
    this.#onDifference = onDifference
  }

  /** @returns the refusal of a request whose parameters are wrong, or null */
  checkTexts(fn: FunctionVersion, texts: RequestTexts): GatewayError | null {
    const schema = this.#checks.checkOf(fn)
    return schema instanceof GatewayError ? schema : schema.checkTexts(texts)
  }

  /** @returns the refusal of a request whose body is wrong, or null */
  checkBody(fn: FunctionVersion, method: string, contentType: string | null, body: Buffer | null): GatewayError | null {
    const schema = this.#checks.checkOf(fn)
    return schema instanceof GatewayError ? schema : schema.checkBody(method, contentType, body)
  }

  /** Reports how an answer differs, each difference once. */
  look(fn: FunctionVersion, method: string, { status, headers }: ReplyHead, body: Buffer): void {
    if (this.#onDifference === null || body.length > MAX_ANSWER_BYTES || method === 'HEAD') return
    const schema = this.#checks.checkOf(fn)
    if (schema instanceof GatewayError) return
    const difference = schema.checkResponse(method, status, headerOf(headers, 'content-type'), body)
    if (difference === null) return
    const reported = getOrMake(this.#reported, fn, () => new Set())
    const key = `${method} ${status} ${difference.name}`
    if (reported.has(key) || reported.size >= MAX_REPORTED) return
    reported.add(key)
    this.#onDifference(fn, method, status, difference)
  }
}
