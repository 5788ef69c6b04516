import t from 'tap'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import { GatewayError } from '../../lib/core/errors.ts'
import { Call, type EdgeHandler, Invoker } from '../../lib/invocation/invoke.ts'
import type { ReplyHead } from '../../lib/invocation/response.ts'
import { Admission } from '../../lib/invocation/admission.ts'
import { FakeClock } from '../helpers/clock.ts'
import { FakeRuntime } from '../helpers/fake-runtime.ts'
import { makeFn } from '../helpers/fn.ts'
import { createRandom } from '../helpers/random.ts'

/** Writes down what arrives. */
class TestCall extends Call {
  readonly seen: string[] = []
  refusal: GatewayError | null = null

  override onHead(head: ReplyHead, body: Buffer, stream: boolean): void {
    this.seen.push(`${stream ? 'stream' : 'answer'} ${head.status} ${body}`)
  }

  override onPiece(body: Buffer): void {
    this.seen.push(`chunk ${body}`)
  }

  override onDone(error: GatewayError | null): void {
    this.seen.push(`end ${error?.code ?? 'ok'}`)
  }

  override onFailed(error: GatewayError): void {
    this.refusal = error
    this.seen.push(`refused ${error.status} ${error.message}`)
  }
}

const EDGE = { baseUrl: null, allowHosts: [], allowPrivate: false, maxResponseBytes: 100 }

function setup(edge: EdgeHandler | null = null) {
  const clock = new FakeClock()
  const runtime = new FakeRuntime()
  runtime.answer = () => {}
  const admission = new Admission(clock)
  const logs: string[] = []
  const invoker = new Invoker({
    clock,
    dispatcher: runtime,
    admission,
    edge,
    onLog: (_call, stream, text) => logs.push(`${stream} ${text}`),
  })
  const start = (fn: FunctionVersion = makeFn()) => {
    const call = new TestCall(fn, invoker)
    invoker.start(call)
    return call
  }
  return { clock, runtime, admission, invoker, logs, start }
}

t.test('[invocation/response.8, invocation/admission.8] a call is settled once, whatever comes after', async t => {
  const error = new GatewayError('TIMEOUT', 'runtime timeout')
  const events: Record<string, (call: TestCall) => void> = {
    reply: call => call.onReply('{"status":200}', Buffer.from('a'), false),
    stream: call => call.onReply('{"status":200}', Buffer.alloc(0), true),
    broken: call => call.onReply('{"status":"200"}', Buffer.alloc(0), true),
    chunk: call => call.onChunk(Buffer.from('c')),
    end: call => call.onEnd(null),
    cut: call => call.onEnd(error),
    error: call => call.onError(error),
    abandon: call => call.abandon(),
  }
  const why = 'invalid runtime response: status must be an integer from 100 to 599, got "200" (string)'
  const cases: [string[], string[]][] = [
    [['reply', 'reply', 'error', 'abandon'], ['answer 200 a']],
    [['error', 'reply', 'end'], ['refused 504 runtime timeout']],
    [['broken', 'chunk', 'end', 'reply'], [`refused 502 ${why}`]],
    [
      ['stream', 'chunk', 'end', 'chunk', 'end'],
      ['stream 200 ', 'chunk c', 'end ok'],
    ],
    [
      ['stream', 'cut', 'chunk'],
      ['stream 200 ', 'end TIMEOUT'],
    ],
    [['abandon', 'reply', 'chunk', 'end', 'error'], []],
    [['stream', 'abandon', 'chunk', 'end'], ['stream 200 ']],
  ]
  for (const [steps, expected] of cases) {
    const { admission, start } = setup()
    const call = start()
    t.equal(admission.total(), 1)
    for (const step of steps) events[step]!(call)
    t.same(call.seen, expected, steps.join(' '))
    t.equal(admission.total(), 0, steps.join(' '))
  }
})

t.test('[invocation/admission.7, invocation/admission.8] work is stopped exactly when nobody waits for it', async t => {
  const { runtime, start } = setup()
  const answered = start()
  runtime.reply(answered, 200)
  answered.abandon()
  t.same(runtime.abandoned, [])
  const left = start()
  left.abandon()
  left.abandon()
  t.same(runtime.abandoned, [left])
  const broken = start()
  runtime.stream(broken, { status: 99 })
  t.same(runtime.abandoned, [left, broken], 'a stream nobody reads')
  const failed = start()
  runtime.fail(failed)
  t.equal(runtime.abandoned.length, 2)
})

