/** Files of the gateway that grow: opened so that neither a link nor a pipe in their place does harm. Page files/own-folder. */

import { constants } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { basename } from 'node:path'
import { NOT_THROUGH_LINKS, UnsafePathError } from './own-folder.ts'

/**
 * Opens a regular file to add to its end, made for its owner only when it is missing.
 * @throws UnsafePathError when a link, pipe, device or folder has the name; Error of the file system
 */
export function openToAppend(path: string): Promise<FileHandle> {
  return openRegular(path, constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT)
}

/** Opens a regular file to read it; null when it is missing. @throws as `openToAppend` */
export async function openToRead(path: string): Promise<FileHandle | null> {
  try {
    return await openRegular(path, constants.O_RDONLY)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    return null
  }
}

/** Opens a regular file to read and change it, made for its owner only when it is missing. @throws as `openToAppend` */
export function openToUpdate(path: string): Promise<FileHandle> {
  return openRegular(path, constants.O_RDWR | constants.O_CREAT)
}

/** Makes a file that is not there yet, for its owner only. @throws Error EEXIST when anything has the name */
export function openNew(path: string): Promise<FileHandle> {
  return openRegular(path, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL)
}

/** Brings to the disk which files a folder has, so that a new name survives a loss of power. */
export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, constants.O_RDONLY)
  try {
    await folder.sync()
  } catch (error) {
    // Some file systems keep names safe by themselves and refuse to be asked.
    if (!UNSYNCED.has((error as NodeJS.ErrnoException).code ?? '')) throw error
  } finally {
    await folder.close()
  }
}

const UNSYNCED: ReadonlySet<string> = new Set(['EINVAL', 'EPERM', 'EISDIR', 'ENOTSUP'])

async function openRegular(path: string, flags: number): Promise<FileHandle> {
  let file: FileHandle
  try {
    file = await open(path, flags | NOT_THROUGH_LINKS, 0o600)
  } catch (error) {
    const what = UNSAFE[(error as NodeJS.ErrnoException).code ?? '']
    throw what === undefined ? error : toError(path, what)
  }
  if ((await file.stat()).isFile()) return file
  await file.close()
  throw toError(path, 'a pipe, device or folder')
}

/** What an open that does not follow and does not wait says of a link, a pipe without reader, and a folder. */
const UNSAFE: Readonly<Record<string, string>> = {
  ELOOP: 'a symbolic link',
  ENXIO: 'a pipe or socket',
  EISDIR: 'a folder',
}

function toError(path: string, what: string): UnsafePathError {
  return new UnsafePathError(path, basename(path), what, 'a regular file')
}
