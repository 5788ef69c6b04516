import { setImmediate as afterReads } from 'node:timers/promises'
import t from 'tap'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import { GatewayError } from '../../lib/core/errors.ts'
import { STREAM_WINDOW_BYTES } from '../../lib/core/limits.ts'
import type { Processors } from '../../lib/runtime/growth.ts'
import { WorkerSet } from '../../lib/runtime/worker-set.ts'
import { CANCEL_GRACE_MS, PREFETCH, STALL_MS } from '../../lib/runtime/worker.ts'
import { FakeClock } from '../helpers/clock.ts'
import { FakeWorker, SeenCall } from '../helpers/fake-worker.ts'
import { makeFn } from '../helpers/fn.ts'
import { createRandom } from '../helpers/random.ts'

const NOTHING = Buffer.alloc(0)

interface Bed {
  clock: FakeClock
  set: WorkerSet
  all: FakeWorker[]
  failures: string[]
  empty: () => boolean
  call: () => SeenCall
}

interface BedOptions {
  maxWorkers?: number
  minWarm?: number
  timeoutMs?: number
  idleTtlMs?: number
  /** Indexes of the sockets that are up. */
  sockets?: { count: number; up: number[] }
  /** What has changed on disk; null while nothing has. */
  disk?: { change: string | null }
  successor?: () => WorkerSet | null
  processors?: Processors
  /** True while a debugger is attached. */
  isDebugged?: () => boolean
}

function bed(options: BedOptions = {}): Bed {
  const clock = new FakeClock()
  const all: FakeWorker[] = []
  const failures: string[] = []
  let empty = false
  const fn: FunctionVersion = makeFn({ policy: { timeoutMs: options.timeoutMs ?? 1000 } })
  const set = new WorkerSet({
    fn,
    clock,
    maxWorkers: options.maxWorkers ?? 8,
    minWarm: options.minWarm ?? 0,
    idleTtlMs: options.idleTtlMs ?? 60_000,
    sockets: options.sockets ? { count: options.sockets.count, up: () => options.sockets!.up, begin: () => 0 } : null,
    preparer: null,
    changeOf: () => options.disk?.change ?? null,
    ...(options.successor && { successor: options.successor }),
    ...(options.processors && { processors: options.processors }),
    ...(options.isDebugged && { debuggers: { holds: options.isDebugged, announce: async () => {} } }),
    spawn: owner => {
      const worker = new FakeWorker(owner)
      const { up } = options.sockets ?? { up: [1] }
      if (options.processors) worker.process = all.length + 1
      worker.socketIndex = [...up].sort((a, b) => owner.loadOf(a) - owner.loadOf(b))[0]!
      all.push(worker)
      return worker
    },
    onLog: (_fn, stream, text) => failures.push(`${stream} ${text}`),
    onFailure: (_fn, error) => failures.push(error.message),
    onEmpty: () => {
      empty = true
    },
  })
  const call = (): SeenCall => {
    const made = new SeenCall(fn)
    set.dispatch(made)
    return made
  }
  return { clock, set, all, failures, empty: () => empty, call }
}

const crash = { reason: 'exit code 1', unexpected: true, complete: true }

t.test('[runtime/worker-set.1] idle first, then in order of arrival', async t => {
  const { all, call, clock } = bed({ maxWorkers: 2 })
  const calls = [call(), call(), call(), call()]
  const first = all[0]!
  first.handleReady(1)
  t.same(first.sent, [calls[0]], 'one at a time')
  clock.advance(4)
  t.equal(all.length, 2)
  all[1]!.handleReady(1)
  t.same(all[1]!.sent, [calls[1]])
  all[1]!.reply(0)
  first.reply(0)
  t.same([first.sent[1], all[1]!.sent[1]], [calls[3], calls[2]], 'the one that waits longest goes first')
  t.same(calls[0]!.seen, ['reply r0'])
})

t.test(
  '[runtime/worker-set.1, runtime/worker-set.13] a call goes to a worker that has started, not to one that starts',
  async t => {
    const { all, call, set } = bed({ minWarm: 2, maxWorkers: 2 })
    set.warm(2)
    t.equal(set.isWarm, false, 'both start')
    all[1]!.handleReady(1)
    t.equal(set.isWarm, true)
    const [first, second] = [call(), call()]
    t.same([all[0]!.sent, all[1]!.sent], [[second], [first]], 'the one that starts is the second choice')
  },
)

t.test('[runtime/worker-set.2] the first call travels behind the start', async t => {
  const { all, call, clock } = bed({ timeoutMs: 100 })
  const only = call()
  t.equal(all[0]!.sent.length, 1, 'sent before the worker is ready')
  clock.advance(5000)
  t.same(only.seen, [], 'loading is not execution time')
  all[0]!.handleReady(0)
  clock.advance(100)
  t.match(only.seen, [/^error 504/])
})

