/**
 * Command lines of workers, by what they are prepared for. Page: runtime/daemon.
 */

import { fileURLToPath } from 'node:url'

/** Advice of node about module styles that work all the same would fill every function's log. */
const NODE_FLAGS = ['--disable-warning=MODULE_TYPELESS_PACKAGE_JSON', '--disable-warning=ExperimentalWarning']
const NODE_WORKER = fileURLToPath(new URL('../node/worker.mjs', import.meta.url))
/**
 * A process within its limits that becomes the program whose path it is told, behind that of the socket. Read by lines, of which a shell takes no
 * byte too many.
 */
const SPARE_PROGRAM =
  'echo warm >&3 && IFS= read -r socket <&3 && IFS= read -r program <&3 && exec "$program" --socket "$socket"'
/** The same with the connection to its gateway, which tells the path itself: then a first call waits for nobody else. */
const CONNECTED_PROGRAM = 'echo warm >&3 && IFS= read -r program <&4 && exec "$program" --socket fd:4'
const SHELL = '/bin/sh'
/** Style of a spare that is told its program. */
export const PROGRAM = 'program'
/** Ends of names of entry files that a spare of a style is prepared for. @type {Record<string, string[]>} */
export const ENTRIES = { js: ['.js', '.mjs', '.cjs'], ts: ['.ts', '.mts', '.cts'] }

/**
 * @param {boolean} isConnected - it has the connection to its gateway
 * @returns {[string, string[]]}
 */
export function toWaitingProgram(isConnected) {
  return [SHELL, ['-c', isConnected ? CONNECTED_PROGRAM : SPARE_PROGRAM]]
}

/**
 * @param {string} style
 * @param {string} address - to practise at
 * @param {number} memoryMb - 0 means no limit
 * @returns {[string, string[]]}
 */
export function toNodeCommand(style, address, memoryMb) {
  // The gateway says where debuggers connect to.
  const quiet = process.env.FNGW_DEBUG === '1' ? ['--inspect-publish-uid=http'] : []
  const heap = memoryMb > 0 ? [`--max-old-space-size=${memoryMb}`] : []
  const flags = ['--practise', address, ...(style === 'ts' ? ['--typescript'] : [])]
  return [process.execPath, [...NODE_FLAGS, ...quiet, ...heap, NODE_WORKER, ...flags]]
}

/** @param {Record<string, any>} header - of a `start` */
export function toStyle({ binary, entry }) {
  if (typeof binary === 'string') return PROGRAM
  return /\.[mc]?ts$/.test(String(entry)) ? 'ts' : 'js'
}
