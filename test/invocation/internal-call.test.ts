import t from 'tap'
import { GatewayError } from '../../lib/core/errors.ts'
import { inject } from '../../lib/http/inject.ts'
import { invokeInternal } from '../../lib/invocation/internal-call.ts'
import { headerOfCall } from '../helpers/fake-runtime.ts'
import { makeFn } from '../helpers/fn.ts'
import { makePublic } from '../helpers/public.ts'

t.test(
  '[invocation/event.5, invocation/event.8, invocation/event.12] an internal call has every part of an event',
  async t => {
    const { invoker, runtime } = makePublic({})
    const fn = makeFn({ policy: { methods: ['POST'] } })
    runtime.answer = (call, own) => {
      call.onLog('stdout', 'out')
      call.onLog('stderr', 'err')
      own.reply(call, 201, { 'X-A': ['1', '2'] }, 'body')
    }
    const result = await invokeInternal(invoker, {
      fn,
      id: 'i-1',
      method: 'POST',
      path: '/hello',
      params: { id: '7' },
      query: { a: 1, b: ['x'] },
      headers: { 'X-Fn-Admin-Token': 's', 'User-Agent': 'u', Cookie: 'fngw_session=1; sid=2', ['__proto__']: 'p' },
      body: 'héllo',
      user: { name: 'u' },
      trigger: { type: 'schedule' },
      ip: '127.0.0.1',
    })
    t.match(result, { status: 201, headers: ['X-A', '1', 'X-A', '2'], stdout: 'out', stderr: 'err', error: null })
    t.equal(result.body.toString(), 'body')
    t.match(headerOfCall(runtime.calls[0]!), {
      id: 'i-1',
      method: 'POST',
      path: '/hello',
      raw_path: '/hello',
      params: { id: '7' },
      query: { a: '1', b: ['x'] },
      headers: { 'user-agent': 'u', cookie: 'sid=2' },
      client: { ip: '127.0.0.1', ua: 'u' },
      session: { id: '2' },
      user: { name: 'u' },
      trigger: { type: 'schedule' },
    })
    t.match(runtime.calls[0]!.header, '"__proto__":"p"')
    t.notMatch(runtime.calls[0]!.header, 'admin-token')
    t.equal(runtime.calls[0]!.body!.toString(), 'héllo')
  },
)

t.test('[invocation/admission.1, invocation/event.12] one counter for all doors, and refusals as values', async t => {
  const { handle, invoker, runtime, admission } = makePublic({ '/hello': makeFn({ policy: { maxConcurrency: 1 } }) })
  const fn = makeFn({ policy: { maxConcurrency: 1, maxBodyBytes: 3, methods: ['GET'] } })
  const request = { fn, id: 'i', method: 'GET', path: '/hello' }
  runtime.answer = () => {}
  const running = invokeInternal(invoker, request)
  const refused = await inject(handle, { url: '/hello' })
  t.equal(refused.status, 429)
  t.match(await invokeInternal(invoker, request), { status: 429, error: { message: 'concurrency limit reached' } })
  runtime.fail(runtime.calls[0]!, new GatewayError('TIMEOUT', 'runtime timeout'))
  t.match(await running, { status: 504, error: { code: 'TIMEOUT' }, headers: [], body: { length: 0 } })
  t.match(await invokeInternal(invoker, { ...request, method: 'PUT' }), {
    status: 405,
    error: { headers: { Allow: 'GET, HEAD' } },
  })
  t.match(await invokeInternal(invoker, { ...request, body: '1234' }), { status: 413 })
  const odd = makeFn({ name: 'odd', policy: { adapter: null, adapterName: 'x' } })
  t.match(await invokeInternal(invoker, { ...request, fn: odd }), { status: 500, error: { code: 'LOAD_FAILED' } })
  t.equal(admission.total(), 0)
})