t.test('[runtime/worker-set.3] workers double while calls keep waiting, up to the limit', async t => {
  const { all, call, clock } = bed({ maxWorkers: 5 })
  for (let i = 0; i < 20; i++) call()
  const counts: number[] = []
  for (let i = 0; i < 6; i++) {
    for (const worker of all) worker.handleReady(1)
    counts.push(all.length)
    clock.advance(4)
  }
  t.same(counts, [1, 2, 4, 5, 5, 5])
  t.ok(
    all.every(worker => worker.sent.length === 1),
    'each took one',
  )
  const slow = bed({ maxWorkers: 5 })
  slow.call()
  slow.call()
  slow.clock.advance(200)
  t.equal(slow.all.length, 1, 'a worker that is starting is help on its way')
})

/** Two processors, of which each worker uses its share. */
function twoProcessors(clockOf: () => FakeClock, share: number): Processors {
  return {
    count: 2,
    read: async pids =>
      new Map(pids.map(pid => [pid, { ranMs: clockOf().monotonic() * share, queuedMs: 0, isRunnable: false }])),
  }
}

t.test(
  '[runtime/worker-set.23] a function that computes gets a worker for each processor, one that waits gets more',
  async t => {
    for (const [share, most] of [
      [1, 2],
      [0, 8],
    ] as const) {
      const made: Bed = bed({ processors: twoProcessors(() => made.clock, share) })
      const { all, call, clock, set } = made
      for (let i = 0; i < 20; i++) call()
      for (let i = 0; i < 100; i++) {
        for (const worker of all) worker.handleReady(1)
        clock.advance(4)
        await afterReads()
      }
      t.equal(all.length, most, `${share} of a processor`)
      t.same(set.growth, { decision: share === 1 ? 'computing' : 'waiting', processors: 2 })
    }
  },
)

t.test(
  '[runtime/worker-set.11, runtime/worker-set.23] a worker that computes for a client that left gives way',
  async t => {
    const made: Bed = bed({ processors: twoProcessors(() => made.clock, 1) })
    const { all, call, clock } = made
    const calls = [call(), call(), call()]
    for (let i = 0; i < 30; i++) {
      for (const worker of all) worker.handleReady(1)
      clock.advance(4)
      await afterReads()
    }
    t.equal(all.length, 2)
    calls[0]!.host!.abandon(calls[0]!)
    for (let i = 0; i < 50 && !all[0]!.log.includes('kill'); i++) {
      clock.advance(4)
      await afterReads()
    }
    t.ok(all[0]!.log.includes('kill'))
    t.notOk(all[1]!.log.includes('kill'))
  },
)

t.test('[runtime/worker-set.4] calls are sent ahead only to a worker that has proven fast', async t => {
  const { all, call } = bed({ maxWorkers: 1 })
  call()
  const worker = all[0]!
  worker.handleReady(1)
  worker.reply(0)
  for (let i = 1; i < PREFETCH.afterFastCalls; i++) {
    call()
    call()
    t.equal(worker.inflight.size, 1, `after ${i} fast calls`)
    worker.reply(worker.sent.length - 1)
    if (worker.inflight.size > 0) worker.reply(worker.sent.length - 1)
    if (worker.sent.length >= PREFETCH.afterFastCalls) break
  }
  for (let i = 0; i < PREFETCH.calls * 2; i++) call()
  const ahead = worker.inflight.size
  t.ok(ahead > 2 && ahead <= PREFETCH.calls, `${ahead} at once`)
})

t.test('[runtime/worker-set.4] as many as fit in two milliseconds, none when a call takes longer than one', async t => {
  for (const [callMs, most] of [
    [0.098, 20],
    [0.45, 4],
    [0.9, 2],
    [1.5, 1],
  ] as const) {
    const { all, call, clock } = bed({ maxWorkers: 1 })
    call()
    const worker = all[0]!
    worker.handleReady(1)
    for (let i = 0; i < 3 * PREFETCH.afterFastCalls; i++) {
      clock.advance(callMs)
      worker.reply(worker.sent.length - worker.inflight.size)
      if (worker.inflight.size === 0) call()
    }
    for (let i = 0; i < PREFETCH.calls; i++) call()
    t.equal(worker.inflight.size, most, `${callMs} ms a call`)
    const open = []
    for (let i = 0; i <= most / 2; i++) {
      clock.advance(callMs)
      worker.reply(worker.sent.length - worker.inflight.size)
      open.push(worker.inflight.size)
    }
    if (most === 20) t.same(open, [19, 18, 17, 16, 15, 14, 13, 12, 11, 20, 19], 'more when half of them are answered')
    for (let i = 0; i < most; i++) {
      clock.advance(6)
      worker.reply(worker.sent.length - worker.inflight.size)
    }
    t.equal(worker.inflight.size, 1, 'a slow one: nothing more is sent ahead')
  }
})

