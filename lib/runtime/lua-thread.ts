/** Threads of this process that run Lua: a spare one, and one that serves a function. Page: runtime/lua-runtime. */

import { Worker as Thread } from 'node:worker_threads'
import { GatewayError } from '../core/errors.ts'
import {
  CANCEL_GRACE_MS,
  FAST_CALL_MS,
  LUA_PREFETCH,
  LUA_THREAD_HEAP,
  WORKER_READY_TIMEOUT_MS,
} from '../core/limits.ts'
import type { RuntimeCall } from './call.ts'
import { runtimeFile } from './package-files.ts'
import { toRuntimeError } from './runtime-error.ts'
import { Worker, type WorkerSet } from './workers.ts'

const MIB = 1024 * 1024
/** Share of the newest message in the running average. */
const AVERAGE_WEIGHT = 0.1
const EMPTY = Buffer.alloc(0)
const OUT_OF_MEMORY = 'ERR_WORKER_OUT_OF_MEMORY'

/** Starts threads and keeps one ready: loading the interpreter takes longer than most first calls may. */
export class LuaThreads {
  private readonly memoryMb: number
  private readonly file = runtimeFile('lua/thread.mjs')
  private spare: Thread | null = null
  /** Every thread that has not ended, the spare one included. */
  private readonly live = new Set<Thread>()
  private isClosed = false

  /** @param memoryMb - most that the Lua code of one thread may hold */
  constructor(memoryMb: number) {
    this.memoryMb = memoryMb
  }

  /** Threads that have not ended. */
  get count(): number {
    return this.live.size
  }

  /** Makes sure that a started thread is waiting; without need for one, that none is. */
  keepSpare(isNeeded: boolean): void {
    if (!isNeeded || this.isClosed) {
      void this.spare?.terminate()
      this.spare = null
    } else this.spare ??= this.start()
  }

  /** A thread for one function: the spare one when there is one. */
  take(): Thread {
    const thread = this.spare ?? this.start()
    this.spare = null
    return thread
  }

  /** Resolves when no thread is left. */
  async close(): Promise<void> {
    this.isClosed = true
    this.spare = null
    await Promise.all([...this.live].map(thread => thread.terminate()))
  }

  private start(): Thread {
    const thread = new Thread(this.file, {
      name: 'fngw-lua',
      // Lua sees the environment of its function only.
      env: {},
      execArgv: [],
      argv: [],
      stdin: false,
      stdout: true,
      stderr: true,
      trackUnmanagedFds: false,
      workerData: {
        memoryBytes: this.memoryMb * MIB,
        loadTimeoutMs: WORKER_READY_TIMEOUT_MS,
        graceMs: CANCEL_GRACE_MS,
      },
      // The thread watches itself and ends well below; the engine's own limit is the last resort.
      resourceLimits: {
        maxOldGenerationSizeMb: this.memoryMb * LUA_THREAD_HEAP.factor + LUA_THREAD_HEAP.reserveMb,
        maxYoungGenerationSizeMb: LUA_THREAD_HEAP.youngMb,
      },
    })
    this.live.add(thread)
    // A thread that cannot even start shows it to whoever took it.
    thread.on('error', () => {
      if (this.spare === thread) this.spare = null
    })
    thread.once('exit', () => {
      this.live.delete(thread)
      if (this.spare === thread) this.spare = null
    })
    return thread
  }
}

export class LuaThread extends Worker {
  private readonly thread: Thread
  private readonly onReady: () => void
  private start: string | undefined
  private unsent: unknown[] = []
  private isFlushing = false
  /** What a call took lately, milliseconds; not known to be quick at first. */
  private callMs = FAST_CALL_MS
  private isKilled = false
  private reason: string | null = null
  private loadTimer: NodeJS.Timeout | null

  /**
   * @param startHeader - JSON text of `start`
   * @param onReady - called once the function is loaded or cannot be
   */
  constructor(set: WorkerSet, threads: LuaThreads, startHeader: string, onReady: () => void) {
    super(set)
    this.start = startHeader
    this.onReady = onReady
    this.thread = threads.take()
    this.thread.on('message', (message: unknown[]) => this.read(message))
    this.thread.on('error', error => this.handleThreadError(error))
    this.thread.once('exit', () => this.handleExit())
    this.loadTimer = set.clock.setTimeout(() => this.handleSlowLoad(), WORKER_READY_TIMEOUT_MS)
    this.flushSoon()
  }

