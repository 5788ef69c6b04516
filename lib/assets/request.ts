/** A request for a static file: its headers, the name it asks for, conditions and ranges (RFC 9110 sections 13 and 14). Owner: §2.11. */

import { headerOf, matchesTag } from '../core/http-text.ts'
import { unescapeCanonical } from '../router/radix-tree.ts'
import type { Asset, AssetForm, Coding } from './file.ts'

/** Headers that decide about the answer; null when absent, repeated ones joined. */
export type AssetHead = ReturnType<typeof readAssetHead>

export function readAssetHead(rawHeaders: readonly string[]) {
  return {
    accept: headerOf(rawHeaders, 'accept'),
    acceptEncoding: headerOf(rawHeaders, 'accept-encoding'),
    fetchMode: headerOf(rawHeaders, 'sec-fetch-mode'),
    fetchDest: headerOf(rawHeaders, 'sec-fetch-dest'),
    range: headerOf(rawHeaders, 'range'),
    ifRange: headerOf(rawHeaders, 'if-range'),
    ifMatch: headerOf(rawHeaders, 'if-match'),
    ifNoneMatch: headerOf(rawHeaders, 'if-none-match'),
    ifModifiedSince: headerOf(rawHeaders, 'if-modified-since'),
    ifUnmodifiedSince: headerOf(rawHeaders, 'if-unmodified-since'),
  }
}

/** Hidden or ambiguous names: a segment that begins with a dot, an escaped slash, a backslash, control characters. */
const UNSAFE = /\/\.|%2F|[\\\u0000-\u001f\u007f]/
/** The gateway's own files, should the mount be a folder that holds them; copies too, whatever is appended to the name. */
const OWN_FILE = /(?:^|\/)(?:fngw|fn\.(?:config|env|routes))\.json[^/]*$/i
/** Copies that editors and tools leave beside a file: its earlier content, perhaps with a secret that was taken out. */
const BACKUP = /(?:~|\.(?:bak|backup|old|orig|rej|sw[nop]))$|(?:^|\/)#[^/]*#$/i

/**
 * @param path - canonical path of the request
 * @returns the name below the assets directory, or null for a path that never is an asset
 */
export function toAssetName(path: string): string | null {
  if (path === '/') return 'index.html'
  if (UNSAFE.test(path)) return null
  const name = unescapeCanonical(path.slice(1))
  return OWN_FILE.test(name) || BACKUP.test(name) ? null : name
}

const API = /^\/api(?:[/-]|$)/

/** True for a path that a page of a single-page application may have: no file name, no API. */
export function isPagePath(path: string): boolean {
  return !UNSAFE.test(path) && !path.slice(path.lastIndexOf('/') + 1).includes('.') && !API.test(path)
}

/** True when a browser goes to a page, or a client takes anything. */
export function isNavigation(head: AssetHead): boolean {
  if (head.fetchMode === 'navigate' || head.fetchDest === 'document') return true
  if (head.accept === null || head.accept.trim() === '') return true
  const accepted = readQualities(head.accept)
  return (accepted.get('text/html') ?? accepted.get('text/*') ?? accepted.get('*/*') ?? 0) > 0
}

/** Names of a list with their weights, lower-case; a weight that is not a number counts as 0. */
function readQualities(text: string): Map<string, number> {
  const weights = new Map<string, number>()
  for (const item of text.toLowerCase().split(',')) {
    const [name = '', ...params] = item.split(';').map(part => part.trim())
    const q = params.find(param => param.startsWith('q='))
    if (name !== '') weights.set(name, q === undefined ? 1 : Number(q.slice(2)) || 0)
  }
  return weights
}

/** The form of an asset that a client likes best; of equals the smaller one. The plain one when it likes none. */
export function chooseForm({ plain, br, gzip }: Asset, acceptEncoding: string | null): AssetForm {
  if (acceptEncoding === null || (br === null && gzip === null)) return plain
  const weights = readQualities(acceptEncoding)
  const weightOf = (coding: Coding): number => weights.get(coding) ?? weights.get('*') ?? 0
  const plainWeight = weights.get('identity') ?? 0
  const brWeight = br === null ? 0 : weightOf('br')
  const gzipWeight = gzip === null ? 0 : Math.max(weightOf('gzip'), weights.get('x-gzip') ?? 0)
  if (br !== null && brWeight > 0 && brWeight >= gzipWeight && brWeight >= plainWeight) return br
  if (gzip !== null && gzipWeight > 0 && gzipWeight >= plainWeight) return gzip
  return plain
}

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
