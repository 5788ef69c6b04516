import t from 'tap'
import { fetchWith, inject } from '../../lib/http/inject.ts'
import { toRequestRecord } from '../../lib/http/exchange.ts'
import { EVENT_NAMES, GatewayEvents, type ScheduleRecord } from '../../lib/observe/events.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeFn } from '../helpers/fn.ts'
import { makePublic } from '../helpers/public.ts'

const RECORD: ScheduleRecord = {
  time: 1,
  key: 'node/f@default',
  runtime: 'node',
  fn: 'f',
  version: 'default',
  status: 200,
  attempt: 1,
  durationMs: 2,
  error: null,
}

t.test('[observe/events.1] names', async t => {
  const events = new GatewayEvents(() => {})
  t.same(EVENT_NAMES, ['request', 'reload', 'warning', 'log', 'build', 'schedule', 'job'])
  for (const name of ['requests', '', '__proto__', 'constructor', undefined])
    t.throws(() => events.on(name as never, () => {}), {
      name: 'TypeError',
      message: /request, reload, warning, log, build/,
    })
  t.throws(() => events.on('log', 'x' as never), TypeError)
})

t.test('[observe/events.2] order and removal', async t => {
  const events = new GatewayEvents(() => {})
  const seen: string[] = []
  t.equal(events.has('schedule'), false)
  events.emit('schedule', RECORD)
  const offOne = events.on('schedule', record => {
    seen.push(`one ${record.fn}`)
    offOne()
  })
  const offTwo = events.on('schedule', () => seen.push('two'))
  t.equal(events.has('schedule'), true)
  t.equal(events.has('log'), false)
  events.emit('schedule', RECORD)
  events.emit('schedule', RECORD)
  offTwo()
  offTwo()
  offOne()
  events.emit('schedule', RECORD)
  t.same(seen, ['one f', 'two', 'two'])
  t.equal(events.has('schedule'), false)
})

t.test('[observe/events.3, observe/events.4] a listener that throws, and two gateways', async t => {
  const errors: unknown[] = []
  const events = new GatewayEvents((name, error) => errors.push([name, error]))
  const other = new GatewayEvents(() => {})
  const seen: string[] = []
  const problem = new Error('bad listener')
  events.on('schedule', () => {
    throw problem
  })
  events.on('schedule', () => seen.push('mine'))
  other.on('schedule', () => seen.push('other'))
  events.emit('schedule', RECORD)
  t.same(seen, ['mine'])
  t.same(errors, [['schedule', problem]])
})

t.test('[observe/events.3] neither does one that throws at the lines of another process', async t => {
  const errors: unknown[] = []
  const events = new GatewayEvents((name, error) => errors.push([name, error]))
  const problem = new Error('bad taker')
  events.on(
    'request',
    () => t.fail('they were offered as lines'),
    () => {
      throw problem
    },
  )
  const seen: string[] = []
  events.on('request', ({ path }) => {
    seen.push(path)
    throw problem
  })
  events.emitLines(
    Buffer.from('a\nb\n'),
    ({ bytes, from, to }) => ({ path: bytes.toString('utf8', from, to) }) as never,
    true,
  )
  t.same(seen, ['a', 'b'])
  t.same(errors, Array(3).fill(['request', problem]))
})

t.test('[observe/events.5] one record per request', async t => {
  const clock = new FakeClock()
  const fn = makeFn({ name: 'users', version: 'v1', policy: { methods: ['GET', 'POST'] } })
  const { handle, runtime, finished } = makePublic({ '/users/:id': fn }, { clock })
  const record = (index: number) => toRequestRecord(finished[index]!, clock.wall(), clock.monotonic())
  const trace = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'
  runtime.answer = (call, own) => {
    clock.advance(5)
    own.reply(call, 201, {}, 'four')
  }
  await inject(handle, {
    method: 'POST',
    url: '/users/7?a=1',
    body: '12345',
    headers: { traceparent: trace, 'user-agent': 'u' },
  })
  t.same(record(0), {
    time: clock.wall(),
    id: 'test-1',
    method: 'POST',
    path: '/users/7',
    route: '/users/:id',
    fn: 'users',
    version: 'v1',
    runtime: 'node',
    entryFile: 'users/handler.js',
    status: 201,
    durationMs: 5,
    queuedMs: 0,
    bytesIn: 5,
    bytesOut: 4,
    ip: '127.0.0.1',
    userAgent: 'u',
    traceId: '4bf92f3577b34da6a3ce929d0e0e4736',
    error: null,
  })
  await inject(handle, { url: '/nowhere' })
  t.match(record(1), { status: 404, route: null, fn: null, runtime: null, error: 'not found', path: '/nowhere' })
  await inject(handle, { url: '/%zz?x' })
  t.match(record(2), { status: 400, path: '/%zz?x' })
  runtime.answer = () => {}
  const abort = new AbortController()
  const left = fetchWith(handle, new Request('http://h/users/1', { signal: abort.signal }))
  abort.abort()
  await t.rejects(left)
  t.match(record(3), { status: 499, fn: 'users', error: null })
  runtime.answer = (call, own) => own.stream(call, {})
  const late = new AbortController()
  await fetchWith(handle, new Request('http://h/users/1', { signal: late.signal }))
  late.abort()
  t.match(record(4), { status: 200 })
  t.equal(finished[4]!.aborted, true)
  t.equal(finished.length, 5)
})
