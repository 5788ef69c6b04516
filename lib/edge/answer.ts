/**
 * An upstream's answer on its way to a call. Spec: §2.10.
 *
 *   head ─► hold ─► pieces ─► end
 *     │       │        └ cut: the client sees that the answer is not whole
 *     │       └ ended, failed or too large so soon: answered whole, or with the error
 *     502
 */

import type { Transform } from 'node:stream'
import * as zlib from 'node:zlib'
import type { Clock } from '../core/clock.ts'
import type { GatewayError } from '../core/errors.ts'
import { findUnsendable, withoutHeaders } from '../core/http-text.ts'
import { MAX_STATUS } from '../core/limits.ts'
import { HOP_BY_HOP, INTERNAL_PREFIX, takesOver } from '../invocation/forwarded-headers.ts'
import type { Call } from '../invocation/invoke.ts'
import { prepareText, type ReplyHead } from '../invocation/response.ts'
import type { AnswerHead } from './answer-parser.ts'
import { type EdgeRequest, failed } from './target.ts'

/** The start of an upstream's answer that is held back, so that what ends or fails soon is answered whole: bytes, ms. */
const EDGE_HOLD_BYTES = 64 * 1024
export const EDGE_HOLD_MS = 25
/** Bytes of an upstream's answer that may be under way to a slow client before the upstream has to wait. */
export const EDGE_WINDOW_BYTES = 64 * 1024

const NOTHING = Buffer.alloc(0)

/** Where the answer comes from. */
interface AnswerSource {
  pause(): void
  resume(): void
}

/** The transfer that the answer belongs to. */
export interface AnswerOwner {
  readonly time: { onUpstream(): void; onClient(): void }
  fail(error: GatewayError): void
  /** The answer is complete; the call gets it after this. */
  complete(): void
}

/**
 * - `held`: its start is held back
 * - `due`: the time for that is over; it begins with the next piece
 * - `begun`: the call has its head
 * - `over`: nothing more reaches the call
 */
type AnswerState = 'held' | 'due' | 'begun' | 'over'

export class EdgeAnswer {
  readonly #call: Call
  readonly #request: EdgeRequest
  readonly #clock: Clock
  readonly #owner: AnswerOwner
  readonly #source: AnswerSource
  readonly #head: ReplyHead
  readonly #decoded: DecodedSize | null
  #state: AnswerState = 'held'
  /** The start of the body while it is held back. */
  #held: Buffer[] = []
  /** How many of those lie where the next read overwrites them. */
  #views = 0
  #holdTimer: NodeJS.Timeout | null = null
  #bytes = 0
  /** Bytes handed on that the client has not taken. */
  #outstanding = 0
  #waitsFor: 'upstream' | 'decoder' | 'client' = 'upstream'
  /** A piece is with the decoder. */
  #isCounting = false
  /** The upstream has sent all of it. */
  #isReceived = false

