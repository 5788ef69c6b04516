import type { Socket } from 'node:net'
import t, { type Test } from 'tap'
import { UpstreamConnection } from '../../lib/edge/upstream-connection.ts'
import { waitUntil } from '../helpers/gateway-bed.ts'
import { rawUpstream } from '../helpers/upstream.ts'

const OK = 'HTTP/1.1 200 OK\r\n'

/** One connection, and what its requests are told. */
async function makeBed(t: Test, onRequest: (socket: Socket, head: string) => void, port?: number) {
  const upstream = await rawUpstream(onRequest)
  t.teardown(upstream.close)
  const seen: string[] = []
  let body = ''
  let reads = 0
  const onPiece = { do: (_piece: Buffer): void => {} }
  const connection = new UpstreamConnection(
    {
      isTls: false,
      hostname: '127.0.0.1',
      port: port ?? upstream.port,
      addresses: [{ address: '127.0.0.1', family: 4 }],
      servername: '',
      ca: null,
    },
    true,
    undefined,
    { onFree: () => seen.push('free'), onClosed: () => seen.push('closed') },
  )
  t.teardown(() => connection.destroy())
  const send = (text = '', isHead = false) => {
    const head = `${isHead ? 'HEAD' : 'GET'} / HTTP/1.1\r\nContent-Length: ${text.length}\r\n\r\n`
    connection.send(
      { head, body: Buffer.from(text), isHead },
      {
        onHead: ({ status }) => seen.push(`head ${status}`),
        onPiece: piece => {
          body += piece.toString('latin1')
          onPiece.do(piece)
        },
        onRead: () => (reads += 1),
        onEnd: () => seen.push('end'),
        onError: error => seen.push((error as NodeJS.ErrnoException).code ?? error.message),
      },
    )
  }
  const until = (word: string) => waitUntil(() => seen.includes(word), word)
  return { connection, seen, send, until, onPiece, body: () => body, reads: () => reads }
}

t.test('[edge/passthrough.26] one request after the other', async t => {
  const heads: string[] = []
  const { connection, seen, send, until, body } = await makeBed(t, (socket, head) => {
    heads.push(head)
    socket.write(`${OK}Content-Length: 2\r\n\r\n${heads.length === 2 ? '' : 'ok'}`)
  })
  send('body')
  await until('free')
  t.same(seen, ['head 200', 'end', 'free'])
  t.match(heads[0], /\r\n\r\nbody$/, 'head and body in one packet')
  t.equal(connection.isReused, false)
  send('', true)
  await waitUntil(() => seen.length === 6, 'the second answer')
  t.equal(connection.isReused, true)
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
  const refused = await makeBed(t, () => {}, 1)
  refused.send()
  await refused.until('closed')
  t.same(refused.seen, ['ECONNREFUSED', 'closed'])
})

t.test('[edge/passthrough.19] a pause holds what was read already, and the upstream with it', async t => {
  const piece = 'x'.repeat(1000)
  const chunk = `3e8\r\n${piece}\r\n`
  const { connection, send, until, onPiece, body } = await makeBed(t, socket => {
    socket.write(`${OK}Transfer-Encoding: chunked\r\n\r\n${chunk.repeat(20)}`)
    socket.write(`${chunk.repeat(20)}0\r\n\r\n`)
  })
  let pieces = 0
  onPiece.do = () => {
    pieces += 1
    connection.pause()
  }
  send()
  for (let count = 1; count <= 40; count++) {
    await waitUntil(() => pieces >= count, `piece ${count}`)
    await new Promise(setImmediate)
    t.equal(pieces, count, 'not one more')
    connection.resume()
  }
  await until('free')
  t.equal(body(), piece.repeat(40))
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
  const { connection, seen, send, until, onPiece, body } = await makeBed(t, socket => {
    socket.end(`${OK}Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n`)
  })
  onPiece.do = () => connection.pause()
  send()
  await waitUntil(() => body() === 'a', 'the first piece')
  connection.resume()
  t.equal(body(), 'ab')
  connection.resume()
  await until('end')
  t.same(seen.slice(0, 2), ['head 200', 'end'])
})

t.test('[edge/passthrough.24] nobody is told after it was destroyed', async t => {
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
