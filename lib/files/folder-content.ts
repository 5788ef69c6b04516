/** The files of a folder as hashes that two machines can compare. Owner: page remote/daemon-server. */

import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'

/** Names that belong to tools, to one machine, or to the gateway alone; dot names are left out as well. */
const IGNORED: ReadonlySet<string> = new Set(['node_modules', 'vendor', '__pycache__', 'target', 'fn.env.json'])
/** Files looked at most, and the largest of which more than the size counts, bytes. */
const MAX_FILES = 20_000
const MAX_HASHED_BYTES = 4 * 1024 * 1024
/** Most characters of the list in one message, and of one name in a text for people. */
const MAX_LIST_CHARS = 160 * 1024
const MAX_SHOWN_CHARS = 200
const DIGEST_CHARS = 16

/** As it is sent: it fits into one frame, whatever the folder holds. */
export interface FolderContent {
  hash: string
  /** Number of files. */
  count: number
  /** Paths below the folder in order, each with a digest; of many files the first of them. */
  files: readonly (readonly [path: string, digest: string])[]
}

interface Known {
  size: number
  mtimeMs: number
  ino: number
  digest: string
}

/** One folder that is looked at again and again: files that did not change are not read again. */
export class FolderReader {
  readonly #root: string
  #known = new Map<string, Known>()
  #reading: Promise<FolderContent | null> | null = null

  constructor(root: string) {
    this.#root = root
  }

  /** Never rejects; null when the folder has more files than are compared, or cannot be read. */
  read(): Promise<FolderContent | null> {
    this.#reading ??= this.#read()
      .catch(() => null)
      .finally(() => {
        this.#reading = null
      })
    return this.#reading
  }

  async #read(): Promise<FolderContent | null> {
    const seen = new Map<string, Known>()
    if (!(await this.#walk('', seen))) return null
    this.#known = seen
    const files = [...seen].map(([path, { digest }]) => [path, digest] as const)
    files.sort(([a], [b]) => (a < b ? -1 : 1))
    const hash = createHash('sha256')
    for (const [path, digest] of files) hash.update(`${path}\0${digest}\n`)
    return { hash: hash.digest('hex'), count: files.length, files: cut(files) }
  }

  /** @returns false when there are too many */
  async #walk(folder: string, seen: Map<string, Known>): Promise<boolean> {
    for (const entry of await readdir(join(this.#root, folder), { withFileTypes: true })) {
      const { name } = entry
      if (name.startsWith('.') || IGNORED.has(name)) continue
      const path = folder === '' ? name : `${folder}/${name}`
      if (entry.isDirectory()) {
        if (!(await this.#walk(path, seen))) return false
        continue
      }
      const known = await this.#look(path)
      if (known === null) continue
      if (seen.size === MAX_FILES) return false
      seen.set(path, known)
    }
    return true
  }

  /** Links count as what they lead to; null for anything but a file, and for a folder that a link leads to. */
  async #look(path: string): Promise<Known | null> {
    const full = join(this.#root, path)
    const stats = await stat(full).catch(() => null)
    if (stats === null || !stats.isFile()) return null
    const { size, mtimeMs, ino } = stats
    const before = this.#known.get(path)
    if (before !== undefined && before.size === size && before.mtimeMs === mtimeMs && before.ino === ino) return before
    const digest = size > MAX_HASHED_BYTES ? `size ${size}` : await digestOf(full)
    return { size, mtimeMs, ino, digest }
  }
}

async function digestOf(path: string): Promise<string> {
  const hash = createHash('sha256')
  for await (const chunk of createReadStream(path, { end: MAX_HASHED_BYTES })) hash.update(chunk as Buffer)
  return hash.digest('hex').slice(0, DIGEST_CHARS)
}

function cut(files: FolderContent['files']): FolderContent['files'] {
  let length = 0
  const end = files.findIndex(([path, digest]) => {
    // As JSON, where a sign may take six.
    length += JSON.stringify(path).length + digest.length + 6
    return length > MAX_LIST_CHARS
  })
  return end === -1 ? files : files.slice(0, end)
}

/** Checks a value from another machine; null when it is not the content of a folder. */
export function parseFolderContent(value: unknown): FolderContent | null {
  if (typeof value !== 'object' || value === null) return null
  const { hash, count, files } = value as Record<string, unknown>
  if (typeof hash !== 'string' || typeof count !== 'number' || !Array.isArray(files)) return null
  const isPair = (entry: unknown): entry is [string, string] =>
    Array.isArray(entry) && typeof entry[0] === 'string' && typeof entry[1] === 'string'
  return files.every(isPair) ? { hash, count, files } : null
}

/**
 * The first file, in order, that one side has and the other has not, or another one.
 * @returns a text that goes on after the name of the folder; null when both hold the same
 */
export function findDifference(here: FolderContent, there: FolderContent, thereName: string): string | null {
  if (here.hash === there.hash) return null
  const end = Math.min(here.files.length, there.files.length)
  for (let at = 0; at <= end; at++) {
    const own = here.files[at]
    const other = there.files[at]
    if (own === undefined && other === undefined) break
    if (other === undefined || (own !== undefined && own[0] < other[0])) {
      // A list that was cut says nothing of what comes behind its end.
      if (other === undefined && there.files.length < there.count) break
      return `${show(own![0])} is missing ${thereName}`
    }
    if (own === undefined || other[0] < own[0]) {
      if (own === undefined && here.files.length < here.count) break
      return `${show(other[0])} is ${thereName} only`
    }
    if (own[1] !== other[1]) return `${show(own[0])} is another one ${thereName}`
  }
  return `it holds ${here.count} files here and ${there.count} ${thereName}; the first ${end} in order are the same`
}

function show(path: string): string {
  return JSON.stringify(path.slice(0, MAX_SHOWN_CHARS)).slice(1, -1)
}