t.test('[invocation/event.12] streams are collected, up to a limit', async t => {
  const { invoker, runtime } = makePublic({})
  const request = { fn: makeFn(), id: 'i', method: 'GET', path: '/' }
  runtime.answer = (call, own) => {
    own.stream(call, { status: 200 })
    call.onChunk(Buffer.from('a'))
    call.onChunk(Buffer.from('b'))
    own.end(call)
  }
  t.equal((await invokeInternal(invoker, request)).body.toString(), 'ab')
  runtime.answer = (call, own) => {
    own.stream(call, { status: 200 })
    own.end(call, new GatewayError('WORKER_DIED', 'worker died'))
  }
  t.match(await invokeInternal(invoker, request), { status: 503, error: { code: 'WORKER_DIED' } })
  runtime.answer = (call, own) => {
    own.stream(call, { status: 200 })
    for (let i = 0; i < 17; i++) call.onChunk(Buffer.alloc(1024 * 1024))
  }
  t.match(await invokeInternal(invoker, request), { status: 502, error: { message: /^answer too large/ } })
  t.equal(runtime.abandoned.length, 1)
  runtime.answer = (call, own) => own.reply(call, 204, {}, 'ignored')
  t.equal((await invokeInternal(invoker, request)).body.length, 0)
})

t.test('[invocation/event.13] an internal call can be stopped', async t => {
  const { invoker, runtime, admission } = makePublic({})
  runtime.answer = () => {}
  const request = { fn: makeFn(), id: 'i', method: 'GET', path: '/' }
  const stop = new AbortController()
  const running = invokeInternal(invoker, { ...request, signal: stop.signal })
  t.equal(admission.total(), 1)
  stop.abort()
  t.match(await running, { status: 0, error: { message: 'call canceled' } })
  t.equal(runtime.abandoned.length, 1)
  t.match(await invokeInternal(invoker, { ...request, signal: stop.signal }), { status: 0 })
  t.equal(runtime.calls.length, 1)
  t.equal(admission.total(), 0)
})

t.test('[invocation/event.16] what cannot be handed to a worker is refused as a value', async t => {
  const { invoker, runtime } = makePublic({})
  const request = { fn: makeFn(), id: 'i', method: 'GET', path: '/' }
  const loop: Record<string, unknown> = {}
  loop.self = loop
  let deep: unknown = 1
  for (let i = 0; i < 200_000; i++) deep = [deep]
  for (const user of [loop, { big: 1n }, deep])
    t.match(await invokeInternal(invoker, { ...request, user }), {
      status: 400,
      error: { code: 'BAD_REQUEST', message: /^query, headers and context must be JSON values: / },
    })
  const large = 'x'.repeat(1024 * 1024)
  for (const more of [{ user: large }, { query: { large } }, { headers: { 'X-Large': large } }])
    t.match(await invokeInternal(invoker, { ...request, ...more }), {
      status: 413,
      error: { message: 'query, headers and context are too large: together at most 1048576 bytes' },
    })
  t.equal(runtime.calls.length, 0)
  await invokeInternal(invoker, { ...request, user: () => {} })
  t.equal(headerOfCall(runtime.calls[0]!).user, null)
})

t.test('[invocation/event.17] the answer to HEAD has no body, and a stream for nobody is stopped', async t => {
  const { invoker, runtime, admission } = makePublic({})
  const request = { fn: makeFn(), id: 'i', method: 'HEAD', path: '/' }
  t.match(await invokeInternal(invoker, request), { status: 200, body: { length: 0 }, error: null })
  runtime.answer = (call, own) => own.stream(call, { status: 200, headers: { 'X-A': 'a' } })
  t.match(await invokeInternal(invoker, request), { status: 200, headers: ['X-A', 'a'], body: { length: 0 } })
  runtime.answer = (call, own) => own.stream(call, { status: 204 })
  t.match(await invokeInternal(invoker, { ...request, method: 'GET' }), { status: 204 })
  t.equal(runtime.abandoned.length, 2)
  t.equal(admission.total(), 0)
})

