/**
 * The version before serves while a tool builds or installs what the newer version of a function needs.
 * Owner: §2.16, page runtime/stand-in.
 *
 *   save ─► what is to be made is looked up: calls wait for it, a matter of milliseconds
 *            ├─ nothing ───────────────────────────────────────────────────► the newer version serves
 *            └─ a tool has to work ─► the workers that run take the calls ─┬► made: the newer version serves
 *                                                                          └► failed: its failure is the answer
 */

import type { Backlog } from './backlog.ts'
import type { RuntimeCall } from './call.ts'

/** The worker set of the version before, as the newer one sees it. */
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

  /** @param older - null when no version before it runs */
  constructor(older: OlderSet | null) {
    this.#older = older
  }

  /** The older set while it serves. */
  get serving(): OlderSet | null {
    return this.#isServing ? this.#older : null
  }

  /** A tool works for the newer version: those that wait for it do not have to. */
  begin(backlog: Backlog): void {
    if (this.#older === null) return
    this.#isServing = true
    if (this.#older.canServe) for (const call of backlog.takeAll()) this.take(call)
  }

  /** @returns false when the call has to wait for the newer version */
  take(call: RuntimeCall): boolean {
    if (!this.#isServing || this.#older?.canServe !== true) return false
    // What it waited until now is no part of its time.
    call.handedAt = 0
    this.#older.dispatch(call)
    return true
  }

  /** A version that is newer still takes its place before it was ready. @returns the set that goes on for that one */
  pass(): OlderSet | null {
    const older = this.#older
    this.#older = null
    return older
  }

  /** @param isReplaced - true when the newer version is ready, false when it failed or is gone */
  end(isReplaced: boolean): void {
    this.pass()?.leave(isReplaced)
  }
}
