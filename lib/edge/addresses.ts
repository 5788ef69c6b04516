/** Which addresses an upstream may have, and the look-up of its name. Spec: §2.10. */

import { lookup } from 'node:dns'
import { BlockList, isIP, SocketAddress } from 'node:net'
import { Semaphore } from '../core/semaphore.ts'

/**
 * - `public`: reachable for everyone.
 * - `private`: this machine, its network, or unassigned; needs `allow_private`.
 * - `never`: no upstream has it. Each either means "this machine" by accident (0.0.0.0), reaches many (multicast), wraps
 *   an address of another kind (tunnels), or hands out credentials of the machine (link-local, metadata).
 */
export type AddressKind = 'public' | 'private' | 'never'

const PRIVATE_V4 = [
  '10.0.0.0/8',
  '100.64.0.0/10', // carrier-grade NAT
  '127.0.0.0/8',
  '172.16.0.0/12',
  '192.0.0.0/24', // protocol assignments
  '192.0.2.0/24', // documentation
  '192.88.99.0/24', // 6to4 relays
  '192.168.0.0/16',
  '198.18.0.0/15', // benchmarks
  '198.51.100.0/24', // documentation
  '203.0.113.0/24', // documentation
]

const NEVER_V4 = [
  '0.0.0.0/8', // "this host": connects to loopback
  '169.254.0.0/16', // link-local, cloud metadata
  '100.100.100.200/32', // metadata inside the carrier range
  '192.0.0.192/32', // metadata inside the protocol range
  '224.0.0.0/4', // multicast
  '240.0.0.0/4', // reserved, broadcast
]

/** Everything outside is special in IPv6. */
const GLOBAL_V6 = ['2000::/3']

const PRIVATE_V6 = [
  '2001::/23', // protocol assignments, benchmarks
  '2001:db8::/32', // documentation
  '3fff::/20', // documentation
]

const NEVER_V6 = [
  '::/128', // connects to loopback
  '64:ff9b:1::/48', // local translation: wraps IPv4
  '::ffff:0:0:0/96', // stateless translation: wraps IPv4
  '2001::/32', // Teredo: wraps IPv4
  '2002::/16', // 6to4: wraps IPv4
  'fd00:ec2::254/128', // metadata
  'fd20:ce::254/128', // metadata
  'fe80::/10', // link-local
  'fec0::/10', // site-local, abandoned
  'ff00::/8', // multicast
]

const NAT64 = ['64:ff9b::/96']
const MAPPED = ['::ffff:0:0/96']
const COMPATIBLE = ['::/96']

const privateV4 = toBlockList(PRIVATE_V4, 'ipv4')
const neverV4 = toBlockList(NEVER_V4, 'ipv4')
const globalV6 = toBlockList(GLOBAL_V6, 'ipv6')
const privateV6 = toBlockList(PRIVATE_V6, 'ipv6')
const neverV6 = toBlockList(NEVER_V6, 'ipv6')
const nat64 = toBlockList(NAT64, 'ipv6')
const mapped = toBlockList(MAPPED, 'ipv6')
const compatible = toBlockList(COMPATIBLE, 'ipv6')

function toBlockList(ranges: readonly string[], family: 'ipv4' | 'ipv6'): BlockList {
  const list = new BlockList()
  for (const range of ranges) {
    const [network = '', bits] = range.split('/')
    list.addSubnet(network, Number(bits), family)
  }
  return list
}

/** @param address - as a resolver gives it; anything that is not an address is `never` */
export function classifyAddress(address: string): AddressKind {
  const plain = withoutZone(address)
  const family = isIP(plain)
  if (family === 4) return neverV4.check(plain) ? 'never' : privateV4.check(plain) ? 'private' : 'public'
  if (family === 0) return 'never'
  if (neverV6.check(plain, 'ipv6')) return 'never'
  // A translated address is the IPv4 one to its router; on networks without IPv4 every public name has one.
  if (nat64.check(plain, 'ipv6')) return classifyAddress(toInnerV4(plain))
  // No name has such an address: it is a way to write an IPv4 one past a check of texts.
  if (mapped.check(plain, 'ipv6')) return classifyAddress(toInnerV4(plain)) === 'never' ? 'never' : 'private'
  if (compatible.check(plain, 'ipv6')) return toPlainV6(plain) === LOOPBACK_V6 ? 'private' : 'never'
  return globalV6.check(plain, 'ipv6') && !privateV6.check(plain, 'ipv6') ? 'public' : 'private'
}

