import { setTimeout as delay } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { systemClock } from '../../lib/core/clock.ts'
import { GatewayError } from '../../lib/core/errors.ts'
import { FleetJobs, type FleetJobsOptions } from '../../lib/fleet/fleet-jobs.ts'
import { Store } from '../../lib/fleet/fleet-store.ts'
import type { InternalRequest } from '../../lib/invocation/internal-call.ts'
import type { CallbackSender } from '../../lib/jobs/callback-sender.ts'
import { readWhole } from '../../lib/jobs/job.ts'
import type { JobsPart } from '../../lib/jobs/jobs.ts'
import type { JobEventRecord } from '../../lib/observe/events.ts'
import { makeFn } from '../helpers/fn.ts'
import { answer, makeJobs, untilStopped } from '../helpers/jobs-bed.ts'
import { startLink } from '../helpers/link.ts'
import { type RedisBed, startRedis, WITHOUT_REDIS } from '../helpers/redis.ts'
import { makeTree } from '../helpers/tree.ts'

const HELLO = { name: 'hello' }

/** Timers of jobs that wait do not keep a process running. */
function stayAlive(t: Test): void {
  const alive = setInterval(() => {}, 60_000)
  t.teardown(() => clearInterval(alive))
}

interface Bed {
  jobs: JobsPart
  events: JobEventRecord[]
  logs: string[]
  reached: (id: string, ...states: string[]) => Promise<JobEventRecord>
  /** Cuts it off from the store. */
  cut: () => void
}

interface FleetBed extends Bed {
  /** Resolves when a matching line was logged. */
  logged: (pattern: RegExp) => Promise<unknown>
}

/** A gateway's jobs in the fleet of `prefix`. */
async function join(
  t: Test,
  redis: RedisBed,
  prefix: string,
  options: Partial<FleetJobsOptions> = {},
): Promise<FleetBed> {
  const logs: string[] = []
  const onLog = (_level: string, message: string): void => {
    logs.push(message)
    for (const look of waiting) look()
  }
  const waiting = new Set<() => void>()
  const store = await Store.open({ url: redis.url, prefix, isRequiredAtStart: true, onLog })
  const events: JobEventRecord[] = []
  const functions = [makeFn({ policy: { methods: ['GET', 'POST'] } })]
  const jobs = new FleetJobs(
    {
      clock: systemClock,
      enabled: true,
      maxConcurrency: 2,
      maxResultBytes: 0,
      call: request => answer(request, 200, 'ok'),
      functionOf: key => functions.find(fn => fn.key === key) ?? null,
      admission: { canEnter: () => true, onceRoom: () => {} },
      find: name => {
        const fn = functions.find(one => one.name === name)
        if (fn === undefined) throw new GatewayError('NOT_FOUND', 'unknown function or version')
        return fn
      },
      routesOf: fn => [`/${fn.name}`],
      callbacks: () => ({ send: () => {}, cancel: () => {}, close: async () => {} }) as unknown as CallbackSender,
      hasOthers: () => false,
      onLog,
      ...options,
      store,
      id: `gateway-${Math.random()}`,
      onEvent: event => {
        events.push(event)
        for (const look of waiting) look()
      },
    },
    await import('bullmq'),
  )
  t.teardown(async () => {
    await jobs.close(0)
    store.close()
  })
  await jobs.start()
  const found = <T>(find: () => T | undefined): Promise<T> =>
    new Promise(resolve => {
      const look = (): void => {
        const one = find()
        if (one === undefined) return
        waiting.delete(look)
        resolve(one)
      }
      waiting.add(look)
      look()
    })
  return {
    jobs,
    events,
    logs,
    reached: (id, ...states) => found(() => events.find(event => event.id === id && states.includes(event.state))),
    logged: pattern => found(() => logs.find(line => pattern.test(line))),
    cut: () => store.close(),
  }
}

