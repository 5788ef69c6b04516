import t from 'tap'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import type { GatewayError } from '../../lib/core/errors.ts'
import { Admission, type AdmissionCall } from '../../lib/invocation/admission.ts'
import { Leases, type Lessee } from '../../lib/processes/leases.ts'
import type { ToAcceptor } from '../../lib/processes/link.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeFn } from '../helpers/fn.ts'

class FakeCall implements AdmissionCall {
  readonly fn: FunctionVersion
  phase: AdmissionCall['phase'] = 'new'
  slots: object | null = null
  queuePrevious: AdmissionCall | null = null
  queueNext: AdmissionCall | null = null
  handedAt = 0
  cold = false
  enteredAt = 0
  refuseAt = 0
  fate = ''

  constructor(fn: FunctionVersion) {
    this.fn = fn
  }

  onAdmitted(): void {
    this.fate = 'runs'
  }

  onRefused(error: GatewayError): void {
    this.fate = error.message
  }
}

interface Acceptor extends Lessee {
  told: ToAcceptor[]
}

function createBed(policy: Partial<FunctionVersion['policy']>, isReady = true) {
  const fn = makeFn({ policy })
  const clock = new FakeClock()
  const admission = new Admission(clock)
  admission.adopt(new Map([[fn.key, fn]]))
  const leases = new Leases({
    clock,
    admission,
    processes: 2,
    prepare: async () => (isReady ? { program: null, header: '{}' } : null),
    findFunction: key => (key === fn.key ? fn : null),
  })
  t.teardown(() => leases.close())
  const createFront = (): Acceptor => {
    const told: ToAcceptor[] = []
    return { told, post: message => told.push(message) }
  }
  const enter = (): FakeCall => {
    const call = new FakeCall(fn)
    const outcome = admission.enter(call)
    if (outcome === null) call.fate = 'runs'
    else if (outcome !== 'queued') call.fate = outcome.message
    return call
  }
  return { fn, clock, admission, leases, front: createFront(), createFront, enter }
}

t.test(
  '[processes/processes.14] a lease is a share of the free slots; small limits and functions that are not ready have none',
  async t => {
    for (const [maxConcurrency, taken, slots] of [
      [0, 50, 0],
      [3, 0, null],
      [4, 0, 2],
      [20, 0, 10],
      [20, 15, 5],
      [20, 19, null],
      [20, 20, null],
    ] as const) {
      const { fn, front, leases, admission, enter } = createBed({ maxConcurrency })
      for (let at = 0; at < taken; at++) enter()
      await leases.ask(front, fn.key)
      t.match(
        front.told,
        slots === null ? [] : [{ kind: 'lease', key: fn.key, slots, header: '{}' }],
        `${maxConcurrency}, ${taken} taken`,
      )
      t.equal(front.told.length, slots === null ? 0 : 1)
      t.equal(admission.snapshot()[0]?.active ?? 0, taken, 'what is leased and not used is not shown as running')
      await leases.ask(front, fn.key)
      t.equal(front.told.length, slots === null ? 0 : 1, 'one at a time')
    }
    const { fn, front, leases } = createBed({ maxConcurrency: 20 }, false)
    await leases.ask(front, fn.key)
    await leases.ask(front, 'node/gone@default')
    t.same(front.told, [])
  },
)

t.test(
  '[processes/processes.15] before a call is refused every leased slot is asked back, and no more calls run than the limit says',
  async t => {
    const { fn, front, leases, enter, clock } = createBed({ maxConcurrency: 4 })
    await leases.ask(front, fn.key)
    const [a, b, c, d, e] = [enter(), enter(), enter(), enter(), enter()]
    t.same(
      [a, b, c, d, e].map(call => call.fate),
      ['runs', 'runs', '', '', ''],
    )
    t.match(front.told.splice(0), [
      { kind: 'lease', id: 1, slots: 2 },
      { kind: 'recall', id: 1 },
    ])
    t.equal(front.told.length, 0, 'asked once')
    leases.end(front, 1, 1)
    t.same(
      [c, d, e].map(call => call.fate),
      ['runs', 'concurrency limit reached', 'concurrency limit reached'],
    )
    t.equal(enter().fate, 'concurrency limit reached', 'and at once from now on')
    leases.free(front, 1)
    t.equal(enter().fate, 'runs', 'the call that ran on the lease has ended')
    leases.free(front, 1)
    leases.end(front, 1, 0)
    t.equal(enter().fate, 'concurrency limit reached', 'a slot comes back once')
    await leases.ask(front, fn.key)
    t.same(front.told, [], 'it rests')
    clock.advance(1000)
  },
)

