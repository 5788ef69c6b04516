/**
 * Looks at a folder that many share: while it is as it was, no name has come to it or gone from it. Owner: §2.11, page assets/static-assets.
 *
 *   ask ─► no look under way ─► one begins ─► all who asked before it began
 *       └► one under way ─────► the next one, which begins when it has ended
 *
 * So each request gets the state of the disk after it asked, and one folder never has more than one look under way.
 */

import { stat, type Stats } from 'node:fs'
import { lstat, readdir, stat as statAsync } from 'node:fs/promises'
import type { Clock } from '../core/clock.ts'
import { type Asset, type FileState, isSameState, toState } from './file.ts'

/**
 * Milliseconds since its last change after which a folder's times show every later one: some file systems count in steps of two
 * seconds, and a name that comes in the step of the look would leave the same times.
 */
export const FOLDER_SETTLE_MS = 2000

/**
 * Takes the state that was seen; null when the folder could not be looked at.
 * @param isSettled - whatever changes in the folder after this look leaves other times
 */
type OnState = (state: FileState | null, isSettled: boolean) => void

/** `fs.stat`, which follows links. */
type Look = (path: string, onStats: (error: Error | null, stats: Stats) => void) => void

export class FolderLook {
  readonly #path: string
  readonly #now: () => number
  readonly #stat: Look
  #waiting: OnState[] = []
  #isLooking = false

  /**
   * @param path - full path of the folder; links are followed
   * @param now - wall clock, ms
   */
  constructor(path: string, now: () => number, look: Look = stat) {
    this.#path = path
    this.#now = now
    this.#stat = look
  }

  /** Never answers before it has returned. */
  ask(onState: OnState): void {
    this.#waiting.push(onState)
    if (!this.#isLooking) this.#look()
  }

  #look(): void {
    this.#isLooking = true
    const asked = this.#waiting
    this.#waiting = []
    const startedAt = this.#now()
    this.#stat(this.#path, (error, stats) => {
      this.#isLooking = false
      if (this.#waiting.length > 0) this.#look()
      const state = error === null ? toState(stats) : null
      const isSettled = state !== null && startedAt - Math.max(state.mtimeMs, state.ctimeMs) >= FOLDER_SETTLE_MS
      for (const onState of asked) onState(state, isSettled)
    })
  }
}

/** True when it is the same folder, and no name came or went. */
export function isSameFolder(a: FileState, b: FileState): boolean {
  return a.mtimeMs === b.mtimeMs && a.ctimeMs === b.ctimeMs && a.ino === b.ino && a.dev === b.dev
}

/** Compressed forms, and what their names end in. */
export const FORMS = [
  ['br', '.br'],
  ['gzip', '.gz'],
] as const
type Ending = (typeof FORMS)[number][1]

/**
 * Which compressed forms of a file are not there: not looked for one by one while the file's folder is as it was.
 *
 *   begin: look at the folder ─► the forms are read ─► end: which have no name? ─► look, at each request: same folder? ─► still none
 *                                                                                    └ no ─► each is looked for, and the folder kept
 */
export class AbsentForms {
  /** Of names that are not there. A form that is out of date is there, and so is a link that leads nowhere: both may turn good in their place. */
  endings: readonly Ending[] = []
  readonly #path: string
  readonly #folder: FolderLook
  /** Of the folder, from before the names were looked for; null when it would not show one that came since. */
  #state: FileState | null = null

  /**
   * @param path - of the file itself
   * @param folder - its folder
   */
  constructor(path: string, folder: FolderLook) {
    this.#path = path
    this.#folder = folder
  }

  /** To be awaited before the forms are read, or one that comes in between would be missed. */
  begin(): Promise<void> {
    return new Promise(resolve =>
      this.#folder.ask((state, isSettled) => {
        this.#state = isSettled ? state : null
        resolve()
      }),
    )
  }

  /** @param forms - as they were read, null for those that cannot be used */
  async end(forms: Pick<Asset, (typeof FORMS)[number][0]>): Promise<void> {
    this.endings = await this.#absentOf(FORMS.flatMap(([coding, ending]) => (forms[coding] === null ? [ending] : [])))
  }

  /** @param onLooked - true when all that was not there still is not; never called before it has returned */
  look(onLooked: (isSame: boolean) => void): void {
    this.#folder.ask((state, isSettled) => {
      if (state !== null && this.#state !== null && isSameFolder(state, this.#state)) {
        onLooked(true)
        return
      }
      void this.#absentOf(this.endings).then(absent => {
        const isSame = absent.length === this.endings.length
        this.#state = isSame && isSettled ? state : null
        onLooked(isSame)
      })
    })
  }

  async #absentOf(endings: readonly Ending[]): Promise<Ending[]> {
    const isAbsent = await Promise.all(
      endings.map(ending =>
        lstat(this.#path + ending).then(
          () => false,
          error => error.code === 'ENOENT',
        ),
      ),
    )
    return endings.filter((_, index) => isAbsent[index])
  }
}

/** A file changed less than this many milliseconds ago is not kept: its next change may bear the same time. */
export const ASSET_SETTLE_MS = 50
/** Milliseconds for which a list of the names in the assets directory may stand for a look at the disk. */
export const ASSET_LISTING_MS = 50

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
    if (age > ASSET_LISTING_MS) return false
    const slash = name.indexOf('/')
    return !this.#names.has(slash < 0 ? name : name.slice(0, slash))
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
