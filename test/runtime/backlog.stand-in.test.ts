import t from 'tap'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import { GatewayError } from '../../lib/core/errors.ts'
import { makeBed, makeGo, POOL } from './dispatcher-bed.ts'
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

t.test('[runtime/stand-in.1] the workers of the previous version serve until the newer one is loaded', async t => {
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
    t.same([behind.phase, fresh.sent], ['waiting', []], 'it is not loaded yet')
    const late = bed.call(young)
    fresh.handleReady(0)
    t.same(fresh.sent, [behind, late], 'what had not begun is the newer version’s')
    t.same(worker.log, [], 'what runs is not cut')
    answer(worker)
    t.same([running.seen, worker.log], [['reply r1'], ['stop']])
    const next = bed.call(young)
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
    t.same([bed.workers[1]!.sent, worker.log], [[], []], 'a call that came with the start would be lost with it')
    bed.workers[1]!.handleReady(1)
    t.equal(worker.sent.length, 1, 'nothing was to be made: the old version gets nothing more')
    t.same(worker.log, ['stop'])
    t.equal(bed.workers[1]!.sent[0], calls[0])

    const third = makeGo('a', '3')
    bed.workers[1]!.reply(0)
    bed.workers[1]!.reply(1)
    bed.retain(third)
    const waiting = bed.call(third)
    bed.clock.advance(50)
    bed.work(third)
    t.equal(waiting.phase, 'running', 'a tool has to work: who waits for it is served')
    t.equal(waiting.deadline - bed.clock.monotonic(), 1000, 'and has all of its time')

    const slow = await makeRunning()
    slow.bed.retain(young)
    await slow.bed.finish(young, null)
    const [early] = [slow.bed.call(young)]
    slow.bed.clock.advance(2000)
    t.equal(early!.phase, 'running', 'two seconds are enough for a load')
    slow.bed.workers[1]!.handleReady(1)
    t.same(slow.worker.log, [])
    answer(slow.worker)
    t.same(slow.worker.log, ['stop'])
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
  t.same(bed.workers[1]!.sent, [second], 'nothing else could serve it: it goes with the start')
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

t.test('[runtime/stand-in.3] one worker stays while other processes call the function', async t => {
  const bed = makeBed()
  const fn = makeGo('a', '1', POOL)
  bed.retain(fn)
  bed.call(fn)
  bed.workers[0]!.handleReady(1)
  const giveBack = bed.dispatcher.lend({ fn, socketIndex: 1, pid: null, startedAt: 0 })
  bed.workers[0]!.reply(0)
  bed.clock.advance(60_000)
  t.same(bed.workers[0]!.log, [])
  giveBack()
  bed.clock.advance(2000)
  t.same(bed.workers[0]!.log, ['stop'])
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
    bed.workers[1]!.handleReady(1)
    t.same(worker.log, ['stop'])
    const late = bed.call(third)
    t.same(bed.workers[1]!.sent, [late])

    const back = await makeRunning(null)
    back.bed.retain(second)
    back.bed.work(second)
    const [runs, waits] = [back.bed.call(second), back.bed.call(second)]
    back.bed.retain(back.old)
    await back.bed.finish(back.old, null)
    back.bed.workers[1]!.handleReady(1)
    t.same([runs.phase, back.workers[1]!.sent], ['running', [waits]], 'back to what it was: a version as any other')
  },
)

t.test('[runtime/stand-in.6] a version that cannot be built is not served: the previous one goes on', async t => {
  const disk = { change: null as string | null }
  const { bed, worker } = await makeRunning(null, disk)
  const young = makeGo('a', '2')
  bed.retain(young)
  bed.work(young)
  const [running, behind] = [bed.call(young), bed.call(young)]
  disk.change = 'half saved'
  await bed.finish(young, FAILURE)
  t.equal(bed.call(young).phase, 'waiting', 'half saved: it is made again, and the old version goes on')
  t.same([worker.log, bed.dispatcher.loadErrorOf(young.key)], [[], null])
  bed.clock.advance(100)
  disk.change = null
  await bed.finish(young, FAILURE)
  t.same([bed.dispatcher.loadErrorOf(young.key), bed.dispatcher.isStale(young.key)], [FAILURE, true])
  for (let count = 0; count < 3; count++) answer(worker)
  t.same([running.seen, behind.seen, worker.log], [['reply r1'], ['reply r2'], []])
  const late = bed.call(young)
  t.same([late.phase, late.loadError], ['running', FAILURE], 'the call knows why it is served by the previous version')
  answer(worker)

  const next = makeGo('a', '3')
  bed.retain(next)
  bed.work(next)
  t.equal(bed.call(next).phase, 'running', 'it goes on until a correction is ready')
  await bed.finish(next, null)
  bed.workers[1]!.handleReady(1)
  answer(worker)
  t.same([worker.log, bed.dispatcher.loadErrorOf(next.key)], [['stop'], null])
  t.match(bed.log, ['start', 'start', 'a served by the previous version', 'start', 'a fixed'])
})

const SYNTAX = new GatewayError('LOAD_FAILED', 'syntax error in a.py:3')

t.test('[runtime/stand-in.8] a version that cannot be loaded is not served, and costs no call', async t => {
  const bed = makeBed()
  const [old, young] = [makeGo('a'), makeGo('a', '2')]
  bed.retain(old)
  const open = bed.call(old)
  const [worker] = bed.workers as [FakeWorker]
  worker.handleReady(1)
  bed.retain(young)
  t.equal(bed.workers.length, 2, 'it is loaded at once, without a call')
  const waiting = bed.call(young)
  t.same([waiting.phase, bed.workers[1]!.sent], ['waiting', []])
  bed.workers[1]!.handleLoadError(SYNTAX)
  answer(worker)
  t.same([open.seen, waiting.phase, waiting.loadError], [['reply r0'], 'running', SYNTAX])
  answer(worker)
  t.same(bed.log.slice(-2), ['a failed: syntax error in a.py:3', 'a served by the previous version'])

  bed.retain(makeGo('a', '3'))
  bed.workers[2]!.handleClosed({ reason: 'exit code 1', unexpected: true, complete: true })
  t.equal(bed.call(young).loadError?.message, 'runtime worker ended: exit code 1', 'nor one that ends while it loads')
  answer(worker)
  bed.retain(makeGo('a', '4'))
  bed.workers[3]!.handleReady(1)
  const fixed = bed.call(young)
  t.same([worker.log, bed.workers[3]!.sent, fixed.loadError], [['stop'], [fixed], null])
})

t.test('[runtime/stand-in.9] it is tried again at each reload, and by a call after ten seconds', async t => {
  const { bed, worker } = await makeRunning(null)
  const young = makeGo('a', '2')
  const log = () => bed.log.filter(line => line.includes('failed')).length
  bed.retain(young)
  await bed.finish(young, null)
  bed.workers[1]!.handleLoadError(SYNTAX)
  bed.retain({ ...young })
  t.equal(bed.workers.length, 3, 'its cause may be anywhere')
  bed.workers[2]!.handleLoadError(SYNTAX)
  t.equal(log(), 1, 'what fails as before is not reported again')
  bed.clock.advance(9999)
  const calls = [bed.call(young)]
  t.equal(bed.workers.length, 3)
  bed.clock.advance(1)
  calls.push(bed.call(young))
  t.same([bed.workers.length, calls.map(call => call.phase)], [4, ['running', 'waiting']])
  bed.workers[3]!.handleReady(1)
  t.same(bed.workers[3]!.sent, [calls[1]])
  answer(worker)
  t.same([worker.log, bed.log.at(-1)], [['stop'], 'a fixed'])
})

t.test(
  '[runtime/stand-in.10] when its last worker ends, calls get the reason why the newer one cannot serve',
  async t => {
    const { bed, worker } = await makeRunning(null)
    const young = makeGo('a', '2')
    bed.retain(young)
    await bed.finish(young, null)
    bed.workers[1]!.handleLoadError(SYNTAX)
    const open = bed.call(young)
    bed.clock.advance(600_000)
    worker.handleClosed({ reason: 'out of memory', unexpected: true, complete: true })
    t.match(open.seen, [/^error 50[34]/])
    const next = bed.call(young)
    bed.workers.at(-1)!.handleLoadError(SYNTAX)
    t.same(next.seen, ['error 500 syntax error in a.py:3'])
    t.same([bed.dispatcher.isStale(young.key), bed.dispatcher.loadErrorOf(young.key)], [false, SYNTAX])
  },
)

t.test('[runtime/stand-in.11] at most four load at a time, but for those that are called', async t => {
  const bed = makeBed()
  const names = ['a', 'b', 'c', 'd', 'e', 'f', 'g']
  const all = (signature: string) => names.map(name => makeGo(name, signature))
  bed.retain(...all('1'))
  for (const fn of all('1')) bed.call(fn)
  for (const worker of [...bed.workers]) {
    worker.handleReady(1)
    worker.reply(0)
  }
  const started = () => bed.workers.slice(7).map(worker => worker.set.fn.name)
  bed.retain(...all('2'))
  t.same(started(), ['a', 'b', 'c', 'd'])
  bed.call(makeGo('g', '2'))
  t.same(started(), ['a', 'b', 'c', 'd', 'g'])
  bed.workers[7]!.handleReady(1)
  bed.workers[8]!.handleLoadError(SYNTAX)
  t.same(started(), ['a', 'b', 'c', 'd', 'g', 'e', 'f'])
})

t.test('[runtime/stand-in.12] changed functions without a worker are loaded too where they are edited', async t => {
  const bed = makeBed({ loadsChanged: true })
  bed.retain(makeGo('a'), makeGo('b'))
  t.equal(bed.workers.length, 0, 'nothing at the start')
  bed.retain(makeGo('a', '2'), makeGo('b'), makeGo('new'))
  t.same(
    bed.workers.map(worker => worker.set.fn.name),
    ['a', 'new'],
  )
  bed.workers[0]!.handleLoadError(SYNTAX)
  t.same(bed.log.at(-1), 'a failed: syntax error in a.py:3')
  bed.retain(...Array.from({ length: 17 }, (_, index) => makeGo(`n${index}`)))
  t.equal(bed.workers.length, 2, 'of very many that change at a time none')
})

t.test('[runtime/stand-in.7] nothing serves in place of what is gone or was not running; the end ends it', async t => {
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
