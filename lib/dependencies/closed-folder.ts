/** Folders that installed packages go to and that the gateway's user may not write to. Owner: page dependencies/install. */

import { accessSync, constants } from 'node:fs'
import { dirname, relative, sep } from 'node:path'
import { toShellWord } from '../core/text.ts'

/** Known before a tool has worked for minutes. @throws Error of the file system */
export function checkWritable(folder: string): void {
  accessSync(folder, constants.W_OK | constants.X_OK)
}

interface Denied {
  /** Where packages are installed, full path. */
  folder: string
  functionsRoot: string
}

/** True for what the system does not let this process do. */
export function isDenied(thrown: unknown): boolean {
  return /^(?:EACCES|EPERM|EROFS)$/.test(String((thrown as NodeJS.ErrnoException).code))
}

/**
 * What is told of an install that was not let into a folder, and what to type.
 * @param thrown - for which `isDenied` is true
 * @param uid - whom the gateway runs as
 */
export function toClosedText(
  thrown: unknown,
  { folder, functionsRoot }: Denied,
  uid = process.geteuid?.(),
): { message: string; hint: string } {
  const { code, path, syscall } = thrown as NodeJS.ErrnoException
  const at = path === undefined ? folder : syscall === 'access' ? path : dirname(path)
  const isKnown = at === functionsRoot || at.startsWith(functionsRoot + sep)
  const shown =
    relative(functionsRoot, isKnown ? at : folder)
      .split(sep)
      .join('/') || '.'
  const place = shown === '.' ? 'the functions root' : shown
  if (code === 'EROFS') {
    const message = `${place} is on a file system that cannot be written, and packages are put beside the function`
    return { message, hint: 'mount it writable, or install them before: fngw deps install' }
  }
  const who = uid === undefined ? 'the user of the gateway' : `user ${uid}, as whom the gateway runs,`
  const command = `chown ${uid ?? 'USER'} ${toShellWord(shown)}`
  return {
    message: `${who} may not write to ${place}, and packages are put beside the function`,
    hint: `in the functions root: ${command}; or install them as its owner: fngw deps install`,
  }
}
