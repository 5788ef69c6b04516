/** Threads of this process that have the Lua interpreter loaded, and one of them in reserve. Page: runtime/lua-runtime. */

import { Worker as Thread } from 'node:worker_threads'
import { runtimeFile } from './package-files.ts'
import { CANCEL_GRACE_MS, WORKER_READY_TIMEOUT_MS } from './worker.ts'

/** Engine heap of a Lua thread: its memory limit times `factor` plus a reserve; and its young generation, megabytes. */
const LUA_THREAD_HEAP = { factor: 2, reserveMb: 64, youngMb: 8 } as const

const MIB = 1024 * 1024
const KIB_PER_MIB = 1024
/** Items of the memory all threads share, and of what each shares with the gateway. */
const [TOTAL, THREADS, LIMIT, MEMORY_ITEMS] = [0, 1, 2, 3]
const [OWN_KIB, PROGRESS_ITEMS] = [1, 2]

/** The worker that a thread serves. */
interface ThreadUser {
  /** True while it has no open call. */
  readonly isIdle: boolean
  /** True when it was told to end, which takes it a moment. */
  readonly isEnding: boolean
  stop(): void
}

interface StartedThread {
  thread: Thread
  /**
   * Memory shared with the thread, which can be read even when the thread hangs: calls it has begun, KiB it holds.
   */
  progress: Int32Array
}

/** Starts threads and keeps one ready: loading the interpreter takes longer than most first calls may. */
export class LuaThreads {
  readonly #memoryMb: number
  readonly #file = runtimeFile('lua/worker.mjs')
  #spare: StartedThread | null = null
  /** Every thread that has not ended, the spare one included. */
  readonly #live = new Set<Thread>()
  /** Threads that serve a function, with their workers and what they say of themselves. */
  readonly #users = new Map<Thread, { user: ThreadUser; progress: Int32Array }>()
  #isClosed = false

  /** What all threads hold together, as page runtime/lua-runtime draws it: KiB held, threads, KiB allowed. */
  readonly #memory = new Int32Array(new SharedArrayBuffer(MEMORY_ITEMS * Int32Array.BYTES_PER_ELEMENT))

  /**
   * @param memoryMb - most that the Lua code of one thread may hold
   * @param totalMemoryMb - most that all threads may hold together; no less than one of them
   */
  constructor(memoryMb: number, totalMemoryMb: number) {
    this.#memoryMb = memoryMb
    this.#memory[LIMIT] = Math.max(memoryMb, totalMemoryMb) * KIB_PER_MIB
  }

  /** Megabytes that all threads hold together, as they said last. */
  get heldMb(): number {
    return Atomics.load(this.#memory, TOTAL) / KIB_PER_MIB
  }

  /** Threads that have not ended. */
  get count(): number {
    return this.#live.size
  }

  /** Makes sure that a started thread is waiting; without need for one, that none is. */
  keepSpare(isNeeded: boolean): void {
    if (!isNeeded || this.#isClosed) {
      void this.#spare?.thread.terminate()
      this.#spare = null
    } else this.#spare ??= this.#start()
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
   * its memory itself, one that waits does not. What those hold that are about to end is given back already, for this.
   */
  relieve(): void {
    let excess = Atomics.load(this.#memory, TOTAL) - this.#memory[LIMIT]!
    if (excess <= 0) return
    const held = [...this.#users.values()].map(({ user, progress }) => ({ user, kib: Atomics.load(progress, OWN_KIB) }))
    const leaving = held.filter(({ user }) => user.isEnding)
    for (const { kib } of leaving) excess -= kib
    const share = this.#memory[LIMIT]! / Math.max(1, this.#memory[THREADS]! - leaving.length)
    const idle = held.filter(({ user }) => user.isIdle)
    for (const { user, kib } of idle.sort((a, b) => b.kib - a.kib)) {
      if (excess <= 0 || kib <= share) return
      user.stop()
      excess -= kib
    }
  }

  /** Resolves when no thread is left. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#spare = null
    await Promise.all([...this.#live].map(thread => thread.terminate()))
  }

  #start(): StartedThread {
    const progress = new SharedArrayBuffer(PROGRESS_ITEMS * Int32Array.BYTES_PER_ELEMENT)
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
        progress,
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
      Atomics.sub(this.#memory, TOTAL, Atomics.exchange(new Int32Array(progress), OWN_KIB, 0))
      this.#dropSpare(thread)
    })
    return { thread, progress: new Int32Array(progress) }
  }

  #dropSpare(thread: Thread): void {
    if (this.#spare?.thread === thread) this.#spare = null
  }
}
