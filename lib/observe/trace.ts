/**
 * Which trace a call belongs to, by the rules of W3C Trace Context: taken from the client when well-formed, else begun here.
 * Owner: page observe/trace.
 */

import { randomFillSync } from 'node:crypto'

/** `00`, 32 digits of a trace, 16 of the span that asks, 2 of flags; what later versions add follows a further `-`. */
const TRACEPARENT = /^(?!ff)[0-9a-f]{2}-((?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})(-.*)?$/
const TRACEPARENT_CHARS = 55

/** Entries of a `tracestate`, and its characters: longer ones need not be passed on, and would grow every call. */
const MAX_STATE_ENTRIES = 32
const MAX_STATE_CHARS = 512
const STATE_KEY = /^(?:[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})$/
const STATE_VALUE = /^[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]$/

/**
 * A `traceparent` header as it is handed on, in version 00.
 * @returns null for one that is not well-formed: then a new trace begins
 */
export function readTraceparent(text: string): string | null {
  if (text.length === TRACEPARENT_CHARS && text.startsWith('00-')) return TRACEPARENT.test(text) ? text : null
  const match = TRACEPARENT.exec(text)
  if (match === null || text.startsWith('00-')) return null
  return `00-${match[1]}`
}

/**
 * A `tracestate` header as it is handed on.
 * @returns null for none and for one that breaks a rule: a part of it would say something else than its writers meant
 */
export function readTracestate(text: string): string | null {
  if (text.length > MAX_STATE_CHARS) return null
  const keys = new Set<string>()
  const entries = text
    .split(',')
    .map(entry => entry.replace(/^[ \t]+|[ \t]+$/g, ''))
    .filter(entry => entry !== '')
  for (const entry of entries) {
    const equals = entry.indexOf('=')
    const key = entry.slice(0, Math.max(0, equals))
    if (!STATE_KEY.test(key) || !STATE_VALUE.test(entry.slice(equals + 1)) || keys.has(key)) return null
    keys.add(key)
  }
  return entries.length === 0 || entries.length > MAX_STATE_ENTRIES ? null : entries.join(',')
}

/** The trace's own id in a `traceparent` that was read or made here. */
export function traceIdOf(traceparent: string): string {
  return traceparent.slice(3, 35)
}

/** Whatever is part of a trace. */
interface Traced {
  trace: string
  traceState: string | null
  /** A span that it has already decides. */
  span: { readonly trace: string; readonly traceState: string | null } | null
}

const ID_BYTES = 24
const POOL_BYTES = 340 * ID_BYTES

/** Begins traces. Random bytes come from a pool, because asking the system for a few costs more than a request's routing. */
export class TraceIds {
  readonly #bytes = Buffer.alloc(POOL_BYTES)
  #digits = ''
  #at = POOL_BYTES * 2

  /** A new `traceparent`, sampled: the access line of the call is the record that it promises. */
  next(): string {
    if (this.#at >= POOL_BYTES * 2) this.#refill()
    const at = this.#at
    this.#at = at + ID_BYTES * 2
    return `00-${this.#digits.slice(at, at + 32)}-${this.#digits.slice(at + 32, at + 48)}-01`
  }

  /**
   * Lets a call be part of the trace that its headers name, or of a new one.
   * @param call - without a trace
   */
  join(call: Traced, traceparent: string | null, tracestate: string | null): void {
    if (call.span !== null) {
      call.trace = call.span.trace
      call.traceState = call.span.traceState
      return
    }
    const taken = traceparent === null ? null : readTraceparent(traceparent)
    call.trace = taken ?? this.next()
    // What others noted about a trace that does not go on is about nothing here.
    if (taken !== null && tracestate !== null) call.traceState = readTracestate(tracestate)
  }

  #refill(): void {
    this.#digits = randomFillSync(this.#bytes).toString('hex')
    this.#at = 0
  }
}
