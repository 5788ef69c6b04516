/**
 * A request that reaches exactly the addresses that were checked. Whatever asks for URLs of others (edge functions, callbacks of
 * jobs) goes through here. Spec: §2.10.
 */

import { type ClientRequest, request as httpRequest } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { isIP, type LookupFunction } from 'node:net'
import { MAX_REPLY_HEADER_BYTES } from '../core/limits.ts'
import { classifyAddress, type OwnAddresses } from './addresses.ts'
import type { EdgeAgents, PinnedOptions } from './agents.ts'
import type { ResolvedAddress } from './lookup.ts'
import { namesControl } from './path-spellings.ts'
import { controlDenied, type EdgeRequest, failed } from './target.ts'

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
    const kind = classifyAddress(address)
    if (!allowPrivate && (kind !== 'public' || own.isOfThisMachine(address)))
      throw failed('proxy denied: private host not allowed')
    if (kind === 'never') throw failed('proxy denied: special address not allowed')
    if (own.isThisGateway(address, port) && namesControl(spellings)) throw controlDenied()
  }
  return addresses.slice(0, EDGE_ADDRESSES)
}

interface PinnedContext {
  readonly agents: EdgeAgents
  /** Authorities to trust instead of the usual ones, PEM. */
  readonly ca: string | null
}

/**
 * Opens the request; the body is the caller's to send.
 * @param addresses - checked; they are not looked up again
 * @param length - of the body; null for none
 * @param isFresh - not over a kept connection, which may be closed just now
 */
export function openPinned(
  { agents, ca }: PinnedContext,
  { isTls, hostname, port, host, target, method, headers: given }: EdgeRequest,
  addresses: readonly ResolvedAddress[],
  length: number | null,
  isFresh: boolean,
): ClientRequest {
  const headers = ['Host', host, ...given]
  if (length !== null) headers.push('Content-Length', String(length))
  const options: PinnedOptions = {
    host: hostname,
    port,
    method,
    path: target,
    headers,
    agent: agents.get(isTls, isFresh),
    lookup: toLookup(addresses),
    pinned: addresses
      .map(({ address }) => address)
      .sort()
      .join(),
    setHost: false,
    // A lenient parser would read one byte stream differently from whoever wrote it.
    insecureHTTPParser: false,
    maxHeaderSize: MAX_REPLY_HEADER_BYTES,
  }
  if (isTls) {
    // Whatever the environment says: an unverified upstream is anybody.
    options.rejectUnauthorized = true
    options.servername = isIP(hostname) === 0 ? hostname : ''
    if (ca !== null) options.ca = ca
  }
  const req = (isTls ? httpsRequest : httpRequest)(options)
  // The block's size is limited; a limit by count would drop headers without a word.
  req.maxHeadersCount = 0
  return req
}

function toLookup(addresses: readonly ResolvedAddress[]): LookupFunction {
  return (_hostname, options, callback) => {
    const list = addresses.map(({ address, family }) => ({ address, family }))
    if (options.all === true) callback(null, list)
    else callback(null, list[0]!.address, list[0]!.family)
  }
}
