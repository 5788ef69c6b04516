/**
 * When the tree is read again: asked for, seen by the watcher, or because the last reading was not whole. Owner: §1.
 *
 *   reload ─► nothing runs ─► load
 *          └► one runs ─────► one more after it, which covers everything asked for meanwhile
 */

import type { Clock } from './core/clock.ts'
import type { Watcher, WatchOptions } from './discovery/watch.ts'

/** Milliseconds after which a tree that could not be read for want of descriptors or memory is read again. */
export const TREE_RETRY_MS = 1000

/** Files and folders below the root that may have changed; null for all of them. */
export type Changed = ReadonlySet<string> | null

export interface ReloaderOptions {
  clock: Clock
  /**
   * Reads the tree and puts it in force; what was in force stays when it rejects.
   * @param cause - `watch`, `api`, `start`, `retry`
   * @returns false when the machine had not enough left to read all of it: it is read again later
   */
  load: (changed: Changed, cause: string) => Promise<boolean>
  /** Starts watching the tree. */
  watch: (onChange: WatchOptions['onChange']) => Watcher
  /** Told when a reload failed that nobody waits for. */
  onFailure: (error: unknown) => void
}

interface Waiting {
  changed: Set<string> | null
  done: Promise<void>
}

export class Reloader {
  readonly #options: ReloaderOptions
  #running: Promise<void> | null = null
  #waiting: Waiting | null = null
  #watcher: Watcher | null = null
  #retryTimer: NodeJS.Timeout | null = null
  #isClosed = false

  constructor(options: ReloaderOptions) {
    this.#options = options
  }

  get isWatching(): boolean {
    return this.#watcher !== null
  }

  /** Watches the tree; resolves when every change from now on is seen and what changed before is in force. */
  async watch(): Promise<void> {
    if (this.#isClosed || this.#watcher !== null) return
    this.#watcher = this.#options.watch(paths => this.#reloadQuietly(paths, 'watch'))
    await this.#watcher.ready
    // What was saved between the first look and the first watch.
    await this.reload(null, 'watch')
  }

  /**
   * Reads the tree again: one reload at a time, and those asked for meanwhile are one more after it. Does nothing when closed.
   * @returns a promise that rejects when this reload failed
   */
  reload(changed: Changed, cause: string): Promise<void> {
    if (this.#isClosed) return Promise.resolve()
    if (this.#running === null) {
      this.#running = this.#load(changed, cause).finally(() => {
        this.#running = null
      })
      return this.#running
    }
    if (this.#waiting === null) return this.#wait(this.#running, changed, cause)
    if (changed === null || this.#waiting.changed === null) this.#waiting.changed = null
    else for (const path of changed) this.#waiting.changed.add(path)
    return this.#waiting.done
  }

  /** No reload begins any more; resolves when the one that runs has ended. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#watcher?.close()
    if (this.#retryTimer !== null) this.#options.clock.clearTimeout(this.#retryTimer)
    await this.#running?.catch(() => {})
  }

  #wait(running: Promise<void>, changed: Changed, cause: string): Promise<void> {
    const waiting: Waiting = { changed: changed === null ? null : new Set(changed), done: Promise.resolve() }
    const next = () => {
      this.#waiting = null
      return this.reload(waiting.changed, cause)
    }
    waiting.done = running.then(next, next)
    this.#waiting = waiting
    return waiting.done
  }

  async #load(changed: Changed, cause: string): Promise<void> {
    const isWhole = await this.#options.load(changed, cause)
    if (!isWhole) this.#retryLater()
  }

  /** A reload that nobody waits for. */
  #reloadQuietly(changed: Changed, cause: string): Promise<void> {
    return this.reload(changed, cause).catch(error => this.#options.onFailure(error))
  }

  #retryLater(): void {
    if (this.#retryTimer !== null || this.#isClosed) return
    this.#retryTimer = this.#options.clock.setTimeout(() => {
      this.#retryTimer = null
      void this.#reloadQuietly(null, 'retry')
    }, TREE_RETRY_MS)
    this.#retryTimer.unref?.()
  }
}
