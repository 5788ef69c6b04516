/** Paths, access to the disk, and the warnings for its errors. Owner: §2.2, page discovery/layouts. */

import { readdirSync, readFileSync, realpathSync, statSync } from 'node:fs'
import { orNull, type Warning } from '../core/errors.ts'
import { MAX_CONFIG_FILE_BYTES } from '../core/limits.ts'

/** Folders of one tree that are read; the rest is skipped with a warning. */
export const MAX_TREE_FOLDERS = 100_000
/** Entries of one folder from which on a warning says that it slows every reload. */
export const LARGE_FOLDER_ENTRIES = 10_000

export interface DiskEntry {
  name: string
  isFile: () => boolean
  isDirectory: () => boolean
  isSymbolicLink: () => boolean
}

export interface DiskStat {
  /** Bytes. */
  size: number
  mtimeMs: number
  isFile: () => boolean
  isDirectory: () => boolean
  isSocket: () => boolean
}

/** The four questions a snapshot asks; each throws as `node:fs` does. */
export interface Disk {
  readdir: (path: string) => readonly DiskEntry[]
  /** Follows links. */
  stat: (path: string) => DiskStat
  readFile: (path: string) => Uint8Array
  realpath: (path: string) => string
}

/** Remembers when folders changed last, to detect later changes. */
export interface ListingTimes {
  /** Asked before a folder is listed, by its full path; null when its times would show nothing. */
  look(path: string): object | null
  /** The folder as it was listed then, and its times; null when they are not sufficient. */
  keep(folder: object, times: object | null): void
  /** Another object for the same listing. */
  carry(from: object, to: object): void
}

export const NODE_DISK: Disk = {
  readdir: path => readdirSync(path, { withFileTypes: true }),
  stat: path => statSync(path),
  readFile: path => readFileSync(path),
  realpath: path => realpathSync(path),
}

/** Errors of a machine without free resources: temporary, and not about the file. */
const SHORTAGES: ReadonlySet<string> = new Set(['EMFILE', 'ENFILE', 'ENOMEM', 'EAGAIN'])

/** The same disk; `onShortage` is called for each error that is not about the file. */
export function watchShortage(disk: Disk, onShortage: (error: unknown) => void): Disk {
  const watched =
    <T>(ask: (path: string) => T) =>
    (path: string): T => {
      try {
        return ask(path)
      } catch (error) {
        if (SHORTAGES.has(codeOf(error))) onShortage(error)
        throw error
      }
    }
  return {
    readdir: watched(disk.readdir),
    stat: watched(disk.stat),
    readFile: watched(disk.readFile),
    realpath: watched(disk.realpath),
  }
}

/** A warning whose message begins with the path. */
export function pathWarning(code: string, path: string, text: string, hint: string): Warning {
  const shown = path === '' ? '.' : path
  return { code, path: shown, message: `${shown} ${text}`, hint }
}

export function folderWarning(path: string, error: unknown): Warning {
  const hint = path === '' ? 'Check FN_FUNCTIONS_ROOT and the rights of the folder.' : 'Check the rights of the folder.'
  return pathWarning('UNREADABLE_FOLDER', path, `cannot be read: ${reasonOf(error)}`, hint)
}

/** null when the file is simply gone since the folder was listed. */
export function fileWarning(path: string, isLink: boolean, error: unknown): Warning | null {
  const code = codeOf(error)
  if (code === 'ENOENT' && !isLink) return null
  if (code === 'ENOENT') {
    return pathWarning(
      'DANGLING_SYMLINK',
      path,
      'is a broken link: its target does not exist',
      'Fix the link, or delete it.',
    )
  }
  if (code === 'ELOOP') return loopWarning(path)
  if (code === 'NOT_OF_FUNCTION') {
    const hint = 'Put a copy of the file in its place.'
    return { code: 'UNREADABLE_FILE', path, message: (error as Error).message, hint }
  }
  return pathWarning('UNREADABLE_FILE', path, `cannot be read: ${reasonOf(error)}`, 'Check the rights of the file.')
}

