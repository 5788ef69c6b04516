import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import t from 'tap'
import { KEPT_JOBS } from '../../lib/core/limits.ts'
import type { InternalRequest } from '../../lib/invocation/internal-call.ts'
import type { JobInput } from '../../lib/jobs/job-input.ts'
import { type JobStore, readWhole } from '../../lib/jobs/job.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeFn } from '../helpers/fn.ts'
import { STORE_RETRY_MS } from '../../lib/jobs/job-runner.ts'
import { answer, makeJobs, makeStore, untilStopped } from '../helpers/jobs-bed.ts'
import { makeTree } from '../helpers/tree.ts'

const HELLO: JobInput = { name: 'hello' }

function setup(t: { teardown: (fn: () => unknown) => void }, options = {}) {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  const bed = makeJobs({ root: tree.root, ...options })
  t.teardown(() => bed.jobs.close(0))
  return { tree, ...bed }
}

t.test('[jobs/jobs.16, jobs/jobs.17] a job from its making to its result', async t => {
  const { tree, jobs, events, reached } = setup(t, { call: (request: InternalRequest) => answer(request, 201, 'made') })
  await jobs.start()
  t.same(await jobs.list(), { jobs: [], next: null })
  await t.rejects(jobs.get('job-1-1-000000000000'), { code: 'NOT_FOUND', message: 'job not found' })
  t.notOk(existsSync(tree.path('.svc')), 'nothing is made before the first job')
  const { record, replayed } = await jobs.create({ ...HELLO, context: { a: 1 } })
  t.match(record, {
    status: 'queued',
    name: 'hello',
    runtime: 'node',
    attempt: 0,
    max_attempts: 1,
    route: '/hello',
    method: 'GET',
  })
  t.equal(replayed, false)
  await reached(record.id, 'done')
  t.match(await jobs.get(record.id), {
    status: 'done',
    attempt: 1,
    result_status: 201,
    result_bytes: 4,
    last_error: null,
  })
  const { result } = await jobs.result(record.id)
  t.equal(String(await readWhole(result!.body as never)), 'made')
  t.same(
    events.map(({ id, state, attempt }) => [id, state, attempt]),
    [
      [record.id, 'queued', 0],
      [record.id, 'running', 1],
      [record.id, 'done', 1],
    ],
  )
  t.match(jobs.counts(), { done: 1, queued: 0 })
})

t.test('[jobs/jobs.5] what is refused is not kept', async t => {
  const { tree, jobs } = setup(t, { functions: [makeFn({ policy: { methods: ['POST'], maxBodyBytes: 3 } })] })
  const rows: [JobInput | object, string][] = [
    [{}, 'BAD_REQUEST'],
    [{ name: 'none' }, 'NOT_FOUND'],
    [{ ...HELLO, version: 'v2' }, 'NOT_FOUND'],
    [{ ...HELLO, method: 'GET' }, 'METHOD_NOT_ALLOWED'],
    [{ ...HELLO, body: 'long' }, 'BODY_TOO_LARGE'],
    [{ ...HELLO, route: '/other' }, 'NOT_FOUND'],
  ]
  for (const [input, code] of rows) await t.rejects(jobs.create(input as JobInput), { code }, code)
  await t.rejects(jobs.create(HELLO, 'a b'), { code: 'BAD_REQUEST' })
  t.same(await jobs.list(), { jobs: [], next: null })
  t.notOk(existsSync(tree.path('.svc/jobs/bodies')))
  t.match((await jobs.create(HELLO)).record, { method: 'POST' }, 'the method it has')
})

t.test('[jobs/jobs.7, jobs/file-store.5] a long body is a part of its own and arrives whole', async t => {
  const long = 'ü'.repeat(100_000)
  const bodies: string[] = []
  const functions = [makeFn({ policy: { methods: ['POST'] } })]
  const call = (request: InternalRequest) => {
    bodies.push(String(request.body))
    return answer(request, 200)
  }
  const { tree, jobs, reached } = setup(t, { functions, call })
  const { record } = await jobs.create({ ...HELLO, body: long })
  await reached(record.id, 'done')
  t.ok(bodies[0] === long)
  await jobs.cancel(record.id)
  t.same(readdirSync(tree.path('.svc/jobs/bodies')), [], 'and goes with its job')
})

