/** A kept result, read back as `ResultWriter` wrote it: its head, and its body as a stream. Owner: page jobs/file-store. */

import type { Readable } from 'node:stream'
import { StringDecoder } from 'node:string_decoder'
import { toHeaderRecord } from '../core/http-text.ts'
import { parseObject } from '../core/json.ts'
import type { Job, JobParts, ResultFacts } from './job.ts'

/** Bytes of the first line: headers of an answer are far fewer. */
const MAX_HEAD_BYTES = 1024 * 1024
const NEWLINE = 10

/** `body` must be read to its end or returned from. */
export interface JobResult extends ResultHead, ResultFacts {
  id: string
  body: AsyncGenerator<Buffer, void>
}

/** @returns null when the store has none */
export async function openResult(job: Job, store: Pick<JobParts, 'read'>): Promise<JobResult | null> {
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
export interface ResultHead {
  status: number
  /** Names and values in turn. */
  headers: readonly string[]
}

/** A result of any size as JSON text, piece by piece: `{id, status, headers, latency_ms, bytes, truncated, is_base64, body | body_base64}`. */
export async function* toResultJson(result: JobResult): AsyncGenerator<Buffer, void> {
  const { id, status, headers, latencyMs, bytes, truncated, isText } = result
  const facts = { id, status, headers: toHeaderRecord(headers), latency_ms: latencyMs, bytes, truncated }
  const field = isText ? 'body' : 'body_base64'
  const start = JSON.stringify({ ...facts, is_base64: !isText })
  // It holds back the start of a character, or of three bytes of base64; the cut end of a text becomes the mark of a broken character.
  const decoder = new StringDecoder(isText ? 'utf8' : 'base64')
  try {
    yield Buffer.from(`${start.slice(0, -1)},"${field}":"`)
    for await (const piece of result.body) yield toInside(decoder.write(piece))
    yield toInside(decoder.end())
    yield Buffer.from('"}')
  } finally {
    await result.body.return()
  }
}

/** Text as the inside of a JSON string. */
function toInside(text: string): Buffer {
  return Buffer.from(JSON.stringify(text).slice(1, -1))
}
