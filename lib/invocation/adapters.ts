/**
 * Calls of functions whose adapter does not exist, or not for their language, are refused. How a handler is called under
 * an adapter is the worker's part: `runtimes/node/adapters.mjs`, `runtimes/python/adapters.py`. Spec: §2.12.
 */

import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError } from '../core/errors.ts'
import { headerOf } from '../core/http-text.ts'
import { hasAdapter } from '../core/identity.ts'
import { type AskedRequest, lastEntry, type RequestHead, toProto, withHeaders } from './forwarded-headers.ts'

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

/**
 * The headers of a request for a handler that was written for a cloud platform. There `x-forwarded-for`, `-proto` and `-port` are the
 * platform's word, and handlers build addresses and decide about access by them; so they are the gateway's word here, and never
 * the client's own.
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

function toPort({ head, host, req }: AskedRequest, isTrusted: boolean, proto: string): string {
  const named = isTrusted ? lastEntry(headerOf(head.raw, 'x-forwarded-port')) : ''
  if (/^\d{1,5}$/.test(named)) return named
  const usual = /:(\d+)$/.exec(host)?.[1] ?? (proto === 'https' ? '443' : '80')
  // A proxy that names the protocol alone listens where its clients say it does, not where this socket is.
  return isTrusted && head.forwardedProto !== null ? usual : String(req.socket.localPort ?? usual)
}
