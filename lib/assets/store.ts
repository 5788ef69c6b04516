/**
 * Finds static files, and keeps small ones in memory for as long as the disk still has them so. Owner: §2.11.
 *
 *   name ─► asked for all the time, and looked at a moment ago? ─► from memory
 *             │ no
 *             ▼
 *           flight under way? ─► join it
 *             │ no
 *             ▼
 *           known? ── stat: same state ─► from memory
 *             │ no        other state ─┐
 *             ▼                        ▼
 *           stat, realpath, open, fstat, read, fstat ─► remembered
 *
 * Each request is answered from a look at the disk that was under way or began when it arrived, and requests for one name
 * share the look: a change is not seen late. A compressed form that was not there is not looked for while the file's folder
 * is as it was: files of one folder share that look. Only a file that is asked for many times within a moment is not looked at for
 * each of them, see Known.
 */

import { constants, type Stats, stat } from 'node:fs'
import { type FileHandle, open, realpath, stat as statAsync } from 'node:fs/promises'
import type { Clock } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import { AbsentForms, ASSET_LISTING_MS, ASSET_SETTLE_MS, FolderLook, FORMS } from './folder-look.ts'
import { type Asset, type AssetForm, isSameState, type ReadFile, toAsset, toState } from './file.ts'

/** Files up to this size are kept in memory, up to a number of bytes and files in all. */
export const MAX_CACHED_ASSET_BYTES = 1024 * 1024
const ASSET_CACHE_BYTES = 64 * 1024 * 1024
const ASSET_CACHE_FILES = 4096
/** A `.br` or `.gz` file may be this many milliseconds older than the file that it compresses; an older one is out of date. */
const ASSET_SIBLING_SLACK_MS = 2000

/** Milliseconds for which a look at a file may stand for the next one, and how often it must be asked for meanwhile. */
export const ASSET_TRUST = { ms: ASSET_LISTING_MS, asks: 32 } as const

/** Takes the asset that was found; null for nothing that may be served. Never called before `find` has returned. */
type OnAsset = (asset: Asset | null, error: GatewayError | null) => void

/** Errors that mean: not here, or not for you. Anything else is the system's trouble and must not look like a missing file. */
const ABSENT: ReadonlySet<string | undefined> = new Set([
  'ENOENT',
  'ENOTDIR',
  'EACCES',
  'EPERM',
  'ELOOP',
  'ENAMETOOLONG',
  'EISDIR',
  'ENXIO',
  'ENODEV',
  'EINVAL',
])

/** Without blocking on a FIFO, and without taking a terminal, should a name become one between stat and open. */
export const OPEN_FLAGS = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY

/** Times a file is read that changes meanwhile. */
export const MAX_ATTEMPTS = 10

/**
 * A file that is kept, and how it is asked for. A client that writes a file and asks for it gets the new content, because few
 * requests do not add up to a load; under one the newest look answers for a moment, as the list of names does.
 */
class Known {
  readonly asset: Asset
  readonly absent: AbsentForms
  /** When the newest look began at the file, and at its compressed ones with it; monotonic ms. */
  plainAt: number
  fullAt: number
  /** A new look is under way beside the answers. */
  isRenewing = false
  #windowAt = 0
  #asks = 0
  #isBusy = false

  constructor(asset: Asset, absent: AbsentForms, at: number) {
    this.asset = asset
    this.absent = absent
    this.plainAt = at
    this.fullAt = at
  }

  /** Counts a request. @returns true while there are many of them */
  isAskedOften(now: number): boolean {
    const age = now - this.#windowAt
    if (age >= ASSET_TRUST.ms) {
      this.#isBusy = age < ASSET_TRUST.ms * 2 && this.#asks >= ASSET_TRUST.asks
      this.#windowAt = now
      this.#asks = 0
    }
    this.#asks += 1
    return this.#isBusy || this.#asks > ASSET_TRUST.asks
  }
}

export class AssetStore {
  readonly #directory: string
  readonly #clock: Clock
  /** By name, oldest first. */
  readonly #known = new Map<string, Known>()
  #knownBytes = 0
  /** Looks at the disk that are under way, at one file and at one file with its compressed ones: all that wait for each. */
  readonly #flights = new Map<string, OnAsset[]>()
  readonly #fullFlights = new Map<string, OnAsset[]>()
  /** By full path. */
  readonly #folders = new Map<string, FolderLook>()

