/**
 * Starts worker processes for a daemon: own process group, limits, captured output. Knows nothing of a language, so the
 * daemons of node, go and rust share it. Page: runtime/daemon.
 */

import { spawn } from 'node:child_process'
import { accessSync, constants } from 'node:fs'
import { constants as osConstants } from 'node:os'
import { delimiter, join } from 'node:path'
import { StringDecoder } from 'node:string_decoder'

/** Megabytes of private memory a process needs beside what its function may allocate: code, stacks, reserved heap. */
const BASE_MEMORY_MB = 256
/** Output bytes of one stream that are passed on per second; the rest is dropped with a note. */
const OUTPUT_BYTES_PER_SECOND = 256 * 1024
/** Output bytes of one stream that are read per second: a flood slows its writer, not the daemon. */
const READ_BYTES_PER_SECOND = 32 * 1024 * 1024
const OUTPUT_WINDOW_MS = 100
/** Milliseconds that output may still arrive after a worker's end. */
const OUTPUT_DRAIN_MS = 50
const NOTE_AT = Math.round((OUTPUT_BYTES_PER_SECOND * OUTPUT_WINDOW_MS) / 1000)
const PAUSE_AT = Math.round((READ_BYTES_PER_SECOND * OUTPUT_WINDOW_MS) / 1000)

// `ulimit -d` bounds native memory too; the kernel's own victim choice falls on workers first; no core files. The shell
// stays as the worker's parent: a handler that kills its parent then hits nobody else.
const GUARD_SCRIPT =
  'ulimit -c 0 2>/dev/null; ulimit -d "$0" 2>/dev/null; echo 1000 2>/dev/null >/proc/self/oom_score_adj; "$@"; exit $?'

/** @type {Map<number, string>} */
const signalNames = new Map()
// Of two names for one number the first is the usual one.
for (const [name, number] of Object.entries(osConstants.signals)) {
  if (!signalNames.has(number)) signalNames.set(number, name)
}

/**
 * @typedef {object} SpawnOptions
 * @property {string} command - program to run
 * @property {string[]} args
 * @property {NodeJS.ProcessEnv} env - the whole environment of the worker
 * @property {string} cwd
 * @property {number} memoryMb - megabytes the worker may allocate; 0 means no limit
 * @property {(stream: 'stdout' | 'stderr', text: string) => void} onOutput
 * @property {(end: { code: number | null, signal: string | null, reason: string }) => void} onExit - called once
 */

/** One worker process. `ready` resolves with the uri it listens on, or rejects when it ends before that. */
export class WorkerProcess {
  /** @type {number} 0 when it could not be started */
  pid
  /** @type {Promise<string>} */
  ready
  /** @type {string} set once it listens */
  uri = ''
  /** The process is gone; `onExit` follows when its last output is read. */
  gone = false
  ended = false
  #child
  #options
  /** @type {string | null} first cause, told instead of the signal's name */
  #reason = null
  /** @type {NodeJS.Timeout | null} */
  #killTimer = null

