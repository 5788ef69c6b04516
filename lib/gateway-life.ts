/** The two ends of a gateway's life: a start that leaves nothing behind when it fails, and a stop with one limit for all its steps. Owner: §1. */

import type { Clock } from './core/clock.ts'
import type { Gateway, GatewayOptions } from './gateway-types.ts'

type Starting = Pick<Gateway, 'settings' | 'listen' | 'on' | 'close'> & { start(): Promise<void> }

export async function startOrClose(gateway: Starting, beforeStart: GatewayOptions['beforeStart']): Promise<void> {
  try {
    await beforeStart?.(gateway)
    await gateway.start()
  } catch (error) {
    await gateway.close({ timeoutMs: 0, delayMs: 0 })
    throw error
  }
}

export function pause(clock: Clock, ms: number): Promise<void> {
  return ms === 0 ? Promise.resolve() : new Promise(resolve => clock.setTimeout(resolve, ms))
}

/** @returns what is left of the time now, ms, never below 0 */
export function countdown(clock: Clock, ms: number): () => number {
  const endsAt = clock.monotonic() + ms
  return () => Math.max(0, endsAt - clock.monotonic())
}