  /** @param directory - full path of the mount */
  constructor(directory: string, clock: Clock) {
    this.#directory = directory
    this.#clock = clock
  }

  /** Bytes kept in memory. */
  get cachedBytes(): number {
    return this.#knownBytes
  }

  /**
   * The file as it was a moment ago.
   * @param wantsCoding - as for `find`
   * @returns null when it has to be looked for
   */
  recall(name: string, wantsCoding: boolean): Asset | null {
    const known = this.#known.get(name)
    if (known === undefined) return null
    const now = this.#clock.monotonic()
    if (!known.isAskedOften(now)) return null
    const age = now - (wantsCoding ? known.fullAt : Math.max(known.plainAt, known.fullAt))
    if (age > ASSET_TRUST.ms) return null
    // Renewed halfway, so that steady traffic never waits for it.
    if (age > ASSET_TRUST.ms / 2 && !known.isRenewing) {
      known.isRenewing = true
      this.#again(name, known, wantsCoding, () => {
        known.isRenewing = false
      })
    }
    return known.asset
  }

  /**
   * @param name - path below the directory; a folder stands for its `index.html`
   * @param wantsCoding - true when a compressed form would do
   */
  find(name: string, wantsCoding: boolean, onAsset: OnAsset): void {
    const flights = wantsCoding ? this.#fullFlights : this.#flights
    const underWay = flights.get(name)
    if (underWay !== undefined) {
      underWay.push(onAsset)
      return
    }
    const flight = [onAsset]
    flights.set(name, flight)
    const land: OnAsset = (asset, error) => {
      flights.delete(name)
      for (const onAsset of flight) onAsset(asset, error)
    }
    const known = this.#known.get(name)
    if (known === undefined) this.#first(name, land)
    else this.#again(name, known, wantsCoding, land)
  }

  /** Most names that are asked for do not exist: they cost one look. */
  #first(name: string, land: OnAsset): void {
    stat(`${this.#directory}/${name}`, error => {
      if (error === null) this.#load(name, land)
      else land(null, toFileTrouble(error))
    })
  }

  #again(name: string, known: Known, wantsCoding: boolean, land: OnAsset): void {
    const { asset, absent } = known
    const { plain } = asset
    const startedAt = this.#clock.monotonic()
    let open = 1
    let isSame = true
    const finish = (isOneSame: boolean): void => {
      isSame &&= isOneSame
      open -= 1
      if (open > 0) return
      if (isSame) {
        if (wantsCoding) known.fullAt = startedAt
        else known.plainAt = startedAt
        land(asset, null)
      } else {
        if (this.#known.get(name) === known) this.#forget(name)
        this.#load(name, land)
      }
    }
    stat(plain.path, (error, stats) => finish(error === null && isStill(plain, stats)))
    if (!wantsCoding || !mayBeCompressed(plain.path)) return
    for (const [coding, ending] of FORMS) {
      if (absent.endings.includes(ending)) continue
      const form = asset[coding]
      open += 1
      stat(plain.path + ending, (error, stats) => {
        if (error !== null || !stats.isFile()) finish(form === null)
        else finish(form === null ? isOutdated(stats, plain) : isStill(form, stats))
      })
    }
    if (absent.endings.length === 0) return
    open += 1
    absent.look(finish)
  }

  #folderOf(path: string): FolderLook {
    const folderPath = path.slice(0, path.lastIndexOf('/'))
    const known = this.#folders.get(folderPath)
    if (known !== undefined) return known
    if (this.#folders.size >= ASSET_CACHE_FILES) this.#folders.clear()
    const folder = new FolderLook(folderPath, () => this.#clock.wall())
    this.#folders.set(folderPath, folder)
    return folder
  }

  #load(name: string, land: OnAsset): void {
    this.#read(name).then(
      asset => land(asset, null),
      error => land(null, toFileTrouble(error)),
    )
  }

  async #read(name: string): Promise<Asset | null> {
    const startedAt = this.#clock.monotonic()
    const root = await realpath(this.#directory)
    let path = `${this.#directory}/${name}`
    const stats = await statAsync(path)
    if (stats.isDirectory()) path += '/index.html'
    const hasForms = mayBeCompressed(path)
    const absent = new AbsentForms(path, this.#folderOf(path))
    const [plain] = await Promise.all([readFileInside(root, path), hasForms && absent.begin()])
    if (plain === null) return null
    const [br, gzip] = await Promise.all(
      FORMS.map(([, ending]) => (hasForms ? readSibling(root, path + ending, plain) : null)),
    )
    const asset = toAsset(name, plain, br ?? null, gzip ?? null)
    if (hasForms) await absent.end(asset)
    this.#remember(name, asset, absent, startedAt)
    return asset
  }

  #remember(name: string, asset: Asset, absent: AbsentForms, startedAt: number): void {
    const now = this.#clock.wall()
    for (const form of formsOf(asset)) if (now - form.state.ctimeMs < ASSET_SETTLE_MS) return
    this.#forget(name)
    this.#known.set(name, new Known(asset, absent, startedAt))
    this.#knownBytes += bytesOf(asset)
    for (const oldest of this.#known.keys()) {
      if (this.#knownBytes <= ASSET_CACHE_BYTES && this.#known.size <= ASSET_CACHE_FILES) return
      this.#forget(oldest)
    }
  }

  #forget(name: string): void {
    const known = this.#known.get(name)
    if (known === undefined) return
    this.#known.delete(name)
    this.#knownBytes -= bytesOf(known.asset)
  }
}

