/** What a runtime says of a failed call, as the error a client gets. Owner: §7. */

import { type ErrorDetail, GatewayError } from '../core/errors.ts'

/**
 * @param fields - header of an `error` frame: `code message file line stack hint`
 * @returns LOAD_FAILED or HANDLER_FAILED (500), CONTRACT_BROKEN (502)
 */
export function toRuntimeError(fields: Readonly<Record<string, unknown>>): GatewayError {
  const message = typeof fields.message === 'string' && fields.message !== '' ? fields.message : 'handler failed'
  const detail: ErrorDetail = {}
  if (typeof fields.file === 'string') detail.file = fields.file
  if (typeof fields.line === 'number') detail.line = fields.line
  if (typeof fields.stack === 'string') detail.stack = fields.stack
  if (typeof fields.hint === 'string') detail.hint = fields.hint
  if (fields.code === 'contract')
    return new GatewayError('CONTRACT_BROKEN', `invalid runtime response: ${message}`, { detail })
  if (fields.code === 'load') return new GatewayError('LOAD_FAILED', message, { detail })
  return new GatewayError('HANDLER_FAILED', message, { detail })
}
