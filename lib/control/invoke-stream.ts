/**
 * The answer of `POST /_fn/invoke` line by line, as the function gives it: a head, pieces of the body, an end. Memory holds one
 * piece at a time. Owner: page control/invoke.
 */

import { GatewayError, toGatewayError } from '../core/errors.ts'
import type { Exchange } from '../http/exchange.ts'
import type { BodySink, InternalResult } from '../invocation/internal-call.ts'
import { sendFailure, toCallRecord, toHeaderRecord } from './invoke-record.ts'

export const STREAM_TYPE = 'application/x-ndjson'

/** Bytes of the body in one line. */
const PIECE_BYTES = 48 * 1024

interface StreamedCall {
  path: string
  pattern: string | null
}

export class InvokeStream implements BodySink {
  readonly #exchange: Exchange
  readonly #call: StreamedCall
  #hasBegun = false
  #hasLeft = false
  /** Ends a wait for the client. */
  #wake: (() => void) | null = null

  constructor(exchange: Exchange, call: StreamedCall) {
    this.#exchange = exchange
    this.#call = call
  }

  /** Runs the call and sends what comes of it. Never rejects. @param start - runs it with this as its sink */
  async run(start: (sink: BodySink) => Promise<InternalResult>): Promise<void> {
    const { responder } = this.#exchange
    try {
      const result = await start(this)
      const { error, stdout, stderr } = result
      // Before the first line a refusal is an answer as any other.
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
    this.#hasLeft = true
    this.#wake?.()
  }

  async #send(line: object): Promise<void> {
    const { responder } = this.#exchange
    if (this.#hasLeft || responder.writeStream(this.#exchange, toLine(line), true)) return
    await new Promise<void>(resolve => {
      this.#wake = resolve
      responder.onDrain(this.#exchange, resolve)
    })
  }
}

function toLine(value: object): Buffer {
  return Buffer.from(`${JSON.stringify(value)}\n`)
}
