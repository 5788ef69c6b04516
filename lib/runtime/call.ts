/**
 * A call as the invocation layer hands it to a runtime, its response, and the error that a client gets for a failed one.
 * Owner: §1, §7, page runtime/daemon.
 */

import { realpathSync } from 'node:fs'
import { basename, dirname, isAbsolute, sep } from 'node:path'
import type { Bytes } from '../core/byte-pool.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { type ErrorDetail, GatewayError, orNull } from '../core/errors.ts'
import { STREAM_LEAD_BYTES, STREAM_WINDOW_BYTES } from '../core/limits.ts'
import type { Semaphore } from '../core/semaphore.ts'
import { OwnFolder } from '../files/own-folder.ts'

/** The worker that has a call, as the call sees it. */
export interface CallHost {
  /** Index (from 1) of the socket it was started at. */
  readonly socketIndex: number
  /** The receiver of a stream took `bytes`. */
  grant(call: RuntimeCall, bytes: number): void
  /** The call is withdrawn. */
  abandon(call: RuntimeCall): void
}

/**
 * Where a call is. It goes from top to bottom, and back only from `sent` to `waiting`, when a worker ends before it began.
 * `done` is reached from everywhere: the runtime is through with it, it failed, or it was withdrawn.
 */
export type CallPhase =
  | 'new'
  /** It waits for a slot; then it has one. */
  | 'queued'
  | 'admitted'
  /** It waits for a worker; then it was sent to one, and is in the handler. */
  | 'waiting'
  | 'sent'
  | 'running'
  /** Its answer has begun, or is fetched elsewhere. */
  | 'streaming'
  | 'upstream'
  | 'done'

/**
 * One call on its way through a worker. The invocation layer extends it and implements the callbacks; exactly one of
 * `onReply` and `onError` is called, once, and after an `onReply` with `stream` exactly one `onEnd`; none once it is done.
 * A class with plain fields instead of closures or promises: this is the hot path.
 */
export abstract class RuntimeCall {
  readonly fn: FunctionVersion
  phase: CallPhase = 'new'
  /** JSON text of the `call` frame's header. */
  header = '{}'
  /** Raw request body, null when there is none. */
  body: Bytes | null = null

  /** Monotonic ms when it is handed over; 0 lets the runtime look itself. */
  handedAt = 0

  // Owned by the runtime layer.
  /** Request id on the worker's connection; 0 before it is sent. */
  wireId = 0
  /** The worker that has it, or had it last; null before. */
  host: CallHost | null = null
  /** True when the worker was not ready yet when it got the call. */
  cold = false
  /** Why the newest version of its function does not serve it, but the previous one; null when the newest one does. */
  loadError: GatewayError | null = null
  /** Neighbours among the worker's open calls. */
  openBefore: RuntimeCall | null = null
  openAfter: RuntimeCall | null = null
  /** Monotonic ms when it began to wait or to run, and by when it must answer (or send its next chunk); 0 before that. */
  startedAt = 0
  deadline = 0
  /** Monotonic ms when its answer was read; 0 before that. */
  endedAt = 0
  /** True when its handler must end if it is withdrawn, instead of going on to its deadline. */
  mustEnd = false
  /** True when it is past its deadline and still open in the worker. */
  late = false
  /** Of its stream; null before it has one. */
  window: StreamWindow | null = null

  constructor(fn: FunctionVersion) {
    this.fn = fn
  }

  /** The client left: its worker gets a cancel, and a queue passes over it. No callback follows. */
  withdraw(): void {
    const { phase } = this
    if (phase === 'running' || phase === 'sent' || phase === 'streaming') this.host!.abandon(this)
    this.phase = 'done'
  }

  /** It ends without a whole answer; one that has begun is cut. */
  cut(error: GatewayError): void {
    if (this.phase === 'done') return
    const hasBegun = this.phase === 'streaming'
    this.phase = 'done'
    if (hasBegun) this.onEnd(error)
    else this.onError(error)
  }

