/** A kept result, read back as it was written: its head, and its body as a stream. Owner: page jobs/file-store. */

import type { Readable } from 'node:stream'
import { isObject } from '../core/json.ts'
import type { Job, ResultFacts } from './job.ts'
import type { ResultHead } from './result-writer.ts'
import type { JobStore } from './job-store.ts'

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
  const pieces = part[Symbol.asyncIterator]() as AsyncIterator<Buffer>
  const { head, rest } = await readHead(pieces)
  if (head === null) {
    part.destroy()
    return null
  }
  return { id: job.id, ...head, ...job.result, body: closing(readBody(part, pieces, rest), part) }
}

/** A generator that was not begun runs nothing when it is returned from: the part is closed beside it. */
function closing(body: AsyncGenerator<Buffer, void>, part: Readable): AsyncGenerator<Buffer, void> {
  const end = body.return.bind(body)
  body.return = value => {
    part.destroy()
    return end(value)
  }
  return body
}

async function readHead(pieces: AsyncIterator<Buffer>): Promise<{ head: ResultHead | null; rest: Buffer }> {
  let bytes: Buffer = Buffer.alloc(0)
  for (;;) {
    const end = bytes.indexOf(NEWLINE)
    if (end !== -1) return { head: toHead(bytes.toString('utf8', 0, end)), rest: bytes.subarray(end + 1) }
    const next = await pieces.next()
    if (next.done === true || bytes.length > MAX_HEAD_BYTES) return { head: null, rest: bytes }
    bytes = bytes.length === 0 ? next.value : Buffer.concat([bytes, next.value])
  }
}

function toHead(json: string): ResultHead | null {
  try {
    const value: unknown = JSON.parse(json)
    if (!isObject(value) || typeof value.status !== 'number' || !Array.isArray(value.headers)) return null
    return { status: value.status, headers: value.headers.map(String) }
  } catch {
    return null
  }
}

async function* readBody(part: Readable, pieces: AsyncIterator<Buffer>, rest: Buffer): AsyncGenerator<Buffer, void> {
  try {
    if (rest.length > 0) yield rest
    for (let next = await pieces.next(); next.done !== true; next = await pieces.next()) yield next.value
  } finally {
    part.destroy()
  }
}
