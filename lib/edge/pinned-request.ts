/**
 * A request that reaches exactly the addresses that were checked. Whatever asks for URLs of others (edge functions, callbacks of
 * jobs) goes through here. Spec: §2.10.
 */

import { isIP } from 'node:net'
import { findUnsendable, isHeaderName } from '../core/http-text.ts'
import type { OwnAddresses } from './addresses.ts'
import type { EdgeConnections, Reuse, UpstreamRequest } from './connections.ts'
import type { ResolvedAddress } from './lookup.ts'
import { namesControl } from './path-spellings.ts'
import { controlDenied, type EdgeRequest, failed } from './target.ts'
import type { AnswerTaker } from './upstream-connection.ts'

/** Addresses of one upstream that are tried. */
const EDGE_ADDRESSES = 8

/**
 * @returns the addresses to connect to
 * @throws GatewayError EDGE_FAILED when one of them may not be reached
 */
export function checkAddresses(
  addresses: readonly ResolvedAddress[],
  { port, spellings }: Pick<EdgeRequest, 'port' | 'spellings'>,
  allowPrivate: boolean,
  own: OwnAddresses,
): readonly ResolvedAddress[] {
  if (addresses.length === 0) throw failed('proxy request failed: name not resolved')
  for (const { address } of addresses) {
    const kind = own.kindOf(address)
    if (!allowPrivate && (kind !== 'public' || own.isOfThisMachine(address)))
      throw failed('proxy denied: private host not allowed')
    if (kind === 'never') throw failed('proxy denied: special address not allowed')
    if (own.isThisGateway(address, port) && namesControl(spellings)) throw controlDenied()
  }
  return addresses.slice(0, EDGE_ADDRESSES)
}

interface PinnedContext {
  readonly connections: EdgeConnections
  /** Authorities to trust instead of the usual ones, PEM. */
  readonly ca: string | null
}

/**
 * Sends a request.
 * @param added - headers beside the request's own, names and values in turn
 * @param addresses - checked; they are not looked up again
 * @param body - null for none, which is not the same as an empty one
 * @param reuse - over which connection
 * @throws GatewayError EDGE_FAILED for what cannot be sent
 */
export function sendPinned(
  { connections, ca }: PinnedContext,
  request: EdgeRequest,
  added: readonly string[],
  addresses: readonly ResolvedAddress[],
  body: Buffer | null,
  reuse: Reuse,
  taker: AnswerTaker,
): UpstreamRequest {
  const { isTls, hostname, port, method } = request
  const servername = isIP(hostname) === 0 ? hostname : ''
  const head = toHeadText(request, added, body === null ? null : body.length, reuse)
  const sent = { head, body: body ?? NOTHING, isHead: method === 'HEAD' }
  return connections.request({ isTls, hostname, port, addresses, servername, ca }, sent, reuse, taker)
}

const NOTHING = Buffer.alloc(0)
const SENDABLE_TARGET = /^[\x21-\x7e]+$/

/** Whatever came this far was checked; a line end in it would still be another request, so nothing of it is believed. */
function toHeadText(
  { method, target, host, headers }: EdgeRequest,
  added: readonly string[],
  length: number | null,
  reuse: Reuse,
): string {
  if (!SENDABLE_TARGET.test(target) || findUnsendable(host) !== null) throw failed('the target cannot be sent')
  const lines = `${toLines(headers)}${toLines(added)}${length === null ? '' : `Content-Length: ${length}\r\n`}`
  return `${method} ${target} HTTP/1.1\r\nHost: ${host}\r\n${lines}Connection: ${reuse === 'none' ? 'close' : 'keep-alive'}\r\n\r\n`
}

/** @param headers - names and values in turn */
function toLines(headers: readonly string[]): string {
  let lines = ''
  for (let i = 0; i < headers.length; i += 2) {
    if (!isHeaderName(headers[i]!) || findUnsendable(headers[i + 1]!) !== null) throw failed('a header cannot be sent')
    lines += `${headers[i]}: ${headers[i + 1]}\r\n`
  }
  return lines
}
