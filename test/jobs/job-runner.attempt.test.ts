import t from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import type { InternalRequest, InternalResult } from '../../lib/invocation/internal-call.ts'
import { runAttempt } from '../../lib/jobs/job-runner.ts'
import { openResult } from '../../lib/jobs/job-result.ts'
import { type JobStore, readRequest } from '../../lib/jobs/job.ts'
import { makeFn } from '../helpers/fn.ts'
import { answer, makeJob, makeRequest, makeStore, toResult, untilStopped } from '../helpers/jobs-bed.ts'
import { makeTree } from '../helpers/tree.ts'

const job = makeJob({ attempt: 1, state: 'running', retry: { maxAttempts: 3, delayMs: 0, backoff: 1 } })

async function setup(t: { teardown: (fn: () => unknown) => void }, fields = {}): Promise<JobStore> {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  const store = makeStore(tree.root)
  await store.open()
  t.teardown(() => store.close())
  await store.save([{ job, request: makeRequest(fields) }])
  return store
}

function run(
  store: JobStore,
  call: (request: InternalRequest) => Promise<InternalResult>,
  maxResultBytes = 0,
  stop = new AbortController(),
) {
  return runAttempt(job, makeFn(), stop, { store, call, maxResultBytes })
}

t.test('[jobs/jobs.6] the function is asked for what the job says, and marked as a job', async t => {
  const store = await setup(t, {
    method: 'POST',
    path: '/users/7',
    rawPath: '/users/7',
    params: { id: '7' },
    query: { a: 1 },
    headers: { 'x-a': 'b' },
    context: { who: 'me' },
    body: Buffer.from([0, 255]).toString('base64'),
  })
  let asked: InternalRequest | null = null
  const outcome = await run(store, request => {
    asked = request
    return answer(request, 200, 'ok', ['x-b', 'c'])
  })
  t.match(asked, {
    id: `${job.id}.1`,
    method: 'POST',
    path: '/users/7',
    params: { id: '7' },
    query: { a: 1 },
    headers: { 'user-agent': 'fngw-jobs', 'x-a': 'b' },
    user: { who: 'me' },
    trigger: { type: 'job', id: job.id, attempt: 1, max_attempts: 3 },
    mustEnd: true,
  })
  t.same(asked!.body, Buffer.from([0, 255]))
  t.match(outcome, { kind: 'answer', status: 200, error: null, result: { bytes: 2, isText: true, truncated: false } })
  const result = await openResult({ ...job, result: outcome.result }, store)
  t.same(result?.headers, ['x-b', 'c'])
  await result?.body.return()
})

t.test('[jobs/jobs.1, jobs/jobs.2, jobs/jobs.3] refusals and failures by what another attempt can change', async t => {
  const store = await setup(t)
  const rows: [GatewayError, string][] = [
    [new GatewayError('CONCURRENCY_LIMIT', 'concurrency limit reached'), 'unbegun'],
    [new GatewayError('POOL_OVERFLOW', 'worker pool overflow', { status: 503 }), 'unbegun'],
    [new GatewayError('BUILD_PENDING', 'building'), 'unbegun'],
    [new GatewayError('METHOD_NOT_ALLOWED', 'method not allowed'), 'final'],
    [new GatewayError('BODY_TOO_LARGE', 'payload too large'), 'final'],
    [new GatewayError('TIMEOUT', 'runtime timeout'), 'failure'],
    [new GatewayError('WORKER_DIED', 'worker died'), 'failure'],
    [new GatewayError('HANDLER_FAILED', 'boom'), 'failure'],
  ]
  for (const [error, kind] of rows) {
    const outcome = await run(store, async () => toResult(error.status, error))
    t.same(outcome, { kind, status: error.status, error: error.message, result: null }, error.code)
  }
})

t.test('[jobs/jobs.7] a function that is gone, and a request that is lost, are failed attempts', async t => {
  const store = await setup(t)
  const options = { store, call: untilStopped, maxResultBytes: 0 }
  const gone = await runAttempt(job, null, new AbortController(), options)
  t.match(gone, { kind: 'failure', error: 'unknown function or version: node/hello@default' })
  await store.save([{ gone: job.id }])
  t.match(await run(store, untilStopped), { kind: 'failure', error: /its request is gone/ })
  await t.rejects(readRequest(job, store), { message: 'its request is gone' })
  const lost = await setup(t, { hasBodyPart: true })
  t.match(await run(lost, untilStopped), { kind: 'failure', error: /its body is gone/ })
})

t.test('[jobs/jobs.11] the signal stops the call, and nothing of its answer is kept', async t => {
  const store = await setup(t)
  const stop = new AbortController()
  const going = run(
    store,
    async request => {
      request.sink!.begin(200, [])
      await request.sink!.write(Buffer.from('half'))
      stop.abort()
      return untilStopped(request)
    },
    0,
    stop,
  )
  t.match(await going, { kind: 'failure', result: null })
  t.equal(await store.read(job.id, 'result'), null)
})

t.test('[jobs/file-store.5] an answer without end is stopped at the limit, and is an answer', async t => {
  const store = await setup(t)
  const outcome = await run(
    store,
    async request => {
      request.sink!.begin(206, [])
      while (request.signal?.aborted === false) await request.sink!.write(Buffer.alloc(1000))
      return untilStopped(request)
    },
    4096,
  )
  t.match(outcome, { kind: 'answer', status: 206, result: { bytes: 4096, truncated: true } })
})

t.test('[jobs/jobs.20] an attempt whose result cannot be kept has its status and the reason', async t => {
  const store = await setup(t)
  const full: JobStore = Object.create(store)
  full.read = (id, part) => store.read(id, part)
  full.write = async () => {
    throw new Error('ENOSPC: no space left on device, write')
  }
  const outcome = await run(full, request => answer(request, 200, 'ok'))
  t.match(outcome, { kind: 'answer', status: 200, error: /^its result could not be kept: ENOSPC/, result: null })
})
