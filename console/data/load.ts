/** Responses of `/_fn/*`, cached by address, so that a page shows its last data at once when it is opened again. Owner: page console/console. */

import { type Signal, signal } from '@preact/signals'
import { useEffect } from 'preact/hooks'
import { ApiError, request, toUrl, type Query } from './api.ts'
import { onEvent } from './events.ts'

export interface Loaded<T> {
  /** The newest good answer; stays while the gateway does not answer. */
  readonly data: T | null
  /** When `data` came, ms since the epoch. */
  readonly at: number
  readonly error: ApiError | null
}

interface Entry {
  readonly state: Signal<Loaded<unknown>>
  /** Pages that show it. */
  users: number
  running: AbortController | null
  /** Something changed while it was asked: the answer may be of before. */
  isStale: boolean
}

/** Maximum number of cached responses that no page shows. */
const KEPT_ENTRIES = 50
const EMPTY: Loaded<unknown> = { data: null, at: 0, error: null }
const entries = new Map<string, Entry>()

function entryOf(url: string): Entry {
  const known = entries.get(url)
  if (known !== undefined) return known
  for (const [old, entry] of entries) {
    if (entries.size < KEPT_ENTRIES) break
    if (entry.users === 0) entries.delete(old)
  }
  const entry: Entry = { state: signal(EMPTY), users: 0, running: null, isStale: false }
  entries.set(url, entry)
  return entry
}

/** Asks because something changed: after a question that is under way once more. */
function renew(url: string): void {
  const entry = entryOf(url)
  if (entry.running === null) void refresh(url)
  else entry.isStale = true
}

/** Asks again; a question that is under way is enough. */
async function refresh(url: string): Promise<void> {
  const entry = entryOf(url)
  if (entry.running !== null) return
  const running = new AbortController()
  entry.running = running
  entry.isStale = false
  try {
    const answer = await request('GET', url, undefined, { signal: running.signal })
    const data: unknown = await answer.json()
    entry.state.value = { data, at: Date.now(), error: null }
  } catch (error) {
    const failure = error instanceof ApiError ? error : new ApiError(0, (error as Error).message)
    if (!running.signal.aborted) entry.state.value = { ...entry.state.value, error: failure }
  } finally {
    if (entry.running === running) entry.running = null
  }
  if (entry.isStale && entry.users > 0) await refresh(url)
}

/** Asks again for all that is shown now. */
export function refreshAll(): void {
  for (const [url, entry] of entries) if (entry.users > 0) renew(url)
}

/** Forgets what one who is not logged in any more must not see. */
export function forgetAll(): void {
  for (const entry of entries.values()) {
    entry.running?.abort()
    entry.running = null
    entry.state.value = EMPTY
  }
}

interface LoadOptions {
  query?: Query
  /** Milliseconds between two questions while the page is seen. */
  every?: number
  /** Events of the gateway after which it is asked again. */
  on?: readonly string[]
}

/** @param path - of the endpoint; null asks nothing */
export function useLoad<T>(path: string | null, options: LoadOptions = {}): Loaded<T> & { reload: () => void } {
  const url = path === null ? null : toUrl(path, options.query)
  const { every = 0, on = [] } = options
  const names = on.join()
  useEffect(() => {
    if (url === null) return
    const entry = entryOf(url)
    entry.users += 1
    void refresh(url)
    const ifSeen = (ask: (url: string) => unknown) => (): void => {
      if (!document.hidden) ask(url)
    }
    const again = ifSeen(renew)
    const timer = every > 0 ? setInterval(ifSeen(refresh), every) : undefined
    const offs = names === '' ? [] : names.split(',').map(name => onEvent(name, again))
    document.addEventListener('visibilitychange', again)
    return () => {
      entry.users -= 1
      clearInterval(timer)
      for (const off of offs) off()
      document.removeEventListener('visibilitychange', again)
    }
  }, [url, every, names])
  const state = url === null ? EMPTY : entryOf(url).state.value
  const reload = (): void => {
    if (url !== null) renew(url)
  }
  return { ...(state as Loaded<T>), reload }
}