t.test('[runtime/worker-set.4] nothing is sent behind a call that already takes long', async t => {
  const { all, call, clock } = bed({ maxWorkers: 1 })
  call()
  const worker = all[0]!
  worker.handleReady(1)
  for (let i = 0; i < PREFETCH.afterFastCalls; i++) {
    worker.reply(worker.sent.length - 1)
    call()
  }
  clock.advance(5)
  call()
  t.equal(worker.inflight.size, 1)
})

t.test('[runtime/worker-set.5] a silent multiplexing worker gets no call until it answers a ping', async t => {
  const { all, call, clock } = bed({ maxWorkers: 2 })
  call()
  const stuck = all[0]!
  stuck.handleReady(0)
  call()
  t.equal(stuck.sent.length, 2, 'takes many')
  clock.advance(STALL_MS + 1)
  const third = call()
  t.same([stuck.sent.length, stuck.log], [2, ['ping']])
  clock.advance(STALL_MS)
  t.equal(all.length, 2, 'another worker is started')
  all[1]!.handleReady(0)
  t.same(all[1]!.sent, [third])
  const alive = bed()
  alive.call()
  alive.all[0]!.handleReady(0)
  alive.clock.advance(STALL_MS + 1)
  alive.call()
  alive.all[0]!.handlePong()
  t.equal(alive.all[0]!.sent.length, 2, 'a sign of life earns the call')
})

t.test('[runtime/worker-set.6, runtime/worker-set.7] timeout: 504, then the worker is stopped for certain', async t => {
  const one = bed({ timeoutMs: 100 })
  const late = one.call()
  one.all[0]!.handleReady(1)
  one.clock.advance(99)
  t.same(late.seen, [])
  one.clock.jumpWall(3_600_000)
  one.clock.advance(1)
  t.same(late.seen, ['error 504 runtime timeout after 100 ms'])
  t.same(one.all[0]!.log, ['kill'], 'at once')

  const many = bed({ timeoutMs: 100 })
  const a = many.call()
  many.all[0]!.handleReady(0)
  many.clock.advance(20)
  const b = many.call()
  many.clock.advance(80)
  t.same([a.seen, many.all[0]!.log], [['error 504 runtime timeout after 100 ms'], ['cancel 0']])
  t.same(b.seen, [])
  const obedient = bed({ timeoutMs: 100 })
  obedient.call()
  obedient.all[0]!.handleReady(0)
  obedient.clock.advance(100)
  obedient.all[0]!.handleEnd(1, null)
  obedient.clock.advance(1000)
  t.same(obedient.all[0]!.log, ['cancel 0'], 'one that obeys lives')
  many.clock.advance(CANCEL_GRACE_MS)
  t.ok(many.all[0]!.log.includes('kill'), 'one that does not is killed')
  many.all[0]!.handleClosed({ reason: 'killed', unexpected: false, complete: true })
  t.match(b.seen, [/^error 50[34]/])
  t.equal(a.seen.length, 1)
})

t.test('[runtime/worker-set.17] nobody is late because the gateway itself stood still', async t => {
  const { clock, all, call } = bed({ timeoutMs: 100 })
  const answered = call()
  all[0]!.handleReady(0)
  const silent = call()
  clock.stall(5000)
  clock.advance(0)
  t.same([answered.seen, silent.seen], [[], []], 'what lies unread comes first')
  all[0]!.reply(0)
  clock.advance(1)
  t.same([answered.seen, silent.seen], [['reply r0'], ['error 504 runtime timeout after 100 ms']])
})

t.test('[runtime/worker-set.18] a stream far beyond its window ends its worker', async t => {
  const { clock, all, call } = bed()
  const streamed = call()
  const worker = all[0]!
  worker.handleReady(1)
  worker.handleReply(streamed.wireId, 'head', NOTHING, true)
  const piece = Buffer.alloc(STREAM_WINDOW_BYTES)
  for (let i = 0; i < 10; i++) {
    worker.handleChunk(streamed.wireId, piece)
    worker.grant(streamed, piece.length)
  }
  worker.handleChunk(streamed.wireId, piece)
  worker.handleChunk(streamed.wireId, piece)
  t.notOk(worker.log.includes('kill'))
  worker.handleChunk(streamed.wireId, piece)
  t.ok(worker.log.includes('kill'))
  worker.handleClosed({ ...crash, complete: false })
  t.equal(streamed.seen.at(-1), 'end 503')
  t.equal(clock.pending, 0)
})

