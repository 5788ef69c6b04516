/**
 * How much of one call's stream may be under way, as the gateway counts it. Owner: page runtime/wire-protocol.
 *
 *   worker ─ received ─► untaken ─ taken by the client ─► untold ─ `more`, when half of the window came together ─► worker
 */

import { STREAM_LEAD_BYTES, STREAM_WINDOW_BYTES } from '../core/limits.ts'
import type { Semaphore } from '../core/semaphore.ts'

/** Bytes that were taken before the worker is told. */
const GRANT_BYTES = STREAM_WINDOW_BYTES / 2
/** Bytes taken at once, and in a row, by a client that keeps up with a fast stream. */
const FAST_BYTES = STREAM_WINDOW_BYTES / 4
const FAST_RUN_BYTES = 2 * STREAM_WINDOW_BYTES

export class StreamWindow {
  readonly #leads: Semaphore | null
  #untaken: number
  #untold = 0
  /** Taken in a row by a client that had nothing left to take each time. */
  #run = 0
  #hasLead = false
  #isOver = false

  /** @param bytes - that came with the reply */
  constructor(bytes: number, leads: Semaphore | null) {
    this.#untaken = bytes
    this.#leads = leads
  }

  /** @returns false when far more came than was granted. Twice the window: one piece may be on its way */
  receive(bytes: number): boolean {
    this.#untaken += bytes
    return this.#untaken <= 2 * STREAM_WINDOW_BYTES + (this.#hasLead ? STREAM_LEAD_BYTES : 0)
  }

  /** True when the worker may have to wait for the client before it can send its next piece, which has up to half of the window. */
  get isHeld(): boolean {
    return !this.#isOver && this.#untaken + this.#untold > STREAM_WINDOW_BYTES - GRANT_BYTES
  }

  /** The client took `bytes`. @returns what the worker is told of now, 0 for nothing */
  take(bytes: number): number {
    this.#untaken -= bytes
    this.#untold += bytes
    if (!this.#hasLead && !this.#isOver) this.#askForLead(bytes)
    // Told of each piece it would be no sooner: half of the window is left to it.
    if (this.#untold < GRANT_BYTES) return 0
    const told = this.#untold
    this.#untold = 0
    return told
  }

  /** Nothing of the stream comes any more, or nobody takes it. */
  close(): void {
    if (this.#hasLead && !this.#isOver) this.#leads!.release()
    this.#isOver = true
  }

  /** A worker that is through with its window while its client has just taken a part of it sleeps, and has to be woken for each part. */
  #askForLead(bytes: number): void {
    this.#run = this.#untaken === 0 && bytes >= FAST_BYTES ? this.#run + bytes : 0
    if (this.#run < FAST_RUN_BYTES || this.#leads?.tryTake() !== true) return
    this.#hasLead = true
    this.#untold += STREAM_LEAD_BYTES
  }
}