/** One text for each address: no zone, a mapped IPv4 address as IPv4, IPv6 in its shortest form. */
export function toCanonicalAddress(address: string): string {
  const plain = withoutZone(address)
  if (isIP(plain) !== 6) return plain
  return mapped.check(plain, 'ipv6') ? toInnerV4(plain) : toPlainV6(plain)
}

function withoutZone(address: string): string {
  const percent = address.indexOf('%')
  return percent === -1 ? address : address.slice(0, percent)
}

/** @param address - a valid IPv6 address */
function toPlainV6(address: string): string {
  return new SocketAddress({ address, family: 'ipv6' }).address
}

/** The last 32 bits of an IPv6 address. */
function toInnerV4(address: string): string {
  const groups = toPlainV6(address).split(':')
  const last = groups.at(-1)!
  if (last.includes('.')) return last
  const bits = [groups.at(-2), last].map(group => Number.parseInt(group || '0', 16))
  return bits.flatMap(group => [group >> 8, group & 255]).join('.')
}

const EVERY_V6 = '::'
const LOOPBACK_V6 = '::1'

export interface ListeningSocket {
  /** As bound: an address, or `0.0.0.0` or `::` for all of them. */
  host: string
  port: number
}

/** Addresses whose kind is remembered: finding it out makes a dozen objects outside the engine's own memory. */
const KNOWN_ADDRESSES = 1024

/** This machine as a possible upstream: its addresses, and the sockets this gateway listens on. */
export class OwnAddresses {
  readonly #listening: () => readonly ListeningSocket[]
  readonly #interfaces: () => readonly string[]
  readonly #kinds = new Map<string, AddressKind>()

  constructor(listening: () => readonly ListeningSocket[], interfaces: () => readonly string[]) {
    this.#listening = listening
    this.#interfaces = interfaces
  }

  /** As classifyAddress, which depends on nothing but the address. */
  kindOf(address: string): AddressKind {
    let kind = this.#kinds.get(address)
    if (kind === undefined) {
      kind = classifyAddress(address)
      if (this.#kinds.size >= KNOWN_ADDRESSES) this.#kinds.clear()
      this.#kinds.set(address, kind)
    }
    return kind
  }

  /** True for an address of one of this machine's interfaces: what listens there may not expect strangers. */
  isOfThisMachine(address: string): boolean {
    const canonical = toCanonicalAddress(address)
    return this.#interfaces().some(own => toCanonicalAddress(own) === canonical)
  }

  /** True when a connection would reach this gateway. */
  isThisGateway(address: string, port: number): boolean {
    const canonical = toCanonicalAddress(address)
    return this.#listening().some(socket => {
      if (socket.port !== port) return false
      const host = toCanonicalAddress(socket.host)
      if (host !== '0.0.0.0' && host !== EVERY_V6) return host === canonical
      return canonical.startsWith('127.') || canonical === LOOPBACK_V6 || this.isOfThisMachine(address)
    })
  }
}

/** Name look-ups at once: the system's resolver holds a thread of the pool that files need too. */
export const EDGE_LOOKUPS = 2

export interface ResolvedAddress {
  address: string
  family: number
}

export type Resolve = (hostname: string) => Promise<readonly ResolvedAddress[]>

/** As the system resolves names, its hosts file included. */
export const systemResolve: Resolve = hostname =>
  new Promise((resolve, reject) => {
    lookup(hostname, { all: true, order: 'verbatim' }, (error, addresses) => {
      if (error === null) resolve(addresses)
      else reject(error)
    })
  })

/**
 * Look-ups of one name at a time, and few in all: the system's resolver occupies a thread for as long as a name server
 * is silent, and the files of this gateway are read by the same few threads.
 */
export class EdgeLookup {
  readonly #resolve: Resolve
  readonly #running = new Map<string, Promise<readonly ResolvedAddress[]>>()
  readonly #slots = new Semaphore(EDGE_LOOKUPS)

  constructor(resolve: Resolve) {
    this.#resolve = resolve
  }

  addresses(hostname: string): Promise<readonly ResolvedAddress[]> {
    const running = this.#running.get(hostname)
    if (running !== undefined) return running
    const started = this.#slots.run(() => this.#resolve(hostname)).finally(() => this.#running.delete(hostname))
    this.#running.set(hostname, started)
    return started
  }
}
