import t from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import { makeBed, makeGo, POOL } from './dispatcher-bed.ts'
import { SeenCall, type FakeWorker } from '../helpers/fake-worker.ts'
import { makeFn } from '../helpers/fn.ts'

t.test('[runtime/daemon.12] a reload keeps the sets of unchanged functions and retires the others', async t => {
  const bed = makeBed()
  const [same, old, gone] = [makeGo('same'), makeGo('changed'), makeGo('gone')]
  bed.retain(same, old, gone)
  const calls = [same, old, gone].map(bed.call)
  for (const worker of bed.workers) worker.handleReady(0)
  const sets = [same, old, gone].map(fn => bed.dispatcher.setOf(fn))
  const young = makeGo('changed', '2')
  bed.retain({ ...same }, young)
  t.equal(bed.dispatcher.setOf(same), sets[0], 'an equal function keeps its workers')
  t.same(
    bed.workers.flatMap(worker => worker.log),
    [],
    'no open call is disturbed',
  )
  bed.call(young)
  t.equal(bed.workers.length, 4, 'a changed one starts others')
  for (const worker of bed.workers.slice(0, 3)) worker.reply(0)
  t.same(
    calls.flatMap(call => call.seen),
    ['reply r0', 'reply r0', 'reply r0'],
  )
  t.same(
    bed.workers.map(worker => worker.log.join()),
    ['', '', 'stop', ''],
    'that of a deleted one ends when it is through',
  )
  bed.workers[3]!.handleReady(0)
  t.same(bed.workers[1]!.log, ['stop'], 'that of a changed one when the newer version is loaded')
  const late = bed.call(gone)
  t.equal(bed.dispatcher.workerCount(gone.key), 0, 'a call of the old catalog has workers of its own')
  bed.workers[4]!.handleReady(0)
  bed.workers[4]!.reply(0)
  t.same([late.seen, bed.workers[4]!.log], [['reply r0'], ['stop']])
  const stale = bed.call(old)
  t.ok(bed.workers[3]!.sent.includes(stale), 'one that has a newer version is served by it')
  bed.retain(same, { ...young, policy: { ...young.policy, timeoutMs: 99 } })
  t.not(bed.dispatcher.setOf(young).fn, young, 'another policy is another set')
})

t.test('[runtime/daemon.12] an old call whose function has no workers yet starts those of the new version', async t => {
  const bed = makeBed()
  const [old, young] = [makeGo('a'), makeGo('a', '2')]
  bed.retain(young)
  bed.call(old)
  t.equal(bed.workers[0]!.set.fn, young)
  t.equal(bed.dispatcher.workerCount(young.key), 1)
})

t.test('[runtime/worker-set.3] how many workers a set may have', async t => {
  for (const [policy, options, most] of [
    [{ maxConcurrency: 3 }, {}, 3],
    [{ maxConcurrency: 0 }, { maxWorkers: 100 }, 32],
    [{ maxConcurrency: 0 }, { maxWorkers: 8 }, 8],
    [{ maxConcurrency: 3, workerPool: POOL }, {}, 3],
    [{ maxConcurrency: 20, workerPool: POOL }, {}, 4],
    [{ maxConcurrency: 3, workerPool: { ...POOL, enabled: false } }, {}, 3],
    [{ maxConcurrency: 1 }, { sockets: 2 }, 2],
  ] as const) {
    const bed = makeBed(options)
    const fn = makeFn({ runtime: 'go', policy })
    bed.retain(fn)
    bed.dispatcher.warm(fn, 1000)
    t.equal(bed.workers.length, most, JSON.stringify([policy, options]))
  }
})

t.test(
  '[runtime/daemon.3, runtime/daemon.13] runtimes start with functions and rest without; min_warm is started',
  async t => {
    const bed = makeBed()
    bed.retain(makeFn({ name: 'node' }))
    t.same(bed.log, ['rest'])
    const warm = makeGo('warm', '1', { ...POOL, minWarm: 2 })
    bed.retain(warm, makeGo('cold'))
    t.same(bed.log, ['rest', 'start'])
    t.same([bed.dispatcher.workerCount(warm.key), bed.workers.length], [2, 2])
    bed.dispatcher.warm(makeFn({ name: 'other', runtime: 'php' }), 1)
    t.throws(() => bed.call(makeFn({ runtime: 'php' })), { message: 'runtime down: php is not enabled', status: 503 })
    bed.retain()
    t.same(bed.log, ['rest', 'start', 'rest'])
  },
)

t.test(
  '[dependencies/resolve.6, dependencies/resolve.7] calls wait for what their function needs, then run in order',
  async t => {
    const bed = makeBed({ prepares: true })
    const [a, b] = [makeGo('a'), makeGo('b', '1', { ...POOL, minWarm: 2 })]
    bed.retain(a, b)
    t.ok(
      [a, b].every(fn => bed.works.some(work => work.fn === fn)),
      'everything is made before anybody asks',
    )
    const calls = [bed.call(a), bed.call(a), bed.call(a)]
    calls[1]!.withdraw()
    t.same([calls.map(call => call.phase), bed.workers.length], [['waiting', 'done', 'waiting'], 0])
    await bed.finish(a, '/bin/a')
    const [worker] = bed.workers as [FakeWorker]
    t.same(bed.programs, ['/bin/a'])
    worker.handleReady(0)
    bed.clock.advance(2)
    t.same(worker.sent, [calls[0], calls[2]], 'the one that left is not run')
    bed.call(a)
    t.equal(worker.sent.length, 3, 'later ones do not wait')
    t.equal(bed.dispatcher.workerCount(b.key), 0)
    await bed.finish(b, '/bin/b')
    t.same(bed.programs, ['/bin/a', '/bin/b', '/bin/b'], 'min_warm as soon as it can be')
  },
)

