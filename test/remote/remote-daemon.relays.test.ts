import { existsSync } from 'node:fs'
import net from 'node:net'
import t, { type Test } from 'tap'
import { systemClock } from '../../lib/core/clock.ts'
import { DaemonServer } from '../../lib/remote/daemon-server.ts'
import { Relays } from '../../lib/remote/remote-daemon.ts'
import { KIND } from '../../lib/runtime/wire-protocol.ts'
import { RawPeer } from '../helpers/remote-bed.ts'
import { makeTree } from '../helpers/tree.ts'
import { type DaemonClient, startDaemon, until } from '../helpers/worker-client.ts'

const ECHO = `exports.handler = e => ({ status: 200, body: e.body + ' ' + e.env.A })`

/** A real daemon of node behind relays. */
async function makeBed(
  t: Test,
): Promise<{ daemon: DaemonClient; uri: string; notes: string[]; root: string; health: { up: boolean } }> {
  const tree = makeTree({ 'echo/handler.js': ECHO, 'die.js': 'exports.handler = () => process.exit(3)' })
  const daemon = await startDaemon('node', { root: tree.root })
  const notes: string[] = []
  const health = { up: true }
  const relays = new Relays({
    clock: systemClock,
    root: tree.root,
    health: () => ({ index: 1, uri: daemon.uri, reason: 'it is down', ...health }),
    content: async () => ({ hash: 'h', count: 0, files: [] }),
    toStart: async header => header,
    packsOf: () => [],
    onNote: text => notes.push(text),
  })
  const server = new DaemonServer({
    secret: null,
    context: null,
    clock: systemClock,
    onPeer: peer => relays.take(peer),
    onRefused: (from, reason) => notes.push(`${from} ${reason}`),
  })
  const uri = await server.listen('tcp://127.0.0.1:0')
  t.teardown(async () => {
    server.close()
    relays.close('over')
    await daemon.close()
    tree.cleanup()
  })
  return { daemon, uri, notes, root: tree.root, health }
}

async function control(t: Test, uri: string): Promise<RawPeer> {
  const peer = await RawPeer.connect(t, uri)
  peer.hello({ role: 'control' })
  t.match(await peer.next(KIND.ready), { fields: { runtime: 'node', content: { hash: 'h' } } })
  return peer
}

async function startWorker(gateway: RawPeer, root: string, entry = 'echo/handler.js'): Promise<string> {
  gateway.send(KIND.start, 7, { key: 'k', runtime: 'node', name: 'n', root, dir: root, entry: `${root}/${entry}` })
  const { id, fields } = await gateway.next(KIND.started)
  if (id !== 7 || fields.uri !== undefined) throw new Error(JSON.stringify(fields))
  return fields.worker
}

const functionOf = (root: string, entry: string) => ({
  key: 'k',
  runtime: 'node',
  name: 'n',
  root,
  dir: root,
  entry: `${root}/${entry}`,
  callable: { names: ['handler'] },
  adapter: 'native',
  env: { A: 'x' },
  packs: [],
  production: true,
  context: {},
})

async function workerOf(
  t: Test,
  uri: string,
  worker: string,
  root: string,
  entry = 'echo/handler.js',
): Promise<RawPeer> {
  const peer = await RawPeer.connect(t, uri)
  peer.hello({ role: 'worker', worker })
  peer.send(KIND.start, 0, functionOf(root, entry))
  return peer
}

const CALL = {
  id: 'r',
  ts: 1,
  method: 'POST',
  path: '/',
  raw_path: '/',
  params: {},
  query: {},
  headers: {},
  client: {},
}

t.test(
  '[remote/daemon-server.5, runtime/greeting.10] one socket serves gateways and the connections to their workers',
  async t => {
    const { uri, root, notes } = await makeBed(t)
    const gateway = await control(t, uri)
    const worker = await workerOf(t, uri, await startWorker(gateway, root), root)
    await worker.next(KIND.ready)
    for (const body of ['one', 'two']) {
      worker.send(KIND.call, 5, CALL, body)
      t.match(await worker.next(KIND.reply), { id: 5, body: `${body} x` })
    }
    gateway.send(KIND.ping, 9)
    t.match(await gateway.next(KIND.pong), { id: 9 })
    t.ok(notes.includes('a gateway connected from 127.0.0.1'))

    const stranger = await RawPeer.connect(t, uri)
    stranger.hello({ role: 'worker', worker: 'nobody' })
    t.match(await stranger.next(KIND.error), { fields: { message: 'unknown worker "nobody"' } })
    await stranger.closed

    worker.socket.end()
    await worker.closed
    t.match(await gateway.next(KIND.exited), { fields: { code: 0 } }, 'the end of the gateway is the end of the worker')
  },
)

t.test(
  '[remote/daemon-server.5] a worker that ends closes its connection; a gateway that leaves ends its workers',
  async t => {
    const { uri, root, notes } = await makeBed(t)
    const gateway = await control(t, uri)
    const name = await startWorker(gateway, root, 'die.js')
    const dying = await workerOf(t, uri, name, root, 'die.js')
    await dying.next(KIND.ready)
    dying.send(KIND.call, 1, CALL)
    await dying.closed
    t.match(await gateway.next(KIND.exited), { fields: { worker: name, code: 3 } })
    const late = await workerOf(t, uri, name, root)
    t.match(await late.next(KIND.error), { fields: { message: /unknown worker/ } })

    const other = await control(t, uri)
    const kept = await workerOf(t, uri, await startWorker(other, root), root)
    await kept.next(KIND.ready)
    const id = await startWorker(gateway, root)
    const mine = await workerOf(t, uri, id, root)
    await mine.next(KIND.ready)
    gateway.socket.destroy()
    await mine.closed
    await until(() => notes.includes('the gateway at 127.0.0.1 is gone'))
    kept.send(KIND.call, 1, CALL, 'still')
    t.match(await kept.next(KIND.reply), { body: 'still x' }, 'those of others live on')
  },
)

t.test(
  '[remote/daemon-server.8] without its process a daemon says why, and when the process ends its gateways hear it',
  async t => {
    const { uri, daemon, health } = await makeBed(t)
    const gateway = await control(t, uri)
    health.up = false
    const early = await RawPeer.connect(t, uri)
    early.hello({ role: 'control' })
    t.match(await early.next(KIND.error), { id: 0, fields: { message: 'it is down' } })
    await early.closed
    await daemon.close()
    t.match(await gateway.next(KIND.error), { id: 0, fields: { message: 'the daemon process ended' } })
    await gateway.closed
  },
)

t.test('[remote/daemon-server.5] a peer that breaks off anywhere leaves nothing open', async t => {
  const { uri, root } = await makeBed(t)
  const gateway = await control(t, uri)
  const name = await startWorker(gateway, root)
  const mute = await RawPeer.connect(t, uri)
  mute.hello({ role: 'worker', worker: name })
  mute.socket.destroy()
  const wrong = await RawPeer.connect(t, uri)
  wrong.hello({ role: 'worker', worker: name })
  wrong.send(KIND.call, 1, CALL)
  t.match(await wrong.next(KIND.error), { fields: { message: /frame kind 16 is not expected/ } })
  await wrong.closed
  gateway.send(KIND.reply, 1, {})
  t.match(await gateway.next(KIND.error), { fields: { message: /does not take frames of kind 17/ } })
  await gateway.closed
  t.ok(existsSync(root) && net.isIP(new URL(uri).hostname) === 4)
})
