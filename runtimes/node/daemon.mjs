/**
 * Daemon: starts worker processes on request of a gateway and tells it their ends and output. Holds no user code, so it
 * never hangs. Serves node (with spare workers started ahead), go and rust (with the binary each `start` names).
 * Pages: runtime/daemon, runtime/wire-protocol.
 *
 *   node daemon.mjs --socket <path | unix:path | tcp://host:port> --index <n> --root <functions root> [--standalone]
 *   FNGW_RUNTIME=node|go|rust  FNGW_WORKER_MEMORY_MB=<n>  FNGW_SPARES=<n>  FNGW_STYLES=js,ts
 */

import { chmodSync, rmdirSync, rmSync, unlinkSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import { availableParallelism } from 'node:os'
import { basename, dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { WorkerProcess } from './spawn.mjs'
import { encodeFrame, FrameReader, FrameWriter, KIND, PROTOCOL_VERSION, parseHeader } from './wire.mjs'

/** Milliseconds without a `start` before the next spare is started: a first call shall have the processor for itself. */
const SPARE_DELAY_MS = 50
/** Worker processes that may be starting at once; further ones wait in order. */
const MAX_STARTING = Math.max(2, availableParallelism() * 2)
/** Output waiting on a control connection above which further output is dropped, bytes. */
const MAX_WAITING_OUTPUT_BYTES = 1024 * 1024
/** What functions see of the environment; tokens and settings of the host stay away from them. */
const WORKER_VARIABLES =
  /^(PATH|HOME|USER|LOGNAME|LANG|LANGUAGE|LC_[A-Z]+|TZ|TMPDIR|TMP|TEMP|SSL_CERT_FILE|SSL_CERT_DIR)$/
/** Advice of node about module styles that work all the same would fill every function's log. */
const NODE_FLAGS = ['--disable-warning=MODULE_TYPELESS_PACKAGE_JSON', '--disable-warning=ExperimentalWarning']
const WORKER_FILE = fileURLToPath(new URL('./worker.mjs', import.meta.url))

const { values: flags } = parseArgs({
  options: {
    socket: { type: 'string' },
    index: { type: 'string', default: '1' },
    root: { type: 'string', default: '.' },
    standalone: { type: 'boolean', default: false },
  },
})
if (flags.socket === undefined) fail('--socket is missing: give a path, unix:<path> or tcp://<host>:<port>')
const address = parseAddress(flags.socket)
const root = resolve(flags.root)
const runtime = process.env.FNGW_RUNTIME ?? 'node'
const memoryMb = Number(process.env.FNGW_WORKER_MEMORY_MB ?? 0)
const spareCount = runtime === 'node' ? Number(process.env.FNGW_SPARES ?? 1) : 0
/** Spares come in two styles: with the TypeScript compiler loaded, and without; those in use are kept ready. */
const styles = new Set((process.env.FNGW_STYLES ?? 'js').split(','))
const workerEnv = Object.fromEntries(Object.entries(process.env).filter(([name]) => WORKER_VARIABLES.test(name)))

/** @typedef {{ id: string, style: string, socket: string, process: WorkerProcess, owner: Control | null }} Entry */
/** @type {Map<string, Entry>} */
const workers = new Map()
/** Started ahead and promised to nobody, oldest first. @type {Entry[]} */
const spares = []
/** Starts that wait for a process slot, in order. @type {(() => void)[]} */
const waiting = []
let starting = 0
let workerNumber = 0
/** @type {NodeJS.Timeout | null} */
let spareTimer = null
let stopping = false

/** One gateway's control connection. */
class Control {
  #greeted = false
  #dropped = 0
  #socket
  #writer

  /** @param {import('node:net').Socket} socket */
  constructor(socket) {
    this.#socket = socket
    this.#writer = new FrameWriter(bytes => socket.write(bytes))
    const reader = new FrameReader((kind, id, header, body) => this.#onFrame(kind, id, header, body))
    socket.setNoDelay(true)
    socket.on('data', chunk => {
      if (socket.destroyed) return
      try {
        reader.push(chunk)
      } catch (error) {
        this.#refuse(/** @type {Error} */ (error).message)
      }
    })
    socket.on('error', () => {})
    // Nobody is left to use or stop these workers.
    socket.once('close', () => {
      for (const entry of workers.values()) if (entry.owner === this) entry.process.kill(0, 'gateway left')
    })
  }

  /**
   * @param {number} kind
   * @param {number} id
   * @param {object} header
   */
  send(kind, id, header) {
    if (!this.#socket.destroyed) this.#writer.add(kind, id, JSON.stringify(header))
  }

  /**
   * @param {string} worker
   * @param {string} stream
   * @param {string} text
   */
  sendLog(worker, stream, text) {
    if (text === '' || this.#socket.destroyed) return
    if (this.#socket.writableLength > MAX_WAITING_OUTPUT_BYTES) {
      this.#dropped += Buffer.byteLength(text)
      return
    }
    const note = this.#dropped > 0 ? `[${this.#dropped} bytes of output dropped]\n` : ''
    this.#dropped = 0
    this.#writer.add(KIND.log, 0, JSON.stringify({ worker, stream }), Buffer.from(note + text))
  }

  /**
   * @param {number} kind
   * @param {number} id
   * @param {string} header
   * @param {Buffer} body
   */
  #onFrame(kind, id, header, body) {
    if (!this.#greeted) {
      if (kind !== KIND.hello) this.#refuse('the first frame must be hello')
      else if (body[0] !== PROTOCOL_VERSION) this.#refuse(`protocol version ${body[0]} is not spoken here`)
      else if (parseHeader(header).role !== 'control') this.#refuse('this socket serves the role control only')
      else {
        this.#greeted = true
        this.send(KIND.ready, 0, { runtime, version: process.version.slice(1), pid: process.pid })
        planSpares()
      }
    } else if (kind === KIND.start) this.#start(id, parseHeader(header))
    else if (kind === KIND.stop) this.#stop(parseHeader(header))
    else if (kind === KIND.ping) this.send(KIND.pong, id, {})
  }

  /**
   * @param {number} id
   * @param {Record<string, any>} header
   */
  async #start(id, header) {
    try {
      const entry = await takeWorker(this, header)
      if (entry.owner === this)
        this.send(KIND.started, id, { worker: entry.id, uri: entry.process.uri, pid: entry.process.pid })
    } catch (error) {
      this.send(KIND.error, id, { code: 'start', message: /** @type {Error} */ (error).message })
    }
  }

  /** @param {Record<string, any>} header */
  #stop(header) {
    const entry = workers.get(String(header.worker))
    if (entry?.owner === this) entry.process.kill(Number(header.grace_ms) || 0, 'stopped by the gateway')
  }

  /** @param {string} message */
  #refuse(message) {
    this.#socket.end(encodeFrame(KIND.error, 0, JSON.stringify({ code: 'protocol', message })))
    this.#socket.destroySoon()
  }
}

/**
 * A listening worker for one gateway: the oldest spare, or a new process.
 * @param {Control} owner
 * @param {Record<string, any>} header - of the `start` frame
 * @returns {Promise<Entry>}
 */
async function takeWorker(owner, header) {
  if (runtime !== 'node' && typeof header.binary !== 'string')
    throw new Error(`start names no binary of the ${runtime} function`)
  const style = /\.[mc]?ts$/.test(String(header.entry)) ? 'ts' : 'js'
  const spare = typeof header.binary === 'string' ? undefined : takeSpare(style)
  styles.add(style)
  planSpares()
  if (spare !== undefined) {
    spare.owner = owner
    try {
      await spare.process.ready
      tellEarly(spare, header)
      return spare
    } catch {
      // The spare died unused, which says nothing about this function: start one for it.
    }
  }
  if (starting >= MAX_STARTING) await new Promise(resolve => waiting.push(() => resolve(undefined)))
  if (stopping) throw new Error('daemon is stopping')
  const entry = startWorker(header.binary, style)
  entry.owner = owner
  await entry.process.ready
  tellEarly(entry, header)
  return entry
}

/**
 * The worker loads the function while the gateway is still on its way to it.
 * @param {Entry} entry
 * @param {Record<string, any>} header - of the `start` frame
 */
function tellEarly(entry, header) {
  if (runtime === 'node' && typeof header.early === 'string') entry.process.tell(header.early)
}

/**
 * @param {string} style
 * @returns {Entry | undefined} the oldest spare of the style, or else of the other: still faster than a new process
 */
function takeSpare(style) {
  const living = spares.filter(spare => !spare.process.gone)
  const spare = living.find(candidate => candidate.style === style) ?? living[0]
  if (spare !== undefined) spares.splice(spares.indexOf(spare), 1)
  return spare
}

/**
 * @param {unknown} binary - program of a compiled function
 * @param {string} style
 * @returns {Entry}
 */
function startWorker(binary, style) {
  workerNumber += 1
  const id = `${process.pid}-${workerNumber}`
  const socket =
    address.path === undefined
      ? `tcp://${address.host}:0`
      : join(dirname(address.path), `${basename(address.path, '.sock')}-w${workerNumber}.sock`)
  const [command, args] =
    typeof binary === 'string'
      ? [binary, ['--socket', socket]]
      : [
          process.execPath,
          [...NODE_FLAGS, ...heapLimit(), WORKER_FILE, '--socket', socket, ...(style === 'ts' ? ['--typescript'] : [])],
        ]
  starting += 1
  /** @type {Entry} */
  const entry = { id, style, socket, owner: null, process: /** @type {any} */ (undefined) }
  entry.process = new WorkerProcess({
    command,
    args,
    env: workerEnv,
    cwd: root,
    memoryMb,
    onOutput: (stream, text) => entry.owner?.sendLog(id, stream, text),
    onExit: end => {
      workers.delete(id)
      const at = spares.indexOf(entry)
      if (at !== -1) spares.splice(at, 1)
      entry.owner?.send(KIND.exited, 0, { worker: id, ...end })
      if (address.path !== undefined) removeSocket(socket)
    },
  })
  workers.set(id, entry)
  const settle = () => {
    starting -= 1
    waiting.shift()?.()
  }
  entry.process.ready.then(settle, settle)
  return entry
}

function heapLimit() {
  return memoryMb > 0 ? [`--max-old-space-size=${memoryMb}`] : []
}

/** Starts the next spare when no `start` came for a moment; one at a time. */
function planSpares() {
  if (spareTimer !== null) clearTimeout(spareTimer)
  spareTimer = null
  if (stopping) return
  const missing = [...styles].find(style => spares.filter(spare => spare.style === style).length < spareCount)
  if (missing === undefined) return
  spareTimer = setTimeout(
    () => {
      spareTimer = null
      const entry = startWorker(undefined, missing)
      spares.push(entry)
      // A spare that cannot start is not tried again before the next `start`: a broken set-up must not spin.
      entry.process.ready.then(planSpares, () => {})
    },
    workerNumber === 0 ? 0 : SPARE_DELAY_MS,
  )
}

/** @param {string} path */
function removeSocket(path) {
  try {
    unlinkSync(path)
  } catch {
    // The worker removed it itself.
  }
}

/**
 * The private folder of a gateway that is gone, once the last daemon in it has ended.
 * @param {string} folder
 */
function removeFolder(folder) {
  if (!/^fngw-[A-Za-z0-9]{6}$/.test(basename(folder))) return
  try {
    rmSync(join(folder, 'cache'), { recursive: true, force: true })
    rmdirSync(folder)
  } catch {
    // Another daemon is still there.
  }
}

/**
 * @param {string} text
 * @returns {{ path: string, host?: undefined, port?: undefined } | { path?: undefined, host: string, port: number }}
 */
function parseAddress(text) {
  if (!text.startsWith('tcp://')) return { path: resolve(text.replace(/^unix:(\/\/)?/, '')) }
  const url = URL.canParse(text) ? new URL(text) : null
  if (url === null || url.port === '') fail(`--socket must be tcp://<host>:<port>, got "${text}"`)
  return { host: url.hostname.replace(/^\[|\]$/g, ''), port: Number(url.port) }
}

/**
 * @param {string} message
 * @returns {never}
 */
function fail(message) {
  process.stderr.write(`${message}\n`)
  process.exit(1)
}

function stop() {
  stopping = true
  for (const entry of workers.values()) entry.process.kill(0, 'daemon stopped')
  if (address.path !== undefined) {
    removeSocket(address.path)
    for (const entry of workers.values()) removeSocket(entry.socket)
    if (!flags.standalone) removeFolder(dirname(address.path))
  }
  process.exit(0)
}

const server = createServer(socket => new Control(socket))

/** @param {boolean} retry - false once a stale socket file was removed */
function listen(retry) {
  server.once('error', error => {
    if (!retry || /** @type {NodeJS.ErrnoException} */ (error).code !== 'EADDRINUSE' || address.path === undefined) {
      fail(`cannot listen on ${flags.socket}: ${error.message}`)
    }
    // A file nobody listens on was left by a daemon that was killed; a live one is not ours to take.
    const probe = connect(address.path)
    probe.once('connect', () => fail(`cannot listen on ${flags.socket}: another daemon serves it`))
    probe.once('error', () => {
      removeSocket(/** @type {string} */ (address.path))
      listen(false)
    })
  })
  server.listen(
    address.path === undefined ? { host: address.host, port: address.port } : { path: address.path },
    () => {
      if (address.path !== undefined) chmodSync(address.path, 0o600)
    },
  )
}

if (flags.standalone) {
  process.once('SIGTERM', stop)
  process.once('SIGINT', stop)
} else {
  // The gateway holds the other end of this pipe; however it ends, the pipe ends with it.
  process.stdin.resume()
  process.stdin.once('end', stop)
  process.stdin.once('error', stop)
  process.on('SIGINT', () => {})
  process.on('SIGTERM', stop)
}
process.on('SIGHUP', () => {})
listen(true)
