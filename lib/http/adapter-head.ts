/**
 * Headers for handlers that were written for a cloud platform. There `x-forwarded-for`, `-proto` and `-port` are the platform's
 * word, and handlers build addresses and decide about access by them; so they are the gateway's word here, and never the
 * client's own. Owner: §2.12.
 */

import type { AdapterName } from '../core/identity.ts'
import { headerOf, type RequestHead, withHeaders } from '../invocation/forwarded-headers.ts'
import type { Exchange } from './exchange.ts'

/** True for an adapter under whose name such handlers run. */
export function needsOwnHead(adapter: AdapterName | null): boolean {
  return adapter === 'cloud-lambda' || adapter === 'edge-worker'
}

/**
 * @param exchange - checked: its `ip` is what the gateway knows of the client
 * @param isTrusted - the socket's other end is a proxy that is believed
 */
export function toAdapterHead(exchange: Exchange, isTrusted: boolean): RequestHead {
  const { head, ip } = exchange
  const proto = toProto(exchange, isTrusted)
  return withHeaders(head, {
    'x-forwarded-for': ip === '' ? null : ip,
    'x-forwarded-proto': proto,
    'x-forwarded-port': toPort(exchange, isTrusted, proto),
  })
}

/** `https` or `http`, as the client uses it. */
export function toProto({ head, req }: Exchange, isTrusted: boolean): string {
  const told = isTrusted ? lastEntry(head.forwardedProto).toLowerCase() : ''
  if (told === 'http' || told === 'https') return told
  return req.socket.encrypted === true ? 'https' : 'http'
}

function toPort({ head, host, req }: Exchange, isTrusted: boolean, proto: string): string {
  const told = isTrusted ? lastEntry(headerOf(head.raw, 'x-forwarded-port')) : ''
  if (/^\d{1,5}$/.test(told)) return told
  const usual = /:(\d+)$/.exec(host)?.[1] ?? (proto === 'https' ? '443' : '80')
  // A proxy that tells the protocol alone listens where its clients say it does, not where this socket is.
  return isTrusted && head.forwardedProto !== null ? usual : String(req.socket.localPort ?? usual)
}

/** What the nearest proxy wrote; the client may have written what stands left of it. */
function lastEntry(list: string | null): string {
  return list === null ? '' : list.slice(list.lastIndexOf(',') + 1).trim()
}
