/** Texts that several files name: hosts, paths, URLs, headers. Owner: page config/fields. */

import { randomBytes, scryptSync } from 'node:crypto'
import { orNull } from '../core/errors.ts'
import { isReservedPath } from '../core/identity.ts'
import { parseStoreUrl } from '../core/store-url.ts'
import { type Field, list, mapped, type Place, reportWrong, string } from './fields.ts'

const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/

/** A host rule that no request can match: no `Host` header holds a blank. Stands for a broken `allow_hosts` (fail closed). */
export const NO_HOST = '(no host)'

const HOST = /^(\*\.)?(([a-z0-9_-]+\.)*[a-z0-9_-]+|\[[0-9a-f:.]+\])(:\d{1,5})?$/

/** A lower-case host rule: exact, `host:port`, or `*.suffix`. */
export function hostRule(): Field<string> {
  const rule = 'a host such as example.com, example.com:8080 or *.example.com'
  const parse = (text: string) => (HOST.test(text.trim().toLowerCase()) ? text.trim().toLowerCase() : null)
  return string({ rule, parse, maxLength: 253, hint: 'Write the host alone, without scheme and path.' })
}

/** Host rules that stay restrictive when they are broken: a value with no usable rule allows no host instead of every host. */
export function hostAllowList(description: string): Field<string[]> {
  const hint = 'Fix or remove it: until then no host is allowed.'
  const hosts = list(hostRule(), { description, rule: 'a list of hosts', maxItems: 100, hint })
  return {
    ...hosts,
    read: (value, at) => hosts.read(value, at) ?? [NO_HOST],
    readText: (text, at) => hosts.readText(text, at) ?? [NO_HOST],
  }
}

/**
 * A path below a folder, posix separators, without `.` and `..` (a leading `./` is dropped).
 * @returns null for an absolute path, one that leaves the folder, or one with a backslash
 */
export function parseRelativePath(text: string): string | null {
  const path = text.replace(/^(\.\/)+/, '').replace(/\/+$/, '')
  if (path.includes('\\') || path.includes('\0')) return null
  const segments = path.split('/')
  return segments.some(segment => segment === '' || segment === '.' || segment === '..') ? null : path
}

export function relativePath(description: string, what: string): Field<string> {
  const rule = `${what}, relative and without ..`
  return string({
    rule,
    parse: parseRelativePath,
    description,
    hint: 'Write it relative to this file, such as src/app.js.',
  })
}

const storeUrlText = string({
  rule: 'a URL such as redis://host:6379/0, redis+sentinel://host:26379/mymaster or redis+cluster://host:6379',
  maxLength: 2048,
})

/** The server that gateways of a fleet share. A message says which rule the URL breaks, since its value is not shown. */
export const storeUrl: Field<string> = { ...storeUrlText, read: readStoreUrl, readText: readStoreUrl }

function readStoreUrl(value: unknown, at: Place): string | undefined {
  const text = storeUrlText.read(typeof value === 'string' ? value.trim() : value, at)
  if (text === undefined) return undefined
  try {
    parseStoreUrl(text)
    return text
  } catch (error) {
    return reportWrong(at, (error as Error).message, value)
  }
}

export const storePrefix = string({
  rule: '1 to 64 letters, digits, _ . and -',
  pattern: /^[\w.-]{1,64}$/,
})

export const release = string({
  rule: '1 to 64 letters, digits, _ . + and -',
  pattern: /^[\w.+-]{1,64}$/,
})

const ROUTE_LENGTH = 2000

