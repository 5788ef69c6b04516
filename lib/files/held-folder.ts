/**
 * Work in a folder that is the one that was looked at, whatever somebody puts in its place meanwhile. Owner: page files/own-folder.
 *
 *   base ─ a ─ b          each part is opened from the one before, never through a link; /proc/self/fd/N is then b itself,
 *    └ 11 ─ 12 ─ 13       also after a, or b, was renamed or replaced by a link
 */

import { closeSync, constants, existsSync, openSync, readdirSync, rmdirSync, rmSync, unlinkSync } from 'node:fs'
import { join } from 'node:path'

/** Linux alone names open folders by a path; elsewhere the way is looked at and then walked. */
const HAS_FOLDER_PATHS = process.platform === 'linux' && existsSync('/proc/self/fd')

const FOLDER = constants.O_RDONLY | (constants.O_DIRECTORY ?? 0)

/**
 * @param base - full path; links on the way to it are followed
 * @param names - plain names of the folders from there
 * @param path - full path of the folder, for messages
 * @throws Error of the file system: ENOTDIR or ELOOP for a part that is a link
 */
export function inHeldFolder<T>(base: string, names: readonly string[], path: string, work: (held: string) => T): T {
  if (!HAS_FOLDER_PATHS) return work(path)
  const open: number[] = [openSync(base, FOLDER)]
  try {
    for (const name of names) open.push(openSync(`${toPath(open.at(-1)!)}/${name}`, FOLDER | constants.O_NOFOLLOW))
    return work(toPath(open.at(-1)!))
  } catch (error) {
    throw withRealPath(error, toPath(open.at(-1)!), path)
  } finally {
    for (const file of open) closeSync(file)
  }
}

/**
 * Deletes an entry of a folder with everything in it. No folder is entered by its name: one that is replaced by a link while this
 * goes on leads nowhere else.
 * @param held - as `inHeldFolder` gives it
 */
export function removeEntry(held: string, name: string): void {
  if (!HAS_FOLDER_PATHS) {
    rmSync(join(held, name), { recursive: true, force: true })
    return
  }
  const path = `${held}/${name}`
  const folder = openFolder(path)
  if (folder === null) {
    ignoreMissing(() => unlinkSync(path))
    return
  }
  try {
    for (const entry of readdirSync(toPath(folder))) removeEntry(toPath(folder), entry)
  } finally {
    closeSync(folder)
  }
  ignoreMissing(() => rmdirSync(path))
}

/** @returns null for what is no folder, or gone */
function openFolder(path: string): number | null {
  try {
    return openSync(path, FOLDER | constants.O_NOFOLLOW)
  } catch (error) {
    if (/^(?:ENOTDIR|ELOOP|ENOENT)$/.test(String((error as NodeJS.ErrnoException).code))) return null
    throw error
  }
}

function ignoreMissing(remove: () => void): void {
  try {
    remove()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
  }
}

function toPath(file: number): string {
  return `/proc/self/fd/${file}`
}

/** A message names the folder as people know it. */
function withRealPath(error: unknown, held: string, path: string): unknown {
  if (error instanceof Error) error.message = error.message.replaceAll(`${held}/`, `${path}/`)
  return error
}
