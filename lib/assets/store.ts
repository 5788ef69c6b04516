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
 * share the look: a change is not seen late. Only a file that is asked for many times within a moment is not looked at for
 * each of them, see Known.
 */

import { constants, type Stats, stat } from 'node:fs'
import { type FileHandle, lstat, open, readdir, realpath, stat as statAsync } from 'node:fs/promises'
import type { Clock } from '../core/clock.ts'
import { getOrMake } from '../core/collections.ts'
import { GatewayError } from '../core/errors.ts'
import { KeyedMutex } from '../core/semaphore.ts'
import { type Asset, type AssetForm, type FileState, isSameState, type ReadFile, toAsset, toState } from './file.ts'

/** Files up to this size are kept in memory, up to a number of bytes and files in all. */
export const MAX_CACHED_ASSET_BYTES = 1024 * 1024
const ASSET_CACHE_BYTES = 64 * 1024 * 1024
const ASSET_CACHE_FILES = 4096
/** A `.br` or `.gz` file may be this many milliseconds older than the file that it compresses; an older one is out of date. */
const ASSET_SIBLING_SLACK_MS = 2000
/** A file changed less than this many milliseconds ago is not kept: its next change may bear the same time. */
export const ASSET_SETTLE_MS = 50
/**
 * Milliseconds since its last change after which a folder's times show every later one: some file systems count in steps of two
 * seconds, and a name that comes in the step of the look would leave the same times.
 */
export const FOLDER_SETTLE_MS = 2000
/** Milliseconds for which a list of the names in the assets directory may stand for a look at the disk. */
export const ASSET_LISTING_MS = 50
/** Milliseconds for which a look at a file may stand for the next one, and how often it must be asked for meanwhile. */
export const ASSET_TRUST = { ms: ASSET_LISTING_MS, asks: 32 } as const

/** Errors that mean: not here, or not for you. Anything else is the system's trouble and must not look like a missing file. */
const ABSENT: ReadonlySet<string | undefined> = new Set([
  ...['ENOENT', 'ENOTDIR', 'EACCES', 'EPERM', 'ELOOP', 'ENAMETOOLONG', 'EISDIR', 'ENXIO', 'ENODEV', 'EINVAL'],
])

/** Without blocking on a FIFO, and without taking a terminal, should a name become one between stat and open. */
export const OPEN_FLAGS = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY

/** Times a file is read that changes meanwhile. */
export const MAX_ATTEMPTS = 10

/** Compressed forms, and the endings of their names. */
const FORMS = [
  ['br', '.br'],
  ['gzip', '.gz'],
] as const

/**
 * Compressed forms whose names are not in the folder of a file: not looked for one by one while the folder is as it was. A form that is
 * out of date is there, and so is a link that leads nowhere: both may turn good in their place.
 */