/** True for a path that may become a public route; the pattern itself is compiled by the router. */
export function isPublicPath(text: string): boolean {
  if (!text.startsWith('/') || text.length > ROUTE_LENGTH || /[\s?#\\\u0000-\u001f\u007f]/.test(text)) return false
  if (isReservedPath(text.replace(/\/{2,}/g, '/'))) return false
  return !text.split('/').some(segment => segment === '.' || segment === '..')
}

/** A public path pattern: `/items`, `/items/:id`, `/items/{id}`, `/files/*`. */
export function publicPath(description?: string): Field<string> {
  const rule = 'a path that starts with / and is not below /_fn or /console'
  const parse = (text: string) => (isPublicPath(text) ? text : null)
  return string({ rule, parse, pattern: /^\//, maxLength: ROUTE_LENGTH, ...(description ? { description } : {}) })
}

/** An absolute http or https URL without user, query and fragment; a trailing slash is dropped. */
function parseBaseUrl(text: string): string | null {
  const url = toUrl(text)
  if (url === null || url.username !== '' || url.password !== '' || url.search !== '' || url.hash !== '') return null
  return url.href.replace(/\/+$/, '')
}

export function baseUrl(description: string): Field<string> {
  const rule = 'an http or https URL without user, query and fragment'
  return string({ rule, parse: parseBaseUrl, pattern: /^[hH][tT][tT][pP][sS]?:\/\//, maxLength: 2000, description })
}

/** The path that a home action runs: a public path, or one relative to its folder; never the folder's own root. */
export function parseHomeRoute(text: string): string | null {
  const path = text.replace(/^\.\//, '')
  const absolute = path.startsWith('/') ? path : `/${path}`
  if (/^[a-z][a-z0-9+.-]*:/i.test(path) || !isPublicPath(absolute)) return null
  return absolute.replace(/\/+/g, '') === '' ? null : path
}

/** Where a home action sends the browser: an http or https URL, or a path other than `/`. */
export function parseHomeRedirect(text: string): string | null {
  if (/[\s\u0000-\u001f\u007f\\]/.test(text)) return null
  // `//host` would leave this site although it looks like a path.
  if (text.startsWith('/')) return text.startsWith('//') || text === '/' ? null : text
  return toUrl(text) === null ? null : text
}

export const HOME_ROUTE_RULE = 'a path other than /, not below /_fn or /console'
export const HOME_REDIRECT_RULE = 'an http or https URL, or a path other than /'

function toUrl(text: string): URL | null {
  return /^https?:\/\//i.test(text) ? orNull(() => new URL(text)) : null
}

/** True for a value without line breaks and NUL: nothing that could start another header. */
export function isHeaderValue(text: string): boolean {
  return !/[\r\n\0]/.test(text)
}

/** Bytes written as base64 text. */
export const base64: Field<Buffer> = mapped(string({ multiline: true, rule: 'base64 text' }), (text, at) =>
  BASE64.test(text) ? Buffer.from(text, 'base64') : reportWrong(at, 'base64 text, with its padding', text),
)

/** A scalar as text, or undefined for a list or an object. */
export function toScalarText(value: unknown): string | undefined {
  return ['string', 'number', 'boolean'].includes(typeof value) ? String(value) : undefined
}

/** First and last user id of several. */
export interface UidRange {
  first: number
  last: number
}

/** Most groups that a process of Linux may be in: the gateway is in those of all functions. */
const MAX_IDS = 65_536
const RULE = `a range of 2 to ${MAX_IDS} user ids such as 20000-29999, above 0`
/** Largest id of a function's user: those above it are for senders of signals (lib/files/user-signals.ts), the last ones stand for "none". */
const MAX_UID = 0xffef_fff0

/** `20000-29999`. */
export function uidRange(): Field<string> {
  const parse = (text: string) => {
    const range = toUidRange(text)
    return range === null ? null : `${range.first}-${range.last}`
  }
  return string({ rule: RULE, parse, pattern: /^\d{1,10} ?- ?\d{1,10}$/ })
}

/** The range of a text that the setting takes; null for others. */
export function toUidRange(text: string): UidRange | null {
  const [first = 0, last = 0] = text.split('-').map(Number)
  const count = last - first + 1
  return first >= 1 && count >= 2 && count <= MAX_IDS && last <= MAX_UID ? { first, last } : null
}

/** The first id is the gateway's, the others are functions'. @param text - as the setting takes it */
export function toUsers(text: string): { gateway: number; functions: UidRange } {
  const { first, last } = toUidRange(text)!
  return { gateway: first, functions: { first: first + 1, last } }
}

// Password hashes: a slow hash with its salt and its costs.

/** A hash that can be checked: by scrypt, or by PBKDF2 as other gateways of this kind write it. */
export type PasswordHash =
  | { kind: 'scrypt'; cost: number; blockSize: number; parallel: number; salt: Buffer; digest: Buffer }
  | { kind: 'pbkdf2'; iterations: number; salt: Buffer; digest: Buffer }

const HEX = '((?:[0-9a-f]{2}){16,64})'
const SCRYPT = new RegExp(`^scrypt:(\\d{4,6}):(\\d{1,2}):(\\d):${HEX}:${HEX}$`, 'i')
const PBKDF2 = /^pbkdf2-sha256:(\d{6,7}):((?:[0-9a-f]{2}){8,64}):((?:[0-9a-f]{2}){32})$/i

/** Checking one password may take this much memory, bytes. */
export const MAX_SCRYPT_BYTES = 128 * 1024 * 1024
const MIN_COST = 16_384
/** OWASP's lowest figure for PBKDF2 is higher; this one keeps hashes that are in use. */
const MIN_ITERATIONS = 100_000

/**
 * Reads `scrypt:<N>:<r>:<p>:<salt hex>:<digest hex>` or `pbkdf2-sha256:<iterations>:<salt hex>:<digest hex>`.
 * @returns null when it is neither, too weak to keep a password, or too expensive to check
 */
export function parsePasswordHash(text: string): PasswordHash | null {
  const scrypt = SCRYPT.exec(text)
  if (scrypt !== null) {
    const [cost, blockSize, parallel] = [Number(scrypt[1]), Number(scrypt[2]), Number(scrypt[3])]
    const isPower = Number.isInteger(Math.log2(cost))
    const isSane = cost >= MIN_COST && isPower && blockSize >= 1 && parallel >= 1
    if (!isSane || 128 * cost * blockSize * parallel > MAX_SCRYPT_BYTES) return null
    return { kind: 'scrypt', cost, blockSize, parallel, salt: fromHex(scrypt[4]), digest: fromHex(scrypt[5]) }
  }
  const pbkdf2 = PBKDF2.exec(text)
  const iterations = Number(pbkdf2?.[1])
  if (pbkdf2 === null || iterations < MIN_ITERATIONS || iterations > 5_000_000) return null
  return { kind: 'pbkdf2', iterations, salt: fromHex(pbkdf2[2]), digest: fromHex(pbkdf2[3]) }
}

/** Costs of new passwords: some 50 ms and 32 MiB to check. */
const NEW = { cost: 32_768, blockSize: 8, parallel: 1, saltBytes: 16, digestBytes: 32 } as const

/** A hash with a new salt, as `parsePasswordHash` reads it. */
export function toPasswordHash(password: string): string {
  const { cost, blockSize, parallel, saltBytes, digestBytes } = NEW
  const salt = randomBytes(saltBytes)
  const costs = { N: cost, r: blockSize, p: parallel, maxmem: 2 * MAX_SCRYPT_BYTES }
  const digest = scryptSync(password, salt, digestBytes, costs)
  return ['scrypt', cost, blockSize, parallel, salt.toString('hex'), digest.toString('hex')].join(':')
}

function fromHex(text: string | undefined): Buffer {
  return Buffer.from(text ?? '', 'hex')
}