  /** @param {SpawnOptions} options */
  constructor(options) {
    this.#options = options
    const [command, args] = guarded(options)
    this.#child = spawn(command, args, {
      cwd: options.cwd,
      env: options.env,
      // A session and group of its own: a terminal's Ctrl-C does not reach it, and one kill takes its children along.
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
    })
    this.pid = this.#child.pid ?? 0
    this.ready = this.#readUri()
    // A worker that ends before it listens is told by onExit as well; an unheeded rejection must not end the daemon.
    this.ready.catch(() => {})
    const outputs = [this.#follow('stdout'), this.#follow('stderr')]
    this.#child.once('error', error => this.#end(null, null, `cannot start ${options.command}: ${error.message}`))
    this.#child.once('exit', (code, signal) => {
      this.gone = true
      // Children it left behind in its group end with it.
      this.#signalGroup()
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

  #signalGroup() {
    if (this.#killTimer !== null) clearTimeout(this.#killTimer)
    if (this.pid === 0) return
    try {
      process.kill(-this.pid, 'SIGKILL')
    } catch {
      // Already gone.
    }
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
    const name = signal ?? (code !== null && code > 128 ? (signalNames.get(code - 128) ?? null) : null)
    const reason = failure ?? this.#reason ?? (name === null ? `exited with code ${code}` : `ended by ${name}`)
    this.#options.onExit({ code: name === null ? code : null, signal: name, reason })
  }

  /** @param {string} line - for a worker that listens to its descriptor 3 */
  tell(line) {
    const pipe = /** @type {import('node:net').Socket} */ (this.#child.stdio[3])
    if (!pipe.destroyed) pipe.write(`${line}\n`)
  }

  /** The worker writes one line, the uri it listens on, to descriptor 3. */
  #readUri() {
    const pipe = /** @type {import('node:net').Socket} */ (this.#child.stdio[3])
    return new Promise((resolve, reject) => {
      let text = ''
      pipe.on('error', () => {})
      pipe.on('data', bytes => {
        if (this.uri !== '') return
        text += bytes
        const end = text.indexOf('\n')
        if (end === -1) {
          if (text.length > 4096) this.kill(0, 'told no socket')
          return
        }
        this.uri = text.slice(0, end)
        resolve(this.uri)
      })
      this.#child.once('error', reject)
      this.#child.once('exit', () => reject(new Error('worker ended before it listened')))
    })
  }

  /**
   * Passes on what the worker writes to a descriptor, within the budget.
   * @param {'stdout' | 'stderr'} name
   * @returns {Promise<void>} settles when the stream has ended
   */
  #follow(name) {
    const pipe = this.#child[name]
    if (pipe === null) return Promise.resolve()
    const decoder = new StringDecoder('utf8')
    let windowBytes = 0
    let dropped = 0
    /** @type {NodeJS.Timeout | null} */
    let window = null
    const note = () => {
      if (dropped > 0) this.#options.onOutput(name, `[${dropped} bytes of output dropped]\n`)
      dropped = 0
    }
    const onWindow = () => {
      window = null
      windowBytes = 0
      note()
      pipe.resume()
    }
    return new Promise(resolve => {
      pipe.on('data', bytes => {
        window ??= setTimeout(onWindow, OUTPUT_WINDOW_MS)
        windowBytes += bytes.length
        if (windowBytes <= NOTE_AT) this.#options.onOutput(name, decoder.write(bytes))
        else dropped += bytes.length
        if (windowBytes >= PAUSE_AT) pipe.pause()
      })
      pipe.on('error', () => {})
      pipe.once('close', () => {
        if (window !== null) clearTimeout(window)
        note()
        resolve()
      })
    })
  }
}

/**
 * The command line with limits around it, as far as this machine offers them.
 * @param {SpawnOptions} options
 * @returns {[string, string[]]}
 */
function guarded({ command, args, memoryMb }) {
  if (process.platform === 'win32') return [command, args]
  const setpriv = process.platform === 'linux' ? findProgram('setpriv') : null
  // Each process dies with its parent, so all of them with the daemon, even when that is killed and cannot tell anybody.
  const bound = setpriv === null ? [] : [setpriv, '--pdeathsig', 'KILL', '--']
  const limit = memoryMb > 0 && process.platform === 'linux' ? String((memoryMb + BASE_MEMORY_MB) * 1024) : 'unlimited'
  const line = [...bound, '/bin/sh', '-c', GUARD_SCRIPT, limit, ...bound, command, ...args]
  return [/** @type {string} */ (line[0]), line.slice(1)]
}

/** @type {Map<string, string | null>} */
const programs = new Map()

/**
 * @param {string} name
 * @returns {string | null} full path of a program on PATH
 */
function findProgram(name) {
  let found = programs.get(name)
  if (found !== undefined) return found
  found = null
  for (const folder of (process.env.PATH ?? '').split(delimiter)) {
    const path = join(folder, name)
    try {
      accessSync(path, constants.X_OK)
      found = path
      break
    } catch {
      // Not in this folder.
    }
  }
  programs.set(name, found)
  return found
}
