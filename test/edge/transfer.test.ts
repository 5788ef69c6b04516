import type { IncomingMessage, ServerResponse } from 'node:http'
import t, { type Test } from 'tap'
import type { GatewayError } from '../../lib/core/errors.ts'
import { UpstreamAddresses } from '../../lib/edge/addresses.ts'
import { EdgeConnections } from '../../lib/edge/connections.ts'
import { type EdgeRequest, type EdgeTarget, readSpellings } from '../../lib/edge/target.ts'
import { type EdgeContext, EdgeTransfer } from '../../lib/edge/transfer.ts'
import type { ReplyHead } from '../../lib/invocation/response.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeFn } from '../helpers/fn.ts'
import { waitUntil } from '../helpers/gateway-bed.ts'
import { httpUpstream, rawUpstream } from '../helpers/upstream.ts'

const TRACE = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'

interface Given extends Partial<Omit<EdgeRequest, 'to'>>, Partial<EdgeTarget> {
  allowPrivate?: boolean
  body?: string
  startedAt?: (now: number) => number
  span?: object
}

function makeBed(
  t: Test,
  names: Record<string, string[] | Promise<string[]>> = {},
  listening: { host: string; port: number }[] = [],
) {
  const clock = new FakeClock()
  const connections = new EdgeConnections(clock)
  t.teardown(() => connections.close())
  let forgotten = 0
  const context: EdgeContext = {
    clock,
    addresses: new UpstreamAddresses(
      () => listening,
      async name => {
        if (names[name] === undefined) throw new Error('no such name')
        return (await names[name]).map(address => ({ address, family: address.includes(':') ? 6 : 4 }))
      },
      () => ['127.0.0.1', '192.0.2.77'],
    ),
    connections,
    forget: () => {
      forgotten += 1
    },
  }
  const begin = ({ allowPrivate = true, body = '', startedAt = () => 0, span, ...given }: Given) => {
    const { hostname = '127.0.0.1', port = 80, host = 'up.test', path = '/x' } = given
    const request: EdgeRequest = {
      to: { isTls: false, hostname, port, host, path, spellings: readSpellings(path)! },
      method: 'GET',
      headers: [],
      timeoutMs: null,
      maxResponseBytes: 1000,
      ...given,
    }
    const seen: string[] = []
    const call = {
      fn: makeFn({ policy: { timeoutMs: 500 } }),
      startedAt: startedAt(clock.monotonic()),
      trace: TRACE,
      traceState: null,
      stopEdge: null as (() => void) | null,
      grantEdge: null as ((bytes: number) => void) | null,
      span: span === undefined ? null : { upstream: () => span },
      answer: (head: ReplyHead, bytes: Buffer) => seen.push(`${head.status} ${bytes}`),
      answerChunk: (bytes: Buffer) => seen.push(`chunk ${bytes}`),
      answerEnd: (error: GatewayError | null) => seen.push(`end ${error?.message ?? 'ok'}`),
      fail: (error: GatewayError) => seen.push(`${error.status} ${error.message.replace('edge proxy failed: ', '')}`),
    }
    const transfer = new EdgeTransfer(context, call as never, request, Buffer.from(body))
    call.stopEdge = () => transfer.stop()
    void transfer.start(allowPrivate)
    const settled = async () => {
      await waitUntil(() => seen.length > 0, 'the transfer ends')
      return seen[0]!
    }
    return { seen, call, transfer, settled }
  }
  return { clock, begin, forgotten: () => forgotten }
}

async function listen(t: Test, handler: (req: IncomingMessage, res: ServerResponse) => void) {
  const upstream = await httpUpstream(handler)
  t.teardown(upstream.close)
  return upstream
}

