/** Rules of HTTP for texts: header names and values, `Allow`, percent escapes. Owner: page http/public. */

import { orNull } from './errors.ts'

const HEADER_NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/
/** CR and LF would start a header or message chosen by the writer of the value; the rest cannot be sent at all. */
const UNSENDABLE = /[^\t\x20-\x7e\x80-\xff]/

/** True for a token of RFC 9110 5.6.2. */
export function isHeaderName(text: string): boolean {
  return HEADER_NAME.test(text)
}

/** The first character that is not allowed in a header value; null when there is none. */
export function findUnsendable(value: string): string | null {
  return UNSENDABLE.exec(value)?.[0] ?? null
}

/**
 * The value of `Allow`: HEAD is answered wherever GET is.
 * @param methods - in the order in which they are shown
 */
export function toAllow(methods: readonly string[]): string {
  return methods.flatMap(method => (method === 'GET' ? ['GET', 'HEAD'] : [method])).join(', ')
}

/**
 * Headers without some, and without those that a `Connection` header among them names (RFC 9110 7.6.1).
 * @param list - names and values in turn
 * @param isDropped - of a lower-case name
 */
export function withoutHeaders(
  list: readonly string[],
  isDropped: (lowerName: string, value: string) => boolean,
): string[] {
  const named = new Set<string>()
  for (let i = 0; i < list.length; i += 2) {
    if (list[i]!.toLowerCase() !== 'connection') continue
    for (const token of list[i + 1]!.toLowerCase().split(',')) named.add(token.trim())
  }
  const kept: string[] = []
  for (let i = 0; i + 1 < list.length; i += 2) {
    const name = list[i]!.toLowerCase()
    if (!named.has(name) && !isDropped(name, list[i + 1]!)) kept.push(list[i]!, list[i + 1]!)
  }
  return kept
}

const JSON_TYPE = /^application\/(?:[\w.+-]+\+)?json\s*(?:;|$)/i

/** True for a `Content-Type` of JSON: one that no plain form of a page can send. */
export function isJsonType(contentType: string): boolean {
  return JSON_TYPE.test(contentType.trim())
}

/** The value of one header, repeated ones joined; null when absent. @param rawHeaders - names and values in turn */
export function headerOf(rawHeaders: readonly string[], lowerName: string): string | null {
  let found: string | null = null
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    if (rawHeaders[i]!.length !== lowerName.length || rawHeaders[i]!.toLowerCase() !== lowerName) continue
    found = found === null ? rawHeaders[i + 1]! : `${found}, ${rawHeaders[i + 1]}`
  }
  return found
}

/** Text without its percent escapes, undone once; null when one is malformed or not UTF-8 (`%zz`, `%c0%ae`). */
export function decodePercent(text: string): string | null {
  if (!text.includes('%')) return text
  return orNull(() => decodeURIComponent(text))
}

/**
 * True when a list of entity tags (`If-Match`, `If-None-Match`) names one, or is `*`.
 * @param isWeak - true compares the tags' texts alone; false wants two strong tags
 */
export function matchesTag(list: string, etag: string, isWeak: boolean): boolean {
  if (list.trim() === '*') return true
  const tags: readonly string[] = list.match(/(?:W\/)?"[^"]*"/g) ?? []
  return tags.includes(etag) || (isWeak && tags.includes(`W/${etag}`))
}

/**
 * Headers by lower-case name; a repeated one has a list.
 * @param headers - names and values in turn
 */
export function toHeaderRecord(headers: readonly string[]): Record<string, string | string[]> {
  const record: Record<string, string | string[]> = Object.create(null)
  for (let i = 0; i + 1 < headers.length; i += 2) {
    const name = headers[i]!.toLowerCase()
    const before = record[name]
    record[name] = before === undefined ? headers[i + 1]! : [before, headers[i + 1]!].flat()
  }
  return record
}
