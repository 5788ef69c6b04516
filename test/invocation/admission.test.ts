import t from 'tap'
import type { FunctionVersion, WorkerPoolPolicy } from '../../lib/core/catalog.ts'
import type { GatewayError } from '../../lib/core/errors.ts'
import { Admission, type AdmissionCall } from '../../lib/invocation/admission.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeFn } from '../helpers/fn.ts'
import { createRandom } from '../helpers/random.ts'

const POOL: WorkerPoolPolicy = {
  enabled: true,
  minWarm: 0,
  maxWorkers: 1,
  maxQueue: 10,
  queueTimeoutMs: 1000,
  queuePollMs: 20,
  idleTtlSeconds: 300,
  overflowStatus: 503,
}

const pooled = (fields: Partial<WorkerPoolPolicy> = {}, name = 'hello') =>
  makeFn({ name, policy: { workerPool: { ...POOL, ...fields } } })

class Call implements AdmissionCall {
  phase: AdmissionCall['phase'] = 'new'
  slots: object | null = null
  queuePrevious: AdmissionCall | null = null
  queueNext: AdmissionCall | null = null
  handedAt = 0
  cold = false
  enteredAt = 0
  refuseAt = 0
  refusal: GatewayError | null = null
  readonly fn: FunctionVersion
  readonly log: Call[]
  admitted: (call: Call) => void = () => {}

  constructor(fn: FunctionVersion, log: Call[] = []) {
    this.fn = fn
    this.log = log
  }

  get where(): 'outside' | 'queued' | 'active' {
    if (this.slots === null) return 'outside'
    return this.phase === 'queued' ? 'queued' : 'active'
  }

  onAdmitted(): void {
    this.log.push(this)
    this.admitted(this)
  }

  onRefused(error: GatewayError): void {
    this.refusal = error
  }
}

function setup() {
  const clock = new FakeClock()
  const admission = new Admission(clock)
  const log: Call[] = []
  const enter = (fn: FunctionVersion) => {
    const call = new Call(fn, log)
    call.handedAt = clock.monotonic()
    const outcome = admission.enter(call)
    if (outcome !== null && outcome !== 'queued') call.refusal = outcome
    return call
  }
  const counts = (index = 0) => {
    const { active, queued } = admission.snapshot()[index]!
    return { active, queued }
  }
  return { clock, admission, log, enter, counts }
}

t.test('[invocation/admission.1, invocation/admission.2] max_concurrency alone', async t => {
  for (const workerPool of [null, { ...POOL, enabled: false, maxWorkers: 9 }]) {
    const { admission, enter, counts } = setup()
    const fn = makeFn({ policy: { maxConcurrency: 2, workerPool } })
    const first = enter(fn)
    enter(fn)
    const third = enter(fn)
    t.match(third.refusal, { status: 429, message: 'concurrency limit reached', headers: { 'Retry-After': '1' } })
    t.same(counts(), { active: 2, queued: 0 })
    admission.leave(first)
    t.equal(enter(fn).refusal, null)
    t.equal(enter(makeFn({ version: 'v2', policy: { maxConcurrency: 2 } })).refusal, null, 'another version')
  }
  const { enter } = setup()
  const unlimited = makeFn({ policy: { maxConcurrency: 0 } })
  for (let i = 0; i < 1000; i++) t.equal(enter(unlimited).refusal, null)
})

t.test(
  '[invocation/admission.3, invocation/admission.4, invocation/admission.10] workers, queue, overflow',
  async t => {
    for (const overflowStatus of [429, 503] as const) {
      const { enter, counts } = setup()
      const fn = pooled({ maxWorkers: 2, maxQueue: 1, overflowStatus })
      const calls = [enter(fn), enter(fn), enter(fn), enter(fn)]
      t.same(
        calls.map(call => call.where),
        ['active', 'active', 'queued', 'outside'],
      )
      t.match(calls[3]!.refusal, {
        code: 'POOL_OVERFLOW',
        status: overflowStatus,
        message: 'worker pool overflow',
        headers: { 'Retry-After': '1' },
      })
      t.same(counts(), { active: 2, queued: 1 })
      t.equal(enter(pooled({}, 'other')).where, 'active', 'another function is free')
    }
    const { enter } = setup()
    const wide = makeFn({ policy: { maxConcurrency: 2, workerPool: { ...POOL, maxWorkers: 3 } } })
    t.same(
      [enter(wide), enter(wide), enter(wide)].map(call => call.where),
      ['active', 'active', 'queued'],
      'max_concurrency holds beside the pool, whose queue takes what is beyond',
    )
  },
)

