/**
 * One worker process as its daemon sees it: own process group, limits, captured output, its end. Knows nothing of a
 * language. Page: runtime/daemon.
 */

import { spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { constants } from 'node:os'
import { BASE_MEMORY_MB, LastWords, MemoryWatch, toOutOfMemory } from './memory.mjs'
import { followOutput } from './output.mjs'
import { killDescendants, killLeftovers, MARK } from './leftovers.mjs'
import { killGroup } from './user.mjs'

/** Milliseconds that output may still arrive after a worker's end. */
const OUTPUT_DRAIN_MS = 50
/** What a worker tells on descriptor 3 is short; one that writes more tells nothing, characters. */
const MAX_LINE_CHARS = 4096
/** No rights for group and others. */
const PRIVATE_UMASK = 0o077
/** The line of a worker that waits to be told where to listen. */
const WARM = 'warm'
/** What a shell exits with when it cannot run a program. */
const CANNOT_RUN = [126, 127]

/**
 * Names of signals by number; of two names for one number the first is the usual one.
 * @type {ReadonlyMap<number, string>}
 */
const SIGNAL_NAMES = new Map(
  Object.entries(constants.signals)
    .reverse()
    .map(([name, number]) => [number, name]),
)

/** The system did not start the process at all. */
export class NoProcessError extends Error {}

/**
 * @typedef {object} SpawnOptions
 * @property {string} command - program to run
 * @property {string[]} args
 * @property {NodeJS.ProcessEnv} env - the whole environment of the worker
 * @property {string} cwd
 * @property {import('./user.mjs').User | null} user - whom its program begins as; null: as the daemon
 * @property {number} memoryMb - megabytes the worker may allocate; 0 means no limit
 * @property {boolean} isWatched - its memory is looked at; otherwise the system limits its data
 * @property {import('./guard.mjs').Guard} guard
 * @property {import('node:net').Socket | null} connection - to its gateway, which it gets as descriptor 4; null when it listens itself
 * @property {(stream: 'stdout' | 'stderr', text: string) => void} onOutput
 * @property {(end: { code: number | null, signal: string | null, reason: string }) => void} onExit - called once
 */

/**
 * One worker process. It tells in lines on descriptor 3 how far it is: `warm` when it waits to be told where to listen, and
 * the uri it listens on. `warm` resolves with the first of the two, `ready` with the uri; both reject when it ends before.
 */
export class WorkerProcess {
  /** @type {number} 0 when it could not be started */
  pid
  warm
  ready
  /** @type {string} set once it listens */
  uri = ''
  /** The process is gone; `onExit` follows when its last output is read. */
  gone = false
  ended = false
  /** User that it runs as beside the daemon's. @type {number | null} */
  uid
  #child
  #options
  /** Of its processes. */
  #mark = randomUUID()
  /** @type {string | null} first cause, told instead of the signal's name */
  #reason = null
  /** @type {NodeJS.Timeout | null} */
  #killTimer = null
  /** @type {MemoryWatch | null} */
  #watch = null
  #lastWords = new LastWords()

  /** @param {SpawnOptions} options */
  constructor(options) {
    this.#options = options
    this.uid = options.user?.uid ?? null
    const limitMb = options.memoryMb > 0 ? options.memoryMb + BASE_MEMORY_MB : 0
    const [command, args] = options.guard.wrap(
      options.command,
      options.args,
      options.isWatched ? 0 : limitMb,
      options.user,
    )
    // What a user of its own writes is for that user.
    const umask = options.user === null ? null : process.umask(PRIVATE_UMASK)
    this.#child = spawn(command, args, {
      cwd: options.cwd,
      env: { ...options.env, [MARK]: this.#mark },
      // A group of its own, where that takes a session too: one kill takes its children along.
      detached: !options.guard.leadsGroup,
      stdio: ['ignore', 'pipe', 'pipe', 'pipe', ...(options.connection === null ? [] : [options.connection])],
    })
    // With a second owner of the connection its gateway would not hear of the worker's end.
    options.connection?.destroy()
    if (umask !== null) process.umask(umask)
    this.pid = this.#child.pid ?? 0
    if (this.pid > 0) options.guard.settle(this.pid)
    if (options.isWatched && limitMb > 0 && this.pid > 0) {
      this.#watch = new MemoryWatch(this.pid, limitMb, () => this.kill(0, toOutOfMemory(options.memoryMb)))
    }
    const told = this.#readLines()
    this.warm = told.warm
    this.ready = told.ready
    // A worker that ends before it listens is told by onExit as well; an unheeded rejection must not end the daemon.
    this.warm.catch(() => {})
    this.ready.catch(() => {})
    const outputs = [this.#follow('stdout'), this.#follow('stderr')]
    this.#child.once('error', error => this.#end(null, null, `cannot start ${options.command}: ${error.message}`))
    this.#child.once('exit', (code, signal) => {
      this.gone = true
      this.#watch?.stop()
      // Children it left behind in its group end with it.
      this.#signalGroup()
      if (this.uid === null) killLeftovers(this.#mark)
      const timer = setTimeout(finish, OUTPUT_DRAIN_MS)
      Promise.all(outputs).then(finish)
      const end = this.#end.bind(this)
      function finish() {
        clearTimeout(timer)
        end(code, signal, null)
      }
    })
  }

  /**
   * Kills the worker with its process group. A second call may shorten the time, never lengthen it.
   * @param {number} graceMs - milliseconds it may still run
   * @param {string} reason - told by onExit
   */
  kill(graceMs, reason) {
    if (this.ended) return
    this.#reason ??= reason
    if (graceMs <= 0) {
      this.#signalGroup()
      return
    }
    if (this.#killTimer === null) this.#killTimer = setTimeout(() => this.#signalGroup(), graceMs)
  }

  /** @param {string} line - for a worker that listens to its descriptor 3 */
  tell(line) {
    const pipe = /** @type {import('node:net').Socket} */ (this.#child.stdio[3])
    if (!pipe.destroyed) pipe.write(`${line}\n`)
  }

  #signalGroup() {
    if (this.#killTimer !== null) clearTimeout(this.#killTimer)
    if (this.pid === 0) return
    // Before it ends: afterwards they have another parent.
    if (!this.gone) killDescendants(this.pid, this.uid)
    killGroup(this.pid, this.uid, this.gone)
  }

  /**
   * @param {number | null} code
   * @param {string | null} signal
   * @param {string | null} failure
   */
  #end(code, signal, failure) {
    if (this.ended) return
    this.ended = true
    for (const stream of this.#child.stdio) stream?.destroy()
    // The shell tells the signal that ended the worker as 128 + its number.
    const name = signal ?? (code !== null && code > 128 ? (SIGNAL_NAMES.get(code - 128) ?? null) : null)
    const reason = failure ?? this.#reason ?? this.#toReason(code, name)
    this.#options.onExit({ code: name === null ? code : null, signal: name, reason })
  }

  /** @param {number | null} code @param {string | null} signal */
  #toReason(code, signal) {
    const end = signal === null ? `exited with code ${code}` : `ended by ${signal}`
    // Why the program that it was to become could not be run.
    if (this.uri === '' && CANNOT_RUN.includes(code ?? 0)) return `${end}: ${this.#lastWords.line}`
    if (!this.#lastWords.tellOutOfMemory(signal ?? code)) return end
    return `${toOutOfMemory(this.#options.memoryMb)} (${end})`
  }

  #readLines() {
    const pipe = /** @type {import('node:net').Socket} */ (this.#child.stdio[3])
    const warm = withResolvers()
    const ready = withResolvers()
    let text = ''
    pipe.on('error', () => {})
    pipe.on('data', bytes => {
      if (this.uri !== '') return
      text += bytes
      for (let end = text.indexOf('\n'); end !== -1 && this.uri === ''; end = text.indexOf('\n')) {
        const line = text.slice(0, end)
        text = text.slice(end + 1)
        warm.resolve()
        if (line === WARM) continue
        this.uri = line
        ready.resolve()
      }
      if (text.length > MAX_LINE_CHARS) this.kill(0, 'told no socket')
    })
    const fail = (/** @type {Error} */ error) => {
      warm.reject(error)
      ready.reject(error)
    }
    this.#child.once('error', error => fail(new NoProcessError(error.message)))
    // After its last words, which tell why.
    this.#child.once('close', () => {
      const words = this.#lastWords.line
      fail(new Error(`worker ended before it listened${words === '' ? '' : `: ${words}`}`))
    })
    return { warm: warm.promise, ready: ready.promise }
  }

  /**
   * @param {'stdout' | 'stderr'} name
   * @returns {Promise<void>}
   */
  #follow(name) {
    const pipe = this.#child[name]
    if (name === 'stderr') pipe?.on('data', bytes => this.#lastWords.add(bytes))
    return pipe === null ? Promise.resolve() : followOutput(pipe, text => this.#options.onOutput(name, text))
  }
}

/**
 * A promise with its ends in hand; `Promise.withResolvers` comes with Node 22.
 * @returns {{ promise: Promise<void>, resolve: () => void, reject: (error: Error) => void }}
 */
function withResolvers() {
  /** @type {any} */
  const made = {}
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }))
  return made
}
