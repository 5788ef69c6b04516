/**
 * Files that the gateway reads on behalf of functions. Owner: page files/function-file.
 *
 * With FN_ISOLATION=user the gateway may read what a function may not: a link to another function's secrets must not give
 * their content to the function that the link belongs to.
 */

import { constants, fstatSync, openSync, readFileSync } from 'node:fs'
import { dirname, relative, sep } from 'node:path'
import { closing, inHeldFolder, NOT_THROUGH_LINKS } from './own-folder.ts'

/** Reads a whole file by its full path. @throws Error of the file system, or UnreadForFunctionError */
export type FileReader = (path: string) => Buffer

/** The file may belong to another user than the folder that names it. */
class UnreadForFunctionError extends Error {
  readonly code = 'NOT_OF_FUNCTION'

  constructor(shown: string, why: string) {
    super(`${shown} ${why}: FN_ISOLATION=user reads only files in the function's own folder`)
  }
}

const OTHERS_READ = 0o004
const MAX_BYTES = 64 * 1024 * 1024

/**
 * Reads files below a root: neither the file nor a folder between it and the root may be a link, and a file with a second name
 * must be readable for all users.
 * @param functionsRoot - full path; links on the way to it are followed
 * @returns null without separate users for functions: links are followed then
 */
export function createFileReader(settings: { functionsRoot: string; isolation: string }): FileReader | null {
  const { functionsRoot: root, isolation } = settings
  if (isolation !== 'user') return null
  return path => {
    const names = relative(root, path).split(sep)
    const shown = names.join('/')
    const name = names.pop()!
    if (name === '' || names[0] === '..') throw new UnreadForFunctionError(path, 'is not in the functions root')
    try {
      return inHeldFolder(root, names, dirname(path), folder => readPlainFile(`${folder}/${name}`, shown))
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException
      // A link in the place of a folder is not a folder.
      if (code === 'ELOOP' || code === 'ENOTDIR') throw new UnreadForFunctionError(shown, 'is a link, or is below one')
      throw error
    }
  }
}

function readPlainFile(path: string, shown: string): Buffer {
  return closing(openSync(path, constants.O_RDONLY | NOT_THROUGH_LINKS), file => {
    const stats = fstatSync(file)
    const { nlink, mode, size } = stats
    if (!stats.isFile()) throw new UnreadForFunctionError(shown, 'is not a regular file')
    if (size > MAX_BYTES) throw new UnreadForFunctionError(shown, `has ${size} bytes, more than ${MAX_BYTES}`)
    if (nlink > 1 && (mode & OTHERS_READ) === 0)
      throw new UnreadForFunctionError(shown, 'has a second name (hard link)')
    return readFileSync(file)
  })
}
