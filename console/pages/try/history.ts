/**
 * Requests that were tried: in the gateway's own store where the console may write, so that they are there in another browser too,
 * else in this browser. Owner: page console/try.
 */

import { signal } from '@preact/signals'
import { get, send } from '../../data/api.ts'
import { canWrite } from '../../session.ts'

interface HistoryEntry {
  /** ms since the epoch */
  readonly at: number
  /** Query of the page that shows the request again. */
  readonly fields: Readonly<Record<string, string | null>>
  readonly status: number | null
  readonly total_ms: number | null
}

const NAME = 'try_history'
const LOCAL_KEY = 'fngw.try'
const MOST_ENTRIES = 50

export const tried = signal<readonly HistoryEntry[]>([])
/** True where the gateway keeps them. */
export const isShared = signal(false)

interface Kept {
  readonly store?: Readonly<Record<string, unknown>>
}

/** The history stored by the gateway; null if this browser stores it. */
async function readStore(): Promise<Readonly<Record<string, unknown>> | null> {
  if (!canWrite.value) return null
  const { store } = await get<Kept>('/_fn/ui-state')
  return store ?? null
}

/** @throws ApiError */
export async function loadHistory(): Promise<void> {
  const store = await readStore()
  const entries = store === null ? readLocal() : store[NAME]
  isShared.value = store !== null
  tried.value = Array.isArray(entries) ? entries.filter(isEntry) : []
}

/** @throws ApiError */
export async function remember(entry: HistoryEntry): Promise<void> {
  // Another page may have tried something in the meantime.
  await loadHistory()
  const isSame = (other: HistoryEntry): boolean => JSON.stringify(other.fields) === JSON.stringify(entry.fields)
  await keep([entry, ...tried.value.filter(other => !isSame(other))].slice(0, MOST_ENTRIES))
}

/** @throws ApiError */
export function forgetHistory(): Promise<void> {
  return keep([])
}

async function keep(entries: readonly HistoryEntry[]): Promise<void> {
  tried.value = entries
  if ((await readStore()) !== null) await send('PATCH', '/_fn/ui-state', { store: { [NAME]: entries } })
  else localStorage.setItem(LOCAL_KEY, JSON.stringify(entries))
}

function readLocal(): unknown {
  try {
    return JSON.parse(localStorage.getItem(LOCAL_KEY) ?? '[]')
  } catch {
    return []
  }
}

/** Stored values may have been written by others, so their shape is checked. */
function isEntry(value: unknown): value is HistoryEntry {
  if (typeof value !== 'object' || value === null) return false
  const { at, fields } = value as Record<string, unknown>
  return typeof at === 'number' && typeof fields === 'object' && fields !== null
}
