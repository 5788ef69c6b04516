import t, { type Test } from 'tap'
import { HttpServer } from '../../lib/http/server.ts'
import { makeFn } from '../helpers/fn.ts'
import { makePublic } from '../helpers/public.ts'
import { RawConnection } from '../helpers/raw-http.ts'

async function listen(t: Test) {
  const made = makePublic({ '/f': makeFn({ policy: { methods: ['GET'] } }), '/other': makeFn() })
  const server = new HttpServer({ ...made, requestIds: made.requestIds })
  const { port } = await server.listen(0, '127.0.0.1')
  t.teardown(() => server.close(0))
  const raw = await RawConnection.open(port)
  t.teardown(() => raw.socket.destroy())
  return { ...made, raw, port }
}

const ask = (method: string, path: string, body = '', headers = '') =>
  `${method} ${path} HTTP/1.1\r\nHost: x\r\n${body === '' ? '' : `Content-Length: ${body.length}\r\n`}${headers}\r\n${body}`

t.test('[http/public.6] refusals with and without bodies, alone and many at once', async t => {
  const { raw, runtime } = await listen(t)
  const rows: [request: string, status: number, allow: string | undefined][] = [
    [ask('PUT', '/f'), 405, 'GET, HEAD'],
    [ask('PUT', '/f', 'x'), 405, 'GET, HEAD'],
    [ask('PUT', '/f', 'x'.repeat(1024)), 405, 'GET, HEAD'],
    [ask('PUT', '/f', 'x'.repeat(64 * 1024)), 405, 'GET, HEAD'],
    [ask('GET', '/missing'), 404, undefined],
    [ask('POST', '/missing', 'x'.repeat(1024)), 404, undefined],
  ]
  let count = 0
  for (const [request, status, allow] of rows) {
    for (const times of [1, 3, 9, 20]) {
      raw.write(request.repeat(times))
      count += times
      for (const answer of (await raw.answers(count)).slice(-times)) {
        t.equal(answer.status, status, request.slice(0, 30))
        t.equal(answer.headers.allow, allow)
        t.equal(answer.headers['content-type'], 'application/json')
        t.same(JSON.parse(answer.body), { error: status === 404 ? 'not found' : 'method not allowed' })
        t.ok(answer.headers['x-request-id'])
      }
    }
  }
  t.equal(runtime.calls.length, 0)
  raw.write(ask('GET', '/f'))
  t.equal((await raw.answers(count + 1)).at(-1)?.status, 200, 'the connection goes on')
})

t.test('[http/public.6] answers stay in order among those of functions', async t => {
  const { raw } = await listen(t)
  const order = [200, 405, 404, 200, 405, 405, 404, 200, 404]
  const texts = { 200: ask('GET', '/f'), 404: ask('GET', '/missing'), 405: ask('PUT', '/f', 'body') }
  raw.write(order.map(status => texts[status as 200 | 404 | 405]).join(''))
  t.same(
    (await raw.answers(order.length)).map(({ status }) => status),
    order,
  )
})

t.test('[http/public.6] a body that has not come yet, too long a one, and a client that leaves', async t => {
  const { raw, port } = await listen(t)
  raw.write('PUT /f HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf')
  t.equal((await raw.answers(1))[0]?.status, 405, 'answered before it came')
  raw.write('x'.repeat(996) + ask('GET', '/f'))
  t.equal((await raw.answers(2))[1]?.status, 200, 'and read past')
  const long = await RawConnection.open(port)
  long.write(`PUT /f HTTP/1.1\r\nHost: x\r\nContent-Length: ${64 * 1024 + 1}\r\n\r\n`)
  t.match(await long.answers(1), [{ status: 405, headers: { connection: 'close' } }])
  long.socket.destroy()
  const waiting = await RawConnection.open(port)
  waiting.write('PUT /f HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n')
  t.equal((await waiting.answers(1))[0]?.status, 405, 'nobody is told to send it')
  waiting.socket.destroy()
  const leaving = await RawConnection.open(port)
  leaving.write(ask('PUT', '/f', 'x'))
  leaving.socket.destroy()
  raw.write(ask('GET', '/f'))
  t.equal((await raw.answers(3))[2]?.status, 200, 'nobody else is told of it')
})
