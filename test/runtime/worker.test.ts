import t from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import { STREAM_WINDOW_BYTES } from '../../lib/core/limits.ts'
import type { RuntimeCall } from '../../lib/runtime/call.ts'
import { CANCEL_GRACE_MS, FAST_CALL_MS, PREFETCH, STALL_MS, type WorkerOwner } from '../../lib/runtime/worker.ts'
import { FakeClock } from '../helpers/clock.ts'
import { FakeWorker, SeenCall } from '../helpers/fake-worker.ts'
import { makeFn } from '../helpers/fn.ts'

/** A worker whose set only writes down what it is told. */
function makeBed(maxInflight = 1, timeoutMs = 1000) {
  const clock = new FakeClock()
  const told: string[] = []
  const unbegun: RuntimeCall[] = []
  const fn = makeFn({ policy: { timeoutMs } })
  const owner: WorkerOwner = {
    fn,
    clock,
    answers: 0,
    loadOf: () => 0,
    onFiles: files => told.push(`files ${files}`),
    onLog: (stream, text) => told.push(`${stream} ${text}`),
    forget: () => told.push('forget'),
    handleSuccess: () => {},
    handleRoom: () => {},
    handleAbandoned: () => told.push('abandoned'),
    handleLoadFailure: (_worker, error, calls) => {
      told.push(`load ${error.message}`)
      unbegun.push(...calls)
    },
    handleWorkerEnd: (unexpected, error, calls) => {
      told.push(`end ${unexpected} ${error.message}`)
      unbegun.push(...calls)
    },
    handleStartFailure: () => told.push('no start'),
  }
  const worker = new FakeWorker(owner)
  const accept = (): SeenCall => {
    const call = new SeenCall(fn)
    worker.accept(call, clock.monotonic())
    return call
  }
  const ready = () => worker.handleReady(maxInflight)
  const hasRoom = () => worker.hasRoom(clock.monotonic())
  return { clock, told, unbegun, owner, worker, accept, ready, hasRoom }
}

t.test(
  '[runtime/worker-set.2, runtime/worker-set.6] the first call travels behind the start and runs from then on',
  async t => {
    const { clock, worker, accept, ready, hasRoom } = makeBed(1, 100)
    t.ok(hasRoom(), 'one that is starting takes one call')
    const call = accept()
    t.same([call.phase, call.cold, hasRoom()], ['sent', true, false])
    clock.advance(500)
    t.same(call.seen, [], 'its time has not begun')
    ready()
    t.equal(call.phase, 'running')
    clock.advance(99)
    t.same(call.seen, [])
    clock.advance(1)
    t.same([call.seen, call.phase, worker.log], [['error 504 runtime timeout after 100 ms'], 'done', ['kill']])
  },
)

t.test('[runtime/worker-set.4] calls are sent ahead of quick ones, and none behind one that takes long', async t => {
  const { clock, worker, accept, ready, hasRoom } = makeBed()
  ready()
  for (let i = 0; i < PREFETCH.afterFastCalls; i++) {
    t.equal(worker.isQuick, false)
    accept()
    t.equal(hasRoom(), false, 'one at a time until it has proven quick')
    worker.reply(i)
  }
  t.ok(worker.isQuick)
  const first = accept()
  t.ok(hasRoom())
  const second = accept()
  t.same([first.phase, second.phase], ['running', 'sent'])
  clock.advance(FAST_CALL_MS)
  t.equal(hasRoom(), false)
  worker.reply(PREFETCH.afterFastCalls)
  t.equal(second.phase, 'running', 'the next one begins')
  t.equal(worker.isQuick, false, 'one slow call ends it')
})

t.test(
  '[runtime/worker-set.5] a silent worker that takes many is pinged and gets nothing more until it answers',
  async t => {
    const { clock, worker, accept, ready, hasRoom } = makeBed(0)
    ready()
    accept()
    t.ok(hasRoom())
    clock.advance(STALL_MS + 1)
    t.same([hasRoom(), hasRoom(), worker.log], [false, false, ['ping']])
    worker.handlePong()
    t.ok(hasRoom())
    const full = makeBed(2)
    full.ready()
    full.accept()
    full.accept()
    t.equal(full.hasRoom(), false, 'as many as it says')
  },
)

t.test('[runtime/worker-set.11] who leaves is cancelled once, and the worker may be for nobody', async t => {
  const { clock, worker, told, accept, ready } = makeBed(0)
  ready()
  const [left, other] = [accept(), accept()]
  left.withdraw()
  left.withdraw()
  t.same([worker.log, told, left.phase], [['cancel 0'], ['abandoned'], 'done'])
  t.equal(worker.isForNobody, false)
  other.withdraw()
  t.ok(worker.isForNobody)
  t.equal(worker.hadTimeToObey(clock.monotonic()), false)
  clock.advance(CANCEL_GRACE_MS)
  t.ok(worker.hadTimeToObey(clock.monotonic()))
  worker.reply(0)
  worker.reply(1)
  t.same([left.seen, other.seen, worker.inflight.size, worker.isForNobody], [[], [], 0, false])
})

