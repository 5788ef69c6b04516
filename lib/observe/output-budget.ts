/**
 * How much of what functions write is kept: so many lines a second of each. Owner: page observe/log-store.
 *
 * A line costs the gateway a time stamp, a copy and perhaps a line on the terminal, whatever its length: without a bound
 * a handler that writes nothing but line ends would take the processor away from everybody's requests.
 */

import type { Clock } from '../core/clock.ts'

/** Lines of output kept of one function: in a row, and after that a second. */
const OUTPUT_LINES = { burst: 10_000, perSecond: 2000 } as const

interface Bucket {
  /** Lines that may still come, and when that was true, monotonic ms. */
  left: number
  at: number
  /** Characters left out and not told yet. */
  dropped: number
}

/** Writers remembered; beyond that all begin anew. */
const MAX_WRITERS = 10_000

export class OutputBudget {
  readonly #clock: Clock
  readonly #buckets = new Map<string, Bucket>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /**
   * @param writer - who wrote, such as a function's key
   * @returns what is kept of the text, with a word about what is not; empty when nothing is
   */
  take(writer: string, text: string): string {
    const bucket = this.#bucketOf(writer)
    if (bucket.left < 1) {
      bucket.dropped += text.length
      return ''
    }
    const note = bucket.dropped > 0 ? `[${bucket.dropped} characters of output dropped]\n` : ''
    bucket.dropped = 0
    let end = 0
    while (bucket.left >= 1 && end < text.length) {
      bucket.left -= 1
      end = text.indexOf('\n', end) + 1
      if (end === 0) end = text.length
    }
    if (end === text.length) return note + text
    bucket.dropped = text.length - end
    return `${note}${text.slice(0, end)}[more than ${OUTPUT_LINES.perSecond} lines a second: output dropped]\n`
  }

  #bucketOf(writer: string): Bucket {
    const now = this.#clock.monotonic()
    const known = this.#buckets.get(writer)
    if (known !== undefined) {
      known.left = Math.min(OUTPUT_LINES.burst, known.left + ((now - known.at) * OUTPUT_LINES.perSecond) / 1000)
      known.at = now
      return known
    }
    if (this.#buckets.size >= MAX_WRITERS) this.#buckets.clear()
    const fresh = { left: OUTPUT_LINES.burst, at: now, dropped: 0 }
    this.#buckets.set(writer, fresh)
    return fresh
  }
}
