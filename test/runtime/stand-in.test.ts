import t from 'tap'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import { GatewayError } from '../../lib/core/errors.ts'
import { makeBed, makeGo, POOL } from '../helpers/dispatcher-bed.ts'
import type { FakeWorker } from '../helpers/fake-worker.ts'

const FAILURE = new GatewayError('LOAD_FAILED', 'build failed: a/handler.go:1:1: bad')

/** A version that runs: its worker is idle. @param program - null for packages */
async function makeRunning(program: string | null = '/bin/a1', disk?: { change: string | null }) {
  const bed = makeBed({ prepares: true, ...(disk && { disk }) })
  const old = makeGo('a')
  bed.retain(old)
  const call = bed.call(old)
  await bed.finish(old, program)
  const [worker] = bed.workers as [FakeWorker]
  worker.handleReady(1)
  worker.reply(0)
  return { ...bed, bed, old, worker, first: call }
}

/** Answers the newest call of a worker. */
const answer = (worker: FakeWorker) => worker.reply(worker.sent.length - 1)

t.test('[runtime/stand-in.1] the workers of the version before serve until the newer one is ready', async t => {
  for (const program of ['/bin/a1', null]) {
    const { bed, worker } = await makeRunning(program)
    const young = makeGo('a', '2')
    bed.retain(young)
    bed.work(young)
    t.same([bed.dispatcher.workerCount(young.key), bed.dispatcher.isWarm(young.key)], [1, true])
    const running = bed.call(young)
    t.equal(running.phase, 'running', 'no wait')
    const behind = bed.call(young)
    t.equal(behind.phase, 'waiting', 'its worker takes one at a time')
    await bed.finish(young, program && '/bin/a2')
    const fresh = bed.workers[1]!
    t.same(bed.programs, [program, program && '/bin/a2'])
    t.same(fresh.sent, [behind], 'what had not begun is the newer version’s')
    t.same(worker.log, [], 'what runs is not cut')
    answer(worker)
    t.same([running.seen, worker.log], [['reply r1'], ['stop']])
    const next = bed.call(young)
    fresh.handleReady(1)
    answer(fresh)
    t.ok(fresh.sent.includes(next), 'the old one serves no more')
  }
})

t.test(
  '[runtime/stand-in.2] calls wait for the look at what is to be made, and get the newer version at once',
  async t => {
    const { bed, worker } = await makeRunning()
    const young = makeGo('a', '2')
    bed.retain(young)
    const calls = [bed.call(young), bed.call(young)]
    t.same(
      calls.map(call => call.phase),
      ['waiting', 'waiting'],
    )
    await bed.finish(young, '/bin/a2')
    t.equal(worker.sent.length, 1, 'nothing was to be made: the old version gets nothing more')
    t.same(worker.log, ['stop'])
    t.equal(bed.workers[1]!.sent[0], calls[0])

    const third = makeGo('a', '3')
    bed.workers[1]!.handleReady(1)
    bed.workers[1]!.reply(0)
    bed.workers[1]!.reply(1)
    bed.retain(third)
    const waiting = bed.call(third)
    bed.clock.advance(50)
    bed.work(third)
    t.equal(waiting.phase, 'running', 'a tool has to work: who waits for it is served')
    t.equal(waiting.deadline - bed.clock.monotonic(), 1000, 'and has all of its time')
  },
)

t.test('[runtime/stand-in.3] no further worker reads files of the newer version; a program is its own', async t => {
  const { bed, worker } = await makeRunning(null)
  const young = makeGo('a', '2')
  bed.retain(young)
  bed.work(young)
  const [first, second] = [bed.call(young), bed.call(young)]
  bed.clock.advance(60)
  t.equal(bed.workers.length, 1, 'calls that wait start none')
  worker.handleClosed({ reason: 'exit code 1', unexpected: true, complete: true })
  t.match(first.seen, [/^error 503/])
  t.same([second.seen, bed.workers.length], [[], 1], 'they wait for the newer version')
  const third = bed.call(young)
  t.equal(third.phase, 'waiting')
  await bed.finish(young, null)
  t.same(bed.workers[1]!.sent, [second])
  bed.workers[1]!.handleReady(1)
  answer(bed.workers[1]!)
  t.ok(bed.workers[1]!.sent.includes(third))

  const compiled = await makeRunning('/bin/a1')
  compiled.bed.retain(young)
  compiled.bed.work(young)
  compiled.worker.handleClosed({ reason: 'exit code 1', unexpected: true, complete: true })
  const call = compiled.bed.call(young)
  t.same([compiled.programs, compiled.workers[1]!.sent], [['/bin/a1', '/bin/a1'], [call]])
})

t.test('[runtime/stand-in.3] a worker that was starting and meets the newer files gives its calls back', async t => {
  const { bed, old, worker } = await makeRunning(null)
  bed.dispatcher.warm(old, 2)
  const starting = bed.workers[1]!
  const busy = bed.call(old)
  const call = bed.call(old)
  t.same([worker.sent.at(-1), starting.sent], [busy, [call]])
  const young = makeGo('a', '2')
  bed.retain(young)
  bed.work(young)
  starting.handleLoadError(new GatewayError('LOAD_FAILED', 'no module left'))
  t.same([call.seen, call.phase], [[], 'waiting'])
  answer(worker)
  t.ok(worker.sent.includes(call))
  t.equal(bed.workers.length, 2)
})

