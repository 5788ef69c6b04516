/** Headers of an upstream request and of its answer. Spec: §2.10. */

import { showText, showValue } from '../config/findings.ts'
import { toScalarText } from '../config/texts.ts'
import { GatewayError } from '../core/errors.ts'
import { findUnsendable, isHeaderName, withoutHeaders } from '../core/http-text.ts'
import { MAX_REPLY_HEADER_BYTES } from '../core/limits.ts'
import { headerOf, HOP_BY_HOP, INTERNAL_PREFIX, takesOver } from '../invocation/forwarded-headers.ts'

/** What the gateway says itself, or what only one connection's two ends may say. */
const NOT_SENT: ReadonlySet<string> = new Set([...HOP_BY_HOP, 'host', 'content-length', 'expect'])
const NOT_PASSED_ON: ReadonlySet<string> = new Set([...HOP_BY_HOP, 'content-length', 'x-request-id'])

/**
 * The directive's headers as they are sent: names and values in turn.
 * @throws GatewayError CONTRACT_BROKEN naming header and value
 */
export function toRequestHeaders(headers: unknown): string[] {
  if (headers === undefined || headers === null) return []
  // An empty table or array of a language that has only one kind of both.
  if (Array.isArray(headers) && headers.length === 0) return []
  if (typeof headers !== 'object' || Array.isArray(headers))
    throw broken(`proxy.headers must be an object, got ${showValue(headers)}`)
  const list: string[] = []
  let bytes = 0
  for (const [name, value] of Object.entries(headers)) {
    if (!isHeaderName(name)) throw broken(`proxy.headers: "${showText(name)}" is no header name`)
    for (const item of Array.isArray(value) ? value : [value]) {
      if (item === null) continue
      const text = toScalarText(item)
      if (text === undefined)
        throw broken(`proxy.headers: ${name} must be a string or strings, got ${showValue(item, true)}`)
      if (findUnsendable(text) !== null)
        throw broken(`proxy.headers: ${name} holds a character that a header cannot carry`)
      bytes += name.length + text.length + 4
      if (bytes > MAX_REPLY_HEADER_BYTES) throw broken(`proxy.headers are larger than ${MAX_REPLY_HEADER_BYTES} bytes`)
      list.push(name, text)
    }
  }
  return withoutHeaders(list, name => NOT_SENT.has(name) || name.startsWith(INTERNAL_PREFIX))
}

/**
 * What tells the upstream whose trace the request is part of; nothing when the handler says so itself.
 * @param headers - of the directive, names and values in turn
 */
export function toTraceHeaders(
  headers: readonly string[],
  { trace, traceState }: { trace: string; traceState: string | null },
): string[] {
  if (headerOf(headers, 'traceparent') !== null) return []
  const added = ['traceparent', trace]
  if (traceState !== null && headerOf(headers, 'tracestate') === null) added.push('tracestate', traceState)
  return added
}

/**
 * An answer's headers as they are passed on; repeated ones stay apart.
 * @param rawHeaders - names and values in turn, as received
 * @param sharesOrigin - pages of functions have the origin of the console
 * @returns null when one cannot be sent again
 */
export function toAnswerHeaders(rawHeaders: readonly string[], sharesOrigin = true): string[] | null {
  for (let i = 1; i < rawHeaders.length; i += 2) if (findUnsendable(rawHeaders[i]!) !== null) return null
  return withoutHeaders(
    rawHeaders,
    (name, value) =>
      NOT_PASSED_ON.has(name) || name.startsWith(INTERNAL_PREFIX) || takesOver(name, value, sharesOrigin),
  )
}

/** The codings of an answer's body, outermost last; `identity` is none. */
export function toCodings(rawHeaders: readonly string[]): string[] {
  const codings: string[] = []
  for (let i = 0; i < rawHeaders.length; i += 2) {
    if (rawHeaders[i]!.toLowerCase() === 'content-encoding')
      codings.push(...rawHeaders[i + 1]!.toLowerCase().split(','))
  }
  return codings.map(coding => coding.trim()).filter(coding => coding !== '' && coding !== 'identity')
}

export function broken(why: string): GatewayError {
  return new GatewayError('CONTRACT_BROKEN', `invalid runtime response: ${why}`)
}
