/**
 * Anything thrown -> the fields of an `error` frame, with the line of the user's own code. Page: runtime/wire-protocol.
 */

import { dirname } from 'node:path'
import { fileURLToPath } from 'node:url'
import { inspect } from 'node:util'

// Captured before user code can patch it.
const { stringify } = JSON
const OWN_FOLDER = dirname(fileURLToPath(import.meta.url))
const MAX_STACK_LINES = 30
const MAX_TEXT = 16 * 1024
/** `at fn (file:///a.mjs:3:5)`, `at /a.js:3:5`; the text between is greedy because paths may hold parentheses. */
const FRAME = /^\s+at (?:.* \()?(?:file:\/\/)?(\/.*?):(\d+)(?::\d+)?\)?$/

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
    return { code, message: cut(typeof error === 'string' ? error : `handler threw ${show(error)}`) }
  }
  const message = cut(String(error.message) || String(error.name))
  if (error instanceof LoadError) {
    return { code, message, file: error.file, line: error.line, hint: error.hint, stack: error.userStack }
  }
  // It was found in the answer, not while the handler ran: there is no place to show.
  if (code === 'contract') return { code, message, hint: error.hint }
  const stack = toUserStack(String(error.stack))
  const place = toPlace(stack)
  return { code, message, file: place?.file, line: place?.line, stack: cut(stack), hint: error.hint }
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

/** The stack without the frames of node and of this worker. @param {string} stack */
export function toUserStack(stack) {
  const lines = stack
    .split('\n')
    .filter(line => !/^\s+at /.test(line) || !(line.includes(OWN_FOLDER) || line.includes('node:')))
  return lines.slice(0, MAX_STACK_LINES).join('\n')
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
function toPath(path) {
  const bare = path.replace(/\?.*$/, '')
  try {
    return bare.includes('%') ? decodeURIComponent(bare) : bare
  } catch {
    return bare
  }
}

/** @param {string} text */
function cut(text) {
  return text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}...` : text
}
