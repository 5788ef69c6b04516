/** The files of a folder as hashes that two machines can compare. Owner: page remote/daemon-server. */

import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { isObject } from '../core/json.ts'
import { compareText } from '../core/text.ts'

/** Names that belong to tools, to one machine, or to the gateway alone; dot names are left out as well. */
const IGNORED = ['node_modules', 'vendor', '__pycache__', 'target', 'fn.env.json']
/** Maximum of compared files, and bytes of the largest that is hashed; of a larger one only the size counts. */
const MAX_FILES = 20_000
const MAX_HASHED_BYTES = 4 * 1024 * 1024
/** Maximum characters of the list in one message, and of one name in a text for people. */
const MAX_LIST_CHARS = 160 * 1024
const MAX_SHOWN_CHARS = 200
const DIGEST_CHARS = 16

/** As it is sent: it fits into one frame, whatever the folder contains. */
export interface FolderContent {
  hash: string
  /** Number of files. */
  count: number
  /** Paths below the folder in order, each with a digest; of many files the first of them. */
  files: readonly (readonly [path: string, digest: string])[]
}

interface KnownFile {
  /** Size, time and inode: a file with the same ones is not read again. */
  stamp: string
  digest: string
}

/** A folder that is read repeatedly. */
export class FolderReader {
  readonly #root: string
  readonly #isCounted: (name: string) => boolean
  #known = new Map<string, KnownFile>()
  #reading: Promise<FolderContent | null> | null = null

  /** @param isCounted - false for names of files to leave out */
  constructor(root: string, isCounted: (name: string) => boolean = () => true) {
    this.#root = root
    this.#isCounted = isCounted
  }

  /** Never rejects; null when the folder has more than MAX_FILES files or cannot be read. */
  read(): Promise<FolderContent | null> {
    this.#reading ??= this.#read()
      .catch(() => null)
      .finally(() => {
        this.#reading = null
      })
    return this.#reading
  }

  async #read(): Promise<FolderContent> {
    const found = new Map<string, KnownFile>()
    await this.#walk('', found)
    this.#known = found
    const files = [...found].map(([path, { digest }]) => [path, digest] as const)
    files.sort(([a], [b]) => compareText(a, b))
    const hash = createHash('sha256')
    for (const [path, digest] of files) hash.update(`${path}\0${digest}\n`)
    return { hash: hash.digest('hex'), count: files.length, files: cut(files) }
  }

  /** Links count as their targets; links to folders are left out. */
  async #walk(folder: string, found: Map<string, KnownFile>): Promise<void> {
    for (const entry of await readdir(join(this.#root, folder), { withFileTypes: true })) {
      const { name } = entry
      if (name.startsWith('.') || IGNORED.includes(name)) continue
      const path = folder === '' ? name : `${folder}/${name}`
      if (entry.isDirectory()) await this.#walk(path, found)
      else if (this.#isCounted(name)) await this.#readFile(path, found)
    }
  }

  async #readFile(path: string, found: Map<string, KnownFile>): Promise<void> {
    const fullPath = join(this.#root, path)
    const stats = await stat(fullPath).catch(() => null)
    if (stats === null || !stats.isFile()) return
    if (found.size === MAX_FILES) throw new Error('too many files')
    const { size, mtimeMs, ino } = stats
    const stamp = `${size} ${mtimeMs} ${ino}`
    const known = this.#known.get(path)
    if (known?.stamp === stamp) found.set(path, known)
    else found.set(path, { stamp, digest: size > MAX_HASHED_BYTES ? `size ${size}` : await digestOf(fullPath) })
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
    // As JSON, where a character may take six.
    length += JSON.stringify(path).length + digest.length + 6
    return length > MAX_LIST_CHARS
  })
  return end === -1 ? files : files.slice(0, end)
}

/** Checks a value from another machine; null when it is not the content of a folder. */
export function parseFolderContent(value: unknown): FolderContent | null {
  if (!isObject(value)) return null
  const { hash, count, files } = value
  if (typeof hash !== 'string' || typeof count !== 'number' || !Array.isArray(files)) return null
  const isPair = (entry: unknown): entry is [string, string] =>
    Array.isArray(entry) && typeof entry[0] === 'string' && typeof entry[1] === 'string'
  return files.every(isPair) ? { hash, count, files } : null
}

/**
 * The first file, in order, that is missing on one side or differs.
 * @returns a text that continues the name of the folder; null when both have the same content
 */
export function findDifference(here: FolderContent, there: FolderContent, thereName: string): string | null {
  if (here.hash === there.hash) return null
  const [own, other] = [new Map(here.files), new Map(there.files)]
  for (const path of [...new Set([...own.keys(), ...other.keys()])].sort(compareText)) {
    if (own.get(path) === other.get(path)) continue
    if (isBeyond(here, path) || isBeyond(there, path)) break
    const shown = JSON.stringify(path.slice(0, MAX_SHOWN_CHARS)).slice(1, -1)
    if (!other.has(path)) return `${shown} is missing ${thereName}`
    return own.has(path) ? `${shown} is another one ${thereName}` : `${shown} is ${thereName} only`
  }
  const same = Math.min(own.size, other.size)
  return `it holds ${here.count} files here and ${there.count} ${thereName}; the first ${same} in order are the same`
}

/** True for a path behind the end of a list that was cut. */
function isBeyond({ files, count }: FolderContent, path: string): boolean {
  return files.length < count && path > (files.at(-1)?.[0] ?? '')
}
