import { once } from 'node:events'
import net from 'node:net'
import t, { type Test } from 'tap'
import type { FolderContent } from '../../lib/files/folder-content.ts'
import { GatewayRelay } from '../../lib/remote/gateway-relay.ts'
import { encodeFrame, FrameReader, KIND, parseHeader } from '../../lib/runtime/wire-protocol.ts'
import { FakeClock } from '../helpers/clock.ts'
import { RawPeer } from '../helpers/remote-bed.ts'
import { makeTree } from '../helpers/tree.ts'
import { type Fields, until } from '../helpers/worker-client.ts'

interface Bed {
  clock: FakeClock
  relay: GatewayRelay
  gateway: RawPeer
  /** The daemon process, played by the test. */
  local: net.Socket
  /** Frames that it got. */
  got: { kind: number; id: number; fields: Fields }[]
  tell: (kind: number, id: number, fields: Fields, body?: Buffer) => void
  workers: Map<string, string | null>
  closes: number
  /** Processes that were ended. */
  killed: number[]
  /** What is found in the folder; pending until it is settled. */
  find: (content: FolderContent | null) => void
}

async function makeBed(t: Test): Promise<Bed> {
  const tree = makeTree()
  const localServer = net.createServer().listen(tree.path('d.sock'))
  const remoteServer = net.createServer({ allowHalfOpen: true }).listen(0, '127.0.0.1')
  await Promise.all([once(localServer, 'listening'), once(remoteServer, 'listening')])
  const { port } = remoteServer.address() as net.AddressInfo
  const accepted = once(remoteServer, 'connection')
  const gateway = await RawPeer.connect(t, `tcp://127.0.0.1:${port}`)
  const [socket] = (await accepted) as [net.Socket]
  const clock = new FakeClock()
  const workers = new Map<string, string | null>()
  let find: Bed['find'] = () => {}
  const content = new Promise<FolderContent | null>(resolve => {
    find = resolve
  })
  const arrived = once(localServer, 'connection')
  const bed = { clock, gateway, workers, closes: 0, killed: [] as number[], find, got: [] as Bed['got'] }
  const relay = new GatewayRelay({
    peer: { socket, role: 'control', worker: '', rest: Buffer.alloc(0) },
    uri: `unix:${tree.path('d.sock')}`,
    clock,
    content: () => content,
    toStart: async header => {
      if (header.fail !== undefined) throw new Error('no such file here')
      return { ...header, mapped: true }
    },
    onWorker: (worker, uri) => void workers.set(worker, uri),
    endProcess: pid => void bed.killed.push(pid),
    onClose: () => void bed.closes++,
  })
  const [local] = (await arrived) as [net.Socket]
  const reader = new FrameReader((kind, id, header) => bed.got.push({ kind, id, fields: parseHeader(header) }))
  local.on('data', chunk => reader.push(chunk))
  local.on('error', () => {})
  t.teardown(() => {
    relay.close('over')
    local.destroy()
    localServer.close()
    remoteServer.close()
    tree.cleanup()
  })
  const tell: Bed['tell'] = (kind, id, fields, body) =>
    void local.write(encodeFrame(kind as 1, id, JSON.stringify(fields), body ?? null))
  return Object.assign(bed, { relay, local, tell })
}

