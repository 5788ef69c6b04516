/** What root made for a gateway becomes that of the user the gateway will run as. Owner: page files/own-folder. */

import { lchownSync, lstatSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import type { OwnFolder } from './own-folder.ts'

/**
 * Makes a folder, gives it with everything in it to a user and follows no link.
 * @param except - names in the folder that stay whose they are
 * @throws UnsafePathError when a link is on the way to it; Error of the file system
 */
export function handOver(folder: OwnFolder, uid: number, except: readonly string[] = []): void {
  const path = folder.make()
  lchownSync(path, uid, uid)
  for (const name of readdirSync(path)) if (!except.includes(name)) give(join(path, name), uid)
}

function give(path: string, uid: number): void {
  const stats = lstatSync(path)
  // A second name of a file may be somebody else's.
  if (!stats.isDirectory() && stats.nlink > 1) return
  lchownSync(path, uid, uid)
  if (!stats.isDirectory()) return
  for (const name of readdirSync(path)) give(join(path, name), uid)
}