t.test(
  '[processes/processes.15] calls that wait for slots to come back wait in the queue afterwards, as far as it goes',
  async t => {
    const pool = {
      enabled: true,
      minWarm: 0,
      maxWorkers: 4,
      maxQueue: 1,
      queueTimeoutMs: 500,
      queuePollMs: 20,
      idleTtlSeconds: 1,
      overflowStatus: 429 as const,
    }
    const { fn, front, leases, enter, clock, admission } = createBed({ workerPool: pool })
    await leases.ask(front, fn.key)
    const [, , c, d] = [enter(), enter(), enter(), enter()]
    leases.end(front, 1, 2)
    t.same([c.fate, d.fate], ['', 'worker pool overflow'])
    t.match(admission.snapshot(), [{ queued: 1, overflows: 1 }])
    clock.advance(500)
    t.equal(c.fate, 'worker pool queue timeout')
  },
)

t.test(
  '[processes/processes.15] a front that does not answer is not waited for longer than a second, and one that is gone has nothing',
  async t => {
    const { fn, front, leases, enter, clock, createFront } = createBed({ maxConcurrency: 8 })
    const other = createFront()
    await leases.ask(front, fn.key)
    await leases.ask(other, fn.key)
    const late = enter()
    t.equal(late.fate, '')
    t.match([front.told.at(-1)?.kind, other.told.at(-1)?.kind], ['recall', 'recall'])
    leases.end(other, 2, 0)
    t.equal(late.fate, 'runs')
    for (let at = 0; at < 3; at++) t.equal(enter().fate, 'runs')
    const refused = enter()
    t.equal(refused.fate, '')
    clock.advance(1000)
    t.equal(refused.fate, 'concurrency limit reached')
    leases.drop(front)
    for (let at = 0; at < 4; at++) t.equal(enter().fate, 'runs')
    t.equal(enter().fate, 'concurrency limit reached')
    leases.end(front, 1, 0)
    t.equal(enter().fate, 'concurrency limit reached', 'it cannot give back what it has no more')
  },
)

t.test('[processes/processes.15] who waits for room asks leased slots back, too', async t => {
  const { fn, front, leases, admission } = createBed({ maxConcurrency: 4 })
  await leases.ask(front, fn.key)
  const other: Acceptor = { told: [], post: () => {} }
  await leases.ask(other, fn.key)
  t.notOk(admission.canEnter(fn))
  const room = new Promise<void>(resolve => admission.onceRoom(fn, resolve))
  t.equal(front.told.at(-1)?.kind, 'recall')
  leases.end(front, 1, 0)
  await room
  t.ok(admission.canEnter(fn))
})

t.test('[processes/processes.6] calls that run on leases are shown as running', async t => {
  const { fn, front, leases, admission } = createBed({ maxConcurrency: 20 })
  await leases.ask(front, fn.key)
  leases.note(front, [[1, 7]])
  t.match(admission.snapshot(), [{ active: 7 }])
  leases.note(front, [[99, 7]])
  leases.end(front, 1, 7)
  t.match(admission.snapshot(), [{ active: 7 }])
  for (let at = 0; at < 7; at++) leases.free(front, 1)
  t.match(admission.snapshot(), [{ active: 0 }])
})

t.test(
  '[processes/processes.6] calls on the leases of several fronts add up, and those of one that is gone are gone',
  async t => {
    const { fn, front, createFront, leases, admission, enter } = createBed({ maxConcurrency: 20 })
    const other = createFront()
    enter()
    await leases.ask(front, fn.key)
    await leases.ask(other, fn.key)
    leases.note(front, [[1, 7]])
    leases.note(other, [[2, 3]])
    t.match(admission.snapshot(), [{ active: 11 }])
    leases.note(other, [[1, 9]])
    t.match(admission.snapshot(), [{ active: 11 }], 'nobody tells of a lease of another')
    leases.note(front, [[1, 6]])
    t.match(admission.snapshot(), [{ active: 10 }])
    leases.end(front, 1, 6)
    t.match(admission.snapshot(), [{ active: 10 }], 'what still runs counts until it has ended')
    leases.free(front, 1)
    t.match(admission.snapshot(), [{ active: 9 }])
    leases.drop(other)
    t.match(admission.snapshot(), [{ active: 6 }])
    leases.drop(front)
    t.match(admission.snapshot(), [{ active: 1 }])
  },
)

t.test('[processes/processes.6] calls of an unlimited function on leases are shown, too', async t => {
  const { fn, front, leases, admission, enter } = createBed({ maxConcurrency: 0 })
  enter()
  await leases.ask(front, fn.key)
  leases.note(front, [[1, 40]])
  t.match(admission.snapshot(), [{ active: 41 }])
  leases.drop(front)
  t.match(admission.snapshot(), [{ active: 1 }])
})
