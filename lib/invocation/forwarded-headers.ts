/**
 * Which request headers reach a handler, and what the gateway itself needs of them, in one walk. Spec: §5.2.
 *
 * The walk writes JSON text directly: names come prepared (lower-case, quoted) from a table that learns them, so a usual
 * request costs one lookup and one check per header and makes no object of its headers.
 */

import { BlockList, isIP, isIPv6, SocketAddress } from 'node:net'
import { headerOf } from '../core/http-text.ts'
import { toJsonString } from '../core/json.ts'

/** Distinct header names remembered as prepared text; later ones are read without preparation. */
const KNOWN_HEADER_NAMES = 512

/** The cookie of the gateway's own session; no handler sees it. */
export const SESSION_COOKIE = 'fngw_session'
/** Headers with this start are markers between parts of the gateway. */
export const INTERNAL_PREFIX = 'x-fn-internal-'
export const ADMIN_TOKEN_HEADER = 'x-fn-admin-token'
/** Marks calls that the gateway makes by itself, such as pings; from a client it would be a forgery. */
export const TRIGGER_HEADER = 'x-fn-trigger'

/** Headers about one connection, not about the message (RFC 9110 7.6.1, RFC 2616 13.5.1). */
export const HOP_BY_HOP: ReadonlySet<string> = new Set([
  ...['connection', 'keep-alive', 'proxy-connection', 'proxy-authorization'],
  ...['te', 'trailer', 'transfer-encoding', 'upgrade'],
])

export class RequestHead {
  /** As received, names and values in turn. */
  readonly raw: readonly string[]
  /** JSON text of the forwarded headers. */
  json = '{}'
  host: string | null = null
  hostCount = 0
  contentLength: string | null = null
  transferEncoding: string | null = null
  connection: string | null = null
  expect: string | null = null
  requestId: string | null = null
  userAgent: string | null = null
  /** Without the gateway's own session cookie; null when nothing is left. */
  cookie: string | null = null
  origin: string | null = null
  traceparent: string | null = null
  tracestate: string | null = null
  forwardedHost: string | null = null
  forwardedProto: string | null = null

  constructor(raw: readonly string[]) {
    this.raw = raw
  }
}

/** Fields of RequestHead that hold one header's text. */
type TextField = Exclude<keyof RequestHead, 'raw' | 'json' | 'hostCount'>

interface KnownName {
  /** `"name":` */
  jsonKey: string
  forwarded: boolean
  field: TextField | null
  /** Number of the walk that met this name last: a second meeting in one walk is a repeated header. */
  seenIn: number
}

const FIELD_OF: ReadonlyMap<string, TextField> = new Map([
  ['host', 'host'],
  ['content-length', 'contentLength'],
  ['transfer-encoding', 'transferEncoding'],
  ['connection', 'connection'],
  ['expect', 'expect'],
  ['x-request-id', 'requestId'],
  ['user-agent', 'userAgent'],
  ['cookie', 'cookie'],
  ['origin', 'origin'],
  ['traceparent', 'traceparent'],
  ['tracestate', 'tracestate'],
  ['x-forwarded-host', 'forwardedHost'],
  ['x-forwarded-proto', 'forwardedProto'],
])

/** True for a header that a handler may see, whatever its value. */
export function isForwardedHeader(lowerName: string): boolean {
  if (lowerName === ADMIN_TOKEN_HEADER || lowerName === TRIGGER_HEADER) return false
  return !HOP_BY_HOP.has(lowerName) && !lowerName.startsWith(INTERNAL_PREFIX)
}

/** Reads header blocks; one per gateway, because it remembers the names it met. */
export class HeadReader {
  readonly #names = new Map<string, KnownName>()
  #walk = 0

  /**
   * @param rawHeaders - names and values in turn, as received
   * @returns the gateway's fields and the JSON text of the forwarded headers: lower-case, repeated ones joined
   */
  read(rawHeaders: readonly string[]): RequestHead {
    const head = new RequestHead(rawHeaders)
    const walk = ++this.#walk
    let json = ''
    for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
      const name = rawHeaders[i]!
      const known = this.#names.get(name) ?? this.#learn(name)
      // Both spellings of a name lead to one entry.
      if (known === null || known.seenIn === walk) return readRepeated(rawHeaders)
      known.seenIn = walk
      let value = rawHeaders[i + 1]!
      if (known.field !== null) {
        if (known.field === 'cookie') {
          const rest = withoutSessionCookie(value)
          if (rest === null) continue
          value = rest
        }
        if (known.field === 'connection' && namesHeaders(value)) return readRepeated(rawHeaders)
        head[known.field] = value
      }
      if (known.forwarded) json += `${json === '' ? '{' : ','}${known.jsonKey}${toJsonString(value)}`
    }
    if (head.host !== null) head.hostCount = 1
    if (json !== '') head.json = `${json}}`
    return head
  }

  /** @returns null when the table was full: it is empty again, and this walk cannot find repeated headers any more */
  #learn(name: string): KnownName | null {
    if (this.#names.size >= KNOWN_HEADER_NAMES) {
      this.#names.clear()
      return null
    }
    const lower = name.toLowerCase()
    const known = this.#names.get(lower) ?? {
      jsonKey: `${toJsonString(lower)}:`,
      forwarded: isForwardedHeader(lower),
      field: FIELD_OF.get(lower) ?? null,
      seenIn: 0,
    }
    this.#names.set(lower, known).set(name, known)
    return known
  }
}

