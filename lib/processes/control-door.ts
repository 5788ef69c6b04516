/** Requests of fronts for `/_fn` and `/console`, in the first process: answered as if they had come in here. Owner: page processes/processes. */

import { MemoryRequest, MemoryResponse, MemorySocket } from '../http/inject.ts'
import type { HttpHandler } from '../http/public.ts'
import { KIND, type Kind, parseHeader } from '../runtime/wire-protocol.ts'
import type { ControlAsk } from './control-relay.ts'
import type { Link } from './link.ts'

/** Bytes of an answer that may be on their way to a front. */
const WINDOW_BYTES = 256 * 1024
/** A longer answer goes in pieces. */
const WHOLE_BYTES = 64 * 1024

type Line = Pick<Link, 'send' | 'sendPiece'>

/** One request: its body comes in pieces that are asked for, its answer goes in pieces that are granted. */
class ControlCall {
  readonly #socket: MemorySocket
  readonly #line: Line
  readonly #id: number
  readonly #pieces: Buffer[] = []
  #isBodyOver: boolean
  /** A reader that waits for the next piece. */
  #wake: (() => void) | null = null
  #response: MemoryResponse | null = null
  /** What came before it was known whether the answer is whole. */
  #held: Buffer[] = []
  #isStream = false
  #isOver = false
  #ungranted = 0

  constructor(line: Line, id: number, { address, hasBody }: ControlAsk) {
    this.#line = line
    this.#id = id
    this.#isBodyOver = !hasBody
    this.#socket = new MemorySocket(address)
  }

  run(handle: HttpHandler, { method, url, headers }: ControlAsk, onOver: () => void): void {
    const over = (): void => {
      this.#isOver = true
      onOver()
      this.#socket.close()
    }
    const request = new MemoryRequest(this.#socket, method, url, headers, this.#body())
    const response = new MemoryResponse(this.#socket, {
      // Whether more follows is known when the piece of the event loop that began the answer is through.
      onHead: () => setImmediate(() => this.#open(response)),
      onChunk: chunk => this.#write(response, chunk),
      onEnd: () => {
        this.#finish(response)
        over()
      },
      onCut: () => {
        this.#line.send(this.#isStream ? KIND.end : KIND.error, this.#id, '{"error":"cut"}')
        over()
      },
    })
    this.#response = response
    handle(request, response)
  }

  take(piece: Buffer): void {
    this.#pieces.push(Buffer.from(piece))
    this.#wake?.()
  }

  endBody(): void {
    this.#isBodyOver = true
    this.#wake?.()
  }

  /** The client is gone. */
  leave(): void {
    this.#isOver = true
    this.#socket.close()
  }

  grant(bytes: number): void {
    this.#ungranted -= bytes
    if (this.#ungranted < WINDOW_BYTES) this.#response?.drained()
  }

  async *#body(): AsyncGenerator<Buffer> {
    while (true) {
      const piece = this.#pieces.shift()
      if (piece !== undefined) {
        yield piece
        continue
      }
      if (this.#isBodyOver) return
      this.#line.send(KIND.more, this.#id, '')
      await new Promise<void>(resolve => {
        this.#wake = resolve
      })
      this.#wake = null
    }
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

/** The requests of one front. */
export class ControlDoor {
  readonly #handle: HttpHandler
  readonly #line: Line
  readonly #open = new Map<number, ControlCall>()

  constructor(handle: HttpHandler, line: Line) {
    this.#handle = handle
    this.#line = line
  }

  begin(id: number, header: string): void {
    const ask = parseHeader(header) as unknown as ControlAsk
    const call = new ControlCall(this.#line, id, ask)
    this.#open.set(id, call)
    call.run(this.#handle, ask, () => this.#open.delete(id))
  }

  /** @returns false for a frame of somebody else */
  handleFrame(kind: Kind, id: number, header: string, body: Buffer): boolean {
    const call = this.#open.get(id)
    if (call === undefined) return false
    if (kind === KIND.chunk) call.take(body)
    else if (kind === KIND.end) call.endBody()
    else if (kind === KIND.more) call.grant(Number(parseHeader(header).bytes) || 0)
    else if (kind === KIND.cancel) {
      this.#open.delete(id)
      call.leave()
    }
    return true
  }

  /** The front is gone, and its clients with it. */
  close(): void {
    for (const call of this.#open.values()) call.leave()
    this.#open.clear()
  }
}

function toHead({ status, rawHeaders }: MemoryResponse): string {
  return JSON.stringify({ status, headers: rawHeaders })
}
