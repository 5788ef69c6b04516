/** Where cargo keeps the crates it fetches. Owner: §2.16, page dependencies/resolve. */

import { existsSync, lstatSync, mkdirSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'

/** What a user's own cargo folder says of registries, mirrors and proxies, and the tokens for them. */
const USER_FILES = ['config.toml', 'config', 'credentials.toml', 'credentials']

/**
 * The folder for crates: that of the environment when it names one, else `cargo` below the build folder, so that a root
 * with its build folder needs no network and no other folder of the machine any more.
 * @param hostEnv - variables of the gateway's process
 */
export class CargoHome {
  /** Full path; null when the environment names it. */
  readonly path: string | null
  readonly #userFolder: string | null

  constructor(buildFolder: string, hostEnv: Readonly<Record<string, string | undefined>>) {
    this.path = hostEnv.CARGO_HOME === undefined ? join(buildFolder, 'cargo') : null
    this.#userFolder = hostEnv.HOME === undefined ? null : join(hostEnv.HOME, '.cargo')
  }

  /** Makes the folder, with the user's own settings in it. @returns the variables that cargo needs to use it */
  prepare(): Readonly<Record<string, string>> {
    if (this.path === null) return {}
    mkdirSync(this.path, { recursive: true })
    for (const name of this.#userFolder === null ? [] : USER_FILES) {
      const from = join(this.#userFolder!, name)
      const to = join(this.path, name)
      if (existsSync(from) && lstatSync(to, { throwIfNoEntry: false }) === undefined) symlinkSync(from, to)
    }
    return { CARGO_HOME: this.path }
  }
}
