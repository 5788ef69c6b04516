/**
 * Output of functions before it is logged: limited to a number of lines a second, and without secrets. Owner: pages
 * observe/log-store, control/secrets.
 *
 * A line costs the gateway a time stamp, a copy and perhaps a line on the terminal, whatever its length: without a limit
 * a handler that writes nothing but line ends would take processor time from all other requests.
 */

import type { EnvValue } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import { getOrMake } from '../core/collections.ts'
import { type ErrorDetail, GatewayError } from '../core/errors.ts'
import { HIDDEN } from '../core/text.ts'

/** Lines of one function: at once, and a second after that. */
const OUTPUT_LINES = { burst: 10_000, perSecond: 2000 } as const
/** Writers in memory; with one more all start again. */
const MAX_WRITERS = 10_000

export class OutputBudget {
  readonly #clock: Clock
  /** `left`: lines that may be written at the monotonic time `at`. `dropped`: characters that were not reported yet. */
  readonly #buckets = new Map<string, { left: number; at: number; dropped: number }>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /**
   * @param writer - such as a function's key
   * @returns the text within the budget, with a note about dropped lines; empty when nothing is
   */
  take(writer: string, text: string): string {
    const { burst, perSecond } = OUTPUT_LINES
    const now = this.#clock.monotonic()
    if (this.#buckets.size >= MAX_WRITERS && !this.#buckets.has(writer)) this.#buckets.clear()
    const bucket = getOrMake(this.#buckets, writer, () => ({ left: burst, at: now, dropped: 0 }))
    bucket.left = Math.min(burst, bucket.left + ((now - bucket.at) * perSecond) / 1000)
    bucket.at = now
    if (bucket.left < 1) {
      bucket.dropped += text.length
      return ''
    }
    const note = bucket.dropped > 0 ? `[${bucket.dropped} characters of output dropped]\n` : ''
    let end = 0
    for (; bucket.left >= 1 && end < text.length; bucket.left--) end = text.indexOf('\n', end) + 1 || text.length
    bucket.dropped = text.length - end
    if (bucket.dropped === 0) return note + text
    return `${note}${text.slice(0, end)}[more than ${perSecond} lines a second: output dropped]\n`
  }
}

/** Shorter values are not hidden: they occur in many lines by chance. */
export const MIN_SECRET_CHARS = 8

type Env = Readonly<Record<string, EnvValue>>

export class SecretMask {
  /** Texts to hide, longest first; by the environment, which a reload that changes nothing keeps. */
  readonly #texts = new WeakMap<Env, readonly string[]>()
  /** An error that several calls waited for stays one error. */
  readonly #errors = new WeakMap<GatewayError, GatewayError>()

  /** Text of a function without its secrets. A secret that is printed in pieces is not found. */
  hide({ env }: { env: Env }, text: string): string {
    let shown = text
    for (const secret of this.#textsOf(env)) if (shown.includes(secret)) shown = shown.replaceAll(secret, HIDDEN)
    return shown
  }

  /** An error without secrets; the same one when it has none. */
  hideIn(fn: { env: Env }, error: GatewayError): GatewayError {
    if (this.#textsOf(fn.env).length === 0) return error
    const known = this.#errors.get(error)
    if (known !== undefined) return known
    const { code, status, headers } = error
    const message = this.hide(fn, error.message)
    const detail = error.detail && this.#hideInDetail(fn, error.detail)
    if (message === error.message && detail === error.detail) return error
    // Without its cause, which may contain the same text.
    const hidden = new GatewayError(code, message, { status, ...(headers && { headers }), ...(detail && { detail }) })
    this.#errors.set(error, hidden)
    return hidden
  }

  #hideInDetail(fn: { env: Env }, detail: ErrorDetail): ErrorDetail {
    const { stack, hint } = detail
    const hidden = { ...detail }
    if (stack !== undefined) hidden.stack = this.hide(fn, stack)
    if (hint !== undefined) hidden.hint = this.hide(fn, hint)
    return hidden.stack === stack && hidden.hint === hint ? detail : hidden
  }

  #textsOf(env: Env): readonly string[] {
    const known = this.#texts.get(env)
    if (known !== undefined) return known
    const values = Object.values(env).flatMap(({ value, isSecret }) => (isSecret ? [value] : []))
    // A key in several lines is printed line by line; JSON and URLs escape some characters.
    const texts = values
      .flatMap(value => [value, ...value.split(/\r?\n/)])
      .flatMap(value => [value, JSON.stringify(value).slice(1, -1), encodeURIComponent(Buffer.from(value).toString())])
      .filter(text => text.trim().length >= MIN_SECRET_CHARS)
    const found = [...new Set(texts)].sort((a, b) => b.length - a.length)
    this.#texts.set(env, found)
    return found
  }
}
