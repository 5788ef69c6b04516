/**
 * Calls of functions whose adapter does not exist, or not for their language, are refused. How a handler is called under
 * an adapter is the worker's part: `runtimes/node/adapters.mjs`, `runtimes/python/adapters.py`. Spec: §2.12.
 */

import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError } from '../core/errors.ts'
import { headerOf } from '../core/http-text.ts'
import { type AdapterName, hasAdapter } from '../core/identity.ts'
import { type RequestHead, withHeaders } from './forwarded-headers.ts'

/**
 * A handler written for one convention must not be called by another: it would misread its arguments.
 * @returns 500 that names the field, or null
 */
export function checkAdapter({ runtime, entryFile, policy }: FunctionVersion): GatewayError | null {
  const { adapter, adapterName } = policy
  if (adapter === null) {
    return new GatewayError('LOAD_FAILED', `unknown adapter: invoke.adapter is "${adapterName}"`, {
      detail: {
        file: entryFile,
        hint: 'use native, cloud-lambda or edge-worker (or one of their aliases) in fn.config.json',
      },
    })
  }
  if (hasAdapter(runtime, adapter)) return null
  return new GatewayError('LOAD_FAILED', `adapter not available in ${runtime}: invoke.adapter is "${adapter}"`, {
    detail: { file: entryFile, hint: `only node and python have it: remove invoke.adapter from fn.config.json` },
  })
}

// Headers for handlers that were written for a cloud platform. There `x-forwarded-for`, `-proto` and `-port` are the platform's
// word, and handlers build addresses and decide about access by them; so they are the gateway's word here, and never the
// client's own.

/** A request that came over HTTP. */
interface AskedRequest {
  readonly head: RequestHead
  readonly host: string
  /** Address of the client; empty when unknown. */
  readonly ip: string
  readonly req: { readonly socket: { readonly encrypted?: boolean; readonly localPort?: number | undefined } }
}

/** True for an adapter under whose name such handlers run. */
export function needsOwnHead(adapter: AdapterName | null): boolean {
  return adapter === 'cloud-lambda' || adapter === 'edge-worker'
}

/**
 * @param request - checked: its `ip` is what the gateway knows of the client
 * @param isTrusted - the socket's other end is a proxy that is believed
 */
export function toAdapterHead(request: AskedRequest, isTrusted: boolean): RequestHead {
  const { head, ip } = request
  const proto = toProto(request, isTrusted)
  return withHeaders(head, {
    'x-forwarded-for': ip === '' ? null : ip,
    'x-forwarded-proto': proto,
    'x-forwarded-port': toPort(request, isTrusted, proto),
  })
}

/** `https` or `http`, as the client uses it. */
export function toProto({ head, req }: AskedRequest, isTrusted: boolean): string {
  const named = isTrusted ? lastEntry(head.forwardedProto).toLowerCase() : ''
  if (named === 'http' || named === 'https') return named
  return req.socket.encrypted === true ? 'https' : 'http'
}

function toPort({ head, host, req }: AskedRequest, isTrusted: boolean, proto: string): string {
  const named = isTrusted ? lastEntry(headerOf(head.raw, 'x-forwarded-port')) : ''
  if (/^\d{1,5}$/.test(named)) return named
  const usual = /:(\d+)$/.exec(host)?.[1] ?? (proto === 'https' ? '443' : '80')
  // A proxy that names the protocol alone listens where its clients say it does, not where this socket is.
  return isTrusted && head.forwardedProto !== null ? usual : String(req.socket.localPort ?? usual)
}

/** The entry of the nearest proxy; the client may have written the text left of it. */
function lastEntry(list: string | null): string {
  return list === null ? '' : list.slice(list.lastIndexOf(',') + 1).trim()
}
