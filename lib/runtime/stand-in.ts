/**
 * The previous version of a function serves until the newer one is ready: built, with its packages installed, and loaded by a
 * worker. Owner: §2.16, page runtime/stand-in.
 *
 *   save ─► calls wait for the newer version ─┬► loaded: it serves, and the previous version ends
 *                                             ├► a tool works, or loading is slow ─► the previous version serves ─► loaded or failed
 *                                             └► failed: the previous version serves until a change loads
 */

import type { GatewayError } from '../core/errors.ts'
import type { Backlog } from './backlog.ts'
import type { RuntimeCall } from './call.ts'

/** The worker set of the previous version, as the newer one sees it. */
export interface OlderSet {
  readonly workers: readonly unknown[]
  /** True when a worker of it has started. */
  readonly isWarm: boolean
  /** True when a call that it gets now would be served. */
  readonly canServe: boolean
  dispatch(call: RuntimeCall): void
  /** It ends. @param isReplaced - true when the newer version takes over the calls that have not begun */
  leave(isReplaced: boolean): void
}

export class StandIn {
  #older: OlderSet | null
  #isServing = false
  /** Why the newer version does not serve; null while that is not known. */
  #error: GatewayError | null = null

  /** @param older - null when no previous version runs */
  constructor(older: OlderSet | null) {
    this.#older = older
  }

  /** The older set while it serves. */
  get serving(): OlderSet | null {
    return this.#isServing && this.canServe ? this.#older : null
  }

  /** True when a call need not depend on the newer version. */
  get canServe(): boolean {
    return this.#older?.canServe === true
  }

  /**
   * The newer version takes long, or has failed: calls do not wait for it.
   * @param error - why it cannot serve; null while it may still become ready
   */
  begin(backlog: Backlog, error: GatewayError | null = null): void {
    if (this.#older === null) return
    this.#isServing = true
    this.#error = error ?? this.#error
    if (this.canServe) for (const call of backlog.takeAll()) this.take(call)
  }

  /** The tool is done: calls wait for the newer version to load, unless it has failed before. */
  pause(): void {
    if (this.#error === null) this.#isServing = false
  }

  /** @returns false when the call is for the newer version */
  take(call: RuntimeCall): boolean {
    if (!this.#isServing || !this.canServe) return false
    // The time it waited until now does not count.
    call.handedAt = 0
    call.loadError = this.#error
    this.#older!.dispatch(call)
    return true
  }

  /** An even newer version takes the place of one that was never ready. @returns the set that goes on for that one */
  pass(): OlderSet | null {
    const older = this.#older
    this.#older = null
    return older
  }

  /** @param isReplaced - true when the newer version is ready, false when the function is gone */
  end(isReplaced: boolean): void {
    this.pass()?.leave(isReplaced)
  }
}

/** Functions that load at once without a call. */
const LOADS_AT_ONCE = 4

interface Loading {
  /** It is its turn. */
  startLoad(): void
}

/** Bounds how many functions load at once when no call waits: an edit of a shared module changes all that import it. */
export class LoadTurns {
  readonly #running = new Set<Loading>()
  readonly #waiting = new Set<Loading>()

  /** @returns false when it has to wait: `startLoad` follows */
  take(one: Loading): boolean {
    if (this.#running.has(one)) return true
    if (this.#running.size >= LOADS_AT_ONCE) {
      this.#waiting.add(one)
      return false
    }
    this.#waiting.delete(one)
    this.#running.add(one)
    return true
  }

  /** It has loaded or failed, or does not load any more. */
  leave(one: Loading): void {
    this.#waiting.delete(one)
    if (!this.#running.delete(one)) return
    const [next] = this.#waiting
    if (next !== undefined && this.take(next)) next.startLoad()
  }

  /** Those that wait never have their turn. */
  close(): void {
    this.#waiting.clear()
  }
}
