/** The sockets of one runtime: which one starts the next worker, and how they are. Owner: §2.8, §2.15, page runtime/daemon. */

import type { BytePool } from '../core/byte-pool.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { within } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import type { RuntimeName } from '../core/identity.ts'
import { Daemon, type DaemonOptions, type Launch, type StartRequest } from './daemon.ts'
import type { FunctionUser, UserProcesses } from './function-users.ts'
import type { Preparer, Runtime, RuntimeHealth, Sockets, WorkerStart } from './runtime.ts'
import { SocketWorker } from './socket-worker.ts'
import type { StartedWorker, WorkerSource } from './started-worker.ts'
import { type StartFacts, toStartHeader } from './start-header.ts'
import type { WorkerOwner } from './worker.ts'
import { DAEMON_READY_TIMEOUT_MS } from './control-connection.ts'

interface SocketSetOptions extends Omit<DaemonOptions, 'index' | 'externalUri' | 'launch'> {
  /** Memory for large frames. */
  pool: BytePool
  /** Sockets of external daemons; then none is spawned. */
  externalUris: readonly string[]
  /** Daemons to spawn, used without `externalUris`. */
  daemonCount: number
  /** Of a compiled language, whose daemon is a Node.js program; undefined when unknown. Absent: the daemon reports its version. */
  toolchain?: { version: string | undefined }
  /** @throws Error with a message for people */
  launch(index: number): Launch
  /** Full path of the folder where daemons put sockets, made again when it is gone; null for daemons that run elsewhere. */
  socketFolder: (() => string) | null
  preparer: Preparer | null
  facts: StartFacts
  /** The user that workers of a function, or its program, run as; null when it is the daemon's. @throws Error with a message for people */
  userOf(fn: FunctionVersion, program: string | null): FunctionUser | null
  /** Workers of users of functions; null or absent where there are none. */
  userProcesses?: UserProcesses | null
  /** True when the daemon hands a worker its `start` itself, before the gateway is connected to it. */
  startsEarly: boolean
  /** Frames that leave for a worker at once. */
  flushFrames?: number
}

/** A runtime whose functions run in worker processes behind daemons, started with its first function. */
export class SocketSet implements Runtime {
  readonly name: RuntimeName
  readonly preparer: Preparer | null
  readonly maxWorkers = Number.POSITIVE_INFINITY
  readonly sockets: Sockets | null
  readonly daemons: readonly Daemon[]
  readonly #options: SocketSetOptions
  #next = 0
  #started: Promise<void> | null = null
  #isClosed = false

