/**
 * The bytes of an upstream's answer as head, pieces and end (RFC 9112), read where they lie. As strict as node's own parser:
 * whatever could be read in two ways is refused, because something between here and the upstream may read it in the other.
 * Spec: §2.10.
 *
 *   head ─► length ──────────────────────────► done
 *    ▲ │ ├► close ── connection ends ────────► done
 *    │ │ └► size ─► chunk ─► gap ─► size ─► trailers ─► done
 *    1xx
 */

import { isHeaderName } from '../core/http-text.ts'
import { MAX_REPLY_HEADER_BYTES } from '../core/limits.ts'

/** Status line and headers of an answer. */
export interface AnswerHead {
  readonly status: number
  /** Names and values in turn, as received. */
  readonly rawHeaders: readonly string[]
  /** Declared bytes of the body; null when undeclared. */
  readonly length: number | null
  /** `Transfer-Encoding`, lower case, repeated ones joined; null for none. */
  readonly coding: string | null
  /** Ms that the upstream keeps the connection for a next request; 0 when it closes, null when it does not say. */
  readonly keepMs: number | null
}

export interface AnswerSink {
  onHead(head: AnswerHead): void
  /** A part of the body; valid during the call only. */
  onPiece(piece: Buffer): void
  /** The answer is complete. */
  onEnd(): void
}

/** Why an answer cannot be read; `code` as failure-reasons knows it. */
export class AnswerError extends Error {
  readonly code: 'MALFORMED_ANSWER' | 'ANSWER_HEAD_TOO_LARGE'

  constructor(code: AnswerError['code']) {
    super(code)
    this.name = 'AnswerError'
    this.code = code
  }
}

/** Characters of a line with the size of a chunk, its extensions included. */
const MAX_SIZE_LINE = 4096
const HEAD_END = '\r\n\r\n'
const [CR, LF] = [13, 10]

type State = 'head' | 'length' | 'close' | 'size' | 'chunk' | 'gap' | 'trailers' | 'done'

export class AnswerParser {
  readonly #sink: AnswerSink
  #state: State = 'done'
  #isHeadRequest = false
  /** The start of a head or a line that came in parts. */
  #text = ''
  /** The last characters of the start of a head. */
  #tail = ''
  #trailerChars = 0
  /** Bytes left of the body or chunk. */
  #left = 0
  #isPaused = false

  constructor(sink: AnswerSink) {
    this.#sink = sink
  }

  /** Reads an answer from here on. @param isHeadRequest - it has no body, whatever it says */
  begin(isHeadRequest: boolean): void {
    this.#state = 'head'
    this.#isHeadRequest = isHeadRequest
    this.#isPaused = false
  }

  get isDone(): boolean {
    return this.#state === 'done'
  }

  get isPaused(): boolean {
    return this.#isPaused
  }

  /** `add` stops before the next piece. */
  pause(): void {
    this.#isPaused = true
  }

  resume(): void {
    this.#isPaused = false
  }