t.test('[jobs/jobs.11] queued, running and finished jobs are canceled and deleted', async t => {
  const { jobs, reached } = setup(t, { call: untilStopped, maxConcurrency: 1 })
  const running = (await jobs.create(HELLO)).record
  const queued = (await jobs.create(HELLO)).record
  await reached(running.id, 'running')
  t.match(await jobs.cancel(queued.id), { deleted: false, record: { status: 'canceled', attempt: 0 } })
  t.match(await jobs.cancel(running.id), {
    deleted: false,
    record: { status: 'canceled', attempt: 1, last_error: 'canceled' },
  })
  t.match(await jobs.result(running.id), { result: null })
  t.match(await jobs.cancel(running.id), { deleted: true })
  await t.rejects(jobs.cancel(running.id), { code: 'NOT_FOUND' })
  t.match(jobs.counts(), { queued: 0, running: 0, canceled: 1 })
})

t.test(
  '[jobs/jobs.11] of two that cancel at once, and one that ends at that moment, each is told a state that holds',
  async t => {
    let end: () => void = () => {}
    let enter: () => void = () => {}
    const entered = new Promise<void>(resolve => (enter = resolve))
    const call = async (request: InternalRequest) => {
      const ended = new Promise<void>(resolve => (end = resolve))
      enter()
      await ended
      return answer(request, 200, 'late')
    }
    const { jobs } = setup(t, { call })
    const { record } = await jobs.create(HELLO)
    await entered
    const both = Promise.all([jobs.cancel(record.id), jobs.cancel(record.id)])
    end()
    const told = await both
    const { status } = await jobs.get(record.id)
    for (const { record } of told) t.equal(record.status, status)
    t.ok(['canceled', 'done'].includes(status))
  },
)

t.test('[jobs/jobs.13] one key and request make one job', async t => {
  const { jobs } = setup(t)
  const made = await Promise.all([1, 2, 3].map(() => jobs.create(HELLO, 'key-1')))
  t.equal(new Set(made.map(({ record }) => record.id)).size, 1)
  t.same(
    made.map(({ replayed }) => replayed),
    [false, true, true],
  )
  t.equal(made[0]!.record.idempotency_key, 'key-1')
  await t.rejects(jobs.create({ ...HELLO, query: { a: 1 } }, 'key-1'), {
    status: 409,
    message: /used for another request/,
  })
  t.equal((await jobs.list()).jobs.length, 1)
  await t.rejects(jobs.create({ name: 'none' }, 'key-2'), { code: 'NOT_FOUND' })
  t.equal((await jobs.create(HELLO, 'key-2')).replayed, false, 'a refusal uses up no key')
})

t.test('[jobs/jobs.12] the newest 250 finished jobs are kept', async t => {
  const { tree, jobs, reached } = setup(t, { maxConcurrency: 50 })
  const records = await Promise.all(Array.from({ length: KEPT_JOBS + 10 }, () => jobs.create(HELLO)))
  await Promise.all(records.map(({ record }) => reached(record.id, 'done')))
  await t.rejects(Promise.all(records.map(({ record }) => jobs.get(record.id))), { code: 'NOT_FOUND' })
  await jobs.close(1000)
  t.equal(jobs.counts().done, KEPT_JOBS)
  t.equal(readdirSync(tree.path('.svc/jobs/results')).length, KEPT_JOBS)
})

t.test('[jobs/jobs.17] pages of the list, newest first', async t => {
  const { jobs } = setup(t, { call: untilStopped })
  for (let index = 0; index < 5; index++) await jobs.create(HELLO)
  const first = await jobs.list({ limit: 3 })
  const second = await jobs.list({ limit: 3, before: first.next })
  const seqs = [...first.jobs, ...second.jobs].map(({ id }) => Number(id.split('-')[2]))
  t.same([seqs, second.next], [[5, 4, 3, 2, 1], null])
  t.equal((await jobs.list({ state: 'queued' })).jobs.length, 3)
  t.equal((await jobs.list({ fn: 'other' })).jobs.length, 0)
})

