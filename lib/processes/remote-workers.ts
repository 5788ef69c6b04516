/** Worker processes that the first process starts and ends for a front, which connects to them itself. In a front. Owner: page processes/processes. */

import { GatewayError } from '../core/errors.ts'
import type { StartedWorker, WorkerExit, WorkerSource } from '../runtime/started-worker.ts'
import { fromErrorHeader } from './link-text.ts'
import type { FromFront, WorkerMessage } from './messages.ts'

interface Asked {
  resolve(worker: StartedWorker): void
  reject(error: GatewayError): void
  onSocket(socketIndex: number): void
}

interface Live {
  exit: WorkerExit | null
  listeners: ((exit: WorkerExit) => void)[]
}

export class RemoteWorkers {
  readonly #tell: (message: FromFront) => void
  readonly #asked = new Map<number, Asked>()
  readonly #live = new Map<number, Live>()
  #lastAsk = 0

  constructor(tell: (message: FromFront) => void) {
    this.#tell = tell
  }

  /** @param header - JSON text of the workers' `start` frame */
  sourceOf(program: string | null, header: string): WorkerSource {
    return {
      startWorker: (fn, _loadOf, onSocket) =>
        new Promise((resolve, reject) => {
          this.#lastAsk += 1
          this.#asked.set(this.#lastAsk, { resolve, reject, onSocket })
          this.#tell({ kind: 'startWorker', ask: this.#lastAsk, key: fn.key, program, header })
        }),
    }
  }

  handle(message: WorkerMessage): void {
    if (message.kind === 'workerExit') this.#handleExit(message.ask, message.exit)
    else if (message.kind === 'worker') this.#handleStarted(message)
    else {
      this.#asked
        .get(message.ask)
        ?.reject(fromErrorHeader(message.error) ?? new GatewayError('RUNTIME_DOWN', 'runtime down'))
      this.#asked.delete(message.ask)
    }
  }

  #handleStarted({ ask, worker }: Extract<WorkerMessage, { kind: 'worker' }>): void {
    const asked = this.#asked.get(ask)
    if (asked === undefined) return
    this.#asked.delete(ask)
    const live: Live = { exit: null, listeners: [] }
    this.#live.set(ask, live)
    asked.onSocket(worker.socketIndex)
    asked.resolve({
      ...worker,
      kill: graceMs => {
        if (live.exit === null) this.#tell({ kind: 'stopWorker', ask, graceMs })
      },
      onExit: listener => {
        const { exit } = live
        // Never from inside the call: the caller has not finished its own set-up.
        if (exit !== null) queueMicrotask(() => listener(exit))
        else live.listeners.push(listener)
      },
    })
  }

  #handleExit(ask: number, exit: WorkerExit): void {
    const live = this.#live.get(ask)
    if (live === undefined) return
    this.#live.delete(ask)
    live.exit = exit
    for (const listener of live.listeners.splice(0)) listener(exit)
  }
}
