/** Connections to daemons and their workers: unix, tcp, or tcp inside TLS. Owner: page runtime/greeting. */

import net from 'node:net'
import tls from 'node:tls'

/** What a daemon on another machine is trusted by. */
export interface PeerTrust {
  /** What both sides know; null where nobody has to prove anything. */
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

/** What a proof is bound to, so that nobody in between can pass it on; '' without TLS. */
export function toBinding(socket: net.Socket): string {
  if (!(socket instanceof tls.TLSSocket)) return ''
  return socket.exportKeyingMaterial(BINDING_BYTES, BINDING_LABEL, Buffer.alloc(0)).toString('base64url')
}