t.test('[jobs/jobs.4] what ran when the process died runs again or has failed', async t => {
  const { tree, jobs, reached, lock, store } = setup(t, { call: untilStopped, maxConcurrency: 5 })
  const once = (await jobs.create(HELLO)).record
  const twice = (await jobs.create({ ...HELLO, max_attempts: 2, retry_delay_ms: 0 })).record
  const later = (await jobs.create({ ...HELLO, delay_ms: 100_000 })).record
  await Promise.all([once, twice].map(({ id }) => reached(id, 'running')))
  // As a kill leaves it: nothing more is written, and the lock is free.
  await store.close()
  lock.release()
  const next = makeJobs({ root: tree.root })
  t.teardown(() => next.jobs.close(0))
  await next.jobs.start()
  await next.reached(twice.id, 'done')
  t.match(await next.jobs.get(once.id), {
    status: 'failed',
    attempt: 1,
    last_error: 'the gateway ended during attempt 1 of 1',
  })
  t.match(await next.jobs.get(twice.id), { status: 'done', attempt: 2 })
  t.match(await next.jobs.get(later.id), { status: 'queued', attempt: 0 })
})

t.test('[jobs/jobs.15] a second gateway says who runs the jobs, and takes over', async t => {
  const clock = new FakeClock()
  const { tree, jobs, lock } = setup(t)
  await jobs.create({ ...HELLO, delay_ms: 100_000 })
  const second = makeJobs({ root: tree.root, clock })
  t.teardown(() => second.jobs.close(0))
  await second.jobs.start()
  t.match(second.jobs.warnings, [{ code: 'JOBS_NOT_KEPT', message: new RegExp(`process ${process.pid}`) }])
  await t.rejects(second.jobs.create(HELLO), { status: 503, message: /jobs cannot be kept: .*kept by the gateway/ })
  await t.rejects(second.jobs.list(), { status: 503, message: /kept by/ })
  await jobs.close(0)
  lock.release()
  await second.jobs.start()
  t.same(second.jobs.warnings, [])
  t.equal((await second.jobs.list()).jobs.length, 1)
  t.equal(second.logs.length, 1, 'told once')
})

t.test('[jobs/jobs.14] a place that cannot be written is a 503 with the reason, and no end of the start', async t => {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  writeFileSync(tree.path('.svc'), 'a file')
  const { jobs } = makeJobs({ root: tree.root })
  t.teardown(() => jobs.close(0))
  await jobs.start()
  await t.rejects(jobs.create(HELLO), { status: 503, message: /\.svc is a file, not a folder/ })
  t.match(jobs.warnings, [{ code: 'JOBS_NOT_KEPT', path: '.svc/jobs' }])
  tree.remove('.svc')
  mkdirSync(tree.path('.svc'))
  t.equal((await jobs.create(HELLO)).record.status, 'queued', 'it is tried again')
  t.same(jobs.warnings, [])
})

t.test('[jobs/jobs.14] turned off, and after the end, jobs are refused', async t => {
  const { jobs } = setup(t, { enabled: false })
  await jobs.start()
  await t.rejects(jobs.create(HELLO), { code: 'NOT_FOUND', message: 'jobs disabled' })
  const other = setup(t)
  await other.jobs.close(0)
  await t.rejects(other.jobs.create(HELLO), { code: 'SHUTTING_DOWN' })
})

t.test('[jobs/jobs.10] so many jobs may wait or run, and one more is refused', async t => {
  const { jobs } = setup(t, { maxOpen: 2, call: untilStopped })
  const { record } = await jobs.create(HELLO)
  await jobs.create({ ...HELLO, delay_ms: 1000 })
  await t.rejects(jobs.create(HELLO), { status: 429, message: '2 jobs wait already', headers: { 'Retry-After': '10' } })
  await jobs.cancel(record.id)
  t.equal((await jobs.create(HELLO)).record.status, 'queued')
})

