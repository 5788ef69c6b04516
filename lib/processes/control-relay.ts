/**
 * Requests for `/_fn` and `/console` that came in at an acceptor: the first process answers them. The body is read when it is
 * asked for, the answer is written as fast as the client takes it. Owner: page processes/processes.
 *
 *   ─ start ─►   (◄─ more ─, ─ chunk ─►) ─ end ─►   ◄─ reply ─   or   ◄─ loaded (head) ─ (◄─ chunk ─, ─ more ─►) ◄─ end ─
 */

import type { IncomingMessage } from 'node:http'
import { Readable } from 'node:stream'
import { GatewayError } from '../core/errors.ts'
import type { Exchange } from '../http/exchange.ts'
import { MemoryRequest, MemoryResponse, MemorySocket } from '../http/inject.ts'
import type { HttpHandler } from '../http/public.ts'
import { KIND, type Kind, parseHeader } from '../runtime/wire-protocol.ts'
import type { Line } from './link.ts'

interface ControlAsk {
  method: string
  url: string
  headers: string[]
  /** Of the other end of the client's connection. */
  address: string
  hasBody: boolean
}

/** Headers of a response that the acceptor writes itself. */
const OWN_HEADERS: ReadonlySet<string> = new Set(['content-length', 'x-request-id', 'connection', 'keep-alive', 'date'])

export class ControlRelay {
  readonly #link: Line
  readonly #open = new Map<number, Exchange>()

  constructor(link: Line) {
    this.#link = link
  }

  readonly handle = (exchange: Exchange): void => {
    const { req, connection, method, hasBody } = exchange
    const id = this.#link.nextId()
    this.#open.set(id, exchange)
    const abandon = (): void => {
      this.#open.delete(id)
      this.#link.send(KIND.cancel, id, '')
    }
    exchange.work = { abandon }
    if (hasBody) {
      exchange.bodyReceiver = {
        onBody: () => {},
        // Cut off, or too slow: the first process would wait for the rest for ever.
        onBodyError: error => {
          abandon()
          exchange.responder.sendError(exchange, error)
        },
      }
    }
    // The client's own id is in the exchange's, when it is one.
    const headers = [...pick(req.rawHeaders, name => name !== 'x-request-id'), 'X-Request-Id', exchange.id]
    const ask: ControlAsk = { method, url: exchange.target, headers, address: connection.address, hasBody }
    this.#link.send(KIND.start, id, JSON.stringify(ask))
  }

