/** The gateway's events (`/_fn/events`), and whether it can be reached. Owner: page console/console. */

import { signal } from '@preact/signals'
import { toUrl } from './api.ts'

/** `request` and `log` are not among them: each costs a request something. */
const NAMES = ['reload', 'warning', 'build', 'schedule', 'job']
/** Milliseconds between tries while the gateway is away. */
const RETRY_MS = 2000

type Listener = () => void

/** `lost` since when, ms; null while the connection stands. */
export const lostSince = signal<number | null>(null)
/** Counts the starts of the gateway that this page has lived through. */
export const restarts = signal(0)

const listeners = new Map<string, Set<Listener>>()
let source: EventSource | null = null
let isStarted = false
let gatewayId: string | null = null
let retry: ReturnType<typeof setTimeout> | undefined

/**
 * Listens to one kind of event, and to the start of the stream: earlier events are unknown then.
 * @returns a function that ends it
 */
export function onEvent(name: string, listener: Listener): () => void {
  const known = listeners.get(name) ?? new Set<Listener>()
  known.add(listener)
  listeners.set(name, known)
  return () => known.delete(listener)
}

export function startEvents(): void {
  isStarted = true
  open()
}

export function stopEvents(): void {
  isStarted = false
  clearTimeout(retry)
  source?.close()
  source = null
}

function open(): void {
  if (!isStarted || source !== null) return
  const opened = new EventSource(toUrl('/_fn/events', { events: NAMES.join() }), { withCredentials: true })
  source = opened
  opened.onopen = () => {
    lostSince.value = null
    for (const set of listeners.values()) notify(set)
  }
  opened.onerror = () => {
    lostSince.value ??= Date.now()
    // A browser tries again by itself only when the connection broke, not when it was refused.
    if (opened.readyState !== EventSource.CLOSED || source !== opened) return
    source = null
    retry = setTimeout(open, RETRY_MS)
  }
  for (const name of [...NAMES, 'gap']) opened.addEventListener(name, event => take(name, event))
}

function take(name: string, { lastEventId: id }: MessageEvent<string>): void {
  if (id !== '') {
    const gateway = id.split('-', 1)[0] as string
    // One that comes back to another gateway hears of a gap first.
    if (gatewayId !== gateway && (gatewayId !== null || name === 'gap')) restarts.value += 1
    gatewayId = gateway
  }
  notify(listeners.get(name))
}

function notify(set: Iterable<Listener> = []): void {
  for (const listener of [...set]) listener()
}
