/** Calls that wait for a worker, oldest first. Owner: page runtime/worker-set. */

import type { GatewayError } from '../core/errors.ts'
import type { RuntimeCall } from './call.ts'

/** Calls in front that were taken already and are not yet dropped from the list: dropping each by itself would move all. */
const MAX_TAKEN = 1024

export class Backlog {
  #calls: RuntimeCall[] = []
  /** Where the oldest one lies. */
  #at = 0

  /** Those that nobody waits for any more count until their turn comes. */
  get size(): number {
    return this.#calls.length - this.#at
  }

  get isEmpty(): boolean {
    return this.#at === this.#calls.length
  }

  get first(): RuntimeCall | undefined {
    return this.#calls[this.#at]
  }

  push(call: RuntimeCall): void {
    this.#calls.push(call)
  }

  /** Calls that a worker had and certainly did not begin wait for another one, before all others and in their order. */
  putBack(unbegun: readonly RuntimeCall[]): void {
    if (unbegun.length === 0) return
    for (const call of unbegun) {
      call.phase = 'waiting'
      call.host = null
      call.deadline = 0
    }
    this.#calls = [...unbegun, ...this.#calls.slice(this.#at)]
    this.#at = 0
  }

  /** Takes the oldest one out; null when nobody waits for it any more, or when there is none. */
  shift(): RuntimeCall | null {
    const call = this.#calls[this.#at]
    if (call === undefined) return null
    this.#at += 1
    if (this.#at === this.#calls.length) {
      this.#calls.length = 0
      this.#at = 0
    } else if (this.#at > MAX_TAKEN) {
      this.#calls.splice(0, this.#at)
      this.#at = 0
    }
    return call.phase === 'done' ? null : call
  }

  /** Takes all out. @returns those that somebody waits for */
  takeAll(): RuntimeCall[] {
    const calls = this.#calls.slice(this.#at).filter(call => call.phase !== 'done')
    this.#calls = []
    this.#at = 0
    return calls
  }

  /** Ends all that wait. */
  fail(error: GatewayError): void {
    for (const call of this.takeAll()) call.cut(error)
  }
}
