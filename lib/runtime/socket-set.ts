/** The sockets of one runtime: which one starts the next worker, and how they are. Owner: §2.8, §2.15, page runtime/daemon. */

import type { BytePool } from '../core/byte-pool.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { within } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import type { RuntimeName } from '../core/identity.ts'
import { DAEMON_READY_TIMEOUT_MS } from './control-connection.ts'
import { Daemon, type DaemonOptions, type Launch, type StartRequest } from './daemon.ts'
import type { FunctionUser } from './function-users.ts'
import type { Preparer, Runtime, RuntimeHealth, Sockets, WorkerStart } from './runtime.ts'
import { type AskedWorker, SocketWorker, type StartedWorker } from './socket-worker.ts'
import { type StartFacts, toStartHeader, type WorkerOwner } from './worker.ts'

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
  /** Called with the user of a worker that has ended. */
  onUserLeft?(uid: number): void
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
    this.daemons = Array.from({ length: count }, (_, at) => {
      const externalUri = options.externalUris[at] ?? null
      return new Daemon({ ...options, index: at + 1, externalUri, launch: () => options.launch(at + 1) })
    })
    let begun = 0
    const up = () => this.daemons.filter(({ state }) => state === 'up').map(({ index }) => index)
    this.sockets = count === 1 ? null : { count, begin: () => begun++ % count, up }
  }

  start(): Promise<void> {
    if (!this.#isClosed) this.#started ??= this.#start()
    return this.#started ?? Promise.resolve()
  }

  async #start(): Promise<void> {
    for (const daemon of this.daemons) daemon.ensureStarted()
    await Promise.all(this.daemons.map(daemon => (daemon.state === 'starting' ? daemon.change() : undefined)))
  }

  spawn(set: WorkerOwner, program: string | null): SocketWorker {
    const { header, source } = this.#toStart(set.fn, program, true)
    return new SocketWorker(set, source, header, this.#options.pool, this.#options.flushFrames)
  }

  prepareStart(fn: FunctionVersion, program: string | null): WorkerStart {
    return this.#toStart(fn, program, false)
  }

  #toStart(fn: FunctionVersion, program: string | null, isHere: boolean): WorkerStart {
    const header = toStartHeader(fn, this.#options.facts)
    const startWorker = async (asked: AskedWorker): Promise<StartedWorker> => {
      const request = this.#toRequest(asked.set.fn, program, header, isHere)
      const worker = await this.#startWorker(request, asked)
      const { uid } = request
      if (uid !== null) void worker.ended.then(() => this.#options.onUserLeft?.(uid))
      return worker
    }
    return { header, source: { startWorker } }
  }

  /**
   * @param header - JSON text of the worker's own `start`
   * @param isHere - false where another process connects to the worker
   */
  #toRequest(fn: FunctionVersion, program: string | null, header: string, isHere: boolean): StartRequest {
    const { facts, runtime, startsEarly, userOf } = this.#options
    let user: FunctionUser | null
    try {
      user = userOf(fn, program)
    } catch (error) {
      throw this.#toDown((error as Error).message)
    }
    const { key, name, version, fnDir: dir, entryPath: entry } = fn
    const fields = {
      ...{ key, runtime, name, version, root: facts.functionsRoot, dir, entry },
      ...(user !== null && { user }),
      ...(program !== null && { binary: program }),
    }
    const uid = user?.uid ?? null
    const early = startsEarly && program === null ? header : undefined
    return { fields, early, program, uid, mayBeReady: isHere && uid === null }
  }

  async #startWorker(request: StartRequest, asked: AskedWorker): Promise<StartedWorker> {
    const { clock, socketFolder } = this.#options
    const isFirstStart = this.daemons.every(({ info }) => info === null)
    const waitMs = isFirstStart ? DAEMON_READY_TIMEOUT_MS : asked.set.fn.policy.timeoutMs
    const giveUpAt = clock.monotonic() + waitMs
    const failed = new Set<Daemon>()
    let reason = ''
    for (const daemon of this.daemons) daemon.ensureStarted()
    for (;;) {
      const daemon = this.#pick(failed, asked)
      if (daemon !== null) {
        asked.socketIndex = daemon.index
        try {
          // A cleaner of temporary folders may have deleted it.
          return await daemon.startWorker(request, socketFolder?.() ?? null)
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

  health(): RuntimeHealth {
    const sockets = this.daemons.map(daemon => daemon.health())
    const down = sockets.filter(socket => !socket.up)
    const up = down.length < sockets.length
    const { reason: first } = down[0] ?? sockets[0]!
    const reason = down.length > 0 && up ? `${down.length} of ${sockets.length} sockets down: ${first}` : first
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
  #pick(failed: ReadonlySet<Daemon>, { set }: AskedWorker): Daemon | null {
    const inTurn = [...this.daemons.slice(this.#next), ...this.daemons.slice(0, this.#next)]
    const fit = inTurn.filter(daemon => daemon.state === 'up' && !failed.has(daemon))
    const [best = null] = fit.sort((a, b) => set.loadOf(a.index) - set.loadOf(b.index))
    // Its index is from 1: that of the next one from 0.
    if (best !== null) this.#next = best.index % this.daemons.length
    return best
  }

  #toDown(reason: string): GatewayError {
    const why = reason === '' ? this.daemons[0]!.reason : reason
    return new GatewayError('RUNTIME_DOWN', 'runtime down', {
      headers: { 'Retry-After': '1' },
      detail: { hint: `${this.#options.runtime}: ${why}` },
    })
  }
}