t.test('[edge/passthrough.8, edge/passthrough.9, edge/passthrough.10] which addresses are refused', async t => {
  const upstream = await listen(t, () => t.fail('reached'))
  const { begin, clock, forgotten } = makeBed(t, {
    'mixed.test': ['8.8.8.8', '127.0.0.1'],
    'own.test': ['192.0.2.77'],
    'meta.test': ['169.254.169.254'],
    'none.test': [],
  })
  const rows: [given: Given, expected: string][] = [
    [{ allowPrivate: false }, '502 proxy denied: private host not allowed'],
    [{ hostname: 'mixed.test', allowPrivate: false }, '502 proxy denied: private host not allowed'],
    [{ hostname: 'own.test', allowPrivate: false }, '502 proxy denied: private host not allowed'],
    [{ hostname: 'meta.test', allowPrivate: false }, '502 proxy denied: private host not allowed'],
    [{ hostname: 'meta.test' }, '502 proxy denied: special address not allowed'],
    [{ hostname: '0.0.0.0' }, '502 proxy denied: special address not allowed'],
    [{ hostname: 'none.test' }, '502 proxy request failed: name not resolved'],
    [{ hostname: 'unknown.test' }, '502 proxy request failed: name not resolved'],
  ]
  for (const [given, expected] of rows)
    t.equal(await begin({ port: upstream.port, ...given }).settled(), expected, JSON.stringify(given))
  t.equal(forgotten(), rows.length)
  t.equal(clock.pending, 0)
})

t.test('[edge/passthrough.12, edge/passthrough.13] this gateway as an upstream', async t => {
  const upstream = await listen(t, (_req, res) => res.end('page'))
  const { port } = upstream
  const { begin } = makeBed(t, {}, [{ host: '127.0.0.1', port }])
  for (const [path, expected] of [
    ['/page', '200 page'],
    ['/prefix/_fn/health', '502 proxy denied: control-plane path not allowed'],
    ['/a/%5ffn', '502 proxy denied: control-plane path not allowed'],
  ] as const)
    t.equal(await begin({ port, path }).settled(), expected, path)
  const elsewhere = makeBed(t, {}, [{ host: '127.0.0.1', port: port + 1 }])
  t.equal(await elsewhere.begin({ port, path: '/prefix/_fn/health' }).settled(), '200 page')
})

t.test('[edge/passthrough.14, edge/passthrough.26] the request that is sent, and over which connection', async t => {
  const heads: string[] = []
  const upstream = await listen(t, (req, res) => {
    heads.push(`${req.method} ${req.headers.host} ${req.headers['content-length'] ?? 'none'} ${req.headers.connection}`)
    req.resume().on('end', () => res.end())
  })
  const { begin } = makeBed(t)
  for (const [method, body, expected] of [
    ['GET', '', 'GET up.test none keep-alive'],
    ['HEAD', '', 'HEAD up.test none keep-alive'],
    ['PUT', '', 'PUT up.test 0 keep-alive'],
    ['DELETE', 'x', 'DELETE up.test 1 keep-alive'],
    ['POST', 'abc', 'POST up.test 3 keep-alive'],
    ['PATCH', '', 'PATCH up.test 0 keep-alive'],
  ] as const) {
    await begin({ port: upstream.port, method, body }).settled()
    t.equal(heads.at(-1), expected)
  }
  t.ok(upstream.connections() < heads.length, 'one is used again')
})

t.test('[edge/passthrough.26] a kept connection that turns out to be closed', async t => {
  let count = 0
  const upstream = await rawUpstream(socket => {
    count += 1
    // The second request of a connection finds it closed.
    if (count === 2) socket.destroy()
    else socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
  })
  t.teardown(upstream.close)
  const { begin } = makeBed(t)
  t.equal(await begin({ port: upstream.port }).settled(), '200 ok')
  t.equal(await begin({ port: upstream.port }).settled(), '200 ok', 'sent once more on a new one')
  t.equal(count, 3)
  const never = await rawUpstream(socket => socket.destroy())
  t.teardown(never.close)
  t.equal(await begin({ port: never.port }).settled(), '502 proxy request failed: connection reset', 'and not for ever')
  t.equal(never.connections(), 1)
})