t.test(
  '[remote/daemon-server.4, remote/daemon-server.6] what goes through, and what is changed on the way',
  async t => {
    const bed = await makeBed(t)
    const { gateway, got, tell, workers } = bed
    await until(() => got.length === 1)
    t.match(got.shift(), { kind: KIND.hello, fields: { role: 'control' } })
    tell(KIND.ready, 0, { runtime: 'php', version: '8.2', pid: 5 })
    bed.find({ hash: 'x', count: 1, files: [['a.php', '1']] })
    t.match(await gateway.next(KIND.ready), {
      fields: { runtime: 'php', version: '8.2', content: { hash: 'x', count: 1 } },
    })
    gateway.send(KIND.start, 3, { key: 'k' })
    gateway.send(KIND.start, 4, { fail: true })
    t.match(await gateway.next(KIND.error), { id: 4, fields: { code: 'start', message: 'no such file here' } })
    await until(() => got.length === 1)
    t.match(got.shift(), { kind: KIND.start, id: 3, fields: { key: 'k', mapped: true } })
    tell(KIND.started, 3, { worker: 'w1', uri: 'unix:/x', pid: 9 })
    const started = await gateway.next(KIND.started)
    t.same(started.fields, { worker: 'w1', pid: 9 })
    t.same([...workers], [['w1', 'unix:/x']])
    tell(KIND.log, 0, { worker: 'w1', stream: 'stderr' }, Buffer.from('oops'))
    t.match(await gateway.next(KIND.log), { fields: { worker: 'w1' }, body: 'oops' })
    gateway.send(KIND.stop, 0, { worker: 'w1', grace_ms: 5 })
    await until(() => got.length === 1)
    t.match(got.shift(), { kind: KIND.stop, fields: { worker: 'w1', grace_ms: 5 } })
    tell(KIND.exited, 0, { worker: 'w1', code: 0 })
    await gateway.next(KIND.exited)
    t.same([...workers], [['w1', null]])
  },
)

t.test('[remote/daemon-server.6] a look at the folder that takes too long keeps nobody waiting', async t => {
  const { gateway, got, tell, clock } = await makeBed(t)
  await until(() => got.length === 1)
  const timers = clock.pending
  tell(KIND.ready, 0, { runtime: 'php' })
  await until(() => clock.pending === timers + 1)
  clock.advance(5000)
  t.same((await gateway.next(KIND.ready)).fields, { runtime: 'php' })
})

t.test('[remote/daemon-server.7] a gateway that is not heard of for 10 s is gone, and its workers with it', async t => {
  const bed = await makeBed(t)
  const { gateway, clock, got, tell, workers } = bed
  tell(KIND.started, 1, { worker: 'w1', uri: 'unix:/x' })
  await gateway.next(KIND.started)
  clock.advance(9000)
  gateway.send(KIND.ping, 1)
  await until(() => got.some(frame => frame.kind === KIND.ping))
  clock.advance(9999)
  t.equal(bed.closes, 0)
  clock.advance(1)
  t.equal(bed.closes, 1)
  t.same([...workers], [['w1', null]])
  t.match(await gateway.next(KIND.error), { id: 0, fields: { message: 'nothing was heard for 10 s' } })
  await until(() => bed.local.destroyed || bed.local.readableEnded)
  bed.relay.close('again')
  t.equal(bed.closes, 1)
})

t.test('[remote/daemon-server.7] a gateway that does not read is not written for without end', async t => {
  const { gateway, local, tell } = await makeBed(t)
  gateway.socket.pause()
  const text = Buffer.alloc(64 * 1024, 'x')
  let sent = 0
  // The daemon process sees that nobody takes it: its own socket fills up.
  while (local.writableLength < 2 * 1024 * 1024) {
    tell(KIND.log, 0, { worker: 'w1', stream: 'stdout' }, text)
    sent++
    await new Promise(resolve => setImmediate(resolve))
    if (sent > 4000) break
  }
  t.ok(sent < 4000, `${sent} frames were taken`)
  gateway.socket.resume()
  await until(() => local.writableLength === 0)
  t.match(await gateway.next(KIND.log), { fields: { worker: 'w1' } })
})

t.test('[remote/daemon-server.8] workers of a daemon process that is gone are ended', async t => {
  const bed = await makeBed(t)
  const { gateway, tell } = bed
  for (const [worker, pid] of [
    ['w1', 71],
    ['w2', 72],
  ] as const)
    tell(KIND.started, 1, { worker, uri: `unix:/${worker}`, pid })
  tell(KIND.exited, 0, { worker: 'w1', code: 0 })
  await gateway.next(KIND.exited)
  bed.local.destroy()
  t.match(await gateway.next(KIND.error), { fields: { message: 'the daemon process ended' } })
  await until(() => bed.killed.length > 0)
  t.same(bed.killed, [72])
})
