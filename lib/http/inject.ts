/** Requests without a port: the public handler called with an in-memory request and response, or with those of the web. Owner: §1 (embedding). */

import { EventEmitter } from 'node:events'
import { Readable } from 'node:stream'
import { headerOf } from '../core/http-text.ts'
import type { HttpResponse, HttpSocket } from './exchange.ts'
import type { HttpHandler } from './public.ts'

/** A request for `gateway.inject()`. */
export interface InjectRequest {
  /** `GET` by default. */
  method?: string
  /** Path with query, or an absolute URL whose host becomes `Host`. */
  url: string
  /** An array repeats the header. */
  headers?: Readonly<Record<string, string | readonly string[]>>
  /** Text and bytes are sent unchanged, other values as JSON. */
  body?: unknown
  /** Alias of `body`. */
  payload?: unknown
  /** Added to the query of `url`. An array repeats the key. */
  query?: string | Readonly<Record<string, unknown>>
  /** Client address; 127.0.0.1 by default. */
  remoteAddress?: string
}

/** The response to an injected request. */
export interface InjectResponse {
  status: number
  /** Lower-case names; repeated headers joined by `, `. */
  headers: Record<string, string>
  /** Names and values in turn, as sent. */
  rawHeaders: string[]
  body: Buffer
  /** The body as UTF-8 text. */
  text: () => string
  /** The body parsed as JSON. @throws SyntaxError */
  json: () => unknown
}

/**
 * Answers one request in memory.
 * @throws Error when the answer was cut off
 */
export function inject(handle: HttpHandler, request: InjectRequest): Promise<InjectResponse> {
  const { method = 'GET', headers: given = {}, query, remoteAddress } = request
  const headers = Object.entries(given).flatMap(([name, values]) => [values].flat().flatMap(value => [name, value]))
  const body = toBody(request.body ?? request.payload ?? null, headers)
  const url = toTarget(withQuery(request.url, query), headers)
  if (body !== null && headerOf(headers, 'content-length') === null && headerOf(headers, 'transfer-encoding') === null)
    headers.push('Content-Length', String(body.length))
  return new Promise((resolve, reject) => {
    const socket = new MemorySocket(remoteAddress)
    const chunks: Buffer[] = []
    const res = new MemoryResponse(socket, {
      onHead: () => {},
      onChunk: chunk => chunks.push(chunk) > 0,
      onEnd: () => {
        const { status, rawHeaders } = res
        const bytes = Buffer.concat(chunks)
        const text = () => bytes.toString('utf8')
        const json = () => JSON.parse(text())
        resolve({ status, headers: joinHeaders(rawHeaders), rawHeaders, body: bytes, text, json })
        socket.close()
      },
      onCut: () => reject(new Error('answer was cut off')),
    })
    handle(new MemoryRequest(socket, method, url, headers, body === null ? [] : [body]), res)
  })
}

/** A client connection that exists in memory only. */
export class MemorySocket extends EventEmitter implements HttpSocket {
  readonly remoteAddress: string
  #isOpen = true

  constructor(remoteAddress = '127.0.0.1') {
    super()
    this.remoteAddress = remoteAddress
  }

  setTimeout(): void {}

  end(): void {}

  /** The client is gone, or done. */
  close(): void {
    if (!this.#isOpen) return
    this.#isOpen = false
    this.emit('close')
  }
}

/** A request whose body comes from memory or from another stream. */
export class MemoryRequest extends Readable {
  readonly socket: MemorySocket
  readonly method: string
  readonly url: string
  readonly rawHeaders: string[]
  readonly httpVersion = '1.1'
  complete = false
  readonly #source: AsyncIterator<Uint8Array> | Iterator<Uint8Array>
  readonly #onBroken: (error: unknown) => void

  /** @param onBroken - called when the body's source fails */
  constructor(
    socket: MemorySocket,
    method: string,
    url: string,
    rawHeaders: string[],
    body: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
    onBroken: (error: unknown) => void = () => {},
  ) {
    super()
    this.#onBroken = onBroken
    this.socket = socket
    this.method = method
    this.url = url
    this.rawHeaders = rawHeaders
    this.#source = Symbol.asyncIterator in body ? body[Symbol.asyncIterator]() : body[Symbol.iterator]()
    socket.once('close', () => this.destroy())
  }

  override _read(): void {
    this.#readNext().catch(this.#onBroken)
  }

  async #readNext(): Promise<void> {
    const { done, value } = await this.#source.next()
    if (this.destroyed) return
    if (done) this.complete = true
    this.push(done ? null : Buffer.from(value))
  }

  override _destroy(_error: Error | null, callback: (error?: Error | null) => void): void {
    // A client that goes away is not an error of the gateway (as in node's own requests).
    void Promise.resolve(this.#source.return?.()).catch(() => {})
    callback(null)
  }
}

interface MemorySink {
  onHead: () => void
  /** @returns false when the reader is slow; it calls `MemoryResponse.drained` when it has caught up */
  onChunk: (chunk: Buffer) => boolean
  onEnd: () => void
  /** The answer broke off. */
  onCut: () => void
}

/** A response that goes to a sink instead of a socket. */
export class MemoryResponse extends EventEmitter implements HttpResponse {
  shouldKeepAlive = true
  headersSent = false
  writableFinished = false
  status = 0
  rawHeaders: string[] = []
  readonly socket: MemorySocket
  readonly #sink: MemorySink
  #isOver = false

  constructor(socket: MemorySocket, sink: MemorySink) {
    super()
    this.socket = socket
    this.#sink = sink
    socket.once('close', () => {
      this.#isOver = true
      this.emit('close')
    })
  }

