import t from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import { AccessLogFormat } from '../../lib/observe/access-log.ts'
import type { RequestRecord } from '../../lib/observe/events.ts'
import { AcceptorJournal } from '../../lib/processes/acceptor-journal.ts'
import type { FromAcceptor } from '../../lib/processes/link.ts'
import { FRAME_LIMITS } from '../../lib/runtime/wire-protocol.ts'
import { FakeClock } from '../helpers/clock.ts'
import { FakeLine } from '../helpers/fake-line.ts'
import { makeFn } from '../helpers/fn.ts'

function createBed() {
  const clock = new FakeClock()
  const line = new FakeLine()
  const told: FromAcceptor[] = []
  const known = new WeakSet<GatewayError>()
  const journal = new AcceptorJournal({
    clock,
    link: line,
    post: message => told.push(message),
    wasReported: error => known.has(error),
  })
  return { clock, line, told, known, journal }
}

const record = (path: string, error: string | null = null): RequestRecord => ({
  ...{ time: 0, id: 'r', method: 'GET', path, route: null, fn: null, version: null, runtime: null, entryFile: null },
  ...{ status: 200, durationMs: 1.5, queuedMs: 0, bytesIn: 0, bytesOut: 2, ip: '127.0.0.1', userAgent: null },
  ...{ traceId: '0'.repeat(32), error },
})

t.test('[processes/processes.7] lines of requests go together, soon, and fit their frame', async t => {
  const { clock, line, journal } = createBed()
  journal.request(record('/a'))
  journal.request(record('/b'))
  t.same(line.sent, [])
  clock.advance(10)
  const format = new AccessLogFormat()
  const lines = [record('/a'), record('/b')].map(one => `${format.toJsonLine(one)}\n`).join('')
  t.match(line.sent.splice(0), [{ kind: 'log', id: 0, header: '', body: lines }])
  clock.advance(100)
  t.same(line.sent, [], 'nothing is nothing')
  const paths = ['/\u0001'.repeat(8 * 1024), '\u20ac'.repeat(3000), '\u0001'.repeat(30_000)]
  for (let at = 0; at < 200; at++) journal.request(record(paths[at % 3]!, paths[(at + 1) % 3]!))
  journal.flush()
  t.ok(line.sent.length > 1 && line.sent.every(({ body }) => Buffer.byteLength(body) <= FRAME_LIMITS.log.body))
  t.equal(
    line.sent.flatMap(({ body }) =>
      body
        .trimEnd()
        .split('\n')
        .map(text => JSON.parse(text)),
    ).length,
    200,
  )
  t.equal(clock.pending, 0)
  line.sent.length = 0
  for (let at = 0; at < 150; at++) journal.request(record(`/${at}`))
  clock.advance(10)
  t.same(
    line.sent.flatMap(({ body }) =>
      body
        .trimEnd()
        .split('\n')
        .map(text => JSON.parse(text).path),
    ),
    Array.from({ length: 150 }, (_, at) => `/${at}`),
    'in order',
  )
})

t.test('[processes/processes.7] a failure is told by the process that knows of it, once', async t => {
  const { told, known, journal } = createBed()
  const call = { fn: makeFn(), id: 'r', trace: '', method: 'GET', path: '/' }
  const relayed = new GatewayError('HANDLER_FAILED', 'written down already')
  known.add(relayed)
  journal.callFailed(call, relayed)
  journal.callFailed(call, new GatewayError('POOL_OVERFLOW', 'a refusal'))
  journal.callFailed(call, new GatewayError('CONTRACT_BROKEN', 'bad answer'))
  journal.callFailed({ ...call, fn: null }, new GatewayError('INTERNAL', 'gateway exception'))
  t.match(told, [
    { kind: 'failed', key: call.fn.key, call: { id: 'r', method: 'GET', path: '/' }, error: /bad answer/ },
    { kind: 'failed', key: null },
  ])
  t.equal(told.length, 2)
  journal.log('warn', 'w')
  journal.warn({ code: 'C', path: '.', message: 'm', hint: 'h' })
  t.match(told.slice(2), [{ kind: 'log' }, { kind: 'warning', warning: { code: 'C' } }])
})