/** The careful way, for repeated headers and for a Connection header that names others. */
function readRepeated(
  rawHeaders: readonly string[],
  isKept: (lowerName: string) => boolean = () => false,
): RequestHead {
  const head = new RequestHead(rawHeaders)
  const values = new Map<string, string>()
  const dropped = new Set<string>()
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]!.toLowerCase()
    let value = rawHeaders[i + 1]!
    if (name === 'host') head.hostCount += 1
    if (name === 'connection') for (const token of value.toLowerCase().split(',')) dropped.add(token.trim())
    if (name === 'cookie') {
      const rest = withoutSessionCookie(value)
      if (rest === null) continue
      value = rest
    }
    const earlier = values.get(name)
    // Cookies of several headers are one list, whose separator is a semicolon (RFC 9113 8.2.3).
    values.set(name, earlier === undefined ? value : `${earlier}${name === 'cookie' ? '; ' : ', '}${value}`)
  }
  let json = ''
  for (const [name, value] of values) {
    const field = FIELD_OF.get(name)
    if (field !== undefined) head[field] = value
    // A client may not make a header vanish that the gateway or a handler relies on by naming it in Connection.
    const named = dropped.has(name) && !PROTECTED.has(name) && !isKept(name)
    if (isForwardedHeader(name) && !named)
      json += `${json === '' ? '{' : ','}${toJsonString(name)}:${toJsonString(value)}`
  }
  if (json !== '') head.json = `${json}}`
  return head
}

/**
 * The head of the same request with other values of some headers.
 * @param changed - by lower-case name; null takes a header away
 */
export function withHeaders({ raw }: RequestHead, changed: Readonly<Record<string, string | null>>): RequestHead {
  const list: string[] = []
  for (const [name, value] of Object.entries(changed)) if (value !== null) list.push(name, value)
  for (let i = 0; i + 1 < raw.length; i += 2) {
    if (!Object.hasOwn(changed, raw[i]!.toLowerCase())) list.push(raw[i]!, raw[i + 1]!)
  }
  return readRepeated(list, name => Object.hasOwn(changed, name))
}

/** End-to-end headers that Connection cannot take away. */
const PROTECTED: ReadonlySet<string> = new Set(['host', 'authorization', 'cookie', 'content-length', 'content-type'])

/** True when a Connection header names other headers than the ones that are never forwarded. */
function namesHeaders(connection: string): boolean {
  if (connection === 'keep-alive' || connection === 'close') return false
  const names = connection.toLowerCase().split(',')
  return names.map(name => name.trim()).some(name => name !== '' && name !== 'close' && !HOP_BY_HOP.has(name))
}

/** `Set-Cookie` of the gateway's session, written in any way that a browser takes for it: also as a cookie without a name. */
const SETS_SESSION = new RegExp(`^[\\s=]*${SESSION_COOKIE}\\s*(?:[=;]|$)`)

/**
 * True for a header of a response by which a function would take over the console: its session, or its pages by a service
 * worker whose scope is wider than the function's folder.
 * @param sharesOrigin - the console has the same origin
 */
export function takesOver(lowerName: string, value: string, sharesOrigin: boolean): boolean {
  // A `Set-Cookie` in the place of the gateway's session: its author would choose whose session it is.
  if (lowerName === 'set-cookie') return SETS_SESSION.test(value)
  return sharesOrigin && lowerName === 'service-worker-allowed'
}

/** A Cookie header without the gateway's session; null when nothing is left. */
export function withoutSessionCookie(cookie: string): string | null {
  if (!cookie.includes(SESSION_COOKIE)) return cookie
  const pairs = cookie.split(';').map(pair => pair.trim())
  const rest = pairs.filter(pair => pair !== '' && pair.split('=', 1)[0] !== SESSION_COOKIE)
  return rest.length === 0 ? null : rest.join('; ')
}

/** The part of a list that the nearest proxy wrote: what stands left of it was there when the request came to the proxy. */
export function lastEntry(list: string | null): string {
  return list === null ? '' : list.slice(list.lastIndexOf(',') + 1).trim()
}

/** A checked request that came over HTTP. */
export interface AskedRequest {
  readonly head: RequestHead
  readonly host: string
  /** Address of the client; empty when unknown. */
  readonly ip: string
  readonly req: { readonly socket: { readonly encrypted?: boolean; readonly localPort?: number | undefined } }
}

/**
 * `https` or `http`, as the client uses it.
 * @param isTrusted - the socket's other end is a proxy that is believed
 */
export function toProto({ head, req }: AskedRequest, isTrusted: boolean): string {
  const named = isTrusted ? lastEntry(head.forwardedProto).toLowerCase() : ''
  if (named === 'http' || named === 'https') return named
  return req.socket.encrypted === true ? 'https' : 'http'
}

