/** A thread that serves one Lua function, as a worker of its set. Page: runtime/lua-runtime. */

import type { Worker as Thread } from 'node:worker_threads'
import { copyOf, giveBack } from '../core/byte-pool.ts'
import { GatewayError } from '../core/errors.ts'
import type { RuntimeCall } from './call.ts'
import type { LuaThreads } from './lua-threads.ts'
import { toRuntimeError } from './runtime-error.ts'
import { Worker, type WorkerOwner, WORKER_READY_TIMEOUT_MS } from './worker.ts'

/** Calls to a thread that wait for the end of a poll phase to leave in one message; so many leave at once. */
const FLUSH_MESSAGES = 32

/** Bytes from which on the copy of a body goes over as it is, and leaves nothing here for the collector; a message makes another copy of a shorter one. */
const GIVEN_BYTES = 32 * 1024

const FIELDS_OF_A_CALL = 3
const EMPTY = Buffer.alloc(0)
const OUT_OF_MEMORY = 'ERR_WORKER_OUT_OF_MEMORY'

export class LuaThread extends Worker {
  readonly #thread: Thread
  readonly #threads: LuaThreads
  readonly #progress: Int32Array
  readonly #onLoaded: () => void
  #start: string | undefined
  #unsent: unknown[] = []
  /** Memory of long bodies in it. */
  #given: ArrayBuffer[] = []
  #isFlushing = false
  /** Calls that were answered. */
  #answered = 0
  #isKilled = false
  #reason: string | null = null
  #loadTimer: NodeJS.Timeout | null

  /**
   * @param startHeader - JSON text of `start`
   * @param onLoaded - called once the function is loaded or cannot be
   */
  constructor(set: WorkerOwner, threads: LuaThreads, startHeader: string, onLoaded: () => void) {
    super(set)
    this.#start = startHeader
    this.#onLoaded = onLoaded
    this.#threads = threads
    const { thread, progress } = threads.take(this)
    this.#thread = thread
    this.#progress = progress
    thread.on('message', (message: unknown[]) => this.#read(message))
    thread.on('error', error => this.#handleThreadError(error))
    thread.once('exit', () => this.#handleExit())
    this.#loadTimer = set.clock.setTimeout(() => this.#handleSlowLoad(), WORKER_READY_TIMEOUT_MS)
    this.#flushSoon()
  }

  get isIdle(): boolean {
    return this.inflight.size === 0 && this.state === 'ready'
  }

  get isEnding(): boolean {
    return this.#isKilled
  }

  protected override sendCall(call: RuntimeCall): void {
    const body = call.body && copyOf(call.body)
    this.#unsent.push(call.wireId, call.wholeHeader, body)
    if (body !== null && body.length >= GIVEN_BYTES) this.#given.push(body.buffer as ArrayBuffer)
    // So the thread begins while this process still reads the rest of what the poll phase brought; a first call waits for nothing.
    if (this.#start !== undefined || this.#unsent.length === FLUSH_MESSAGES * FIELDS_OF_A_CALL) this.#send()
    else this.#flushSoon()
  }

  // A thread that runs a handler reads no messages; the set ends it at the deadline.
  protected override sendCancel(): void {}
  protected override sendMore(): void {}
  protected override sendPing(): void {}

  protected override endNow(): void {
    this.#isKilled = true
    this.#clearLoadTimer()
    // Stops Lua code in the middle of an instruction; what it said before is still read.
    void this.#thread.terminate()
  }

  protected override endGracefully(): void {
    this.endNow()
  }

  #flushSoon(): void {
    if (this.#isFlushing) return
    this.#isFlushing = true
    setImmediate(this.#flush)
  }

  readonly #flush = (): void => {
    this.#isFlushing = false
    if (this.#start !== undefined || this.#unsent.length > 0) this.#send()
  }

  #send(): void {
    const start = this.#start
    const unsent = this.#unsent
    this.#start = undefined
    const given = this.#given
    this.#unsent = []
    this.#given = []
    if (!this.#isKilled) this.#thread.postMessage({ start, calls: unsent }, given)
  }

  #read(message: unknown[]): void {
    for (let i = 0; i < message.length; i += 4) {
      this.#handleMessage(message[i] as string, message[i + 1] as number, message[i + 2] as string, message[i + 3])
    }
    this.#threads.relieve()
  }

  #handleMessage(kind: string, id: number, text: string, body: unknown): void {
    switch (kind) {
      case 'reply':
        this.#answered++
        this.#handleReply(id, text, body)
        return
      case 'error':
        this.#answered++
        this.#handleCallError(id, JSON.parse(text))
        return
      case 'stdout':
      case 'stderr':
        this.handleLog(id, kind, text)
        return
      case 'ready':
        this.#clearLoadTimer()
        this.set.onFiles(JSON.parse(text).files)
        this.handleReady(1)
        this.#onLoaded()
        return
      case 'loaded':
        this.set.onFiles(JSON.parse(text).files)
        return
      case 'failed':
        this.#clearLoadTimer()
        this.handleLoadError(toRuntimeError(JSON.parse(text), this.set.fn))
        this.#onLoaded()
        return
      case 'dying':
        this.#reason = text
        return
      default:
    }
  }

  #handleReply(id: number, head: string, body: unknown): void {
    if (typeof body === 'string') {
      // One character per byte.
      this.handleReply(id, head, body === '' ? EMPTY : Buffer.from(body, 'latin1'), false)
      return
    }
    const bytes = body as Uint8Array
    this.handleReply(id, head, Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength), false)
    // Whoever needs it further has a copy.
    giveBack(bytes)
  }

  #handleCallError(id: number, fields: Record<string, unknown>): void {
    if (fields.ends === true) this.handleLastError(id, toRuntimeError(fields, this.set.fn))
    // Also a timeout: the thread ends a late call itself when this process is too busy to do it in time.
    else this.handleError(id, toRuntimeError(fields, this.set.fn))
  }

  #handleSlowLoad(): void {
    this.#loadTimer = null
    this.handleLoadError(
      new GatewayError('LOAD_FAILED', `function did not load within ${WORKER_READY_TIMEOUT_MS / 1000} s`, {
        detail: { file: this.set.fn.entryPath, hint: 'move slow work out of the top level of the handler file' },
      }),
    )
  }

  #handleThreadError(error: Error & { code?: string }): void {
    this.#reason ??= error.code === OUT_OF_MEMORY ? 'out of memory' : `thread failed: ${error.message}`
  }

  #handleExit(): void {
    this.#clearLoadTimer()
    // Its count of begun calls tells whether answers are lost: then it is not known which of the open calls were begun.
    const complete = Atomics.load(this.#progress, 0) - this.#answered <= 1
    this.handleClosed({ reason: this.#reason ?? 'thread ended', unexpected: !this.#isKilled, complete })
    this.#onLoaded()
  }

  #clearLoadTimer(): void {
    if (this.#loadTimer !== null) this.set.clock.clearTimeout(this.#loadTimer)
    this.#loadTimer = null
  }
}