interface AbsentForms {
  readonly endings: readonly string[]
  /** Of the folder, from before the names were looked for; null when it would not show one that came since. */
  folder: FileState | null
}

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
  /** Looks at the disk that are under way, at one file and at one file with its compressed ones. */
  readonly #flights = new Map<string, Promise<Asset | null>>()
  readonly #fullFlights = new Map<string, Promise<Asset | null>>()
  /** Looks at folders, by full path: one at a time, and the next one of each. */
  readonly #folderLooks = new KeyedMutex()
  readonly #nextLooks = new Map<string, Promise<FolderLook | null>>()

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
      const end = (): void => {
        known.isRenewing = false
      }
      this.find(name, wantsCoding).then(end, end)
    }
    return known.asset
  }

  /**
   * @param name - path below the directory; a folder stands for its `index.html`
   * @param wantsCoding - true when a compressed form would do
   * @returns null for nothing that may be served
   * @throws GatewayError as `toFileTrouble` has it
   */
  find(name: string, wantsCoding: boolean): Promise<Asset | null> {
    const flights = wantsCoding ? this.#fullFlights : this.#flights
    return getOrMake(flights, name, () => this.#search(name, wantsCoding).finally(() => flights.delete(name)))
  }

  async #search(name: string, wantsCoding: boolean): Promise<Asset | null> {
    const startedAt = this.#clock.monotonic()
    const known = this.#known.get(name)
    if (known !== undefined) {
      if (await this.#isSame(known, wantsCoding)) {
        if (wantsCoding) known.fullAt = startedAt
        else known.plainAt = startedAt
        return known.asset
      }
      if (this.#known.get(name) === known) this.#forget(name)
    }
    try {
      // Most names that are asked for do not exist: they cost one look.
      if (known === undefined) await look(`${this.#directory}/${name}`)
      return await this.#read(name)
    } catch (error) {
      const trouble = toFileTrouble(error)
      if (trouble !== null) throw trouble
      return null
    }
  }

  async #isSame({ asset, absent }: Known, wantsCoding: boolean): Promise<boolean> {
    const { plain } = asset
    const isPlainSame = look(plain.path).then(
      stats => isStill(plain, stats),
      () => false,
    )
    if (!wantsCoding || !mayBeCompressed(plain.path)) return isPlainSame
    const areSame = FORMS.filter(([, ending]) => !absent.endings.includes(ending)).map(async ([coding, ending]) => {
      const form = asset[coding]
      const stats = await look(plain.path + ending).catch(() => null)
      if (stats === null || !stats.isFile()) return form === null
      return form === null ? isOutdated(stats, plain) : isStill(form, stats)
    })
    if (absent.endings.length > 0) areSame.push(this.#isStillAbsent(plain.path, absent))
    return (await Promise.all([isPlainSame, ...areSame])).every(Boolean)
  }

  async #isStillAbsent(path: string, absent: AbsentForms): Promise<boolean> {
    const folder = await this.#lookAtFolder(path)
    if (folder !== null && absent.folder !== null && isSameState(folder.state, absent.folder)) return true
    const endings = await findAbsent(path, absent.endings)
    const isSame = endings.length === absent.endings.length
    absent.folder = isSame ? toSettled(folder) : null
    return isSame
  }

  /** A look that begins later, at the folder of a file; shared by all who ask before it begins. */
  #lookAtFolder(path: string): Promise<FolderLook | null> {
    const folder = path.slice(0, path.lastIndexOf('/'))
    const look = () => {
      this.#nextLooks.delete(folder)
      return lookAtFolder(folder, this.#clock)
    }
    return getOrMake(this.#nextLooks, folder, () => this.#folderLooks.run(folder, look))
  }

  async #read(name: string): Promise<Asset | null> {
    const startedAt = this.#clock.monotonic()
    const root = await realpath(this.#directory)
    let path = `${this.#directory}/${name}`
    if ((await statAsync(path)).isDirectory()) path += '/index.html'
    const forms = mayBeCompressed(path) ? FORMS : []
    // The folder is looked at before its names, or one that comes in between would be missed.
    const [plain, folder] = await Promise.all([readFileInside(root, path), this.#lookAtFolder(path)])
    if (plain === null) return null
    const found = await Promise.all(forms.map(([, ending]) => readSibling(root, path + ending, plain)))
    const asset = toAsset(name, plain, found[0] ?? null, found[1] ?? null)
    const missing = forms.flatMap(([coding, ending]) => (asset[coding] === null ? [ending] : []))
    this.#remember(asset, { endings: await findAbsent(path, missing), folder: toSettled(folder) }, startedAt)
    return asset
  }

  #remember(asset: Asset, absent: AbsentForms, startedAt: number): void {
    const now = this.#clock.wall()
    for (const form of formsOf(asset)) if (now - form.state.ctimeMs < ASSET_SETTLE_MS) return
    this.#forget(asset.name)
    this.#known.set(asset.name, new Known(asset, absent, startedAt))
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

function formsOf({ plain, br, gzip }: Asset): AssetForm[] {
  return [plain, br, gzip].flatMap(form => form ?? [])
}

function bytesOf(asset: Asset): number {
  return formsOf(asset).reduce((bytes, { body }) => bytes + (body?.length ?? 0), 0)
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

/** `fs.stat`, which follows links; half the time of its promise. */
function look(path: string): Promise<Stats> {
  return new Promise((resolve, reject) =>
    stat(path, (error, stats) => (error === null ? resolve(stats) : reject(error))),
  )
}

/** A folder, and whether a name that comes after the look leaves other times. */
interface FolderLook {
  readonly state: FileState
  readonly isSettled: boolean
}

/** @returns null for a folder that cannot be looked at */
export async function lookAtFolder(path: string, clock: Pick<Clock, 'wall'>): Promise<FolderLook | null> {
  const startedAt = clock.wall()
  const stats = await look(path).catch(() => null)
  if (stats === null) return null
  const isSettled = startedAt - Math.max(stats.mtimeMs, stats.ctimeMs) >= FOLDER_SETTLE_MS
  return { state: toState(stats), isSettled }
}

function toSettled(folder: FolderLook | null): FileState | null {
  return folder?.isSettled === true ? folder.state : null
}

async function findAbsent(path: string, endings: readonly string[]): Promise<string[]> {
  const isAbsent = (ending: string): Promise<boolean> =>
    lstat(path + ending).then(
      () => false,
      error => error.code === 'ENOENT',
    )
  const areAbsent = await Promise.all(endings.map(isAbsent))
  return endings.filter((_, index) => areAbsent[index])
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

/**
 * The names at the top of the assets directory, which spare a route's request a look at the disk. A list is good for a moment, and only to
 * say that a name is not there; a request after that moment looks at the disk and has a new list made. So it is used under load alone, where it matters.
 */
export class AssetNames {
  readonly #directory: string
  readonly #clock: Clock
  #names: ReadonlySet<string> = new Set()
  /** Of the directory when it was listed; null when it may have changed since without a trace. */
  #state: FileState | null = null
  /** When the last look began, monotonic ms. */
  #seenAt = Number.NEGATIVE_INFINITY
  #isLooking = false

  constructor(directory: string, clock: Clock) {
    this.#directory = directory
    this.#clock = clock
  }

  /** @returns true when nothing of that name lay in the directory a moment ago; false means nothing */
  isAbsent(name: string): boolean {
    const age = this.#clock.monotonic() - this.#seenAt
    // Renewed halfway, so that steady traffic never waits for it.
    if (age > ASSET_LISTING_MS / 2 && !this.#isLooking) void this.#look()
    return age <= ASSET_LISTING_MS && !this.#names.has(name.split('/', 1)[0]!)
  }

  async #look(): Promise<void> {
    this.#isLooking = true
    const startedAt = this.#clock.monotonic()
    try {
      const state = toState(await statAsync(this.#directory))
      if (this.#state === null || !isSameState(state, this.#state)) {
        this.#names = new Set(await readdir(this.#directory))
        // File times are coarse: a name made in the same instant would leave the same time.
        this.#state = this.#clock.wall() - state.ctimeMs < ASSET_SETTLE_MS ? null : state
      }
      this.#seenAt = startedAt
    } catch {
      // A request that needs the directory meets the same error.
      this.#state = null
      this.#seenAt = Number.NEGATIVE_INFINITY
    } finally {
      this.#isLooking = false
    }
  }
}