  /**
   * Quick calls are packed: waking a thread costs more than many a Lua call, and one message may carry many. So a busy
   * thread takes more ahead than a process does, and an idle one takes nothing while a busy one before it has room.
   */
  override hasRoom(now: number): boolean {
    if (this.inflight.size > 0) return super.hasRoom(now) || this.hasQuickRoom(now)
    return super.hasRoom(now) && !this.isSpared(now)
  }

  private hasQuickRoom(now: number): boolean {
    const open = this.inflight.size
    if (this.state !== 'ready' || this.callMs > LUA_PREFETCH.maxCallMs || open >= LUA_PREFETCH.calls) return false
    const [first] = this.inflight.values()
    return first !== undefined && now - first.startedAt < FAST_CALL_MS
  }

  private isSpared(now: number): boolean {
    for (const other of this.set.workers) {
      if (other === this) return false
      if (other instanceof LuaThread && other.hasQuickRoom(now)) return true
    }
    return false
  }

  protected override sendCall(call: RuntimeCall): void {
    this.unsent.push(call.wireId, call.header, call.body)
    this.flushSoon()
  }

  // A running handler hears nothing; the set ends the thread at the deadline.
  protected override sendCancel(): void {}
  protected override sendMore(): void {}
  protected override sendPing(): void {}

  protected override endNow(): void {
    this.isKilled = true
    this.clearLoadTimer()
    // Stops Lua code in the middle of an instruction; what it said before is still read.
    void this.thread.terminate()
  }

  protected override endGracefully(): void {
    this.endNow()
  }

  private flushSoon(): void {
    if (this.isFlushing) return
    this.isFlushing = true
    // After the poll phase: every request that arrived in it leaves in one message.
    setImmediate(this.flush)
  }

  private readonly flush = (): void => {
    this.isFlushing = false
    const { start, unsent } = this
    this.start = undefined
    this.unsent = []
    if (!this.isKilled) this.thread.postMessage({ start, calls: unsent })
  }

  private read(message: unknown[]): void {
    const [first] = this.inflight.values()
    if (first !== undefined) {
      const callMs = (this.set.clock.monotonic() - first.startedAt) / (message.length / 4)
      this.callMs += (Math.min(callMs, FAST_CALL_MS) - this.callMs) * AVERAGE_WEIGHT
    }
    for (let i = 0; i < message.length; i += 4) {
      this.handleMessage(message[i] as string, message[i + 1] as number, message[i + 2] as string, message[i + 3])
    }
  }

  private handleMessage(kind: string, id: number, text: string, body: unknown): void {
    switch (kind) {
      case 'reply':
        this.handleReply(id, text, toBody(body), false)
        return
      case 'error':
        this.handleError(id, toError(text))
        return
      case 'stdout':
      case 'stderr':
        this.handleLog(id, kind, text)
        return
      case 'ready':
        this.clearLoadTimer()
        this.handleReady(1)
        this.onReady()
        return
      case 'failed':
        this.clearLoadTimer()
        this.handleLoadError(toRuntimeError(JSON.parse(text)))
        this.onReady()
        return
      case 'dying':
        this.reason = text
        return
      default:
    }
  }

  private handleSlowLoad(): void {
    this.loadTimer = null
    this.handleLoadError(
      new GatewayError('LOAD_FAILED', `function did not load within ${WORKER_READY_TIMEOUT_MS / 1000} s`, {
        detail: { file: this.set.fn.entryFile, hint: 'move slow work out of the top level of the handler file' },
      }),
    )
  }

  private handleThreadError(error: Error & { code?: string }): void {
    this.reason ??= error.code === OUT_OF_MEMORY ? 'not enough memory' : `thread failed: ${error.message}`
  }

  private handleExit(): void {
    this.clearLoadTimer()
    // Replies that were joined with those of later calls may be lost with the thread.
    this.handleClosed({ reason: this.reason ?? 'thread ended', unexpected: !this.isKilled, complete: false })
    this.onReady()
  }

  private clearLoadTimer(): void {
    if (this.loadTimer !== null) this.set.clock.clearTimeout(this.loadTimer)
    this.loadTimer = null
  }
}

/** The thread ends a late call itself when this process is too busy to do it in time. */
function toError(text: string): GatewayError {
  const fields = JSON.parse(text)
  return fields.code === 'timeout' ? new GatewayError('TIMEOUT', 'runtime timeout') : toRuntimeError(fields)
}

/** Text has one character per byte; long bodies come as bytes. */
function toBody(body: unknown): Buffer {
  if (typeof body === 'string') return body === '' ? EMPTY : Buffer.from(body, 'latin1')
  const bytes = body as Uint8Array
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}
