import t from 'tap'
import type { GatewayError } from '../../lib/core/errors.ts'
import { inject } from '../../lib/http/inject.ts'
import { createRequestListener } from '../../lib/http/request-record.ts'
import type { RequestRecord } from '../../lib/observe/events.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeFn } from '../helpers/fn.ts'
import { makePublic } from '../helpers/public.ts'

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
      ['GET', 500, fn, 7, 0, false],
      ['GET', 404, null, 0, 0, false],
      ['GET', control, null, 0, 0, true],
    ])
    t.same(records, [])
    t.match(failures, [{ code: 'NOT_FOUND' }], 'the journal decides what of it is a failure')
    journal.wantsRequests = true
    tell(finished[0]!)
    t.match(records, [{ status: 500, fn: 'hello', durationMs: 7 }])
  },
)