t.test('[invocation/admission.5, invocation/admission.11] the next call starts when one ends', async t => {
  const { clock, runtime, start } = setup()
  const pool = { enabled: true, minWarm: 0, maxWorkers: 1, maxQueue: 5, queueTimeoutMs: 1000, queuePollMs: 20 }
  const fn = makeFn({ policy: { workerPool: { ...pool, idleTtlSeconds: 300, overflowStatus: 429 } } })
  const first = start(fn)
  const second = start(fn)
  const third = start(fn)
  t.equal(runtime.calls.length, 1)
  clock.advance(30)
  second.abandon()
  t.same(runtime.abandoned, [], 'a waiting call never reached the runtime')
  runtime.reply(first, 200)
  t.same(runtime.calls, [first, third])
  t.equal(third.queuedMs, 30)
  runtime.answer = (call, own) => own.fail(call, new GatewayError('RUNTIME_DOWN', 'runtime down'))
  const waiting = [start(fn), start(fn)]
  runtime.reply(third, 200)
  for (const call of waiting) t.same(call.seen, ['refused 503 runtime down'])
})

t.test('[invocation/response.10] no worker set for a function, or one that throws', async t => {
  const { runtime, admission, start } = setup()
  runtime.setOf = () => {
    throw new GatewayError('RUNTIME_DOWN', 'runtime down: php is not enabled')
  }
  t.same(start().seen, ['refused 503 runtime down: php is not enabled'])
  runtime.setOf = () => runtime
  runtime.answer = () => {
    throw new Error('defect')
  }
  t.same(start().seen, ['refused 500 gateway exception'])
  t.equal(admission.total(), 0)
})

t.test('[invocation/response.9] the edge directive', async t => {
  const why = 'refused 502 edge proxy disabled for this function'
  const without = setup()
  const call = without.start(makeFn({ policy: { edge: EDGE } }))
  without.runtime.replyText(call, '{"proxy":{"path":"/x"}}')
  t.same(call.seen, [why], 'no proxy to do it')

  let pending: Call | null = null
  let stopped = 0
  const { runtime, admission, start } = setup((edgeCall, directive, body) => {
    pending = edgeCall
    edgeCall.stopEdge = () => {
      stopped += 1
    }
    if (directive.path === '/throw') throw new GatewayError('EDGE_FAILED', `no ${body}`)
  })
  const forbidden = start()
  runtime.replyText(forbidden, '{"proxy":{"path":"/x"}}')
  t.same(forbidden.seen, [why])

  const fn = makeFn({ policy: { edge: EDGE } })
  const proxied = start(fn)
  runtime.replyText(proxied, '{"proxy":{"path":"/x"}}')
  t.equal(admission.total(), 1, 'the place is kept')
  pending!.answer({ status: 200, headers: [], hasBody: true, length: null, proxy: null }, Buffer.from('up'), true)
  pending!.answerChunk(Buffer.from('x'))
  let taken = 0
  pending!.grantEdge = bytes => {
    taken += bytes
  }
  proxied.grant(7)
  t.equal(taken, 7)
  pending!.answerEnd(null)
  t.same(proxied.seen, ['stream 200 up', 'chunk x', 'end ok'])
  t.equal(admission.total(), 0)

  const left = start(fn)
  runtime.replyText(left, '{"proxy":{"path":"/x"}}')
  left.abandon()
  t.equal(stopped, 1)
  t.same(runtime.abandoned, [], 'the runtime was done with it')
  const throwing = start(fn)
  runtime.replyText(throwing, '{"proxy":{"path":"/throw"}}', 'body')
  t.same(throwing.seen, ['refused 502 no body'])
  const streamed = start(fn)
  streamed.onReply('{"proxy":{}}', Buffer.alloc(0), true)
  t.match(streamed.seen, [/^refused 502 invalid runtime response: a proxy directive cannot be streamed/])
  t.equal(admission.total(), 0)
})