/** One table for both kinds of jobs: what a client sees is the same. */
const CONTRACT: readonly [title: string, run: (t: Test, bed: (options?: object) => Promise<Bed>) => Promise<void>][] = [
  [
    '[fleet/fleet-jobs.1] a job from its making to its result',
    async (t, bed) => {
      const { jobs, events, reached } = await bed({ call: (request: InternalRequest) => answer(request, 201, 'made') })
      await t.rejects(jobs.get('job-1-1-000000000000'), { code: 'NOT_FOUND', message: 'job not found' })
      const { record, replayed } = await jobs.create({ ...HELLO, context: { a: 1 } })
      t.match(record, { status: 'queued', name: 'hello', attempt: 0, max_attempts: 1, route: '/hello', method: 'GET' })
      t.equal(replayed, false)
      await reached(record.id, 'done')
      t.match(await jobs.get(record.id), { status: 'done', attempt: 1, result_status: 201, result_bytes: 4 })
      const { result } = await jobs.result(record.id)
      t.match(result, { status: 201, isText: true, truncated: false })
      t.equal(String(await readWhole(result!.body as never)), 'made')
      t.same(
        events.filter(({ id }) => id === record.id).map(({ state, attempt }) => [state, attempt]),
        [
          ['queued', 0],
          ['running', 1],
          ['done', 1],
        ],
      )
    },
  ],
  [
    '[fleet/fleet-jobs.1] what is refused is not kept',
    async (t, bed) => {
      const { jobs } = await bed()
      await t.rejects(jobs.create({} as never), { code: 'BAD_REQUEST' })
      await t.rejects(jobs.create({ name: 'none' }), { code: 'NOT_FOUND' })
      await t.rejects(jobs.create(HELLO, 'a b'), { code: 'BAD_REQUEST' })
      t.same(await jobs.list(), { jobs: [], next: null })
    },
  ],
  [
    '[fleet/fleet-jobs.2] attempts, delays and the last error',
    async (t, bed) => {
      let calls = 0
      const { jobs, reached } = await bed({
        call: (request: InternalRequest) => answer(request, ++calls < 3 ? 500 : 200, 'x'),
      })
      const { record } = await jobs.create({ ...HELLO, max_attempts: 3, retry_delay_ms: 1, delay_ms: 10 })
      await reached(record.id, 'done')
      const now = await jobs.get(record.id)
      t.match(now, { attempt: 3, status: 'done', last_error: null })
      t.same(
        now.attempts.map(({ status, error }) => [status, error]),
        [
          [500, 'HTTP 500'],
          [500, 'HTTP 500'],
          [200, null],
        ],
      )
      calls = -100
      const failing = (await jobs.create({ ...HELLO, max_attempts: 2, retry_delay_ms: 1 })).record
      await reached(failing.id, 'failed')
      t.match(await jobs.get(failing.id), { attempt: 2, status: 'failed', last_error: 'HTTP 500', result_status: 500 })
      t.equal(calls, -98)
    },
  ],
  [
    '[fleet/fleet-jobs.3] a long body arrives whole, and a long result is cut where it must be',
    async (t, bed) => {
      const long = 'ü'.repeat(400_000)
      const { jobs, reached } = await bed({
        maxResultBytes: 500_000,
        functions: [makeFn({ policy: { methods: ['GET', 'POST'] } })],
        call: (request: InternalRequest) => answer(request, 200, String(request.body)),
      })
      const { record } = await jobs.create({ ...HELLO, method: 'POST', body: long })
      await reached(record.id, 'done', 'failed')
      const { result } = await jobs.result(record.id)
      t.match(result, { bytes: 500_000, truncated: true })
      t.ok((await readWhole(result!.body as never)).equals(Buffer.from(long).subarray(0, 500_000)))
      t.match(await jobs.input(record.id), { method: 'POST', body_bytes: 800_000, body_omitted: false })
    },
  ],
  [
    '[fleet/fleet-jobs.4] queued, running and finished jobs are canceled and deleted',
    async (t, bed) => {
      const { jobs, reached } = await bed({ call: untilStopped, maxConcurrency: 1 })
      const running = (await jobs.create(HELLO)).record
      await reached(running.id, 'running')
      const queued = (await jobs.create(HELLO)).record
      t.match(await jobs.cancel(queued.id), { deleted: false, record: { status: 'canceled', attempt: 0 } })
      t.match(await jobs.cancel(running.id), { record: { status: 'canceled', attempt: 1, last_error: 'canceled' } })
      t.match(await jobs.result(running.id), { result: null })
      t.match(await jobs.cancel(running.id), { deleted: true })
      await t.rejects(jobs.cancel(running.id), { code: 'NOT_FOUND' })
      t.match(await jobs.retry(queued.id), { status: 'queued', name: 'hello' })
    },
  ],
  [
    '[fleet/fleet-jobs.5] one idempotency key and request make one job',
    async (t, bed) => {
      const { jobs, reached } = await bed()
      const made = await Promise.all([1, 2, 3].map(() => jobs.create(HELLO, 'key-1')))
      t.equal(new Set(made.map(({ record }) => record.id)).size, 1)
      t.equal(made.filter(({ replayed }) => !replayed).length, 1)
      await t.rejects(jobs.create({ ...HELLO, query: { a: 1 } }, 'key-1'), { status: 409, message: /another request/ })
      t.equal((await jobs.list()).jobs.length, 1)
      const { id } = made[0]!.record
      await reached(id, 'done')
      await jobs.cancel(id)
      t.equal((await jobs.create(HELLO, 'key-1')).replayed, false, 'a deleted job uses up no key')
    },
  ],
  [
    '[fleet/fleet-jobs.6] jobs are listed newest first, by pages, state and function',
    async (t, bed) => {
      const { jobs, reached } = await bed({ call: (request: InternalRequest) => answer(request, 200) })
      const ids: string[] = []
      for (let i = 0; i < 5; i++) ids.unshift((await jobs.create(HELLO)).record.id)
      for (const id of ids) await reached(id, 'done')
      const later = (await jobs.create({ ...HELLO, delay_ms: 60_000 })).record.id
      const first = await jobs.list({ limit: 3 })
      t.same(
        first.jobs.map(({ id }) => id),
        [later, ids[0], ids[1]],
      )
      const second = await jobs.list({ limit: 3, before: first.next })
      t.same([second.jobs.map(({ id }) => id), second.next], [ids.slice(2), null])
      t.equal((await jobs.list({ state: 'done' })).jobs.length, 5)
      t.same((await jobs.list({ state: 'queued' })).jobs[0]?.id, later)
      t.equal((await jobs.list({ fn: 'hello', limit: 2 })).jobs.length, 2)
      t.same(await jobs.list({ fn: 'other' }), { jobs: [], next: null })
    },
  ],
  [
    '[fleet/fleet-jobs.7] one more than may be open is refused',
    async (t, bed) => {
      const { jobs } = await bed({ maxOpen: 2 })
      for (let i = 0; i < 2; i++) await jobs.create({ ...HELLO, delay_ms: 60_000 })
      await t.rejects(jobs.create(HELLO), { code: 'CONCURRENCY_LIMIT', status: 429, headers: { 'Retry-After': '10' } })
    },
  ],
]

