/** `GET /_fn/events`: a stream of what happens in the gateway. Owner: page observe/event-feed. */

import { showText } from '../config/fields.ts'
import { GatewayError } from '../core/errors.ts'
import type { Exchange } from '../http/exchange.ts'
import type { EndReason, EventFeed, Following } from '../observe/event-feed.ts'
import { EVENT_NAMES, type EventName } from '../observe/events.ts'
import { badQuery, type Endpoint, READ, readHeader } from './endpoint.ts'

export function createEventsEndpoints(feed: EventFeed): readonly Endpoint[] {
  return [
    {
      method: 'GET',
      path: '/_fn/events',
      access: READ,
      query: ['events'],
      handle: request => {
        const names = readNames(request.query.text('events'))
        const lastId = readHeader(request, 'last-event-id')
        return { send: exchange => stream(feed, exchange, names, lastId) }
      },
    },
  ]
}

/** A list with commas; every name when it is not given. */
function readNames(text: string | null): ReadonlySet<EventName> {
  if (text === null) return new Set(EVENT_NAMES)
  const names = text.split(',').map(name => name.trim())
  for (const name of names) {
    if ((EVENT_NAMES as readonly string[]).includes(name)) continue
    const rule = `must be a list of ${EVENT_NAMES.join(', ')}`
    throw badQuery('events', `${rule}, got "${showText(name)}"`)
  }
  return new Set(names as EventName[])
}

function stream(feed: EventFeed, exchange: Exchange, names: ReadonlySet<EventName>, lastId: string | null): void {
  const { responder } = exchange
  const headers = ['Content-Type', 'text/event-stream', 'Cache-Control', 'no-store', 'X-Accel-Buffering', 'no']
  if (exchange.method === 'HEAD') {
    responder.send(exchange, 200, headers, null)
    return
  }
  let following: Following | null = null
  const write = (bytes: Buffer): boolean => {
    const isTaken = responder.writeStream(exchange, bytes, true)
    if (!isTaken) responder.onDrain(exchange, () => following?.resume())
    return isTaken
  }
  following = feed.follow(names, lastId, { write, end: reason => end(exchange, reason) })
  if (following === null) {
    const headers = { 'Retry-After': '1' }
    const stopping = new GatewayError('SHUTTING_DOWN', 'gateway is shutting down', { headers })
    responder.sendError(exchange, stopping, ['Cache-Control', 'no-store'])
    return
  }
  exchange.work = { abandon: () => following?.stop() }
  responder.openStream(exchange, 200, headers, null)
}

/** One that reads too slowly is cut off, so that it sees that something is missing. */
function end(exchange: Exchange, reason: EndReason): void {
  const why = reason === 'slow' ? new GatewayError('SHUTTING_DOWN', 'events were not read fast enough') : null
  exchange.responder.closeStream(exchange, why)
}
