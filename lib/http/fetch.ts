/** The web-shaped door: a `Request` in, a `Response` out, both bodies streamed. Owner: §1 (embedding). */

import { MemoryRequest, MemoryResponse, MemorySocket, toTarget } from './inject.ts'
import type { HttpHandler } from './public.ts'

/** Statuses whose Response may not have a body (fetch standard). */
const NULL_BODY_STATUS: ReadonlySet<number> = new Set([204, 205, 304])

/** What `fetch` takes as a Request; a path alone is one of `http://localhost`. */
export function toWebRequest(request: Request | string | URL, init?: RequestInit): Request {
  return new Request(typeof request === 'string' ? new URL(request, 'http://localhost') : request, init)
}

/**
 * Answers a web Request. Aborting its signal, or cancelling the response's body, is the client leaving.
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