  /**
   * @returns how many bytes were read; fewer than there are behind the end of the answer, and while it is paused
   * @throws AnswerError
   */
  add(bytes: Buffer): number {
    let at = 0
    while (at < bytes.length && !this.#isPaused && this.#state !== 'done') at = this.#step(bytes, at)
    return at
  }

  /** The connection ended. @returns false when the answer is not whole */
  finish(): boolean {
    if (this.#state === 'close') this.#end()
    return this.#state === 'done'
  }

  #step(bytes: Buffer, at: number): number {
    switch (this.#state) {
      case 'head':
        return this.#addHead(bytes, at)
      case 'length':
      case 'chunk':
        return this.#addBody(bytes, at)
      case 'close':
        this.#sink.onPiece(at === 0 ? bytes : bytes.subarray(at))
        return bytes.length
      default:
        return this.#addLine(bytes, at)
    }
  }

  #addHead(bytes: Buffer, from: number): number {
    let at = from
    // Line ends that an earlier server sent too many.
    if (this.#text === '') while (at < bytes.length && (bytes[at] === CR || bytes[at] === LF)) at += 1
    const end = this.#findHeadEnd(bytes, at)
    const stop = end < 0 ? bytes.length : end
    if (this.#text.length + stop - at > MAX_REPLY_HEADER_BYTES + HEAD_END.length)
      throw new AnswerError('ANSWER_HEAD_TOO_LARGE')
    const text = this.#text + bytes.toString('latin1', at, stop)
    if (end < 0) {
      this.#text = text
      this.#tail = (this.#tail + bytes.toString('latin1', Math.max(at, stop - HEAD_END.length + 1))).slice(-3)
      return stop
    }
    this.#text = this.#tail = ''
    const head = parseHead(text.slice(0, -HEAD_END.length))
    // Informational: the answer follows. After 101 the bytes are not HTTP.
    if (head.status < 200 && head.status !== 101) return stop
    this.#beginBody(head)
    this.#sink.onHead(head)
    if (this.#left === 0 && this.#state === 'length') this.#end()
    return stop
  }

  /**
   * Of the parts before this one only the last characters are searched: a head in single bytes costs no more than a whole one.
   * @returns where the body begins; -1 when the head goes on
   */
  #findHeadEnd(bytes: Buffer, at: number): number {
    const tail = this.#tail
    const spread = tail === '' ? -1 : (tail + bytes.toString('latin1', at, at + HEAD_END.length - 1)).indexOf(HEAD_END)
    if (spread >= 0) return at + spread + HEAD_END.length - tail.length
    const end = bytes.indexOf(HEAD_END, at)
    return end < 0 ? -1 : end + HEAD_END.length
  }

  #beginBody({ status, coding, length }: AnswerHead): void {
    this.#left = 0
    if (this.#isHeadRequest || status === 204 || status === 304) {
      this.#state = 'length'
    } else if (coding === 'chunked') {
      this.#state = 'size'
    } else if (coding !== null || length === null) {
      this.#state = 'close'
    } else {
      this.#state = 'length'
      this.#left = length
    }
  }

  #addBody(bytes: Buffer, at: number): number {
    const end = Math.min(bytes.length, at + this.#left)
    this.#left -= end - at
    const isLast = this.#left === 0
    if (isLast && this.#state === 'chunk') this.#state = 'gap'
    this.#sink.onPiece(bytes.subarray(at, end))
    if (isLast && this.#state === 'length') this.#end()
    return end
  }

  /** Lines between chunks, and behind the last one. */
  #addLine(bytes: Buffer, at: number): number {
    const end = bytes.indexOf(LF, at)
    const limit = this.#state === 'trailers' ? MAX_REPLY_HEADER_BYTES : MAX_SIZE_LINE
    const stop = end < 0 ? bytes.length : end + 1
    if (this.#text.length + stop - at > limit) throw malformed()
    this.#text += bytes.toString('latin1', at, stop)
    if (end < 0) return stop
    const line = this.#text
    this.#text = ''
    if (!line.endsWith('\r\n')) throw malformed()
    this.#takeLine(line.slice(0, -2))
    return stop
  }

  #takeLine(line: string): void {
    if (this.#state === 'gap') {
      if (line !== '') throw malformed()
      this.#state = 'size'
    } else if (this.#state === 'size') {
      this.#left = toChunkSize(line)
      this.#trailerChars = 0
      this.#state = this.#left === 0 ? 'trailers' : 'chunk'
    } else if (line === '') {
      this.#end()
    } else {
      this.#trailerChars += line.length + 2
      if (this.#trailerChars > MAX_REPLY_HEADER_BYTES) throw new AnswerError('ANSWER_HEAD_TOO_LARGE')
      readField(line, 0, line.length)
    }
  }

  #end(): void {
    this.#state = 'done'
    this.#sink.onEnd()
  }
}

const CHUNK_SIZE = /^([0-9a-f]{1,12})(?:;[\t\x20-\x7e\x80-\xff]*)?$/i

function toChunkSize(line: string): number {
  const [, digits] = CHUNK_SIZE.exec(line) ?? []
  if (digits === undefined) throw malformed()
  return Number.parseInt(digits, 16)
}

const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: [\t\x20-\x7e\x80-\xff]*)?$/
const LENGTH = /^\d{1,15}$/

/** @param text - latin1, without the line ends behind it */
function parseHead(text: string): AnswerHead {
  const first = text.indexOf('\r\n')
  const [, minor, status] = STATUS_LINE.exec(first < 0 ? text : text.slice(0, first)) ?? []
  if (status === undefined) throw malformed()
  const rawHeaders: string[] = []
  let length: number | null = null
  let coding: string | null = null
  let keepMs: number | null = minor === '1' ? null : 0
  for (let at = first < 0 ? text.length : first + 2; at < text.length; ) {
    const next = text.indexOf('\r\n', at)
    const end = next < 0 ? text.length : next
    const colon = readField(text, at, end)
    const name = text.slice(at, colon)
    const value = trim(text, colon + 1, end)
    rawHeaders.push(name, value)
    switch (name.length === 10 || name.length === 14 || name.length === 17 ? name.toLowerCase() : '') {
      case 'content-length':
        // Repeated, even with the same value: a reader that joins them gets another number.
        if (length !== null || !LENGTH.test(value)) throw malformed()
        length = Number(value)
        break
      case 'transfer-encoding':
        coding = coding === null ? value.toLowerCase() : `${coding}, ${value.toLowerCase()}`
        break
      case 'connection':
        if (CLOSES.test(value)) keepMs = 0
        break
      case 'keep-alive':
        keepMs ??= toKeepMs(value)
        break
    }
    at = end + 2
  }
  // One end reads the length, the other the chunks: what is left over would be the next answer.
  if (coding !== null && length !== null) throw malformed()
  return { status: Number(status), rawHeaders, length, coding, keepMs }
}

const CLOSES = /(?:^|[\s,])close(?:$|[\s,])/i
const KEEPS = /(?:^|[\s,])timeout=(\d{1,9})(?:$|[\s,])/i
/** It takes no further request. */
const LAST = /(?:^|[\s,])max=0+(?:$|[\s,])/i
/** Seconds that the upstream names may be over at any moment of the last one. */
const KEEP_RESERVE_MS = 1000

function toKeepMs(value: string): number | null {
  if (LAST.test(value)) return 0
  const [, seconds] = KEEPS.exec(value) ?? []
  return seconds === undefined ? null : Math.max(0, Number(seconds) * 1000 - KEEP_RESERVE_MS)
}

/** Anything but the characters of a field; a line end alone among them, which others take for a line's end. */
const UNREADABLE = /[^\t\x20-\x7e\x80-\xff]/

/** @returns where the name of a field ends */
function readField(text: string, at: number, end: number): number {
  const colon = text.indexOf(':', at)
  if (colon < 0 || colon > end || !isHeaderName(text.slice(at, colon)) || UNREADABLE.test(text.slice(colon, end)))
    throw malformed()
  return colon
}

/** A value without the blanks around it. */
function trim(text: string, from: number, to: number): string {
  let [start, end] = [from, to]
  while (start < end && isBlank(text, start)) start += 1
  while (end > start && isBlank(text, end - 1)) end -= 1
  return text.slice(start, end)
}

function isBlank(text: string, at: number): boolean {
  const code = text.charCodeAt(at)
  return code === 32 || code === 9
}

function malformed(): AnswerError {
  return new AnswerError('MALFORMED_ANSWER')
}
