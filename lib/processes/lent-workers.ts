/** Workers that the first process has started for one front, and ends when it is told to or when the front is gone. Owner: page processes/processes. */

import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError, toGatewayError } from '../core/errors.ts'
import type { Clock } from '../core/clock.ts'
import type { Dispatcher } from '../runtime/dispatcher.ts'
import type { WorkerSource } from '../runtime/started-worker.ts'
import { toErrorHeader } from './link-text.ts'
import type { FromFront, WorkerMessage } from './messages.ts'

type StartMessage = Extract<FromFront, { kind: 'startWorker' }>

interface LentWorkersOptions {
  clock: Pick<Clock, 'monotonic'>
  dispatcher: Pick<Dispatcher, 'lend'>
  /** What starts workers of a function; null where there is none. */
  sourceOf(fn: FunctionVersion, program: string | null): WorkerSource | null
  findFunction(key: string): FunctionVersion | null
  tell(message: WorkerMessage): void
}

export class LentWorkers {
  readonly #options: LentWorkersOptions
  readonly #kills = new Map<number, (graceMs: number) => void>()
  #isClosed = false

  constructor(options: LentWorkersOptions) {
    this.#options = options
  }

  /** Workers that live. */
  get size(): number {
    return this.#kills.size
  }

  start({ ask, key, program }: StartMessage): void {
    this.#start(ask, key, program).catch(error =>
      this.#options.tell({ kind: 'noWorker', ask, error: toErrorHeader(toGatewayError(error)) }),
    )
  }

  stop(ask: number, graceMs: number): void {
    this.#kills.get(ask)?.(graceMs)
  }

  /** The front is gone: nobody else would end its workers. */
  close(): void {
    this.#isClosed = true
    for (const kill of [...this.#kills.values()]) kill(0)
  }

  async #start(ask: number, key: string, program: string | null): Promise<void> {
    const { clock, dispatcher, findFunction, sourceOf, tell } = this.#options
    const fn = findFunction(key)
    const source = fn === null ? null : sourceOf(fn, program)
    if (fn === null || source === null) throw new GatewayError('RUNTIME_DOWN', 'runtime down')
    const started = await source.startWorker(
      fn,
      () => 0,
      () => {},
    )
    if (this.#isClosed) {
      started.kill(0)
      return
    }
    this.#kills.set(ask, graceMs => started.kill(graceMs))
    const { id, uri, isShared, trust, socketIndex, pid } = started
    const forget = dispatcher.lend({ fn, socketIndex, pid, startedAt: clock.monotonic() })
    tell({ kind: 'worker', ask, worker: { id, uri, isShared, trust, socketIndex, pid } })
    started.onExit(exit => {
      forget()
      this.#kills.delete(ask)
      tell({ kind: 'workerExit', ask, exit })
    })
  }
}
