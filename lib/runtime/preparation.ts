/**
 * What one function needs before its first worker can start. It is asked for once, and calls wait for it in the backlog,
 * each at most so long, unless the previous version serves meanwhile. Owner: §2.16, page runtime/worker-set.
 *
 *   idle ─► working ─► done
 *             └─ failed: the set decides what the calls get, and the next call asks again ─► idle
 *                        (after a moment it is asked again by itself when the files were being saved)
 */

import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { GatewayError, toGatewayError } from '../core/errors.ts'
import { BUILD_RETRY_AFTER_SECONDS } from '../core/limits.ts'
import type { Backlog } from './backlog.ts'
import type { RuntimeCall } from './call.ts'
import type { LoadRetry } from './load-retry.ts'
import type { Preparer } from './runtime.ts'
import type { StandIn } from './stand-in.ts'

interface PreparationOptions {
  fn: FunctionVersion
  clock: Clock
  preparer: Preparer | null
  /** Where its calls wait. */
  backlog: Backlog
  /** Tells whether a failure may be that of a file which was being saved. */
  retry: LoadRetry
  /** What serves while a tool works. */
  standIn: StandIn
  /** Workers may start from now on. */
  onDone(): void
  /** It failed, and is tried again when it is asked for again. */
  onFailed(error: GatewayError): void
}

export class Preparation {
  /** True when workers may start. */
  isDone: boolean
  /** Full path of the function's program; null when it needs none. */
  program: string | null = null
  readonly #options: PreparationOptions
  readonly #waitMs: number
  #isWorking = false
  #isStopped = false
  #timer: NodeJS.Timeout | null = null

  constructor(options: PreparationOptions) {
    this.#options = options
    this.isDone = options.preparer === null
    this.#waitMs = options.preparer?.waitMs ?? 0
  }

  /** Puts a call into the backlog until it is done, or the call has waited too long. */
  hold(call: RuntimeCall, now: number): void {
    this.#options.backlog.push(call)
    call.startedAt = now
    if (this.#timer === null) this.#arm(this.#waitMs)
    this.begin()
  }

  /** Asks for it unless that is under way. */
  begin(): void {
    if (this.#isWorking || this.isDone || this.#isStopped || this.#options.retry.isWaiting) return
    this.#isWorking = true
    const startedAt = this.#options.clock.monotonic()
    const { preparer, fn } = this.#options
    preparer!
      .prepare(fn, () => this.#handleWork())
      .then(
        program => this.#handleDone(program),
        error => this.#handleFailed(toGatewayError(error), startedAt),
      )
  }

  /** Nothing is waited for or reported any more. */
  stop(): void {
    this.#isStopped = true
    this.#disarm()
  }

  #handleWork(): void {
    if (!this.#isStopped) this.#options.standIn.begin(this.#options.backlog)
  }

  #handleDone(program: string | null): void {
    if (this.#isStopped) return
    this.#disarm()
    this.#isWorking = false
    this.isDone = true
    this.program = program
    this.#options.onDone()
  }

  #handleFailed(error: GatewayError, startedAt: number): void {
    if (this.#isStopped) return
    this.#isWorking = false
    if (this.#options.retry.wait(startedAt)) return
    this.#disarm()
    this.#options.onFailed(error)
  }

  /** One timer for all: every call may wait equally long, so the oldest is the next to give up. */
  #giveUp(): void {
    this.#timer = null
    const { backlog, clock } = this.#options
    const now = clock.monotonic()
    for (let call = backlog.first; call !== undefined; call = backlog.first) {
      const left = call.startedAt + this.#waitMs - now
      if (left > 0 && call.phase !== 'done') {
        this.#arm(left)
        return
      }
      backlog.shift()?.cut(this.#toPending())
    }
  }

  #toPending(): GatewayError {
    const { preparer, fn } = this.#options
    return new GatewayError('BUILD_PENDING', preparer!.toStep(fn), {
      headers: { 'Retry-After': String(BUILD_RETRY_AFTER_SECONDS) },
      detail: { hint: `it goes on in the background; a call waits ${this.#waitMs} ms for it (FN_DEPS_WAIT_MS)` },
    })
  }

  #arm(ms: number): void {
    this.#timer = this.#options.clock.setTimeout(() => this.#giveUp(), Math.max(1, Math.ceil(ms)))
  }

  #disarm(): void {
    if (this.#timer !== null) this.#options.clock.clearTimeout(this.#timer)
    this.#timer = null
  }
}