t.test('[edge/passthrough.26] a post is never sent twice, whatever becomes of its connection', async t => {
  const bodies: string[] = []
  let mayAnswer = true
  const upstream = await rawUpstream((socket, head) => {
    bodies.push(head.split('\r\n\r\n')[1]!)
    if (mayAnswer) socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
    else socket.destroy()
  })
  t.teardown(upstream.close)
  const { begin } = makeBed(t)
  const post = async (body: string) => {
    const settled = await begin({ port: upstream.port, method: 'POST', body }).settled()
    // Behind an answer a whole turn has to pass.
    for (let at = 0; at < 3; at++) await new Promise(setImmediate)
    return settled
  }
  for (const body of ['a', 'b', 'c']) t.equal(await post(body), '200 ok')
  t.equal(upstream.connections(), 1)
  mayAnswer = false
  t.equal(
    await post('lost'),
    '502 proxy request failed: connection closed before an answer, and the request cannot be repeated',
  )
  t.equal(upstream.connections(), 1)
  t.equal(await post('on a new one'), '502 proxy request failed: connection reset')
  t.equal(upstream.connections(), 2)
  t.same(bodies, ['a', 'b', 'c', 'lost', 'on a new one'])
})

t.test('[edge/passthrough.21] the time of the handler counts, and a directive only lowers', async t => {
  const upstream = await listen(t, () => {})
  const { begin, clock } = makeBed(t)
  for (const [given, ms, limit] of [
    [{}, 500, 'timeout_ms 500'],
    [{ timeoutMs: 40 }, 40, 'proxy.timeout_ms 40'],
    [{ startedAt: (now: number) => now - 300 }, 200, 'timeout_ms 500'],
    [{ startedAt: (now: number) => now - 900 }, 1, 'timeout_ms 500'],
  ] as const) {
    const { seen, call } = begin({ port: upstream.port, ...given })
    clock.advance(ms - 1)
    t.same(seen, [], limit)
    clock.advance(1)
    t.same(seen, [`504 upstream timeout: no answer within ${limit}`])
    t.equal(call.stopEdge, null)
    t.equal(clock.pending, 0)
  }
})

t.test(
  '[edge/passthrough.22, edge/passthrough.24] changes of protocol, refusals, and a client that leaves',
  async t => {
    const upgrading = await rawUpstream(socket =>
      socket.write('HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n'),
    )
    t.teardown(upgrading.close)
    const { begin, forgotten, clock } = makeBed(t)
    t.equal(await begin({ port: upgrading.port }).settled(), '502 upstream asked for another protocol')
    t.equal(await begin({ port: 1 }).settled(), '502 proxy request failed: connection refused')
    let isGone = false
    let isAsked = false
    const silent = await listen(t, (_req, res) => {
      isAsked = true
      res.on('close', () => (isGone = true))
    })
    const { call, seen, transfer } = begin({ port: silent.port })
    await waitUntil(() => isAsked, 'the upstream is asked')
    call.stopEdge!()
    await waitUntil(() => isGone, 'the upstream sees the client leave')
    transfer.stop()
    transfer.fail({ message: 'late' } as GatewayError)
    t.same(seen, [], 'no callback')
    t.equal(forgotten(), 3)
    t.equal(clock.pending, 0)
  },
)

const OK = 'HTTP/1.1 200 OK\r\n'

t.test(
  '[edge/passthrough.17, edge/passthrough.22] an answer that has begun is cut when its upstream breaks off',
  async t => {
    let cut: () => void = () => {}
    const upstream = await rawUpstream(socket => {
      socket.write(`${OK}Content-Length: 9\r\n\r\nhalf`)
      cut = () => socket.destroy()
    })
    t.teardown(upstream.close)
    const { begin, clock } = makeBed(t)
    const { seen, transfer } = begin({ port: upstream.port })
    await waitUntil(() => clock.pending === 2, 'the start is held back')
    t.same(seen, [])
    clock.advance(25)
    t.same(seen, ['200 ', 'chunk half'])
    cut()
    await waitUntil(() => seen.length === 3, 'the end')
    t.equal(seen[2], 'end edge proxy failed: proxy request failed: connection reset')
    t.equal(transfer.result, 'failed')
    t.equal(clock.pending, 0)
  },
)

t.test('[edge/passthrough.16, edge/passthrough.18, edge/passthrough.20] answers that are not passed on', async t => {
  const { begin, forgotten } = makeBed(t)
  const rows: [answer: string, expected: string][] = [
    [`${OK}Content-Length: 1001\r\n\r\n`, '502 upstream response too large: the limit is 1000 bytes'],
    [`${OK}\r\n${'x'.repeat(1001)}`, '502 upstream response too large: the limit is 1000 bytes'],
    [`${OK}Content-Encoding: nope\r\n\r\nx`, '502 upstream answered with a Content-Encoding that cannot be counted'],
    [`${OK}Content-Encoding: gzip\r\n\r\nx`, '502 upstream response does not match its Content-Encoding'],
  ]
  for (const [answer, expected] of rows) {
    const upstream = await rawUpstream(socket => socket.end(answer))
    t.teardown(upstream.close)
    const { seen, settled, transfer } = begin({ port: upstream.port })
    t.equal(await settled(), expected)
    t.equal(seen.length, 1)
    t.equal(transfer.result, 'failed')
  }
  t.equal(forgotten(), rows.length)
})

