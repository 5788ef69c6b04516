import t from 'tap'
import { toJobRecord } from '../../lib/jobs/job.ts'
import { makeJob, makeRequest } from '../helpers/jobs-bed.ts'

t.test('[control/jobs-endpoints.1] every field is there, what is not known is null', async t => {
  t.same(toJobRecord(makeJob({ dueAt: 7 }), makeRequest()), {
    id: makeJob().id,
    status: 'queued',
    created_at_ms: 0,
    updated_at_ms: 0,
    finished_at_ms: null,
    runtime: 'node',
    name: 'hello',
    version: null,
    method: 'GET',
    route: '/hello',
    route_template: '/hello',
    attempt: 0,
    max_attempts: 1,
    attempts: [],
    retry_delay_ms: 1000,
    backoff: 1,
    next_run_at_ms: 7,
    result_status: null,
    result_bytes: null,
    result_truncated: false,
    last_error: null,
    idempotency_key: null,
    callback: null,
  })
  t.equal(toJobRecord(makeJob({ state: 'running' }), makeRequest()).next_run_at_ms, null)
})

t.test('[jobs/callback-sender.5] a callback is shown without what its URL may hold in secret', async t => {
  const callback = { state: 'failed', attempts: 5, lastError: 'HTTP 500' } as const
  const record = toJobRecord(makeJob({ callback }), makeRequest({ callbackUrl: 'https://a.test/hook?key=1#x' }))
  t.same(record.callback, { url: 'https://a.test/hook', status: 'failed', attempts: 5, last_error: 'HTTP 500' })
})
