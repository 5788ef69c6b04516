/** What the forms of `fngw dev` and `run` print, from events of a gateway that a test makes up. */

import { Writable } from 'node:stream'
import { createOutput } from '../../bin/output.ts'
import type { Show } from '../../bin/show.ts'
import type { Output } from '../../bin/output.ts'
import type { Gateway } from '../../lib/index.ts'
import { GatewayEvents, type RequestRecord } from '../../lib/observe/events.ts'

export const REQUEST: RequestRecord = {
  time: Date.UTC(2026, 10, 21, 12, 3, 4),
  id: 'r-1',
  method: 'GET',
  path: '/a',
  route: '/a',
  fn: 'a',
  version: 'default',
  runtime: 'node',
  entryFile: 'a.js',
  status: 200,
  durationMs: 3.1,
  queuedMs: 0,
  bytesIn: 0,
  bytesOut: 312,
  ip: '127.0.0.1',
  userAgent: null,
  traceId: '4bf92f3577b34da6a3ce929d0e0e4736',
  error: null,
}

/** A stream that keeps what it gets. */
function makeStream(): { stream: NodeJS.WriteStream; text: () => string } {
  let text = ''
  const stream = new Writable({
    write(chunk, _encoding, done) {
      text += String(chunk)
      done()
    },
  })
  return { stream: stream as unknown as NodeJS.WriteStream, text: () => text }
}

/**
 * @param make - the form under test
 * @param start - what happens before the gateway serves
 */
export function followed(
  make: (output: Output) => Show,
  settings: Record<string, unknown> = {},
  start: (events: GatewayEvents) => void = () => {},
) {
  const stdout = makeStream()
  const stderr = makeStream()
  const events = new GatewayEvents(() => {})
  const gateway = {
    settings: { functionsRoot: '/srv/f', logLevel: 'info', accessLog: true, production: false, ...settings },
    warnings: [{ code: 'W', path: 'a', message: 'is odd', hint: 'mend it' }],
    explain: () => ({ beside: null }),
    health: () => ({ runtimes: {}, functions: { states: [] } }),
    counts: () => ({ routes: 0, conflicts: 0 }),
    catalog: () => ({ mapped_routes: {}, mapped_route_conflicts: {}, homes: [], runtimes: {}, ignored: [] }),
    on: events.on.bind(events),
  } as unknown as Gateway
  const show = make(createOutput(stdout.stream, stderr.stream, {}))
  show.follow(gateway)
  show.note('before')
  start(events)
  show.ready(gateway, 'http://h:1', null)
  return { events, show, stdout: stdout.text, stderr: stderr.text }
}
