/** Sends a request of the page Try: to the function that answers it, through `POST /_fn/invoke`, or where none does, to the URL itself. Owner: page console/try. */

import { ApiError, get, request as callApi, toUrl } from '../../data/api.ts'
import { readJsonLines } from '../../data/ndjson.ts'
import type { Explanation } from '../../data/records.ts'
import { formatBytes } from '../../format.ts'
import { gatewayUrl } from '../../router.ts'
import { fromBase64, toBase64 } from '../../preview.ts'
import { askPublicOrigin } from './public-origin.ts'
import { type HeaderPair, toBody, toHeaders, toQuery, type TryRequest } from './try-request.ts'

interface Timing {
  /** Milliseconds; null where it is not known. */
  readonly queue_ms: number | null
  readonly worker_ms: number | null
  readonly total_ms: number
}

export interface TryAnswer {
  /** null until the head of the answer is there. */
  readonly status: number | null
  readonly headers: readonly HeaderPair[]
  readonly body: Uint8Array
  /** Pieces in which the body came. */
  readonly chunks: number
  readonly isDone: boolean
  readonly timing: Timing | null
  readonly requestId: string | null
  readonly traceId: string | null
  readonly stdout: string
  readonly stderr: string
  /** Frames of the function where it failed, in development; '' for none. */
  readonly stack: string
  /** Why there is no response, or why it was interrupted. */
  readonly error: string | null
  /** Function that answered, `node/hello@default`; null when the URL was asked itself. */
  readonly by: string | null
}

export const NO_ANSWER: TryAnswer = {
  status: null,
  headers: [],
  body: new Uint8Array(0),
  chunks: 0,
  isDone: false,
  timing: null,
  requestId: null,
  traceId: null,
  stdout: '',
  stderr: '',
  stack: '',
  error: null,
  by: null,
}

/** Bytes of a body that fit, as base64, into a call of `/_fn/invoke`. */
const MAX_INVOKE_BYTES = 5 * 1024 * 1024
/** Bytes of an answer; some streams have no end. */
const MAX_SHOWN_BYTES = 32 * 1024 * 1024
/** Milliseconds between two drawings of an answer that comes in many pieces. */
const DRAW_MS = 50

type Notify = (answer: TryAnswer) => void
type Body = Awaited<ReturnType<typeof toBody>>

/** The whole URL of a request, its path escaped. */
export function toPublicUrl(path: string, origin: string = gatewayUrl.origin): URL {
  // Not resolved against the base: a path that begins with two slashes would be another host.
  return new URL(origin + path)
}

/** Headers of a request with what its body adds. */
function toAllHeaders(request: TryRequest, body: Body): HeaderPair[] {
  const headers = toHeaders(request).filter(([name]) => body?.type == null || name.toLowerCase() !== 'content-type')
  return body?.type == null ? headers : [...headers, ['Content-Type', body.type]]
}

function headerOf(headers: readonly HeaderPair[], wanted: string): string | null {
  return headers.find(([name]) => name.toLowerCase() === wanted)?.[1] ?? null
}

/** The route that serves a request. @throws ApiError */
function askWho(method: string, url: URL, host: string): Promise<Explanation> {
  return get<Explanation>('/_fn/explain', { method, path: url.pathname, host })
}

/** The fields of a call of `/_fn/invoke` and of a job; null when no function answers the request. */
export async function toCall(request: TryRequest): Promise<Record<string, unknown> | null> {
  const url = toPublicUrl(request.path)
  const body = await toBody(request)
  const headers = toAllHeaders(request, body)
  const { winner, beside } = await askWho(request.method, url, headerOf(headers, 'host') ?? gatewayUrl.host)
  if (winner === null || beside !== null || (body?.bytes.length ?? 0) > MAX_INVOKE_BYTES) return null
  return {
    name: winner.name,
    runtime: winner.runtime,
    ...(winner.version !== null && { version: winner.version }),
    method: request.method,
    route: url.pathname,
    query: toQuery(url.search),
    headers: toHeaderRecord(headers),
    ...(body !== null && { body_base64: toBase64(body.bytes) }),
  }
}

/** One that comes again is one with its values joined, as HTTP reads them. */
function toHeaderRecord(headers: readonly HeaderPair[]): Record<string, string> {
  const record: Record<string, string> = Object.create(null)
  for (const [written, value] of headers) {
    const name = written.toLowerCase()
    const known = record[name]
    record[name] = known === undefined ? value : `${known}, ${value}`
  }
  return record
}

/** Sends it and reports the response as it arrives. Never rejects. */
export async function sendRequest(request: TryRequest, signal: AbortSignal, notify: Notify): Promise<TryAnswer> {
  let newest = NO_ANSWER
  let timer: ReturnType<typeof setTimeout> | undefined
  const draw = (): void => {
    clearTimeout(timer)
    timer = undefined
    if (!signal.aborted) notify(newest)
  }
  const notifyNow: Notify = answer => {
    const isNews = answer.isDone || answer.status !== newest.status
    newest = answer
    // Thousands of pieces a second must not hold up the page.
    if (isNews) draw()
    else timer ??= setTimeout(draw, DRAW_MS)
  }
  try {
    const call = await toCall(request)
    if (call === null) await askUrl(request, signal, notifyNow)
    else await invoke(call, signal, notifyNow)
  } catch (error) {
    const isPlain = error instanceof ApiError || error instanceof TooLarge || error instanceof Unreachable
    const why = signal.aborted ? 'stopped' : isPlain ? error.message : `no response: ${String(error)}`
    notifyNow({ ...newest, isDone: true, error: why })
  }
  return newest
}

