/** The Lua runtime: one thread of this process per worker, no daemon and no socket. Owner: §1, page runtime/lua-runtime. */

import { availableParallelism } from 'node:os'
import { Worker as Thread } from 'node:worker_threads'
import type { Settings } from '../config/settings.ts'
import { Timer } from '../core/clock.ts'
import { copyOf, giveBack } from '../core/byte-pool.ts'
import { LUA_THREADS } from '../core/limits.ts'
import type { RuntimeCall } from './call.ts'
import { runtimeFile } from './package-files.ts'
import type { Runtime, RuntimeHealth } from './runtime.ts'
import {
  CANCEL_GRACE_MS,
  type StartFacts,
  toStartHeader,
  Worker,
  WORKER_READY_TIMEOUT_MS,
  type WorkerOwner,
} from './worker.ts'

/** Of the language that fengari runs. */
const LUA_VERSION = '5.3'
/** Engine heap of a Lua thread: its memory limit times `factor` plus a reserve; and its young generation, megabytes. */
const LUA_THREAD_HEAP = { factor: 2, reserveMb: 64, youngMb: 8 } as const
const MIB = 1024 * 1024
const KIB_PER_MIB = 1024
/** Items of the memory all threads share, and of what each shares with the gateway. */
const [TOTAL, THREADS, LIMIT, MEMORY_ITEMS] = [0, 1, 2, 3]
const [OWN_KIB, PROGRESS_ITEMS] = [1, 2]

interface StartedThread {
  thread: Thread
  /** Memory shared with the thread, which can be read even when the thread hangs: calls it has begun, KiB it holds. */
  progress: Int32Array
}

/** The worker that a thread serves. */
type ThreadUser = Pick<Worker, 'activity' | 'stop'>

/** Starts threads and keeps one in reserve: loading the interpreter takes longer than most first calls may. */
export class LuaRuntime implements Runtime {
  readonly name = 'lua'
  readonly sockets = null
  readonly preparer = null
  readonly maxWorkers = Math.min(Math.max(2 * availableParallelism(), LUA_THREADS.min), LUA_THREADS.max)
  readonly #facts: StartFacts
  readonly #memoryMb: number
  readonly #file = runtimeFile('lua/worker.mjs')
  #spare: StartedThread | null = null
  /** Every thread that has not ended, the spare one included. */
  readonly #live = new Set<Thread>()
  /** Threads that serve a function, with their workers and what they say of themselves. */
  readonly #users = new Map<Thread, { user: ThreadUser; progress: Int32Array }>()
  /** Memory of all threads together, as page runtime/lua-runtime draws it: KiB held, threads, KiB allowed. */
  readonly #memory = new Int32Array(new SharedArrayBuffer(MEMORY_ITEMS * Int32Array.BYTES_PER_ELEMENT))
  #isNeeded = false
  #isClosed = false

  /** @param memory - most megabytes that the Lua code of one thread may hold, and that of all together; no less than one of them */
  constructor(memory: Pick<Settings, 'workerMemoryMb' | 'luaMemoryMb'>, facts: StartFacts) {
    this.#facts = facts
    this.#memoryMb = memory.workerMemoryMb
    this.#memory[LIMIT] = Math.max(memory.workerMemoryMb, memory.luaMemoryMb) * KIB_PER_MIB
  }

