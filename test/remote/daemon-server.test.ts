import { once } from 'node:events'
import { existsSync, statSync, writeFileSync } from 'node:fs'
import net from 'node:net'
import t, { type Test } from 'tap'
import { systemClock } from '../../lib/core/clock.ts'
import { DaemonServer, type Peer } from '../../lib/remote/daemon-server.ts'
import { KIND } from '../../lib/runtime/wire-protocol.ts'
import { FakeClock } from '../helpers/clock.ts'
import { RawPeer, SECRET } from '../helpers/remote-bed.ts'
import { makeTree } from '../helpers/tree.ts'
import { until } from '../helpers/worker-client.ts'

interface Bed {
  server: DaemonServer
  uri: string
  peers: Peer[]
  refused: string[]
}

async function listen(
  t: Test,
  listen = 'tcp://127.0.0.1:0',
  secret: string | null = SECRET,
  clock = systemClock,
): Promise<Bed> {
  const peers: Peer[] = []
  const refused: string[] = []
  const server = new DaemonServer({
    secret,
    context: null,
    clock,
    onPeer: peer => peers.push(peer),
    onRefused: (from, reason) => refused.push(`${from} ${reason}`),
  })
  t.teardown(() => {
    server.close()
    for (const { socket } of peers) socket.destroy()
  })
  return { server, uri: await server.listen(listen), peers, refused }
}

t.test('[remote/daemon-server.1] a unix socket is for its user alone; one that nobody serves is replaced', async t => {
  const tree = makeTree()
  t.teardown(() => tree.cleanup())
  const path = tree.path('d.sock')
  const umask = process.umask()
  const first = await listen(t, `unix:${path}`, null)
  t.equal(first.uri, `unix:${path}`)
  t.equal(statSync(path).mode & 0o777, 0o600)
  t.equal(process.umask(), umask)
  await t.rejects(listen(t, `unix:${path}`, null), { message: `another daemon serves ${path}` })
  const peer = await RawPeer.connect(t, first.uri)
  peer.hello({ role: 'control' })
  await until(() => first.peers.length === 1)
  first.server.close()
  t.notOk(existsSync(path))
  writeFileSync(path, '')
  const again = await listen(t, `unix:${path}`, null)
  t.equal(again.uri, `unix:${path}`)
})

t.test('[remote/daemon-server.3] who proves nothing in time is sent away, and what is wrong is told', async t => {
  const clock = new FakeClock()
  const { uri, refused, peers } = await listen(t, undefined, SECRET, clock)
  const silent = await RawPeer.connect(t, uri)
  await until(() => clock.pending === 1)
  clock.advance(4999)
  t.same(refused, [])
  clock.advance(1)
  t.match(await silent.next(KIND.error), { fields: { code: 'protocol', message: 'it did not prove itself in time' } })
  await silent.closed
  const half = await RawPeer.connect(t, uri)
  half.hello({ nonce: 'A'.repeat(43) })
  await half.next(KIND.hello)
  clock.advance(5000)
  await half.closed
  for (const [bytes, reason] of [
    [Buffer.from([255, 255, 255, 255]), /4294967295 is above/],
    [Buffer.from('GET / HTTP/1.1\r\n\r\n'), /frame length/],
    [Buffer.alloc(100_000, 1), /frame length/],
  ] as const) {
    const peer = await RawPeer.connect(t, uri)
    peer.socket.write(bytes)
    t.match((await peer.next(KIND.error)).fields.message, reason)
    await peer.closed
  }
  const stranger = await RawPeer.connect(t, uri)
  await t.rejects(stranger.prove(`${SECRET}x`), /the daemon refuses: the proof is wrong/)
  t.same([peers.length, refused.length], [0, 6])
  t.match(refused[0], /^127\.0\.0\.1 it did not prove itself in time$/)
  await stranger.closed
  await until(() => clock.pending === 0)
})

t.test('[remote/daemon-server.3] a thousand that never prove keep nobody out', async t => {
  const { uri, peers } = await listen(t)
  const { port } = new URL(uri)
  const idle: net.Socket[] = []
  t.teardown(() => idle.map(socket => socket.destroy()))
  let closed = 0
  for (let n = 0; n < 1000; n++) {
    const socket = net.connect({ host: '127.0.0.1', port: Number(port) })
    socket.on('error', () => {})
    socket.once('close', () => closed++)
    idle.push(socket)
    await once(socket, 'connect')
  }
  await until(() => closed >= 1000 - 256)
  const peer = await RawPeer.connect(t, uri)
  await peer.prove()
  peer.hello({ role: 'control' })
  await until(() => peers.length === 1)
  t.match(peers, [{ role: 'control' }])
  t.ok(closed < 1000, 'those that may be about it are let be')
})
