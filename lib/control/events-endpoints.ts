/** `GET /_fn/events`: a stream of what happens in the gateway. Owner: page observe/event-feed. */

import { mapped, reportWrong, string } from '../config/fields.ts'
import { GatewayError } from '../core/errors.ts'
import type { Exchange } from '../http/exchange.ts'
import type { EventFeed, Following } from '../observe/event-feed.ts'
import { EVENT_NAMES, type EventName } from '../observe/events.ts'
import { type Endpoint, endpoint, readHeader } from './endpoint.ts'

/** A list with commas. */
const names = mapped(string(), (text, at): ReadonlySet<EventName> | undefined => {
  const list = text.split(',').map(name => name.trim())
  const unknown = list.find(name => !(EVENT_NAMES as readonly string[]).includes(name))
  if (unknown !== undefined) return reportWrong(at, `a list of ${EVENT_NAMES.join(', ')}`, unknown)
  return new Set(list as EventName[])
})

export function createEventsEndpoints(feed: EventFeed): readonly Endpoint[] {
  return [
    endpoint(
      'GET /_fn/events',
      'read',
      request => {
        const { events = new Set(EVENT_NAMES) } = request.query
        const lastId = readHeader(request, 'last-event-id')
        return { send: exchange => stream(feed, exchange, events, lastId) }
      },
      { events: names },
    ),
  ]
}

function stream(feed: EventFeed, exchange: Exchange, events: ReadonlySet<EventName>, lastId: string | null): void {
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
  following = feed.follow(events, lastId, {
    write,
    // A client that reads too slowly is cut off, so that it notices that something is missing.
    end: reason => {
      const why = reason === 'slow' ? new GatewayError('SHUTTING_DOWN', 'events were not read fast enough') : null
      responder.closeStream(exchange, why)
    },
  })
  if (following === null)
    throw new GatewayError('SHUTTING_DOWN', 'gateway is shutting down', { headers: { 'Retry-After': '1' } })
  exchange.work = { abandon: () => following?.stop() }
  responder.openStream(exchange, 200, headers, null)
}
