/**
 * Why a handler cannot be loaded: file and line as far as they can be found, and what to do. Page: runtimes/node.
 */

import { readFileSync } from 'node:fs'
import { basename, relative } from 'node:path'
import { LoadError, toPath, toPlace, toUserStack } from './failure.mjs'
import { toSourceFrame } from './source-frame.mjs'

/**
 * @typedef {import('./event.mjs').FunctionStart} FunctionStart
 * @typedef {{ file: string, line?: number, column?: number }} Place - line and column from 1
 */

/**
 * A load failure with its file and line, as far as they can be found.
 * @param {FunctionStart} fn
 * @param {string} file
 * @param {any} error
 * @param {() => Place | undefined} findSyntaxError - looks for one in the sources
 */
export function explain(fn, file, error, findSyntaxError) {
  if (error instanceof LoadError) return error
  const message = messageOf(error)
  const stack = String(error?.stack ?? '')
  const [transformed] = transformErrors(message)
  const isSyntax = error instanceof SyntaxError || transformed !== undefined
  /** @type {Place} */
  const place = transformed ??
    headPlace(stack) ??
    importPlace(message) ??
    (isSyntax ? findSyntaxError() : undefined) ??
    toPlace(toUserStack(stack)) ?? { file }
  const where = `${shown(fn, place.file)}${place.line === undefined ? '' : `:${place.line}`}`
  const text = (transformed?.text ?? message).split('\n')[0]
  return new LoadError(isSyntax ? `syntax error in ${where}: ${text}` : `cannot load ${where}: ${text}`, {
    file: place.file,
    line: place.line,
    hint: hintFor(error, message),
    stack: isSyntax ? toFrame(place) : toUserStack(stack),
  })
}

/** The package in what is imported: `https://x/y`, `#lib` and `@/lib` have none. */
const PACKAGE = /^(?:@[a-z0-9][\w.~-]*\/)?[a-z0-9][\w.~-]*(?=\/|$)/i

/** @param {any} error @param {string} message */
function hintFor(error, message) {
  if (error?.code === 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX')
    return 'node takes out types and nothing more; for enums, namespaces and decorators: npm install tsx beside fngw (the image target full has it)'
  const missing = /Cannot find (?:package|module) '([^'./][^']*)'/.exec(message)?.[1]
  if (missing !== undefined && !missing.startsWith('/')) {
    const name = PACKAGE.exec(missing)?.[0]
    return name === undefined ? 'import a file by ./ or ../, or a package by its name' : `npm install ${name}`
  }
  if (/ERR_MODULE_NOT_FOUND|MODULE_NOT_FOUND/.test(String(error?.code)))
    return 'check the path of the import; ES modules need the file extension'
  return undefined
}

/** `/path/file.ts:3:1: ERROR: text` lines of esbuild. @param {string} message */
export function transformErrors(message) {
  return [...message.matchAll(/^(\/.*?)(?:\?[^:]*)?:(\d+):(\d+): ERROR: (.*)$/gm)].map(match => ({
    file: /** @type {string} */ (match[1]),
    line: Number(match[2]),
    column: Number(match[3]) + 1,
    text: /** @type {string} */ (match[4]),
  }))
}

/** The place that node puts at the head of a syntax error's stack: file and line, the line itself, and marks below it. @param {string} stack */
function headPlace(stack) {
  const match = /^(?:file:\/\/)?(\/.*?):(\d+)\n(?:.*\n(\s*)\^)?/.exec(stack)
  if (match === null) return undefined
  const place = { file: toPath(/** @type {string} */ (match[1])), line: Number(match[2]) }
  return match[3] === undefined ? place : { ...place, column: match[3].length + 1 }
}

/** @param {Place} place */
function toFrame({ file, line, column }) {
  if (line === undefined || column === undefined) return undefined
  return `    at ${file}:${line}:${column}\n${toSourceFrame(readOrEmpty(file), line, column)}`
}

/** The line of an import that finds no file: node names the two files only. @param {string} message */
function importPlace(message) {
  const match =
    /^Cannot find (?:module|package) '([^']+)' imported from (\/.*)$/m.exec(message) ??
    /^Cannot find module '([^']+)'\nRequire stack:\n- (\/.*?)(?:\?namespace=\d+)?$/m.exec(message)
  if (match === null) return undefined
  const [, wanted, file] = /** @type {[string, string, string]} */ (/** @type {unknown} */ (match))
  let lines
  try {
    lines = readFileSync(file, 'utf8').split('\n')
  } catch {
    return undefined
  }
  const name = basename(wanted)
  const at = lines.findIndex(
    line => line.includes(`/${name}`) || line.includes(`'${name}`) || line.includes(`"${name}`),
  )
  return at === -1 ? { file } : { file, line: at + 1 }
}

/**
 * The import of a name that its module does not export: node says where it is of files that were not required alone.
 * @param {string} message
 * @param {string[]} files - full paths, the most likely first
 */
export function findImport(message, files) {
  const match = /^The requested module '([^']+)' does not provide an export named '([^']+)'/.exec(message)
  if (match === null) return undefined
  const [wanted, name] = [toPattern(match[1]), match[2] === 'default' ? '' : `\\b${toPattern(match[2])}\\b`]
  const statement = new RegExp(`\\b(?:import|export)\\b[^;'"]*?${name}[^;'"]*?\\bfrom\\s*(['"])${wanted}\\1`)
  for (const file of files) {
    const text = readOrEmpty(file)
    const found = statement.exec(text)
    if (found === null) continue
    const at = found.index + Math.max(0, found[0].search(new RegExp(name)))
    return { file, line: text.slice(0, at).split('\n').length }
  }
  return undefined
}

/** @param {string | undefined} text */
function toPattern(text) {
  return (text ?? '').replace(/[$()*+.?[\\\]^{|}]/g, '\\$&')
}

/** @param {string} file */
function readOrEmpty(file) {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}

/** @param {any} error */
export function messageOf(error) {
  return typeof error === 'object' && error !== null ? String(error.message ?? '') : String(error)
}

/** A path as the user knows it: below the functions root. @param {FunctionStart} fn @param {string} file */
export function shown(fn, file) {
  const path = relative(fn.root ?? fn.dir, file)
  return path.startsWith('..') ? file : path
}
