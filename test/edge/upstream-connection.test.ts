import { getDefaultAutoSelectFamily, setDefaultAutoSelectFamily, type Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'
import t, { type Test } from 'tap'
import { type Upstream, UpstreamConnection, UpstreamRequest } from '../../lib/edge/upstream-connection.ts'
import { waitUntil } from '../helpers/gateway-bed.ts'
import { makeCertificates, rawUpstream, tlsUpstream } from '../helpers/upstream.ts'

const OK = 'HTTP/1.1 200 OK\r\n'

interface Given extends Partial<Upstream> {
  session?: Buffer
  isKept?: boolean
}

/** One connection to an upstream that answers with bytes of the test's choice. */
async function makeBed(t: Test, onRequest: (socket: Socket, head: string) => void, given: Given = {}) {
  const upstream = await rawUpstream(onRequest)
  t.teardown(upstream.close)
  return { upstream, ...openTo(t, { port: upstream.port, ...given }) }
}

/** One connection, and the callbacks of its requests. */
function openTo(t: Test, { session, isKept = true, ...given }: Given & { port: number }) {
  const seen: string[] = []
  const sessions: Buffer[] = []
  let body = ''
  let reads = 0
  const onPiece = { do: (_piece: Buffer): void => {} }
  const to: Upstream = {
    isTls: false,
    hostname: '127.0.0.1',
    addresses: [{ address: '127.0.0.1', family: 4 }],
    ca: null,
    ...given,
  }
  const connection = new UpstreamConnection(to, isKept, session, {
    onFree: () => seen.push('free'),
    onSession: session => sessions.push(session),
    onClosed: () => seen.push('closed'),
  })
  t.teardown(() => connection.destroy())
  const send = (text = '', isHead = false) => {
    const head = `${isHead ? 'HEAD' : 'GET'} / HTTP/1.1\r\nHost: x\r\nContent-Length: ${text.length}\r\n\r\n`
    const request = new UpstreamRequest(to, head, Buffer.from(text), isHead, 'any', {
      onHead: ({ status }) => seen.push(`head ${status}`),
      onPiece: piece => {
        body += piece.toString('latin1')
        onPiece.do(piece)
      },
      onRead: () => (reads += 1),
      onEnd: () => seen.push('end'),
      onError: error => seen.push((error as NodeJS.ErrnoException).code ?? error.message),
    })
    connection.send(request)
    return request
  }
  const until = (word: string) => waitUntil(() => seen.includes(word), word)
  return { connection, seen, sessions, send, until, onPiece, body: () => body, reads: () => reads }
}

t.test('[edge/passthrough.26] one request after the other', async t => {
  const heads: string[] = []
  const { connection, seen, send, until, body } = await makeBed(t, (socket, head) => {
    heads.push(head)
    socket.write(`${OK}Content-Length: 2\r\n\r\n${heads.length === 2 ? '' : 'ok'}`)
  })
  const first = send('body')
  await until('free')
  t.same(seen, ['head 200', 'end', 'free'])
  t.match(heads[0], /\r\n\r\nbody$/, 'head and body in one packet')
  t.equal(first.isOverUsed, false)
  const second = send('', true)
  await waitUntil(() => seen.length === 6, 'the second answer')
  t.equal(second.isOverUsed, true)
  t.equal(connection.isFree, true)
  t.equal(body(), 'ok', 'HEAD has no body')
})

t.test('[edge/passthrough.22] ends, resets and answers that cannot be read', async t => {
  const rows: [name: string, onRequest: (socket: Socket) => void, seen: string[]][] = [
    ['a body that ends with the connection', socket => socket.end(`${OK}\r\nopen`), ['head 200', 'end', 'closed']],
    [
      'cut in its body',
      socket => socket.end(`${OK}Content-Length: 9\r\n\r\nopen`),
      ['head 200', 'ECONNRESET', 'closed'],
    ],
    ['cut in its head', socket => socket.end(OK), ['ECONNRESET', 'closed']],
    ['reset', socket => socket.resetAndDestroy(), ['ECONNRESET', 'closed']],
    ['not HTTP', socket => socket.write('hello\r\n\r\n'), ['MALFORMED_ANSWER', 'closed']],
    [
      'a bad chunk behind a good one',
      socket => socket.write(`${OK}Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\nzz\r\n`),
      ['head 200', 'MALFORMED_ANSWER', 'closed'],
    ],
  ]
  for (const [name, onRequest, expected] of rows) {
    const { seen, send, until } = await makeBed(t, onRequest)
    send()
    await until('closed')
    t.same(seen, expected, name)
  }
  const refused = await makeBed(t, () => {}, { port: 1 })
  refused.send()
  await refused.until('closed')
  t.same(refused.seen, ['ECONNREFUSED', 'closed'])
})

t.test('[edge/passthrough.19] a pause stops the upstream behind the read it came in', async t => {
  const piece = 'x'.repeat(1000)
  const chunk = `3e8\r\n${piece}\r\n`
  let write: (text: string) => void = () => {}
  const { connection, send, until, onPiece, body, reads } = await makeBed(t, socket => {
    write = text => socket.write(text)
    write(`${OK}Transfer-Encoding: chunked\r\n\r\n${chunk.repeat(20)}`)
  })
  onPiece.do = () => connection.pause()
  send()
  for (let count = 1; count <= 5; count++) {
    await waitUntil(() => body().length === count * 20_000, `read ${count}`)
    const before = reads()
    write(count < 5 ? chunk.repeat(20) : '0\r\n\r\n')
    for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate)
    t.same([body().length, reads()], [count * 20_000, before], 'not one more')
    connection.resume()
  }
  await until('free')
  t.equal(body(), piece.repeat(100))
})

