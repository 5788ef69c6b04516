import { createServer } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import t from 'tap'
import { USES_INTERNALS } from '../../lib/http/node-http.ts'
import { HttpServer } from '../../lib/http/server.ts'
import { makeFn } from '../helpers/fn.ts'
import { makePublic } from '../helpers/public.ts'
import { RawConnection } from '../helpers/raw-http.ts'

type Teardown = { teardown: (fn: () => Promise<void>) => void }

const FN = makeFn({ policy: { methods: ['GET', 'POST'] } })

/** The gateway's own server, whose answers go the short way, and node's with the same handler. */
async function serveBoth(t: Teardown) {
  const made = makePublic({ '/a': FN })
  const own = new HttpServer({ ...made, requestIds: made.requestIds })
  const { port } = await own.listen(0, '127.0.0.1')
  const plain = createServer((req, res) => made.handle(req, res))
  plain.keepAliveTimeout = 60_000
  await new Promise<void>(resolve => plain.listen(0, '127.0.0.1', resolve))
  t.teardown(async () => {
    plain.closeAllConnections()
    await new Promise(resolve => plain.close(resolve))
    await own.close(0)
  })
  return { ...made, ports: [port, (plain.address() as AddressInfo).port] as const }
}

/** What the request is answered with, byte for byte, but for the time. */
async function ask(port: number, request: string, count: number): Promise<string> {
  const raw = await RawConnection.open(port)
  raw.write(request)
  const answers = await raw.answers(count)
  const { text } = raw
  if (answers.length < count) throw new Error(`only ${answers.length} answers: ${text}`)
  raw.socket.destroy()
  const dated = text.replace(/Date: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT/g, 'Date: now')
  // Without the short way the gateway announces Keep-Alive in front of node's own lines.
  const sorted = (_: string, status: string, lines: string): string =>
    status +
    lines
      .split(/(?<=\n)/)
      .sort()
      .join('')
  return USES_INTERNALS ? dated : dated.replace(/(HTTP[^\n]*\n)(.*?\r\n)(?=\r\n)/gs, sorted)
}

const all = Buffer.from(Array.from({ length: 256 }, (_, i) => i))
const get = (more = '', version = '1.1'): string =>
  `GET /a HTTP/${version}\r\nHost: h\r\nX-Request-Id: id-1\r\n${more}\r\n`

t.test(
  '[http/public.5, http/public.6, http/public.12, http/public.21] the short way sends what node sends',
  async t => {
    const { ports, runtime } = await serveBoth(t)
    const cookies = { 'Content-Type': 'text/plain', 'Set-Cookie': ['a=1', 'b=\u00e4'] }
    for (const [name, request, status, headers, body, count] of [
      ['a usual answer', get(), 200, cookies, 'hello', 1],
      ['no headers', get(), 200, {}, 'hello', 1],
      ['no body', get(), 200, {}, '', 1],
      ['every byte', get(), 200, {}, all, 1],
      ['a long body', get(), 200, {}, Buffer.alloc(100_000, all), 1],
      ['an unknown status', get(), 599, {}, 'x', 1],
      ['204', get(), 204, { 'x-a': '1' }, 'x', 1],
      ['304', get(), 304, {}, '', 1],
      ['a date of its own', get(), 200, { date: 'yesterday' }, 'x', 1],
      ['a connection header of its own', get(), 200, { connection: 'close', 'keep-alive': 'timeout=9' }, 'x', 1],
      ['the last answer', get('Connection: close\r\n'), 200, {}, 'x', 1],
      ['HTTP/1.0', get('', '1.0'), 200, {}, 'x', 1],
      ['HTTP/1.0 kept', get('Connection: keep-alive\r\n', '1.0'), 200, {}, 'x', 1],
      ['HEAD', get().replace('GET', 'HEAD'), 204, {}, '', 1],
      [
        'a body that was read',
        `${get().replace('GET', 'POST').slice(0, -2)}Content-Length: 2\r\n\r\nhi`,
        200,
        {},
        'x',
        1,
      ],
      ['three at once', get().repeat(3), 200, cookies, 'hello', 3],
    ] as const) {
      runtime.answer = (call, own) => own.reply(call, status, headers, body as string | Buffer)
      const own = await ask(ports[0], request, count)
      t.equal(own, await ask(ports[1], request, count), name)
      t.match(own, new RegExp(`^HTTP/1\\.1 ${status} `), name)
    }
  },
)

t.test('[http/public.12] a later answer waits for an earlier one, however it is sent', async t => {
  const { ports, runtime } = await serveBoth(t)
  for (const port of ports) {
    const from = runtime.calls.length
    runtime.answer = () => {}
    const raw = await RawConnection.open(port)
    raw.write(get().repeat(3))
    while (runtime.calls.length < from + 3) await new Promise(resolve => setImmediate(resolve))
    const [first, second, third] = runtime.calls.slice(from)
    runtime.reply(second!, 200, {}, 'second')
    runtime.reply(third!, 200, {}, 'third')
    runtime.reply(first!, 200, {}, 'first')
    t.same(
      (await raw.answers(3)).map(answer => answer.body),
      ['first', 'second', 'third'],
    )
    // And the connection goes on.
    runtime.answer = (call, own) => own.reply(call, 200, {}, 'fourth')
    raw.write(get())
    t.equal((await raw.answers(4))[3]?.body, 'fourth')
    raw.socket.destroy()
  }
})

