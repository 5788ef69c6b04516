/** What an endpoint of the control plane is asked: parameters, query, body, and who asks. Owner: §4.2. */

import { isUtf8 } from 'node:buffer'
import { parseJsonText } from '../config/json-text.ts'
import { GatewayError } from '../core/errors.ts'
import { isObject } from '../core/json.ts'
import type { Exchange } from '../http/exchange.ts'
import { collectBody } from '../http/body.ts'
import { headerOf } from '../invocation/forwarded-headers.ts'
import type { Caller } from './access.ts'
import type { ControlQuery } from './control-query.ts'

/** Bytes of a body, where an endpoint does not say otherwise. */
export const CONTROL_BODY_BYTES = 1024 * 1024

export type JsonObject = Record<string, unknown>

interface ControlRequestParts {
  exchange: Exchange
  params: Readonly<Record<string, string>>
  query: ControlQuery
  caller: Caller
  details: boolean
  isSecure: boolean
}

export class ControlRequest {
  readonly exchange: Exchange
  /** What stands in the path for `:id` and the like, decoded. */
  readonly params: Readonly<Record<string, string>>
  readonly query: ControlQuery
  readonly caller: Caller
  /** Paths, addresses and other inner facts may be shown. */
  readonly details: boolean
  /** The client uses https. */
  readonly isSecure: boolean

  constructor({ exchange, params, query, caller, details, isSecure }: ControlRequestParts) {
    this.exchange = exchange
    this.params = params
    this.query = query
    this.caller = caller
    this.details = details
    this.isSecure = isSecure
  }

  /** A header by its lower-case name; null when it is absent. */
  header(name: string): string | null {
    return headerOf(this.exchange.req.rawHeaders, name)
  }

  /**
   * The body's bytes; none when there is no body. Never settles when the client leaves.
   * @throws GatewayError BODY_TOO_LARGE
   */
  async readBody(limit: number = CONTROL_BODY_BYTES): Promise<Buffer> {
    return (await collectBody(this.exchange, limit)) ?? Buffer.alloc(0)
  }

  /**
   * The body as a JSON object, whatever its `Content-Type` says.
   * @throws GatewayError BODY_TOO_LARGE, or BAD_REQUEST with the place of the fault
   */
  async readJson(limit: number = CONTROL_BODY_BYTES): Promise<JsonObject> {
    const body = await this.readBody(limit)
    if (body.length === 0) throw refuse('must be a JSON object, got nothing')
    if (!isUtf8(body)) throw refuse('must be a JSON object, got bytes that are not UTF-8')
    const parsed = parseJsonText(body, limit)
    if (!parsed.ok) {
      const where = parsed.line === 0 ? '' : `line ${parsed.line}, column ${parsed.column}: `
      throw refuse(`is not JSON: ${where}${parsed.reason}`)
    }
    if (!isObject(parsed.value)) throw refuse(`must be a JSON object, got ${toKind(parsed.value)}`)
    return parsed.value
  }
}

function toKind(value: unknown): string {
  if (value === null) return 'null'
  return Array.isArray(value) ? 'an array' : `a ${typeof value}`
}

function refuse(why: string): GatewayError {
  return new GatewayError('BAD_REQUEST', `body ${why}`)
}