t.test('[invocation/admission.5] first come, first served', async t => {
  const { admission, log, enter } = setup()
  const fn = pooled({ maxQueue: 100 })
  let running = enter(fn)
  const waiting = Array.from({ length: 20 }, () => enter(fn))
  for (const index of [3, 0, 19, 7]) admission.leave(waiting[index]!)
  const late = enter(fn)
  const expected = [...waiting.filter((_, index) => ![3, 0, 19, 7].includes(index)), late]
  for (const _ of expected) {
    admission.leave(running)
    running = log.at(-1)!
  }
  t.same(
    log.map(call => expected.indexOf(call)),
    expected.map((_, index) => index),
  )
})

t.test('[invocation/admission.6] the wait ends', async t => {
  const { clock, admission, enter, counts } = setup()
  const fn = pooled()
  const running = enter(fn)
  const first = enter(fn)
  clock.advance(600)
  const second = enter(fn)
  clock.advance(399)
  t.equal(first.refusal, null)
  clock.advance(1)
  t.match(first.refusal, { status: 503, message: 'worker pool queue timeout', headers: { 'Retry-After': '1' } })
  t.same(counts(), { active: 1, queued: 1 })
  admission.leave(running)
  t.equal(second.where, 'active')
  clock.advance(5000)
  t.equal(second.refusal, null, 'no timer is left')
  t.equal(clock.pending, 0)
  const { enter: enterNow } = setup()
  const impatient = pooled({ queueTimeoutMs: 0 })
  enterNow(impatient)
  t.match(enterNow(impatient).refusal, { message: 'worker pool queue timeout' })
})

t.test('[invocation/admission.15] a default queue refuses once its first call has waited too long', async t => {
  const { clock, admission, log, enter, counts } = setup()
  const fn = makeFn({
    policy: { maxConcurrency: 2, defaultQueue: { maxQueue: 100, timeoutMs: 60_000, maxWaitMs: 1000 } },
  })
  const running = [enter(fn), enter(fn)]
  running[0]!.cold = true
  for (let i = 0; i < 50; i++) t.equal(enter(fn).where, 'queued')
  clock.advance(3000)
  t.equal(enter(fn).where, 'queued', 'no call has ended: the worker may be starting')
  admission.leave(running[0]!)
  t.equal(enter(fn).where, 'queued', 'a call whose worker had to start is not measured')
  running[1]!.handedAt = clock.monotonic() - 100
  admission.leave(running[1]!)
  t.same(counts(), { active: 2, queued: 50 })
  t.match(enter(fn).refusal, { status: 429, message: 'concurrency limit reached', headers: { 'Retry-After': '3' } })
  t.notOk(admission.canEnter(fn))
  for (let ended = 0; counts().queued > 2; ) {
    for (const call of log.slice(ended, log.length)) admission.leave(call)
    ended = log.length - counts().active
  }
  t.ok(admission.canEnter(fn), 'the first call has just begun to wait')
  t.equal(enter(fn).where, 'queued')
  clock.advance(1000)
  t.equal(enter(fn).where, 'queued')
  clock.advance(1)
  t.equal(enter(fn).where, 'outside')
  const pool = pooled({ maxQueue: 100, queueTimeoutMs: 60_000 }, 'pool')
  const one = enter(pool)
  for (let i = 0; i < 99; i++) enter(pool)
  clock.advance(9000)
  admission.leave(one)
  for (let i = 0; i < 2; i++)
    t.equal(enter(pool).where, 'queued', 'the number alone decides in a queue that a config sets')
  t.match(enter(pool).refusal, { status: 503, headers: { 'Retry-After': '60' } }, 'at most a minute')
})

