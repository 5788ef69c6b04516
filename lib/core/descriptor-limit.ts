/** How many files and connections this process may have open. Owner: §4.1. */

import { readFileSync } from 'node:fs'
import { GatewayError } from './errors.ts'

/** Descriptors that are reserved for workers, logs and reloads: a share of the limit, and a minimum. */
const RESERVED = { share: 0.1, min: 64 } as const

/** Descriptors of client connections, of files that are sent, and of connections to upstreams, one count for all. */
export class Descriptors {
  /** How many there may be. */
  readonly limit: number
  #used = 0

  /** @param systemLimit - files that this process may have open; null when unknown */
  constructor(systemLimit: number | null = null) {
    const reserve = Math.max(RESERVED.min, Math.ceil((systemLimit ?? 0) * RESERVED.share))
    this.limit = systemLimit === null ? Number.POSITIVE_INFINITY : Math.max(1, systemLimit - reserve)
  }

  /** How many are left; below 0 for connections that were accepted beyond the limit. */
  get free(): number {
    return this.limit - this.#used
  }

  /** One more is open, whatever the limit. */
  add(): void {
    this.#used += 1
  }

  /** One more is about to be opened. @throws GatewayError when the limit is reached */
  take(): void {
    if (this.free <= 0) throw new GatewayError('OVERLOADED', 'too many files and connections are open; try again later')
    this.#used += 1
  }

  giveBack(): void {
    this.#used -= 1
  }
}

/** null where the system does not report it. */
export function readDescriptorLimit(): number | null {
  try {
    const limit = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'latin1'))?.[1]
    return limit === undefined ? null : Number(limit)
  } catch {
    return null
  }
}