t.test(
  '[jobs/jobs.14, jobs/jobs.11] a full disk: what cannot be kept is told, and a stopped job is canceled as soon as it can be',
  async t => {
    const tree = makeTree()
    t.teardown(tree.cleanup)
    const clock = new FakeClock()
    const real = makeStore(tree.root, clock)
    let isFull = false
    const store: JobStore = {
      open: () => real.open(),
      peek: () => real.peek(),
      read: (id, part) => real.read(id, part),
      write: (id, part) => real.write(id, part),
      close: () => real.close(),
      save: changes => (isFull ? Promise.reject(new Error('ENOSPC: no space left on device')) : real.save(changes)),
    }
    const { jobs, reached } = makeJobs({ root: tree.root, clock, store, call: untilStopped, maxConcurrency: 1 })
    t.teardown(() => jobs.close(0))
    const running = (await jobs.create(HELLO)).record
    const queued = (await jobs.create(HELLO)).record
    await reached(running.id, 'running')
    isFull = true
    const refused = { status: 503, message: 'jobs cannot be kept: ENOSPC: no space left on device' }
    await t.rejects(jobs.create(HELLO), refused)
    await t.rejects(jobs.cancel(queued.id), refused)
    t.equal((await jobs.get(queued.id)).status, 'queued', 'nothing changed')
    await t.rejects(jobs.cancel(running.id), refused)
    t.equal((await jobs.get(running.id)).status, 'running')
    isFull = false
    let isOver = false
    const over = Promise.all([reached(running.id, 'canceled'), reached(queued.id, 'running')]).then(() => {
      isOver = true
    })
    while (!isOver) {
      clock.advance(STORE_RETRY_MS)
      await new Promise(resolve => setImmediate(resolve))
    }
    await over
  },
)

/** The reason why a disk cannot be filled here, false when it can. */
function toDiskSkip(): string | false {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) return 'only root of Linux can mount a small disk'
  const tree = makeTree({ 'disk/': '' })
  const isMounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'none', tree.path('disk')]).status === 0
  spawnSync('umount', [tree.path('disk')])
  tree.cleanup()
  return isMounted ? false : 'a small disk cannot be mounted here'
}

t.test(
  '[jobs/jobs.14, jobs/jobs.20] jobs are readable on a full and on a read-only disk',
  { skip: toDiskSkip() },
  async t => {
    const tree = makeTree({ 'disk/': '' })
    const root = tree.path('disk')
    const mount = (options: string) => spawnSync('mount', ['-t', 'tmpfs', '-o', options, 'none', root]).status
    t.equal(mount('size=64k'), 0)
    t.teardown(() => {
      spawnSync('umount', [root])
      tree.cleanup()
    })
    const bodies = ['kept', Buffer.alloc(100_000)]
    const bed = makeJobs({ root, call: request => answer(request, 200, bodies.shift()) })
    const done = (await bed.jobs.create(HELLO)).record
    await bed.reached(done.id, 'done')
    const unkept = (await bed.jobs.create(HELLO)).record
    await bed.reached(unkept.id, 'done')
    t.match(await bed.jobs.get(unkept.id), {
      result_status: 200,
      result_bytes: null,
      last_error: /^its result could not be kept: ENOSPC/,
    })
    await bed.jobs.close(0)
    bed.lock.release()
    t.throws(() => writeFileSync(`${root}/fill`, Buffer.alloc(100_000)), { code: 'ENOSPC' })
    const isReadable = async (code: string) => {
      const { jobs } = makeJobs({ root })
      await jobs.start()
      t.same(
        (await jobs.list()).jobs.map(({ status }) => status),
        ['done', 'done'],
        code,
      )
      const { result } = await jobs.result(done.id)
      t.equal(result?.status, 200)
      const pieces: Buffer[] = []
      for await (const piece of result!.body) pieces.push(piece)
      t.equal(String(Buffer.concat(pieces)), 'kept')
      await t.rejects(jobs.create(HELLO), { status: 503, message: new RegExp(`cannot be kept: ${code}`) })
      t.match(jobs.warnings, [{ code: 'JOBS_NOT_KEPT' }])
      await jobs.close(0)
    }
    await isReadable('ENOSPC')
    t.equal(mount('remount,ro'), 0)
    await isReadable('EROFS')
  },
)

t.test('[jobs/jobs.12] a job of yesterday is deleted without anybody asking', async t => {
  const clock = new FakeClock()
  const { jobs, reached } = setup(t, { clock })
  const { record } = await jobs.create(HELLO)
  await reached(record.id, 'done')
  for (let hour = 0; hour <= 24; hour++) clock.advance(3_600_000)
  await t.rejects(jobs.get(record.id), { code: 'NOT_FOUND' })
})
