/** The addresses of upstreams: looked up once for a request, and each of them checked. Spec: §2.10. */

import { lookup } from 'node:dns/promises'
import { BlockList, isIP, SocketAddress } from 'node:net'
import { networkInterfaces } from 'node:os'
import { getOrMake } from '../core/collections.ts'
import { Semaphore } from '../core/semaphore.ts'
import { controlDenied, type EdgeTarget, failed, namesControl } from './target.ts'

/**
 * - `public`: reachable for everyone.
 * - `private`: this machine, its network, or unassigned; requires `allow_private`.
 * - `never`: no upstream has it. Each either means "this machine" by accident (0.0.0.0), reaches many (multicast), wraps
 *   an address of another kind (tunnels), or hands out credentials of the machine (link-local, metadata).
 */
export type AddressKind = 'public' | 'private' | 'never'

const NEVER = toBlockList(
  '0.0.0.0/8', // "this host": connects to loopback
  '169.254.0.0/16', // link-local, cloud metadata
  '100.100.100.200/32', // metadata inside the carrier range
  '192.0.0.192/32', // metadata inside the protocol range
  '224.0.0.0/4', // multicast
  '240.0.0.0/4', // reserved, broadcast
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
)

const PRIVATE = toBlockList(
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
  '2001::/23', // protocol assignments, benchmarks
  '2001:db8::/32', // documentation
  '3fff::/20', // documentation
)

/** Everything outside is special in IPv6. */
const GLOBAL_V6 = toBlockList('2000::/3')
const NAT64 = toBlockList('64:ff9b::/96')
const MAPPED = toBlockList('::ffff:0:0/96')
const COMPATIBLE = toBlockList('::/96')

function toBlockList(...ranges: readonly string[]): BlockList {
  const list = new BlockList()
  for (const range of ranges) {
    const [network = '', bits] = range.split('/')
    list.addSubnet(network, Number(bits), network.includes(':') ? 'ipv6' : 'ipv4')
  }
  return list
}

/** @param address - as a resolver gives it; anything that is not an address is `never` */
export function classifyAddress(address: string): AddressKind {
  const plain = withoutZone(address)
  const version = isIP(plain)
  if (version === 0) return 'never'
  // An IPv4 address that is mapped into IPv6 is found among the IPv4 ranges.
  if (NEVER.check(plain, version === 4 ? 'ipv4' : 'ipv6')) return 'never'
  if (version === 4) return PRIVATE.check(plain) ? 'private' : 'public'
  // A translated address is the IPv4 one to its router; on networks without IPv4 every public name has one.
  if (NAT64.check(plain, 'ipv6')) return classifyAddress(toInnerV4(plain))
  // No name has a mapped address: it is a way to write an IPv4 one past a check of texts.
  if (MAPPED.check(plain, 'ipv6')) return 'private'
  if (COMPATIBLE.check(plain, 'ipv6')) return toPlainV6(plain) === LOOPBACK_V6 ? 'private' : 'never'
  return GLOBAL_V6.check(plain, 'ipv6') && !PRIVATE.check(plain, 'ipv6') ? 'public' : 'private'
}

