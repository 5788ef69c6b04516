/**
 * Built programs, found again by the content they were built from. Owner: §2.16, page dependencies/resolve.
 *
 *   <function>/.go-build/<handler file>/bin/<key>       the program; <key> is a digest of everything that went in
 *                                      /go.mod, src/... what the tool was given
 */

import { createHash } from 'node:crypto'
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { basename, dirname, join } from 'node:path'
import type { FunctionVersion } from '../core/catalog.ts'

/** Programs kept of one handler: the newest and those before it that a draining worker may still be started from. */
const KEPT_BUILDS = 2

/** Names that survive every file system and tool: others are replaced, with a digest that keeps them apart. */
const PLAIN_NAME = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,60}$/

/** Collects what decides about a build. */
export class BuildKey {
  readonly #hash = createHash('sha256')

  /** Adds one input; `null` stands for a file that is not there. */
  add(name: string, content: string | Uint8Array | null): this {
    // Lengths keep neighbours apart: no two lists of inputs give the same bytes.
    this.#hash.update(`${name.length}:${name}=${content === null ? 'none' : content.length}:`)
    if (content !== null) this.#hash.update(content)
    return this
  }

  toString(): string {
    return this.#hash.digest('hex').slice(0, 32)
  }
}

/** The build folder of one handler. */
export class Workspace {
  /** Full path, `<function>/.go-build/handler`. */
  readonly folder: string
  readonly #root: string

  /** @param name - `.go-build` or `.rust-build` */
  constructor(fn: FunctionVersion, name: string) {
    const stem = basename(fn.entryPath).replace(/\.[^.]+$/, '')
    this.#root = join(fn.fnDir, name)
    this.folder = join(this.#root, toPlainName(stem))
  }

  /** Full path of the program for a key, built or not. */
  binary(key: string): string {
    return join(this.folder, 'bin', key)
  }

  has(key: string): boolean {
    try {
      accessSync(this.binary(key), constants.X_OK)
      return statSync(this.binary(key)).size > 0
    } catch {
      return false
    }
  }

  /**
   * Makes the folders, with a `.gitignore` that keeps them out of repositories.
   * @throws Error when the folder cannot be written
   */
  prepare(): void {
    mkdirSync(join(this.folder, 'bin'), { recursive: true })
    const ignore = join(this.#root, '.gitignore')
    if (!existsSync(ignore)) writeFileSync(ignore, '*\n')
  }

  /** Writes a file below the folder, only when its content differs: tools look at times. @returns its full path */
  write(relative: string, text: string): string {
    const path = join(this.folder, relative)
    if (existsSync(path) && readFileSync(path).equals(Buffer.from(text))) return path
    mkdirSync(dirname(path), { recursive: true })
    writeFileSync(path, text)
    return path
  }

  /** Puts a finished program in place at once and forgets old ones; a worker that runs one of them is not disturbed. */
  publish(key: string, built: string): void {
    renameSync(built, this.binary(key))
    const folder = join(this.folder, 'bin')
    const others = readdirSync(folder)
      .filter(name => name !== key)
      .map(name => ({ path: join(folder, name), time: timeOf(join(folder, name)) }))
      .sort((a, b) => b.time - a.time)
    for (const { path } of others.slice(KEPT_BUILDS - 1)) rmSync(path, { recursive: true, force: true })
  }
}

function toPlainName(text: string): string {
  if (PLAIN_NAME.test(text)) return text
  const digest = createHash('sha256').update(text).digest('hex').slice(0, 8)
  const plain = text.replace(/[^A-Za-z0-9_-]+/g, '-').replace(/^-+|-+$/g, '')
  return `${plain.slice(0, 50) || 'file'}-${digest}`
}

function timeOf(path: string): number {
  try {
    return statSync(path).mtimeMs
  } catch {
    return 0
  }
}
