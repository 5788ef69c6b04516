/** Whose request it is: the socket's address, or the one a trusted proxy vouches for. Owner: §2.5. */

import { BlockList, isIP, isIPv6 } from 'node:net'

/** Reads `FN_TRUSTED_PROXY_CIDRS` once and answers per request. */
export class TrustedProxies {
  readonly #list = new BlockList()
  readonly isEmpty: boolean

  /** @param cidrs - `10.0.0.0/8`, `fd00::/8` or single addresses; what is neither is left out (settings refuse it) */
  constructor(cidrs: readonly string[]) {
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
   * The client behind the proxies: the right-most address of X-Forwarded-For that is no trusted proxy, because
   * everything left of it was written by that client.
   * @param socketAddress - plain form, see toPlainAddress
   * @param forwardedFor - X-Forwarded-For, repeated ones joined; null when the request has none
   * @returns empty when an entry that counts is no address: to take the proxy for the client would make everybody local
   */
  clientAddress(socketAddress: string, forwardedFor: string | null): string {
    if (forwardedFor === null || !this.isTrusted(socketAddress)) return socketAddress
    let client = socketAddress
    for (const entry of forwardedFor.split(',').reverse()) {
      client = toPlainAddress(withoutPort(entry.trim()))
      if (isIP(client) === 0) return ''
      if (!this.isTrusted(client)) return client
    }
    return client
  }
}

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

/** `::ffff:10.0.0.1` as `10.0.0.1`; an unknown address is empty. */
export function toPlainAddress(address: string | undefined): string {
  if (address === undefined) return ''
  return address.startsWith('::ffff:') && address.includes('.') ? address.slice(7) : address
}

/** `10.0.0.1:80` and `[::1]:80` without the port; what is neither stays as it is, and is then no address. */
function withoutPort(text: string): string {
  const match = /^(?:\[([^[\]]*)\]|([^:[\]]*))(?::\d{1,5})?$/.exec(text)
  return match === null ? text : (match[1] ?? match[2] ?? text)
}
