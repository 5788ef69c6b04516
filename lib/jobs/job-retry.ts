/** The input of a job, to be read and to be run again. Spec: page jobs/jobs. */

import { isUtf8 } from 'node:buffer'
import { isSecretName } from '../config/function-env.ts'
import { GatewayError } from '../core/errors.ts'
import { isObject } from '../core/json.ts'
import type { Job, JobRequest } from './job.ts'
import type { JobInput } from './job-input.ts'

/** Stands for the value of a header that looks like a secret. */
const HIDDEN = '<hidden>'
const SECRET_HEADERS: ReadonlySet<string> = new Set(['authorization', 'proxy-authorization', 'cookie'])
/** Bytes of a body that are shown. */
const SHOWN_BODY_BYTES = 1024 * 1024

/** The fields of `POST /_fn/jobs`; a long body is left out. */
export type ShownInput = JobInput & { body_bytes: number; body_omitted: boolean }

export function toShownInput(job: Job, request: JobRequest, body: Buffer | null): ShownInput {
  const omitted = body !== null && body.length > SHOWN_BODY_BYTES
  const { callback_url: _callback, ...input } = toInput(job, request, omitted ? null : body)
  const shown = Object.entries(request.headers).map(([name, value]) => [name, isSecret(name) ? HIDDEN : value])
  return { ...input, headers: Object.fromEntries(shown), body_bytes: body?.length ?? 0, body_omitted: omitted }
}

/**
 * @param changes - fields that replace the job's own, as a client sends them
 * @returns what `checkJobInput` checks
 */
export function toRetryInput(job: Job, request: JobRequest, body: Buffer | null, changes: unknown): unknown {
  if (!isObject(changes)) throw new GatewayError('BAD_REQUEST', 'the changes of a job must be an object')
  const input: Record<string, unknown> = { ...toInput(job, request, body), ...changes }
  if ('body' in changes) delete input.body_base64
  if ('body_base64' in changes) delete input.body
  if (isObject(changes.headers)) input.headers = withHidden(changes.headers, request.headers)
  return input
}

function toInput(job: Job, request: JobRequest, body: Buffer | null): JobInput {
  const { runtime, name, version, method, routeTemplate, params, query, headers, context, callbackUrl } = request
  return {
    ...{ runtime, name, version, method, route: routeTemplate, params, query, headers, context },
    ...(body !== null && (isUtf8(body) ? { body: body.toString('utf8') } : { body_base64: body.toString('base64') })),
    max_attempts: job.retry.maxAttempts,
    retry_delay_ms: job.retry.delayMs,
    backoff: job.retry.backoff,
    callback_url: callbackUrl,
  }
}

function withHidden(headers: Record<string, unknown>, own: JobRequest['headers']): Record<string, unknown> {
  const entries = Object.entries(headers).map(([name, value]) => [name, value === HIDDEN ? own[name] : value])
  return Object.fromEntries(entries.filter(([, value]) => value !== undefined))
}

function isSecret(name: string): boolean {
  return SECRET_HEADERS.has(name.toLowerCase()) || isSecretName(name.replaceAll('-', '_'))
}
