/** A proxy directive and a function's `edge` policy as one upstream request, or the reason why not. Spec: §2.10. */

import { isIP } from 'node:net'
import { showText, showValue } from '../config/fields.ts'
import { toScalarText } from '../config/texts.ts'
import type { EdgePolicy } from '../core/catalog.ts'
import { GatewayError, orNull } from '../core/errors.ts'
import { findUnsendable, isHeaderName, withoutHeaders } from '../core/http-text.ts'
import { isMethod, METHODS, RESERVED_PREFIXES } from '../core/identity.ts'
import { MAX_REPLY_HEADER_BYTES } from '../core/limits.ts'
import { HOP_BY_HOP, INTERNAL_PREFIX } from '../invocation/forwarded-headers.ts'

/** Characters of an edge target. */
const MAX_EDGE_URL_CHARS = 16 * 1024
/** Targets of a function that are remembered as checked, and the longest one that is, characters. */
const KNOWN_TARGETS = 256
const KNOWN_TARGET_CHARS = 512

/** Where a request goes. */
export interface EdgeTarget {
  isTls: boolean
  /** Canonical name or address: lower case, no brackets, no trailing dot. */
  hostname: string
  port: number
  /** Value of `Host`. */
  host: string
  /** Path and query. */
  path: string
  /** The path read in every way, see readSpellings. */
  spellings: readonly string[][]
}

export interface EdgeRequest {
  to: EdgeTarget
  method: string
  /** Names and values in turn, without `Host` and length. */
  headers: string[]
  /** The directive's own limit, null when it has none. */
  timeoutMs: number | null
  maxResponseBytes: number
}

/** `edge` of a function, prepared once. */
export interface EdgeRules {
  policy: EdgePolicy
  hosts: readonly { name: string; port: number | null; isSuffix: boolean }[]
  /** Targets that were checked before, by their text. */
  known: Map<string, EdgeTarget>
}

export function toEdgeRules(policy: EdgePolicy): EdgeRules {
  const hosts = policy.allowHosts.map(rule => {
    const [, star, name = '', port] = /^(\*\.)?(.*?)(?::(\d+))?$/.exec(rule)!
    const url = star === undefined ? toUrl(`http://${name}`) : null
    // A rule is read like a target, so that both spell one host in one way.
    const canonical = url === null ? name.toLowerCase() : toHostname(url)
    return { name: canonical, port: port === undefined ? null : Number(port), isSuffix: star !== undefined }
  })
  return { policy, hosts, known: new Map() }
}

/**
 * @param timeoutMs - of the function
 * @param incoming - method of the request that the function answers: the default
 * @throws GatewayError EDGE_FAILED or CONTRACT_BROKEN
 */
export function toEdgeRequest(
  directive: Readonly<Record<string, unknown>>,
  rules: EdgeRules,
  timeoutMs: number,
  incoming: string,
): EdgeRequest {
  const { maxResponseBytes } = rules.policy
  const to = findTarget(directive, rules)
  const ownBytes = toLimit(directive.max_response_bytes, 'max_response_bytes') ?? maxResponseBytes
  const ownMs = toLimit(directive.timeout_ms, 'timeout_ms')
  return {
    to,
    method: toMethod(directive.method, incoming),
    headers: toRequestHeaders(directive.headers),
    timeoutMs: ownMs === null || ownMs >= timeoutMs ? null : ownMs,
    maxResponseBytes: Math.min(ownBytes, maxResponseBytes),
  }
}

/** Text and policy decide everything about a target but its addresses, so one that came before need not be read again. */
function findTarget({ url, path }: Readonly<Record<string, unknown>>, rules: EdgeRules): EdgeTarget {
  const isUrl = url !== undefined && url !== null
  const text = isUrl ? url : path
  if (typeof text !== 'string' || text.length > KNOWN_TARGET_CHARS) return toTarget(isUrl, text, rules)
  const key = isUrl ? `url ${text}` : text
  const known = rules.known.get(key)
  if (known !== undefined) return known
  const target = toTarget(isUrl, text, rules)
  if (rules.known.size >= KNOWN_TARGETS) rules.known.clear()
  rules.known.set(key, target)
  return target
}

function toTarget(isUrl: boolean, text: unknown, rules: EdgeRules): EdgeTarget {
  const url = isUrl ? fromUrl(text) : fromPath(text, rules.policy.baseUrl)
  const spellings = readSpellings(url.pathname)
  if (spellings === null || isControlPath(spellings)) throw controlDenied()
  const hostname = toHostname(url)
  const family = isIP(hostname)
  if (family === 0 && !NAME.test(hostname)) throw failed('the target has no valid host')
  const isTls = url.protocol === 'https:'
  const port = url.port === '' ? (isTls ? 443 : 80) : Number(url.port)
  if (!isListed(rules, hostname, port)) throw failed('proxy denied: host not in allowlist')
  const shown = family === 6 ? `[${hostname}]` : hostname
  const host = url.port === '' ? shown : `${shown}:${port}`
  return { isTls, hostname, port, host, path: `${url.pathname}${url.search}`, spellings }
}