t.test('[invocation/admission.7] leaving the queue frees the place in it', async t => {
  const { clock, admission, enter, counts } = setup()
  const fn = pooled({ maxQueue: 1 })
  enter(fn)
  const waiting = enter(fn)
  t.ok(enter(fn).refusal)
  admission.leave(waiting)
  t.same(counts(), { active: 1, queued: 0 })
  t.equal(clock.pending, 0)
  t.equal(enter(fn).where, 'queued')
})

t.test('[invocation/admission.8] counts return to zero, whatever happens in whatever order', async t => {
  for (let seed = 1; seed <= 30; seed++) {
    const random = createRandom(seed)
    const { clock, admission, enter } = setup()
    const limits = { maxWorkers: 1 + random(4), maxQueue: random(6), queueTimeoutMs: random(3) * 50 }
    const fns = [pooled(limits, 'a'), pooled(limits, 'b'), makeFn({ name: 'c', policy: { maxConcurrency: 2 } })]
    const calls: Call[] = []
    for (let step = 0; step < 400; step++) {
      const action = random(10)
      if (action < 5) {
        const call = enter(fns[random(3)]!)
        // Some end the moment they are admitted, as with a runtime that is down.
        if (random(4) === 0) call.admitted = admitted => admission.leave(admitted)
        calls.push(call)
      } else if (action < 9) {
        const call = calls[random(calls.length)]
        if (call !== undefined) for (let times = random(3); times >= 0; times--) admission.leave(call)
      } else {
        clock.advance(random(60))
      }
      for (const { active, queued, max_workers, max_queue, key } of admission.snapshot()) {
        const own = calls.filter(call => call.fn.key === key)
        if (active > max_workers || queued > max_queue) t.fail(`seed ${seed}: over the limits`)
        if (queued > 0 && active < max_workers) t.fail(`seed ${seed}: a call waits while a worker is free`)
        if (active !== own.filter(call => call.where === 'active').length) t.fail(`seed ${seed}: active drifts`)
        if (queued !== own.filter(call => call.where === 'queued').length) t.fail(`seed ${seed}: queued drifts`)
      }
    }
    for (const call of calls) admission.leave(call)
    for (const call of calls) admission.leave(call)
    t.equal(admission.total(), 0, `seed ${seed}`)
    t.equal(clock.pending, 0, `seed ${seed}: no timer is left`)
  }
})

t.test('[invocation/admission.9, invocation/admission.12] a reload keeps counts and adopts limits', async t => {
  const { admission, log, enter, counts } = setup()
  const fn = pooled({ maxQueue: 5 })
  const calls = [enter(fn), enter(fn), enter(fn), enter(fn)]
  const wider = pooled({ maxWorkers: 3, maxQueue: 5 })
  admission.adopt(new Map([[wider.key, wider]]))
  t.same(counts(), { active: 3, queued: 1 })
  t.same(log, calls.slice(1, 3))
  const narrower = pooled({ maxWorkers: 1, maxQueue: 0 })
  admission.adopt(new Map([[narrower.key, narrower]]))
  t.same(counts(), { active: 3, queued: 1 }, 'who is in stays in')
  t.ok(enter(narrower).refusal)
  t.same(admission.snapshot(), [
    { key: fn.key, active: 3, queued: 1, max_workers: 1, max_queue: 0, overflows: 1, queue_timeouts: 0 },
  ])
  admission.adopt(new Map())
  t.equal(admission.snapshot().length, 1, 'a function that is gone and still busy')
  for (const call of calls) admission.leave(call)
  admission.adopt(new Map())
  t.same(admission.snapshot(), [])
})

t.test('[invocation/admission.11] ten thousand waiting calls that end at once', async t => {
  const { admission, log, enter, counts } = setup()
  const fn = pooled({ maxQueue: 10_000 })
  const running = enter(fn)
  for (let i = 0; i < 10_000; i++) enter(fn).admitted = call => admission.leave(call)
  admission.leave(running)
  t.equal(log.length, 10_000)
  t.same(counts(), { active: 0, queued: 0 })
})

t.test('[invocation/admission.8] a callback that throws leaves the queue usable', async t => {
  const { admission, log, enter } = setup()
  const fn = pooled()
  const running = enter(fn)
  const bad = enter(fn)
  const good = enter(fn)
  bad.admitted = () => {
    throw new Error('bad')
  }
  t.throws(() => admission.leave(running), /bad/)
  admission.leave(bad)
  t.equal(log.at(-1), good)
})