function formsOf(asset: Asset): AssetForm[] {
  return [asset.plain, asset.br, asset.gzip].flatMap(form => form ?? [])
}

function bytesOf(asset: Asset): number {
  let bytes = 0
  for (const form of formsOf(asset)) bytes += form.body?.length ?? 0
  return bytes
}

/** A compressed file is not compressed again. */
function mayBeCompressed(path: string): boolean {
  return !path.endsWith('.br') && !path.endsWith('.gz')
}

function isStill(form: AssetForm, stats: Stats): boolean {
  return stats.isFile() && isSameState(form.state, toState(stats))
}

/** Compressed before its file was changed: it holds something else. */
function isOutdated(stats: { mtimeMs: number }, plain: ReadFile): boolean {
  return stats.mtimeMs < plain.state.mtimeMs - ASSET_SIBLING_SLACK_MS
}

async function readSibling(root: string, path: string, plain: ReadFile): Promise<ReadFile | null> {
  try {
    const file = await readFileInside(root, path)
    return file === null || isOutdated(file.state, plain) ? null : file
  } catch (error) {
    if (toFileTrouble(error) === null) return null
    throw error
  }
}

/**
 * Reads a regular file whose real place is inside the mount.
 * @returns null for anything else: devices, FIFOs, sockets, links that lead out or to a hidden name
 * @throws GatewayError when another file takes its place at every attempt
 */
async function readFileInside(root: string, path: string): Promise<ReadFile | null> {
  for (let attempt = 1; attempt <= MAX_ATTEMPTS; attempt++) {
    // Before open: opening a device can do something.
    if (!(await statAsync(path)).isFile()) return null
    const handle = await open(path, OPEN_FLAGS)
    try {
      const opened = await handle.stat()
      if (!opened.isFile()) return null
      const real = await realpath(path)
      if (!real.startsWith(`${root}/`) || real.slice(root.length).includes('/.')) return null
      const { dev, ino } = await statAsync(real)
      // The opened file must be the one at the real path: a link that is moved in between gains nothing.
      if (dev !== opened.dev || ino !== opened.ino) continue
      const state = toState(opened)
      if (opened.size > MAX_CACHED_ASSET_BYTES) return { path, state, body: null }
      const body = await readWhole(handle, opened.size)
      const isWhole = body.length === opened.size && isSameState(state, toState(await handle.stat()))
      if (isWhole || attempt === MAX_ATTEMPTS) return { path, state: { ...state, size: body.length }, body }
    } finally {
      await handle.close()
    }
  }
  throw new GatewayError('INTERNAL', 'file keeps changing', { status: 503 })
}

async function readWhole(handle: FileHandle, size: number): Promise<Buffer> {
  const body = Buffer.allocUnsafeSlow(size)
  let length = 0
  while (length < size) {
    const { bytesRead } = await handle.read(body, length, size - length, length)
    if (bytesRead === 0) break
    length += bytesRead
  }
  return length === size ? body : body.subarray(0, length)
}

/** The response to an error of the file system: null when there is nothing to serve, else 503. */
export function toFileTrouble(error: unknown): GatewayError | null {
  if (error instanceof GatewayError) return error
  const { code } = error as NodeJS.ErrnoException
  if (ABSENT.has(code)) return null
  return new GatewayError('INTERNAL', 'file cannot be read now', { status: 503, cause: error })
}
