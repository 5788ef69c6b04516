/**
 * Lets a debugger into this worker, in development. Page: runtime/debuggers.
 */

import { readFileSync } from 'node:fs'
import inspector from 'node:inspector'
import Module from 'node:module'

const INLINE_MAP = /(\/\/# sourceMappingURL=data:application\/json;(?:charset=utf-8;)?base64,)([\w+/=]+)\s*$/

/**
 * Opens the inspector on a free port of this machine.
 * @returns {{ port: number, path: string }} where it listens, and the path of its WebSocket
 */
export function openDebugger() {
  if (inspector.url() === undefined) inspector.open(0, '127.0.0.1')
  const { port, pathname: path } = new URL(/** @type {string} */ (inspector.url()))
  addSources()
  return { port: Number(port), path }
}

export const waitForDebugger = inspector.waitForDebugger

/** The compiler leaves the text of a file out of its source map, and Chrome does not read files. */
function addSources() {
  const { prototype } = /** @type {any} */ (Module)
  const compile = prototype._compile
  prototype._compile = function (
    /** @type {string} */ code,
    /** @type {string} */ file,
    /** @type {unknown[]} */ ...rest
  ) {
    return Reflect.apply(compile, this, [withSources(code), file, ...rest])
  }
}

/** @param {string} code */
function withSources(code) {
  const match = typeof code === 'string' ? INLINE_MAP.exec(code) : null
  if (match === null) return code
  try {
    const map = JSON.parse(Buffer.from(/** @type {string} */ (match[2]), 'base64').toString())
    map.sourcesContent = map.sources.map((/** @type {string} */ source) => readFileSync(source, 'utf8'))
    return `${code.slice(0, match.index)}${match[1]}${Buffer.from(JSON.stringify(map)).toString('base64')}`
  } catch {
    return code
  }
}
