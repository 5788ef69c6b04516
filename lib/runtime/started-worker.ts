/** Started workers, as their callers see them. Owner: §1, page runtime/daemon. */

import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import type { FunctionVersion } from '../core/catalog.ts'
import { type Clock, within } from '../core/clock.ts'
import type { ReadyConnection } from './ready-workers.ts'
import type { WorkerAddress } from './worker-socket.ts'

export interface WorkerExit {
  code: number | null
  signal: string | null
  reason: string
  /** True when its daemon ended and took it along: no fault of the function. */
  isOfDaemon?: boolean
}

/** A worker that a daemon started. */
export interface StartedWorker extends WorkerAddress {
  socketIndex: number
  /** Opened ahead, and greeted; absent or null where it is to be dialled. */
  connection?: ReadyConnection | null
  /** Its process on this machine; null where that is not known. */
  pid: number | null
  kill(graceMs: number): void
  onExit(callback: (exit: WorkerExit) => void): void
}

export interface WorkerSource {
  /**
   * @param loadOf - workers the function has at a socket: it is started where there are fewest
   * @param onSocket - gets the socket (from 1) that is asked, and again when another socket has to do it
   * @throws GatewayError RUNTIME_DOWN when no socket of the runtime can start one
   */
  startWorker(
    fn: FunctionVersion,
    loadOf: (socketIndex: number) => number,
    onSocket: (socketIndex: number) => void,
  ): Promise<StartedWorker>
}

// Workers of one daemon: their owners, and how they ended.

/** Ends kept while starts are open: more are no daemon's that works. */
const MAX_EARLY_EXITS = 64

interface WorkerFacts {
  /** Of its function, as its start was asked for. */
  key: string
  pid: number
  /** User of its handler, null for the daemon's. */
  uid: number | null
}

/** How a worker ended, for its listeners. */
export class WorkerEnd {
  /** Null while it lives. */
  exit: WorkerExit | null
  readonly #listeners: ((exit: WorkerExit) => void)[] = []

  constructor(exit: WorkerExit | null = null) {
    this.exit = exit
  }

  /** Also reports an earlier exit; never from inside the call, because the caller has not finished its set-up. */
  listen(listener: (exit: WorkerExit) => void): void {
    const { exit } = this
    if (exit !== null) queueMicrotask(() => listener(exit))
    else this.#listeners.push(listener)
  }

  settle(exit: WorkerExit): void {
    this.exit = exit
    for (const listener of this.#listeners.splice(0)) listener(exit)
  }
}

export type WorkerRecord = WorkerFacts & WorkerEnd

export class WorkerRecords {
  /** Workers that have not ended, by id. */
  readonly #live = new Map<string, WorkerRecord>()
  /** Starts whose answer is not here yet, or not taken over. */
  #opening = 0
  /** Exits reported before the start they belong to; only while a start is open. */
  readonly #earlyExits = new Map<string, WorkerExit>()

  /** @param start - asks for a worker and adds it */
  async during<T>(start: () => Promise<T>): Promise<T> {
    this.#opening += 1
    try {
      return await start()
    } finally {
      this.#opening -= 1
      if (this.#opening === 0) this.#earlyExits.clear()
    }
  }

  get(id: string): WorkerRecord | undefined {
    return this.#live.get(id)
  }

  /** A daemon that gives one id twice gets one record: all that hold it hear of its end. */
  add(id: string, facts: WorkerFacts): WorkerRecord {
    const exit = this.#earlyExits.get(id) ?? null
    this.#earlyExits.delete(id)
    const record = this.#live.get(id)
    if (record !== undefined) return Object.assign(record, facts)
    const made: WorkerRecord = Object.assign(new WorkerEnd(exit), facts)
    if (exit === null) this.#live.set(id, made)
    return made
  }

  /** Reports the end to all listeners, once. */
  end(id: string, exit: WorkerExit): void {
    const record = this.#live.get(id)
    if (record === undefined) {
      // It may have ended before its start was reported. Others have no owner.
      if (this.#opening > 0 && this.#earlyExits.size < MAX_EARLY_EXITS) this.#earlyExits.set(id, exit)
      return
    }
    this.#live.delete(id)
    record.settle(exit)
  }

  /** @param kill - called for each before its exit is reported */
  endAll(exit: WorkerExit, kill: (record: WorkerRecord) => void): void {
    for (const [id, record] of [...this.#live]) {
      kill(record)
      this.end(id, exit)
    }
  }
}

// The end of a process of this machine that leads a group.

/** Milliseconds a daemon has to end after its control input was closed. */
const DAEMON_STOP_GRACE_MS = 2000

/** Kills a process with everything in its group. One that has not made its group yet is killed first, so that it cannot start a process that is missed. */
export function killGroup(pid: number | undefined): void {
  if (pid === undefined || pid <= 1) return
  for (const target of [pid, -pid]) {
    try {
      process.kill(target, 'SIGKILL')
    } catch {
      // Already gone.
    }
  }
}

/** Ends a daemon that runs, with its group when it takes too long. */
export async function endDaemon(child: ChildProcess, clock: Clock): Promise<void> {
  // An error: it never ran.
  const ended = once(child, 'exit').catch(() => [])
  // It ends at the end of its control input.
  child.stdin?.destroy()
  if ((await within(clock, DAEMON_STOP_GRACE_MS, ended)) === null) killGroup(child.pid)
  await ended
}