/** One text for each address: no zone, a mapped IPv4 address as IPv4, IPv6 in its shortest form. */
export function toCanonicalAddress(address: string): string {
  const plain = withoutZone(address)
  if (isIP(plain) !== 6) return plain
  return MAPPED.check(plain, 'ipv6') ? toInnerV4(plain) : toPlainV6(plain)
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

const EVERY_V4 = '0.0.0.0'
const EVERY_V6 = '::'
const LOOPBACK_V6 = '::1'

export interface ListeningSocket {
  /** As bound: an address, or `0.0.0.0` or `::` for all of them. */
  host: string
  port: number
}

export interface ResolvedAddress {
  address: string
  family: number
}

/** Names to addresses. */
export type Resolve = (hostname: string) => Promise<readonly ResolvedAddress[]>

/** As the system resolves names, its hosts file included. */
export const systemResolve: Resolve = hostname => lookup(hostname, { all: true, order: 'verbatim' })

/** Addresses of this machine. */
type Interfaces = () => readonly string[]

const systemInterfaces: Interfaces = () =>
  Object.values(networkInterfaces()).flatMap(list => (list ?? []).map(({ address }) => address))

/** Name look-ups at once: the system's resolver holds a thread of the pool that files need too, for as long as a name server is silent. */
export const EDGE_LOOKUPS = 2
/** Addresses of one upstream that are tried. */
const EDGE_ADDRESSES = 8
/** Addresses whose kind is remembered: finding it out makes a dozen objects outside the engine's own memory. */
const KNOWN_ADDRESSES = 1024

export class UpstreamAddresses {
  readonly #listening: () => readonly ListeningSocket[]
  readonly #resolve: Resolve
  readonly #interfaces: Interfaces
  readonly #lookups = new Map<string, Promise<readonly ResolvedAddress[]>>()
  readonly #slots = new Semaphore(EDGE_LOOKUPS)
  readonly #kinds = new Map<string, AddressKind>()

  /** @param listening - the sockets this gateway listens on now */
  constructor(
    listening: () => readonly ListeningSocket[],
    resolve: Resolve = systemResolve,
    interfaces: Interfaces = systemInterfaces,
  ) {
    this.#listening = listening
    this.#resolve = resolve
    this.#interfaces = interfaces
  }

  /** @throws GatewayError EDGE_FAILED without addresses, and when one of them may not be reached */
  async of(target: EdgeTarget, allowPrivate: boolean): Promise<readonly ResolvedAddress[]> {
    const { hostname } = target
    const family = isIP(hostname)
    const addresses = family === 0 ? await this.#lookup(hostname) : [{ address: hostname, family }]
    if (addresses.length === 0) throw failed('proxy request failed: name not resolved')
    for (const { address } of addresses) this.#check(address, target, allowPrivate)
    return addresses.slice(0, EDGE_ADDRESSES)
  }

  /** One look-up of a name at a time. */
  #lookup(hostname: string): Promise<readonly ResolvedAddress[]> {
    return getOrMake(this.#lookups, hostname, () =>
      this.#slots
        .run(() => this.#resolve(hostname))
        .catch(error => {
          throw failed('proxy request failed: name not resolved', error)
        })
        .finally(() => this.#lookups.delete(hostname)),
    )
  }

  #check(address: string, { port, spellings }: EdgeTarget, allowPrivate: boolean): void {
    const kind = this.#kindOf(address)
    // What listens on an interface of this machine may not expect strangers.
    if (!allowPrivate && (kind !== 'public' || this.#isOfThisMachine(address)))
      throw failed('proxy denied: private host not allowed')
    if (kind === 'never') throw failed('proxy denied: special address not allowed')
    if (this.#isThisGateway(address, port) && namesControl(spellings)) throw controlDenied()
  }

  #kindOf(address: string): AddressKind {
    let kind = this.#kinds.get(address)
    if (kind === undefined) {
      kind = classifyAddress(address)
      if (this.#kinds.size >= KNOWN_ADDRESSES) this.#kinds.clear()
      this.#kinds.set(address, kind)
    }
    return kind
  }

  #isOfThisMachine(address: string): boolean {
    const canonical = toCanonicalAddress(address)
    return this.#interfaces().some(own => toCanonicalAddress(own) === canonical)
  }

  /** True when a connection would reach this gateway. */
  #isThisGateway(address: string, port: number): boolean {
    return this.#listening().some(socket => {
      if (socket.port !== port) return false
      const canonical = toCanonicalAddress(address)
      const host = toCanonicalAddress(socket.host)
      if (host !== EVERY_V4 && host !== EVERY_V6) return host === canonical
      return canonical.startsWith('127.') || canonical === LOOPBACK_V6 || this.#isOfThisMachine(address)
    })
  }
}
