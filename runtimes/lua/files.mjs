/**
 * Lua source files that a function may load: regular files in its own folder and below the functions root, whatever
 * links and dots the name contains. Owner: page runtime/lua-runtime.
 */

import { closeSync, constants, fstatSync, openSync, readlinkSync, readSync, realpathSync, statSync } from 'node:fs'
import { dirname, join, relative, resolve, sep } from 'node:path'

/** Largest source text; compiling takes some fifty times as much memory. */
export const MAX_SOURCE_BYTES = 2 * 1024 * 1024

/** A module name: parts of letters, digits, `_` and `-`, joined by dots or slashes. */
const MODULE_NAME = /^[A-Za-z0-9_-]+(?:[./][A-Za-z0-9_-]+)*$/

const BOM = [0xef, 0xbb, 0xbf]
const NEW_LINE = 10

/**
 * @typedef {object} Source
 * @property {string} path - full real path
 * @property {string} name - path below the functions root, for messages
 * @property {Uint8Array} text
 */

/** A source file that cannot be used; the message says which and why. */
export class SourceError extends Error {}

export class SourceFiles {
  /**
   * @param {string} root - functions root
   * @param {string} dir - the function's folder
   * @param {number | null} uid - user whose rights hold for what is read; null: those of this process
   */
  constructor(root, dir, uid = null) {
    this.root = root
    this.uid = uid
    this.dir = dir
    this.allowed = [...new Set([realpathSync(root), realpathSync(dir)])]
    /** Full real paths of everything read. @type {Set<string>} */
    this.loaded = new Set()
    this.told = 0
  }

  get hasNew() {
    return this.loaded.size > this.told
  }

  /** Files that were not given before, in the order they were read. */
  takeNew() {
    const files = [...this.loaded].slice(this.told)
    this.told = this.loaded.size
    return files
  }

  /**
   * Files a module name may stand for, in order.
   * @param {string} name
   * @returns {string[]} full paths
   * @throws {SourceError}
   */
  candidates(name) {
    if (!MODULE_NAME.test(name)) {
      throw new SourceError(`module name '${name}' must be parts of letters, digits, _ and -, joined by dots`)
    }
    const path = name.replaceAll('.', '/')
    return [...new Set([this.dir, this.root])].flatMap(base => [
      join(base, `${path}.lua`),
      join(base, path, 'init.lua'),
    ])
  }

  /** @param {string} path - full, or relative to the function's folder */
  fullPath(path) {
    return resolve(this.dir, path)
  }

  /** @param {string} path - full path @returns {string} as messages show it */
  nameOf(path) {
    return relative(this.root, path).split(sep).join('/')
  }

  /**
   * @param {string} path - full path
   * @returns {Source | null} null when there is no such file
   * @throws {SourceError}
   */
  read(path) {
    const name = this.nameOf(path)
    let real
    try {
      real = realpathSync(path)
    } catch (error) {
      const { code } = /** @type {NodeJS.ErrnoException} */ (error)
      if (code === 'ENOENT' || code === 'ENOTDIR') return null
      throw new SourceError(`cannot read ${name}: ${code}`)
    }
    // Links and `..` are followed first, so that neither leads out.
    if (!this.allowed.some(base => real.startsWith(base.endsWith(sep) ? base : base + sep))) {
      throw new SourceError(`cannot read ${name}: it lies outside the functions root`)
    }
    const text = readRegularFile(real, name, this.uid)
    this.loaded.add(real)
    return { path: real, name, text: withoutHead(text) }
  }
}

/** @param {string} path @param {string} name @param {number | null} uid */
function readRegularFile(path, name, uid) {
  let fd
  try {
    // Without O_NONBLOCK opening a FIFO waits for a writer, for ever.
    fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
  } catch (error) {
    throw new SourceError(`cannot read ${name}: ${/** @type {NodeJS.ErrnoException} */ (error).code}`)
  }
  try {
    const stat = fstatSync(fd)
    if (!stat.isFile()) throw new SourceError(`cannot read ${name}: it is not a regular file`)
    if (uid !== null && !mayRead(fd, uid))
      throw new SourceError(`cannot read ${name}: it is closed to user ${uid}, the user of this function`)
    if (stat.size > MAX_SOURCE_BYTES) {
      throw new SourceError(
        `cannot read ${name}: ${stat.size} bytes are more than the ${MAX_SOURCE_BYTES} of a source file`,
      )
    }
    const bytes = Buffer.allocUnsafeSlow(stat.size)
    let length = 0
    while (length < bytes.length) {
      const count = readSync(fd, bytes, length, bytes.length - length, length)
      if (count === 0) break
      length += count
    }
    return new Uint8Array(bytes.buffer, 0, length)
  } finally {
    closeSync(fd)
  }
}

/**
 * What the system would decide for a process of a user and the group of the same id. The path is that of the open file:
 * no part of it can be exchanged any more.
 * @param {number} fd @param {number} uid
 */
function mayRead(fd, uid) {
  if (!allows(fstatSync(fd), uid, READ)) return false
  for (let folder = dirname(readlinkSync(`/proc/self/fd/${fd}`)); ; folder = dirname(folder)) {
    if (!allows(statSync(folder), uid, ENTER)) return false
    if (folder === dirname(folder)) return true
  }
}

const READ = 0o4
const ENTER = 0o1

/** @param {import('node:fs').Stats} stats @param {number} id @param {number} right */
function allows({ mode, uid, gid }, id, right) {
  const shift = uid === id ? 6 : gid === id ? 3 : 0
  return ((mode >> shift) & right) !== 0
}

/** Leaves out a byte order mark and the text of a `#!` line, whose line still counts. @param {Uint8Array} bytes */
function withoutHead(bytes) {
  const text = BOM.every((byte, i) => bytes[i] === byte) ? bytes.subarray(BOM.length) : bytes
  if (text[0] !== 35) return text
  const end = text.indexOf(NEW_LINE)
  return end < 0 ? text.subarray(text.length) : text.subarray(end)
}
