/**
 * The daemon of node, go and rust: starts worker processes on request of a gateway and tells it their ends and output.
 * Holds no user code, so it never hangs. Spare workers are started ahead: of node with everything loaded, of go and rust a process that
 * becomes the program that `start` names.
 * Pages: runtime/daemon, runtime/wire-protocol.
 *
 *   node daemon.mjs --socket <path | unix:path | tcp://host:port> --index <n> --root <functions root> [--standalone]
 *   FNGW_RUNTIME=node|go|rust  FNGW_WORKER_MEMORY_MB=<n>  FNGW_SPARES=<n>  FNGW_STYLES=js,ts
 */

import { createServer } from 'node:net'
import { dirname, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { listen, parseAddress, removeFolder, removeSocket } from './address.mjs'
import { PROGRAM } from './commands.mjs'
import { Control } from './control.mjs'
import { closeInherited } from './inherited.mjs'
import { Workers } from './workers.mjs'

/** @typedef {{ socket: string, root: string, standalone: boolean }} DaemonFlags */

class Daemon {
  #runtime = process.env.FNGW_RUNTIME ?? 'node'
  #workers
  #address
  #flags

  /** @param {DaemonFlags} flags */
  constructor(flags) {
    this.#flags = flags
    this.#address = parseAddress(flags.socket)
    this.#workers = new Workers({
      address: this.#address,
      root: resolve(flags.root),
      runtime: this.#runtime,
      memoryMb: Number(process.env.FNGW_WORKER_MEMORY_MB ?? 0),
      // What becomes a program is a shell.
      spares: this.#runtime === 'node' || process.platform !== 'win32' ? Number(process.env.FNGW_SPARES ?? 1) : 0,
      styles: this.#runtime === 'node' ? (process.env.FNGW_STYLES ?? 'js').split(',') : [PROGRAM],
    })
  }

  run() {
    const server = createServer(socket => new Control(socket, this.#workers, this.#runtime))
    listen(server, this.#address, problem => fail(`cannot listen on ${this.#flags.socket}: ${problem}`))
    const stop = () => this.#stop()
    if (this.#flags.standalone) {
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
  }

  #stop() {
    this.#workers.close()
    const { path } = this.#address
    if (path !== undefined) {
      removeSocket(path)
      if (!this.#flags.standalone) removeFolder(dirname(path))
    }
    process.exit(0)
  }
}

/**
 * @param {string} message
 * @returns {never}
 */
function fail(message) {
  process.stderr.write(`${message}\n`)
  process.exit(1)
}

const { values: flags } = parseArgs({
  options: {
    socket: { type: 'string' },
    index: { type: 'string', default: '1' },
    root: { type: 'string', default: '.' },
    standalone: { type: 'boolean', default: false },
  },
})
const { socket, root, standalone } = flags
if (socket === undefined) fail('--socket is missing: give a path, unix:<path> or tcp://<host>:<port>')
closeInherited()
try {
  new Daemon({ socket, root, standalone }).run()
} catch (error) {
  fail(/** @type {Error} */ (error).message)
}
