/** A temporary folder for one tool. Owner: §2.16, page dependencies/resolve. */

import { tmpdir } from 'node:os'
import type { Clock } from '../core/clock.ts'
import { OwnFolder } from '../files/own-folder.ts'

const PREFIX = 'b-'
const NAME = /^b-[A-Za-z0-9]{6}$/
/** Age at which such a folder is nobody's any more, ms. */
const STALE_MS = 3_600_000
/** A tree that the gateway may not write to. */
const CLOSED: ReadonlySet<string> = new Set(['EROFS', 'EACCES', 'EPERM'])

/**
 * Makes one below `parent`, or where nobody may write there, among the system's: what a tree needs is looked up in a closed
 * one, too.
 * @throws Error, an UnsafePathError where a link is in the way
 */
export function makeToolFolder(parent: OwnFolder, clock: Clock): OwnFolder {
  try {
    parent.make()
  } catch (error) {
    if (!CLOSED.has((error as NodeJS.ErrnoException).code ?? '')) throw error
    return new OwnFolder(tmpdir()).makeTemporary(PREFIX)
  }
  // Left by a gateway that was killed.
  for (const { name, stats } of parent.list(NAME)) {
    if (stats.isDirectory() && clock.wall() - stats.mtimeMs > STALE_MS) parent.remove(name)
  }
  return parent.makeTemporary(PREFIX)
}
