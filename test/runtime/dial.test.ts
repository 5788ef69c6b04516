import { once } from 'node:events'
import net from 'node:net'
import t from 'tap'
import { dial, hangUp, isTrusted, needsProof, NO_TRUST, parseSocketUri, toBinding } from '../../lib/runtime/dial.ts'

t.test('[runtime/greeting.1] addresses as the settings name them', async t => {
  t.same(parseSocketUri('unix:/tmp/a b.sock'), { path: '/tmp/a b.sock' })
  t.same(parseSocketUri('tcp://127.0.0.1:9001'), { host: '127.0.0.1', port: 9001 })
  t.same(parseSocketUri('tls://[::1]:9001'), { host: '::1', port: 9001 })
  t.throws(() => dial('tcp://h:99999', NO_TRUST), /port|URL/i)
})

t.test('[runtime/greeting.6, runtime/greeting.7] who has to prove something, and who may get secrets', async t => {
  const trust = { secret: 's'.repeat(32), ca: null }
  for (const [uri, given, proof, secrets] of [
    ['unix:/a', NO_TRUST, false, true],
    ['unix:/a', trust, false, true],
    ['tcp://127.0.0.1:1', NO_TRUST, false, false],
    ['tls://127.0.0.1:1', NO_TRUST, false, false],
    ['tcp://127.0.0.1:1', trust, true, true],
    ['tls://127.0.0.1:1', trust, true, true],
  ] as const)
    t.same([needsProof(uri, given), isTrusted(uri, given)], [proof, secrets], `${uri} ${given.secret}`)
})

t.test('[remote/daemon-server.9] a connection that is lost drops what was not sent', async t => {
  const server = net.createServer({ pauseOnConnect: true }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const { port } = server.address() as net.AddressInfo
  for (const [isLost, expected] of [
    [true, 'ECONNRESET'],
    [false, 'end'],
  ] as const) {
    const socket = dial(`tcp://127.0.0.1:${port}`, NO_TRUST)
    socket.on('error', () => {})
    const [[peer]] = (await Promise.all([once(server, 'connection'), once(socket, 'connect')])) as [
      [net.Socket],
      unknown,
    ]
    const seen = new Promise(resolve => {
      peer.on('error', error => resolve((error as NodeJS.ErrnoException).code))
      peer.on('end', () => resolve('end'))
    })
    hangUp(socket, isLost)
    hangUp(socket, isLost)
    peer.resume()
    t.equal(await seen, expected)
    t.equal(toBinding(socket), '')
  }
})
