/** A result of any size as one JSON text, made piece by piece. Spec: page control/jobs-endpoints. */

import { StringDecoder } from 'node:string_decoder'
import { toHeaderObject } from './callback-sender.ts'
import type { JobResult } from './job-result.ts'

/** `{id, status, headers, latency_ms, bytes, truncated, is_base64, body | body_base64}`. */
export async function* toResultJson(result: JobResult): AsyncGenerator<Buffer, void> {
  const { id, status, headers, latencyMs, bytes, truncated, isText } = result
  const facts = { id, status, headers: toHeaderObject(headers), latency_ms: latencyMs, bytes, truncated }
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