  /**
   * @param header - JSON text of the `reply` header, unchecked
   * @param body - raw body; a view that is valid during the call only
   * @param stream - true when `onChunk` and `onEnd` follow
   */
  abstract onReply(header: string, body: Buffer, stream: boolean): void
  /** One piece of a streamed body; a view that is valid during the call only. Answer with `CallHost.grant(call, bytes)`. */
  abstract onChunk(body: Buffer): void
  /** The stream is over; an error means it was cut. */
  abstract onEnd(error: GatewayError | null): void
  abstract onLog(stream: 'stdout' | 'stderr', text: string): void
  abstract onError(error: GatewayError): void
}

// How much of one call's stream may be under way, as the gateway counts it.
//   worker ─ received ─► untaken ─ taken by the client ─► unreported ─ `more`, when half of the window came together ─► worker

/** Bytes taken by the client before the worker is notified. */
const GRANT_BYTES = STREAM_WINDOW_BYTES / 2
/** Bytes taken at once, and in a row, by a client that keeps up with a fast stream. */
const FAST_BYTES = STREAM_WINDOW_BYTES / 4
const FAST_RUN_BYTES = 2 * STREAM_WINDOW_BYTES

export class StreamWindow {
  readonly #leads: Semaphore | null
  #untaken: number
  #unreported = 0
  /** Taken in a row by a client that had nothing left to take each time. */
  #run = 0
  #hasLead = false
  #isOver = false

  /** @param bytes - that came with the reply */
  constructor(bytes: number, leads: Semaphore | null) {
    this.#untaken = bytes
    this.#leads = leads
  }

  /** @returns false when far more came than was granted. Twice the window: one piece may be on its way */
  receive(bytes: number): boolean {
    this.#untaken += bytes
    return this.#untaken <= 2 * STREAM_WINDOW_BYTES + (this.#hasLead ? STREAM_LEAD_BYTES : 0)
  }

  /** True when the worker may have to wait for the client before it can send its next piece, which has up to half of the window. */
  get isHeld(): boolean {
    return !this.#isOver && this.#untaken + this.#unreported > STREAM_WINDOW_BYTES - GRANT_BYTES
  }

