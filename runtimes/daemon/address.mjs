/**
 * Where the daemon and its workers listen: `unix:/path` or `tcp://host:port`. Page: runtime/daemon.
 */

import { randomBytes } from 'node:crypto'
import { chmodSync, rmdirSync, rmSync, unlinkSync } from 'node:fs'
import { connect } from 'node:net'
import { basename, dirname, join, resolve } from 'node:path'

/** Hosts that other machines do not reach. */
const LOOPBACK = /^(?:127\.\d+\.\d+\.\d+|::1|localhost)$/i
/** Bytes of chance in the name of a worker's socket. */
const NAME_BYTES = 5

/** @typedef {{ path: string, host?: undefined, port?: undefined } | { path?: undefined, host: string, port: number }} Address */

/**
 * @param {string} text
 * @returns {Address}
 * @throws Error with a message for people
 */
export function parseAddress(text) {
  if (!text.startsWith('tcp://')) return { path: resolve(text.replace(/^unix:(\/\/)?/, '')) }
  const url = URL.canParse(text) ? new URL(text) : null
  if (url === null || url.port === '') throw new Error(`--socket must be tcp://<host>:<port>, got "${text}"`)
  const host = url.hostname.replace(/^\[|\]$/g, '')
  if (!LOOPBACK.test(host))
    throw new Error(
      `${text} can be reached from other machines, and nobody has to prove anything here: use fngw daemon`,
    )
  return { host, port: Number(url.port) }
}

/**
 * An address for the next worker of a daemon. Its name cannot be guessed: who looks for the socket of a worker before
 * the gateway has connected must find it first.
 * @param {Address} address - the daemon's own
 */
export function toWorkerAddress(address) {
  if (address.path === undefined) return `tcp://${address.host}:0`
  const name = `${basename(address.path, '.sock')}-${randomBytes(NAME_BYTES).toString('hex')}.sock`
  return join(dirname(address.path), name)
}

/**
 * Listens for control connections. A file that nobody serves was left by a daemon that was killed and is replaced; a
 * living daemon's is not.
 * @param {import('node:net').Server} server
 * @param {Address} address
 * @param {(problem: string) => void} onProblem
 */
export function listen(server, address, onProblem) {
  server.once('error', error => {
    if (/** @type {NodeJS.ErrnoException} */ (error).code !== 'EADDRINUSE' || address.path === undefined) {
      onProblem(error.message)
      return
    }
    const probe = connect(address.path)
    probe.once('connect', () => onProblem('another daemon serves it'))
    probe.once('error', () => {
      removeSocket(/** @type {string} */ (address.path))
      server.once('error', again => onProblem(again.message))
      bind(server, address)
    })
  })
  bind(server, address)
}

/** @param {import('node:net').Server} server @param {Address} address */
function bind(server, address) {
  if (address.path === undefined) {
    server.listen({ host: address.host, port: address.port })
    return
  }
  const { path } = address
  server.listen({ path }, () => chmodSync(path, 0o600))
}

/** @param {string} path */
export function removeSocket(path) {
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
export function removeFolder(folder) {
  if (!/^fngw-[A-Za-z0-9]{6}$/.test(basename(folder))) return
  try {
    for (const name of ['cache', 'u']) rmSync(join(folder, name), { recursive: true, force: true })
    rmdirSync(folder)
  } catch {
    // Another daemon is still there.
  }
}