/** A worker that has calls sent ahead. */
function ahead(): Bed & { worker: FakeWorker; calls: SeenCall[] } {
  const made = bed({ maxWorkers: 2, timeoutMs: 100 })
  made.call()
  const worker = made.all[0]!
  worker.handleReady(1)
  for (let i = 0; i < PREFETCH.afterFastCalls; i++) {
    worker.reply(worker.sent.length - 1)
    if (i < PREFETCH.afterFastCalls - 1) made.call()
  }
  const calls = [made.call(), made.call(), made.call()]
  return { ...made, worker, calls }
}

t.test('[runtime/worker-set.8] calls that were not begun move to another worker, in order', async t => {
  const { worker, calls, clock, all } = ahead()
  t.equal(worker.inflight.size, 3)
  clock.advance(100)
  t.same(calls[0]!.seen, ['error 504 runtime timeout after 100 ms'])
  worker.handleClosed({ reason: 'killed', unexpected: false, complete: true })
  t.equal(all.length, 2)
  all[1]!.handleReady(1)
  all[1]!.reply(0)
  all[1]!.reply(1)
  t.same(all[1]!.sent, [calls[1], calls[2]])
  t.same([calls[1]!.seen, calls[2]!.seen], [['reply r0'], ['reply r1']])
})

t.test('[runtime/worker-set.8] a reply on its way at the kill means that the next call had begun', async t => {
  const { worker, calls, clock, all } = ahead()
  clock.advance(100)
  worker.reply(worker.sent.indexOf(calls[0]!))
  worker.handleClosed({ reason: 'killed', unexpected: false, complete: true })
  t.match(calls[1]!.seen, [/^error 503/])
  t.same(calls[0]!.seen, ['error 504 runtime timeout after 100 ms'], 'the late reply is dropped')
  all[1]!.handleReady(1)
  t.same(all[1]!.sent, [calls[2]])
})

t.test('[runtime/worker-set.8] an error that ends the worker lets the calls behind it move', async t => {
  const { worker, calls, all } = ahead()
  worker.handleLastError(calls[0]!.wireId, new GatewayError('HANDLER_FAILED', 'exit'))
  t.same(calls[0]!.seen, ['error 500 exit'])
  t.same(worker.log, ['kill'])
  all[1]!.handleReady(1)
  all[1]!.reply(0)
  all[1]!.reply(1)
  t.same([calls[1]!.seen, calls[2]!.seen], [['reply r0'], ['reply r1']])
})

t.test(
  '[runtime/worker-set.9] an error that ends a worker of many calls is only the error of its own call',
  async t => {
    const { all, call } = bed()
    const [own, other] = [call(), call()]
    all[0]!.handleReady(0)
    const exit = new GatewayError('HANDLER_FAILED', 'exit')
    all[0]!.handleLastError(all[0]!.sent[0]!.wireId, exit)
    t.same(own!.seen, ['error 500 exit'])
    t.same(other!.seen, ['error 503 runtime worker ended: another call ended it'])
  },
)

t.test('[runtime/worker-set.8] when replies may be lost nothing is run again', async t => {
  const { worker, calls, all } = ahead()
  worker.handleClosed({ reason: 'connection failed', unexpected: true, complete: false })
  for (const call of calls) t.match(call.seen, [/^error 503/])
  t.equal(all.length, 1)
})

t.test('[runtime/worker-set.9] a crash answers its own call 503 and the next call works', async t => {
  const { all, call, failures } = bed()
  const own = call()
  all[0]!.handleReady(1)
  all[0]!.handleClosed(crash)
  t.same(own.seen, ['error 503 runtime worker ended: exit code 1'])
  t.same(failures, ['runtime worker ended: exit code 1'])
  const next = call()
  t.equal(all.length, 2)
  all[1]!.handleReady(1)
  all[1]!.reply(0)
  t.same(next.seen, ['reply r0'])
})

t.test('[runtime/worker-set.10] load errors reach every waiting call, and a crash loop backs off', async t => {
  const { all, call, clock, set } = bed()
  const broken = new GatewayError('LOAD_FAILED', 'no handler')
  const calls = [call(), call()]
  all[0]!.handleLoadError(broken)
  t.same(
    calls.map(one => one.seen),
    [['error 500 no handler'], ['error 500 no handler']],
  )
  for (let i = 1; i < 3; i++) {
    call()
    all[i]!.handleLoadError(broken)
  }
  t.equal(set.problem, 'no handler')
  const blocked = call()
  t.same([all.length, blocked.seen], [3, ['error 500 no handler']], 'no start while delayed')
  clock.advance(101)
  const again = call()
  t.equal(all.length, 4)
  all[3]!.handleReady(1)
  all[3]!.reply(0)
  t.same([again.seen, set.problem], [['reply r0'], null])
})

