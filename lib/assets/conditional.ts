/** Conditions and ranges of a request, decided for one state of a file (RFC 9110 sections 13 and 14). Owner: §2.11. */

import { matchesTag } from '../core/http-text.ts'
import type { AssetHead } from './request.ts'

interface Validators {
  readonly etag: string
  readonly modifiedSeconds: number
}

/** Bytes `start` to `end`, both sent. */
interface ByteRange {
  start: number
  end: number
}

/** `range` is set with 206 alone. */
export interface Decision {
  status: 200 | 206 | 304 | 412 | 416
  range: ByteRange | null
}

const WHOLE: Decision = Object.freeze({ status: 200, range: null })
const NOT_MODIFIED: Decision = Object.freeze({ status: 304, range: null })
const FAILED: Decision = Object.freeze({ status: 412, range: null })
const UNSATISFIABLE: Decision = Object.freeze({ status: 416, range: null })

/**
 * @param method - GET or HEAD; ranges mean something with GET only
 * @param size - bytes of the file
 */
export function decide(method: string, head: AssetHead, file: Validators, size: number): Decision {
  if (head.ifMatch !== null) {
    if (!matchesTag(head.ifMatch, file.etag, false)) return FAILED
  } else if (head.ifUnmodifiedSince !== null) {
    const since = parseHttpDate(head.ifUnmodifiedSince)
    if (since !== null && file.modifiedSeconds > since) return FAILED
  }
  if (head.ifNoneMatch !== null) {
    if (matchesTag(head.ifNoneMatch, file.etag, true)) return NOT_MODIFIED
  } else if (head.ifModifiedSince !== null) {
    const since = parseHttpDate(head.ifModifiedSince)
    if (since !== null && file.modifiedSeconds <= since) return NOT_MODIFIED
  }
  if (method !== 'GET' || head.range === null || size === 0) return WHOLE
  if (head.ifRange !== null && !isUnchanged(head.ifRange, file)) return WHOLE
  return decideRange(head.range, size)
}

/**
 * One range is sent. Of several none: the whole file is what a client may always get, and taking a file apart into a
 * thousand overlapping pieces would be work for an attacker's sake. A header that is not well-formed is ignored.
 */
export function decideRange(text: string, size: number): Decision {
  const match = /^bytes=(.*)$/i.exec(text.trim())
  if (match === null) return WHOLE
  let satisfiable: ByteRange | null = null
  let count = 0
  for (const item of match[1]!.split(',')) {
    const spec = item.trim()
    if (spec === '') continue
    const range = parseRange(spec, size)
    if (range === null) return WHOLE
    count += 1
    if (range.start < size && range.end >= range.start) satisfiable = range
  }
  if (count === 0) return WHOLE
  if (satisfiable === null) return UNSATISFIABLE
  return count === 1 ? { status: 206, range: satisfiable } : WHOLE
}

/** @returns null when it is not well-formed; a start at or beyond `size`, or an end before it, for one without any byte */
function parseRange(spec: string, size: number): ByteRange | null {
  const [, first, last] = /^(\d*)-(\d*)$/.exec(spec) ?? []
  if (first === undefined || last === undefined || (first === '' && last === '')) return null
  if (first === '') return { start: Math.max(0, size - Number(last)), end: size - 1 }
  const start = Number(first)
  if (last === '') return { start, end: size - 1 }
  const end = Number(last)
  return end < start ? null : { start, end: Math.min(end, size - 1) }
}

/** If-Range: the strong tag, or exactly the date that was sent with the first part. */
function isUnchanged(ifRange: string, file: Validators): boolean {
  const text = ifRange.trim()
  if (text.startsWith('"') || text.startsWith('W/')) return text === file.etag
  return parseHttpDate(text) === file.modifiedSeconds
}

/** The three forms of RFC 9110 5.6.7; null for anything else. */
const HTTP_DATE =
  /^(?:\w{3}, \d\d \w{3} \d{4}|\w{6,9}, \d\d-\w{3}-\d\d|\w{3} \w{3} [ \d]\d) \d\d:\d\d:\d\d (?:GMT|\d{4})$/

/** @returns seconds since 1970, or null */
export function parseHttpDate(text: string): number | null {
  const date = text.trim()
  if (!HTTP_DATE.test(date)) return null
  const ms = Date.parse(date.endsWith('GMT') ? date : `${date} GMT`)
  return Number.isNaN(ms) ? null : ms / 1000
}