const NAME = /^[a-z0-9_-]+(?:\.[a-z0-9_-]+)*$/
// The URL parser drops line breaks and tabs and reads a backslash as a slash: a text is not what it seems to a check before it.
const MISREAD = /[\u0000-\u001f\u007f]|^[^?#]*\\/

function fromPath(path: unknown, baseUrl: string | null): URL {
  if (path === undefined || path === null) throw failed('proxy.url or proxy.path is required')
  checkText(path, 'proxy.path')
  if (!path.startsWith('/')) throw failed('proxy.path must start with /')
  if (baseUrl === null) throw failed('edge.base_url is required for proxy.path')
  const spellings = readSpellings(/^[^?#]*/.exec(path)![0])
  if (spellings === null || climbs(spellings)) throw failed('proxy.path may not include ..')
  // Joined as texts: resolved as a reference, `//host/x` would choose another host.
  const url = toUrl(`${baseUrl.replace(/\/+$/, '')}${path}`)
  if (url === null) throw failed('edge.base_url is not a valid URL')
  return url
}

function fromUrl(text: unknown): URL {
  checkText(text, 'proxy.url')
  if (!/^https?:\/\//i.test(text)) throw failed('proxy.url must be absolute, http:// or https://')
  const url = toUrl(text)
  if (url === null) throw failed('proxy.url is not a valid URL')
  if (url.username !== '' || url.password !== '') throw failed('proxy.url may not hold a user name or password')
  return url
}

function checkText(text: unknown, field: string): asserts text is string {
  if (typeof text !== 'string') throw failed(`${field} must be a string`)
  if (text.length > MAX_EDGE_URL_CHARS) throw failed(`${field} is longer than ${MAX_EDGE_URL_CHARS} characters`)
  if (MISREAD.test(text)) throw failed(`${field} holds a character that a URL cannot carry`)
}

function toUrl(text: string): URL | null {
  return orNull(() => new URL(text))
}

function toHostname(url: URL): string {
  return url.hostname.replace(/^\[|\]$/g, '').replace(/\.$/, '')
}

function isListed({ hosts }: EdgeRules, hostname: string, port: number): boolean {
  if (hosts.length === 0) return true
  return hosts.some(rule => {
    if (rule.port !== null && rule.port !== port) return false
    return rule.isSuffix ? hostname.endsWith(`.${rule.name}`) : rule.name === hostname
  })
}

function toMethod(given: unknown, incoming: string): string {
  if (given === undefined || given === null) return incoming
  const method = typeof given === 'string' ? given.toUpperCase() : given
  // A HEAD request's event says HEAD, and handlers hand that on.
  if (isMethod(method) || (method === 'HEAD' && incoming === 'HEAD')) return method
  throw failed(`proxy.method must be one of ${METHODS.join(', ')}`)
}

function toLimit(value: unknown, field: string): number | null {
  if (value === undefined || value === null) return null
  if (typeof value !== 'number' || !(value >= 1) || !Number.isFinite(value))
    throw broken(`proxy.${field} must be a number of at least 1, got ${showValue(value)}`)
  return Math.floor(value)
}

export function controlDenied(): GatewayError {
  return failed('proxy denied: control-plane path not allowed')
}

/** A refusal or failure with its reason. The reason names no address and no path: clients see it. */
export function failed(why: string, cause?: unknown): GatewayError {
  return new GatewayError('EDGE_FAILED', `edge proxy failed: ${why}`, cause === undefined ? {} : { cause })
}

function broken(why: string): GatewayError {
  return new GatewayError('CONTRACT_BROKEN', `invalid runtime response: ${why}`)
}

/** Times a path is unescaped to see what it may mean to a server behind the upstream. */
const MAX_PATH_DECODINGS = 8

const RESERVED: ReadonlySet<string> = new Set(RESERVED_PREFIXES.map(prefix => prefix.slice(1)))

/**
 * The meanings of an upstream path to this gateway, or to a server on the way that unescapes, lower-cases or resolves once more than its
 * neighbour: the segments of a path as written and after each round of unescaping, until nothing changes: lower case, backslashes as
 * slashes, without empty and `.` segments, parameters (`;x`) and control characters.
 * @param path - without query
 * @returns null when it is still escaped after MAX_PATH_DECODINGS rounds: such a path is never meant
 */
export function readSpellings(path: string): string[][] | null {
  const spellings: string[][] = []
  let text = path.toLowerCase()
  for (let round = 0; round <= MAX_PATH_DECODINGS; round += 1) {
    spellings.push(toSegments(text))
    const next = text.replace(ESCAPE, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)))
    if (next === text) return spellings
    text = next.toLowerCase()
  }
  return null
}

/** Escapes of ASCII: the only ones that can hide a slash, a dot or a letter of a reserved word. */
const ESCAPE = /%([0-7][0-9a-f])/g
const PARAMETERS = /[;?#].*$/s
const CONTROL = /[\u0000-\u0020\u007f]/g

function toSegments(text: string): string[] {
  return text
    .split(/[/\\]/)
    .map(segment => segment.replace(PARAMETERS, '').replace(CONTROL, ''))
    .filter(segment => segment !== '' && segment !== '.')
}

/** True when some reading of the path has a `..` segment. */
export function climbs(spellings: readonly string[][]): boolean {
  return spellings.some(segments => segments.includes('..'))
}

/** True when some reading of the path is at or below a reserved prefix, with `..` resolved or not. */
export function isControlPath(spellings: readonly string[][]): boolean {
  return spellings.some(segments => RESERVED.has(segments[0] ?? '') || RESERVED.has(resolve(segments)[0] ?? ''))
}

/** True when a reserved word is any segment: behind a prefix that a host application or a home takes off. */
export function namesControl(spellings: readonly string[][]): boolean {
  return spellings.some(segments => segments.some(segment => RESERVED.has(segment)))
}

function resolve(segments: readonly string[]): string[] {
  const resolved: string[] = []
  for (const segment of segments) {
    if (segment === '..') resolved.pop()
    else resolved.push(segment)
  }
  return resolved
}

/** Headers that the gateway sets itself, or that only the two ends of one connection may set. */
const NOT_SENT: ReadonlySet<string> = new Set([...HOP_BY_HOP, 'host', 'content-length', 'expect'])

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
    if (!isHeaderName(name)) throw broken(`proxy.headers: "${showText(name)}" is not a header name`)
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
