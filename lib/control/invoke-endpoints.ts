/** `/_fn/invoke` and `/_fn/explain`: runs a function by its name, and explains the route of a request. Owner: page control/invoke. */

import { GatewayError, toGatewayError } from '../core/errors.ts'
import { isHeaderName, toHeaderRecord } from '../core/http-text.ts'
import type { Exchange } from '../http/exchange.ts'
import type { BodySink, InternalResult } from '../invocation/internal-call.ts'
import { readCallFields, sendFailure, toCallRecord, toInvokeRecord } from './call-fields.ts'
import {
  ACT,
  badQuery,
  type ControlContext,
  type ControlReply,
  type ControlRequest,
  type Endpoint,
  type NamedCalls,
  PacedWriter,
  READ,
  readJson,
  readHeader,
} from './endpoint.ts'

/** Bytes of the JSON that describes a call; larger bodies go to the function's own URL. */
export const INVOKE_BODY_BYTES = 8 * 1024 * 1024

/** Longest method that is explained. */
const MAX_METHOD_CHARS = 32

export function createInvokeEndpoints({ calls, explain }: ControlContext): readonly Endpoint[] {
  return [
    {
      method: 'POST',
      path: '/_fn/invoke',
      access: ACT,
      handle: request => invoke(calls, request),
    },
    {
      method: 'GET',
      path: '/_fn/explain',
      access: READ,
      query: ['method', 'path', 'host'],
      handle: ({ query }) => {
        const method = query.text('method') ?? 'GET'
        const path = query.required('path')
        if (!isHeaderName(method) || method.length > MAX_METHOD_CHARS)
          throw badQuery('method', 'must be a method of HTTP, such as GET')
        if (!path.startsWith('/')) throw badQuery('path', 'must start with /, such as /users/7')
        return { status: 200, body: explain(method.toUpperCase(), path, query.text('host') ?? '') }
      },
    },
  ]
}

async function invoke(calls: NamedCalls, request: ControlRequest): Promise<ControlReply> {
  const { exchange } = request
  const { name, runtime, query, ...fields } = readCallFields(await readJson(request, INVOKE_BODY_BYTES))
  // Stops the handler when the client leaves.
  const stop = new AbortController()
  exchange.work = { abandon: () => stop.abort() }
  const call = calls.prepare(
    name,
    { ...fields, ...(runtime !== null && { runtime }), query: query ?? {}, signal: stop.signal },
    { id: exchange.id, ip: exchange.ip, trace: exchange.trace, traceState: exchange.traceState },
  )
  if (wantsStream(readHeader(request, 'accept'))) {
    const stream = new InvokeStream(exchange, call)
    exchange.work = {
      abandon: () => {
        stop.abort()
        stream.leave()
      },
    }
    return { send: () => void stream.run(sink => calls.run({ ...call, sink })) }
  }
  const result = await calls.run(call)
  const { error } = result
  if (error !== null) return { send: exchange => sendFailure(exchange, error, result) }
  return { status: 200, body: toInvokeRecord(result, call.path, call.pattern) }
}

/** True for a client that accepts the response line by line. */
function wantsStream(accept: string | null): boolean {
  return (accept ?? '').split(',').some(type => type.split(';')[0]!.trim().toLowerCase() === STREAM_TYPE)
}

// The response of `POST /_fn/invoke` line by line: a head, pieces of the body, an end. Memory holds one piece at a time.

const STREAM_TYPE = 'application/x-ndjson'

/** Bytes of the body in one line. */
const PIECE_BYTES = 48 * 1024

interface StreamedCall {
  path: string
  pattern: string | null
}

export class InvokeStream implements BodySink {
  readonly #exchange: Exchange
  readonly #call: StreamedCall
  readonly #writer: PacedWriter
  #hasBegun = false

  constructor(exchange: Exchange, call: StreamedCall) {
    this.#exchange = exchange
    this.#writer = new PacedWriter(exchange)
    this.#call = call
  }

  /** Runs the call and sends what comes of it. Never rejects. @param start - runs it with this as its sink */
  async run(start: (sink: BodySink) => Promise<InternalResult>): Promise<void> {
    const { responder } = this.#exchange
    try {
      const result = await start(this)
      const { error, stdout, stderr } = result
      // Before the first line a refusal is an ordinary response.
      if (!this.#hasBegun) {
        sendFailure(this.#exchange, error ?? new GatewayError('INTERNAL', 'the call ended without a response'), result)
        return
      }
      await this.#send({ end: { ...toCallRecord(result), stdout, stderr, error: error?.message ?? null } })
      responder.closeStream(this.#exchange, null)
    } catch (error) {
      if (!this.#exchange.ended)
        responder.sendError(this.#exchange, toGatewayError(error), ['Cache-Control', 'no-store'])
    }
  }

  begin(status: number, headers: readonly string[]): void {
    const { responder } = this.#exchange
    this.#hasBegun = true
    const type = ['Content-Type', STREAM_TYPE, 'X-Content-Type-Options', 'nosniff']
    responder.openStream(this.#exchange, 200, [...type, 'Cache-Control', 'no-store', 'X-Accel-Buffering', 'no'], null)
    const { path, pattern } = this.#call
    const head = { status, headers: toHeaderRecord(headers), route: path, route_template: pattern }
    responder.writeStream(this.#exchange, toLine({ head }), true)
  }

  async write(piece: Buffer): Promise<void> {
    for (let at = 0; at < piece.length; at += PIECE_BYTES)
      await this.#send({ chunk: piece.subarray(at, at + PIECE_BYTES).toString('base64') })
  }

  /** The client is gone. */
  leave(): void {
    this.#writer.abandon()
  }

  #send(line: object): Promise<void> {
    return this.#writer.write(toLine(line), true)
  }
}

function toLine(value: object): Buffer {
  return Buffer.from(`${JSON.stringify(value)}\n`)
}
