/** Whose request it is: the socket's address, or the one a trusted proxy vouches for. Owner: §2.5. */

import { BlockList, isIP, isIPv6, SocketAddress } from 'node:net'
import { headerOf } from './forwarded-headers.ts'

/** Reads `FN_TRUSTED_PROXY_CIDRS` once and answers per request. */
export class TrustedProxies {
  readonly #list = new BlockList()
  readonly isEmpty: boolean
  readonly #header: string | null

  /**
   * @param cidrs - `10.0.0.0/8`, `fd00::/8` or single addresses; what is neither is left out (settings refuse it)
   * @param header - lower-case name of the header by which they name their clients; null for the usual one
   */
  constructor(cidrs: readonly string[], header: string | null = null) {
    this.#header = header
    let size = 0
    for (const cidr of cidrs) {
      const [address = '', bits] = cidr.split('/')
      const version = isIP(address)
      if (version === 0) continue
      const prefix = bits === undefined ? (version === 4 ? 32 : 128) : Number(bits)
      if (!Number.isInteger(prefix) || prefix < 0 || prefix > (version === 4 ? 32 : 128)) continue
      this.#list.addSubnet(address, prefix, version === 4 ? 'ipv4' : 'ipv6')
      size += 1
    }
    this.isEmpty = size === 0
  }

  /** True for a proxy whose forwarding headers are believed. */
  isTrusted(address: string): boolean {
    if (this.isEmpty || isIP(address) === 0) return false
    return this.#list.check(address, isIPv6(address) ? 'ipv6' : 'ipv4')
  }

  /**
   * The client behind the proxies. Another header that names a client must name the same one, unless the setting says which
   * header counts: else one of the two may come from the client itself.
   * @param socketAddress - plain form, see toPlainAddress
   * @param rawHeaders - names and values in turn
   * @returns empty for a client that is unknown: to take the proxy for the client would make everybody local
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
   * The right-most address of a header that is no trusted proxy, because everything left of it was written by that client.
   * @returns empty when an entry that counts is no address
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
const NAMING = [
  USUAL_HEADER,
  'forwarded',
  'x-real-ip',
  'cf-connecting-ip',
  'true-client-ip',
  'x-client-ip',
  'x-cluster-client-ip',
] as const
/** Of an element of `Forwarded` (RFC 7239). */
const FOR = /(?:^|;)\s*for\s*=\s*("[^"]*"|[^\s;]*)/i

const FORWARDED_PREFIX = 'x-forwarded-'
/** Headers by which proxies and content networks tell whom they speak for, besides those with the prefix. */
const FORWARDING: ReadonlySet<string> = new Set([
  'via',
  'forwarded',
  'x-real-ip',
  'cf-connecting-ip',
  'true-client-ip',
  'x-client-ip',
  'x-cluster-client-ip',
  'x-original-forwarded-for',
])

/** True when some header says that the request was passed on by somebody. Linear: for rare needs. */
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

/** `10.0.0.1:80` and `[::1]:80` without the port; what is neither stays as it is, and is then no address. */
function withoutPort(text: string): string {
  const match = /^(?:\[([^[\]]*)\]|([^:[\]]*))(?::\d{1,5})?$/.exec(text)
  return match === null ? text : (match[1] ?? match[2] ?? text)
}
