import t from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import { Backlog, LoadRetry, Preparation, StandIn } from '../../lib/runtime/backlog.ts'
import { FakeClock } from '../helpers/clock.ts'
import { SeenCall } from '../helpers/fake-worker.ts'
import { makeFn } from '../helpers/fn.ts'

function makeBed(waitMs = 100) {
  const fn = makeFn({ runtime: 'go' })
  const clock = new FakeClock()
  const backlog = new Backlog()
  const told: string[] = []
  const works: { resolve: (program: string | null) => void; reject: (error: Error) => void }[] = []
  const disk = { change: null as string | null }
  const retry = new LoadRetry({ clock, changeOf: () => disk.change, onDue: () => preparation.begin() })
  const preparation: Preparation = new Preparation({
    fn,
    clock,
    backlog,
    retry,
    standIn: new StandIn(null),
    preparer: {
      prepare: () => new Promise((resolve, reject) => works.push({ resolve, reject })),
      toStep: () => 'building',
      waitMs,
      prepareAhead: () => {},
    },
    onDone: () => told.push('done'),
    onFailed: error => {
      told.push('failed')
      backlog.fail(error)
    },
  })
  const hold = () => {
    const call = new SeenCall(fn)
    preparation.hold(call, clock.monotonic())
    return call
  }
  return { fn, clock, backlog, told, works, preparation, hold, disk, retry }
}

const settled = () => new Promise(setImmediate)

t.test('[dependencies/resolve.6] it is asked for once, and again only after a failure', async t => {
  const { preparation, works, told, hold, clock, backlog } = makeBed()
  preparation.begin()
  preparation.begin()
  hold()
  t.equal(works.length, 1)
  works[0]!.reject(new Error('no disk'))
  await settled()
  t.same([told, preparation.isDone, backlog.isEmpty, clock.pending], [['failed'], false, true, 0])
  const call = hold()
  t.equal(works.length, 2)
  works[1]!.resolve('/bin/a')
  await settled()
  t.same([told, preparation.isDone, preparation.program], [['failed', 'done'], true, '/bin/a'])
  t.same([backlog.first, call.seen, clock.pending], [call, [], 0], 'who waits is left to the set')
  preparation.begin()
  t.equal(works.length, 2)
})

t.test('[dependencies/resolve.7] each call waits from its own arrival', async t => {
  const { hold, clock, backlog } = makeBed()
  const calls: SeenCall[] = []
  for (let i = 0; i < 4; i++) {
    calls.push(hold())
    clock.advance(30)
  }
  t.same(
    calls.map(call => call.seen.length),
    [1, 0, 0, 0],
  )
  calls[2]!.withdraw()
  clock.advance(10)
  t.same(
    calls.map(call => call.seen.length),
    [1, 1, 0, 0],
  )
  clock.advance(59)
  t.equal(backlog.size, 1)
  t.same(calls[3]!.seen, [])
  clock.advance(1)
  t.same([calls[3]!.seen, backlog.size, clock.pending], [['error 503 building'], 0, 0])
  t.same(calls[2]!.seen, [])
})

t.test('[dependencies/resolve.7] stopped, it reports nothing and asks for nothing', async t => {
  for (const outcome of ['resolve', 'reject'] as const) {
    const { preparation, works, told, hold, clock, backlog } = makeBed()
    const call = hold()
    preparation.stop()
    if (outcome === 'resolve') works[0]!.resolve(null)
    else works[0]!.reject(new GatewayError('LOAD_FAILED', 'build was stopped'))
    await settled()
    clock.advance(1000)
    t.same([told, call.seen, backlog.first, preparation.isDone], [[], [], call, false], outcome)
    preparation.begin()
    t.equal(works.length, 1)
  }
})

t.test('[runtime/worker-set.2] a function that needs nothing is ready', async t => {
  const { fn, clock, backlog, retry } = makeBed()
  const onDone = () => t.fail('nothing to do')
  const standIn = new StandIn(null)
  const preparation = new Preparation({ fn, clock, backlog, retry, standIn, preparer: null, onDone, onFailed: onDone })
  preparation.begin()
  t.same([preparation.isDone, preparation.program, clock.pending], [true, null, 0])
})

t.test(
  '[runtime/worker-set.19] what failed while the sources were saved is tried again, and calls wait for it',
  async t => {
    const { preparation, works, told, hold, clock, disk } = makeBed(1000)
    const call = hold()
    disk.change = 'half'
    works[0]!.reject(new Error('syntax'))
    await settled()
    t.same([call.seen, told, works.length], [[], [], 1])
    hold()
    t.equal(works.length, 1, 'not before its time')
    clock.advance(100)
    t.equal(works.length, 2)
    works[1]!.reject(new Error('syntax'))
    await settled()
    t.match([call.seen, told, preparation.isDone], [[/^error 500/], ['failed'], false], 'it is meant so')
  },
)