t.test('[invocation/event.18] the mark of the gateway comes with a trigger only', async t => {
  const { invoker, runtime } = makePublic({})
  const request = { fn: makeFn(), id: 'i', method: 'GET', path: '/', headers: { 'X-Fn-Trigger': 'keep_warm' } }
  await invokeInternal(invoker, request)
  await invokeInternal(invoker, { ...request, trigger: { type: 'keep_warm' } })
  t.same(
    runtime.calls.map(call => headerOfCall(call).headers),
    [{}, { 'x-fn-trigger': 'keep_warm' }],
  )
})

t.test('[invocation/response.7] what a caller does with the headers of one answer is not seen in the next', async t => {
  const { handle, invoker, runtime } = makePublic({ '/hello': makeFn() })
  const request = { fn: makeFn(), id: 'i', method: 'GET', path: '/hello' }
  runtime.answer = (call, own) => own.reply(call, 200, { 'X-A': '1' }, 'body')
  const first = await invokeInternal(invoker, request)
  ;(first.headers as string[])[1] = 'changed'
  ;(first.headers as string[]).push('X-B', '2')
  t.same((await invokeInternal(invoker, request)).headers, ['X-A', '1'])
  const { headers } = await inject(handle, { url: '/hello' })
  t.equal(headers['x-a'], '1')
  t.notOk('x-b' in headers)
})

t.test('[observe/trace.6] an internal call is part of the trace of its headers, or begins one', async t => {
  const { invoker, runtime } = makePublic({})
  runtime.answer = (call, own) => own.reply(call, 200, {}, '')
  const request = { fn: makeFn({ policy: { methods: ['GET'] } }), id: 'i', method: 'GET', path: '/hello' }
  const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'
  const named = await invokeInternal(invoker, { ...request, headers: { Traceparent: traceparent, TraceState: 'a=1' } })
  t.equal(named.trace, traceparent)
  t.match(headerOfCall(runtime.calls[0]!), { trace: traceparent, trace_state: 'a=1' })
  const begun = await invokeInternal(invoker, { ...request, headers: { traceparent: 'x', tracestate: 'a=1' } })
  t.match(begun.trace, /^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/)
  t.equal(headerOfCall(runtime.calls[1]!).trace, begun.trace)
  t.notOk('trace_state' in headerOfCall(runtime.calls[1]!))
  const refused = await invokeInternal(invoker, { ...request, method: 'PUT' })
  t.match(refused, { status: 405, trace: /^00-/ })
})

/** Takes a body piece by piece, each when the test lets it. */
function makeSink() {
  const seen: string[] = []
  const waiting: { take: () => void; refuse: (error: Error) => void }[] = []
  const sink = {
    begin: (status: number, headers: readonly string[]) => void seen.push(`${status} ${headers.join(':')}`),
    write: (piece: Buffer) => {
      seen.push(String(piece))
      return new Promise<void>((take, refuse) => waiting.push({ take, refuse }))
    },
  }
  const untilWaiting = async (): Promise<(typeof waiting)[number]> => {
    while (waiting.length === 0) await new Promise(resolve => setImmediate(resolve))
    return waiting.shift()!
  }
  return { sink, seen, untilWaiting }
}

t.test('[invocation/event.12] whoever takes the body piece by piece holds the worker back until it has', async t => {
  const { invoker, runtime, admission } = makePublic({})
  runtime.answer = () => {}
  const { sink, seen, untilWaiting } = makeSink()
  const running = invokeInternal(invoker, { fn: makeFn(), id: 'i', method: 'GET', path: '/hello', sink })
  const call = runtime.calls[0]!
  runtime.stream(call, { status: 206, headers: { 'X-A': 'a' } })
  const piece = Buffer.from('one')
  call.onChunk(piece)
  // What a worker sent is read over with the next read.
  piece.fill('!')
  call.onChunk(Buffer.from('three'))
  const first = await untilWaiting()
  t.same([seen, runtime.granted], [['206 X-A:a', 'one'], 0], 'one after the other')
  first.take()
  const second = await untilWaiting()
  t.equal(runtime.granted, 3)
  runtime.end(call)
  let isOver = false
  void running.then(() => (isOver = true))
  await new Promise(resolve => setImmediate(resolve))
  t.notOk(isOver, 'not before the last piece was taken')
  second.take()
  t.match(await running, { status: 206, headers: ['X-A', 'a'], body: { length: 0 }, error: null })
  t.same(seen, ['206 X-A:a', 'one', 'three'])
  t.equal(admission.total(), 0)
})