t.test(
  '[edge/passthrough.19, edge/passthrough.31] a client that takes nothing is cut, one that takes it gets the rest',
  async t => {
    const text = 'x'.repeat(300_000)
    const upstream = await listen(t, (_req, res) => res.end(text))
    const { begin, clock } = makeBed(t)
    for (const takes of [true, false]) {
      const { seen, call } = begin({ port: upstream.port, maxResponseBytes: 1_000_000 })
      const taken = () => seen.filter(word => word.startsWith('chunk ')).reduce((sum, word) => sum + word.length - 6, 0)
      await waitUntil(() => taken() >= 65_536, 'the window is full')
      let granted = 0
      while (takes && taken() < text.length) {
        const before = taken()
        call.grantEdge!(before - granted)
        granted = before
        await waitUntil(() => taken() > before, 'more comes')
      }
      if (!takes) {
        const before = taken()
        clock.advance(9_999)
        t.ok(seen.every(word => !word.startsWith('end')))
        clock.advance(1)
        t.equal(taken(), before)
      }
      await waitUntil(() => seen.at(-1)!.startsWith('end'), 'the end')
      if (takes) t.equal(seen.at(-1), 'end ok')
      else t.match(seen.at(-1), /^end edge proxy failed: client timeout: /)
    }
    t.equal(clock.pending, 0)
  },
)

t.test('[edge/passthrough.24] a client that leaves while the name is looked up: nothing is connected', async t => {
  let found: (addresses: string[]) => void = () => {}
  const name = new Promise<string[]>(resolve => {
    found = resolve
  })
  const upstream = await listen(t, () => t.fail('reached'))
  const { begin, forgotten } = makeBed(t, { 'slow.test': name, 'next.test': ['127.0.0.1'] })
  const { call, seen } = begin({ hostname: 'slow.test', port: upstream.port })
  call.stopEdge!()
  found(['127.0.0.1'])
  // The one after it has been looked up, so that one was too.
  await begin({ hostname: 'next.test', port: 1 }).settled()
  t.same(seen, [])
  t.equal(upstream.connections(), 0)
  t.equal(forgotten(), 2)
})

t.test('[edge/passthrough.15] a request that cannot be sent fails', async t => {
  const upstream = await listen(t, () => t.fail('reached'))
  const { begin } = makeBed(t)
  const rows: [Given, string | RegExp][] = [
    [{ path: '/x HTTP/1.1\r\nX-Evil: 1' }, '502 the target cannot be sent'],
    [{ host: 'a\r\nX-Evil: 1' }, '502 the target cannot be sent'],
    [{ headers: ['X', 'a\nb'] }, '502 a header cannot be sent'],
    [{ port: 70_000 }, /^502 proxy request failed/],
  ]
  for (const [given, expected] of rows) t.match(await begin({ port: upstream.port, ...given }).settled(), expected)
})

t.test('[observe/trace.9] a request to an upstream is a span, which ends with what became of it', async t => {
  const heads: string[] = []
  const ended: object[] = []
  const span = { trace: TRACE.replace('b7ad', 'c8be'), traceState: 'a=b', end: (facts: object) => ended.push(facts) }
  const upstream = await rawUpstream((socket, head) => {
    heads.push(head)
    socket.write(`${OK}Content-Length: 0\r\n\r\n`)
  })
  t.teardown(upstream.close)
  const { begin } = makeBed(t)
  await begin({ port: upstream.port, span }).settled()
  await begin({ port: 1, span }).settled()
  t.match(heads[0], `traceparent: ${span.trace}\r\ntracestate: a=b\r\n`)
  t.same(ended, [{ status: 200 }, { status: 0, failure: 'failed' }])
})
