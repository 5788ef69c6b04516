/** Where the files of this package and of this process lie: daemons, and the private folder for sockets. Owner: §1, page runtime/daemon. */

import { chmodSync, existsSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs'
import net from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** Longest socket path of every system, bytes (sockaddr_un), and what a file name in the folder may take of it. */
const MAX_SOCKET_PATH_BYTES = 100
const SOCKET_NAME_BYTES = 24
/** Milliseconds after which a folder without sockets is nobody's. */
const EMPTY_FOLDER_AGE_MS = 60_000
const FOLDER_PREFIX = 'fngw-'

/**
 * Full path of a file of this package, from the sources as well as from the built package.
 * @param relative - such as `package.json`
 */
export function packageFile(relative: string): string {
  const fromSources = fileURLToPath(new URL(`../../${relative}`, import.meta.url))
  return existsSync(fromSources) ? fromSources : fileURLToPath(new URL(`../../../${relative}`, import.meta.url))
}

/** Full path of a file below `runtimes/`, such as `node/daemon.mjs`. */
export function runtimeFile(relative: string): string {
  return packageFile(`runtimes/${relative}`)
}

/** The private folder for the sockets of one gateway: made when first needed, readable by nobody else. */
export class SocketFolder {
  readonly #bases: readonly string[]
  #made: string | null = null

  /**
   * @param base - preferred parent
   * @param short - parent that serves when paths below `base` would be too long for a socket, or `base` cannot be written
   */
  constructor(base: string = tmpdir(), short = '/tmp') {
    const fits = Buffer.byteLength(base) + FOLDER_PREFIX.length + 7 + SOCKET_NAME_BYTES <= MAX_SOCKET_PATH_BYTES
    this.#bases = base === short ? [base] : fits ? [base, short] : [short]
  }

  /** @throws Error with a message for people when no parent is writable */
  path(): string {
    if (this.#made !== null && existsSync(this.#made)) return this.#made
    const problems: string[] = []
    for (const base of this.#bases) {
      try {
        this.#made = mkdtempSync(join(base, FOLDER_PREFIX))
        chmodSync(this.#made, 0o700)
        return this.#made
      } catch (error) {
        problems.push((error as Error).message)
      }
    }
    throw new Error(`no folder for sockets: ${problems.join('; ')}; set TMPDIR to a folder that can be written`)
  }

  /** Deletes the folder with everything in it. */
  remove(): void {
    if (this.#made !== null) rmSync(this.#made, { recursive: true, force: true })
    this.#made = null
  }

  /** Deletes folders that gateways left behind when they were killed: ours by owner, with no socket that answers. */
  async removeStale(): Promise<void> {
    for (const base of this.#bases) {
      for (const name of list(base)) {
        if (!/^fngw-[A-Za-z0-9]{6}$/.test(name)) continue
        const folder = join(base, name)
        if (folder !== this.#made && isOurs(folder) && (await isDead(folder))) {
          rmSync(folder, { recursive: true, force: true })
        }
      }
    }
  }
}

function list(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}

function isOurs(folder: string): boolean {
  try {
    const stat = statSync(folder)
    return stat.isDirectory() && stat.uid === process.getuid?.() && (stat.mode & 0o077) === 0
  } catch {
    return false
  }
}

/** True when none of the folder's daemon sockets answers; one without any may be just being filled. */
async function isDead(folder: string): Promise<boolean> {
  const sockets = list(folder).filter(name => /^[a-z]+-\d+\.sock$/.test(name))
  if (sockets.length === 0) return Date.now() - statSync(folder).mtimeMs > EMPTY_FOLDER_AGE_MS
  const answers = await Promise.all(sockets.map(name => isAnswered(join(folder, name))))
  return answers.every(answered => !answered)
}

function isAnswered(path: string): Promise<boolean> {
  return new Promise(resolve => {
    const socket = net.connect({ path })
    const settle = (answered: boolean) => {
      socket.destroy()
      resolve(answered)
    }
    socket.once('connect', () => settle(true))
    socket.once('error', () => settle(false))
  })
}
