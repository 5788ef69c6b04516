import t, { type Test } from 'tap'
import { HttpServer, MAX_HELD_REQUESTS, MAX_HOLD_MS, StartGate } from '../../lib/http/server.ts'
import { GatewayError } from '../../lib/core/errors.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeFn } from '../helpers/fn.ts'
import { makePublic } from '../helpers/public.ts'
import { RawConnection } from '../helpers/raw-http.ts'

const GET = 'GET /a HTTP/1.1\r\nHost: h\r\n\r\n'
const HEALTH = 'GET /_fn/health?ready=1 HTTP/1.1\r\nHost: h\r\n\r\n'

/** A server that listens before it serves. */
async function serve(t: Test) {
  const made = makePublic({ '/a': makeFn({ policy: { methods: ['GET', 'POST'] } }) })
  const clock = new FakeClock()
  const lifecycle = Object.assign(made.lifecycle, { starting: true })
  const gate = new StartGate({ clock, requestIds: made.requestIds, lifecycle })
  let held = 0
  const inner = gate.wrap(made.handle)
  let left = 0
  const handle: typeof inner = (req, res, ...rest) => {
    held += 1
    inner(req, res, ...rest)
    req.socket.once('close', () => {
      left += 1
    })
  }
  const server = new HttpServer({ handle, clock: made.clock, requestIds: made.requestIds, lifecycle })
  const { port } = await server.listen(0, '127.0.0.1')
  t.teardown(() => server.close(0))
  const begin = () => {
    lifecycle.starting = false
    gate.open()
  }
  const until = async (count: number) => {
    while (held < count) await new Promise(setImmediate)
  }
  /** Resolves when as many requests have lost their connection. */
  const untilLeft = async (count: number) => {
    while (left < count) await new Promise(setImmediate)
  }
  return { ...made, gate, clock, begin, until, untilLeft, open: () => RawConnection.open(port) }
}

t.test('[http/public.34] requests wait until the gateway serves, probes do not', async t => {
  const { open, until, begin, runtime, clock } = await serve(t)
  const first = await open()
  first.write(`POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody`)
  await until(1)
  const probe = await open()
  probe.write(HEALTH)
  t.match(await probe.answers(1), [{ status: 200, body: /_fn\/health/ }])
  // On the connection of one that waits a probe does not overtake it.
  first.write(HEALTH + GET)
  await until(4)
  t.equal(first.text, '')
  t.equal(runtime.calls.length, 0)
  begin()
  const answers = await first.answers(3)
  t.same(
    answers.map(({ status }) => status),
    [200, 200, 200],
  )
  t.match(answers[1]!.body, /_fn\/health/)
  t.equal(clock.pending, 0, 'no timer is left')
  const later = await open()
  later.write(GET)
  t.match(await later.answers(1), [{ status: 200 }])
})

t.test('[http/public.34] a client that leaves is not waited for', async t => {
  const { open, until, untilLeft, begin, runtime } = await serve(t)
  const gone = await open()
  gone.write(GET + GET)
  const stays = await open()
  stays.write(GET)
  await until(3)
  gone.socket.destroy()
  await untilLeft(2)
  begin()
  t.match(await stays.answers(1), [{ status: 200 }])
  t.equal(runtime.calls.length, 1)
})

t.test('[http/public.34] waiting has limits', async t => {
  const { open, until, runtime, clock, begin } = await serve(t)
  const many = await open()
  many.write(GET.repeat(MAX_HELD_REQUESTS))
  await until(MAX_HELD_REQUESTS)
  const tooMany = await open()
  tooMany.write('GET /a HTTP/1.1\r\nHost: h\r\nX-Request-Id: mine\r\n\r\n')
  const refused = {
    status: 503,
    body: '{"error":"gateway is starting"}',
    headers: { 'retry-after': '1', connection: 'close', 'x-request-id': 'mine' },
  }
  t.match(await tooMany.answers(1), [refused])
  clock.advance(MAX_HOLD_MS)
  t.match(await many.answers(1), [{ status: 503, headers: { 'x-request-id': /^test-/ } }])
  await many.closed()
  t.equal(clock.pending, 0)
  begin()
  t.equal(runtime.calls.length, 0)
})

t.test('[http/public.34] a gateway that ends before it served refuses what waits', async t => {
  const { open, until, gate } = await serve(t)
  const waiting = await open()
  waiting.write(GET)
  await until(1)
  gate.refuse(new GatewayError('SHUTTING_DOWN', 'gateway is shutting down'))
  t.match(await waiting.answers(1), [{ status: 503, body: /shutting down/ }])
})
