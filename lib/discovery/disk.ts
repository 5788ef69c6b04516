/** Paths, access to the disk, and the warnings about them. Owner: §2.2, page discovery/layouts. */

import { type Dirent, readdirSync, readFileSync, realpathSync, type Stats, statSync } from 'node:fs'
import { orNull, type Warning } from '../core/errors.ts'

export type DiskEntry = Pick<Dirent, 'name' | 'isFile' | 'isDirectory' | 'isSymbolicLink'>

/** The four questions a snapshot asks; each throws as `node:fs` does. */
export interface Disk {
  readdir: (path: string) => readonly DiskEntry[]
  /** Follows links. */
  stat: (path: string) => Stats
  readFile: (path: string) => Uint8Array
  realpath: (path: string) => string
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

/** null when the file was deleted since the folder was listed. */
export function fileWarning(path: string, isLink: boolean, error: unknown): Warning | null {
  const code = codeOf(error)
  if (code === 'ENOENT' && !isLink) return null
  if (code === 'ENOENT') {
    const text = 'is a broken link: its target does not exist'
    return pathWarning('DANGLING_SYMLINK', path, text, 'Fix the link, or delete it.')
  }
  if (code === 'ELOOP') return loopWarning(path)
  if (code === 'NOT_OF_FUNCTION') {
    const hint = 'Put a copy of the file in its place.'
    return { code: 'UNREADABLE_FILE', path, message: (error as Error).message, hint }
  }
  return pathWarning('UNREADABLE_FILE', path, `cannot be read: ${reasonOf(error)}`, 'Check the rights of the file.')
}

export function loopWarning(path: string): Warning {
  return pathWarning('SYMLINK_LOOP', path, 'leads back to a folder above it and is not followed', 'Delete the link.')
}

/** The stamp of a file that does not exist or cannot be inspected. */
export const GONE = 'gone'

/** Size and time of a file as text. */
export function diskStamp(fullPath: string): string {
  const stats = orNull(() => statSync(fullPath))
  return stats === null ? GONE : `${stats.size}|${stats.mtimeMs}`
}

/** Device and inode of a folder, also through a link; empty when there is none. */
export function folderId(fullPath: string): string {
  const stats = orNull(() => statSync(fullPath))
  return stats?.isDirectory() ? `${stats.dev}:${stats.ino}` : ''
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

/** True when `path` is `folder` or below it; both are full, or below the root. */
export function isWithin(path: string, folder: string): boolean {
  return path === folder || path.startsWith(folder === '/' ? folder : `${folder}/`)
}
