/** The Lua runtime: one thread of this process per worker, no daemon and no socket. Owner: §1, page runtime/lua-runtime. */

import { availableParallelism } from 'node:os'
import type { Settings } from '../config/settings.ts'
import { LUA_THREADS } from '../core/limits.ts'
import { LuaThreads } from './lua-threads.ts'
import { LuaThread } from './lua-worker.ts'
import type { Runtime, RuntimeHealth } from './runtime.ts'
import { type StartFacts, toStartHeader } from './start-header.ts'
import type { WorkerOwner } from './worker.ts'

/** Of the language that fengari runs. */
const LUA_VERSION = '5.3'

export class LuaRuntime implements Runtime {
  readonly name = 'lua'
  readonly sockets = null
  readonly preparer = null
  readonly maxWorkers = Math.min(Math.max(2 * availableParallelism(), LUA_THREADS.min), LUA_THREADS.max)
  readonly #facts: StartFacts
  readonly #threads: LuaThreads
  #isNeeded = false
  #isClosed = false

  /** @param memory - most megabytes that the Lua code of one thread may hold, and that of all together */
  constructor(memory: Pick<Settings, 'workerMemoryMb' | 'luaMemoryMb'>, facts: StartFacts) {
    this.#facts = facts
    this.#threads = new LuaThreads(memory.workerMemoryMb, memory.luaMemoryMb)
  }

  /** Threads that have not ended, the spare one included. */
  get threadCount(): number {
    return this.#threads.count
  }

  /** Megabytes that all threads hold together, as they said last. */
  get heldMb(): number {
    return this.#threads.heldMb
  }

  start(): Promise<void> {
    this.#isNeeded = true
    this.#keepSpare()
    return Promise.resolve()
  }

  /** A gateway without Lua functions pays for no thread. */
  rest(): void {
    this.#isNeeded = false
    this.#keepSpare()
  }

  spawn(set: WorkerOwner): LuaThread {
    // The next spare thread starts when this one is through and its answer is passed on: it would slow the first call.
    return new LuaThread(set, this.#threads, toStartHeader(set.fn, this.#facts), () =>
      setImmediate(() => this.#keepSpare()),
    )
  }

  health(): RuntimeHealth {
    const up = !this.#isClosed
    const reason = up ? 'in-process' : 'gateway is shutting down'
    return {
      routing: 'single',
      up,
      reason,
      version: LUA_VERSION,
      sockets: [{ index: 1, uri: 'inprocess:lua', up, reason }],
    }
  }

  close(): Promise<void> {
    this.#isClosed = true
    return this.#threads.close()
  }

  #keepSpare(): void {
    this.#threads.keepSpare(this.#isNeeded && !this.#isClosed)
  }
}
