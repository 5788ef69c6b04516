import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import t from 'tap'
import { send, toHttpTarget } from '../../conformance/http-client.ts'

t.test('[bin/conformance.2] requests go out as a case has them, answers come back byte for byte', async t => {
  const seen: unknown[] = []
  const server = createServer((req, res) => {
    const chunks: Buffer[] = []
    req.on('data', chunk => chunks.push(chunk))
    req.on('end', () => {
      seen.push([req.method, req.url, req.headers['x-a'], Buffer.concat(chunks).toString('hex'), req.socket.remotePort])
      res.writeHead(
        418,
        [
          ['Set-Cookie', 'a=1'],
          ['Set-Cookie', 'b=2'],
        ].flat(),
      )
      res.end(Buffer.from([0xff, 0]))
    })
  })
  await new Promise<void>(done => server.listen(0, '127.0.0.1', done))
  const target = toHttpTarget(new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/ignored`))
  t.teardown(() => {
    target.close()
    server.close()
  })
  const path = '/a//b/%C3%BC/../?x=%zz'
  const answer = await send(target, { method: 'POST', path, headers: { 'x-a': ['1', '2'] }, body: Buffer.from([0xfe]) })
  t.same([answer.status, answer.headers['set-cookie'], [...answer.body]], [418, ['a=1', 'b=2'], [0xff, 0]])
  t.same(answer.rawHeaders.slice(0, 4), ['Set-Cookie', 'a=1', 'Set-Cookie', 'b=2'])
  await send(target, { path: '/' })
  const [first, second] = seen as unknown[][]
  t.same(first!.slice(0, 4), ['POST', path, '1, 2', 'fe'])
  t.same(second!.slice(0, 2), ['GET', '/'])
  t.equal(first![4], second![4], 'one connection')
})

t.test('[bin/conformance.2] addresses of every form; nobody there is an error', async t => {
  const rows: readonly [url: string, isSecure: boolean, hostname: string, port: number | undefined][] = [
    ['http://example.test', false, 'example.test', undefined],
    ['https://example.test:8443', true, 'example.test', 8443],
    ['http://[::1]:81', false, '::1', 81],
  ]
  for (const [url, isSecure, hostname, port] of rows) {
    const target = toHttpTarget(new URL(url))
    t.match({ ...target.address, isSecure: target.isSecure }, { isSecure, hostname, port }, url)
    target.close()
  }
  const server = createServer()
  await new Promise<void>(done => server.listen(0, '127.0.0.1', done))
  const { port } = server.address() as AddressInfo
  await new Promise(done => server.close(done))
  await t.rejects(send(toHttpTarget(new URL(`http://127.0.0.1:${port}`)), { path: '/' }), { code: 'ECONNREFUSED' })
})
