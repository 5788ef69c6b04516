/**
 * Whom tools run as below a gateway that is root: the owner of the functions folder, so that no code of a package is root's.
 * Owner: page dependencies/install.
 */

import { execFile } from 'node:child_process'
import { existsSync, lstatSync, statSync } from 'node:fs'
import { sep } from 'node:path'
import { canChangeUser, type ProcessPowers } from '../config/isolation.ts'
import { handOver, OwnFolder } from '../files/own-folder.ts'
import { SETPRIV, toPrivileges, type UserOfTool } from './run-tool.ts'

interface ToolOwnerOptions {
  functionsRoot: string
  powers: ProcessPowers
  /** What every tool reads: node, this package. Full paths. */
  reached: readonly string[]
  /** A tool runs as root, because the owner of the functions folder cannot reach what it needs. */
  onRefused(why: string): void
}

/** Prints the first path that cannot be used. */
const PROBE =
  'for path; do [ -r "$path" ] || [ -x "$path" ] || command -v "$path" >/dev/null || { printf %s "$path"; exit 1; }; done'

export class ToolOwner {
  readonly #options: ToolOwnerOptions
  readonly #user: UserOfTool
  /** By the full path of a program. */
  readonly #known = new Map<string, Promise<UserOfTool | null>>()

  private constructor(options: ToolOwnerOptions, user: UserOfTool) {
    this.#options = options
    this.#user = user
  }

  /** @returns null where tools run as this process does */
  static find(options: ToolOwnerOptions): ToolOwner | null {
    const { functionsRoot, powers } = options
    if (powers.uid !== 0 || !canChangeUser(powers) || !existsSync(SETPRIV)) return null
    const { uid, gid } = statSync(functionsRoot)
    if (uid === 0) return null
    const state = new OwnFolder(functionsRoot, '.svc')
    // Made by an earlier version as root, where its tools could not write.
    if (state.isThere() && lstatSync(state.path).uid === 0) handOver(state, uid, ['packs'], gid)
    return new ToolOwner(options, { uid, gid })
  }

  /** @param command - full path of a program, or its name. @returns null when the user cannot run it */
  of(command: string): Promise<UserOfTool | null> {
    const known = this.#known.get(command) ?? this.#find(command)
    this.#known.set(command, known)
    return known
  }

  async #find(command: string): Promise<UserOfTool | null> {
    const { functionsRoot, reached, onRefused } = this.#options
    const closed = await this.#probe([command, functionsRoot, ...reached])
    if (closed === null) return this.#user
    onRefused(`${command} runs as root: user ${this.#user.uid}, who owns the functions folder, cannot reach ${closed}`)
    return null
  }

  /** @returns the first path that the user cannot reach, null when all can be */
  #probe(paths: readonly string[]): Promise<string | null> {
    const args = [...toPrivileges({ isPlain: true, user: this.#user }), '--', '/bin/sh', '-c', PROBE, 'sh', ...paths]
    return new Promise(resolve => {
      execFile(SETPRIV, args, { cwd: '/', env: { PATH: process.env.PATH } }, (error, output) =>
        resolve(error === null ? null : output || paths[0]!),
      )
    })
  }

  /** With the user's own home in place of root's: what variables name there the user cannot use. */
  toEnv(env: Readonly<Record<string, string>>): Record<string, string> {
    const { HOME: home } = env
    const own = new OwnFolder(this.#options.functionsRoot, '.svc', 'home').make()
    const isRoots = (value: string) => home !== undefined && value.startsWith(home.replace(/\/?$/, sep))
    const kept = Object.entries(env).filter(([name, value]) => name === 'PATH' || !isRoots(value))
    return { ...Object.fromEntries(kept), HOME: own }
  }
}