t.test('[runtime/worker-set.11] a client that leaves frees its place', async t => {
  const { all, call, clock } = bed({ maxWorkers: 1, timeoutMs: 100 })
  const running = call()
  const waiting = call()
  const last = call()
  all[0]!.handleReady(1)
  waiting.withdraw()
  running.withdraw()
  t.same(all[0]!.log, ['cancel 0'])
  all[0]!.reply(0)
  t.same(all[0]!.sent, [running, last])
  last.withdraw()
  clock.advance(100)
  t.ok(all[0]!.log.includes('kill'), 'one that does not end is ended at its deadline')
  t.same([running.seen, waiting.seen, last.seen], [[], [], []])
})

t.test('[runtime/worker-set.12] the timeout of a stream bounds the gap', async t => {
  const { all, call, clock } = bed({ timeoutMs: 100 })
  const stream = call()
  const worker = all[0]!
  worker.handleReady(0)
  worker.handleReply(1, 'h', NOTHING, true)
  for (let i = 0; i < 5; i++) {
    clock.advance(90)
    worker.handleChunk(1, Buffer.alloc(3))
    worker.grant(stream, 3)
  }
  t.same(stream.seen, ['stream h', 'chunk 3', 'chunk 3', 'chunk 3', 'chunk 3', 'chunk 3'])
  clock.advance(100)
  t.equal(stream.seen.at(-1), 'end 504')
})

t.test('[runtime/worker-set.12] time in which the worker waits for its client does not count', async t => {
  const { all, call, clock } = bed({ timeoutMs: 100 })
  const stream = call()
  const worker = all[0]!
  worker.handleReady(0)
  worker.handleReply(1, 'h', NOTHING, true)
  worker.handleChunk(1, Buffer.alloc(200_000))
  clock.advance(60_000)
  t.equal(stream.seen.at(-1), 'chunk 200000', 'the client took nothing')
  worker.grant(stream, 50_000)
  clock.advance(60_000)
  t.equal(stream.seen.at(-1), 'chunk 200000', 'too little for the next piece')
  worker.grant(stream, 150_000)
  clock.advance(99)
  t.equal(stream.seen.at(-1), 'chunk 200000', 'from here on the worker is waited for')
  clock.advance(1)
  t.equal(stream.seen.at(-1), 'end 504')
  const left = call()
  worker.handleReply(2, 'h', Buffer.alloc(200_000), true)
  worker.abandon(left)
  clock.advance(100)
  t.ok(worker.inflight.late > 0, 'a client that left is not waited for')
})

t.test('[runtime/worker-set.13, scheduler/keep-warm.5] idle workers end, down to min_warm', async t => {
  const { all, call, clock, set } = bed({ minWarm: 1, idleTtlMs: 1000 })
  set.warm(1)
  t.equal(all.length, 1)
  all[0]!.handleReady(1)
  call()
  call()
  clock.advance(4)
  all[1]!.handleReady(1)
  all[0]!.reply(0)
  all[1]!.reply(0)
  clock.advance(1001)
  t.same([all[0]!.log, all[1]!.log], [[], ['stop']])
  t.equal(set.workers.length, 1)
  all[0]!.kill()
  all[0]!.handleClosed({ reason: 'killed', unexpected: false, complete: true })
  t.equal(all.length, 3, 'a killed one is replaced')
})

t.test('[runtime/worker-set.14] a retired set finishes what it has', async t => {
  const { all, call, set, empty } = bed()
  const running = call()
  all[0]!.handleReady(1)
  set.retire()
  t.same([all[0]!.log, empty()], [[], false])
  all[0]!.reply(0)
  t.same([running.seen, all[0]!.log], [['reply r0'], ['stop']])
  all[0]!.handleClosed({ reason: 'ended', unexpected: false, complete: true })
  t.ok(empty())
})

t.test('[runtime/worker-set.15] late, double and unknown frames are dropped', async t => {
  const { all, call } = bed()
  const own = call()
  const worker = all[0]!
  worker.handleReady(0)
  worker.reply(0)
  worker.reply(0)
  worker.handleReply(99, 'x', NOTHING, false)
  worker.handleChunk(1, NOTHING)
  worker.handleEnd(1, null)
  worker.handleError(77, new GatewayError('INTERNAL', 'x'))
  t.same(own.seen, ['reply r0'])
})

