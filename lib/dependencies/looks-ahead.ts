/**
 * Functions whose needs are looked at before anybody asks for them. Most need nothing, and a build is made of the others only: with its
 * promises it is 1.4 KB, which for ten thousand that come at once would be kept until the last of them was looked at.
 * Owner: §2.16, page dependencies/resolve.
 */

import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { PacedLine } from './paced-line.ts'

interface LooksAheadOptions {
  clock: Pick<Clock, 'monotonic'>
  /** May throw: what is wrong is for whoever builds it to tell. */
  isNeeded(fn: FunctionVersion): boolean
  onReady(fn: FunctionVersion): void
  onNeeded(fn: FunctionVersion): void
}

export class LooksAhead {
  readonly #options: LooksAheadOptions
  readonly #line = new PacedLine<FunctionVersion>()
  #functions: ReadonlyMap<string, FunctionVersion> | null = null
  /** Monotonic ms when one was added last. */
  #addedAt = 0
  #isClosed = false

  constructor(options: LooksAheadOptions) {
    this.#options = options
  }

  add(fn: FunctionVersion): void {
    this.#addedAt = this.#options.clock.monotonic()
    this.#line.join(fn, this.#look)
  }

  /** Since when, monotonic ms, a function waits for its look; null when it does not. */
  waitsSince(fn: FunctionVersion): number | null {
    return this.#line.has(fn) ? this.#addedAt : null
  }

  /** Others are not looked at. */
  retain(functions: ReadonlyMap<string, FunctionVersion>): void {
    this.#functions = functions
  }

  close(): void {
    this.#isClosed = true
  }

  readonly #look = (fn: FunctionVersion): void => {
    if (this.#isClosed || (this.#functions !== null && this.#functions.get(fn.key) !== fn)) return
    if (this.#isNeeded(fn)) this.#options.onNeeded(fn)
    else this.#options.onReady(fn)
  }

  #isNeeded(fn: FunctionVersion): boolean {
    try {
      return this.#options.isNeeded(fn)
    } catch {
      return true
    }
  }
}
