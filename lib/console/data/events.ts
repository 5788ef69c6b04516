/** The gateway's events (`/_fn/events`), and whether it can be reached. Owner: page console/console. */

import { signal } from '@preact/signals'
import { toUrl } from './api.ts'

/** A page that is loaded follows these; `request` and `log` only while somebody shows them, because each costs a request something. */
const ALWAYS = ['reload', 'warning', 'build', 'schedule', 'job']
/** Milliseconds between tries while the gateway is away, and before a loss is told. */
const RETRY_MS = 2000

type Listener = (record: Readonly<Record<string, unknown>>) => void

/** `lost` since when, ms; null while the connection stands. */
export const lostSince = signal<number | null>(null)
/** Counts the starts of the gateway that this page has lived through. */
export const restarts = signal(0)

const listeners = new Map<string, Set<Listener>>()
let source: EventSource | null = null
let following = ''
let isStarted = false
let gatewayId: string | null = null
let lastId = ''
let retry: ReturnType<typeof setTimeout> | undefined

/** Follows one kind of event. @returns a function that ends it */
export function onEvent(name: string, listener: Listener): () => void {
  const known = listeners.get(name) ?? new Set<Listener>()
  known.add(listener)
  listeners.set(name, known)
  open()
  return () => {
    known.delete(listener)
    // The page that comes next often wants the same.
    setTimeout(open, 1000)
  }
}

export function startEvents(): void {
  isStarted = true
  open()
}

export function stopEvents(): void {
  isStarted = false
  source?.close()
  source = null
  following = ''
}

function wanted(): string {
  const more = [...listeners].filter(([name, set]) => set.size > 0 && name !== 'gap').map(([name]) => name)
  return [...new Set([...ALWAYS, ...more])].sort().join()
}

function open(): void {
  if (!isStarted) return
  const names = wanted()
  if (source !== null && following === names) return
  source?.close()
  clearTimeout(retry)
  following = names
  const opened = new EventSource(toUrl('/_fn/events', { events: names }), { withCredentials: true })
  source = opened
  opened.onopen = () => {
    lostSince.value = null
  }
  opened.onerror = () => {
    lostSince.value ??= Date.now()
    // A browser tries again by itself only when the connection broke, not when it was refused.
    if (opened.readyState !== EventSource.CLOSED || source !== opened) return
    source = null
    retry = setTimeout(open, RETRY_MS)
  }
  for (const name of [...names.split(','), 'gap']) opened.addEventListener(name, event => take(name, event))
}

function take(name: string, event: MessageEvent<string>): void {
  const id = event.lastEventId
  if (id !== '' && id === lastId && name !== 'gap') return
  if (id !== '') {
    lastId = id
    const gateway = id.split('-', 1)[0] as string
    // One that comes back to another gateway hears of a gap first.
    if (gatewayId !== gateway && (gatewayId !== null || name === 'gap')) restarts.value += 1
    gatewayId = gateway
  }
  const record = toRecord(event.data)
  for (const listener of listeners.get(name) ?? []) listener(record)
}

function toRecord(text: string): Readonly<Record<string, unknown>> {
  try {
    return JSON.parse(text) as Record<string, unknown>
  } catch {
    return {}
  }
}
