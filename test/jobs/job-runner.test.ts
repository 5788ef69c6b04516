import t from 'tap'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import type { Job, JobStore } from '../../lib/jobs/job.ts'
import { JobRunner, type JobRunnerOptions, STORE_RETRY_MS } from '../../lib/jobs/job-runner.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeFn } from '../helpers/fn.ts'
import { answer, makeJob, makeRequest, toResult, untilStopped } from '../helpers/jobs-bed.ts'
import { GatewayError } from '../../lib/core/errors.ts'
import { Readable } from 'node:stream'

/** Everything that is read is there, and nothing is written. */
const STORE = {
  read: async () => Readable.from([Buffer.from(JSON.stringify(makeRequest()))]),
  write: async () => ({ write: async () => {}, end: async () => {}, discard: async () => {} }),
} as unknown as JobStore

interface Bed {
  runner: JobRunner
  clock: FakeClock
  steps: string[]
  problems: string[]
  /** Resolves when the step is told. */
  step: (text: string) => Promise<void>
}

function setup(options: Partial<JobRunnerOptions> = {}): Bed {
  const clock = new FakeClock()
  const steps: string[] = []
  const problems: string[] = []
  const waiting = new Map<string, () => void>()
  const keep = options.keep ?? (async () => {})
  const runner = new JobRunner({
    clock,
    store: STORE,
    maxConcurrency: 1,
    maxResultBytes: 0,
    call: request => answer(request, 200, 'ok'),
    functionOf: () => makeFn(),
    admission: { canEnter: () => true, onceRoom: () => {} },
    onProblem: message => problems.push(message),
    ...options,
    keep: async job => {
      await keep(job)
      const text = `${job.seq} ${job.state} ${job.attempt}`
      steps.push(text)
      waiting.get(text)?.()
    },
  })
  const step = (text: string): Promise<void> =>
    steps.includes(text) ? Promise.resolve() : new Promise(resolve => waiting.set(text, resolve))
  return { runner, clock, steps, problems, step }
}

t.test(
  '[jobs/jobs.3, jobs/jobs.8] jobs run in order, and each beginning is kept before its handler starts',
  async t => {
    const order: string[] = []
    const bed = setup({
      call: request => {
        order.push(`call ${(request.trigger as { id: string }).id.split('-')[2]} after ${bed.steps.at(-1)}`)
        return answer(request, 200)
      },
    })
    bed.runner.add([1, 2, 3].map(seq => makeJob({ seq })))
    await bed.step('3 done 1')
    t.same(order, ['call 1 after 1 running 1', 'call 2 after 2 running 1', 'call 3 after 3 running 1'])
    await bed.runner.close(0)
    t.equal(bed.clock.pending, 0)
  },
)

t.test('[jobs/jobs.2] a failed attempt is followed by another one when its delay is over', async t => {
  let status = 500
  const bed = setup({ call: request => answer(request, status) })
  bed.runner.add([makeJob({ retry: { maxAttempts: 3, delayMs: 1000, backoff: 2 }, dueAt: bed.clock.wall() })])
  await bed.step('1 queued 1')
  await settle()
  bed.clock.advance(999)
  t.same(bed.steps.at(-1), '1 queued 1')
  bed.clock.advance(1)
  await bed.step('1 queued 2')
  await settle()
  status = 201
  bed.clock.advance(2000)
  await bed.step('1 done 3')
})

t.test('[jobs/jobs.2] a job that becomes due while the next one is looked for is not forgotten', async t => {
  const bed = setup()
  bed.runner.add([makeJob({ dueAt: bed.clock.wall() + 5000, createdAt: bed.clock.wall() })])
  bed.clock.stall(4999.9)
  const read = bed.clock.monotonic.bind(bed.clock)
  // Time passes between any two looks at the clock.
  bed.clock.monotonic = () => {
    const now = read()
    bed.clock.stall(0.2)
    return now
  }
  bed.runner.add([])
  t.same(bed.steps, [])
  bed.clock.advance(10)
  await bed.step('1 done 1')
})

t.test('[jobs/jobs.9] a wall clock that is set does not change a delay', async t => {
  const bed = setup()
  bed.runner.add([makeJob({ dueAt: bed.clock.wall() + 5000 })])
  bed.clock.jumpWall(-3_600_000)
  bed.clock.advance(5000)
  await bed.step('1 done 1')
  bed.runner.add([makeJob({ seq: 2, dueAt: bed.clock.wall() + 5000 })])
  bed.clock.jumpWall(3_600_000)
  bed.clock.advance(4999)
  t.notOk(bed.steps.includes('2 running 1'))
  bed.clock.advance(1)
  await bed.step('2 done 1')
})