/** Lines of an answer of `/_fn/invoke`. */
interface Head {
  status: number
  headers: Readonly<Record<string, string | string[]>>
}

interface End {
  timing: Timing
  request_id: string
  trace_id: string
  stdout: string
  stderr: string
  error: string | null
}

async function invoke(call: Record<string, unknown>, signal: AbortSignal, notify: Notify): Promise<void> {
  const by = `${String(call.runtime)}/${String(call.name)}@${String(call.version ?? 'default')}`
  let answer: Response
  try {
    const headers = { Accept: 'application/x-ndjson' }
    answer = await callApi('POST', toUrl('/_fn/invoke'), call, { signal, headers })
  } catch (error) {
    if (!(error instanceof ApiError) || error.status === 0) throw error
    notify({ ...NO_ANSWER, ...toFailure(error), by })
    return
  }
  let current: TryAnswer = { ...NO_ANSWER, by, requestId: answer.headers.get('x-request-id') }
  const pieces = new Pieces()
  for await (const value of readJsonLines(answer)) {
    const { head, chunk, end } = value as { head?: Head; chunk?: string; end?: End }
    if (head !== undefined) current = { ...current, ...toHead(head) }
    if (chunk !== undefined) current = { ...current, ...pieces.add(fromBase64(chunk)) }
    if (end !== undefined) current = { ...current, ...toEnd(end) }
    notify(current)
  }
  if (!current.isDone) notify({ ...current, isDone: true, error: 'the connection to the gateway was lost' })
}

function toHead({ status, headers }: Head): Partial<TryAnswer> {
  const pairs = Object.entries(headers).flatMap(([name, value]) => [value].flat().map((one): HeaderPair => [name, one]))
  return { status, headers: pairs }
}

function toEnd({ timing, request_id: requestId, trace_id: traceId, stdout, stderr, error }: End): Partial<TryAnswer> {
  return { timing, requestId, traceId, stdout, stderr, error, isDone: true }
}

/** A response of the gateway itself: what a client would see, and beside it what is known of the call. */
function toFailure({ status, body }: ApiError): Partial<TryAnswer> {
  const { timing = null, request_id = null, trace_id = null, stdout = '', stderr = '', ...shown } = body as Partial<End>
  const { detail } = shown as { detail?: { stack?: string } }
  return {
    status,
    headers: [['content-type', 'application/json']],
    body: new TextEncoder().encode(JSON.stringify(shown)),
    isDone: true,
    timing,
    requestId: request_id,
    traceId: trace_id,
    stdout,
    stderr,
    stack: detail?.stack ?? '',
  }
}

/** Bytes that come in pieces, in room that grows by doubling. */
class Pieces {
  #bytes = new Uint8Array(64 * 1024)
  #length = 0
  #count = 0

  /** @throws TooLarge */
  add(piece: Uint8Array): Pick<TryAnswer, 'body' | 'chunks'> {
    if (this.#length + piece.length > MAX_SHOWN_BYTES) throw new TooLarge()
    if (this.#length + piece.length > this.#bytes.length) {
      const larger = new Uint8Array(Math.max(this.#bytes.length * 2, this.#length + piece.length))
      larger.set(this.#bytes.subarray(0, this.#length))
      this.#bytes = larger
    }
    this.#bytes.set(piece, this.#length)
    this.#length += piece.length
    this.#count += 1
    return { body: this.#bytes.subarray(0, this.#length), chunks: this.#count }
  }
}

/** The console has a separate port without functions. */
class Unreachable extends Error {
  constructor(origin: string) {
    super(`no function serves this, and the console has a separate port and cannot send to ${origin}: use the command`)
  }
}

/** More than a page can hold; leaving it ends the call. */
class TooLarge extends Error {
  override message = `stopped: the response is larger than ${formatBytes(MAX_SHOWN_BYTES)}`
}

/** Assets, documents and the gateway's own refusals are of no function: the browser asks for them. Without the cookie of the console. */
async function askUrl(request: TryRequest, signal: AbortSignal, notify: Notify): Promise<void> {
  const { origin, isHere } = await askPublicOrigin()
  if (!isHere) throw new Unreachable(origin)
  const body = await toBody(request)
  const started = performance.now()
  const answer = await fetch(toPublicUrl(request.path), {
    method: request.method,
    headers: toAllHeaders(request, body) as [string, string][],
    ...(body !== null && { body: body.bytes as Uint8Array<ArrayBuffer> }),
    credentials: 'omit',
    cache: 'no-store',
    signal,
  })
  const pieces = new Pieces()
  const requestId = answer.headers.get('x-request-id')
  let current: TryAnswer = { ...NO_ANSWER, status: answer.status, headers: [...answer.headers], requestId }
  notify(current)
  const reader = answer.body?.getReader()
  try {
    for (;;) {
      const part = await reader?.read()
      if (part === undefined || part.done) break
      current = { ...current, ...pieces.add(part.value) }
      notify(current)
    }
  } finally {
    void reader?.cancel().catch(() => {})
  }
  const timing = { queue_ms: null, worker_ms: null, total_ms: performance.now() - started }
  notify({ ...current, isDone: true, timing })
}