t.test('[http/public.12, http/public.30] a client that reads late gets every answer once', async t => {
  const { ports, runtime } = await serveBoth(t)
  runtime.answer = (call, own) => own.reply(call, 200, {}, 'x'.repeat(16_000))
  const bytesOfOne = (await ask(ports[0], get(), 1)).length + 'Sat, 21 Nov 2026 04:49:08 GMT'.length - 'now'.length
  // More than the system holds for a connection that nobody reads, asked for in more than one piece.
  const count = 3000
  const socket = connect(ports[0], '127.0.0.1')
  socket.pause()
  socket.write(get().repeat(count))
  let seen = 0
  while (runtime.calls.length > seen || seen < 2) {
    seen = runtime.calls.length
    await new Promise(resolve => setTimeout(resolve, 20))
  }
  t.ok(seen < count, 'requests are not read while answers cannot leave')
  let bytes = 0
  await new Promise<void>(resolve => {
    socket.on('data', chunk => {
      bytes += chunk.length
      if (bytes >= count * bytesOfOne) resolve()
    })
    socket.resume()
  })
  t.equal(bytes, count * bytesOfOne)
  t.equal(runtime.calls.length, count + 1)
  socket.destroy()
})

t.test('[http/public.19] a client that left is not written to', async t => {
  const { ports, runtime, finished } = await serveBoth(t)
  runtime.answer = () => {}
  const raw = await RawConnection.open(ports[0])
  raw.write(get())
  while (runtime.calls.length < 1) await new Promise(resolve => setImmediate(resolve))
  raw.socket.destroy()
  while (finished.length < 1) await new Promise(resolve => setImmediate(resolve))
  runtime.open.add(runtime.calls[0]!)
  runtime.reply(runtime.calls[0]!, 200, {}, 'late')
  t.equal(finished.length, 1)
  t.equal(finished[0]?.aborted, true)
})

t.test('[http/public.35] pieces of one tick are one chunk, and what a client reads is the same', async t => {
  const { ports, runtime } = await serveBoth(t)
  const bodyOf = (text: string): string => {
    const bodyAt = text.indexOf('\r\n\r\n') + 4
    const body = text.slice(bodyAt)
    if (!/transfer-encoding: chunked/i.test(text.slice(0, bodyAt))) return body
    let whole = ''
    for (let at = 0; ; ) {
      const lineEnd = body.indexOf('\r\n', at)
      const bytes = Number.parseInt(body.slice(at, lineEnd), 16)
      if (bytes === 0) return whole
      whole += body.slice(lineEnd + 2, lineEnd + 2 + bytes)
      t.equal(body.slice(lineEnd + 2 + bytes, lineEnd + 4 + bytes), '\r\n')
      at = lineEnd + 4 + bytes
    }
  }
  for (const [name, request, head] of [
    ['chunked', get('Connection: close\r\n'), {}],
    ['with its length', get('Connection: close\r\n'), { length: 60 * 1024 }],
    ['HTTP/1.0', get('', '1.0'), {}],
  ] as const) {
    const texts: string[] = []
    for (const port of ports) {
      runtime.answer = (call, own) => {
        own.stream(call, head)
        for (let i = 0; i < 3; i++) call.onChunk(Buffer.alloc(20 * 1024, i))
        own.end(call)
      }
      const raw = await RawConnection.open(port)
      raw.write(request)
      await raw.closed()
      texts.push(raw.text)
    }
    t.equal(bodyOf(texts[0]!), Buffer.concat([0, 1, 2].map(i => Buffer.alloc(20 * 1024, i))).toString('latin1'), name)
    t.equal(bodyOf(texts[0]!), bodyOf(texts[1]!), name)
    if (name === 'chunked' && USES_INTERNALS) {
      t.ok(texts[0]!.includes('\r\n\r\nf000\r\n'), 'one chunk')
      t.ok(texts[1]!.includes('\r\n\r\n5000\r\n'), "node's own makes three")
    }
  }
})

t.test('[http/public.35, http/public.12] pieces of a later answer wait for an earlier one', async t => {
  const { ports, runtime } = await serveBoth(t)
  for (const port of ports) {
    const from = runtime.calls.length
    runtime.answer = () => {}
    const raw = await RawConnection.open(port)
    raw.write(get().repeat(2))
    while (runtime.calls.length < from + 2) await new Promise(resolve => setImmediate(resolve))
    const [first, second] = runtime.calls.slice(from)
    runtime.stream(second!, { length: 6 })
    second!.onChunk(Buffer.from('sec'))
    await new Promise(resolve => setImmediate(resolve))
    second!.onChunk(Buffer.from('ond'))
    runtime.end(second!)
    runtime.stream(first!, { length: 5 })
    first!.onChunk(Buffer.from('first'))
    runtime.end(first!)
    t.same(
      (await raw.answers(2)).map(answer => answer.body),
      ['first', 'second'],
    )
    raw.socket.destroy()
  }
})