t.test('[processes/processes.14] free slots are leased, none while calls wait or slots are asked back', async t => {
  const { admission, enter, counts } = setup()
  const fn = pooled({ maxWorkers: 5 })
  const first = enter(fn)
  t.equal(admission.lease(fn, 3), 3)
  t.same(counts(), { active: 1, queued: 0 }, 'what is leased is not shown as running')
  t.equal(admission.lease(fn, 3), 1, 'what is left')
  t.equal(admission.lease(fn, 3), 0)
  const recalled: string[] = []
  admission.onRecall = key => recalled.push(key)
  const waiting = enter(fn)
  t.same(recalled, [fn.key])
  t.same([...admission.waiting()], [[fn.key, 1]])
  admission.leave(first)
  t.equal(waiting.where, 'active', 'a slot of this process is as good')
  admission.leave(waiting)
  t.equal(admission.lease(fn, 3), 0, 'still asked back')
  admission.endLease(fn.key, 4, 0)
  t.equal(admission.lease(fn, 9), 5)
  admission.noteElsewhere(fn.key, 2)
  t.same(counts(), { active: 2, queued: 0 })
  t.equal(admission.lease(makeFn({ name: 'free', policy: { maxConcurrency: 0 } }), 3), 0, 'of no limit none is needed')
})

t.test(
  '[processes/processes.15] leased slots that come back admit who waits; used ones when their calls end',
  async t => {
    const { admission, enter, counts } = setup()
    const fn = pooled({ maxWorkers: 3 })
    admission.lease(fn, 3)
    const calls = [enter(fn), enter(fn), enter(fn)]
    admission.endLease(fn.key, 1, 2)
    t.same(
      calls.map(call => call.where),
      ['active', 'queued', 'queued'],
    )
    t.same(counts(), { active: 3, queued: 2 }, 'calls that run on what was given back count')
    let hasRoom = false
    admission.onceRoom(fn, () => {
      hasRoom = true
    })
    admission.giveBack(fn.key, 1)
    admission.giveBack(fn.key, 1)
    t.same(
      calls.map(call => call.where),
      ['active', 'active', 'active'],
    )
    t.ok(hasRoom, 'somebody may wait again')
    for (const call of calls) admission.leave(call)
    t.equal(admission.total(), 0)
  },
)

t.test(
  '[processes/processes.15] what nobody gave back: who waited is queued as far as the queue goes, the rest is refused',
  async t => {
    const rows: [fields: Partial<WorkerPoolPolicy>, fates: string[], overflows: number, timeouts: number][] = [
      [{ maxQueue: 2 }, ['queued', 'queued', 'worker pool overflow'], 1, 0],
      [{ maxQueue: 0 }, ['worker pool overflow', 'worker pool overflow', 'worker pool overflow'], 3, 0],
      [{ queueTimeoutMs: 0 }, Array.from({ length: 3 }, () => 'worker pool queue timeout'), 0, 3],
    ]
    for (const [fields, fates, overflows, timeouts] of rows) {
      const { admission, clock, enter } = setup()
      const fn = pooled({ maxWorkers: 2, queueTimeoutMs: 100, ...fields })
      admission.lease(fn, 2)
      const calls = [enter(fn), enter(fn), enter(fn)]
      t.same(
        calls.map(call => call.where),
        ['queued', 'queued', 'queued'],
      )
      clock.advance(500)
      t.same([...calls.map(call => call.refusal), clock.pending], [null, null, null, 0], 'no limit before that')
      admission.settleRecall(fn.key)
      admission.settleRecall(fn.key)
      t.same(
        calls.map(call => call.refusal?.message ?? call.where),
        fates,
      )
      t.match(admission.snapshot(), [{ overflows, queue_timeouts: timeouts }])
      clock.advance(100)
      for (const call of calls) t.ok(call.refusal, 'nobody waits for longer than the queue says')
      t.match(admission.snapshot(), [{ queued: 0 }])
    }
  },
)

