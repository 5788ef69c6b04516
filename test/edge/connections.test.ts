import type { Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'
import t, { type Test } from 'tap'
import { Descriptors } from '../../lib/core/host.ts'
import type { AnswerHead } from '../../lib/edge/answer-parser.ts'
import { EdgeConnections } from '../../lib/edge/connections.ts'
import type { EdgeRequest } from '../../lib/edge/target.ts'
import type { Reuse } from '../../lib/edge/upstream-connection.ts'
import { FakeClock } from '../helpers/clock.ts'
import { waitUntil } from '../helpers/gateway-bed.ts'
import { makeCertificates, rawUpstream, tlsUpstream } from '../helpers/upstream.ts'

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'

const HERE = [{ address: '127.0.0.1', family: 4 }]

interface Asked {
  hostname?: string
  port?: number
  isTls?: boolean
  addresses?: { address: string; family: number }[]
  reuse?: Reuse
}

/** Requests of a pool at an upstream that answers when the test lets it. */
async function makeBed(t: Test, limits?: { max: number; idle: number }, ca?: string) {
  const clock = new FakeClock()
  const connections = new EdgeConnections(clock, new Descriptors(), ca, limits)
  t.teardown(() => connections.close())
  const asked: { socket: Socket; head: string }[] = []
  const upstream = await rawUpstream((socket, head) => asked.push({ socket, head }))
  t.teardown(upstream.close)
  const seen: string[] = []
  let reads = 0
  const ask = (name: string, given: Asked = {}) => {
    const { reuse = 'any', addresses = HERE, hostname = '127.0.0.1', port = upstream.port, isTls = false } = given
    const path = `/${encodeURI(name)}`
    const request: EdgeRequest = {
      to: { isTls, hostname, port, host: 'x', path, spellings: [] },
      ...{ method: 'GET', headers: [], timeoutMs: null, maxResponseBytes: 1000 },
    }
    let body = ''
    return connections.send(request, [], addresses, null, reuse, {
      onHead: ({ status }: AnswerHead) => seen.push(`${name} ${status}`),
      onPiece: piece => {
        body += piece.toString()
      },
      onRead: () => (reads += 1),
      onEnd: () => seen.push(`${name} ${body}`),
      onError: error => seen.push(`${name} ${(error as NodeJS.ErrnoException).code}`),
    })
  }
  const untilAsked = (count: number) => waitUntil(() => asked.length >= count, `${count} requests came`)
  const untilSeen = (count: number) => waitUntil(() => seen.length >= count, `${count} words came`)
  const answerAll = (text = OK) => {
    for (const { socket } of asked.splice(0)) socket.write(text)
  }
  return { clock, connections, upstream, asked, seen, reads: () => reads, ask, untilAsked, untilSeen, answerAll }
}

t.test('[edge/passthrough.26] as many connections are kept as were used at once', async t => {
  const { connections, upstream, asked, seen, ask, untilAsked, untilSeen, answerAll } = await makeBed(t)
  for (const round of [1, 2, 3]) {
    for (let i = 0; i < 40; i++) ask(`${i}`)
    await untilAsked(40)
    t.equal(upstream.connections(), 40, `round ${round}`)
    t.equal(connections.idle, 0)
    answerAll()
    await untilSeen(80 * round)
    await waitUntil(() => connections.idle === 40, 'all are idle')
  }
  ask('last')
  await untilAsked(1)
  answerAll()
  await untilSeen(242)
  t.equal(upstream.connections(), 40)
  t.equal(new Set(asked).size, 0)
  t.equal(seen.filter(text => text.endsWith(' ok')).length, 121)
  upstream.dropConnections()
  await waitUntil(() => connections.idle === 0, 'closed ones are forgotten')
})

t.test('[edge/passthrough.26] more requests than connections wait, in order', async t => {
  const { connections, upstream, asked, seen, ask, untilAsked, untilSeen } = await makeBed(t, { max: 2, idle: 8 })
  const requests = ['a', 'b', 'c', 'd', 'e'].map(name => ask(name))
  await untilAsked(2)
  t.same(
    asked.map(({ head }) => head.slice(5, 6)),
    ['a', 'b'],
  )
  // One that waits and is given up is never sent; one under way gives its place to the next.
  requests[2]!.destroy()
  requests[1]!.destroy()
  await untilAsked(3)
  t.equal(asked[2]!.head.slice(5, 6), 'd')
  asked[0]!.socket.write(OK)
  await untilAsked(4)
  t.equal(asked[3]!.head.slice(5, 6), 'e')
  t.equal(asked[3]!.socket, asked[0]!.socket, 'over the connection that was free')
  asked[2]!.socket.write(OK)
  asked[3]!.socket.write(OK)
  await untilSeen(6)
  t.same([...seen].sort(), ['a 200', 'a ok', 'd 200', 'd ok', 'e 200', 'e ok'])
  t.equal(upstream.connections(), 3)
  await waitUntil(() => connections.idle === 2, 'both are idle')
  requests[0]!.destroy()
  t.equal(connections.idle, 2, 'a request that was answered has nothing to close')
})

t.test('[edge/passthrough.26] idle connections are bounded over all upstreams', async t => {
  const { connections, upstream, ask, untilAsked, untilSeen, answerAll } = await makeBed(t, { max: 4, idle: 5 })
  for (const hostname of ['127.0.0.1', 'b.test', 'c.test']) for (let i = 0; i < 4; i++) ask(`${i}`, { hostname })
  await untilAsked(12)
  answerAll()
  await untilSeen(24)
  await waitUntil(() => connections.idle === 5, 'five are kept')
  t.equal(upstream.connections(), 12)
})

t.test('[edge/passthrough.11] a kept connection is for one name, port and list of addresses', async t => {
  const { connections, upstream, ask, untilAsked, untilSeen, answerAll } = await makeBed(t)
  const one = [{ address: '127.0.0.1', family: 4 }]
  const two = [...one, { address: '127.0.0.2', family: 4 }]
  let seen = 0
  const get = async (given: Parameters<typeof ask>[1]) => {
    ask('x', given)
    await untilAsked(1)
    answerAll()
    seen += 2
    await untilSeen(seen)
    return upstream.connections()
  }
  t.equal(await get({ hostname: 'a.test', addresses: one }), 1)
  t.equal(await get({ hostname: 'a.test', addresses: one }), 1)
  t.equal(await get({ hostname: 'b.test', addresses: one }), 2, 'another name')
  t.equal(await get({ hostname: 'a.test', addresses: two }), 3, 'other addresses')
  t.equal(await get({ hostname: 'a.test', addresses: [...two].reverse() }), 3, 'in another order')
  t.equal(await get({ hostname: 'a.test', addresses: one, reuse: 'none' }), 4, 'a separate one')
  t.equal(await get({ hostname: 'a.test', addresses: one }), 4)
  await waitUntil(() => connections.idle === 3, 'three are kept')
})

t.test('[edge/passthrough.26] connections that are not kept', async t => {
  const { connections, upstream, asked, ask, untilAsked, untilSeen } = await makeBed(t)
  const answers = [
    'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok',
    'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nKeep-Alive: timeout=1\r\n\r\nok',
    'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nKeep-Alive: timeout=0\r\n\r\nok',
    'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nKeep-Alive: timeout=5, max=0\r\n\r\nok',
    'HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok',
    // What comes behind an answer would be taken for the next one.
    `${OK}HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil`,
    `${OK}\r\n`,
  ]
  for (const [i, text] of answers.entries()) {
    ask('x')
    await untilAsked(1)
    asked.pop()!.socket.write(text)
    await untilSeen(2 * (i + 1))
    t.equal(upstream.connections(), i + 1, text)
  }
  t.equal(connections.idle, 0)
  // Unexpected bytes.
  ask('y')
  await untilAsked(1)
  const { socket } = asked.pop()!
  socket.write(OK)
  await waitUntil(() => connections.idle === 1, 'it is kept')
  socket.write(OK)
  await waitUntil(() => connections.idle === 0, 'and closed for unexpected bytes')
})

t.test('[edge/passthrough.29] a close fails the requests that wait', async t => {
  const { connections, seen, ask, untilAsked } = await makeBed(t, { max: 1, idle: 1 })
  ask('under way')
  ask('waiting')
  ask('fresh', { reuse: 'none' })
  await untilAsked(2)
  connections.close()
  t.same([...seen].sort(), ['fresh ECONNRESET', 'under way ECONNRESET', 'waiting ECONNRESET'])
})

t.test('[edge/passthrough.26] a request knows whether its connection had been used before', async t => {
  const { connections, ask, untilAsked, untilSeen, answerAll } = await makeBed(t, { max: 1, idle: 1 })
  const first = ask('first')
  const waiting = ask('waiting')
  t.notOk(waiting.isOverUsed)
  await untilAsked(1)
  t.notOk(first.isOverUsed)
  answerAll()
  await untilAsked(1)
  t.ok(waiting.isOverUsed)
  answerAll()
  await untilSeen(4)
  await waitUntil(() => connections.idle === 1, 'it is kept')
  const fresh = ask('fresh', { reuse: 'none' })
  await untilAsked(1)
  t.notOk(fresh.isOverUsed)
  fresh.destroy()
  fresh.destroy()
  t.equal(connections.idle, 1)
})

/** Ends what is under way of this turn of the event loop, and the whole turn after it. */
async function turns(count = 2): Promise<void> {
  for (let at = 0; at < count; at++) await new Promise(setImmediate)
}

t.test(
  '[edge/passthrough.26] one that cannot be sent again goes over a kept connection that was used just now',
  async t => {
    const { clock, connections, upstream, asked, ask, untilAsked, untilSeen, answerAll } = await makeBed(t)
    let seen = 0
    const post = async () => {
      const request = ask('post', { reuse: 'trusted' })
      await untilAsked(1)
      const { isOverUsed } = request
      answerAll()
      seen += 2
      await untilSeen(seen)
      return isOverUsed
    }
    t.equal(await post(), false, 'the first one connects')
    await turns()
    for (const ms of [0, 500, 1000]) {
      clock.advance(ms)
      t.equal(await post(), true, `${ms} ms later`)
      await turns()
    }
    t.equal(upstream.connections(), 1)
    clock.advance(1001)
    t.equal(await post(), false, 'too long ago')
    await turns()
    t.equal(upstream.connections(), 2)
    t.equal(connections.idle, 2, 'both are kept')
    ask('get')
    await untilAsked(1)
    t.equal(asked.length, 1)
    answerAll()
    await untilSeen(seen + 2)
    t.equal(upstream.connections(), 2, 'others take any')
  },
)

t.test('[edge/passthrough.26] of idle connections it takes the newest that is old enough', async t => {
  const { clock, upstream, asked, ask, untilAsked, untilSeen, answerAll } = await makeBed(t)
  for (const name of ['a', 'b', 'c']) ask(name)
  await untilAsked(3)
  const sockets = asked.map(({ socket }) => socket)
  answerAll()
  await untilSeen(6)
  await turns()
  clock.advance(900)
  ask('newest')
  await untilAsked(1)
  const used = asked[0]!.socket
  answerAll()
  await untilSeen(8)
  await turns()
  clock.advance(900)
  const [first, second] = [ask('one', { reuse: 'trusted' }), ask('two', { reuse: 'trusted' })]
  await untilAsked(2)
  t.ok(sockets.includes(used))
  t.same([first.isOverUsed, second.isOverUsed], [true, false], 'the others are too old')
  t.equal(asked.find(({ head }) => head.includes('one'))!.socket, used)
  t.equal(upstream.connections(), 4)
})

t.test(
  '[edge/passthrough.26] requests that wait for the end of a turn and later ones share their connections',
  async t => {
    const { connections, upstream, ask, untilAsked, untilSeen, answerAll } = await makeBed(t)
    ask('first')
    await untilAsked(1)
    const [kept] = openSockets().filter(({ remotePort }) => remotePort === upstream.port)
    answerAll()
    await untilSeen(2)
    await turns()
    // Asked behind the poll phase, it looks for a connection behind the next one: the only one is closed before.
    await new Promise(done => setImmediate(done))
    ask('post', { reuse: 'trusted' })
    kept!.destroy()
    await new Promise(done => kept!.once('close', done))
    ask('beside')
    await untilAsked(2)
    answerAll()
    await untilSeen(6)
    t.equal(upstream.connections(), 3)
    t.equal(connections.idle, 2)
    for (const name of ['again', 'and again']) ask(name)
    await untilAsked(2)
    t.equal(upstream.connections(), 3, 'both are known')
  },
)

function openSockets(): Socket[] {
  return (process as unknown as { _getActiveHandles(): Socket[] })._getActiveHandles()
}

t.test(
  '[edge/passthrough.26] an upstream that closes behind its answer without a word is not trusted for a minute',
  async t => {
    const { clock, connections, upstream, asked, seen, ask, untilAsked, untilSeen } = await makeBed(t)
    let count = 0
    const send = async (reuse: Reuse, after: (socket: Socket) => void) => {
      ask(`${count}`, { reuse })
      await untilAsked(1)
      const { socket } = asked.pop()!
      socket.write(OK)
      after(socket)
      count += 1
      await untilSeen(count * 2)
    }
    for (let at = 0; at < 20; at++) await send('trusted', socket => socket.end())
    t.equal(seen.filter(text => text.endsWith(' ok')).length, 20, 'none of them is lost')
    t.equal(upstream.connections(), 20)
    await waitUntil(() => connections.idle === 0, 'the last one is closed')
    await send('any', () => {})
    await turns()
    await send('trusted', () => {})
    await turns()
    t.equal(upstream.connections(), 22, 'not over the one that is kept')
    await send('any', () => {})
    t.equal(upstream.connections(), 22, 'which others use')
    await turns()
    clock.advance(60_000)
    await send('any', () => {})
    await turns()
    await send('trusted', () => {})
    t.equal(upstream.connections(), 22)
  },
)

t.test('[edge/passthrough.26] one that was announced to close, or was idle for long, costs no trust', async t => {
  const { clock, connections, upstream, asked, ask, untilAsked, untilSeen } = await makeBed(t)
  let seen = 0
  const send = async (reuse: Reuse, text = OK) => {
    ask('x', { reuse })
    await untilAsked(1)
    const { socket } = asked.pop()!
    socket.write(text)
    seen += 2
    await untilSeen(seen)
    await turns()
    return socket
  }
  const last = await send('any', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok')
  last.end()
  const old = await send('any')
  clock.advance(1001)
  old.end()
  await waitUntil(() => connections.idle === 0, 'it is closed')
  await send('any')
  await send('trusted')
  t.equal(upstream.connections(), 3)
})

t.test(
  '[edge/passthrough.26] a request that waits for the end of the turn can be cancelled, and a close fails it',
  async t => {
    const { connections, upstream, asked, seen, ask, untilAsked, untilSeen, answerAll } = await makeBed(t)
    ask('get')
    await untilAsked(1)
    answerAll()
    await untilSeen(2)
    await turns()
    ask('given up', { reuse: 'trusted' }).destroy()
    await turns()
    t.same(asked, [])
    t.equal(connections.idle, 1)
    ask('late', { reuse: 'trusted' })
    connections.close()
    await turns()
    t.same(seen.slice(2), ['late ECONNRESET'])
    t.equal(upstream.connections(), 1)
  },
)

t.test('[edge/passthrough.26] where there may be no more connections, one too old gives its place', async t => {
  const { clock, connections, upstream, asked, seen, ask, untilAsked, untilSeen, answerAll } = await makeBed(t, {
    max: 2,
    idle: 2,
  })
  ask('a')
  ask('b')
  await untilAsked(2)
  answerAll()
  await untilSeen(4)
  await turns()
  clock.advance(1001)
  for (const name of ['c', 'd', 'e']) ask(name, { reuse: 'trusted' })
  await untilAsked(2)
  t.equal(upstream.connections(), 4, 'two are new')
  t.equal(connections.idle, 0)
  // The one that waits gets no connection behind whose answer an end may lie.
  answerAll()
  await untilAsked(1)
  t.equal(upstream.connections(), 5)
  answerAll()
  await untilSeen(10)
  t.equal(seen.filter(text => text.endsWith(' ok')).length, 5)
  t.same(asked, [])
})

t.test('[edge/passthrough.19] a request that is held up holds its connection alone', async t => {
  const { seen, reads, asked, ask, untilAsked, untilSeen } = await makeBed(t)
  const held = ask('held')
  ask('other')
  held.resume()
  await untilAsked(2)
  held.pause()
  const of = (name: string) => asked.find(({ head }) => head.includes(name))!.socket
  of('held').write('HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nheld')
  of('other').write('HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\not')
  await untilSeen(1)
  await waitUntil(() => reads() === 1, 'half of the other one')
  of('other').write('her')
  await untilSeen(2)
  t.same(seen, ['other 200', 'other other'])
  held.resume()
  await untilSeen(3)
  await waitUntil(() => reads() === 2, 'what was held')
  of('held').write(' no.')
  await untilSeen(4)
  t.equal(seen.at(-1), 'held held no.')
})

t.test('[edge/passthrough.23, edge/passthrough.26] a TLS session is remembered for its upstream alone', async t => {
  const { ca, key, cert } = makeCertificates()
  const reused: string[] = []
  const upstream = await tlsUpstream(key, cert, (req, res) => {
    reused.push(`${req.url} ${(req.socket as TLSSocket).isSessionReused()}`)
    res.end('ok')
  })
  t.teardown(upstream.close)
  const { ask, untilSeen, seen } = await makeBed(t, undefined, ca)
  const tls = { isTls: true, port: upstream.port, reuse: 'none' as const }
  const get = async (name: string, given: object) => {
    ask(name, { ...tls, ...given })
    await untilSeen(seen.length + 2)
  }
  await get('a', { hostname: '127.0.0.1' })
  await get('b', { hostname: '127.0.0.1' })
  await get('c', { hostname: 'upstream.test' })
  await get('d', { hostname: 'upstream.test' })
  t.same(reused, ['/a false', '/b true', '/c false', '/d true'])
})

t.test('[edge/passthrough.26] one that waited gets the place of a connection that broke', async t => {
  const { upstream, seen, asked, ask, untilAsked, untilSeen, answerAll } = await makeBed(t, { max: 1, idle: 1 })
  ask('first')
  ask('second')
  await untilAsked(1)
  asked.pop()!.socket.destroy()
  await untilAsked(1)
  answerAll()
  await untilSeen(3)
  t.same(seen, ['first ECONNRESET', 'second 200', 'second ok'])
  t.equal(upstream.connections(), 2)
})

t.test(
  '[edge/passthrough.33] a whole turn passes between an answer and the next request that cannot be repeated',
  async t => {
    const { connections, upstream, ask, untilAsked, untilSeen, answerAll } = await makeBed(t)
    ask('get')
    await untilAsked(1)
    answerAll()
    // In the turn in which the answer came, an end behind it may not have been read.
    while (connections.idle === 0) await new Promise(setImmediate)
    const early = ask('early', { reuse: 'trusted' })
    await untilAsked(1)
    t.equal(early.isOverUsed, false)
    answerAll()
    await untilSeen(4)
    await turns()
    const late = ask('late', { reuse: 'trusted' })
    await untilAsked(1)
    t.equal(late.isOverUsed, true)
    t.equal(upstream.connections(), 2)
  },
)

t.test('[edge/passthrough.33] a first request that fails says nothing of kept connections', async t => {
  const { upstream, asked, ask, untilAsked, untilSeen, answerAll } = await makeBed(t)
  ask('first')
  await untilAsked(1)
  asked.pop()!.socket.destroy()
  await untilSeen(1)
  ask('get')
  await untilAsked(1)
  answerAll()
  await untilSeen(3)
  await turns()
  const post = ask('post', { reuse: 'trusted' })
  await untilAsked(1)
  t.equal(post.isOverUsed, true)
  t.equal(upstream.connections(), 2)
})

t.test('[edge/passthrough.33] of many upstreams that are not trusted the newest are remembered', async t => {
  const { connections, asked, seen, ask, untilAsked, untilSeen, answerAll } = await makeBed(t)
  const closeSoon = async (...hostnames: string[]) => {
    const before = seen.length
    for (const hostname of hostnames) ask('x', { hostname })
    await untilAsked(hostnames.length)
    const sockets = asked.splice(0).map(({ socket }) => socket)
    for (const socket of sockets) socket.write(OK)
    await untilSeen(before + 2 * hostnames.length)
    for (const socket of sockets) socket.end()
    await waitUntil(() => connections.idle === 0, 'all are closed')
  }
  const isTrusted = async (hostname: string) => {
    ask('x', { hostname })
    await untilAsked(1)
    answerAll()
    await waitUntil(() => connections.idle > 0, 'it is kept')
    await turns()
    const post = ask('post', { hostname, reuse: 'trusted' })
    await untilAsked(1)
    const { isOverUsed } = post
    connections.close()
    asked.splice(0)
    return isOverUsed
  }
  for (const name of ['first', 'second', 'first']) await closeSoon(name)
  for (let at = 0; at < 999; at += 111) await closeSoon(...Array.from({ length: 111 }, (_, i) => `${at + i}`))
  t.equal(await isTrusted('second'), true, 'forgotten')
  t.equal(await isTrusted('first'), false)
  t.equal(await isTrusted('998'), false)
})