export function notFileWarning(path: string): Warning {
  return pathWarning('UNREADABLE_FILE', path, 'cannot be read: it is a folder', 'Replace the folder by a file.')
}

export function loopWarning(path: string): Warning {
  return pathWarning('SYMLINK_LOOP', path, 'leads back to a folder above it and is not followed', 'Delete the link.')
}

export function specialWarning(path: string): Warning {
  const hint = 'Keep pipes, sockets and devices outside the functions root.'
  return pathWarning('SPECIAL_FILE', path, 'is neither a file nor a folder and is not read', hint)
}

export function largeFolderWarning(path: string, count: number): Warning {
  const hint = 'Move data out of the functions root, or spread the files over folders.'
  const text = `has ${count} entries; reloads are slow from ${LARGE_FOLDER_ENTRIES} entries on`
  return pathWarning('LARGE_FOLDER', path, text, hint)
}

export function largeConfigWarning(path: string, size: number): Warning {
  const text = `is not read: it has ${size} bytes, at most ${MAX_CONFIG_FILE_BYTES} are allowed`
  return pathWarning('CONFIG_NOT_JSON', path, text, 'Make the file smaller.')
}

export function notUtf8Warning(path: string): Warning {
  return pathWarning('CONFIG_NOT_JSON', path, 'is not JSON: the file is not UTF-8 text', 'Save the file as UTF-8.')
}

export function shortageWarning(error: unknown): Warning {
  const text = `cannot be read now: ${reasonOf(error)}; the previous catalog stays in force`
  const hint = 'fngw retries every second. Raise the limit of open files (ulimit -n), or free memory.'
  return pathWarning('TREE_NOT_READ', '', text, hint)
}

export function largeTreeWarning(path: string): Warning {
  const text = `and the folders after it are not read: the tree has more than ${MAX_TREE_FOLDERS} folders`
  return pathWarning('TREE_TOO_LARGE', path, text, 'Move data out of the functions root.')
}

/** The stamp of a file that does not exist or cannot be inspected. */
export const GONE = 'gone'

/** Size and time of a file as text. */
export function diskStamp(fullPath: string): string {
  const stats = orNull(() => statSync(fullPath))
  return stats === null ? GONE : `${stats.size}|${stats.mtimeMs}`
}

const REASONS: ReadonlyMap<string, string> = new Map([
  ['EACCES', 'permission denied'],
  ['EPERM', 'permission denied'],
  ['ENOENT', 'it does not exist'],
  ['ENOTDIR', 'it is not a folder'],
  ['EMFILE', 'too many open files'],
  ['ENFILE', 'too many open files'],
  ['ENOMEM', 'no memory left'],
  ['EAGAIN', 'no resources left'],
])

/** Why the disk refused, in a few words. */
export function reasonOf(error: unknown): string {
  const code = codeOf(error)
  return REASONS.get(code) ?? (code || String(error))
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : ''
}

// Paths below the functions root, with posix separators; '' is the root.

/** The folder of a path below the root; the root's own is the root. */
export function parentOf(path: string): string {
  return path.slice(0, Math.max(0, path.lastIndexOf('/')))
}

/** A path one step down. */
export function toChild(folder: string, name: string): string {
  return folder === '' ? name : `${folder}/${name}`
}

/** A full path and one below it: both are clean, so `join` would only cost time. */
export function below(folder: string, path: string): string {
  return folder.endsWith('/') ? folder + path : `${folder}/${path}`
}

/** True when a link to `target` would lead back: to one of the folders on the way to it, or to one that holds them. */
export function leadsBack(target: string, wayToIt: readonly string[]): boolean {
  return wayToIt.some(folder => folder === target || isBelow(folder, target))
}

/** True when `path` is below `folder`. */
function isBelow(path: string, folder: string): boolean {
  return path.startsWith(folder === '/' ? folder : `${folder}/`)
}
