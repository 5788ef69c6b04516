/** Failures of an upstream connection in words that name no address and no path. Owner: §2.10. */

import { GatewayError } from '../core/errors.ts'
import { failed } from './target.ts'
import type { Overdue } from './time-limit.ts'

const REASONS: Readonly<Record<string, string>> = {
  __proto__: null as never,
  ECONNREFUSED: 'connection refused',
  ECONNRESET: 'connection reset',
  EPIPE: 'connection reset',
  ECONNABORTED: 'connection reset',
  ETIMEDOUT: 'connection timed out',
  EHOSTUNREACH: 'host unreachable',
  EHOSTDOWN: 'host unreachable',
  ENETUNREACH: 'network unreachable',
  ENETDOWN: 'network unreachable',
  EADDRNOTAVAIL: 'network unreachable',
  EACCES: 'connection not permitted',
  EPERM: 'connection not permitted',
  EMFILE: 'no descriptors left',
  ENFILE: 'no descriptors left',
  ENOTFOUND: 'name not resolved',
  ENODATA: 'name not resolved',
  EAI_AGAIN: 'name not resolved',
  EAI_FAIL: 'name not resolved',
  EPROTO: 'TLS handshake failed',
  MALFORMED_ANSWER: 'malformed response',
  ANSWER_HEAD_TOO_LARGE: 'headers of the answer are too large',
  ERR_TLS_CERT_ALTNAME_INVALID: 'TLS certificate is for another name',
  CERT_HAS_EXPIRED: 'TLS certificate has expired',
  CERT_NOT_YET_VALID: 'TLS certificate is not valid yet',
}

const UNTRUSTED =
  /^(?:DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO_|CERT_|INVALID_CA|HOSTNAME_MISMATCH|PATH_LENGTH)/

/** @param error - of the connection or the answer's bytes; only its code is used */
export function toTransferError(error: Error & { code?: unknown }): GatewayError {
  const code = typeof error.code === 'string' ? error.code : ''
  let reason = REASONS[code]
  if (reason === undefined && UNTRUSTED.test(code)) reason = 'TLS certificate is not trusted'
  if (reason === undefined && /^ERR_(?:SSL|TLS)_/.test(code)) reason = 'TLS handshake failed'
  return failed(`proxy request failed: ${reason ?? 'connection failed'}`, error)
}

/** A kept connection was closed while a request went over it that may do harm when it is done twice. */
export function toNotRepeated(error: Error): GatewayError {
  return failed('proxy request failed: connection closed before an answer, and the request cannot be repeated', error)
}

export function toTooLarge(maxBytes: number): GatewayError {
  return failed(`upstream response too large: the limit is ${maxBytes} bytes`)
}

/** @param ownMs - `proxy.timeout_ms` when that was the limit @param policyMs - the function's `timeout_ms` */
export function toTimeout({ who, ms }: Overdue, ownMs: number | null, policyMs: number): GatewayError {
  const limit = ownMs === null ? `timeout_ms ${policyMs}` : `proxy.timeout_ms ${ownMs}`
  const texts: Record<Overdue['who'], string> = {
    answer: `upstream timeout: no answer within ${limit}`,
    upstream: `upstream timeout: nothing more of the answer within ${limit}`,
    client: `client timeout: too little of the answer taken within ${ms} ms`,
    all: `upstream timeout: the answer was not complete within ${ms} ms`,
  }
  return new GatewayError('TIMEOUT', `edge proxy failed: ${texts[who]}`)
}