  /** @returns false for a frame of another */
  handleFrame(kind: Kind, id: number, header: string, body: Buffer): boolean {
    const exchange = this.#open.get(id)
    if (exchange === undefined) return false
    const { responder } = exchange
    switch (kind) {
      case KIND.more:
        this.#sendBody(id, exchange)
        break
      case KIND.reply: {
        this.#open.delete(id)
        const { status, headers } = readHead(header, exchange.method === 'HEAD')
        responder.send(exchange, status, headers, Buffer.from(body))
        break
      }
      case KIND.loaded: {
        const { status, headers, length } = readHead(header, false)
        responder.openStream(exchange, status, headers, length)
        break
      }
      case KIND.chunk: {
        const { length } = body
        const grant = (): void => {
          if (this.#open.has(id)) this.#link.send(KIND.more, id, `{"bytes":${length}}`)
        }
        if (responder.writeStream(exchange, body)) grant()
        else responder.onDrain(exchange, grant)
        break
      }
      case KIND.end:
        this.#open.delete(id)
        responder.closeStream(exchange, header === '' ? null : cutOff())
        break
      case KIND.error:
        this.#open.delete(id)
        responder.sendError(exchange, cutOff())
        break
      default:
    }
    return true
  }

  /** Reads what the client has sent, or waits for it; the next piece when it is asked for again. */
  #sendBody(id: number, exchange: Exchange): void {
    const req = exchange.req as IncomingMessage
    if (exchange.expectsContinue) {
      exchange.expectsContinue = false
      exchange.res.writeContinue()
    }
    if (req.listenerCount('data') === 0) {
      req.on('data', (piece: Buffer) => {
        req.pause()
        exchange.bytesIn += piece.length
        if (this.#open.get(id) === exchange) this.#link.sendPiece(id, piece)
        else req.resume()
      })
      req.on('end', () => {
        if (this.#open.get(id) === exchange) this.#link.send(KIND.end, id, '')
      })
      // The connection's end follows and ends the exchange.
      req.on('error', () => {})
    }
    req.resume()
  }
}

function cutOff(): GatewayError {
  return new GatewayError('INTERNAL', 'answer was cut off')
}

/** Of names and values in turn, those whose name is kept. */
function pick(headers: readonly string[], isKept: (name: string) => boolean): string[] {
  return headers.filter((_, at) => isKept(headers[at - (at % 2)]!.toLowerCase()))
}

function readHead(header: string, keepsLength: boolean): { status: number; headers: string[]; length: number | null } {
  const { status, headers } = parseHeader(header) as { status: number; headers: string[] }
  const [, length = null] = pick(headers, name => name === 'content-length')
  const isKept = (name: string): boolean => !OWN_HEADERS.has(name) || (keepsLength && name === 'content-length')
  return { status, headers: pick(headers, isKept), length: length === null ? null : Number(length) }
}

// Requests of acceptors for `/_fn` and `/console`, in the first process: answered as if they had come in here.

/** Bytes of an answer that may be on their way to an acceptor. */
const WINDOW_BYTES = 256 * 1024
/** A longer answer goes in pieces. */
const WHOLE_BYTES = 64 * 1024

/** One request: its body comes in pieces that are asked for, its answer goes in pieces that are granted. */
export class ControlCall {
  readonly #socket: MemorySocket
  readonly #line: Line
  readonly #id: number
  readonly #ask: ControlAsk
  readonly #onOver: () => void
  /** Pieces are asked for one at a time, when the handler reads. */
  readonly #body = new Readable({ highWaterMark: 0, read: () => this.#line.send(KIND.more, this.#id, '') })
  #response: MemoryResponse | null = null
  /** Pieces that came before it was known whether the response is whole. */
  #held: Buffer[] = []
  #isStream = false
  #isOver = false
  #ungranted = 0

  /**
   * @param header - of the frame that asks
   * @param onOver - nothing more will be said of it
   */
  constructor(line: Line, id: number, header: string, onOver: () => void) {
    this.#line = line
    this.#id = id
    this.#ask = parseHeader(header) as unknown as ControlAsk
    this.#onOver = onOver
    if (!this.#ask.hasBody) this.#body.push(null)
    this.#socket = new MemorySocket(this.#ask.address)
  }

  run(handle: HttpHandler): void {
    const { method, url, headers } = this.#ask
    const request = new MemoryRequest(this.#socket, method, url, headers, this.#body)
    const response = new MemoryResponse(this.#socket, {
      // Whether more follows is known when the piece of the event loop that began the answer is through.
      onHead: () => setImmediate(() => this.#open(response)),
      onChunk: chunk => this.#write(response, chunk),
      onEnd: () => {
        this.#finish(response)
        this.abandon()
      },
      onCut: () => {
        this.#line.send(this.#isStream ? KIND.end : KIND.error, this.#id, '{"error":"cut"}')
        this.abandon()
      },
    })
    this.#response = response
    handle(request, response)
  }

  handleFrame(kind: Kind, header: string, body: Buffer): void {
    if (kind === KIND.more) {
      this.#ungranted -= Number(parseHeader(header).bytes) || 0
      if (this.#ungranted < WINDOW_BYTES) this.#response?.drained()
    } else if (kind === KIND.cancel) this.abandon()
    else if (kind === KIND.chunk) this.#body.push(Buffer.from(body))
    else if (kind === KIND.end) this.#body.push(null)
  }

  /** The client is gone, or has its whole answer. */
  abandon(): void {
    this.#isOver = true
    this.#onOver()
    this.#socket.close()
  }

  #write(response: MemoryResponse, chunk: Buffer): boolean {
    if (!this.#isStream) {
      this.#held.push(Buffer.from(chunk))
      if (chunk.length > WHOLE_BYTES) this.#open(response)
      return true
    }
    this.#ungranted += chunk.length
    this.#line.sendPiece(this.#id, chunk)
    return this.#ungranted < WINDOW_BYTES
  }

  /** The answer goes on for a while: its head leaves now. */
  #open(response: MemoryResponse): void {
    if (this.#isStream || this.#isOver) return
    this.#isStream = true
    this.#line.send(KIND.loaded, this.#id, toHead(response))
    for (const piece of this.#held.splice(0)) this.#write(response, piece)
  }

  #finish(response: MemoryResponse): void {
    if (this.#isStream) this.#line.send(KIND.end, this.#id, '')
    else this.#line.send(KIND.reply, this.#id, toHead(response), Buffer.concat(this.#held))
  }
}

function toHead({ status, rawHeaders }: MemoryResponse): string {
  return JSON.stringify({ status, headers: rawHeaders })
}