  writeContinue(): void {}

  writeHead(status: number, headers: string[]): void {
    this.status = status
    this.rawHeaders = headers
    this.headersSent = true
    this.#sink.onHead()
  }

  flushHeaders(): void {}

  write(chunk: Buffer | string, encoding?: BufferEncoding): boolean {
    if (this.#isOver) return true
    return this.#sink.onChunk(typeof chunk === 'string' ? Buffer.from(chunk, encoding) : chunk)
  }

  end(chunk?: Buffer | string, encoding?: BufferEncoding): void {
    if (this.#isOver) return
    if (chunk !== undefined) this.write(chunk, encoding)
    this.#isOver = true
    this.writableFinished = true
    this.#sink.onEnd()
    this.emit('finish')
  }

  destroy(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#sink.onCut()
    this.socket.close()
  }

  drained(): void {
    this.emit('drain')
  }
}

/** Bytes of a body; one that is written as JSON gets the type of JSON, unless there is one. */
function toBody(body: unknown, headers: string[]): Buffer | null {
  if (body === null) return null
  if (typeof body === 'string') return Buffer.from(body)
  if (body instanceof Uint8Array) return Buffer.from(body)
  if (headerOf(headers, 'content-type') === null) headers.push('Content-Type', 'application/json')
  return Buffer.from(JSON.stringify(body))
}

function withQuery(url: string, query: InjectRequest['query']): string {
  if (query === undefined) return url
  const [before = '', hash] = url.split('#', 2)
  const text = typeof query === 'string' ? query.replace(/^\?/, '') : toSearch(query)
  const joined = text === '' ? before : `${before}${before.includes('?') ? '&' : '?'}${text}`
  return hash === undefined ? joined : `${joined}#${hash}`
}

function toSearch(query: Readonly<Record<string, unknown>>): string {
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) {
    for (const item of Array.isArray(value) ? value : [value]) if (item !== undefined) search.append(name, String(item))
  }
  return search.toString()
}

/** The target of a request. The host of an absolute URL becomes the Host header that HTTP/1.1 wants, unless there is one. */
function toTarget(url: string, headers: string[]): string {
  const [, host = 'localhost', rest = url] = /^https?:\/\/([^/?#]+)([^#]*)/i.exec(url) ?? []
  if (headerOf(headers, 'host') === null) headers.push('Host', host)
  return rest !== url && !rest.startsWith('/') ? `/${rest}` : rest
}

function joinHeaders(rawHeaders: readonly string[]): Record<string, string> {
  const joined: Record<string, string> = Object.create(null)
  for (const [name, value] of toPairs(rawHeaders)) {
    const lower = name.toLowerCase()
    joined[lower] = joined[lower] === undefined ? value : `${joined[lower]}, ${value}`
  }
  return joined
}

function toPairs(rawHeaders: readonly string[]): [name: string, value: string][] {
  return rawHeaders.flatMap((name, index) => (index % 2 === 0 ? [[name, rawHeaders[index + 1]!]] : []))
}

/** Statuses whose Response may not have a body (fetch standard). */
const NULL_BODY_STATUS: ReadonlySet<number> = new Set([204, 205, 304])

/** Input of `fetch` as a Request; a path alone is one of `http://localhost`. */
export function toWebRequest(request: Request | string | URL, init?: RequestInit): Request {
  return new Request(typeof request === 'string' ? new URL(request, 'http://localhost') : request, init)
}

/**
 * Answers a web Request with a Response, both bodies streamed. Aborting its signal, or cancelling the response's body, is the client leaving.
 * @throws the signal's reason when aborted before the head; TypeError when the answer is cut off before it
 */
export function fetchWith(handle: HttpHandler, request: Request): Promise<Response> {
  const { method, signal } = request
  const headers = [...request.headers].flat()
  const url = toTarget(request.url, headers)
  const body = request.body === null ? [] : (request.body as unknown as AsyncIterable<Uint8Array>)
  if (request.body !== null && !request.headers.has('content-length')) headers.push('Transfer-Encoding', 'chunked')
  return new Promise((resolve, reject) => {
    const socket = new MemorySocket()
    /** Null once the answer's body is over. */
    let controller: ReadableStreamDefaultController<Uint8Array> | null = null
    const stream = new ReadableStream<Uint8Array>({
      start: opened => {
        controller = opened
      },
      pull: () => res.drained(),
      cancel: () => socket.close(),
    })
    const fail = (reason: unknown): void => {
      reject(reason)
      controller?.error(reason)
      controller = null
    }
    const leave = (reason: unknown): void => {
      socket.close()
      fail(reason)
    }
    const onAbort = (): void => leave(signal.reason)
    const finish = (): void => {
      signal.removeEventListener('abort', onAbort)
      socket.close()
    }
    const res = new MemoryResponse(socket, {
      onHead: () => {
        const isNullBody = NULL_BODY_STATUS.has(res.status) || method === 'HEAD'
        resolve(new Response(isNullBody ? null : stream, { status: res.status, headers: toPairs(res.rawHeaders) }))
      },
      onChunk: chunk => {
        controller?.enqueue(new Uint8Array(chunk))
        return (controller?.desiredSize ?? 1) > 0
      },
      onEnd: () => {
        controller?.close()
        controller = null
        finish()
      },
      onCut: () => {
        fail(new TypeError('answer was cut off'))
        finish()
      },
    })
    if (signal.aborted) {
      onAbort()
      return
    }
    signal.addEventListener('abort', onAbort, { once: true })
    handle(new MemoryRequest(socket, method, url, headers, body, leave), res)
  })
}
