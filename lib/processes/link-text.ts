/** What frames of the line say in their headers: which call, which failure. Owner: page processes/processes. */

import { ERROR_STATUS, type ErrorCode, GatewayError } from '../core/errors.ts'
import { parseHeader } from '../runtime/wire-protocol.ts'

/** Bytes of one text of a failure as JSON, and characters of one that has more: all texts fit the header of an `error` frame. */
const MAX_TEXT_BYTES = 12 * 1024
const CUT_CHARS = 2 * 1024

/** Text before the handler event in the header of a `call`: the key of the function version. No key has a line end. */
export function toCallTag(key: string): string {
  return `${key}\n`
}

/** A header of a `call` cut into key and handler event. @throws Error for one that is none */
export function cutCall(header: string): { key: string; event: string } {
  const end = header.indexOf('\n')
  if (end === -1) throw new Error('call without a key')
  return { key: header.slice(0, end), event: header.slice(end + 1) }
}

function cutText(text: string): string {
  return Buffer.byteLength(JSON.stringify(text)) > MAX_TEXT_BYTES ? `${text.slice(0, CUT_CHARS)}...` : text
}

/** A failure as the header of an `error` or `end` frame. */
export function toErrorHeader({ code, message, status, headers, detail }: GatewayError): string {
  const shown: Record<string, unknown> = { ...detail }
  for (const [name, value] of Object.entries(shown)) if (typeof value === 'string') shown[name] = cutText(value)
  return JSON.stringify({ code, message: cutText(message), status, headers, ...(detail && { detail: shown }) })
}

/** The failure that a header tells; null for a header without one. */
export function fromErrorHeader(header: string): GatewayError | null {
  if (header === '') return null
  const { code, message, status, headers, detail } = parseHeader(header) as Partial<GatewayError>
  const known = code !== undefined && Object.hasOwn(ERROR_STATUS, code) ? (code as ErrorCode) : 'INTERNAL'
  return new GatewayError(known, String(message), {
    ...(status !== undefined && { status }),
    ...(headers && { headers }),
    ...(detail && { detail }),
  })
}

/** How a call reached its worker, where that is worth telling. */
interface CallFacts {
  cold: boolean
  socketIndex: number
  queuedMs: number
  loadError: GatewayError | null
}

export function toFactsHeader(facts: CallFacts): string {
  const { loadError } = facts
  return JSON.stringify({ ...facts, loadError: loadError === null ? '' : toErrorHeader(loadError) })
}

export function fromFactsHeader(header: string): CallFacts {
  const { cold, socketIndex, queuedMs, loadError } = parseHeader(header)
  return {
    cold: cold === true,
    socketIndex: Number(socketIndex) || 1,
    queuedMs: Number(queuedMs) || 0,
    loadError: fromErrorHeader(String(loadError ?? '')),
  }
}