t.test('[invocation/admission.8] random aborts, timeouts, crashes and exceptions leave no place taken', async t => {
  const random = createRandom(4711)
  const pool = { enabled: true, minWarm: 0, queueTimeoutMs: 50, queuePollMs: 20, idleTtlSeconds: 300 }
  const fns = [2, 1, 0].map(maxWorkers =>
    makeFn({
      name: `f${maxWorkers}`,
      policy: { edge: EDGE, workerPool: { ...pool, maxWorkers, maxQueue: 3, overflowStatus: 503 } },
    }),
  )
  const { clock, runtime, admission, start } = setup(call => {
    if (random(2) === 0) throw new Error('edge defect')
    call.answer(
      { status: 200, headers: [], hasBody: true, length: null, proxy: null },
      Buffer.alloc(0),
      random(2) === 0,
    )
  })
  runtime.answer = (call, own) => {
    const outcome = random(8)
    if (outcome === 0) own.reply(call, 200)
    if (outcome === 1) own.fail(call)
    if (outcome === 2) throw new Error('defect')
  }
  const calls: TestCall[] = []
  for (let step = 0; step < 5000; step++) {
    const call = calls[random(calls.length)]
    const action = random(12)
    if (action < 4 || call === undefined) calls.push(start(fns[random(3)]))
    else if (action === 4) call.abandon()
    else if (action === 5) runtime.fail(call, new GatewayError('TIMEOUT', 'runtime timeout'))
    else if (action === 6) runtime.reply(call, random(700))
    else if (action === 7) runtime.stream(call, { status: 200 + random(3) })
    else if (action === 8) runtime.end(call, random(2) === 0 ? null : new GatewayError('WORKER_DIED', 'died'))
    else if (action === 9) runtime.replyText(call, '{"proxy":{"path":"/"}}')
    else if (action === 10) call.onChunk(Buffer.from('x'))
    else clock.advance(random(40))
    if (calls.length > 50) calls.shift()!.abandon()
  }
  for (const call of calls) call.abandon()
  t.equal(admission.total(), 0)
  t.equal(clock.pending, 0)
})

t.test('[invocation/response.11] captured output', async t => {
  const { logs, start } = setup()
  const quiet = start()
  quiet.onLog('stdout', 'a')
  t.equal(quiet.stdout, '')
  const loud = start(makeFn({ policy: { includeDebugHeaders: true } }))
  loud.onLog('stdout', 'b')
  loud.onLog('stderr', 'c')
  loud.onLog('stdout', 'd'.repeat(100_000))
  loud.onLog('stdout', 'e')
  t.equal(loud.stdout.length, 65536)
  t.equal(loud.stderr, 'c')
  t.equal(logs.length, 5)
})

t.test('[invocation/response.5] an answer that is none names the file of its function', t => {
  const { runtime, start } = setup()
  for (const [header, message] of [
    ['{"status":99}', 'invalid runtime response: status must be an integer from 100 to 599, got 99 (number)'],
    ['no json', 'invalid runtime response: the reply header is not JSON'],
  ] as const) {
    const call = start(makeFn({ entryFile: 'users/[id].js' }))
    runtime.replyText(call, header)
    t.match(call.refusal, { code: 'CONTRACT_BROKEN', status: 502, detail: { file: 'users/[id].js' } })
    t.equal(call.refusal!.message, message)
  }
  t.end()
})

t.test('[invocation/admission.6] a call that waited too long is told so, once', t => {
  const { runtime, admission, clock, start } = setup()
  const fn = makeFn({ policy: { maxConcurrency: 1, defaultQueue: { maxQueue: 5, timeoutMs: 100, maxWaitMs: 0 } } })
  const running = start(fn)
  const waiting = start(fn)
  t.equal(waiting.phase, 'queued')
  clock.advance(100)
  t.same([waiting.seen, waiting.phase], [['refused 429 concurrency queue timeout'], 'done'])
  waiting.fail(new GatewayError('INTERNAL', 'again'))
  waiting.abandon()
  t.equal(waiting.seen.length, 1)
  runtime.reply(running, 200)
  t.same([runtime.calls.length, admission.total(), clock.pending], [1, 0, 0])
  t.end()
})