t.test('[invocation/event.12] a taker that fails ends the call, and is given nothing more', async t => {
  for (const isEnded of [false, true]) {
    const { invoker, runtime, admission } = makePublic({})
    runtime.answer = () => {}
    const { sink, seen, untilWaiting } = makeSink()
    const running = invokeInternal(invoker, { fn: makeFn(), id: 'i', method: 'GET', path: '/hello', sink })
    const call = runtime.calls[0]!
    runtime.stream(call, { status: 200 })
    call.onChunk(Buffer.from('one'))
    call.onChunk(Buffer.from('two'))
    if (isEnded) runtime.end(call)
    const first = await untilWaiting()
    first.refuse(new GatewayError('INTERNAL', 'disk full'))
    t.match(await running, { status: 500, error: { message: 'disk full' } })
    t.same(seen, ['200 ', 'one'])
    t.equal(runtime.abandoned.length, isEnded ? 0 : 1)
    t.equal(admission.total(), 0)
  }
})

t.test('[invocation/event.17] of an answer to HEAD a taker gets the head', async t => {
  const { invoker, runtime } = makePublic({})
  const { sink, seen } = makeSink()
  const request = { fn: makeFn(), id: 'i', method: 'HEAD', path: '/hello', sink }
  runtime.answer = (call, own) => own.reply(call, 200, { 'X-A': 'a' }, 'for nobody')
  t.match(await invokeInternal(invoker, request), { status: 200, error: null })
  runtime.answer = (call, own) => own.stream(call, { status: 201 })
  t.match(await invokeInternal(invoker, request), { status: 201, error: null })
  t.same(seen, ['200 X-A:a', '201 '])
})

t.test('[invocation/event.16] a call is checked like a request, unless it is nobody’s', async t => {
  const { invoker, runtime } = makePublic({})
  const checked: unknown[] = []
  let [wrongTexts, wrongBody] = [null, null] as (GatewayError | null)[]
  const request = {
    fn: makeFn({ policy: { validate: true, methods: ['POST'] } }),
    ...{ id: 'i', method: 'POST', path: '/hello', params: { id: '7' }, query: { page: 1 }, body: '{}' },
    headers: { 'Content-Type': 'application/json', 'X-A': 'b' },
  }
  t.equal((await invokeInternal(invoker, request)).status, 200, 'nothing is checked where there are no schemas')
  const schemas = {
    checkTexts: (_fn: unknown, texts: object) => {
      checked.push(texts)
      return wrongTexts
    },
    checkBody: (_fn: unknown, method: string, type: string | null, body: Buffer | null) => {
      checked.push([method, type, String(body)])
      return wrongBody
    },
    checkAnswer: () => null,
  }
  Object.assign(invoker, { schemas })
  const run = async (more: object = {}) => (await invokeInternal(invoker, { ...request, ...more })).status
  await run()
  t.same(checked.splice(0), [
    {
      method: 'POST',
      params: { id: '7' },
      queryJson: '{"page":"1"}',
      headersJson: '{"content-type":"application/json","x-a":"b"}',
    },
    ['POST', 'application/json', '{}'],
  ])
  const calls = runtime.calls.length
  wrongBody = new GatewayError('BAD_REQUEST', 'body: wrong')
  t.equal(await run(), 400)
  wrongTexts = new GatewayError('BAD_REQUEST', 'page: wrong')
  t.equal(await run(), 400)
  t.equal(checked.length, 3, 'the first thing wrong is enough')
  t.equal(runtime.calls.length, calls, 'no worker sees it')
  t.not(await run({ isUnchecked: true }), 400)
  t.equal(checked.length, 3)
})
