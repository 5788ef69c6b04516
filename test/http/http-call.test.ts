import t from 'tap'
import { BytePool } from '../../lib/core/byte-pool.ts'
import { GatewayError } from '../../lib/core/errors.ts'
import { DebugHeaders, HttpCall } from '../../lib/http/http-call.ts'
import type { Exchange } from '../../lib/http/exchange.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeFn } from '../helpers/fn.ts'
import { makePublic } from '../helpers/public.ts'

interface Given {
  method?: string
  /** The short way is open. */
  isDirect?: boolean
  withDebug?: boolean
}

/** A call whose exchange notes what it is told, over a runtime that answers when the test says so. */
function makeCall({ method = 'GET', isDirect = false, withDebug = false }: Given = {}) {
  const fn = makeFn({ policy: { includeDebugHeaders: withDebug } })
  const { invoker, runtime, admission } = makePublic({ '/a': fn })
  runtime.answer = () => {}
  const seen: unknown[][] = []
  const made = { isTaking: true, drain: null as (() => void) | null, granted: 0 }
  const note =
    (what: string) =>
    (_: Exchange, ...rest: unknown[]): void => {
      seen.push([what, ...rest])
    }
  const exchange = {
    id: 'id-1',
    method,
    startedAt: 0,
    queuedMs: -1,
    responder: {
      send: note('send'),
      sendError: note('error'),
      openStream: note('open'),
      closeStream: note('close'),
      sendDirectly: (_: Exchange, head: { status: number }) => {
        if (isDirect) seen.push(['direct', head.status])
        return isDirect
      },
      pool: new BytePool(new FakeClock()),
      writePieces: (_: Exchange, pieces: Buffer[], _bytes: number, onTaken: () => void) => {
        seen.push(['write', Buffer.concat(pieces).toString()])
        if (made.isTaking) onTaken()
        else made.drain = onTaken
        return made.isTaking
      },
      watchClient: () => {},
      refuseIfFull: () => false,
    },
    res: { socket: null },
    connection: { hold: () => {}, release: () => {} },
  } as unknown as Exchange
  const debug = new DebugHeaders(() => ({ routing: 'single', socketIndex: null, cold: false }))
  const http = new HttpCall(fn, invoker, exchange, debug)
  http.header = '{"id":"id-1"'
  const begin = () => {
    http.onBody(Buffer.from('body'))
    const call = runtime.calls[0]!
    call.host = {
      grant: (_call: unknown, bytes: number) => {
        made.granted += bytes
      },
      abandon: () => runtime.abandon(call),
    } as never
    return call
  }
  return { http, exchange, runtime, admission, seen, made, begin }
}

t.test('[http/public.1] a body begins the call, an error of the body ends it', async t => {
  const good = makeCall()
  const call = good.begin()
  t.equal(call.body!.toString(), 'body')
  t.equal(good.admission.total(), 1)
  const bad = makeCall()
  const refused = new GatewayError('BODY_TOO_LARGE', 'payload too large')
  bad.http.onBodyError(refused)
  t.same(bad.seen, [['error', refused, []]])
  t.equal(bad.runtime.calls.length, 0)
})

t.test('[http/public.21, http/public.24] whole answers', async t => {
  const direct = makeCall({ isDirect: true })
  direct.runtime.reply(direct.begin(), 201, { A: 'b' }, 'x')
  t.same(direct.seen, [['direct', 201]])
  t.equal(direct.exchange.queuedMs, 0)
  const usual = makeCall()
  usual.runtime.reply(usual.begin(), 201, { A: 'b' }, 'x')
  t.same(usual.seen, [['send', 201, ['A', 'b'], Buffer.from('x')]])
  const told = makeCall({ isDirect: true, withDebug: true })
  told.runtime.reply(told.begin(), 200, { A: 'b' }, 'x')
  const [[what, status, headers] = []] = told.seen
  t.same([what, status], ['send', 200], 'debug headers do not go the short way')
  t.same((headers as string[]).slice(0, 2), ['A', 'b'])
  t.ok((headers as string[]).includes('X-Fn-Runtime'))
  t.equal(told.admission.total(), 0)
})

t.test('[http/public.20, http/public.24] refusals and failures', async t => {
  for (const withDebug of [false, true]) {
    const { runtime, seen, begin, exchange } = makeCall({ withDebug })
    const error = new GatewayError('TIMEOUT', 'runtime timeout')
    runtime.fail(begin(), error)
    t.equal(seen[0]![1], error)
    t.equal((seen[0]![2] as string[]).includes('X-Fn-Runtime'), withDebug)
    t.equal(exchange.queuedMs, 0)
  }
})