t.test('[dependencies/resolve.7] a call waits so long, each from its own arrival', async t => {
  const bed = makeBed({ prepares: true })
  const a = makeGo('a')
  bed.retain(a)
  const [first, left] = [bed.call(a), bed.call(a)]
  left.withdraw()
  bed.clock.advance(60)
  const second = bed.call(a)
  bed.clock.advance(40)
  t.same([first.seen, left.seen, second.seen], [['error 503 building go function a'], [], []])
  bed.clock.advance(59)
  t.same(second.seen, [])
  bed.clock.advance(1)
  t.same([second.seen, second.phase], [['error 503 building go function a'], 'done'])
  t.equal(bed.clock.pending, 0, 'no timer stays')
  const third = bed.call(a)
  await bed.finish(a, '/bin/a')
  t.same(bed.workers[0]!.sent, [third], 'none of those that gave up is run')
  const wide = new SeenCall(a)
  let told: unknown
  wide.onError = ({ headers, detail }) => {
    told = { headers, detail }
  }
  const other = makeGo('b')
  bed.retain(a, other)
  bed.dispatcher.setOf(other).dispatch(wide)
  bed.clock.advance(100)
  t.same(told, {
    headers: { 'Retry-After': '2' },
    detail: { hint: 'it goes on in the background; a call waits 100 ms for it (FN_DEPS_WAIT_MS)' },
  })
})

t.test(
  '[dependencies/resolve.7, dependencies/resolve.8] a failure answers everyone who waits, and the next call asks again',
  async t => {
    const bed = makeBed({ prepares: true })
    const a = makeGo('a')
    bed.retain(a)
    const calls = [bed.call(a), bed.call(a)]
    await bed.finish(a, new GatewayError('LOAD_FAILED', 'build failed: a/handler.go:1:1: bad'))
    for (const call of calls) t.same(call.seen, ['error 500 build failed: a/handler.go:1:1: bad'])
    t.same([bed.clock.pending, bed.workers.length], [0, 0])
    const next = bed.call(a)
    await bed.finish(a, '/bin/a')
    t.same(bed.workers[0]!.sent, [next])
  },
)

t.test('[dependencies/resolve.7] after a reload calls wait for the new version', async t => {
  const bed = makeBed({ prepares: true })
  const [old, young] = [makeGo('a'), makeGo('a', '2')]
  bed.retain(old)
  const waiting = bed.call(old)
  bed.retain(young)
  await bed.finish(old, new GatewayError('LOAD_FAILED', 'build was stopped'))
  t.same(waiting.seen, [], 'the end of the old build is not theirs')
  await bed.finish(young, '/bin/a2')
  t.same([bed.workers[0]!.set.fn, bed.workers[0]!.sent], [young, [waiting]])
  const gone = bed.call(makeGo('gone'))
  const work = bed.works.at(-1)!
  work.reject(new GatewayError('LOAD_FAILED', 'build was stopped'))
  await new Promise(setImmediate)
  t.same(gone.seen, ['error 500 build was stopped'], 'unless there is none')
})

t.test(
  '[runtime/daemon.15, dependencies/resolve.7] close ends what waits and what runs, at most at its limit',
  async t => {
    const bed = makeBed({ prepares: true })
    const [a, b] = [makeGo('a'), makeGo('b')]
    bed.retain(a, b)
    const running = bed.call(a)
    await bed.finish(a, '/bin/a')
    bed.workers[0]!.handleReady(0)
    const waiting = bed.call(b)
    const closing = bed.dispatcher.close(50)
    t.throws(() => bed.call(a), { code: 'SHUTTING_DOWN' })
    t.same(running.seen, [])
    bed.clock.advance(50)
    await closing
    t.same(waiting.seen, ['error 503 gateway is shutting down'])
    t.same(bed.workers[0]!.log, ['kill'])
    await bed.finish(b, '/bin/b')
    bed.retain(makeGo('c'))
    t.equal(bed.workers.length, 1, 'nothing starts any more')

    const quick = makeBed()
    quick.retain(a)
    quick.call(a)
    quick.workers[0]!.handleReady(0)
    const done = quick.dispatcher.close(60_000)
    quick.workers[0]!.reply(0)
    quick.workers[0]!.end()
    await done
    t.equal(quick.clock.pending, 0, 'it does not wait longer than calls last')
  },
)

t.test('[gateway/doctor.2] a function that was loaded and has no worker left counts as loaded', async t => {
  const bed = makeBed()
  const fn = makeGo('idle')
  bed.retain(fn)
  bed.call(fn)
  const [worker] = bed.workers
  worker!.handleReady(0)
  worker!.reply(0)
  bed.clock.advance(3_600_000)
  t.equal(worker!.log.at(-1), 'stop', 'it was idle for too long')
  t.notOk(bed.dispatcher.isWarm(fn.key))
  const answer = bed.dispatcher.tryLoad(fn, 1000)
  bed.clock.advance(2000)
  t.equal(await answer, null)
  t.equal(bed.workers.length, 1)
})