t.test('[runtime/worker-set.8, runtime/worker-set.15] every call is answered once, whatever happens', async t => {
  const random = createRandom(7)
  for (let round = 0; round < 300; round++) {
    const { all, call, clock, set } = bed({ maxWorkers: 3, timeoutMs: 50 })
    const calls: SeenCall[] = []
    const left = new Set<SeenCall>()
    for (let step = 0; step < 60; step++) {
      const worker = all[random(Math.max(1, all.length))]
      const dice = random(12)
      if (dice < 4) calls.push(call())
      else if (dice === 4) clock.advance(random(20))
      else if (dice === 5 && calls.length > 0) {
        const gone = calls[random(calls.length)]!
        if (gone.seen.length === 0) left.add(gone)
        gone.withdraw()
      } else if (worker === undefined) continue
      else if (dice === 6)
        worker.handleClosed({ reason: 'x', unexpected: !worker.log.includes('kill'), complete: true })
      else if (dice === 7) worker.handleLoadError(new GatewayError('LOAD_FAILED', 'x'))
      else if (worker.state === 'starting') worker.handleReady(round % 3)
      else if (worker.inflight.size > 0) {
        const first = worker.inflight.first!.wireId
        if (dice === 8) worker.handleError(first, new GatewayError('HANDLER_FAILED', 'x'))
        else worker.handleReply(first, 'ok', NOTHING, false)
      }
    }
    set.close()
    for (const worker of all) worker.handleClosed({ reason: 'end', unexpected: false, complete: true })
    for (const one of calls) {
      const want = left.has(one) ? 0 : 1
      if (one.seen.length !== want) t.fail(`round ${round}: ${one.seen.length} answers: ${one.seen.join()}`)
    }
  }
  t.pass('300 random lives')
})

t.test('[runtime/worker-set.16] several sockets take calls in turn', async t => {
  const sockets = { count: 3, up: [1, 2, 3] }
  const { all, call, clock } = bed({ maxWorkers: 3, sockets })
  const next = (): number => {
    const made = call()
    const worker = all.find(one => one.inflight.first === made)!
    worker.reply(worker.sent.indexOf(made))
    return worker.socketIndex
  }
  const first = call()
  t.equal(first.cold, true)
  t.same(
    all.map(worker => worker.socketIndex),
    [1, 2, 3],
    'the first call gives every socket a worker',
  )
  for (const worker of all) worker.handleReady(1)
  all.find(worker => worker.sent.includes(first))!.reply(0)
  t.same([next(), next(), next(), next(), next(), next()], [2, 3, 1, 2, 3, 1])
  const long = [call(), call()]
  t.equal(long[0]!.cold, false)
  t.same([next(), next()], [1, 1], 'a busy one is passed over')
  t.equal(long.length, 2)
  all[1]!.reply(all[1]!.sent.length - 1)
  all[2]!.reply(all[2]!.sent.length - 1)
  // Its daemon died: the others go on, and it has its turn again when it is back.
  all[1]!.handleClosed(crash)
  sockets.up = [1, 3]
  clock.advance(300)
  t.same([next(), next(), next()], [3, 1, 3])
  t.equal(all.length, 3)
  sockets.up = [1, 2, 3]
  clock.advance(300)
  next()
  t.equal(all.length, 4)
  all[3]!.handleReady(1)
  t.same([next(), next(), next()].sort(), [1, 2, 3])
})

t.test('[runtime/worker-set.16] a socket that comes back takes the place of a spare worker', async t => {
  const sockets = { count: 2, up: [1] }
  const { all, call, clock, set } = bed({ maxWorkers: 2, sockets })
  call()
  all[0]!.handleReady(1)
  call()
  clock.advance(4)
  all[1]!.handleReady(1)
  t.same(
    all.map(worker => [worker.socketIndex, worker.inflight.size]),
    [
      [1, 1],
      [1, 1],
    ],
  )
  sockets.up = [1, 2]
  clock.advance(300)
  call()
  t.equal(all.length, 2, 'not while all are busy')
  for (const worker of all) worker.reply(0)
  all[0]!.reply(all[0]!.sent.length - 1)
  clock.advance(300)
  call()
  t.equal(all.length, 3)
  t.equal(set.workers.length, 2)
  t.equal(all[2]!.socketIndex, 2)
})

t.test('[runtime/worker-set.7] nothing is sent to a worker that is about to be killed', async t => {
  const { all, call, clock } = bed({ timeoutMs: 100, maxWorkers: 2 })
  call()
  all[0]!.handleReady(0)
  clock.advance(95)
  all[0]!.handlePong()
  clock.advance(5)
  t.same(all[0]!.log, ['cancel 0'])
  const next = call()
  t.equal(all[0]!.sent.length, 1)
  clock.advance(STALL_MS)
  t.equal(all.length, 2, 'another one starts')
  all[1]!.handleReady(0)
  t.same(all[1]!.sent, [next])
  clock.advance(CANCEL_GRACE_MS)
  t.same(all[0]!.log, ['cancel 0', 'kill'])
  all[1]!.reply(0)
  t.same(next.seen, ['reply r0'])
})

