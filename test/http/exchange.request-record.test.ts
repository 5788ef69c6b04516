import t from 'tap'
import type { GatewayError } from '../../lib/core/errors.ts'
import { createRequestListener, type Exchange } from '../../lib/http/exchange.ts'
import { inject } from '../../lib/http/inject.ts'
import type { RequestRecord } from '../../lib/observe/events.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeFn } from '../helpers/fn.ts'
import { makePublic } from '../helpers/public.ts'

const nobody = { wantsRequests: false, request: () => {}, callFailed: () => {} }

t.test(
  '[observe/events.5, observe/metrics.2, observe/history.2] an ended request is counted, and recorded when somebody wants it',
  async t => {
    const clock = new FakeClock()
    const fn = makeFn({ name: 'hello' })
    const { handle, runtime, finished } = makePublic({ '/hello': fn }, { clock })
    runtime.answer = (call, own) => {
      clock.advance(7)
      own.reply(call, 500, {}, 'x')
    }
    await inject(handle, { url: '/hello' })
    await inject(handle, { url: '/nowhere' })
    await inject(handle, { url: '/_fn/health' })
    const control = finished[2]!.status
    const counted: unknown[] = []
    const records: RequestRecord[] = []
    const failures: GatewayError[] = []
    const journal = {
      wantsRequests: false,
      request: (record: RequestRecord) => records.push(record),
      callFailed: (_call: unknown, error: GatewayError) => failures.push(error),
    }
    const metrics = { request: (...facts: unknown[]) => counted.push(facts) }
    const tell = createRequestListener(journal, clock, metrics)
    for (const exchange of finished) tell(exchange)
    t.same(counted, [
      ['GET', 500, fn, 7, 0, false, false],
      ['GET', 404, null, 0, 0, false, false],
      ['GET', control, null, 0, 0, true, false],
    ])
    t.same(records, [])
    t.match(failures, [{ code: 'NOT_FOUND' }], 'the journal decides what of it is a failure')
    journal.wantsRequests = true
    for (const exchange of finished.slice(0, 2)) tell(exchange)
    t.match(records, [
      {
        status: 500,
        fn: 'hello',
        version: 'default',
        runtime: 'node',
        entryFile: fn.entryFile,
        durationMs: 7,
        error: null,
      },
      { status: 404, fn: null, version: null, runtime: null, entryFile: null, error: /not found/ },
    ])
  },
)

t.test(
  '[observe/events.5, observe/trace.7] a client that left before its answer is 499, and its span ends',
  async t => {
    const clock = new FakeClock()
    const { handle, finished } = makePublic({ '/hello': makeFn({ version: 'v2' }) }, { clock })
    await inject(handle, { url: '/hello' })
    const [exchange] = finished
    const statuses: number[] = []
    const records: RequestRecord[] = []
    const journal = { ...nobody, wantsRequests: true, request: (record: RequestRecord) => records.push(record) }
    const tell = createRequestListener(journal, clock, { request: (_method, status) => statuses.push(status) })
    const ends: object[] = []
    const span = { name: () => {}, end: (facts: object) => ends.push(facts) }
    const ended = (facts: object) => Object.assign(Object.create(exchange!) as Exchange, facts)
    tell(ended({ aborted: true, status: 0 }))
    // What had begun keeps its status.
    tell(ended({ aborted: true, status: 200, span }))
    t.same(statuses, [499, 200])
    t.match(records, [{ status: 499, version: 'v2' }, { status: 200 }])
    t.match(ends, [{ status: 200 }])
  },
)