t.test(
  '[jobs/jobs.9] a job that was created while the wall clock was ahead waits for its own delay after a restart',
  async t => {
    const bed = setup()
    const ahead = bed.clock.wall() + 400 * 86_400_000
    bed.runner.add([makeJob({ createdAt: ahead, dueAt: ahead + 4000 })])
    bed.clock.advance(3999)
    t.same(bed.steps, [])
    bed.clock.advance(1)
    await bed.step('1 done 1')
    const attempts = [{ startedAt: ahead, endedAt: ahead, status: 500, error: null }]
    bed.runner.add([makeJob({ seq: 2, createdAt: 0, attempts, dueAt: ahead + 2000 })])
    bed.clock.advance(2000)
    await bed.step('2 done 1')
  },
)

t.test('[jobs/jobs.8] a full function keeps its own jobs waiting until it has room', async t => {
  let tell: (() => void) | null = null
  let isFull = true
  const bed = setup({
    functionOf: key => makeFn({ key } as Partial<FunctionVersion>),
    admission: {
      canEnter: fn => fn.key !== 'node/full@default' || !isFull,
      onceRoom: (_fn, callback) => {
        t.equal(tell, null, 'asked once')
        tell = callback
      },
    },
  })
  bed.runner.add([makeJob({ seq: 1, key: 'node/full@default' })])
  bed.runner.add([makeJob({ seq: 2 })])
  bed.runner.add([makeJob({ seq: 3, key: 'node/full@default' })])
  await bed.step('2 done 1')
  t.notOk(bed.steps.includes('1 running 1'))
  isFull = false
  tell!()
  await bed.step('3 done 1')
})

t.test('[jobs/jobs.3] refused by admission it asks again, and that is no attempt', async () => {
  let refusals = 2
  const bed = setup({
    call: request =>
      refusals-- > 0
        ? Promise.resolve(toResult(429, new GatewayError('CONCURRENCY_LIMIT', 'full')))
        : answer(request, 200),
  })
  bed.runner.add([makeJob({ dueAt: bed.clock.wall() })])
  for (let round = 0; round < 2; round++) {
    await bed.step('1 queued 0')
    await settle()
    bed.clock.advance(1000)
  }
  await bed.step('1 done 1')
})

t.test('[jobs/jobs.11] a running job is canceled, a queued one withdrawn', async t => {
  const bed = setup({ call: untilStopped })
  bed.runner.add([makeJob({ seq: 1 })])
  bed.runner.add([makeJob({ seq: 2 })])
  await bed.step('1 running 1')
  t.equal(bed.runner.cancel(makeJob({ seq: 2 }).id), null, 'it does not run')
  t.equal(bed.runner.withdraw(makeJob({ seq: 2 }).id), true)
  await bed.runner.cancel(makeJob({ seq: 1 }).id)
  t.same(bed.steps, ['1 running 1'], 'whoever canceled keeps the end')
})

t.test('[jobs/jobs.4] a stop lets jobs finish, then ends them', async t => {
  for (const [maxAttempts, wanted] of [
    [1, '1 failed 1'],
    [2, '1 queued 1'],
  ] as const) {
    const kept: Job[] = []
    const bed = setup({ call: untilStopped, keep: async job => void kept.push(job) })
    bed.runner.add([makeJob({ retry: { maxAttempts, delayMs: 0, backoff: 1 } })])
    bed.runner.add([makeJob({ seq: 2 })])
    await bed.step('1 running 1')
    await settle()
    const closed = bed.runner.close(3000)
    bed.clock.advance(3000)
    await closed
    t.equal(bed.steps.at(-1), wanted)
    t.match(kept.at(-1)?.lastError, /^the gateway was stopped during attempt 1 of /)
    t.notOk(bed.steps.includes('2 running 1'), 'nothing more begins')
    t.equal(bed.clock.pending, 0)
  }
})

t.test('[jobs/jobs.14] a step that cannot be kept is tried again', async t => {
  const refused = new Set(['1 running 1', '1 done 1'])
  let told: () => void = () => {}
  const bed = setup({
    keep: async job => {
      if (refused.delete(`${job.seq} ${job.state} ${job.attempt}`)) throw new Error('ENOSPC')
    },
    onProblem: () => told(),
  })
  const problem = () => new Promise<void>(resolve => (told = resolve))
  const first = problem()
  bed.runner.add([makeJob({ dueAt: bed.clock.wall() })])
  await first
  await settle()
  const second = problem()
  bed.clock.advance(STORE_RETRY_MS)
  await second
  await settle()
  t.same(bed.steps, ['1 running 1'], 'begun once')
  bed.clock.advance(STORE_RETRY_MS)
  await bed.step('1 done 1')
})

/** What is under way in this process comes to rest. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await new Promise(resolve => setImmediate(resolve))
}