t.test('[runtime/stand-in.3] workers stay however long they idle, and killed ones are not replaced', async t => {
  const bed = makeBed({ prepares: true })
  const old = makeGo('a', '1', { ...POOL, minWarm: 2 })
  bed.retain(old)
  await bed.finish(old, null)
  for (const worker of bed.workers) worker.handleReady(1)
  const young = makeGo('a', '2', { ...POOL, minWarm: 2 })
  bed.retain(young)
  bed.work(young)
  bed.clock.advance(10_000)
  t.same(
    bed.workers.map(worker => worker.log),
    [[], []],
  )
  bed.workers[0]!.handleClosed({ reason: 'exit code 1', unexpected: true, complete: true })
  bed.clock.advance(10_000)
  t.equal(bed.workers.length, 2)
  await bed.finish(young, null)
  t.equal(bed.workers.length, 4, 'the newer version is kept warm as soon as it can be')
})

t.test('[runtime/stand-in.4] limits are those of the newer version from the reload on', async t => {
  const { bed, worker, old } = await makeRunning(null)
  const young: FunctionVersion = { ...old, signature: '2', policy: { ...old.policy, timeoutMs: 70 } }
  bed.retain(young)
  bed.work(young)
  const call = bed.call(young)
  bed.clock.advance(69)
  t.same(call.seen, [])
  bed.clock.advance(1)
  t.same(call.seen, ['error 504 runtime timeout after 70 ms'])
  t.same(worker.log, ['kill'])
})

t.test(
  '[runtime/stand-in.5] two changes in a row: the version that runs goes on until the newest is ready',
  async t => {
    const { bed, worker, old } = await makeRunning(null)
    const [second, third] = [makeGo('a', '2'), makeGo('a', '3')]
    bed.retain(second)
    bed.work(second)
    bed.retain({ ...second })
    bed.retain(third)
    const early = bed.call(third)
    t.equal(early.phase, 'waiting', 'what the newest needs is looked at first')
    await bed.finish(second, null)
    t.equal(bed.workers.length, 1, 'a version that is not in force any more starts nothing')
    bed.work(third)
    t.equal(early.phase, 'running')
    t.equal(bed.dispatcher.isServed(old.key), true)
    answer(worker)
    await bed.finish(third, null)
    t.same(worker.log, ['stop'])
    const late = bed.call(third)
    t.same(bed.workers[1]!.sent, [late])

    const back = await makeRunning(null)
    back.bed.retain(second)
    back.bed.work(second)
    const [runs, waits] = [back.bed.call(second), back.bed.call(second)]
    back.bed.retain(back.old)
    await back.bed.finish(back.old, null)
    t.same([runs.phase, back.workers[1]!.sent], ['running', [waits]], 'back to what it was: a version as any other')
  },
)

t.test('[runtime/stand-in.6] a failure is the answer when it has failed, and the version before ends', async t => {
  const disk = { change: null as string | null }
  const { bed, worker } = await makeRunning(null, disk)
  const young = makeGo('a', '2')
  bed.retain(young)
  bed.work(young)
  const [running, behind] = [bed.call(young), bed.call(young)]
  disk.change = 'half saved'
  await bed.finish(young, FAILURE)
  t.equal(bed.call(young).phase, 'waiting', 'half saved: it is made again, and the old version goes on')
  t.same(worker.log, [])
  bed.clock.advance(100)
  disk.change = null
  await bed.finish(young, FAILURE)
  t.same(bed.call(young).seen, [], 'it asks again, and is told')
  await bed.finish(young, FAILURE)
  t.same([running.seen, behind.seen], [[], []], 'who was accepted before is served')
  answer(worker)
  answer(worker)
  answer(worker)
  t.same([running.seen, behind.seen], [['reply r1'], ['reply r2']])
  t.same(worker.log, ['stop'])
  const next = makeGo('a', '3')
  bed.retain(next)
  bed.work(next)
  const call = bed.call(next)
  t.equal(call.phase, 'waiting', 'what failed never served, so nothing stands in')
  await bed.finish(next, null)
  t.ok(bed.workers[1]!.sent.includes(call))
})

t.test('[runtime/stand-in.7] nothing stands in for what is gone or was not running; the end ends it', async t => {
  const gone = await makeRunning(null)
  gone.bed.retain(makeGo('a', '2'))
  gone.bed.retain()
  t.same([gone.worker.log, gone.bed.dispatcher.isServed(gone.old.key)], [['stop'], false])

  const cold = makeBed({ prepares: true })
  cold.retain(makeGo('a'))
  const young = makeGo('a', '2')
  cold.retain(young)
  cold.work(young)
  const call = cold.call(young)
  cold.clock.advance(100)
  t.same(call.seen, ['error 503 building go function a'])

  const closing = await makeRunning(null)
  closing.bed.retain(young)
  closing.bed.work(young)
  const running = closing.bed.call(young)
  const done = closing.bed.dispatcher.close(60_000)
  answer(closing.worker)
  t.same([running.seen, closing.worker.log], [['reply r1'], ['stop']])
  closing.worker.end()
  await done
  t.equal(closing.bed.clock.pending, 0)
})
