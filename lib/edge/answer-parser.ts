/**
 * The bytes of an upstream's answer as head, pieces and end (RFC 9112). As strict as node's own parser: whatever could be read
 * in two ways is refused, because something between here and the upstream may read it in the other. Spec: §2.10.
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

/** Takes the parts of one answer. */
export interface AnswerSink {
  onHead(head: AnswerHead): void
  /** A part of the body; valid during the call only. */
  onPiece(piece: Buffer): void
  /** The answer is complete. */
  onEnd(): void
}

/** Characters of a line with the size of a chunk, its extensions included. */
const MAX_SIZE_LINE = 4096
const HEAD_END = '\r\n\r\n'
const [CR, LF] = [13, 10]

type State = 'head' | 'length' | 'close' | 'size' | 'chunk' | 'gap' | 'trailers' | 'done'

export class AnswerParser {
  /** Of the answer that was read last. */
  keepMs: number | null = null
  #sink: AnswerSink | null = null
  #state: State = 'done'
  #isHeadRequest = false
  /** The start of a head or a line that came in parts. */
  #text = ''
  #trailerChars = 0
  /** Bytes left of the body or chunk. */
  #left = 0

  /** Reads an answer from here on. @param isHeadRequest - it has no body, whatever it says */
  begin(sink: AnswerSink, isHeadRequest: boolean): void {
    this.#sink = sink
    this.#state = 'head'
    this.#isHeadRequest = isHeadRequest
  }

  get isDone(): boolean {
    return this.#state === 'done'
  }

  /** No callback follows, not even from an `add` that is going on. */
  stop(): void {
    this.#state = 'done'
  }

  /**
   * @returns how many bytes were read; what is left is behind the end of the answer
   * @throws Error with a `code` when the answer cannot be read
   */
  add(bytes: Buffer): number {
    let at = 0
    while (at < bytes.length && this.#state !== 'done') at = this.#step(bytes, at)
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
        this.#sink!.onPiece(at === 0 ? bytes : bytes.subarray(at))
        return bytes.length
      default:
        return this.#addLine(bytes, at)
    }
  }

  #addHead(bytes: Buffer, from: number): number {
    let at = from
    const before = this.#text.length
    // Line ends that an earlier server sent too many.
    if (before === 0) while (at < bytes.length && (bytes[at] === CR || bytes[at] === LF)) at += 1
    const found = bytes.indexOf(HEAD_END, at)
    const text = this.#text + bytes.toString('latin1', at, found < 0 ? bytes.length : found + HEAD_END.length)
    // The end may have begun in an earlier read.
    const end = text.indexOf(HEAD_END, Math.max(0, before - HEAD_END.length + 1))
    if ((end < 0 ? text.length - HEAD_END.length : end) > MAX_REPLY_HEADER_BYTES)
      throw toFailure('ANSWER_HEAD_TOO_LARGE')
    if (end < 0) {
      this.#text = text
      return bytes.length
    }
    this.#text = ''
    const stop = at + end + HEAD_END.length - before
    const head = parseHead(text.slice(0, end))
    // Informational: the answer follows. After 101 the bytes are not HTTP.
    if (head.status < 200 && head.status !== 101) return stop
    this.keepMs = head.status === 101 ? 0 : head.keepMs
    this.#beginBody(head)
    this.#sink!.onHead(head)
    if (this.#left === 0 && this.#state === 'length') this.#end()
    return stop
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
    this.#sink!.onPiece(bytes.subarray(at, end))
    if (isLast && this.#state === 'length') this.#end()
    return end
  }

  /** Lines between chunks, and behind the last one. */
  #addLine(bytes: Buffer, at: number): number {
    const end = bytes.indexOf(LF, at)
    const limit = this.#state === 'trailers' ? MAX_REPLY_HEADER_BYTES : MAX_SIZE_LINE
    const stop = end < 0 ? bytes.length : end + 1
    if (this.#text.length + stop - at > limit) throw toFailure('MALFORMED_ANSWER')
    const line = this.#text + bytes.toString('latin1', at, stop)
    this.#text = end < 0 ? line : ''
    if (end < 0) return stop
    if (!line.endsWith('\r\n')) throw toFailure('MALFORMED_ANSWER')
    this.#takeLine(line.slice(0, -2))
    return stop
  }

  #takeLine(line: string): void {
    if (this.#state === 'gap') {
      if (line !== '') throw toFailure('MALFORMED_ANSWER')
      this.#state = 'size'
    } else if (this.#state === 'size') {
      this.#left = toChunkSize(line)
      this.#trailerChars = 0
      this.#state = this.#left === 0 ? 'trailers' : 'chunk'
    } else if (line === '') {
      this.#end()
    } else {
      this.#trailerChars += line.length + 2
      if (this.#trailerChars > MAX_REPLY_HEADER_BYTES) throw toFailure('ANSWER_HEAD_TOO_LARGE')
      findColon(line)
    }
  }

  #end(): void {
    this.#state = 'done'
    this.#sink!.onEnd()
  }
}

const CHUNK_SIZE = /^([0-9a-f]{1,12})(?:;[\t\x20-\x7e\x80-\xff]*)?$/i

function toChunkSize(line: string): number {
  const [, digits] = CHUNK_SIZE.exec(line) ?? []
  if (digits === undefined) throw toFailure('MALFORMED_ANSWER')
  return Number.parseInt(digits, 16)
}

const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: [\t\x20-\x7e\x80-\xff]*)?$/
const LENGTH = /^\d{1,15}$/

/** @param text - latin1, without the line ends behind it */
function parseHead(text: string): AnswerHead {
  const [first, ...fields] = text.split('\r\n')
  const [, minor, status] = STATUS_LINE.exec(first!) ?? []
  if (status === undefined) throw toFailure('MALFORMED_ANSWER')
  const rawHeaders: string[] = []
  let length: number | null = null
  let coding: string | null = null
  let keepMs: number | null = minor === '1' ? null : 0
  for (const field of fields) {
    const colon = findColon(field)
    const name = field.slice(0, colon)
    const value = trim(field, colon + 1)
    rawHeaders.push(name, value)
    switch (name.length === 10 || name.length === 14 || name.length === 17 ? name.toLowerCase() : '') {
      case 'content-length':
        // Repeated, even with the same value: a reader that joins them gets another number.
        if (length !== null || !LENGTH.test(value)) throw toFailure('MALFORMED_ANSWER')
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
  }
  // One end reads the length, the other the chunks: what is left over would be the next answer.
  if (coding !== null && length !== null) throw toFailure('MALFORMED_ANSWER')
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

/** @returns where the name of a field ends @throws for a line that is not a field */
function findColon(line: string): number {
  const colon = line.indexOf(':')
  if (colon < 0 || !isHeaderName(line.slice(0, colon)) || UNREADABLE.test(line)) throw toFailure('MALFORMED_ANSWER')
  return colon
}

/** The rest of a line without the blanks around it; `trim` would take more than blanks. */
function trim(line: string, from: number): string {
  let [start, end] = [from, line.length]
  while (start < end && isBlank(line, start)) start += 1
  while (end > start && isBlank(line, end - 1)) end -= 1
  return line.slice(start, end)
}

function isBlank(text: string, at: number): boolean {
  const code = text.charCodeAt(at)
  return code === 32 || code === 9
}

/** Why an answer is not had; toTransferError has the words for each code. */
export function toFailure(code: 'MALFORMED_ANSWER' | 'ANSWER_HEAD_TOO_LARGE' | 'ECONNRESET'): Error {
  return Object.assign(new Error(code), { code })
}