t.test('[runtime/worker-set.11] a client that left harms no other call of a worker that takes many', async t => {
  const { all, call, clock } = bed({ timeoutMs: 100, maxWorkers: 1 })
  const left = call()
  all[0]!.handleReady(0)
  clock.advance(60)
  all[0]!.handlePong()
  const other = call()
  left.withdraw()
  clock.advance(40)
  t.same(all[0]!.log, ['cancel 0'], 'past its deadline, while another call runs')
  const waiting = call()
  t.equal(all[0]!.sent.length, 2, 'and nothing more is sent')
  all[0]!.reply(1)
  t.same(other.seen, ['reply r1'])
  t.same(all[0]!.log, ['cancel 0', 'kill'], 'now it works for nobody')
  all[0]!.handleClosed({ reason: 'killed', unexpected: false, complete: true })
  all[1]!.handleReady(0)
  t.same(all[1]!.sent, [waiting])

  const obedient = bed({ timeoutMs: 100, maxWorkers: 1 })
  obedient.call().withdraw()
  obedient.all[0]!.handleReady(0)
  obedient.clock.advance(50)
  obedient.all[0]!.handlePong()
  const long = obedient.call()
  obedient.clock.advance(50)
  obedient.all[0]!.handleError(1, new GatewayError('INTERNAL', 'canceled'))
  obedient.all[0]!.reply(1)
  t.same([obedient.all[0]!.log, long.seen], [['cancel 0'], ['reply r1']])
})

t.test('[runtime/worker-set.11] a call that waits takes the place of one whose client left', async t => {
  for (const maxInflight of [1, 0]) {
    const { all, call, clock } = bed({ timeoutMs: 60_000, maxWorkers: 1 })
    const left = call()
    all[0]!.handleReady(maxInflight)
    clock.advance(30)
    left.withdraw()
    if (maxInflight === 0) {
      // Stuck in a loop: it does not answer the ping.
      call()
      t.ok(all[0]!.log.includes('ping'))
    } else {
      call()
    }
    clock.advance(CANCEL_GRACE_MS - 10)
    t.notOk(all[0]!.log.includes('kill'), 'not before it had time to obey')
    clock.advance(2 * STALL_MS)
    t.ok(all[0]!.log.includes('kill'))
    t.equal(all.length, 2)
    t.equal(all[1]!.sent.length, 1)
  }
  const idle = bed({ timeoutMs: 60_000, maxWorkers: 1 })
  const alone = idle.call()
  idle.all[0]!.handleReady(1)
  alone.withdraw()
  idle.clock.advance(1000)
  t.same(idle.all[0]!.log, ['cancel 0'], 'left alone while nobody waits')
})

t.test(
  '[runtime/worker-set.13] warm workers come back by themselves, after a crash loop and after a start that failed',
  async t => {
    const { all, set, clock } = bed({ minWarm: 1 })
    set.warm(1)
    for (let i = 0; i < 5; i++) {
      all.at(-1)!.handleReady(1)
      all.at(-1)!.handleClosed(crash)
      clock.advance(0)
    }
    t.equal(set.workers.length, 0)
    t.ok(set.problem !== null, 'starts are delayed')
    const before = all.length
    clock.advance(5000)
    t.equal(all.length, before + 1)
    set.handleStartFailure(all.at(-1)!, new GatewayError('RUNTIME_DOWN', 'runtime down'))
    t.equal(set.workers.length, 0)
    clock.advance(1000)
    t.equal(set.workers.length, 1)
    all.at(-1)!.handleReady(1)
    all.at(-1)!.handleClosed(crash)
    set.retire()
    const last = all.length
    clock.advance(60_000)
    t.equal(all.length, last, 'not for a function that is gone')
  },
)

const cut = new GatewayError('LOAD_FAILED', 'unexpected end of file')

t.test('[runtime/worker-set.19] calls of a function whose file is half saved wait for the whole one', async t => {
  const disk = { change: null as string | null }
  const { all, call, clock, failures, set } = bed({ disk, minWarm: 1 })
  const first = call()
  const second = call()
  disk.change = 'empty'
  all[0]!.handleLoadError(cut)
  const third = call()
  set.warm(1)
  t.same([all.length, first.phase, set.problem, failures], [1, 'waiting', null, []], 'nothing starts or fails yet')
  clock.advance(100)
  t.equal(all.length, 2)
  all[1]!.handleReady(0)
  t.same(all[1]!.sent, [first, second, third], 'in their order')
  t.same([first.seen, second.seen], [[], []])
})

t.test('[runtime/worker-set.19] a file that stays as it is was meant so: one wait, then the failure', async t => {
  const disk = { change: 'broken' }
  const { all, call, clock, failures } = bed({ disk })
  const first = call()
  all[0]!.handleLoadError(cut)
  clock.advance(100)
  all[1]!.handleLoadError(cut)
  t.same([first.seen, failures], [['error 500 unexpected end of file'], ['unexpected end of file']])
  const next = call()
  all[2]!.handleLoadError(cut)
  t.same(next.seen, ['error 500 unexpected end of file'], 'no call waits for it again')
  t.equal(clock.pending, 0)
})

