/** `fngw health`: checks the health of a running gateway, for systems without an HTTP client. Owner: page bin/health. */

import type { ApiClient } from './api-client.ts'
import type { Output } from './output.ts'
import { CommandError, UsageError } from './usage-error.ts'

export interface HealthFlags {
  ready?: boolean
  live?: boolean
  /** Seconds. */
  wait?: string
  timeout?: string
  json?: boolean
}

/** Seconds that one answer may take. */
const DEFAULT_TIMEOUT_S = 5
const MAX_SECONDS = 3600
/** Milliseconds between two questions of a wait. */
const ASK_AGAIN_MS = 100

interface Answer {
  isGood: boolean
  body: Record<string, unknown>
}

/**
 * @returns exit code: 0 when it is well, 1 when it is not
 * @throws UsageError; CommandError when there is no response
 */
export async function runHealth(flags: HealthFlags, api: ApiClient, output: Output): Promise<number> {
  if (flags.ready === true && flags.live === true) throw new UsageError('give --ready or --live, not both')
  const timeoutMs = toMs('--timeout', flags.timeout, DEFAULT_TIMEOUT_S)
  const endsAt = performance.now() + toMs('--wait', flags.wait, 0)
  const { isGood, body } = await askUntil(endsAt, () => ask(flags, api, timeoutMs))
  if (flags.json === true) output.result(JSON.stringify(body, null, 2))
  else if (isGood) output.result(flags.ready === true ? 'ready' : flags.live === true ? 'live' : 'healthy')
  else for (const reason of toReasons(body)) output.note(output.clean(reason))
  return isGood ? 0 : 1
}

/** Retries until the deadline while the gateway is unhealthy or does not respond. */
async function askUntil(endsAt: number, ask: () => Promise<Answer>): Promise<Answer> {
  for (;;) {
    const hasTime = performance.now() < endsAt
    try {
      const answer = await ask()
      if (answer.isGood || !hasTime) return answer
    } catch (error) {
      if (!hasTime || !(error instanceof CommandError)) throw error
    }
    await new Promise(resolve => setTimeout(resolve, ASK_AGAIN_MS))
  }
}

async function ask({ ready, live }: HealthFlags, api: ApiClient, timeoutMs: number): Promise<Answer> {
  const query = { ready: ready === true ? 1 : null, live: live === true ? 1 : null }
  const signal = AbortSignal.timeout(timeoutMs)
  const answer = await api.send('GET', '/_fn/health', { query, signal }).catch(error => {
    if (!signal.aborted) throw error
    throw new CommandError(`${api.target.url} does not answer within ${timeoutMs / 1000} s`)
  })
  if (answer.status !== 200 && answer.status !== 503) throw api.toRefusal(answer)
  const body = api.parse(answer)
  // Another server may say 200 to everything.
  const isRecord = typeof body === 'object' && body !== null && ['live', 'ready', 'runtimes'].some(name => name in body)
  if (!isRecord) throw api.toRefusal(answer)
  return { isGood: answer.status === 200, body: body as Record<string, unknown> }
}

/** Why it is not well: what `?ready=1` says, or the runtimes of the record that are down. */
function toReasons({ reasons, runtimes }: Answer['body']): string[] {
  if (Array.isArray(reasons)) return reasons.map(reason => `not ready: ${reason}`)
  const records = Object.entries((runtimes ?? {}) as Record<string, { health?: { up?: boolean; reason?: string } }>)
  const down = records.filter(([, { health }]) => health?.up === false)
  if (down.length === 0) return ['not healthy: the gateway is stopping']
  return down.map(([name, { health }]) => `not healthy: runtime ${name} is down: ${health?.reason}`)
}

function toMs(flag: string, text: string | undefined, fallback: number): number {
  if (text === undefined) return fallback * 1000
  const seconds = /^\d+(\.\d+)?$/.test(text) ? Number(text) : Number.NaN
  if (seconds <= MAX_SECONDS) return seconds * 1000
  throw new UsageError(`${flag} must be seconds from 0 to ${MAX_SECONDS}, got ${JSON.stringify(text)}`)
}