  /** @throws GatewayError for a head that cannot be passed on */
  constructor(
    call: Call,
    request: EdgeRequest,
    clock: Clock,
    owner: AnswerOwner,
    head: AnswerHead,
    source: AnswerSource,
  ) {
    this.#call = call
    this.#request = request
    this.#clock = clock
    this.#owner = owner
    this.#source = source
    this.#head = toHead(head, call.sharesOrigin)
    const isBodyless = !this.#head.hasBody || request.method === 'HEAD'
    if (!isBodyless && (this.#head.length ?? 0) > request.maxResponseBytes) throw toTooLarge(request.maxResponseBytes)
    const codings = isBodyless ? [] : toCodings(head.rawHeaders)
    // A body that cannot be decoded cannot be counted: a few bytes of it may stand for more memory than its decoder has.
    if (!DecodedSize.canCount(codings)) throw failed('upstream answered with a Content-Encoding that cannot be counted')
    this.#decoded = codings.length > 0 ? new DecodedSize(codings, request.maxResponseBytes) : null
    call.grantEdge = bytes => {
      this.#outstanding -= bytes
      this.#setFlow()
    }
  }

  /** True while the call has its head and waits for more: an error can then only cut the answer. */
  get isBegun(): boolean {
    return this.#state === 'begun'
  }

  /** Bytes of the body that came so far. */
  get bytes(): number {
    return this.#bytes
  }

  /** The bytes that have come were handed over, and more is to come: only now is it worth a timer. */
  onRead(): void {
    this.#keepViews()
    if (this.#state !== 'held' || this.#holdTimer !== null) return
    this.#holdTimer = this.#clock.setTimeout(() => {
      if (this.#state !== 'held') return
      this.#state = 'due'
      // A piece that is being counted may turn out too large: that is known in a moment.
      if (!this.#isCounting) this.#release()
    }, EDGE_HOLD_MS)
  }

  /** Nothing reaches the call from here on. */
  stop(): void {
    this.#state = 'over'
    this.#held = []
    this.#call.grantEdge = null
    if (this.#holdTimer !== null) this.#clock.clearTimeout(this.#holdTimer)
    this.#decoded?.close()
  }

  #fail(error: GatewayError): void {
    if (this.#state !== 'over') this.#owner.fail(error)
  }

  /** @param piece - valid during the call only */
  onPiece(piece: Buffer): void {
    if (this.#state === 'over') return
    this.#owner.time.onUpstream()
    this.#bytes += piece.length
    if (this.#bytes > this.#request.maxResponseBytes) {
      this.#fail(toTooLarge(this.#request.maxResponseBytes))
    } else if (this.#decoded === null) {
      if (this.#state !== 'begun') this.#views += 1
      this.#pass(piece)
    } else {
      const kept = Buffer.from(piece)
      // Not passed on before it is counted: what is too large must not reach the client.
      this.#isCounting = true
      this.#setFlow()
      this.#decoded.add(kept, problem => {
        this.#isCounting = false
        if (problem !== null) {
          this.#failDecoded(problem)
          return
        }
        this.#pass(kept)
        // The end comes with the last piece, counted or not.
        if (this.#isReceived) this.#finishDecoded(this.#decoded!)
      })
    }
  }

  #pass(piece: Buffer): void {
    if (this.#state === 'begun') {
      this.#handOn(piece)
    } else {
      this.#held.push(piece)
      if (this.#state === 'due' || this.#bytes > EDGE_HOLD_BYTES) this.#release()
    }
    this.#setFlow()
  }

  /** Begins the call's answer with what was held back. */
  #release(): void {
    this.#state = 'begun'
    this.#views = 0
    this.#call.answer(this.#head, NOTHING, true)
    for (const piece of this.#held) this.#handOn(piece)
    this.#held = []
    this.#setFlow()
  }

  #keepViews(): void {
    const held = this.#held
    for (; this.#views > 0; this.#views -= 1) held[held.length - this.#views] = Buffer.from(held.at(-this.#views)!)
  }

  #handOn(piece: Buffer): void {
    if (this.#state === 'over') return
    this.#outstanding += piece.length
    this.#call.answerChunk(piece)
  }

  /** A slow client, or a piece that is being counted, stops the upstream's socket; memory holds what was under way. */
  #setFlow(): void {
    if (this.#state === 'over') return
    const before = this.#waitsFor
    const now = this.#outstanding >= EDGE_WINDOW_BYTES ? 'client' : this.#isCounting ? 'decoder' : 'upstream'
    if (now === before) return
    this.#waitsFor = now
    if (now === 'client') this.#owner.time.onClient()
    else if (before === 'client') this.#owner.time.onUpstream()
    if (before === 'upstream') this.#source.pause()
    else if (now === 'upstream') this.#source.resume()
  }

  onEnd(): void {
    this.#isReceived = true
    if (this.#state === 'over') return
    if (this.#decoded === null) this.#finish()
    else if (!this.#isCounting) this.#finishDecoded(this.#decoded)
  }

  #finishDecoded(decoded: DecodedSize): void {
    decoded.end(problem => {
      if (problem === null) this.#finish()
      else this.#failDecoded(problem)
    })
  }

  #failDecoded(problem: DecodedProblem): void {
    this.#fail(
      problem === 'too large'
        ? toTooLarge(this.#request.maxResponseBytes)
        : failed('upstream response does not match its Content-Encoding'),
    )
  }

  #finish(): void {
    if (this.#state === 'over') return
    const { isBegun } = this
    const held = this.#held
    this.#owner.complete()
    this.#call.endedAt = this.#clock.monotonic()
    if (isBegun) this.#call.answerEnd(null)
    else this.#call.answer(this.#head, held.length === 1 ? held[0]! : Buffer.concat(held), false)
  }
}

export function toTooLarge(maxBytes: number): GatewayError {
  return failed(`upstream response too large: the limit is ${maxBytes} bytes`)
}

function toHead({ status, coding, length, rawHeaders }: AnswerHead, sharesOrigin: boolean): ReplyHead {
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
 * @param sharesOrigin - pages of functions have the origin of the console
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
