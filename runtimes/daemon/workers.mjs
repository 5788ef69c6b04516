/**
 * The workers of one daemon: started on request of a gateway or ahead of it, until their end. Page: runtimes/node.
 */

import { chmodSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { KIND } from '../node/wire.mjs'
import { removeSocket, toWorkerAddress } from './address.mjs'
import { ENTRIES, PROGRAM, toNodeCommand, toStyle, toWaitingProgram } from './commands.mjs'
import { Guard } from './guard.mjs'
import { Meeting } from './meeting.mjs'
import { isDataReserved } from './memory.mjs'
import { NoProcessError, WorkerProcess } from './process.mjs'
import { QUIET_MS, SpareCount } from './spare-count.mjs'
import { asUser, parseUser, withUserFolders } from './user.mjs'

/** Milliseconds without a `start` before the next spare is started: a first call shall have the processor for itself. */
const SPARE_DELAY_MS = 50
/** Milliseconds after which a process is tried again while none can be started. */
const TRY_AGAIN_MS = 5000
/** A frame that tells it has room for more. */
const MAX_TROUBLE_CHARS = 500
/** Worker processes that may be starting at once; further ones wait in order. */
const MAX_STARTING = Math.max(2, availableParallelism() * 2)
/** What functions see of the environment; tokens and settings of the host stay away from them. */
const WORKER_VARIABLES =
  /^(PATH|HOME|USER|LOGNAME|LANG|LANGUAGE|LC_[A-Z]+|TZ|TMPDIR|TMP|TEMP|SSL_CERT_FILE|SSL_CERT_DIR|NODE_EXTRA_CA_CERTS)$/
/** Read and write for the owner and its group. */
const GROUP_SOCKET_MODE = 0o660
/** @type {Clock} */
const SYSTEM_CLOCK = { monotonic: () => performance.now(), setTimeout, clearTimeout }

/**
 * A gateway, as its workers see it.
 * @typedef {object} Owner
 * @property {(kind: number, id: number, header: object) => void} send
 * @property {(worker: string, stream: string, text: string) => void} sendLog
 * @property {boolean} takesReady - it connects to workers before it has a function for them
 * @property {boolean} takesPrograms - it tells such a worker the program that it becomes
 */
/**
 * @typedef {object} Worker
 * @property {string} id
 * @property {string} style - `js`, or `ts` with the TypeScript compiler loaded; `program` for a compiled function
 * @property {string} socket - where it will listen
 * @property {Owner | null} owner - null for a spare that nobody was told of
 * @property {boolean} isOffered - a gateway was told of it, is connected to it, and has not given it a function yet
 * @property {boolean} isToldProgram - it waits for the program that it becomes
 * @property {WorkerProcess} process
 */
/**
 * A worker whose gateway was connected before its process began.
 * @typedef {object} Met
 * @property {string} id
 * @property {string} socket - where they met
 * @property {Owner} owner
 * @property {import('node:net').Socket} connection
 */

/**
 * @typedef {object} Clock
 * @property {() => number} monotonic - ms
 * @property {(callback: () => void, ms: number) => any} setTimeout
 * @property {(timer: any) => void} clearTimeout
 */

/**
 * @typedef {object} WorkersOptions
 * @property {import('./address.mjs').Address} address - the daemon's own
 * @property {string} root - functions root, full path
 * @property {string} runtime - `node`, `go` or `rust`
 * @property {number} memoryMb - megabytes a worker may allocate; 0 means no limit
 * @property {number} spares - workers to keep ready of each style
 * @property {string[]} styles - styles of which spares are wanted from the beginning
 * @property {Clock} [clock]
 */

export class Workers {
  #options
  #guard = new Guard()
  #isWatched
  #env = Object.fromEntries(Object.entries(process.env).filter(([name]) => WORKER_VARIABLES.test(name)))
  /** @type {Map<string, Worker>} */
  #all = new Map()
  /** Started ahead and promised to nobody, oldest first. @type {Worker[]} */
  #spares = []
  /** Who is told of spares. @type {Owner | null} */
  #taker = null
  /** A spare that begins when its gateway has connected. @type {{ id: string, owner: Owner, meeting: Meeting, over: Promise<void> } | null} */
  #expected = null
  /** Spares come in two styles; those in use are kept ready. */
  #styles
  /** Starts that wait for a process slot, in order. @type {(() => void)[]} */
  #waiting = []
  #starting = 0
  #count = 0
  #clock
  #spareCount
  #spareTimer = null
  /** Runs when no start came for a while. */
  #quietTimer = null
  /** Why no worker can be started, whatever its function; null while they can. @type {string | null} */
  #trouble = null
  /** Told of a new trouble, and of its end. @type {Set<(trouble: string | null) => void>} */
  troubleListeners = new Set()
  #stopping = false

  get trouble() {
    return this.#trouble
  }

  /** @param {WorkersOptions} options */
  constructor(options) {
    this.#options = options
    this.#clock = options.clock ?? SYSTEM_CLOCK
    this.#spareCount = new SpareCount(options.spares)
    // Programs of go and rust reserve no data.
    this.#isWatched = options.runtime === 'node' && isDataReserved()
    this.#styles = new Set(options.styles)
  }

  /**
   * A listening worker for one gateway: the oldest spare, or a new process.
   * @param {Owner} owner
   * @param {Record<string, any>} header - of the `start` frame
   * @returns {Promise<Worker>}
   */
  async take(owner, header) {
    const { runtime } = this.#options
    if (runtime !== 'node' && typeof header.binary !== 'string')
      throw new Error(`start names no binary of the ${runtime} function`)
    const user = parseUser(header)
    const style = toStyle(header)
    const named = typeof header.worker === 'string' ? await this.#takeOffered(owner, header.worker) : null
    const spare = named === null && isForSpare(header, user) ? this.#takeSpare(style) : undefined
    this.#styles.add(style)
    this.#noteStart(style)
    this.planSpares()
    if (named !== null) return named
    if (spare !== undefined) {
      spare.owner = owner
      try {
        return await this.#introduce(spare, header, user)
      } catch (error) {
        // A program that was started and ended is not started twice.
        if (style === PROGRAM) throw error
        // The spare died unused, which says nothing about this function: start one for it.
      }
    }
    if (this.#starting >= MAX_STARTING) await new Promise(resolve => this.#waiting.push(() => resolve(undefined)))
    if (this.#stopping) throw new Error('daemon is stopping')
    const worker = this.#spawn(header.binary, style, user)
    worker.owner = owner
    return this.#introduce(worker, header, user)
  }

  /**
   * @param {Owner} owner
   * @param {string} id
   * @param {number} graceMs
   */
  stop(owner, id, graceMs) {
    const worker = this.#all.get(id)
    if (worker?.owner === owner) worker.process.kill(graceMs, 'stopped by the gateway')
    if (this.#expected?.id === id && this.#expected.owner === owner) this.#expected.meeting.close()
  }

  /** Nobody is left to use or stop the workers of a gateway that left. @param {Owner} owner */
  leave(owner) {
    if (this.#taker === owner) this.#taker = null
    if (this.#expected?.owner === owner) this.#expected.meeting.close()
    for (const worker of this.#all.values()) if (worker.owner === owner) worker.process.kill(0, 'gateway left')
  }

  /** Kills all of them. */
  close() {
    this.#stopping = true
    this.#expected?.meeting.close()
    for (const worker of this.#all.values()) {
      worker.process.kill(0, 'daemon stopped')
      this.#removeSocket(worker)
    }
  }

  /** A gateway is here that may want to know of spares. @param {Owner} owner */
  meet(owner) {
    if (owner.takesReady) this.#taker = owner
    this.#offerSpares()
    this.planSpares()
  }

  /** Starts the next spare when no `start` came for a moment; one at a time. */
  planSpares() {
    this.#planSpares(this.#count === 0 ? 0 : SPARE_DELAY_MS)
  }

  /** @param {number} delayMs */
  #planSpares(delayMs) {
    if (this.#spareTimer !== null) this.#clock.clearTimeout(this.#spareTimer)
    this.#spareTimer = null
    if (this.#stopping || this.#expected !== null) return
    const now = this.#clock.monotonic()
    const missing = [...this.#styles].find(style => this.#sparesOf(style).length < this.#spareCount.wanted(style, now))
    if (missing === undefined) return
    this.#spareTimer = this.#clock.setTimeout(() => {
      this.#spareTimer = null
      const taker = this.#taker
      const isMet = missing === PROGRAM && taker?.takesPrograms === true && this.#options.address.path !== undefined
      if (isMet) this.#expect(taker)
      else this.#addSpare(missing)
    }, delayMs)
  }

  /** @param {string} style */
  #sparesOf(style) {
    return this.#spares.filter(spare => spare.style === style)
  }

  /** @param {string} style */
  #noteStart(style) {
    // What becomes a program is a shell, which is there at once.
    if (style === PROGRAM) return
    this.#spareCount.noteStart(style, this.#clock.monotonic())
    if (this.#quietTimer !== null) this.#clock.clearTimeout(this.#quietTimer)
    this.#quietTimer = this.#clock.setTimeout(() => this.#stopAdditionalSpares(), QUIET_MS)
  }

  /** One that was offered stays: a function may have it already. */
  #stopAdditionalSpares() {
    const now = this.#clock.monotonic()
    for (const style of this.#styles) {
      const spares = this.#sparesOf(style)
      const surplus = spares.length - this.#spareCount.wanted(style, now)
      if (surplus <= 0) continue
      for (const spare of spares.filter(one => one.owner === null).slice(-surplus)) {
        this.#spares.splice(this.#spares.indexOf(spare), 1)
        spare.process.kill(0, 'not needed')
      }
    }
  }

  /** Offers as many of a style as are always ready; additional ones take their place when they are taken. */
  #offerSpares() {
    for (const spare of this.#spares)
      spare.process.warm.then(
        () => this.#offer(spare),
        () => {},
      )
  }

  /** Offers a spare for programs, which begins with the connection. @param {Owner} owner */
  #expect(owner) {
    const id = this.#name()
    const socket = toWorkerAddress(this.#options.address)
    const meeting = new Meeting(socket)
    const begin = async () => {
      await meeting.open
      owner.send(KIND.started, 0, { worker: id, uri: `unix:${socket}`, pid: 0, entries: [], takes_program: true })
      const connection = await meeting.connection
      this.#expected = null
      if (connection === null) return
      if (this.#stopping) connection.destroy()
      else this.#addSpare(PROGRAM, { id, socket, owner, connection })
    }
    const over = begin().catch(error => {
      this.#expected = null
      this.#noteTrouble(`${socket}: ${error.message}`.slice(0, MAX_TROUBLE_CHARS))
      this.#planSpares(TRY_AGAIN_MS)
    })
    this.#expected = { id, owner, meeting, over }
  }

  /** @param {string} style @param {Met | null} [met] */
  #addSpare(style, met = null) {
    const worker = this.#spawn(undefined, style, null, met)
    this.#spares.push(worker)
    worker.process.warm.then(
      () => {
        this.#offer(worker)
        this.planSpares()
      },
      error => {
        // It ran nothing of any function.
        this.#noteTrouble(error.message.slice(0, MAX_TROUBLE_CHARS))
        // Not at once: a broken set-up must not spin.
        this.#planSpares(TRY_AGAIN_MS)
      },
    )
  }

  /**
   * Tells the gateway of a spare, which connects to it at once. One for programs that has no connection has nobody who could accept one.
   * @param {Worker} spare
   */
  async #offer(spare) {
    const taker = this.#taker
    if (taker === null || spare.owner !== null || spare.isToldProgram || !this.#spares.includes(spare)) return
    if (this.#sparesOf(spare.style).filter(one => one.isOffered).length >= this.#options.spares) return
    spare.owner = taker
    spare.isOffered = true
    spare.process.tell(JSON.stringify({ socket: spare.socket, start: null, user: null }))
    try {
      await spare.process.ready
    } catch {
      // Its end is told as every worker's.
      return
    }
    const { uri, pid } = spare.process
    taker.send(KIND.started, 0, { worker: spare.id, uri, pid, entries: ENTRIES[spare.style] })
  }

  /** @param {Owner} owner @param {string} id @throws Error when it is no more */
  async #takeOffered(owner, id) {
    // The gateway is connected, of which this process may not have heard.
    if (this.#expected?.id === id && this.#expected.owner === owner) await this.#expected.over
    const spare = this.#spares.find(one => one.id === id && one.owner === owner && one.isOffered)
    if (spare === undefined) {
      this.planSpares()
      throw new Error('the worker that waited has ended')
    }
    // Its function may have ended it already: how is told by `exited`, which an error here would come before.
    this.#spares.splice(this.#spares.indexOf(spare), 1)
    spare.isOffered = false
    this.#offerSpares()
    return spare
  }

  /**
   * Tells a worker where to listen, and its program, or its function when the gateway named it: that is loaded while the gateway is
   * still on its way. Until then the worker has no socket that others could find.
   * @param {Worker} worker
   * @param {Record<string, any>} header - of the `start` frame
   * @param {import('./user.mjs').User | null} user - whom a node worker becomes before it loads anything
   * @returns {Promise<Worker>} once it listens
   */
  async #introduce(worker, header, user) {
    if (this.#options.runtime === 'node' && typeof header.binary !== 'string') {
      const start = typeof header.early === 'string' ? header.early : null
      worker.process.uid = user?.uid ?? null
      worker.process.tell(JSON.stringify({ socket: worker.socket, start, user }))
    } else if (worker.isToldProgram) worker.process.tell(`${worker.socket}\n${header.binary}`)
    await worker.process.ready
    // Made by the user; a gateway that is not root is in its group.
    if (user !== null && typeof header.binary === 'string' && process.geteuid?.() !== 0)
      asUser(user.uid, () => chmodSync(worker.socket, GROUP_SOCKET_MODE))
    return worker
  }

  /**
   * @param {string} style
   * @returns {Worker | undefined} the oldest spare of the style, or else of the other: still faster than a new process
   */
  #takeSpare(style) {
    // One that was offered may have a function already, of which the gateway has not told yet.
    const living = this.#spares.filter(spare => !spare.process.gone && !spare.isOffered)
    const spare = living.find(candidate => candidate.style === style) ?? living[0]
    if (spare !== undefined) this.#spares.splice(this.#spares.indexOf(spare), 1)
    return spare
  }

  /** Of the next worker. */
  #name() {
    this.#count += 1
    return `${process.pid}-${this.#count}`
  }

  /**
   * @param {unknown} binary - program of a compiled function
   * @param {string} style
   * @param {import('./user.mjs').User | null} user - whom the program of a compiled function runs as
   * @param {Met | null} [met]
   * @returns {Worker}
   */
  #spawn(binary, style, user, met = null) {
    const { address, memoryMb, root } = this.#options
    const id = met?.id ?? this.#name()
    const runsAs = typeof binary === 'string' ? user : null
    // A program that begins as its user can make its socket in a folder of that user only.
    const near = runsAs === null ? address : { path: join(runsAs.folder, 'w.sock') }
    const socket = met?.socket ?? toWorkerAddress(near)
    const isToldProgram = style === PROGRAM && binary === undefined
    const [command, args] = isToldProgram
      ? toWaitingProgram(met !== null)
      : typeof binary === 'string'
        ? [binary, ['--socket', socket]]
        : toNodeCommand(style, toWorkerAddress(address), memoryMb)
    this.#starting += 1
    /** @type {Worker} */
    const worker = {
      id,
      style,
      socket,
      owner: met?.owner ?? null,
      isOffered: met !== null,
      isToldProgram,
      process: /** @type {any} */ (undefined),
    }
    worker.process = new WorkerProcess({
      command,
      args,
      env: runsAs === null ? this.#env : withUserFolders(this.#env, runsAs),
      user: runsAs,
      cwd: root,
      memoryMb,
      isWatched: this.#isWatched,
      connection: met?.connection ?? null,
      guard: this.#guard,
      onOutput: (stream, text) => worker.owner?.sendLog(id, stream, text),
      onExit: end => this.#handleExit(worker, end),
    })
    this.#all.set(id, worker)
    const settle = () => {
      this.#starting -= 1
      this.#waiting.shift()?.()
    }
    worker.process.warm.then(settle, settle)
    worker.process.warm.then(
      () => this.#noteTrouble(null),
      error => {
        if (error instanceof NoProcessError) this.#noteTrouble(error.message.slice(0, MAX_TROUBLE_CHARS))
      },
    )
    return worker
  }

  /** @param {string | null} trouble */
  #noteTrouble(trouble) {
    // A daemon that stops ends its own.
    if (this.#stopping || trouble === this.#trouble) return
    this.#trouble = trouble
    // Without spares nothing is tried before the next `start`, which nobody may ask of a runtime that is down.
    if (trouble !== null && this.#options.spares === 0) setTimeout(() => this.#noteTrouble(null), TRY_AGAIN_MS).unref()
    for (const listener of this.troubleListeners) listener(trouble)
  }

  /** @param {Worker} worker @param {object} end */
  #handleExit(worker, end) {
    this.#all.delete(worker.id)
    const at = this.#spares.indexOf(worker)
    if (at !== -1) this.#spares.splice(at, 1)
    if (worker.isOffered) this.#offerSpares()
    worker.owner?.send(KIND.exited, 0, { worker: worker.id, ...end })
    this.#removeSocket(worker)
  }

  /** @param {Worker} worker */
  #removeSocket({ socket }) {
    if (this.#options.address.path !== undefined) removeSocket(socket)
  }
}

/**
 * A program that begins as a user of its own is started as that user, and a path is told in one line.
 * @param {Record<string, any>} header - of a `start`
 * @param {import('./user.mjs').User | null} user
 */
function isForSpare({ binary }, user) {
  return typeof binary !== 'string' || (user === null && !binary.includes('\n'))
}
