/** What is known of the workers of one daemon: whose they are, and how they ended. Owner: §1, page runtime/daemon. */

import type { WorkerExit } from './started-worker.ts'

/** Ends kept while starts are open: more are no daemon's that works. */
const MAX_EARLY_EXITS = 64

type WorkerFacts = Pick<WorkerRecord, 'key' | 'pid' | 'uid'>

export interface WorkerRecord {
  /** Of its function, as its start was asked for. */
  key: string
  pid: number
  /** User of its handler, null for the daemon's. */
  uid: number | null
  exit: WorkerExit | null
  listeners: ((exit: WorkerExit) => void)[]
}

export class WorkerRecords {
  /** Workers that have not ended, by id. */
  readonly #live = new Map<string, WorkerRecord>()
  /** Starts whose answer is not here yet, or not taken over. */
  #opening = 0
  /** Ends that were told before the start they belong to; only while a start is open. */
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
    const made: WorkerRecord = { ...facts, exit, listeners: [] }
    if (exit === null) this.#live.set(id, made)
    return made
  }

  /** Tells all that listen, once. */
  end(id: string, exit: WorkerExit): void {
    const record = this.#live.get(id)
    if (record === undefined) {
      // It may have ended before its start was told to whoever asked. More than that is nobody's.
      if (this.#opening > 0 && this.#earlyExits.size < MAX_EARLY_EXITS) this.#earlyExits.set(id, exit)
      return
    }
    this.#live.delete(id)
    record.exit = exit
    for (const listener of record.listeners.splice(0)) listener(exit)
  }

  /** @param kill - is called for each before its end is told */
  endAll(exit: WorkerExit, kill: (record: WorkerRecord) => void): void {
    for (const [id, record] of [...this.#live]) {
      kill(record)
      this.end(id, exit)
    }
  }
}

/** Also tells of an end that came before; never from inside the call: the caller has not finished its own set-up. */
export function listenForExit({ exit, listeners }: WorkerRecord, listener: (exit: WorkerExit) => void): void {
  if (exit !== null) queueMicrotask(() => listener(exit))
  else listeners.push(listener)
}