t.test('[edge/passthrough.19] a pause that is over before its call returns holds nothing', async t => {
  const { connection, send, until, onPiece, body } = await makeBed(t, socket => {
    socket.write(`${OK}Content-Length: 300000\r\n\r\n${'y'.repeat(300_000)}`)
  })
  onPiece.do = () => {
    connection.pause()
    connection.resume()
  }
  send()
  await until('free')
  t.equal(body().length, 300_000)
})

t.test('[edge/passthrough.19, edge/passthrough.22] a connection that ends while its answer is held up', async t => {
  for (const [rest, outcome] of [
    ['1\r\nb\r\n0\r\n\r\n', 'end'],
    ['1\r\nb\r\n9\r\ncut', 'ECONNRESET'],
  ] as const) {
    let finish: () => void = () => {}
    const { connection, seen, send, until, onPiece, body } = await makeBed(t, socket => {
      socket.write(`${OK}Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n`)
      finish = () => socket.end(rest)
    })
    onPiece.do = () => connection.pause()
    send()
    await waitUntil(() => body() === 'a', 'the first piece')
    finish()
    for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate)
    t.same([seen, body()], [['head 200'], 'a'])
    onPiece.do = () => {}
    connection.resume()
    await until(outcome)
    t.equal(body(), outcome === 'end' ? 'ab' : 'abcut', 'pieces first, then the outcome')
    t.equal(seen.filter(word => word === outcome).length, 1)
  }
})

t.test('[edge/passthrough.24] no callback follows after it was destroyed', async t => {
  const { connection, seen, send, until, onPiece } = await makeBed(t, socket => {
    socket.write(`${OK}Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n`)
  })
  onPiece.do = () => connection.destroy()
  send()
  await until('closed')
  t.same(seen, ['head 200', 'closed'])
})

t.test('[edge/passthrough.26] an answer before the whole request was taken ends the connection', async t => {
  const { seen, send, until } = await makeBed(t, socket => {
    socket.pause()
    socket.write(`${OK}Content-Length: 2\r\n\r\nno`)
  })
  // More than the system's buffers hold.
  send('z'.repeat(20_000_000))
  await until('end')
  await until('closed')
  t.notOk(seen.includes('free'))
})

t.test('[edge/passthrough.26] an idle connection is closed after the time that the upstream named', async t => {
  const { connection, seen, send, until } = await makeBed(t, socket =>
    socket.write(`${OK}Content-Length: 2\r\nKeep-Alive: timeout=2\r\n\r\nok`),
  )
  send()
  await until('free')
  t.ok(connection.isFree)
  await until('closed')
  t.notOk(connection.isFree)
  t.same(seen, ['head 200', 'end', 'free', 'closed'], 'no error is reported')
})

t.test(
  '[edge/passthrough.26] is not kept after another protocol, a request that closes its connection or unexpected bytes',
  async t => {
    const rows: [name: string, answer: string, isKept: boolean, seen: string[]][] = [
      ['101', 'HTTP/1.1 101 Switching\r\nUpgrade: x\r\nContent-Length: 0\r\n\r\n', true, ['head 101', 'end', 'closed']],
      ['its own', `${OK}Content-Length: 2\r\n\r\nok`, false, ['head 200', 'end', 'closed']],
    ]
    for (const [name, answer, isKept, expected] of rows) {
      const { seen, send, until } = await makeBed(t, socket => socket.write(answer), { isKept })
      send()
      await until('closed')
      t.same(seen, expected, name)
    }
    let other: Socket | null = null
    const { seen, send, until } = await makeBed(t, socket => {
      other = socket
      socket.write(`${OK}Content-Length: 2\r\n\r\nok`)
    })
    send()
    await until('free')
    other!.write(`${OK}Content-Length: 4\r\n\r\nevil`)
    await until('closed')
    t.same(seen, ['head 200', 'end', 'free', 'closed'])
  },
)

t.test('[edge/passthrough.29] a close fails the request that waits, once', async t => {
  const { connection, seen, send, until } = await makeBed(t, socket =>
    socket.write(`${OK}Content-Length: 9\r\n\r\nhalf`),
  )
  send()
  await until('head 200')
  connection.close()
  await until('closed')
  connection.close()
  t.same(seen, ['head 200', 'ECONNRESET', 'closed'])
})

