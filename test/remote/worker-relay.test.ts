import { once } from 'node:events'
import net from 'node:net'
import t, { type Test } from 'tap'
import { WorkerRelay } from '../../lib/remote/worker-relay.ts'
import { encodeFrame, FrameReader, KIND, parseHeader } from '../../lib/runtime/wire-protocol.ts'
import { FakeClock } from '../helpers/clock.ts'
import { RawPeer } from '../helpers/remote-bed.ts'
import { makeTree } from '../helpers/tree.ts'
import { type Fields, until } from '../helpers/worker-client.ts'

async function makeBed(t: Test, root = '/here') {
  const tree = makeTree()
  const workerServer = net.createServer({ allowHalfOpen: true }).listen(tree.path('w.sock'))
  const remoteServer = net.createServer({ allowHalfOpen: true }).listen(0, '127.0.0.1')
  await Promise.all([once(workerServer, 'listening'), once(remoteServer, 'listening')])
  const { port } = remoteServer.address() as net.AddressInfo
  const accepted = once(remoteServer, 'connection')
  const gateway = await RawPeer.connect(t, `tcp://127.0.0.1:${port}`)
  const [socket] = (await accepted) as [net.Socket]
  const arrived = once(workerServer, 'connection')
  const clock = new FakeClock()
  const relay = new WorkerRelay({
    peer: { socket, role: 'worker', worker: 'w', rest: Buffer.alloc(0) },
    uri: `unix:${tree.path('w.sock')}`,
    root,
    clock,
    packsOf: key => [`${root}/.svc/packs/${key}`],
  })
  const [worker] = (await arrived) as [net.Socket]
  const got: { kind: number; fields: Fields; body: string }[] = []
  const reader = new FrameReader((kind, _id, header, body) =>
    got.push({ kind, fields: parseHeader(header), body: body.toString() }),
  )
  worker.on('data', chunk => reader.push(chunk))
  worker.on('error', () => {})
  t.teardown(() => {
    relay.close()
    worker.destroy()
    workerServer.close()
    remoteServer.close()
    tree.cleanup()
  })
  const tell = (kind: number, fields: Fields, body = ''): void =>
    void worker.write(encodeFrame(kind as 1, 1, JSON.stringify(fields), Buffer.from(body)))
  return { gateway, worker, got, clock, tell }
}

const START = {
  key: 'k',
  root: '/there',
  dir: '/there/a',
  entry: '/there/a/h.py',
  packs: ['/there/x'],
  env: { A: '/there' },
}

t.test(
  '[remote/daemon-server.5] a worker is told the paths of this machine, and its own are named as there',
  async t => {
    const { gateway, got, tell } = await makeBed(t)
    gateway.send(KIND.start, 0, START)
    gateway.send(KIND.call, 1, { path: '/there/a' }, '/there/a')
    await until(() => got.length === 3)
    t.match(got[0], { kind: KIND.hello, fields: { role: 'worker' } })
    t.same(got[1]!.fields, {
      ...START,
      root: '/here',
      dir: '/here/a',
      entry: '/here/a/h.py',
      packs: ['/here/.svc/packs/k'],
    })
    t.match(got[2], { kind: KIND.call, fields: { path: '/there/a' }, body: '/there/a' }, 'calls are as they are')
    tell(KIND.ready, { max_inflight: 1, files: ['/here/a/h.py', '/usr/lib/x.py'] })
    t.same((await gateway.next(KIND.ready)).fields, { max_inflight: 1, files: ['/there/a/h.py', '/usr/lib/x.py'] })
    tell(KIND.loaded, { files: ['/here/b.py'] })
    t.same((await gateway.next(KIND.loaded)).fields, { files: ['/there/b.py'] })
    tell(KIND.error, { code: 'exception', message: 'in /here/a/h.py', file: '/here/a/h.py', line: 3 })
    t.same((await gateway.next(KIND.error)).fields, {
      code: 'exception',
      message: 'in /there/a/h.py',
      file: '/there/a/h.py',
      line: 3,
    })
    tell(KIND.reply, { status: 200, headers: { x: '/here/a' } }, '/here/a')
    t.match(
      await gateway.next(KIND.reply),
      { fields: { headers: { x: '/here/a' } }, body: '/here/a' },
      'and so are answers',
    )
  },
)

t.test('[remote/daemon-server.5] with one name for both, bytes are not looked at', async t => {
  const { gateway, got, worker } = await makeBed(t, '/there')
  gateway.send(KIND.start, 0, START)
  await until(() => got.length === 2)
  worker.write(encodeFrame(KIND.reply, 1, '{"status":200}', Buffer.alloc(3_000_000, 'x')))
  t.equal((await gateway.next(KIND.reply)).body.length, 3_000_000)
  worker.end()
  await gateway.closed
})

t.test(
  '[remote/daemon-server.5] a start that is none, that does not come, or that leads outside ends the connection',
  async t => {
    const silent = await makeBed(t)
    silent.clock.advance(15_000)
    await silent.gateway.closed
    for (const [kind, fields, reason] of [
      [KIND.call, {}, /kind 16 is not expected/],
      [KIND.start, { ...START, entry: '/etc/passwd' }, /is not below the functions folder/],
      [KIND.start, { key: 'k' }, /is not below the functions folder/],
    ] as const) {
      const { gateway, worker, clock } = await makeBed(t)
      gateway.send(kind, 0, fields)
      t.match((await gateway.next(KIND.error)).fields.message, reason)
      await gateway.closed
      await until(() => worker.destroyed || worker.readableEnded)
      t.equal(clock.pending, 0)
    }
    const broken = await makeBed(t)
    broken.gateway.send(KIND.start, 0, START)
    await until(() => broken.got.length === 2)
    broken.worker.write(Buffer.from([255, 255, 255, 255]))
    await broken.gateway.closed
  },
)