t.test('[http/public.22, http/public.23] streams', async t => {
  for (const [headers, expected] of [
    [{ 'content-type': 'text/plain' }, ['content-type', 'text/plain']],
    [
      { 'Content-Type': 'text/event-stream; charset=utf-8' },
      ['Content-Type', 'text/event-stream; charset=utf-8', 'Cache-Control', 'no-cache', 'X-Accel-Buffering', 'no'],
    ],
    [
      { 'content-type': 'text/event-stream', 'cache-CONTROL': 'private' },
      ['content-type', 'text/event-stream', 'cache-CONTROL', 'private', 'X-Accel-Buffering', 'no'],
    ],
    [
      { 'content-type': 'text/event-stream', 'x-accel-buffering': 'yes' },
      ['content-type', 'text/event-stream', 'x-accel-buffering', 'yes', 'Cache-Control', 'no-cache'],
    ],
  ] as const) {
    const { runtime, seen, begin } = makeCall({ isDirect: true })
    const call = begin()
    runtime.stream(call, { headers, length: 3 })
    call.onChunk(Buffer.from('abc'))
    runtime.end(call)
    t.same(seen, [
      ['open', 200, expected, 3],
      ['write', 'abc'],
      ['close', null],
    ])
  }
  const cut = makeCall()
  const call = cut.begin()
  const error = new GatewayError('WORKER_DIED', 'worker died')
  cut.runtime.stream(call, {})
  cut.runtime.end(call, error)
  t.same(cut.seen.at(-1), ['close', error])
  const late = makeCall()
  const lateCall = late.begin()
  late.runtime.stream(lateCall, {})
  lateCall.onChunk(Buffer.from('a'))
  late.runtime.end(lateCall)
  t.same(
    late.seen.slice(1),
    [
      ['write', 'a'],
      ['close', null],
    ],
    'what came in the same tick goes out before the end',
  )
})

t.test('[http/public.22, http/public.5] a stream that nobody will read is stopped', async t => {
  for (const [method, status] of [
    ['HEAD', 200],
    ['GET', 204],
    ['GET', 304],
  ] as const) {
    const { runtime, seen, begin, admission } = makeCall({ method })
    runtime.stream(begin(), { status, headers: { A: 'b' } })
    t.same(seen, [['send', status, ['A', 'b'], null]])
    t.equal(runtime.abandoned.length, 1)
    t.equal(admission.total(), 0)
  }
})

t.test('[http/public.22] the worker is granted what the client took', async t => {
  const { runtime, made, begin } = makeCall()
  const call = begin()
  runtime.stream(call, {})
  const tick = () => new Promise<void>(resolve => process.nextTick(resolve))
  call.onChunk(Buffer.from('abc'))
  await tick()
  t.equal(made.granted, 3)
  made.isTaking = false
  call.onChunk(Buffer.from('de'))
  await tick()
  call.onChunk(Buffer.from('f'))
  await tick()
  t.equal(made.granted, 3, 'not while the client is slow')
  made.isTaking = true
  made.drain!()
  t.equal(made.granted, 6, 'and all of it when it has caught up')
  call.onChunk(Buffer.from('g'))
  await tick()
  t.equal(made.granted, 7)
})

t.test('[http/public.37] the worker sends a whole body ahead of a slow client, as far as there is memory', async t => {
  const { runtime, made, begin, exchange } = makeCall({})
  const { unread } = exchange.responder.pool
  Object.assign(exchange, {
    res: { socket: {} },
    connection: { hold: (bytes: number) => (unread.used += bytes), release: (bytes: number) => (unread.used -= bytes) },
  })
  Object.assign(unread, { limit: 100 })
  made.isTaking = false
  const call = begin()
  runtime.stream(call, { length: 200 })
  const tick = () => new Promise<void>(resolve => process.nextTick(resolve))
  call.onChunk(Buffer.alloc(30))
  await tick()
  t.equal(made.granted, 30, 'at once')
  call.onChunk(Buffer.alloc(30))
  t.equal(made.granted, 30, 'half of the budget is used: the client comes first')
  made.drain!()
  t.equal(made.granted, 30, 'it took what was granted before')
  made.drain!()
  t.equal(made.granted, 60)
  const endless = makeCall({})
  endless.made.isTaking = false
  const stream = endless.begin()
  endless.runtime.stream(stream, {})
  stream.onChunk(Buffer.alloc(30))
  t.equal(endless.made.granted, 0, 'a handler that goes on waits for its client')
})
