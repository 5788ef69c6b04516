/**
 * Anything thrown -> the fields of an `error` frame, with the line of the user's own code. Page: runtime/wire-protocol.
 */

import { dirname } from 'node:path'
import { fileURLToPath } from 'node:url'
import { inspect } from 'node:util'

// Captured before user code can patch it.
const { stringify } = JSON
const { byteLength } = Buffer
const CUT_STEP = 0.8
const OWN_FOLDER = dirname(fileURLToPath(import.meta.url))
/** Most bytes of a field as JSON text; together they fit into an `error` frame. */
const MOST_BYTES = { message: 24 * 1024, stack: 8 * 1024, file: 8 * 1024, hint: 8 * 1024 }
const NO_MEMORY = /allocation failed|could not allocate|out of memory/i
/** Megabytes that the worker's heap may take: the memory that its function was given. */
const LIMIT_MB = /--max-old-space-size=(\d+)/.exec(process.execArgv.join(' '))?.[1]
/** Frames that are none of the user's: node's, this worker's, and those of the compiler. */
const FOREIGN = /node:|\/node_modules\/(?:tsx|esbuild)\//
/** `at fn (file:///a.mjs:3:5)`, `at /a.js:3:5`; the text between is greedy because paths may hold parentheses. */
const FRAME = /^\s+at (?:.* \()?(?:file:\/\/)?(\/.*?):(\d+)(?::\d+)?\)?$/
/** The file of a frame where it is an address. */
const FILE_URL = /file:\/\/(\/.*?)(?=:\d+(?::\d+)?\)?$)/

/**
 * @typedef {object} Failure
 * @property {string} code
 * @property {string} message
 * @property {string} [file]
 * @property {number} [line]
 * @property {string} [stack]
 * @property {string} [hint]
 */

/** A failure whose cause and remedy are known. */
export class LoadError extends Error {
  /**
   * @param {string} message
   * @param {{ file?: string, line?: number, hint?: string, stack?: string }} [detail]
   */
  constructor(message, detail = {}) {
    super(message)
    this.name = 'LoadError'
    this.file = detail.file
    this.line = detail.line
    this.hint = detail.hint
    this.userStack = detail.stack
  }
}

/**
 * Never throws, whatever was thrown.
 * @param {string} code - `exception`, `contract` or `load`
 * @param {any} error
 * @returns {Failure}
 */
export function toFailure(code, error) {
  try {
    return describe(code, error)
  } catch {
    return { code, message: 'handler threw something that cannot be shown' }
  }
}

/** @param {string} code @param {any} error @returns {Failure} */
function describe(code, error) {
  if (!(error instanceof Error) && typeof error?.stack !== 'string') {
    return { code, message: cut(typeof error === 'string' ? error : `handler threw ${show(error)}`, 'message') }
  }
  const message = cut(withoutRequireStack(String(error.message)) || String(error.name), 'message')
  const hint = cut(error.hint ?? toMemoryHint(error, message), 'hint')
  if (error instanceof LoadError) {
    return {
      code,
      message,
      file: cut(error.file, 'file'),
      line: error.line,
      hint,
      stack: cut(error.userStack, 'stack'),
    }
  }
  // The handler had returned when its answer was found to be wrong, so no line of it can be shown.
  if (code === 'contract') return { code, message, hint }
  const stack = toUserStack(String(error.stack))
  const place = toPlace(stack)
  return { code, message, file: cut(place?.file, 'file'), line: place?.line, stack: cut(stack, 'stack'), hint }
}

/** Memory that the system refuses is an exception like any other. @param {any} error @param {string} message */
function toMemoryHint(error, message) {
  if (!(error instanceof RangeError) || !NO_MEMORY.test(message)) return undefined
  const limit = LIMIT_MB === undefined ? '' : `: limit ${LIMIT_MB} MB, FN_WORKER_MEMORY_MB`
  return `out of memory${limit}`
}

/** A thrown value that is no error, as JSON where it has one. @param {unknown} value */
function show(value) {
  try {
    const text = stringify(value)
    if (text !== undefined) return text
  } catch {
    // A cycle, or a getter that throws.
  }
  return inspect(value, { depth: 1 })
}

/**
 * The stack without the frames of others: node's, this worker's, the compiler's, and those of packages, unless nothing
 * else is left. Files are shown by their paths, as the editor knows them, not by escaped addresses.
 * @param {string} stack
 */
export function toUserStack(stack) {
  const lines = withoutRequireStack(stack)
    .split('\n')
    .filter(line => !isFrame(line) || !(line.includes(OWN_FOLDER) || FOREIGN.test(line)))
    .map(line => (isFrame(line) ? line.replace(FILE_URL, (_, url) => toPath(url)) : line))
  const isOwn = (/** @type {string} */ line) => !line.includes('/node_modules/')
  const own = lines.some(line => isFrame(line) && isOwn(line))
    ? lines.filter(line => !isFrame(line) || isOwn(line))
    : lines
  return own.join('\n')
}

/**
 * Below a module that is not found node lists who required it, up to this worker and the compiler; who asked is in the frames.
 * @param {string} text
 */
function withoutRequireStack(text) {
  return text.replace(/\nRequire stack:(?:\n- .*)+/g, '')
}

/** @param {string} line - of a stack */
function isFrame(line) {
  return /^\s+at /.test(line)
}

/** File and line of the first frame in user code, outside packages when there is one. @param {string} stack */
export function toPlace(stack) {
  let first = null
  for (const text of stack.split('\n')) {
    const match = FRAME.exec(text)
    if (match === null) continue
    const place = { file: toPath(/** @type {string} */ (match[1])), line: Number(match[2]) }
    first ??= place
    if (!place.file.includes('/node_modules/')) return place
  }
  return first
}

/** @param {string} path - of a stack frame; a file URL's may be escaped */
export function toPath(path) {
  const bare = path.replace(/\?.*$/, '')
  try {
    return bare.includes('%') ? decodeURIComponent(bare) : bare
  } catch {
    return bare
  }
}

/**
 * @template {string | undefined} T
 * @param {T} text
 * @param {keyof typeof MOST_BYTES} field
 * @returns {T}
 */
function cut(text, field) {
  if (typeof text !== 'string') return text
  const most = MOST_BYTES[field]
  // One character may take six bytes as JSON.
  if (text.length * 6 <= most) return text
  let end = Math.min(text.length, most)
  while (byteLength(stringify(text.slice(0, end))) > most) end = Math.floor(end * CUT_STEP)
  return /** @type {T} */ (end === text.length ? text : `${text.slice(0, end)}...`)
}
