/**
 * Counts the bytes an encoded body has when it is decoded, without keeping them: a few bytes of gzip can stand for
 * gigabytes at whoever decodes the answer. Spec: §2.10.
 *
 *   piece ─► br ─► gzip ─► count        codings undone from the outermost; the piece itself is passed on unchanged
 */

import type { Transform } from 'node:stream'
import * as zlib from 'node:zlib'

/** Content codings of one answer that are undone to count its length. */
const MAX_EDGE_CODINGS = 4

const CHUNK = { chunkSize: 64 * 1024 } as const

export type DecodedProblem = 'too large' | 'not decodable'

export class DecodedSize {
  readonly #codings: readonly string[]
  readonly #maxBytes: number
  #stages: Transform[] | null = null
  #bytes = 0
  /** The encoded data ended; what follows it means nothing to a decoder. */
  #isOver = false
  #problem: DecodedProblem | null = null
  #waiting: ((problem: DecodedProblem | null) => void) | null = null

  /** @param codings - outermost last, all of them known */
  constructor(codings: readonly string[], maxBytes: number) {
    this.#codings = codings
    this.#maxBytes = maxBytes
  }

  /** True when every coding can be undone; with others the decoded length cannot be known. */
  static canCount(codings: readonly string[]): boolean {
    return codings.length <= MAX_EDGE_CODINGS && codings.every(coding => DECODERS[coding] !== undefined)
  }

  /** Counts one more piece. Calls back once, when it is counted; not before the last call's callback. */
  add(piece: Buffer, done: (problem: DecodedProblem | null) => void): void {
    this.#stages ??= this.#open(piece)
    this.#waiting = done
    if (this.#problem !== null || this.#isOver) this.#settle(this.#problem)
    else this.#stages[0]!.write(piece, () => this.#settle(this.#problem))
  }

  /** The body is over: calls back when what the decoders held is counted too. */
  end(done: (problem: DecodedProblem | null) => void): void {
    this.#waiting = done
    if (this.#stages === null || this.#problem !== null || this.#isOver) this.#settle(this.#problem)
    else this.#stages[0]!.end()
  }

  /** Frees the decoders; no callback follows. */
  close(): void {
    this.#waiting = null
    for (const stage of this.#stages ?? []) stage.destroy()
  }

  #open(first: Buffer): Transform[] {
    const stages = [...this.#codings].reverse().map((coding, index) => DECODERS[coding]!(index === 0 ? first : null))
    stages.forEach((stage, index) => {
      stage.on('error', () => this.#fail('not decodable'))
      const next = stages[index + 1]
      if (next !== undefined) {
        stage.pipe(next)
        return
      }
      stage.on('data', (bytes: Buffer) => this.#count(bytes.length))
      stage.on('end', () => {
        this.#isOver = true
        this.#settle(this.#problem)
      })
    })
    return stages
  }

  #count(bytes: number): void {
    this.#bytes += bytes
    if (this.#bytes > this.#maxBytes) this.#fail('too large')
  }

  #fail(problem: DecodedProblem): void {
    this.#problem ??= problem
    for (const stage of this.#stages ?? []) stage.destroy()
    this.#settle(this.#problem)
  }

  #settle(problem: DecodedProblem | null): void {
    const done = this.#waiting
    this.#waiting = null
    done?.(problem)
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