  /** The client took `bytes`. @returns bytes to report to the worker now, 0 for none */
  take(bytes: number): number {
    this.#untaken -= bytes
    this.#unreported += bytes
    if (!this.#hasLead && !this.#isOver) this.#askForLead(bytes)
    // Reports of each piece would not make it faster: half of the window is left to it.
    if (this.#unreported < GRANT_BYTES) return 0
    const reported = this.#unreported
    this.#unreported = 0
    return reported
  }

  /** The stream has ended, or its reader is gone. */
  close(): void {
    if (this.#hasLead && !this.#isOver) this.#leads!.release()
    this.#isOver = true
  }

  /** A worker that is through with its window while its client has just taken a part of it sleeps, and has to be woken for each part. */
  #askForLead(bytes: number): void {
    this.#run = this.#untaken === 0 && bytes >= FAST_BYTES ? this.#run + bytes : 0
    if (this.#run < FAST_RUN_BYTES || this.#leads?.tryTake() !== true) return
    this.#hasLead = true
    this.#unreported += STREAM_LEAD_BYTES
  }
}

// The open calls of one worker by wire id, oldest first.
//   slots  [ . 65 . 3 . . . . ]   a call lies at its id modulo the length; an id whose slot is taken is not given out
//   list   3 <-> 65               in the order of arrival
// Not a Map: one that thousands of calls a second go through is rebuilt all the time, and what it leaves behind keeps
// ended calls, with their requests and answers, from being collected while they are young.

const FIRST_SLOTS = 16
const MAX_ID = 0xffffffff

export class OpenCalls {
  size = 0
  total = 0
  first: RuntimeCall | null = null
  /** Number of calls without a waiting client, and how many of those are past their deadline. */
  left = 0
  late = 0
  #last: RuntimeCall | null = null
  #slots: (RuntimeCall | null)[] = Array.from({ length: FIRST_SLOTS }, () => null)
  #mask = FIRST_SLOTS - 1
  #lastId: number

  /** @param lastId - ids are given out from the one behind it */
  constructor(lastId = 0) {
    this.#lastId = lastId
  }

  /** Gives the call its wire id and its place behind all others. */
  add(call: RuntimeCall): void {
    if (this.size * 2 >= this.#slots.length) this.#grow()
    let id = this.#lastId
    do id = (id % MAX_ID) + 1
    while (this.#slots[id & this.#mask] !== null)
    this.#lastId = id
    call.wireId = id
    this.#slots[id & this.#mask] = call
    call.openBefore = this.#last
    call.openAfter = null
    if (this.#last === null) this.first = call
    else this.#last.openAfter = call
    this.#last = call
    this.size++
    this.total++
  }

  get(id: number): RuntimeCall | undefined {
    const call = this.#slots[id & this.#mask] ?? undefined
    return call?.wireId === id ? call : undefined
  }

  /** The client of this open call left. */
  leave(call: RuntimeCall): void {
    call.phase = 'done'
    call.window?.close()
    this.left++
  }

  /** A call that was left is past its deadline: its worker gets nothing more. @param killAt - when the worker is killed for it */
  markLate(call: RuntimeCall, killAt: number): void {
    call.late = true
    call.deadline = killAt
    this.late++
  }

  /** True while a call that is late may still heed its `cancel`. */
  mayObey(): boolean {
    return this.values().some(call => call.late && call.deadline !== Number.POSITIVE_INFINITY)
  }

  /** @param call - one of the open calls, in the phase it ends in: one that is done was left before */
  remove(call: RuntimeCall): void {
    if (call.phase === 'done') {
      this.left--
      if (call.late) this.late--
    }
    this.#slots[call.wireId & this.#mask] = null
    const { openBefore, openAfter } = call
    if (openBefore === null) this.first = openAfter
    else openBefore.openAfter = openAfter
    if (openAfter === null) this.#last = openBefore
    else openAfter.openBefore = openBefore
    call.openBefore = call.openAfter = null
    call.window?.close()
    this.size--
  }

  /** Takes all of them out. @returns them, oldest first */
  takeAll(): RuntimeCall[] {
    const calls = this.values()
    for (const call of calls) this.remove(call)
    return calls
  }

  /** A copy, oldest first. */
  values(): RuntimeCall[] {
    const calls: RuntimeCall[] = []
    for (let call = this.first; call !== null; call = call.openAfter) calls.push(call)
    return calls
  }

  #grow(): void {
    // Twice the length keeps slots apart that were apart.
    const slots: (RuntimeCall | null)[] = Array.from({ length: this.#slots.length * 2 }, () => null)
    this.#mask = slots.length - 1
    for (let call = this.first; call !== null; call = call.openAfter) slots[call.wireId & this.#mask] = call
    this.#slots = slots
  }
}

// A runtime's report of a failed call, as the error a client gets.

type FailedFunction = Pick<FunctionVersion, 'entryPath' | 'entryFile' | 'callable' | 'policy'>

/**
 * @param fields - header of an `error` frame: `code message file line stack hint`
 * @param fn - the function that failed: a file below its functions root is named from there
 * @returns LOAD_FAILED or HANDLER_FAILED (500), CONTRACT_BROKEN (502), TIMEOUT (504)
 */
export function toRuntimeError(fields: Readonly<Record<string, unknown>>, fn: FailedFunction): GatewayError {
  const message = typeof fields.message === 'string' && fields.message !== '' ? fields.message : 'handler failed'
  if (fields.code === 'timeout') return toTimeout(fn)
  const detail = toDetail(fields, fn)
  if (fields.code === 'contract') {
    // A result whose own field is called `status` is taken for an envelope: every language says how to return it.
    const hint = 'to return an object that has a field "status", put it in the body: { "status": 200, "body": { ... } }'
    const isStatus = message.startsWith('status must be an integer')
    return toBrokenContract(message, fn, { ...detail, ...(isStatus && { hint }) })
  }
  const options = Object.keys(detail).length === 0 ? {} : { detail }
  // Loaders of some languages name files in full.
  if (fields.code === 'load') {
    const text = [toRoot(fn), toRealRoot(fn)].reduce((shown, root) => shown.replaceAll(root, ''), message)
    return new GatewayError('LOAD_FAILED', text, options)
  }
  return new GatewayError('HANDLER_FAILED', message, options)
}

/** 504 of a call that ran past the time limit of its function; it names the line where the handler begins. */
export function toTimeout(fn: FailedFunction): GatewayError {
  const { policy, entryFile } = fn
  const line = findHandlerLine(fn)
  const config = `${entryFile.slice(0, entryFile.lastIndexOf('/') + 1)}fn.config.json`
  const hint = `a handler may take longer with a larger "timeout_ms" in ${config}`
  return new GatewayError('TIMEOUT', `runtime timeout after ${policy.timeoutMs} ms`, {
    detail: { file: entryFile, ...(line !== null && { line }), hint },
  })
}

/** Bytes of a handler file in which its line is looked for. */
const MAX_LINE_BYTES = 256 * 1024

function findHandlerLine({ entryPath, callable }: FailedFunction): number | null {
  const bytes = new OwnFolder(dirname(entryPath)).read(basename(entryPath))
  return bytes === null ? null : toHandlerLine(bytes.toString('utf8', 0, MAX_LINE_BYTES), callable.names)
}

/** @returns line, from 1, on which the first of the names is defined, in any of the languages; null when the text does not show it */
export function toHandlerLine(text: string, names: readonly string[]): number | null {
  const lines = text.split('\n').map(line => (/^\s*(?:\/\/|#|--|\*)/.test(line) ? '' : line))
  for (const name of names) {
    const definition =
      name === 'default'
        ? /\bexport\s+default\b|\bmodule\.exports\s*=/
        : new RegExp(
            `\\b(?:def|function|func|fn|const|let|var)\\b[\\s*]+${name}\\b|\\bexports\\.${name}\\b|\\b${name}\\s*=[^=]`,
          )
    const index = lines.findIndex(line => definition.test(line))
    if (index !== -1) return index + 1
  }
  return null
}

/**
 * 502 of an answer that is none; it names the file whose function gave it.
 * @param why - the rule that is broken
 */
export function toBrokenContract(
  why: string,
  { entryFile }: Pick<FunctionVersion, 'entryFile'>,
  detail: ErrorDetail = {},
): GatewayError {
  return new GatewayError('CONTRACT_BROKEN', `invalid runtime response: ${why}`, {
    detail: { file: entryFile, ...detail },
  })
}

function toDetail({ file, line, stack, hint }: Readonly<Record<string, unknown>>, fn: FailedFunction): ErrorDetail {
  return {
    ...(typeof file === 'string' && { file: toShownFile(file, fn) }),
    ...(typeof line === 'number' && { line }),
    ...(typeof stack === 'string' && { stack }),
    ...(typeof hint === 'string' && { hint }),
  }
}

/** The path below the functions root; of a file elsewhere the full path. */
function toShownFile(file: string, fn: FailedFunction): string {
  if (!isAbsolute(file)) return file
  const root = file.startsWith(toRoot(fn)) ? toRoot(fn) : toRealRoot(fn)
  return file.startsWith(root) ? file.slice(root.length) : file
}

/** As `toRoot`, links followed: Node and PHP name files by their real paths. */
function toRealRoot(fn: FailedFunction): string {
  const root = toRoot(fn)
  return orNull(() => realpathSync.native(root) + sep) ?? root
}

/** The functions root with its last separator, so that a folder of a similar name is not taken for it. */
function toRoot({ entryPath, entryFile }: Pick<FunctionVersion, 'entryPath' | 'entryFile'>): string {
  return entryPath.slice(0, -entryFile.length)
}

/** The error of an open call whose worker is gone. */
export function toDeath(reason: string): GatewayError {
  return new GatewayError('WORKER_DIED', `runtime worker ended: ${reason}`, { headers: { 'Retry-After': '1' } })
}
