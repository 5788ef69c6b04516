/**
 * Built programs, found again by the content they were built from. Owner: §2.16, page dependencies/resolve.
 *
 *   <function>/.go-build/<handler file>/bin/<key>       the program; <key> is a digest of everything that went in
 *                                      /go.mod, src/... what the tool was given
 */

import { createHash, randomBytes } from 'node:crypto'
import { accessSync, chmodSync, constants, copyFileSync, lstatSync, statSync } from 'node:fs'
import { basename } from 'node:path'
import type { FunctionVersion } from '../core/catalog.ts'
import { orNull } from '../core/errors.ts'
import { OwnFolder } from '../files/own-folder.ts'
import type { ToolUser } from '../files/tool-user.ts'
import type { BuildPlan, CompilerOptions } from './build.ts'
import type { BuildTools } from './run-tool.ts'

/** Programs kept of one handler: the newest and those before it that a draining worker may still be started from. */
const KEPT_BUILDS = 2

/** Names that survive every file system and tool: others are replaced, with a digest that keeps them apart. */
const PLAIN_NAME = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,60}$/

/** Names of programs, and of drafts of them, each with the mark of its builder: the gateway deletes nothing else in their folder. */
const PROGRAM_NAME = /^[0-9a-f]{32}$/
const DRAFT_NAME = /^\.[0-9a-f]{32}(?:\.[0-9a-f]{8})?$/
/** A draft older than this when a program is finished was left behind; builds have minutes. */
const DRAFT_AGE_MS = 3_600_000

export class BuildKey {
  readonly #hash = createHash('sha256')

  /** Adds one input; `null` stands for a file that does not exist. */
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

export class Workspace {
  readonly #root: OwnFolder
  readonly #programs: OwnFolder
  readonly #isPrivate: boolean
  /** Name of the folder in which a user builds. */
  readonly #bench: string
  /** Another gateway may build the same at the same time. */
  readonly #mark = randomBytes(4).toString('hex')
  #own: OwnFolder
  #user: ToolUser | null = null

  /**
   * @param name - `.go-build` or `.rust-build`
   * @param isPrivate - other users must not see its files; the user that runs the program is let in when it is started
   */
  constructor(fn: FunctionVersion, name: string, isPrivate = false) {
    this.#isPrivate = isPrivate
    this.#root = new OwnFolder(fn.fnDir, name)
    this.#own = this.#root.below(toPlainName(basename(fn.entryPath).replace(/\.[^.]+$/, '')))
    this.#bench = `${name.slice(1)}-${digestOf(fn.entryPath, 12)}`
    this.#programs = this.#own.below('bin')
  }

  /** `<function>/.go-build/handler`, or a folder of the user that builds. */
  get tools(): OwnFolder {
    return this.#own
  }

  /** @param build - leaves the program in place by `finish` */
  plan(key: string, build: (tools: BuildTools) => Promise<void>): BuildPlan {
    const binary = this.binary(key)
    if (this.has(key)) return { binary, build: null }
    return {
      binary,
      build: async tools => {
        await build(tools)
        return { packages: null, bytes: statSync(binary).size, names: [], isShared: false }
      },
    }
  }

  binary(key: string): string {
    return this.#programs.pathOf(key)
  }

  has(key: string): boolean {
    const path = this.binary(key)
    const stats = orNull(() => {
      accessSync(path, constants.X_OK)
      return lstatSync(path)
    })
    return stats?.isFile() === true && stats.size > 0 && this.#programs.isThere()
  }

  /**
   * Makes the folders, with a `.gitignore` that keeps them out of repositories.
   * @param user - builds in its folder; null: the gateway builds
   * @throws Error when the folder cannot be written
   */
  prepare(user: ToolUser | null = null): void {
    const isNew = !this.#own.isThere()
    this.#programs.make()
    if (isNew && this.#isPrivate) chmodSync(this.#own.path, 0o700)
    this.#own.checkEntries()
    this.#user = user
    // Only the gateway changes files in the function's folder.
    if (user !== null) this.#own = user.folder.below(this.#bench)
    this.#own.make()
    if (this.#root.read('.gitignore') === null) this.#root.write('.gitignore', '*\n')
  }

  /**
   * Writes a file of the folder, only when its content differs: tools compare times. @returns its full path
   * @param relative - a name, or `src/` and a name
   */
  write(relative: string, text: string): string {
    const names = relative.split('/')
    const name = names.pop()!
    const folder = this.#own.below(...names)
    if (folder.read(name)?.equals(Buffer.from(text)) === true) return folder.pathOf(name)
    return folder.write(name, text)
  }

  /** Where the tool puts an unfinished program: nothing has that name, so no link leads it elsewhere. */
  draft(key: string): string {
    const folder = this.#user === null ? this.#programs : this.#own
    folder.make()
    folder.remove(this.#draftOf(key))
    return folder.pathOf(this.#draftOf(key))
  }

  /**
   * Puts the program that a tool left in place.
   * @param path - full path; absent: it is at `draft`
   * @throws Error when it is not the file of the user that built it
   */
  async finish(key: string, path: string | null = null): Promise<void> {
    const name = this.#draftOf(key)
    const user = this.#user
    if (user !== null || path !== null) {
      this.#programs.make()
      this.#programs.remove(name)
      const place = this.#programs.pathOf(name)
      if (user === null) copyFileSync(path!, place)
      else await user.takeFile(path ?? this.#own.pathOf(name), place)
    }
    if (user !== null && path === null) this.#own.remove(name)
    this.publish(key)
  }

  #draftOf(key: string): string {
    return `.${key}.${this.#mark}`
  }

  /** Puts a finished draft in place at once and deletes old programs; a worker that runs one of them is not disturbed. */
  publish(key: string): void {
    this.#programs.rename(this.#draftOf(key), key)
    const programs = this.#programs.list(PROGRAM_NAME).filter(({ stats }) => stats.isFile())
    const finishedMs = programs.find(({ name }) => name === key)?.stats.mtimeMs ?? 0
    const others = programs.filter(({ name }) => name !== key).sort((a, b) => b.stats.mtimeMs - a.stats.mtimeMs)
    const left = this.#programs.list(DRAFT_NAME).filter(({ stats }) => stats.mtimeMs < finishedMs - DRAFT_AGE_MS)
    for (const { name } of [...others.slice(KEPT_BUILDS - 1), ...left]) this.#programs.remove(name)
  }
}

/** The build of one function's program. */
export abstract class ProgramBuild {
  protected readonly fn: FunctionVersion
  protected readonly options: CompilerOptions
  /** Sources of the worker, by path below their folder. */
  protected readonly worker: ReadonlyMap<string, string>
  protected readonly workspace: Workspace

  constructor(fn: FunctionVersion, options: CompilerOptions, worker: ReadonlyMap<string, string>) {
    this.fn = fn
    this.options = options
    this.worker = worker
    this.workspace = new Workspace(fn, `.${fn.runtime}-build`, options.isPrivate)
  }
}

/** @param length - hexadecimal digits */
export function digestOf(text: string, length: number): string {
  return createHash('sha256').update(text).digest('hex').slice(0, length)
}

function toPlainName(text: string): string {
  if (PLAIN_NAME.test(text)) return text
  const plain = text.replace(/[^A-Za-z0-9_-]+/g, '-').replace(/^-+|-+$/g, '')
  return `${plain.slice(0, 50) || 'file'}-${digestOf(text, 8)}`
}
