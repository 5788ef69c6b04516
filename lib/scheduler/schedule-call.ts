/** The call that a run of a schedule makes. Spec: §2.13. */

import type { FunctionVersion, SchedulePolicy } from '../core/catalog.ts'
import { TRIGGER_HEADER } from '../invocation/forwarded-headers.ts'
import type { InternalRequest } from '../invocation/internal-call.ts'
import type { ScheduledRun } from './schedule-runner.ts'

/** @param path - at which the function answers */
export function toScheduledRequest(run: ScheduledRun, id: string, path: string): InternalRequest {
  const { fn, policy, signal } = run
  const { method, query, headers, body, context } = policy
  return {
    fn,
    id,
    method,
    path,
    query,
    headers: { 'user-agent': 'fngw-schedule', ...lowerNames(headers), [TRIGGER_HEADER]: 'schedule' },
    body,
    user: context,
    trigger: toTrigger(run),
    signal,
    mustEnd: true,
  }
}

function toTrigger({ policy, attempt, isManual }: ScheduledRun): Record<string, unknown> {
  const { everySeconds, cron, timezone, retry } = policy
  return {
    type: 'schedule',
    ...(everySeconds === null ? { cron } : { every_seconds: everySeconds }),
    ...(timezone === 'local' ? {} : { timezone }),
    attempt,
    ...(retry === null ? {} : { max_attempts: retry.maxAttempts }),
    ...(isManual ? { manual: true } : {}),
  }
}

function lowerNames(headers: SchedulePolicy['headers']): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]))
}

/** A route without params where there is one: a file route has no path of its name alone. */
export function pickPath(fn: FunctionVersion, routes: readonly string[], fallback: string): string {
  return fn.kind === 'file' ? (routes.find(route => !/[:*]/.test(route)) ?? fallback) : fallback
}
