/** What root made for a gateway becomes that of the user the gateway will run as. Owner: page files/own-folder. */

import { chownSync, lchownSync, lstatSync, readdirSync, statSync } from 'node:fs'
import { basename, dirname, join, relative, sep } from 'node:path'
import { inHeldFolder } from './held-folder.ts'
import type { OwnFolder } from './own-folder.ts'

/**
 * Makes a folder, gives it with everything in it to a user and follows no link.
 * @param except - names in the folder that stay whose they are
 * @throws UnsafePathError when a link is on the way to it; Error of the file system
 */
export function handOver(folder: OwnFolder, uid: number, except: readonly string[] = [], gid = uid): void {
  const path = folder.make()
  inHeldFolder(dirname(path), [basename(path)], path, held => {
    for (const name of readdirSync(held)) if (!except.includes(name)) give(join(held, name), uid, gid)
    chownSync(held, uid, gid)
  })
}

/**
 * Gives a folder of root's to a user, who may then put things into it; what is in it, its group and its mode stay. Nothing is done
 * about one that belongs to somebody else, or to which a link leads.
 * @param base - full path; links on the way to it are followed
 * @param path - full path below it, or its own
 */
export function giveFolder(base: string, path: string, uid: number): void {
  const names = relative(base, path).split(sep).filter(Boolean)
  try {
    inHeldFolder(base, names, path, held => {
      if (statSync(held).uid === 0) chownSync(held, uid, -1)
    })
  } catch (error) {
    if (!/^(?:ENOTDIR|ELOOP|ENOENT)$/.test(String((error as NodeJS.ErrnoException).code))) throw error
  }
}

/** A folder after what is in it: until then its new owner can put nothing else in the place of an entry. */
function give(path: string, uid: number, gid: number): void {
  const stats = lstatSync(path)
  // A second name of a file may be somebody else's.
  if (!stats.isDirectory() && stats.nlink > 1) return
  if (stats.isDirectory()) for (const name of readdirSync(path)) give(join(path, name), uid, gid)
  lchownSync(path, uid, gid)
}
