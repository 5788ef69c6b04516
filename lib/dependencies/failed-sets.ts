/**
 * Failures of sets, so that what many folders want and cannot be had is tried once. Owner: §2.16, page dependencies/install.
 *
 *   fails ─► everyone who wants the set is told the same ─┬► a folder that was told so has changed ─► tried once more
 *                                                         └► it may pass, and some time has gone   ─► tried once more
 */

import type { Clock } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import { BUILD_RETRY_MS, isPassing } from './build.ts'

/** Sets whose failures are remembered; beyond them the oldest is forgotten, and tried again when it is wanted. */
const MAX_FAILURES = 1000

/** Who wants a set. */
export interface Asker {
  /** Full path. */
  folder: string
  /** Of the files that decided, with their times: a save changes it, whatever it says. */
  signature: string
}

interface Failure {
  error: unknown
  failedAt: number
  /** Signatures of those that were told, by folder. */
  told: Map<string, string>
}

export class FailedSets {
  readonly #clock: Clock
  readonly #byId = new Map<string, Failure>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** @throws what the set failed with, unless it is to be tried */
  check(id: string, { folder, signature }: Asker): void {
    const failure = this.#byId.get(id)
    if (failure === undefined) return
    const told = failure.told.get(folder) ?? signature
    if (told !== signature || this.#mayPass(failure)) {
      this.#byId.delete(id)
      return
    }
    failure.told.set(folder, signature)
    throw failure.error
  }

  /** It failed, and the asker is told. */
  note(id: string, { folder, signature }: Asker, error: unknown): void {
    const known = this.#byId.get(id)
    if (known !== undefined && known.error === error) {
      known.told.set(folder, signature)
      return
    }
    this.#byId.delete(id)
    this.#byId.set(id, { error, failedAt: this.#clock.monotonic(), told: new Map([[folder, signature]]) })
    for (const oldest of this.#byId.keys()) {
      if (this.#byId.size <= MAX_FAILURES) break
      this.#byId.delete(oldest)
    }
  }

  forget(id: string): void {
    this.#byId.delete(id)
  }

  #mayPass({ error, failedAt }: Failure): boolean {
    const isLasting = error instanceof GatewayError && !isPassing(error)
    return !isLasting && this.#clock.monotonic() - failedAt >= BUILD_RETRY_MS
  }
}
