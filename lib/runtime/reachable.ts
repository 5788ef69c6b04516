/** Whether other users can reach a path at all. Owner: page runtime/isolation. */

import { lstatSync, realpathSync } from 'node:fs'
import { dirname } from 'node:path'

const OTHERS_ENTER = 0o001

/**
 * @param paths - full paths
 * @param who - who needs them, as the message begins
 * @throws Error that names the closed folder and how to open it
 */
export function checkReachable(paths: readonly string[], who = 'users of functions'): void {
  for (const path of paths) {
    const closed = findClosedFolder(realpathSync(path))
    if (closed !== null)
      throw new Error(`${who} cannot reach ${path}: ${closed} is closed to them; chmod o+x ${closed}`)
  }
}

/** The folder on the way to a path that other users may not enter; null when there is none. */
export function findClosedFolder(path: string): string | null {
  for (let folder = path; ; folder = dirname(folder)) {
    const stats = lstatSync(folder, { throwIfNoEntry: false })
    if (stats?.isDirectory() === true && (stats.mode & OTHERS_ENTER) === 0) return folder
    if (dirname(folder) === folder) return null
  }
}
