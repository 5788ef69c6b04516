import t from 'tap'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import { GatewayError } from '../../lib/core/errors.ts'
import { type OpenableRuntime, PreparingRuntime } from '../../lib/runtime/preparing-runtime.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeFn } from '../helpers/fn.ts'
import { TestCall } from '../helpers/runtime-bed.ts'

function makeBed() {
  const clock = new FakeClock()
  const done: string[] = []
  const calls: TestCall[] = []
  const works = new Map<FunctionVersion, { resolve: (binary: string) => void; reject: (error: Error) => void }>()
  const inner: OpenableRuntime = {
    name: 'go',
    start: () => Promise.resolve(),
    open: async () => {
      done.push('open')
    },
    health: () => ({ routing: 'single', up: true, reason: 'ok', sockets: [] }),
    dispatch: call => calls.push(call as TestCall),
    abandon: () => done.push('abandon'),
    warm: (fn, count) => done.push(`warm ${fn.name} ${count}`),
    retain: functions => done.push(`retain ${[...functions.values()].map(fn => fn.name + fn.signature)}`),
    workerCount: () => 3,
    close: async () => {
      done.push('close')
    },
  }
  const preparer = {
    prepare: (fn: FunctionVersion) =>
      new Promise<string>((resolve, reject) => {
        const earlier = works.get(fn)
        works.set(fn, {
          resolve: binary => {
            earlier?.resolve(binary)
            resolve(binary)
          },
          reject: error => {
            earlier?.reject(error)
            reject(error)
          },
        })
      }),
    toStep: (fn: FunctionVersion) => `building go function ${fn.name}`,
  }
  const runtime = new PreparingRuntime(inner, preparer, clock)
  const retain = (...functions: FunctionVersion[]) => runtime.retain(new Map(functions.map(fn => [fn.key, fn])))
  const dispatch = (fn: FunctionVersion) => {
    const call = new TestCall(fn)
    runtime.dispatch(call)
    return call
  }
  return { clock, done, calls, works, runtime, retain, dispatch }
}

const fn = (name: string, signature = '1') => makeFn({ runtime: 'go', name, signature, policy: { timeoutMs: 100 } })

t.test(
  '[dependencies/resolve.6, dependencies/resolve.7] calls wait for what their function needs, then run in order',
  async t => {
    const { runtime, retain, dispatch, calls, works, done, clock } = makeBed()
    const [a, b] = [fn('a'), fn('b')]
    retain(a, b, makeFn({ name: 'other' }))
    t.same(done, ['retain ', 'open'], 'daemons start meanwhile')
    t.ok(works.has(a) && works.has(b), 'everything is made before anybody asks')
    const first = dispatch(a)
    const second = dispatch(a)
    t.equal(first.state, 'waiting')
    works.get(a)!.resolve('/bin/a')
    await new Promise(setImmediate)
    t.same(calls, [first, second])
    t.equal(first.state, 'new')
    t.equal(runtime.binaryOf(a), '/bin/a')
    t.equal(runtime.binaryOf(b), null)
    t.equal(done.at(-1), 'retain a1', 'the runtime inside knows only what is ready')
    const third = dispatch(a)
    t.equal(calls.at(-1), third)
    runtime.warm(a, 2)
    runtime.warm(b, 2)
    t.equal(done.at(-1), 'warm a 2')
    works.get(b)!.resolve('/bin/b')
    await new Promise(setImmediate)
    t.equal(done.at(-1), 'warm b 2')
    t.equal(clock.pending, 0, 'no timer stays')
  },
)

t.test('[dependencies/resolve.7] a call waits at most its own time limit', async t => {
  const { runtime, retain, dispatch, calls, works, clock, done } = makeBed()
  const a = fn('a')
  retain(a)
  const late = dispatch(a)
  const left = dispatch(a)
  runtime.abandon(left)
  t.equal(left.state, 'done')
  clock.advance(100)
  const { error } = await late.outcome
  t.match(error, {
    code: 'BUILD_PENDING',
    status: 503,
    message: 'building go function a',
    headers: { 'Retry-After': '2' },
  })
  const next = dispatch(a)
  works.get(a)!.resolve('/bin/a')
  await new Promise(setImmediate)
  t.same(calls, [next], 'neither the one that gave up nor the one that left is run')
  runtime.abandon(next)
  t.equal(done.at(-1), 'abandon')
  t.equal(clock.pending, 0)
})

t.test(
  '[dependencies/resolve.7, dependencies/resolve.8] a failure answers everyone who waits; a reload begins anew',
  async t => {
    const { retain, dispatch, works, done } = makeBed()
    const [old, young] = [fn('a'), fn('a', '2')]
    retain(old)
    const calls = [dispatch(old), dispatch(old)]
    const failure = new GatewayError('LOAD_FAILED', 'build failed: a/handler.go:1:1: bad')
    works.get(old)!.reject(failure)
    for (const call of calls) t.equal((await call.outcome).error, failure)
    retain(young)
    t.ok(works.has(young))
    t.match((await dispatch(old).outcome).error, { code: 'BUILD_PENDING' }, 'the old version is not made again')
    works.get(young)!.resolve('/bin/a2')
    await new Promise(setImmediate)
    t.equal(done.at(-1), 'retain a2')
  },
)

t.test('[dependencies/resolve.7] at the end nobody is left waiting', async t => {
  const { runtime, retain, dispatch, works, clock, done, calls } = makeBed()
  const a = fn('a')
  retain(a)
  const waiting = dispatch(a)
  const closing = runtime.close(0)
  t.match((await waiting.outcome).error, { code: 'SHUTTING_DOWN' })
  t.match((await dispatch(a).outcome).error, { code: 'SHUTTING_DOWN' })
  await closing
  const count = done.length
  works.get(a)!.resolve('/bin/a')
  await new Promise(setImmediate)
  retain(fn('b'))
  t.same([done.length, calls.length, clock.pending], [count, 0, 0], 'nothing starts any more')
})
