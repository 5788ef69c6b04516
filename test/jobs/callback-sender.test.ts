import t from 'tap'
import { UpstreamAddresses } from '../../lib/edge/addresses.ts'
import { EdgeConnections } from '../../lib/edge/connections.ts'
import type { InternalRequest } from '../../lib/invocation/internal-call.ts'
import {
  CALLBACK_ATTEMPTS,
  CALLBACK_DELAY_MS,
  CALLBACK_RESULT_BYTES,
  CallbackSender,
} from '../../lib/jobs/callback-sender.ts'
import type { JobRecord } from '../../lib/jobs/job.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeFn } from '../helpers/fn.ts'
import { answer, type JobsBed, makeJobs, makeStore } from '../helpers/jobs-bed.ts'
import { makeTree } from '../helpers/tree.ts'
import { httpUpstream, type Upstream } from '../helpers/upstream.ts'
import { toHeaderRecord } from '../../lib/core/http-text.ts'

interface LineMessage {
  job: JobRecord
  result: Record<string, unknown> | null
}

interface Bed extends JobsBed {
  upstream: Upstream
  told: LineMessage[]
  clock: FakeClock
  /** Resolves when so many were received. */
  received: (count: number) => Promise<void>
  logs: string[]
}

async function setup(
  t: { teardown: (fn: () => unknown) => void },
  statuses: number[],
  body: string | Buffer = 'ok',
): Promise<Bed> {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  const told: LineMessage[] = []
  const waiting: { count: number; resolve: () => void }[] = []
  const upstream = await httpUpstream(async (req, res) => {
    const pieces: Buffer[] = []
    for await (const piece of req) pieces.push(piece as Buffer)
    res.writeHead(statuses[told.length] ?? 200).end()
    told.push(JSON.parse(Buffer.concat(pieces).toString()) as LineMessage)
    for (const one of waiting) if (told.length >= one.count) one.resolve()
  })
  t.teardown(upstream.close)
  const clock = new FakeClock()
  const edge = { baseUrl: null, allowHosts: [], allowPrivate: true, maxResponseBytes: 1 }
  const functions = [makeFn({ policy: { edge } })]
  const store = makeStore(tree.root)
  const addresses = new UpstreamAddresses(
    () => [],
    async () => [],
    () => [],
  )
  const logs: string[] = []
  const callbacks = new CallbackSender({
    network: { clock, addresses, connections: new EdgeConnections(clock) },
    secret: null,
    store,
    functionOf: () => functions[0]!,
    onLog: (_level, message) => logs.push(message),
  })
  const call = (request: InternalRequest) => answer(request, 200, body, ['X-A', 'b'])
  const bed = makeJobs({ root: tree.root, functions, store, callbacks, call })
  t.teardown(() => bed.jobs.close(0))
  const received = (count: number): Promise<void> =>
    told.length >= count ? Promise.resolve() : new Promise(resolve => waiting.push({ count, resolve }))
  return { ...bed, upstream, told, clock, received, logs }
}

/** Looks again until the record says so: the answer of a callback is read after it was sent. */
async function until(
  jobs: JobsBed['jobs'],
  id: string,
  isTrue: (callback: NonNullable<JobRecord['callback']>) => boolean,
): Promise<JobRecord> {
  for (;;) {
    const record = await jobs.get(id)
    if (record.callback !== null && isTrue(record.callback)) return record
    await new Promise(resolve => setImmediate(resolve))
  }
}

