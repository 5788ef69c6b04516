/**
 * How much of what functions write is kept: so many lines a second of each. Owner: page observe/log-store.
 *
 * A line costs the gateway a time stamp, a copy and perhaps a line on the terminal, whatever its length: without a bound
 * a handler that writes nothing but line ends would take the processor away from everybody's requests.
 */

import type { EnvValue, FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { type ErrorDetail, GatewayError } from '../core/errors.ts'
import { HIDDEN } from '../core/text.ts'

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

// Secret values of a function, taken out of what it prints and throws.

/** Shorter values are no secrets that anybody could keep, and stand in every other line by chance. */
export const MIN_SECRET_CHARS = 8

type Env = Readonly<Record<string, EnvValue>>
type WithEnv = Pick<FunctionVersion, 'env'>

export class SecretMask {
  /** What is looked for, longest first; by the environment, which a reload that changes nothing keeps. */
  readonly #texts = new WeakMap<Env, readonly string[]>()
  /** An error that several calls waited for stays one error. */
  readonly #errors = new WeakMap<GatewayError, GatewayError>()

  /** Text of a function without its secrets. One that is printed in pieces is not seen. */
  hide({ env }: WithEnv, text: string): string {
    let shown = text
    for (const secret of this.#textsOf(env)) if (shown.includes(secret)) shown = shown.replaceAll(secret, HIDDEN)
    return shown
  }

  /** An error without secrets; the same one when it has none. */
  hideIn(fn: WithEnv, error: GatewayError): GatewayError {
    if (this.#textsOf(fn.env).length === 0) return error
    const known = this.#errors.get(error)
    if (known !== undefined) return known
    const { code, status, headers } = error
    const message = this.hide(fn, error.message)
    const detail = error.detail && this.#hideInDetail(fn, error.detail)
    if (message === error.message && detail === error.detail) return error
    // Its cause may say the same again.
    const hidden = new GatewayError(code, message, { status, ...(headers && { headers }), ...(detail && { detail }) })
    this.#errors.set(error, hidden)
    return hidden
  }

  #hideInDetail(fn: WithEnv, detail: ErrorDetail): ErrorDetail {
    const { stack, hint } = detail
    const hidden = {
      ...detail,
      ...(stack !== undefined && { stack: this.hide(fn, stack) }),
      ...(hint !== undefined && { hint: this.hide(fn, hint) }),
    }
    return hidden.stack === stack && hidden.hint === hint ? detail : hidden
  }

  #textsOf(env: Env): readonly string[] {
    const known = this.#texts.get(env)
    if (known !== undefined) return known
    const values = Object.values(env).flatMap(({ value, isSecret }) => (isSecret ? [value] : []))
    // A key in several lines is printed line by line; JSON and URLs write some characters in another way.
    const texts = values
      .flatMap(value => [value, ...value.split(/\r?\n/)])
      .flatMap(value => [value, JSON.stringify(value).slice(1, -1), encodeURIComponent(Buffer.from(value).toString())])
      .filter(text => text.trim().length >= MIN_SECRET_CHARS)
    const found = [...new Set(texts)].sort((a, b) => b.length - a.length)
    this.#texts.set(env, found)
    return found
  }
}