  /** Megabytes that all threads hold together, as they said last. */
  get heldMb(): number {
    return Atomics.load(this.#memory, TOTAL) / KIB_PER_MIB
  }

  /** Threads that have not ended. */
  get threadCount(): number {
    return this.#live.size
  }

  start(): Promise<void> {
    this.#isNeeded = true
    this.keepSpare()
    return Promise.resolve()
  }

  /** A gateway without Lua functions pays for no thread. */
  rest(): void {
    this.#isNeeded = false
    void this.#spare?.thread.terminate()
    this.#spare = null
  }

  /** Makes sure that a started thread is waiting, where one is needed. */
  keepSpare(): void {
    if (this.#isNeeded && !this.#isClosed) this.#spare ??= this.#start()
  }

  spawn(set: WorkerOwner): LuaThread {
    return new LuaThread(set, this, toStartHeader(set.fn, this.#facts))
  }

  /** A thread for one function: the spare one when there is one. */
  take(user: ThreadUser): StartedThread {
    const started = this.#spare ?? this.#start()
    this.#spare = null
    this.#users.set(started.thread, { user, progress: started.progress })
    return started
  }

  /**
   * Ends threads that hold much and do nothing while all together hold too much, the largest first: one that runs looks at
   * its memory itself, one that waits does not. The memory of threads that are about to end counts as given back.
   */
  relieve(): void {
    let excess = Atomics.load(this.#memory, TOTAL) - this.#memory[LIMIT]!
    if (excess <= 0) return
    const held = [...this.#users.values()].map(({ user, progress }) => ({ user, kib: Atomics.load(progress, OWN_KIB) }))
    const leaving = held.filter(({ user }) => user.activity === 'ending')
    for (const { kib } of leaving) excess -= kib
    const share = this.#memory[LIMIT]! / Math.max(1, this.#memory[THREADS]! - leaving.length)
    const idle = held.filter(({ user }) => user.activity === 'idle')
    for (const { user, kib } of idle.sort((a, b) => b.kib - a.kib)) {
      if (excess <= 0 || kib <= share) return
      user.stop()
      excess -= kib
    }
  }

  health(): RuntimeHealth {
    const up = !this.#isClosed
    const reason = up ? 'in-process' : 'gateway is shutting down'
    const sockets = [{ index: 1, uri: 'inprocess:lua', up, reason }]
    return { routing: 'single', up, reason, version: LUA_VERSION, sockets }
  }

  /** Resolves when no thread is left. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#spare = null
    await Promise.all([...this.#live].map(thread => thread.terminate()))
  }

  #start(): StartedThread {
    const progress = new Int32Array(new SharedArrayBuffer(PROGRESS_ITEMS * Int32Array.BYTES_PER_ELEMENT))
    const thread = new Thread(this.#file, {
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
        memoryBytes: this.#memoryMb * MIB,
        loadTimeoutMs: WORKER_READY_TIMEOUT_MS,
        graceMs: CANCEL_GRACE_MS,
        progress: progress.buffer,
        memory: this.#memory.buffer,
      },
      // The thread watches itself and ends well below; the engine's own limit is the last resort.
      resourceLimits: {
        maxOldGenerationSizeMb: this.#memoryMb * LUA_THREAD_HEAP.factor + LUA_THREAD_HEAP.reserveMb,
        maxYoungGenerationSizeMb: LUA_THREAD_HEAP.youngMb,
      },
    })
    this.#live.add(thread)
    Atomics.add(this.#memory, THREADS, 1)
    // The error of a thread that cannot start is handled by the worker that takes the thread.
    thread.on('error', () => this.#dropSpare(thread))
    thread.once('exit', () => {
      this.#live.delete(thread)
      this.#users.delete(thread)
      Atomics.sub(this.#memory, THREADS, 1)
      Atomics.sub(this.#memory, TOTAL, Atomics.exchange(progress, OWN_KIB, 0))
      this.#dropSpare(thread)
    })
    return { thread, progress }
  }

  #dropSpare(thread: Thread): void {
    if (this.#spare?.thread === thread) this.#spare = null
  }
}

// A thread that serves one Lua function, as a worker of its set.

/** Maximum number of calls in one message to a thread; calls wait for the end of a poll phase. */
const FLUSH_MESSAGES = 32
/** Bytes from which on the copy of a body goes over as it is, and leaves nothing here for the collector; a message makes another copy of a shorter one. */
const GIVEN_BYTES = 32 * 1024
const FIELDS_OF_A_CALL = 3
const EMPTY = Buffer.alloc(0)
const OUT_OF_MEMORY = 'ERR_WORKER_OUT_OF_MEMORY'

class LuaThread extends Worker {
  readonly #thread: Thread
  readonly #runtime: LuaRuntime
  readonly #progress: Int32Array
  #start: string | undefined
  #unsent: unknown[] = []
  /** Memory of long bodies in it. */
  #given: ArrayBuffer[] = []
  #isFlushing = false
  /** Calls that were answered. */
  #answered = 0
  #reason: string | null = null
  readonly #loadTimer: Timer

  /** @param startHeader - JSON text of `start` */
  constructor(set: WorkerOwner, runtime: LuaRuntime, startHeader: string) {
    super(set)
    this.#start = startHeader
    this.#runtime = runtime
    const { thread, progress } = runtime.take(this)
    this.#thread = thread
    this.#progress = progress
    thread.on('message', (message: unknown[]) => this.#read(message))
    thread.on('error', ({ code, message }: NodeJS.ErrnoException) => {
      this.#reason ??= code === OUT_OF_MEMORY ? 'out of memory' : `thread failed: ${message}`
    })
    thread.once('exit', () => this.#handleExit())
    this.#loadTimer = new Timer(set.clock)
    this.#loadTimer.set(WORKER_READY_TIMEOUT_MS, () => this.handleSlowLoad())
    this.#flushSoon()
  }

  protected override sendCall(call: RuntimeCall): void {
    const body = call.body && copyOf(call.body)
    this.#unsent.push(call.wireId, call.header, body)
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
    this.#loadTimer.clear()
    // Stops Lua code in the middle of an instruction; its earlier messages are still read.
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
    const message = { start: this.#start, calls: this.#unsent }
    const given = this.#given
    this.#start = undefined
    this.#unsent = []
    this.#given = []
    if (this.activity !== 'ending') this.#thread.postMessage(message, given)
  }

  #read(message: unknown[]): void {
    for (let i = 0; i < message.length; i += 4) {
      this.#handleMessage(message[i] as string, message[i + 1] as number, message[i + 2] as string, message[i + 3])
    }
    this.#runtime.relieve()
  }

  #handleMessage(kind: string, id: number, text: string, body: unknown): void {
    switch (kind) {
      case 'reply':
        this.#answered++
        this.#handleReply(id, text, body)
        return
      case 'error':
        this.#answered++
        // Also a timeout: the thread ends a late call itself when this process is too busy to do it in time.
        this.handleFailure(id, JSON.parse(text))
        return
      case 'stdout':
      case 'stderr':
        this.handleLog(id, kind, text)
        return
      case 'ready':
        this.#loadTimer.clear()
        this.set.onFiles(JSON.parse(text).files)
        this.handleReady(1)
        this.#handleLoaded()
        return
      case 'loaded':
        this.set.onFiles(JSON.parse(text).files)
        return
      case 'failed':
        this.#loadTimer.clear()
        this.handleFailure(0, JSON.parse(text))
        this.#handleLoaded()
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
    // A receiver that needs it further has a copy.
    giveBack(bytes)
  }

  /** The next spare thread starts when the function is through and its answer is passed on: it would slow the first call. */
  #handleLoaded(): void {
    setImmediate(() => this.#runtime.keepSpare())
  }

  #handleExit(): void {
    this.#loadTimer.clear()
    // If its count of begun calls shows that responses are lost, it is unknown which of the open calls were begun.
    const complete = Atomics.load(this.#progress, 0) - this.#answered <= 1
    this.handleClosed({ reason: this.#reason ?? 'thread ended', unexpected: true, complete })
    this.#handleLoaded()
  }
}