t.test('[processes/processes.15] who asks whether there is room asks leased slots back, and is told', async t => {
  const { admission, enter } = setup()
  const fn = makeFn({ policy: { maxConcurrency: 2 } })
  t.ok(admission.canEnter(fn), 'nobody has called it')
  admission.lease(fn, 2)
  let recalls = 0
  admission.onRecall = () => (recalls += 1)
  t.notOk(admission.canEnter(fn))
  t.notOk(admission.canEnter(fn))
  t.equal(recalls, 1, 'once')
  let told = 0
  admission.onceRoom(fn, () => (told += 1))
  admission.endLease(fn.key, 0, 2)
  t.equal(told, 0)
  admission.giveBack(fn.key, 1)
  t.equal(told, 1)
  t.ok(admission.canEnter(fn))
  const call = enter(fn)
  t.notOk(admission.canEnter(fn))
  t.equal(recalls, 1, 'nothing is leased any more')
  admission.onceRoom(fn, () => (told += 1))
  admission.leave(call)
  t.equal(told, 2)
})

t.test(
  '[processes/processes.15] a function that nobody knows any more is no harm to whoever gives its slots back',
  async t => {
    const { admission } = setup()
    for (const act of [
      () => admission.endLease('node/gone@default', 1, 1),
      () => admission.giveBack('node/gone@default', 1),
      () => admission.noteElsewhere('node/gone@default', 1),
      () => admission.settleRecall('node/gone@default'),
    ])
      t.doesNotThrow(act)
    t.same(admission.snapshot(), [])
    const fn = pooled({ maxWorkers: 2 })
    admission.lease(fn, 2)
    admission.adopt(new Map())
    t.equal(admission.snapshot().length, 1, 'its slots are elsewhere')
    admission.endLease(fn.key, 2, 0)
    admission.adopt(new Map())
    t.same(admission.snapshot(), [])
  },
)

t.test('[processes/processes.15] no more calls run than the limit says, whatever two other processes do', async t => {
  for (let seed = 1; seed <= 30; seed++) {
    const random = createRandom(seed)
    const { clock, admission, enter } = setup()
    const maxWorkers = 2 + random(5)
    const fn = pooled({ maxWorkers, maxQueue: random(4), queueTimeoutMs: random(2) * 50 })
    const calls: Call[] = []
    const fronts = [0, 1].map(() => ({ slots: 0, used: 0, isAsked: false, over: 0 }))
    admission.onRecall = () => {
      for (const front of fronts) front.isAsked ||= front.slots > 0
    }
    const answer = (front: (typeof fronts)[number]) => {
      const { slots, used } = front
      Object.assign(front, { slots: 0, used: 0, isAsked: false, over: front.over + used })
      admission.endLease(fn.key, slots - used, used)
    }
    for (let step = 0; step < 500; step++) {
      const front = fronts[random(2)]!
      const action = random(12)
      if (action < 4) calls.push(enter(fn))
      else if (action < 7) admission.leave(calls[random(calls.length)] ?? new Call(fn))
      else if (action < 8 && front.slots === 0) front.slots = admission.lease(fn, 1 + random(4))
      else if (action < 10 && front.used < front.slots && !front.isAsked) front.used += 1
      else if (action < 11 && front.used > 0 && !front.isAsked) front.used -= 1
      else if (front.isAsked) answer(front)
      else if (front.over > 0) {
        front.over -= 1
        admission.giveBack(fn.key, 1)
      } else if (random(4) === 0) admission.settleRecall(fn.key)
      else clock.advance(random(60))
      const own = calls.filter(call => call.where === 'active').length
      const elsewhere = fronts.reduce((sum, { used, over }) => sum + used + over, 0)
      if (own + elsewhere > maxWorkers) t.fail(`seed ${seed}: ${own} and ${elsewhere} run, of ${maxWorkers}`)
    }
    for (const front of fronts) {
      answer(front)
      admission.giveBack(fn.key, front.over)
    }
    const isIdle = () => calls.every(call => call.where === 'outside')
    for (let turn = 0; turn < calls.length && !isIdle(); turn++)
      for (const call of calls) if (call.where === 'active') admission.leave(call)
    t.ok(isIdle(), `seed ${seed}: nobody waits for ever`)
    t.equal(admission.total(), 0, `seed ${seed}: no slot was lost`)
    t.equal(admission.lease(fn, 99), maxWorkers, `seed ${seed}`)
    t.equal(clock.pending, 0, `seed ${seed}: no timer is left`)
  }
})
