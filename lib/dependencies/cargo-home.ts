/** Where cargo keeps the crates it fetches and what it compiles. Owner: §2.16, page dependencies/resolve. */

import { existsSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import type { OwnFolder } from '../files/own-folder.ts'
import type { ToolUser } from '../files/tool-user.ts'

/** What a user's own cargo folder says of registries, mirrors and proxies, and the tokens for them. */
const USER_FILES = ['config.toml', 'config', 'credentials.toml', 'credentials']
/** Folders in which cargo makes folders and files of its own. */
const HOME_FOLDERS = ['registry', 'git']
const PROFILE_FOLDER = 'release'
const OWN_TARGET = 'rust'

/**
 * The folders for crates: those of the environment when it names them, else `cargo` and `rust` below the build folder, so
 * that a root with its build folder needs no network and no other folder of the machine any more.
 * @param build - `.svc/build`
 * @param hostEnv - variables of the gateway's process
 */
export class CargoHome {
  readonly #target: string
  /** null where the environment names the folder: then it is the user's. */
  readonly #home: OwnFolder | null
  readonly #ownTarget: OwnFolder | null
  readonly #userFolder: string | null

  constructor(build: OwnFolder, hostEnv: Readonly<Record<string, string | undefined>>) {
    this.#home = hostEnv.CARGO_HOME === undefined ? build.below('cargo') : null
    this.#ownTarget = hostEnv.CARGO_TARGET_DIR === undefined ? build.below('rust') : null
    this.#target = hostEnv.CARGO_TARGET_DIR ?? build.below('rust').path
    this.#userFolder = hostEnv.HOME === undefined ? null : join(hostEnv.HOME, '.cargo')
  }

  /** Full path of the folder for what is compiled. @param user - who builds; null: the gateway */
  targetOf(user: ToolUser | null): string {
    return user === null ? this.#target : join(user.home, OWN_TARGET)
  }

  /**
   * Makes the folders, with the user's own settings in them. @returns the variables that cargo needs to use them
   * @throws UnsafePathError when cargo would be led elsewhere by a link
   */
  prepare(user: ToolUser | null = null): Readonly<Record<string, string>> {
    if (user !== null) return { CARGO_TARGET_DIR: this.targetOf(user) }
    this.#ownTarget?.checkEntries()
    this.#ownTarget?.below(PROFILE_FOLDER).checkEntries()
    const variables = { CARGO_TARGET_DIR: this.#target }
    if (this.#home === null) return variables
    for (const name of HOME_FOLDERS) this.#home.below(name).checkEntries()
    this.#home.checkEntries(USER_FILES)
    this.#home.make()
    for (const name of this.#userFolder === null ? [] : USER_FILES) {
      const from = join(this.#userFolder!, name)
      const isTaken = this.#home.list(/^/).some(entry => entry.name === name)
      if (existsSync(from) && !isTaken) symlinkSync(from, this.#home.pathOf(name))
    }
    return { ...variables, CARGO_HOME: this.#home.path }
  }
}