/** Whose request it is: the socket's address, or the one that a proxy of `FN_TRUSTED_PROXY_CIDRS` vouches for. Owner: §2.5. */
export class TrustedProxies {
  readonly #list = new BlockList()
  readonly isEmpty: boolean
  readonly #header: string | null
  /** Of the last answer: a look into the list costs more than all other checks of a request. */
  #last = { address: '', isTrusted: false }

  /**
   * @param cidrs - `10.0.0.0/8`, `fd00::/8` or single addresses, as settings have checked them
   * @param header - lower-case name of the header by which they name their clients; null for the usual one
   */
  constructor(cidrs: readonly string[], header: string | null = null) {
    this.#header = header
    this.isEmpty = cidrs.length === 0
    for (const cidr of cidrs) {
      const [address = '', bits] = cidr.split('/')
      const isV6 = isIPv6(address)
      this.#list.addSubnet(address, Number(bits ?? (isV6 ? 128 : 32)), isV6 ? 'ipv6' : 'ipv4')
    }
  }

  /** True for a proxy whose forwarding headers are believed. */
  isTrusted(address: string): boolean {
    if (this.isEmpty) return false
    if (address !== this.#last.address) this.#last = { address, isTrusted: this.#isListed(address) }
    return this.#last.isTrusted
  }

  #isListed(address: string): boolean {
    return isIP(address) !== 0 && this.#list.check(address, isIPv6(address) ? 'ipv6' : 'ipv4')
  }

  /**
   * The client behind the proxies. Another header that names a client must name the same one, unless the setting says which
   * header counts: else one of the two may come from the client itself.
   * @param socketAddress - plain form, see toPlainAddress
   * @param rawHeaders - names and values in turn
   * @returns empty for a client that is unknown: to take the proxy for the client would make every client local
   */
  clientAddress(socketAddress: string, rawHeaders: readonly string[]): string {
    if (!this.isTrusted(socketAddress)) return socketAddress
    const used = this.#header ?? USUAL_HEADER
    const value = headerOf(rawHeaders, used)
    // The proxy forwards a request and does not name its client.
    if (value === null) return isForwarded(rawHeaders) ? '' : socketAddress
    const client = this.#lastStranger(used, value)
    if (this.#header !== null || client === '') return client
    for (const name of NAMING) {
      const other = name === used ? null : headerOf(rawHeaders, name)
      const named = other === null ? client : this.#lastStranger(name, other)
      // A proxy behind another one may name that one.
      if (named !== client && !this.isTrusted(named)) return ''
    }
    return client
  }

  /**
   * The right-most address of a header that is not a trusted proxy, because everything left of it was written by that client.
   * @returns empty when an entry that counts is not an address
   */
  #lastStranger(name: string, value: string): string {
    let address = ''
    for (const entry of value.split(',').reverse()) {
      const text = name === 'forwarded' ? (FOR.exec(entry)?.[1] ?? '') : entry
      address = toPlainAddress(withoutPort(text.trim().replace(/^"(.*)"$/, '$1')))
      if (isIP(address) === 0) return ''
      if (!this.isTrusted(address)) return address
    }
    return address
  }
}

const USUAL_HEADER = 'x-forwarded-for'
/** Headers that name a client by its address. */
const NAMING: readonly string[] = [
  ...[USUAL_HEADER, 'forwarded', 'x-real-ip', 'cf-connecting-ip'],
  ...['true-client-ip', 'x-client-ip', 'x-cluster-client-ip'],
]
/** Of an element of `Forwarded` (RFC 7239). */
const FOR = /(?:^|;)\s*for\s*=\s*("[^"]*"|[^\s;]*)/i

const FORWARDED_PREFIX = 'x-forwarded-'
/** Headers that a proxy or content network adds, besides those with the prefix. */
const FORWARDING: ReadonlySet<string> = new Set([...NAMING, 'via', 'x-original-forwarded-for'])

/** True when some header says that the request was passed on. Linear: for rare needs. */
export function isForwarded(rawHeaders: readonly string[]): boolean {
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]!.toLowerCase()
    if (name.startsWith(FORWARDED_PREFIX) || FORWARDING.has(name)) return true
  }
  return false
}

/** An address in its one form: lower case, no zone, IPv4 inside IPv6 as IPv4. An unknown one is empty; no address stays as it is. */
export function toPlainAddress(address: string | undefined): string {
  if (address === undefined) return ''
  if (isIP(address) !== 6 || address === '::1') return address
  const plain = new SocketAddress({ address: address.replace(/%.*$/, ''), family: 'ipv6' }).address
  return plain.startsWith('::ffff:') && plain.includes('.') ? plain.slice(7) : plain
}

/** `10.0.0.1:80` and `[::1]:80` without the port; other texts stay as they are, and are then not an address. */
function withoutPort(text: string): string {
  const match = /^(?:\[([^[\]]*)\]|([^:[\]]*))(?::\d{1,5})?$/.exec(text)
  return match === null ? text : (match[1] ?? match[2] ?? text)
}