t.test('[fleet/fleet-jobs.1] jobs below the functions root', async t => {
  stayAlive(t)
  for (const [title, run] of CONTRACT)
    await t.test(title, t =>
      run(t, async options => {
        const tree = makeTree()
        t.teardown(tree.cleanup)
        const bed = makeJobs({ root: tree.root, ...options })
        t.teardown(() => bed.jobs.close(0))
        await bed.jobs.start()
        return { ...bed, cut: () => {} }
      }),
    )
})

t.test('[fleet/fleet-jobs.1] jobs of a fleet', { skip: WITHOUT_REDIS }, async t => {
  stayAlive(t)
  const redis = await startRedis(t)
  let fleets = 0
  for (const [title, run] of CONTRACT)
    await t.test(title, t => run(t, options => join(t, redis, `fleet-${++fleets}`, options)))

  await t.test(
    '[fleet/fleet-jobs.8] a job created at one gateway runs at another, and is seen and stopped from both',
    async t => {
      const idle = await join(t, redis, 'two', { call: untilStopped, maxConcurrency: 1 })
      const own = (await idle.jobs.create(HELLO)).record
      await idle.reached(own.id, 'running')
      // The first one has no place left.
      const busy = await join(t, redis, 'two', { call: untilStopped })
      const { record } = await idle.jobs.create({ ...HELLO, max_attempts: 2 })
      await busy.reached(record.id, 'running')
      await idle.reached(record.id, 'running')
      t.match(await idle.jobs.get(record.id), { status: 'running', attempt: 1 })
      t.match(await idle.jobs.cancel(record.id), { deleted: false, record: { status: 'canceled' } })
      await busy.reached(record.id, 'canceled')
      t.same(
        busy.events.filter(({ id }) => id === record.id).map(({ state }) => state),
        ['queued', 'running', 'canceled'],
      )
    },
  )

  await t.test(
    '[fleet/fleet-jobs.9] a job of a gateway that is gone counts that attempt and goes on at another',
    async t => {
      const lost = await join(t, redis, 'three', { call: () => new Promise(() => {}), lockMs: 500 })
      const last = (await lost.jobs.create(HELLO)).record
      const more = (await lost.jobs.create({ ...HELLO, max_attempts: 2, retry_delay_ms: 0 })).record
      for (const { id } of [last, more]) await lost.reached(id, 'running')
      lost.cut()
      const other = await join(t, redis, 'three', { lockMs: 500 })
      await other.reached(last.id, 'failed')
      t.match(await other.jobs.get(last.id), { attempt: 1, last_error: 'its gateway ended during attempt 1 of 1' })
      await other.reached(more.id, 'done')
      t.match(await other.jobs.get(more.id), { attempt: 2, status: 'done' })
    },
  )

  await t.test(
    '[fleet/fleet-jobs.10] without the store a job is refused in time, and one that runs ends when it is back',
    async t => {
      const server = await startRedis(t)
      let finish: () => void = () => {}
      const finished = new Promise<void>(resolve => (finish = resolve))
      const { jobs, reached } = await join(t, server, 'four', {
        call: async request => {
          await finished
          return answer(request, 200, 'late')
        },
      })
      const { record } = await jobs.create(HELLO)
      await reached(record.id, 'running')
      await server.end()
      for (const ask of [
        () => jobs.create(HELLO),
        () => jobs.get(record.id),
        () => jobs.list(),
      ] as (() => Promise<unknown>)[])
        await t.rejects(ask(), { code: 'RUNTIME_DOWN', status: 503, headers: { 'Retry-After': '2' } })
      finish()
      await delay(1)
      await server.begin()
      await reached(record.id, 'done')
      t.match(await jobs.get(record.id), { status: 'done', attempt: 1 })
    },
  )

  await t.test(
    '[fleet/fleet-jobs.13] a gateway that was cut off for longer than its hold runs nothing twice, and its late end is dropped',
    async t => {
      const link = await startLink(t, redis.port)
      const runs: string[] = []
      let finish: () => void = () => {}
      const finished = new Promise<void>(resolve => (finish = resolve))
      const runAt = (gateway: string, until: Promise<void>): Partial<FleetJobsOptions> => ({
        lockMs: 500,
        call: async request => {
          runs.push(`${gateway} ${(request.trigger as { attempt: number }).attempt}`)
          await until
          return answer(request, 200, gateway)
        },
      })
      const far = { ...redis, url: `redis://127.0.0.1:${link.port}` }
      const cutOff = await join(t, far, 'nine', runAt('cut off', finished))
      const { id } = (await cutOff.jobs.create({ ...HELLO, max_attempts: 2, retry_delay_ms: 0 })).record
      await cutOff.reached(id, 'running')
      link.cut()
      const other = await join(t, redis, 'nine', runAt('other', Promise.resolve()))
      await other.reached(id, 'done')
      finish()
      await cutOff.logged(new RegExp(`^the end of job ${id} waits for the store: `))
      // What it sent while it was cut off arrives now.
      link.mend()
      await cutOff.logged(new RegExp(`^the end of job ${id} is dropped: another gateway went on with it$`))
      t.same(runs, ['cut off 1', 'other 2'])
      for (const { jobs } of [cutOff, other]) {
        t.match(await jobs.get(id), { status: 'done', attempt: 2 })
        t.equal(String(await readWhole((await jobs.result(id)).result!.body as never)), 'other')
      }
    },
  )

  await t.test(
    '[fleet/fleet-jobs.11] a job without room, or whose function is in another tree, comes again',
    async t => {
      let looks = 0
      const admission = { canEnter: () => ++looks > 2, onceRoom: () => {} }
      const full = await join(t, redis, 'five', { admission })
      const { record } = await full.jobs.create(HELLO)
      await full.reached(record.id, 'done')
      t.match(await full.jobs.get(record.id), { attempt: 1 })
      const older = await join(t, redis, 'six', { functionOf: () => null, hasOthers: () => true })
      const waiting = (await older.jobs.create(HELLO)).record
      const newer = await join(t, redis, 'six')
      await older.jobs.close(0)
      await newer.reached(waiting.id, 'done')
      const alone = await join(t, redis, 'seven', { functionOf: () => null })
      const lost = (await alone.jobs.create(HELLO)).record
      await alone.reached(lost.id, 'failed')
      t.match(await alone.jobs.get(lost.id), { last_error: 'unknown function or version: node/hello@default' })
    },
  )

  await t.test('[fleet/fleet-jobs.3] the body of a job that could not be created expires', async t => {
    const { jobs } = await join(t, redis, 'nine')
    const client = redis.client()
    for (const [body, i] of [
      ['x'.repeat(20_000), 0],
      ['x'.repeat(600_000), 1],
    ] as const) {
      const input = { ...HELLO, method: 'POST', body, delay_ms: 60_000 } as const
      const { record } = await jobs.create(input)
      t.equal(await client.pttl(`{nine}:part:${record.id}:body`), -1)
      await client.rename('{nine}:jobs:queued', 'away')
      await client.set('{nine}:jobs:queued', 'something else')
      await t.rejects(jobs.create(input), { code: 'RUNTIME_DOWN', message: /WRONGTYPE/ })
      await client.rename('away', '{nine}:jobs:queued')
      const bodies = await client.keys('{nine}:part:*:body')
      t.equal(bodies.length, 2 * (i + 1))
      const lives = await Promise.all(bodies.map(key => client.pttl(key)))
      t.equal(lives.filter(ms => ms > 0).length, i + 1)
    }
  })

  await t.test('[fleet/fleet-jobs.12] what is damaged in the store disturbs nothing else', async t => {
    const { jobs, events, reached } = await join(t, redis, 'eight')
    const client = redis.client()
    const keyOf = (id: string): string => `{eight}:job:${id}`
    const makeLater = async (): Promise<string> => (await jobs.create({ ...HELLO, delay_ms: 60_000 })).record.id
    const older = (await jobs.create(HELLO)).record
    await reached(older.id, 'done')
    const sound = await makeLater()
    const { job, request } = (await client.hgetall(keyOf(sound))) as { job: string; request: string }
    const damaged: Record<string, string>[] = [
      { job: '{"id":' },
      { job: '{}' },
      { job: '{"__proto__":{"state":"done"}}' },
      // Of another job.
      { job },
      { job: JSON.stringify({ ...JSON.parse(job), state: 'weird' }) },
      { request: '{}' },
      { request: JSON.stringify({ ...JSON.parse(request), callbackUrl: 'no URL' }) },
      { step: 'x' },
      { step: '1.0' },
    ]
    for (const fields of damaged) {
      const id = await makeLater()
      await client.hset(keyOf(id), fields)
      for (const ask of ['get', 'input', 'result', 'retry', 'cancel'] as const)
        await t.rejects(jobs[ask](id) as Promise<unknown>, { code: 'NOT_FOUND' }, JSON.stringify(fields))
    }
    const before = events.length
    for (const message of ['not JSON', '{"from":"x","job":7}', '{"from":"x","job":{"id":"a","key":{},"state":["x"]}}'])
      await client.publish('{eight}:events', message)
    const { record } = await jobs.create(HELLO)
    await reached(record.id, 'done')
    t.same([...new Set(events.slice(before).map(({ id }) => id))], [record.id])
    const ids = [record.id, sound, older.id]
    t.same(
      (await jobs.list()).jobs.map(({ id }) => id),
      ids,
    )
    // A page on which nothing is whole ends no list.
    const pages: string[] = []
    for (let next: number | null = null; ; ) {
      const page = await jobs.list({ limit: 1, before: next })
      pages.push(...page.jobs.map(({ id }) => id))
      next = page.next
      if (next === null) break
    }
    t.same(pages, ids)
  })
})