  constructor(options: SocketSetOptions) {
    this.#options = options
    this.name = options.runtime
    this.preparer = options.preparer
    const count = options.externalUris.length || Math.max(1, options.daemonCount)
    this.daemons = Array.from(
      { length: count },
      (_, at) =>
        new Daemon({
          ...options,
          index: at + 1,
          externalUri: options.externalUris[at] ?? null,
          launch: () => options.launch(at + 1),
          killGroupOf: (uid, pid) => options.userProcesses?.killGroup(uid, pid),
        }),
    )
    let begun = 0
    this.sockets = count === 1 ? null : { count, begin: () => begun++ % count, up: () => this.#listUp() }
  }

  start(): Promise<void> {
    if (!this.#isClosed) this.#started ??= this.#start()
    return this.#started ?? Promise.resolve()
  }

  async #start(): Promise<void> {
    for (const daemon of this.daemons) daemon.ensureStarted()
    await Promise.all(this.daemons.map(daemon => (daemon.state === 'starting' ? daemon.change() : undefined)))
  }

  /** Daemons stay: the next function shall not wait for them. */
  rest(): void {}

  spawn(set: WorkerOwner, program: string | null): SocketWorker {
    const { header, source } = this.#toStart(set.fn, program, true)
    return new SocketWorker(set, source, header, this.#options.pool, this.#options.flushFrames)
  }

  prepareStart(fn: FunctionVersion, program: string | null): WorkerStart {
    return this.#toStart(fn, program, false)
  }

  #toStart(fn: FunctionVersion, program: string | null, mayBeReady: boolean): WorkerStart {
    const header = toStartHeader(fn, this.#options.facts)
    const startWorker: WorkerSource['startWorker'] = async (asked, loadOf, onSocket) => {
      const request = this.#toRequest(asked, program, header, mayBeReady)
      const worker = await this.#startWorker(request, asked.policy.timeoutMs, loadOf, onSocket)
      const { uid } = request
      if (uid !== null) worker.onExit(() => this.#options.userProcesses?.leave(uid))
      return worker
    }
    return { header, source: { startWorker } }
  }

  /** @param early - JSON text of the worker's own `start` */
  #toRequest(fn: FunctionVersion, program: string | null, early: string, mayBeReady: boolean): StartRequest {
    const { facts, runtime, startsEarly } = this.#options
    let user: FunctionUser | null
    try {
      user = this.#options.userOf(fn, program)
    } catch (error) {
      throw this.#toDown((error as Error).message)
    }
    const fields = {
      key: fn.key,
      runtime,
      name: fn.name,
      version: fn.version,
      root: facts.functionsRoot,
      dir: fn.fnDir,
      entry: fn.entryPath,
      ...(user !== null && { user }),
      ...(program !== null && { binary: program }),
    }
    return {
      key: fn.key,
      entry: fn.entryPath,
      program,
      uid: user?.uid ?? null,
      mayBeReady,
      toHeader: worker => {
        if (worker !== null) return JSON.stringify({ ...fields, worker })
        return JSON.stringify(startsEarly && program === null ? { ...fields, early } : fields)
      },
    }
  }

  /** @param waitMs - for a daemon that is restarted */
  async #startWorker(
    request: StartRequest,
    waitMs: number,
    loadOf: (socketIndex: number) => number,
    onSocket: (socketIndex: number) => void,
  ): Promise<StartedWorker> {
    const { clock } = this.#options
    const isFirstStart = this.daemons.every(({ info }) => info === null)
    const giveUpAt = clock.monotonic() + (isFirstStart ? DAEMON_READY_TIMEOUT_MS : waitMs)
    const failed = new Set<Daemon>()
    let reason = ''
    for (const daemon of this.daemons) daemon.ensureStarted()
    for (;;) {
      const daemon = this.#pick(failed, loadOf)
      if (daemon !== null) {
        onSocket(daemon.index)
        try {
          // A cleaner of temporary folders may have deleted it.
          const folder = this.#options.socketFolder?.() ?? null
          return await daemon.startWorker(request, folder)
        } catch (error) {
          // The next socket may do better; this one is asked again only when it has been restarted.
          reason = (error as Error).message
          if (daemon.state === 'up') failed.add(daemon)
          continue
        }
      }
      const now = clock.monotonic()
      const coming = this.daemons.filter(candidate => now + candidate.delay(now) < giveUpAt)
      if (coming.length === 0) throw this.#toDown(reason)
      await within(clock, giveUpAt - now, Promise.race(coming.map(candidate => candidate.change())))
    }
  }

  /** Indexes (from 1) of the sockets that can start workers now. */
  #listUp(): number[] {
    return this.daemons.filter(({ state }) => state === 'up').map(({ index }) => index)
  }

  health(): RuntimeHealth {
    const sockets = this.daemons.map(daemon => daemon.health())
    const down = sockets.filter(socket => !socket.up)
    const up = down.length < sockets.length
    let reason = sockets[0]!.reason
    if (down.length > 0 && up) reason = `${down.length} of ${sockets.length} sockets down: ${down[0]!.reason}`
    else if (down.length > 0) reason = down[0]!.reason
    const { toolchain } = this.#options
    const known = this.daemons.find(({ info }) => info !== null)?.info?.version
    const version = (toolchain === undefined ? known : toolchain.version) ?? null
    return { routing: sockets.length > 1 ? 'round_robin' : 'single', up, reason, version, sockets }
  }

  async close(): Promise<void> {
    this.#isClosed = true
    await Promise.all(this.daemons.map(daemon => daemon.close()))
  }

  /** Of the sockets that are up the one with the fewest workers of the function, in turn where several have. */
  #pick(failed: ReadonlySet<Daemon>, loadOf: (socketIndex: number) => number): Daemon | null {
    const count = this.daemons.length
    let best = -1
    let bestLoad = Number.POSITIVE_INFINITY
    for (let step = 0; step < count; step++) {
      const at = (this.#next + step) % count
      const daemon = this.daemons[at]!
      if (daemon.state !== 'up' || failed.has(daemon)) continue
      const load = loadOf(daemon.index)
      if (load >= bestLoad) continue
      best = at
      bestLoad = load
    }
    if (best === -1) return null
    this.#next = (best + 1) % count
    return this.daemons[best]!
  }

  #toDown(reason: string): GatewayError {
    const why = reason === '' ? this.daemons[0]!.reason : reason
    return new GatewayError('RUNTIME_DOWN', 'runtime down', {
      headers: { 'Retry-After': '1' },
      detail: { hint: `${this.#options.runtime}: ${why}` },
    })
  }
}