t.test('[runtime/worker-set.19] a worker that serves takes the calls of one that cannot load any more', async t => {
  const disk = { change: null as string | null }
  const { all, call, clock } = bed({ disk, maxWorkers: 2 })
  const calls = [call(), call()]
  all[0]!.handleReady(1)
  clock.advance(4)
  const [, moved] = calls
  t.same(all[1]!.sent, [moved])
  disk.change = 'empty'
  all[1]!.handleLoadError(cut)
  t.same(moved!.seen, [])
  all[0]!.reply(0)
  t.same(all[0]!.sent, calls)
  const late = call()
  all[0]!.reply(1)
  t.same([all[0]!.sent.at(-1), all.length], [late, 2])
})

t.test(
  '[runtime/worker-set.19, runtime/worker-set.14] a newer version takes what waits, held or failed later',
  async t => {
    const disk = { change: 'empty' as string | null }
    const newer = bed()
    const held = bed({ disk })
    const call = held.call()
    held.all[0]!.handleLoadError(cut)
    t.same(held.set.takeHeld(), [call])
    t.same(held.set.takeHeld(), [])
    t.equal(held.clock.pending, 0)
    const older = bed({ successor: () => newer.set })
    const late = older.call()
    older.set.retire()
    older.all[0]!.handleLoadError(cut)
    t.same([late.seen, newer.all[0]!.sent, older.empty()], [[], [late], true])
    const deleted = bed({ successor: () => null })
    const last = deleted.call()
    deleted.set.retire()
    deleted.all[0]!.handleLoadError(cut)
    t.same([last.seen, deleted.empty()], [['error 500 unexpected end of file'], true])
  },
)

t.test('[runtime/worker-set.19] what a worker that had started says last is the failure of its calls', async t => {
  const { all, call } = bed({ disk: { change: 'empty' } })
  const running = call()
  all[0]!.handleReady(1)
  all[0]!.handleLoadError(cut)
  t.same(running.seen, ['error 500 unexpected end of file'], 'it may have begun')
})

t.test('[runtime/worker-set.20] a call whose handler must end is at its deadline when it is withdrawn', async t => {
  const one = bed({ timeoutMs: 60_000, maxWorkers: 1 })
  const running = one.call()
  running.mustEnd = true
  one.all[0]!.handleReady(1)
  running.withdraw()
  one.clock.advance(1)
  t.same(one.all[0]!.log, ['cancel 0', 'kill'], 'one at a time: it cannot hear')

  const many = bed({ timeoutMs: 60_000, maxWorkers: 1 })
  const deaf = many.call()
  deaf.mustEnd = true
  many.all[0]!.handleReady(0)
  deaf.withdraw()
  many.clock.advance(CANCEL_GRACE_MS - 1)
  t.same(many.all[0]!.log, ['cancel 0'])
  many.clock.advance(1)
  t.same(many.all[0]!.log, ['cancel 0', 'kill'], 'it did not obey')

  const shared = bed({ timeoutMs: 60_000, maxWorkers: 1 })
  const left = shared.call()
  left.mustEnd = true
  shared.all[0]!.handleReady(0)
  shared.all[0]!.handlePong()
  const other = shared.call()
  left.withdraw()
  shared.clock.advance(CANCEL_GRACE_MS)
  t.same(shared.all[0]!.log, ['cancel 0'], 'another call goes on')
  shared.all[0]!.reply(1)
  t.same([shared.all[0]!.log, other.seen], [['cancel 0', 'kill'], ['reply r1']])

  const early = bed({ timeoutMs: 60_000, maxWorkers: 1 })
  const unsent = early.call()
  unsent.mustEnd = true
  unsent.withdraw()
  early.all[0]!.handleReady(1)
  early.clock.advance(CANCEL_GRACE_MS)
  t.same(early.all[0]!.log, ['cancel 0', 'kill'], 'withdrawn before it began, and begun all the same')
})

t.test(
  '[runtime/debuggers.3] while a debugger is attached no call is late, no worker idles out and none is added; afterwards the timeout starts again',
  async t => {
    let isDebugged = true
    const { all, call, clock } = bed({ isDebugged: () => isDebugged, timeoutMs: 100, idleTtlMs: 1000 })
    const stopped = call()
    all[0]!.handleReady(1)
    const waits = call()
    clock.advance(60_000)
    t.same([stopped.phase, waits.phase, all.length, all[0]!.log], ['running', 'waiting', 1, []])
    isDebugged = false
    clock.advance(99)
    t.equal(stopped.phase, 'running')
    clock.advance(200)
    t.same(stopped.seen, ['error 504 runtime timeout after 100 ms'])
    isDebugged = true
    const last = all.at(-1)!
    last.handleReady(1)
    last.handleReply(last.inflight.first!.wireId, '{}', NOTHING, false)
    clock.advance(60_000)
    t.notSame(last.log.at(-1), 'stop')
    isDebugged = false
    clock.advance(2000)
    t.equal(last.log.at(-1), 'stop')
  },
)
