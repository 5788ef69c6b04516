/** A new job from what somebody asked for: its function found, its route filled in, the function's own rules applied. Page jobs/jobs. */

import { createHash, randomBytes } from 'node:crypto'
import type { FunctionVersion } from '../core/catalog.ts'
import type { Method } from '../core/identity.ts'
import { checkPolicy, isMethodAllowed, toMethodError } from '../invocation/policy.ts'
import type { Idempotency, Job, JobRequest } from './job.ts'
import type { CheckedInput } from './job-input.ts'
import { toJobTarget } from './job-target.ts'

/** Bytes of a body that is kept with its job; a longer one is a part of its own. */
const INLINE_BODY_BYTES = 16 * 1024

export interface DraftOptions {
  /** The function of that name. @throws GatewayError NOT_FOUND, ROUTE_CONFLICT */
  find: (name: string, version: string | null, runtime: string | null) => FunctionVersion
  /** Routes of a function and method, in text order. */
  routesOf: (fn: FunctionVersion, method: Method) => readonly string[]
}

/**
 * @param now - wall clock, ms
 * @param nextSeq - number of the job; asked for when nothing is wrong with it
 * @throws GatewayError NOT_FOUND, ROUTE_CONFLICT, METHOD_NOT_ALLOWED, BODY_TOO_LARGE, BAD_REQUEST
 */
export function draftJob(
  input: CheckedInput,
  { find, routesOf }: DraftOptions,
  now: number,
  nextSeq: () => number,
  idempotency: Idempotency | null,
): { job: Job; request: JobRequest } {
  const fn = find(input.name, input.version, input.runtime)
  const method = input.method ?? ownMethod(fn)
  if (!isMethodAllowed(fn, method)) throw toMethodError(fn.policy.methods)
  const refused = checkPolicy(fn, input.body?.length ?? 0)
  if (refused !== null) throw refused
  const request = toRequest(input, fn, method, routesOf(fn, method))
  const seq = nextSeq()
  const job: Job = {
    id: `job-${now}-${seq}-${randomBytes(6).toString('hex')}`,
    seq,
    key: fn.key,
    state: 'queued',
    attempt: 0,
    attempts: [],
    retry: input.retry,
    createdAt: now,
    updatedAt: now,
    dueAt: now + input.delayMs,
    finishedAt: null,
    resultStatus: null,
    lastError: null,
    result: null,
    callback: input.callbackUrl === null ? null : { state: 'pending', attempts: 0, lastError: null },
    idempotency,
  }
  return { job, request }
}

/** Tells whether a second request with the same idempotency key asks for the same. */
export function digestOf(input: CheckedInput): string {
  const { body, ...rest } = input
  return createHash('sha256')
    .update(JSON.stringify(rest))
    .update(body ?? '')
    .digest('hex')
    .slice(0, 32)
}

function ownMethod({ policy }: FunctionVersion): Method {
  return policy.methods.includes('GET') ? 'GET' : (policy.methods[0] ?? 'GET')
}

function toRequest(input: CheckedInput, fn: FunctionVersion, method: Method, routes: readonly string[]): JobRequest {
  const { body, query, headers, context, callbackUrl } = input
  const hasBodyPart = body !== null && body.length > INLINE_BODY_BYTES
  return {
    runtime: fn.runtime,
    name: fn.name,
    version: fn.version,
    method,
    ...toJobTarget(fn, method, input.route, routes, input.params),
    query,
    headers,
    context,
    body: body === null || hasBodyPart ? null : body.toString('base64'),
    hasBodyPart,
    callbackUrl,
  }
}
