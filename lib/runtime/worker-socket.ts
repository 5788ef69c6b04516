/** The connection to a worker: dialled, and where it lies elsewhere, proved before anything is sent. Owner: page runtime/greeting. */

import { once } from 'node:events'
import net from 'node:net'
import tls from 'node:tls'
import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayGreeting } from './greeting.ts'
import { encodeHello } from './wire-protocol.ts'

/** Where a worker is reached. */
export interface WorkerAddress {
  id: string
  /** `unix:/path`, `tcp://host:port` or `tls://host:port`. */
  uri: string
  /** True when that is the socket of its daemon, which has to know which worker is meant. */
  isShared: boolean
  trust: PeerTrust
}

export interface PeerEvents {
  /** Memory for the next read. */
  toReadInto(): Buffer
  /** `length` bytes of it were read. @returns true */
  onRead(length: number): boolean
  /** The peer has proved itself; `rest` is what it sent behind that. Only where `needsProof` says so. */
  onProven(rest: Buffer): void
  onProblem(text: string): void
}

const NO_BYTES = Buffer.alloc(0)

/**
 * @param secretName - a value of the function that only its worker may get; null when it has none
 * @throws Error with a reason
 */
export function connectWorker(
  { uri, trust }: WorkerAddress,
  secretName: string | null,
  events: PeerEvents,
): net.Socket {
  if (secretName !== null && !isTrusted(uri, trust)) {
    const remedy = 'set FN_RUNTIME_SECRET on both sides'
    throw new Error(`its value ${secretName} is secret, and not sent to a daemon that proves nothing: ${remedy}`)
  }
  try {
    return connectPeer(uri, trust, events)
  } catch (error) {
    // The address comes from the daemon, which may be anybody's.
    throw new Error(`the daemon names a worker socket that cannot be used: ${(error as Error).message}`)
  }
}

/**
 * Connects, and where a proof is needed lets both sides prove themselves first.
 * @throws Error when the address is none
 */
export function connectPeer(uri: string, trust: PeerTrust, events: PeerEvents): net.Socket {
  const { toReadInto, onRead, onProven, onProblem } = events
  const { secret } = trust
  if (secret === null || !needsProof(uri, trust)) return dial(uri, trust, { buffer: toReadInto, callback: onRead })
  let into: Buffer = NO_BYTES
  let greeting: GatewayGreeting | null = null
  const buffer = (): Buffer => {
    into = toReadInto()
    return into
  }
  const callback = (length: number): boolean => {
    if (greeting === null) return onRead(length)
    try {
      const rest = greeting.push(into.subarray(0, length))
      if (rest === null) return true
      greeting = null
      onProven(rest)
    } catch (error) {
      onProblem((error as Error).message)
    }
    return true
  }
  const socket = dial(uri, trust, { buffer, callback })
  const send = (frame: Buffer): void => void socket.write(frame)
  greeting = new GatewayGreeting({ secret, send, binding: () => toBinding(socket) })
  return socket
}

/** The name of a value that only its worker may get; null when the function has none. */
export function findSecret({ env }: FunctionVersion): string | null {
  return Object.keys(env).find(name => env[name]!.isSecret) ?? null
}

/** The frame that says what the connection is for. */
export function toWorkerHello({ id, isShared }: WorkerAddress): Buffer {
  const fields = isShared ? { role: 'worker', worker: id } : { role: 'worker' }
  return encodeHello(fields)
}

// Connections to daemons and their workers: unix, tcp, or tcp inside TLS.

/** Credentials of a daemon on another machine. */
export interface PeerTrust {
  /** The shared secret; null if no proof is required. */
  secret: string | null
  /** Certificates (PEM) that may sign a daemon's; null: those that node knows. */
  ca: string | null
}

export const NO_TRUST: PeerTrust = { secret: null, ca: null }

/** Label of the bytes that bind a proof to its encrypted connection (RFC 5705). */
const BINDING_LABEL = 'EXPORTER-fngw-greeting'
const BINDING_BYTES = 32

/** Memory that reads go to, as `net` takes it. */
type OnRead = { buffer: () => Buffer; callback: (length: number) => boolean }

/** `unix:/path`, `tcp://host:port` or `tls://host:port` as options of `net.connect`. */
export function parseSocketUri(uri: string): { path: string } | { host: string; port: number } {
  if (uri.startsWith('unix:')) return { path: uri.slice('unix:'.length) }
  const url = new URL(uri)
  return { host: url.hostname.replace(/^\[|\]$/g, ''), port: Number(url.port) }
}

/** True when who answers there has to prove that it knows the secret. Files of this machine are guarded by their rights. */
export function needsProof(uri: string, { secret }: PeerTrust): boolean {
  return secret !== null && !uri.startsWith('unix:')
}

/** True when secrets of functions may be sent there. */
export function isTrusted(uri: string, trust: PeerTrust): boolean {
  return uri.startsWith('unix:') || needsProof(uri, trust)
}

/**
 * A socket that connects; failures come as its `error` event.
 * @throws Error when the address is none
 */
export function dial(uri: string, { ca }: PeerTrust, onread?: OnRead): net.Socket {
  const address = parseSocketUri(uri)
  const options = { ...address, noDelay: true, ...(onread && { onread }) }
  if (!uri.startsWith('tls://') || !('host' in address)) return net.connect(options as net.NetConnectOpts)
  const { host } = address
  const socket = tls.connect({
    ...options,
    // An address has no name to ask for; its certificate is checked all the same.
    servername: net.isIP(host) === 0 ? host : '',
    ...(ca !== null && { ca }),
    minVersion: 'TLSv1.2',
  } as tls.ConnectionOptions)
  socket.setNoDelay(true)
  return socket
}

/** True when a process answers at a unix socket. */
export async function isAnswered(path: string): Promise<boolean> {
  const probe = net.connect({ path })
  const isConnected = once(probe, 'connect').then(
    () => true,
    () => false,
  )
  return isConnected.finally(() => probe.destroy())
}

/** Channel binding of a proof, so that a proxy cannot relay it; '' without TLS. */
export function toBinding(socket: net.Socket): string {
  if (!(socket instanceof tls.TLSSocket)) return ''
  return socket.exportKeyingMaterial(BINDING_BYTES, BINDING_LABEL, Buffer.alloc(0)).toString('base64url')
}
