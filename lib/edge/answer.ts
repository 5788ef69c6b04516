/** What is passed on of an upstream's answer: its status and headers, and how large its body is when it is decoded. Spec: §2.10. */

import type { Transform } from 'node:stream'
import * as zlib from 'node:zlib'
import type { GatewayError } from '../core/errors.ts'
import { findUnsendable, withoutHeaders } from '../core/http-text.ts'
import { MAX_STATUS } from '../core/limits.ts'
import { HOP_BY_HOP, INTERNAL_PREFIX, takesOver } from '../invocation/forwarded-headers.ts'
import { prepareText, type ReplyHead } from '../invocation/response.ts'
import type { AnswerHead } from './answer-parser.ts'
import { failed } from './target.ts'

export function toTooLarge(maxBytes: number): GatewayError {
  return failed(`upstream response too large: the limit is ${maxBytes} bytes`)
}

/**
 * @param sharesOrigin - pages of functions have the origin of the console
 * @throws GatewayError for a head that cannot be passed on
 */
export function toAnswerHead(answer: AnswerHead, sharesOrigin: boolean): ReplyHead {
  const { status, coding, length, rawHeaders } = answer
  if (status === 101) throw failed('upstream asked for another protocol')
  if (status < 200 || status > MAX_STATUS) throw failed(`upstream answered with status ${status}`)
  // Codings before the last one would be passed on as if the body were plain.
  if (coding !== null && coding !== 'chunked' && coding !== 'identity')
    throw failed('upstream answered with a Transfer-Encoding other than chunked')
  const headers = toAnswerHeaders(rawHeaders, sharesOrigin)
  if (headers === null) throw failed('upstream answered with a malformed header')
  const head: ReplyHead = { status, headers, hasBody: status !== 204 && status !== 304, length, proxy: null }
  prepareText(head)
  return head
}

/** Headers of an answer that are not passed on: the gateway's own, and those of one connection. */
const NOT_PASSED_ON: ReadonlySet<string> = new Set([...HOP_BY_HOP, 'content-length', 'x-request-id'])

/**
 * An answer's headers as they are passed on; repeated ones stay apart.
 * @param rawHeaders - names and values in turn, as received
 * @returns null when one cannot be sent again
 */
export function toAnswerHeaders(rawHeaders: readonly string[], sharesOrigin = true): string[] | null {
  for (let i = 1; i < rawHeaders.length; i += 2) if (findUnsendable(rawHeaders[i]!) !== null) return null
  return withoutHeaders(
    rawHeaders,
    (name, value) =>
      NOT_PASSED_ON.has(name) || name.startsWith(INTERNAL_PREFIX) || takesOver(name, value, sharesOrigin),
  )
}

/** The codings of an answer's body, outermost last; `identity` is none. */
export function toCodings(rawHeaders: readonly string[]): string[] {
  const codings: string[] = []
  for (let i = 0; i < rawHeaders.length; i += 2) {
    if (rawHeaders[i]!.toLowerCase() === 'content-encoding')
      codings.push(...rawHeaders[i + 1]!.toLowerCase().split(','))
  }
  return codings.map(coding => coding.trim()).filter(coding => coding !== '' && coding !== 'identity')
}

/** Content codings of one answer that are undone to count its length. */
const MAX_EDGE_CODINGS = 4

const CHUNK = { chunkSize: 64 * 1024 } as const

type DecodedProblem = 'too large' | 'not decodable'

/**
 * Counts the bytes an encoded body has when it is decoded, without keeping them: a few bytes of gzip can stand for gigabytes at the decoder of
 * the answer.
 *
 *   piece ─► br ─► gzip ─► count        codings undone from the outermost; the piece itself is passed on unchanged
 */
export class DecodedSize {
  readonly #codings: readonly string[]
  readonly #maxBytes: number
  readonly #onEnd: (problem: DecodedProblem | null) => void
  #stages: Transform[] = []
  #bytes = 0
  /** Callbacks of the pieces that are being counted, in order. */
  #counting: (() => void)[] = []
  /** The encoded data ended; what follows it means nothing to a decoder. */
  #isOver = false
  /** No more pieces come. */
  #isLast = false

  /**
   * @param codings - outermost last, all of them known
   * @param onEnd - called once: with a problem, or when the body is over and all of it is counted
   */
  constructor(codings: readonly string[], maxBytes: number, onEnd: (problem: DecodedProblem | null) => void) {
    this.#codings = codings
    this.#maxBytes = maxBytes
    this.#onEnd = onEnd
  }

  /** True when every coding can be undone; with others the decoded length cannot be known. */
  static canCount(codings: readonly string[]): boolean {
    return codings.length <= MAX_EDGE_CODINGS && codings.every(coding => DECODERS[coding] !== undefined)
  }

  /** @param counted - called when the piece is counted and is not too large */
  add(piece: Buffer, counted: () => void): void {
    if (this.#isOver) {
      counted()
      return
    }
    if (this.#stages.length === 0) this.#open(piece)
    this.#counting.push(counted)
    this.#stages[0]!.write(piece, error => {
      if (!error) this.#counting.shift()?.()
    })
  }

  /** The body is over. */
  end(): void {
    this.#isLast = true
    if (this.#isOver || this.#stages.length === 0) this.#onEnd(null)
    else this.#stages[0]!.end()
  }

  /** Frees the decoders; no callback follows. */
  close(): void {
    this.#isOver = true
    this.#isLast = false
    this.#counting = []
    for (const stage of this.#stages) stage.destroy()
  }

  #open(first: Buffer): void {
    this.#stages = [...this.#codings].reverse().map((coding, index) => DECODERS[coding]!(index === 0 ? first : null))
    for (const [index, stage] of this.#stages.entries()) {
      stage.on('error', () => this.#fail('not decodable'))
      const next = this.#stages[index + 1]
      if (next !== undefined) stage.pipe(next)
    }
    const last = this.#stages.at(-1)!
    last.on('data', (bytes: Buffer) => {
      this.#bytes += bytes.length
      if (this.#bytes > this.#maxBytes) this.#fail('too large')
    })
    last.on('end', () => {
      this.#isOver = true
      for (const counted of this.#counting.splice(0)) counted()
      if (this.#isLast) this.#onEnd(null)
    })
  }

  #fail(problem: DecodedProblem): void {
    if (this.#isOver) return
    this.close()
    this.#onEnd(problem)
  }
}

type Decoder = (first: Buffer | null) => Transform

const gunzip: Decoder = () => zlib.createGunzip(CHUNK)

const DECODERS: Readonly<Record<string, Decoder>> = {
  __proto__: null as never,
  gzip: gunzip,
  'x-gzip': gunzip,
  // Servers send both forms under this name; the first byte of the wrapped one says so (RFC 1950).
  deflate: first => (((first?.[0] ?? 0x78) & 0x0f) === 8 ? zlib.createInflate(CHUNK) : zlib.createInflateRaw(CHUNK)),
  br: () => zlib.createBrotliDecompress(CHUNK),
}
