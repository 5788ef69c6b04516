/**
 * Connections to daemons and their workers: unix, tcp, or tcp inside TLS; on other machines both sides prove themselves first.
 * Owner: page runtime/greeting.
 */

import { once } from 'node:events'
import net from 'node:net'
import tls from 'node:tls'
import type { FunctionVersion } from '../core/catalog.ts'
import { greetDaemon } from './greeting.ts'
import type { FrameReader } from './wire-protocol.ts'

/** Credentials of a daemon on another machine. */
export interface PeerTrust {
  /** The shared secret; null if no proof is required. */
  secret: string | null
  /** Certificates (PEM) that may sign a daemon's; null: those that node knows. */
  ca: string | null
}

export const NO_TRUST: PeerTrust = { secret: null, ca: null }

/** Where a worker is reached. */
export interface WorkerAddress {
  id: string
  /** `unix:/path`, `tcp://host:port` or `tls://host:port`. */
  uri: string
  /** True when that is the socket of its daemon, which has to know which worker is meant. */
  isShared: boolean
  trust: PeerTrust
}

/** Memory for the next read, and what is called when `length` bytes of it were read; as `net` takes them. */
export type OnRead = { buffer: () => Buffer; callback: (length: number) => boolean }

/** Label of the bytes that bind a proof to its encrypted connection (RFC 5705). */
const BINDING_LABEL = 'EXPORTER-fngw-greeting'
const BINDING_BYTES = 32

/** `unix:/path`, `tcp://host:port` or `tls://host:port` as options of `net.connect`. */
export function parseSocketUri(uri: string): { path: string } | { host: string; port: number } {
  if (uri.startsWith('unix:')) return { path: uri.slice('unix:'.length) }
  const url = new URL(uri)
  return { host: url.hostname.replace(/^\[|\]$/g, ''), port: Number(url.port) }
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

/**
 * A connection to a worker of a function.
 * @throws Error with a reason
 */
export function dialWorker({ uri, trust }: WorkerAddress, { env }: FunctionVersion, onRead: OnRead): net.Socket {
  const secret = Object.keys(env).find(name => env[name]!.isSecret)
  if (secret !== undefined && !isTrusted(uri, trust)) {
    const remedy = 'set FN_RUNTIME_SECRET on both sides'
    throw new Error(`its value ${secret} is secret, and not sent to a daemon that proves nothing: ${remedy}`)
  }
  try {
    return dial(uri, trust, onRead)
  } catch (error) {
    // The address comes from the daemon, which another person may run.
    throw new Error(`the daemon names a worker socket that cannot be used: ${(error as Error).message}`)
  }
}

/** True when who answers there has to prove that it knows the secret. Files of this machine are guarded by their rights. */
function needsProof(uri: string, { secret }: PeerTrust): boolean {
  return secret !== null && !uri.startsWith('unix:')
}

/** True when secrets of functions may be sent there. */
export function isTrusted(uri: string, trust: PeerTrust): boolean {
  return uri.startsWith('unix:') || needsProof(uri, trust)
}

/** Calls `onOpen` when something may be sent: at once, or when both sides have proved themselves. */
export function greet(
  socket: net.Socket,
  { uri, trust }: Pick<WorkerAddress, 'uri' | 'trust'>,
  reader: FrameReader,
  onOpen: () => void,
): void {
  if (!needsProof(uri, trust)) onOpen()
  else {
    const send = (frame: Buffer): void => void socket.write(frame)
    greetDaemon(reader, { secret: trust.secret!, send, binding: () => toBinding(socket) }, onOpen)
  }
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
