/** How often an address may fail to log in. Owner: page control/session. */

import { isIPv6 } from 'node:net'
import type { Clock } from '../core/clock.ts'

/** Failures after which an address has to wait, and ms that a failure counts. */
export const MAX_LOGIN_FAILURES = 5
export const LOGIN_FAILURE_MS = 300_000
/** Addresses that are remembered; of more, the one that began first is forgotten. */
export const MAX_LOGIN_ADDRESSES = 10_000

interface Failures {
  count: number
  /** Monotonic ms of the first one. */
  since: number
}

export class LoginLimit {
  readonly #clock: Clock
  readonly #failures = new Map<string, Failures>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /**
   * Notes a try as failed before it is looked at: many tries at once must not all be looked at.
   * @returns ms to wait when there were too many; null when the try may be made
   */
  begin(address: string): number | null {
    const key = toNetwork(address)
    const now = this.#clock.monotonic()
    const known = this.#failures.get(key)
    if (known === undefined || now - known.since >= LOGIN_FAILURE_MS) {
      this.#failures.delete(key)
      this.#failures.set(key, { count: 1, since: now })
      this.#forget()
      return null
    }
    if (known.count >= MAX_LOGIN_FAILURES) return LOGIN_FAILURE_MS - (now - known.since)
    known.count += 1
    return null
  }

  /** The try was right. Failures before it go on counting: who knows one password must not guess another one freely. */
  succeed(address: string): void {
    const key = toNetwork(address)
    const known = this.#failures.get(key)
    if (known === undefined) return
    known.count -= 1
    if (known.count === 0) this.#failures.delete(key)
  }

  #forget(): void {
    if (this.#failures.size <= MAX_LOGIN_ADDRESSES) return
    for (const first of this.#failures.keys()) {
      this.#failures.delete(first)
      return
    }
  }
}

/** One client has a whole /64 of IPv6 addresses. */
function toNetwork(address: string): string {
  if (!isIPv6(address)) return address
  const [head = '', tail] = address.split('::')
  const left = head === '' ? [] : head.split(':')
  const right = tail === undefined || tail === '' ? [] : tail.split(':')
  const missing = tail === undefined ? 0 : Math.max(0, 8 - left.length - right.length)
  return [...left, ...Array<string>(missing).fill('0'), ...right].slice(0, 4).join(':')
}
