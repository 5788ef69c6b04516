/** `/_fn/invoke` and `/_fn/explain`: runs a function by its name, and explains the route of a request. Owner: page control/invoke. */

import { string } from '../config/fields.ts'
import { GatewayError } from '../core/errors.ts'
import { isHeaderName, toHeaderRecord } from '../core/http-text.ts'
import type { Exchange } from '../http/exchange.ts'
import type { BodySink, InternalResult } from '../invocation/internal-call.ts'
import { readCallFields, sendFailure, toCallRecord, toInvokeRecord } from './call-fields.ts'
import {
  type ControlContext,
  type ControlReply,
  type ControlRequest,
  type Endpoint,
  endpoint,
  json,
  type NamedCalls,
  readHeader,
  readJson,
  required,
  writePaced,
} from './endpoint.ts'

/** Bytes of the JSON that describes a call; larger bodies go to the function's own URL. */
export const INVOKE_BODY_BYTES = 8 * 1024 * 1024

const EXPLAIN_QUERY = {
  method: string({
    rule: 'a method of HTTP, such as GET',
    maxLength: 32,
    parse: text => (isHeaderName(text) ? text.toUpperCase() : null),
  }),
  path: string({ rule: 'a path that starts with /, such as /users/7', pattern: /^\//, maxLength: 4096 }),
  host: string(),
}

export function createInvokeEndpoints({ calls, explain }: ControlContext): readonly Endpoint[] {
  return [
    endpoint('POST /_fn/invoke', 'acts', request => invoke(calls, request)),
    endpoint(
      'GET /_fn/explain',
      'read',
      ({ query: { method = 'GET', path, host = '' } }) => json(explain(method, required(path, 'path'), host)),
      EXPLAIN_QUERY,
    ),
  ]
}

async function invoke(calls: NamedCalls, request: ControlRequest): Promise<ControlReply> {
  const { exchange } = request
  const { id, ip, trace, traceState } = exchange
  const { name, runtime, query, ...fields } = readCallFields(await readJson(request, INVOKE_BODY_BYTES))
  // Stops the handler when the client leaves.
  const stop = new AbortController()
  exchange.work = { abandon: () => stop.abort() }
  const named = { ...fields, ...(runtime !== null && { runtime }), query: query ?? {}, signal: stop.signal }
  const call = calls.prepare(name, named, { id, ip, trace, traceState })
  // The client accepts the response line by line.
  const types = (readHeader(request, 'accept') ?? '').split(',').map(type => type.split(';')[0]!.trim().toLowerCase())
  if (types.includes(STREAM_TYPE))
    return { send: () => new InvokeStream(exchange, call).run(sink => calls.run({ ...call, sink })) }
  const result = await calls.run(call)
  const { error } = result
  if (error !== null) return { send: () => sendFailure(exchange, error, result) }
  return json(toInvokeRecord(result, call.path, call.pattern))
}

// The response of `POST /_fn/invoke` line by line: a head, pieces of the body, an end. Memory holds one piece at a time.

const STREAM_TYPE = 'application/x-ndjson'

/** Bytes of the body in one line. */
const PIECE_BYTES = 48 * 1024

export class InvokeStream implements BodySink {
  readonly #exchange: Exchange
  readonly #call: { path: string; pattern: string | null }
  #hasBegun = false

  constructor(exchange: Exchange, call: { path: string; pattern: string | null }) {
    this.#exchange = exchange
    this.#call = call
  }

  /** Runs the call and sends its result. @param start - runs it with this as its sink */
  async run(start: (sink: BodySink) => Promise<InternalResult>): Promise<void> {
    const result = await start(this)
    const { error, stdout, stderr } = result
    // Before the first line a refusal is an ordinary response.
    if (!this.#hasBegun) {
      sendFailure(this.#exchange, error ?? new GatewayError('INTERNAL', 'the call ended without a response'), result)
      return
    }
    await this.#send({ end: { ...toCallRecord(result), stdout, stderr, error: error?.message ?? null } })
    this.#exchange.responder.closeStream(this.#exchange, null)
  }

  begin(status: number, headers: readonly string[]): void {
    this.#hasBegun = true
    const type = ['Content-Type', STREAM_TYPE, 'X-Content-Type-Options', 'nosniff']
    const { responder } = this.#exchange
    responder.openStream(this.#exchange, 200, [...type, 'Cache-Control', 'no-store', 'X-Accel-Buffering', 'no'], null)
    const { path, pattern } = this.#call
    const head = { status, headers: toHeaderRecord(headers), route: path, route_template: pattern }
    responder.writeStream(this.#exchange, toLine({ head }), true)
  }

  async write(piece: Buffer): Promise<void> {
    for (let at = 0; at < piece.length; at += PIECE_BYTES)
      await this.#send({ chunk: piece.subarray(at, at + PIECE_BYTES).toString('base64') })
  }

  #send(line: object): Promise<void> {
    return writePaced(this.#exchange, toLine(line))
  }
}

function toLine(value: object): Buffer {
  return Buffer.from(`${JSON.stringify(value)}\n`)
}