t.test(
  '[runtime/wire-protocol.15] a worker is told of what its client took when that is half of the window',
  async t => {
    const { worker, accept, ready } = makeBed(0)
    ready()
    const [call, other] = [accept(), accept()]
    for (const { wireId } of [call, other]) worker.handleReply(wireId, 'head', Buffer.alloc(0), true)
    const half = STREAM_WINDOW_BYTES / 2
    const take = (bytes: number): void => {
      worker.handleChunk(call.wireId, Buffer.alloc(bytes))
      worker.grant(call, bytes)
    }
    take(half - 1)
    worker.handleChunk(other.wireId, Buffer.alloc(1))
    worker.grant(other, 1)
    t.same(worker.log, [], 'each stream has its own')
    take(1)
    t.same(worker.log, [`more 0 ${half}`])
    for (let i = 0; i < 8; i++) take(half / 4)
    t.same(worker.log.slice(1), [`more 0 ${half}`, `more 0 ${half}`], 'one frame for four pieces')
    take(half + 7)
    t.equal(worker.log.at(-1), `more 0 ${half + 7}`)
  },
)

t.test('[runtime/worker-set.12, runtime/worker-set.15, runtime/worker-set.18] streams', async t => {
  const { clock, worker, accept, ready } = makeBed(0, 100)
  ready()
  const call = accept()
  const piece = Buffer.alloc(STREAM_WINDOW_BYTES)
  worker.handleReply(call.wireId, 'head', Buffer.alloc(0), true)
  worker.handleReply(call.wireId, 'head', Buffer.alloc(0), true)
  clock.advance(99)
  worker.handleChunk(call.wireId, piece)
  clock.advance(99)
  worker.grant(call, piece.length)
  worker.handleChunk(call.wireId, piece)
  t.same(worker.log, [`more 0 ${piece.length}`])
  worker.handleEnd(call.wireId, null)
  worker.handleEnd(call.wireId, null)
  worker.handleChunk(call.wireId, piece)
  t.same(call.seen, ['stream head', `chunk ${piece.length}`, `chunk ${piece.length}`, 'end ok'])

  const greedy = accept()
  worker.handleReply(greedy.wireId, 'head', Buffer.alloc(0), true)
  for (let i = 0; i < 3; i++) worker.handleChunk(greedy.wireId, piece)
  t.same(greedy.seen, ['stream head', `chunk ${piece.length}`, `chunk ${piece.length}`])
  t.equal(worker.log.at(-1), 'kill')

  const silent = makeBed(0, 100)
  silent.ready()
  const stuck = silent.accept()
  silent.worker.handleReply(stuck.wireId, 'head', Buffer.alloc(0), true)
  silent.clock.advance(100)
  t.same(
    [stuck.seen, silent.worker.log],
    [['stream head', 'end 504'], ['cancel 0']],
    'the gap between pieces is bounded',
  )
})

t.test('[runtime/worker-set.9, invocation/response.5] ends without a whole reply', async t => {
  const { worker, told, accept, ready } = makeBed(0)
  ready()
  const [none, failed, cut] = [accept(), accept(), accept()]
  worker.handleEnd(none.wireId, null)
  worker.handleError(failed.wireId, new GatewayError('HANDLER_FAILED', 'boom'))
  worker.handleReply(cut.wireId, 'head', Buffer.alloc(0), true)
  worker.handleEnd(cut.wireId, 'generator failed')
  worker.handleError(999, new GatewayError('HANDLER_FAILED', 'of nobody'))
  t.same(
    [none.seen, failed.seen, cut.seen],
    [['error 502 invalid runtime response: no reply'], ['error 500 boom'], ['stream head', 'end 500']],
  )
  worker.handleLog(0, 'stdout', 'outside')
  const talking = accept()
  worker.handleLog(talking.wireId, 'stderr', 'inside')
  t.same([told, talking.seen], [['stdout outside'], ['stderr inside']])
})

t.test('[runtime/worker-set.8, runtime/worker-set.10] what becomes of its calls when it ends', async t => {
  const end = { reason: 'exit code 1', unexpected: true, complete: true }
  const died = 'error 503 runtime worker ended: exit code 1'
  for (const [name, maxInflight, complete, seen] of [
    ['one at a time', 1, true, [[died], []]],
    ['replies may be lost', 1, false, [[died], [died]]],
    ['many at once', 0, true, [[died], [died]]],
  ] as const) {
    const { worker, unbegun, told, accept, ready } = makeBed(maxInflight)
    ready()
    const calls = [accept(), accept()]
    worker.handleClosed({ ...end, complete })
    t.same(
      calls.map(call => call.seen),
      seen,
      name,
    )
    t.same(
      unbegun,
      calls.filter(call => call.seen.length === 0),
      name,
    )
    t.same([worker.state, told], ['dead', ['forget', 'end true runtime worker ended: exit code 1']], name)
    worker.handleClosed(end)
    worker.kill()
    t.equal(told.length, 2, `${name}: once`)
  }
  const useless = makeBed()
  const waiting = useless.accept()
  useless.worker.handleLoadError(new GatewayError('LOAD_FAILED', 'no such module'))
  t.same([useless.unbegun, useless.told], [[waiting], ['forget', 'load no such module']])
  t.same(waiting.seen, [], "what becomes of it is the set's to say")
  const exiting = makeBed()
  exiting.ready()
  const [own, behind] = [exiting.accept(), exiting.accept()]
  exiting.worker.handleLastError(own.wireId, new GatewayError('HANDLER_FAILED', 'exit'))
  t.same([own.seen, behind.seen, exiting.unbegun], [['error 500 exit'], [], [behind]])
})