t.test('[edge/passthrough.11] only addresses that were checked are reached, whatever the name', async t => {
  const asked: string[] = []
  const onRequest = (socket: Socket, head: string) => {
    asked.push(head)
    socket.write(`${OK}Content-Length: 0\r\n\r\n`)
  }
  const here = { address: '127.0.0.1', family: 4 }
  const hostname = 'no-name-server-knows-me.invalid'
  const isDefault = getDefaultAutoSelectFamily()
  t.teardown(() => setDefaultAutoSelectFamily(isDefault))
  for (const isAuto of [true, false]) {
    setDefaultAutoSelectFamily(isAuto)
    const { seen, send, until } = await makeBed(t, onRequest, { hostname, addresses: [here] })
    send()
    await until('free')
    t.same(seen, ['head 200', 'end', 'free'])
  }
  setDefaultAutoSelectFamily(true)
  // The first one refuses connections.
  const two = await makeBed(t, onRequest, { hostname, addresses: [{ address: '127.0.0.9', family: 4 }, here] })
  two.send()
  await two.until('free')
  t.equal(asked.length, 3)
})

t.test('[edge/passthrough.23] over TLS: the certificate is checked before anything is sent', async t => {
  const { ca, key, cert, selfSigned } = makeCertificates()
  const asked: string[] = []
  const upstream = await tlsUpstream(key, cert, (req, res) => {
    const { servername, alpnProtocol } = req.socket as TLSSocket
    asked.push(`${req.method} ${servername} ${alpnProtocol}`)
    res.end('ok')
  })
  t.teardown(upstream.close)
  const forged = await tlsUpstream(key, selfSigned, () => t.fail('reached'))
  t.teardown(forged.close)
  const tls = { isTls: true, port: upstream.port, hostname: 'upstream.test', ca }
  const good = openTo(t, tls)
  good.send('body')
  await good.until('free')
  t.equal(good.body(), 'ok')
  t.same(asked, ['GET upstream.test http/1.1'])
  const byAddress = openTo(t, { ...tls, hostname: '127.0.0.1' })
  byAddress.send()
  await byAddress.until('free')
  const saved = process.env.NODE_TLS_REJECT_UNAUTHORIZED
  t.teardown(() => {
    if (saved === undefined) delete process.env.NODE_TLS_REJECT_UNAUTHORIZED
    else process.env.NODE_TLS_REJECT_UNAUTHORIZED = saved
  })
  process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0'
  for (const [given, code] of [
    [{ hostname: 'other.test' }, 'ERR_TLS_CERT_ALTNAME_INVALID'],
    [{ ca: null }, 'UNABLE_TO_VERIFY_LEAF_SIGNATURE'],
    [{ port: forged.port }, 'DEPTH_ZERO_SELF_SIGNED_CERT'],
  ] as const) {
    const { seen, send, until } = openTo(t, { ...tls, ...given })
    send('secret')
    await until('closed')
    t.same(seen, [code, 'closed'])
  }
  t.equal(asked.length, 2, 'nothing was sent')
})

t.test('[edge/passthrough.23, edge/passthrough.26] a TLS session serves the next connection', async t => {
  const { ca, key, cert } = makeCertificates()
  const reused: boolean[] = []
  const upstream = await tlsUpstream(key, cert, (req, res) => {
    reused.push((req.socket as TLSSocket).isSessionReused())
    res.end('ok')
  })
  t.teardown(upstream.close)
  const tls = { isTls: true, port: upstream.port, hostname: 'upstream.test', ca }
  const first = openTo(t, tls)
  first.send()
  await first.until('free')
  await waitUntil(() => first.sessions.length > 0, 'a session')
  const second = openTo(t, { ...tls, session: first.sessions[0]! })
  second.send()
  await second.until('free')
  t.same(reused, [false, true])
})

t.test('[edge/passthrough.19] over TLS a pause holds the answer too, and none of it is lost', async t => {
  const { ca, key, cert } = makeCertificates()
  const bytes = Buffer.from(Array.from({ length: 500_000 }, (_, at) => at % 251))
  const upstream = await tlsUpstream(key, cert, (_req, res) => res.end(bytes))
  t.teardown(upstream.close)
  const { connection, send, until, onPiece, body } = openTo(t, { isTls: true, port: upstream.port, ca })
  let pieces = 0
  onPiece.do = () => {
    pieces += 1
    connection.pause()
  }
  send()
  let rounds = 0
  for (let before = 0; body().length < bytes.length; rounds++) {
    await waitUntil(() => pieces > before, 'a piece')
    await new Promise(setImmediate)
    before = pieces
    for (let turn = 0; turn < 5; turn++) await new Promise(setImmediate)
    t.equal(pieces, before, 'not one more')
    connection.resume()
  }
  t.ok(rounds > 1, `${rounds} pauses`)
  await until('free')
  t.ok(Buffer.from(body(), 'latin1').equals(bytes))
})