t.test('[jobs/callback-sender.1, jobs/callback-sender.5] the end of a job is told with its result', async t => {
  const { jobs, upstream, told, received } = await setup(t, [])
  const { record } = await jobs.create({ name: 'hello', callback_url: `${upstream.url}/hook?secret=1` })
  t.match(record.callback, { url: `${upstream.url}/hook`, status: 'pending', attempts: 0 })
  await received(1)
  t.match(told[0], {
    job: { id: record.id, status: 'done', attempt: 1 },
    result: { status: 200, body: 'ok', is_base64: false, headers: { 'x-a': 'b' } },
  })
  t.notMatch(JSON.stringify(told), /secret/)
  t.match((await until(jobs, record.id, ({ status }) => status !== 'pending')).callback, {
    status: 'delivered',
    attempts: 1,
    last_error: null,
  })
  const canceled = (await jobs.create({ name: 'hello', delay_ms: 100_000, callback_url: upstream.url })).record
  await jobs.cancel(canceled.id)
  await received(2)
  t.match(told[1], { job: { status: 'canceled' }, result: null })
})

t.test('[jobs/callback-sender.1] bytes are base64, a long result is left out', async t => {
  const bytes = await setup(t, [], Buffer.from([0, 255]))
  await bytes.jobs.create({ name: 'hello', callback_url: bytes.upstream.url })
  await bytes.received(1)
  t.match(bytes.told[0]?.result, { is_base64: true, body_base64: 'AP8=' })
  const long = await setup(t, [], 'x'.repeat(CALLBACK_RESULT_BYTES + 1))
  await long.jobs.create({ name: 'hello', callback_url: long.upstream.url })
  await long.received(1)
  t.match(long.told[0]?.result, { omitted: true, bytes: CALLBACK_RESULT_BYTES + 1 })
  t.notOk('body' in long.told[0]!.result!)
})

t.test('[jobs/callback-sender.3] it is tried again, each time later, then given up', async t => {
  const { jobs, upstream, clock, received, logs } = await setup(t, [500, 500, 500, 500, 500, 200])
  const { record } = await jobs.create({ name: 'hello', callback_url: upstream.url })
  for (let attempt = 1; attempt <= CALLBACK_ATTEMPTS; attempt++) {
    await received(attempt)
    const told = await until(jobs, record.id, ({ attempts }) => attempts === attempt)
    t.match(told.callback, { status: attempt < CALLBACK_ATTEMPTS ? 'pending' : 'failed', last_error: 'HTTP 500' })
    if (attempt < CALLBACK_ATTEMPTS) while (clock.pending === 0) await new Promise(resolve => setImmediate(resolve))
    clock.advance(CALLBACK_DELAY_MS * 4 ** (attempt - 1))
  }
  while (logs.length < 2) await new Promise(resolve => setImmediate(resolve))
  t.match(logs, [
    /failed, attempt 1 of 5, retrying up to 4 times: HTTP 500$/,
    /failed, attempt 5 of 5, giving up: HTTP 500$/,
  ])
  t.equal(clock.pending, 0)
})

t.test(
  '[jobs/callback-sender.4, jobs/callback-sender.5] what is pending is told after the next start; a deleted job is not',
  async t => {
    const { jobs, upstream, received, told, lock, store } = await setup(t, [500])
    const { record } = await jobs.create({ name: 'hello', callback_url: upstream.url })
    await received(1)
    await until(jobs, record.id, ({ attempts }) => attempts === 1)
    await jobs.close(0)
    lock.release()
    const { jobs: kept } = await store.open()
    t.match(kept, [{ id: record.id, state: 'done', callback: { state: 'pending', attempts: 1 } }])
    await store.close()
    t.equal(told.length, 1)
    const other = await setup(t, [500])
    const second = (await other.jobs.create({ name: 'hello', callback_url: other.upstream.url })).record
    await other.received(1)
    await until(other.jobs, second.id, ({ attempts }) => attempts === 1)
    while (other.clock.pending === 0) await new Promise(resolve => setImmediate(resolve))
    await other.jobs.cancel(second.id)
    t.equal(other.clock.pending, 0, 'nothing waits for it any more')
  },
)

t.test('[jobs/callback-sender.1] repeated headers are a list', async t => {
  t.same({ ...toHeaderRecord(['A', '1', 'b', '2', 'a', '3', 'a', '4']) }, { a: ['1', '3', '4'], b: '2' })
})
