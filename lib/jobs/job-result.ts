/** A kept result, read back as it was written: its head, and its body as a stream. Owner: page jobs/file-store. */

import type { Readable } from 'node:stream'
import { StringDecoder } from 'node:string_decoder'
import { toHeaderRecord } from '../core/http-text.ts'
import { parseObject } from '../core/json.ts'
import type { BodySink } from '../invocation/internal-call.ts'
import type { Job, JobStore, PartWriter, ResultFacts } from './job.ts'

/** Bytes of the first line: headers of an answer are far fewer. */
const MAX_HEAD_BYTES = 1024 * 1024
const NEWLINE = 10

/** `body` must be read to its end or returned from. */
export interface JobResult extends ResultHead, ResultFacts {
  id: string
  body: AsyncGenerator<Buffer, void>
}

/** @returns null when the store has none */
export async function openResult(job: Job, store: JobStore): Promise<JobResult | null> {
  if (job.result === null) return null
  const part = await store.read(job.id, 'result')
  if (part === null) return null
  const body = readPieces(part)
  const head = toHead(parseObject(String((await body.next()).value)))
  if (head !== null) return { id: job.id, ...head, ...job.result, body }
  await body.return()
  return null
}

/** The first line, then the bytes behind it as they are read. */
async function* readPieces(part: Readable): AsyncGenerator<Buffer, void> {
  let start: Buffer | null = Buffer.alloc(0)
  try {
    for await (const piece of part as AsyncIterable<Buffer>) {
      if (start === null) {
        yield piece
        continue
      }
      start = Buffer.concat([start, piece])
      const end: number = start.indexOf(NEWLINE)
      if (end === -1 && start.length > MAX_HEAD_BYTES) return
      if (end === -1) continue
      yield start.subarray(0, end)
      if (end + 1 < start.length) yield start.subarray(end + 1)
      start = null
    }
  } finally {
    part.destroy()
  }
}

function toHead(value: Readonly<Record<string, unknown>> | null): ResultHead | null {
  if (typeof value?.status !== 'number' || !Array.isArray(value.headers)) return null
  return { status: value.status, headers: value.headers.map(String) }
}

/** First line of a kept result. */
interface ResultHead {
  status: number
  /** Names and values in turn. */
  headers: readonly string[]
}

interface ResultWriterOptions {
  open: () => Promise<PartWriter>
  /** Bytes of the body that are kept; 0 keeps all. */
  maxBytes: number
  /** Called when the limit is reached: the handler can be stopped. */
  onFull: () => void
}

/**
 * Writes the response of a job into the store: a line of JSON with status and headers, then the bytes of the body. Memory holds one
 * piece at a time.
 */
export class ResultWriter implements BodySink {
  readonly #options: ResultWriterOptions
  readonly #text = new TextCheck()
  #part: PartWriter | null = null
  #head: ResultHead | null = null
  bytes = 0
  truncated = false
  /** Why the result cannot be kept, such as a full disk; null while it can. The handler goes on all the same. */
  problem: string | null = null

  constructor(options: ResultWriterOptions) {
    this.#options = options
  }

  /** null while no answer has begun. */
  get status(): number | null {
    return this.#head?.status ?? null
  }

  begin(status: number, headers: readonly string[]): void {
    this.#head = { status, headers }
  }

  async write(piece: Buffer): Promise<void> {
    if (this.truncated || this.problem !== null) return
    const { maxBytes } = this.#options
    const room = maxBytes === 0 ? piece.length : Math.min(piece.length, maxBytes - this.bytes)
    const kept = piece.subarray(0, room)
    this.#text.add(kept)
    if (!(await this.#tryTo(part => part.write(kept)))) return
    this.bytes += room
    if (room === piece.length) return
    this.truncated = true
    this.#options.onFull()
  }

  /** Keeps what was written. @returns whether the body is text; null when there was no answer, or it cannot be kept */
  async end(): Promise<{ isText: boolean } | null> {
    if (this.#head === null) {
      await this.#part?.discard()
      return null
    }
    if (this.problem !== null || !(await this.#tryTo(part => part.end()))) return null
    // A cut may go through a character.
    if (!this.truncated) this.#text.end()
    return { isText: this.#text.isText }
  }

  async discard(): Promise<void> {
    await this.#part?.discard()
    this.#part = null
  }

  async #tryTo(work: (part: PartWriter) => Promise<void>): Promise<boolean> {
    try {
      await work(await this.#open())
      return true
    } catch (error) {
      this.problem = (error as Error).message
      await this.discard()
      return false
    }
  }

  async #open(): Promise<PartWriter> {
    if (this.#part === null) {
      this.#part = await this.#options.open()
      await this.#part.write(Buffer.from(`${JSON.stringify(this.#head)}\n`))
    }
    return this.#part
  }
}

/** Whether bytes that come in pieces are UTF-8, cuts inside characters included. */
export class TextCheck {
  readonly #decoder = new TextDecoder('utf-8', { fatal: true })
  isText = true

  add(piece: Buffer): void {
    if (this.isText) this.#decode(piece)
  }

  /** Checks that the last character is finished. */
  end(): void {
    if (this.isText) this.#decode()
  }

  #decode(piece?: Buffer): void {
    try {
      this.#decoder.decode(piece, { stream: piece !== undefined })
    } catch {
      this.isText = false
    }
  }
}

/** A result of any size as JSON text, piece by piece: `{id, status, headers, latency_ms, bytes, truncated, is_base64, body | body_base64}`. */
export async function* toResultJson(result: JobResult): AsyncGenerator<Buffer, void> {
  const { id, status, headers, latencyMs, bytes, truncated, isText } = result
  const facts = { id, status, headers: toHeaderRecord(headers), latency_ms: latencyMs, bytes, truncated }
  const field = isText ? 'body' : 'body_base64'
  const start = JSON.stringify({ ...facts, is_base64: !isText })
  try {
    yield Buffer.from(`${start.slice(0, -1)},"${field}":"`)
    yield* isText ? toEscaped(result.body) : toBase64(result.body)
    yield Buffer.from('"}')
  } finally {
    await result.body.return()
  }
}

/** Text as the inside of a JSON string; a cut at the end of a truncated one becomes the mark of a broken character. */
async function* toEscaped(pieces: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void> {
  const decoder = new StringDecoder('utf8')
  for await (const piece of pieces) yield Buffer.from(JSON.stringify(decoder.write(piece)).slice(1, -1))
  yield Buffer.from(JSON.stringify(decoder.end()).slice(1, -1))
}

async function* toBase64(pieces: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void> {
  let rest: Buffer = Buffer.alloc(0)
  for await (const piece of pieces) {
    const bytes = rest.length === 0 ? piece : Buffer.concat([rest, piece])
    // Three bytes make four characters; less would end the text.
    const whole = bytes.length - (bytes.length % 3)
    yield Buffer.from(bytes.toString('base64', 0, whole), 'latin1')
    rest = Buffer.from(bytes.subarray(whole))
  }
  yield Buffer.from(rest.toString('base64'), 'latin1')
}
