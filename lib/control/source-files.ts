/**
 * The files of functions as the control plane writes them: one change at a time, each whole, none through a link or outside the
 * root. Owner: page control/function.
 */

import { createHash } from 'node:crypto'
import { basename, dirname, relative, sep } from 'node:path'
import { GatewayError } from '../core/errors.ts'
import { matchesTag } from '../core/http-text.ts'
import { OwnFolder, UnsafePathError } from '../files/own-folder.ts'

/** A file as it was read. */
export interface SourceFile {
  /** Below the functions root, posix separators. */
  label: string
  /** Null when there is none. */
  bytes: Buffer | null
  /** Tag of the content, for `ETag` and `If-Match`. */
  etag: string
}

/** `If-Match` of a file that is not there. */
const MISSING = '"none"'

interface SourceFilesOptions {
  /** Full path. */
  functionsRoot: string
  /** Resolves when what is on disk is in force. */
  reload: () => Promise<void>
}

export class SourceFiles {
  readonly #root: string
  readonly #reload: () => Promise<void>
  #last: Promise<unknown> = Promise.resolve()

  constructor({ functionsRoot, reload }: SourceFilesOptions) {
    this.#root = functionsRoot
    this.#reload = reload
  }

  /** Runs a change after those that were asked for before: it sees what they wrote, and no other writes meanwhile. */
  inTurn<T>(change: () => Promise<T>): Promise<T> {
    const turn = this.#last.then(() => toRefusal(change))
    this.#last = turn.catch(() => {})
    return turn
  }

  /** Puts in force what was written. */
  reload(): Promise<void> {
    return this.#reload()
  }

  /** A folder below the root, by its full path. @throws GatewayError FORBIDDEN for one that is not */
  folder(path: string): OwnFolder {
    const below = relative(this.#root, path)
    const names = below === '' ? [] : below.split(sep)
    if (names.includes('..')) throw new GatewayError('FORBIDDEN', 'the file is outside the functions root')
    return new OwnFolder(this.#root, ...names)
  }

  /**
   * @param path - full path
   * @param limit - bytes; a larger file is refused
   */
  read(path: string, limit: number): SourceFile {
    const label = this.labelOf(path)
    const folder = this.folder(dirname(path))
    const stats = refuseLinks(() => folder.statFile(basename(path)))
    if (stats !== null && stats.size > limit)
      throw new GatewayError('CONFLICT', `${label} has ${stats.size} bytes, at most ${limit} are read here`)
    const bytes = stats === null ? null : folder.read(basename(path))
    return { label, bytes, etag: toEtag(bytes) }
  }

  /**
   * Writes a file in a folder that exists.
   * @param mode - of a new file; one that is there keeps its own
   */
  write(path: string, content: string, mode = 0o644): void {
    const folder = this.folder(dirname(path))
    folder.check()
    if (!folder.isThere()) throw new GatewayError('CONFLICT', `the folder of ${this.labelOf(path)} is gone`)
    const stats = folder.statFile(basename(path))
    folder.write(basename(path), content, stats === null ? mode : stats.mode & 0o777, stats)
  }

  /** Puts a file back as it was read. */
  restore(path: string, { bytes }: SourceFile): void {
    const folder = this.folder(dirname(path))
    if (bytes === null) folder.remove(basename(path))
    else this.write(path, bytes.toString('utf8'))
  }

  labelOf(path: string): string {
    return relative(this.#root, path).split(sep).join('/')
  }
}

/** Refuses a change whose writer saw another content. @param wanted - `If-Match`, null when it was not given */
export function checkMatch({ label, etag }: SourceFile, wanted: string | null): void {
  if (wanted === null || matchesTag(wanted, etag, false)) return
  const headers = { ETag: etag }
  throw new GatewayError('CONFLICT', `${label} was changed meanwhile: read it again`, { headers })
}

export function toEtag(bytes: Uint8Array | null): string {
  return bytes === null ? MISSING : `"${createHash('sha256').update(bytes).digest('base64url').slice(0, 22)}"`
}

/** What the disk refuses as an answer that says why. */
async function toRefusal<T>(change: () => Promise<T>): Promise<T> {
  try {
    return await change()
  } catch (error) {
    throw toGatewayRefusal(error)
  }
}

function refuseLinks<T>(work: () => T): T {
  try {
    return work()
  } catch (error) {
    throw toGatewayRefusal(error)
  }
}

const REASONS: Readonly<Record<string, string>> = {
  EACCES: 'permission denied',
  EPERM: 'not permitted',
}

/** Nothing can be written there by anybody. */
const STORAGE_REASONS: Readonly<Record<string, string>> = {
  EROFS: 'the file system is read-only; make it writable',
  ENOSPC: 'no space is left on the disk; free space',
  EDQUOT: 'the disk quota is used up; free space or raise it',
}

/** What the disk refused as an answer that says why; anything else as it is. */
export function toGatewayRefusal(error: unknown): unknown {
  if (error instanceof UnsafePathError) return new GatewayError('FORBIDDEN', error.message)
  const code = (error as NodeJS.ErrnoException)?.code ?? ''
  if (code === 'ENAMETOOLONG') return new GatewayError('BAD_REQUEST', 'the name is too long for this file system')
  if (error instanceof GatewayError) return error
  const storageReason = STORAGE_REASONS[code]
  if (storageReason !== undefined)
    return new GatewayError('STORAGE_FULL', `the file cannot be written: ${storageReason} and try again`, {
      cause: error,
    })
  const reason = REASONS[code]
  if (reason === undefined) return error
  return new GatewayError('FORBIDDEN', `the file cannot be written: ${reason}`, { cause: error })
}
