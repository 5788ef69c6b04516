/** Requests without a port: the public handler called with an in-memory request and response, or with those of the web. Owner: §1 (embedding). */

import { EventEmitter } from 'node:events'
import { Readable } from 'node:stream'
import type { HttpResponse, HttpSocket } from './exchange.ts'
import type { HttpHandler } from './public.ts'

export interface InjectRequest {
  method?: string
  /** Path with query, or an absolute URL whose host becomes `Host`. */
  url: string
  /** Values that are arrays repeat the header. */
  headers?: Readonly<Record<string, string | readonly string[]>>
  /** Text or bytes as they are; anything else is sent as JSON. */
  body?: unknown
  /** Another name of `body`. */
  payload?: unknown
  /** Goes behind the URL's own query; a list repeats the key. */
  query?: string | Readonly<Record<string, unknown>>
  /** Address the request seems to come from; loopback when absent. */
  remoteAddress?: string
}

export interface InjectResponse {
  status: number
  /** Lower-case names; repeated headers joined by `, `. */
  headers: Record<string, string>
  /** Names and values in turn, as sent. */
  rawHeaders: string[]
  body: Buffer
  text: () => string
  json: () => unknown
}

/**
 * Answers one request in memory.
 * @throws Error when the answer was cut off
 */
export function inject(handle: HttpHandler, request: InjectRequest): Promise<InjectResponse> {
  const raw = toRawHeaders(request.headers ?? {})
  const body = toBody(request.body ?? request.payload ?? null, raw)
  const { url, headers } = toTarget(withQuery(request.url, request.query), raw)
  if (body !== null && !hasHeader(headers, 'content-length') && !hasHeader(headers, 'transfer-encoding'))
    headers.push('Content-Length', String(body.length))
  return new Promise((resolve, reject) => {
    const socket = new MemorySocket(request.remoteAddress)
    const req = new MemoryRequest(socket, request.method ?? 'GET', url, headers, body === null ? [] : [body])
    const chunks: Buffer[] = []
    const res = new MemoryResponse(socket, {
      onHead: () => {},
      onChunk: chunk => {
        chunks.push(chunk)
        return true
      },
      onEnd: () => {
        const bytes = Buffer.concat(chunks)
        resolve({
          status: res.status,
          headers: joinHeaders(res.rawHeaders),
          rawHeaders: res.rawHeaders,
          body: bytes,
          text: () => bytes.toString('utf8'),
          json: () => JSON.parse(bytes.toString('utf8')),
        })
        socket.close()
      },
      onCut: () => reject(new Error('answer was cut off')),
    })
    handle(req, res)
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

  setTimeout(): this {
    return this
  }

  end(): this {
    return this
  }

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
    this.#readNext().catch(error => this.#onBroken(error))
  }

  async #readNext(): Promise<void> {
    const { done, value } = await this.#source.next()
    if (this.destroyed) return
    if (done) {
      this.complete = true
      this.push(null)
    } else {
      this.push(Buffer.from(value))
    }
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

  writeHead(status: number, headers: string[]): this {
    this.status = status
    this.rawHeaders = headers
    this.headersSent = true
    this.#sink.onHead()
    return this
  }

  flushHeaders(): void {}

  write(chunk: Buffer | string, encoding?: BufferEncoding): boolean {
    if (this.#isOver) return true
    return this.#sink.onChunk(typeof chunk === 'string' ? Buffer.from(chunk, encoding) : chunk)
  }

  end(chunk?: Buffer | string, encoding?: BufferEncoding): this {
    if (this.#isOver) return this
    if (chunk !== undefined) this.write(chunk, encoding)
    this.#isOver = true
    this.writableFinished = true
    this.#sink.onEnd()
    this.emit('finish')
    return this
  }

  destroy(): this {
    if (this.#isOver) return this
    this.#isOver = true
    this.#sink.onCut()
    this.socket.close()
    return this
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
  if (!hasHeader(headers, 'content-type')) headers.push('Content-Type', 'application/json')
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

function toRawHeaders(headers: Readonly<Record<string, string | readonly string[]>>): string[] {
  const raw: string[] = []
  for (const [name, value] of Object.entries(headers)) {
    for (const item of typeof value === 'string' ? [value] : value) raw.push(name, item)
  }
  return raw
}

/** Takes the host out of an absolute URL, and adds the Host header that HTTP/1.1 wants. */
export function toTarget(url: string, headers: string[]): { url: string; headers: string[] } {
  const match = /^https?:\/\/([^/?#]+)([^#]*)/i.exec(url)
  const rest = match?.[2] ?? url
  if (!hasHeader(headers, 'host')) headers.push('Host', match?.[1] ?? 'localhost')
  return { url: match !== null && !rest.startsWith('/') ? `/${rest}` : rest, headers }
}

function hasHeader(headers: readonly string[], lowerName: string): boolean {
  return headers.some((text, index) => index % 2 === 0 && text.toLowerCase() === lowerName)
}

function joinHeaders(rawHeaders: readonly string[]): Record<string, string> {
  const joined: Record<string, string> = Object.create(null)
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]!.toLowerCase()
    joined[name] = joined[name] === undefined ? rawHeaders[i + 1]! : `${joined[name]}, ${rawHeaders[i + 1]}`
  }
  return joined
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
  const { url, headers } = toTarget(request.url, [...request.headers].flat())
  const socket = new MemorySocket()
  const body = request.body === null ? [] : (request.body as unknown as AsyncIterable<Uint8Array>)
  if (request.body !== null && !request.headers.has('content-length')) headers.push('Transfer-Encoding', 'chunked')
  return new Promise((resolve, reject) => {
    const onBroken = (error: unknown) => {
      socket.close()
      reject(error)
      failStream(error)
    }
    const req = new MemoryRequest(socket, request.method, url, headers, body, onBroken)
    let controller: ReadableStreamDefaultController<Uint8Array> | null = null
    const stream = new ReadableStream<Uint8Array>({
      start: opened => {
        controller = opened
      },
      pull: () => res.drained(),
      cancel: () => socket.close(),
    })
    const onAbort = () => onBroken(request.signal.reason)
    const failStream = (reason: unknown) => {
      controller?.error(reason)
      controller = null
    }
    const finish = () => {
      request.signal.removeEventListener('abort', onAbort)
      socket.close()
    }
    const res = new MemoryResponse(socket, {
      onHead: () => {
        const isNullBody = NULL_BODY_STATUS.has(res.status) || request.method === 'HEAD'
        const pairs: [string, string][] = []
        for (let i = 0; i + 1 < res.rawHeaders.length; i += 2) pairs.push([res.rawHeaders[i]!, res.rawHeaders[i + 1]!])
        resolve(new Response(isNullBody ? null : stream, { status: res.status, headers: pairs }))
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
        const error = new TypeError('answer was cut off')
        reject(error)
        failStream(error)
        finish()
      },
    })
    if (request.signal.aborted) {
      onAbort()
      return
    }
    request.signal.addEventListener('abort', onAbort, { once: true })
    handle(req, res)
  })
}
