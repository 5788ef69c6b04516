import { once } from 'node:events'
import { rmSync } from 'node:fs'
import net from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { ControlConnection } from '../../lib/runtime/control-connection.ts'
import { encodeFrame, FrameReader, KIND, type Kind } from '../../lib/runtime/wire-protocol.ts'
import { FakeClock } from '../helpers/clock.ts'

interface Frame {
  kind: Kind
  id: number
  header: string
}

/** A daemon that a test plays by hand. */
async function setUp(t: { teardown: (fn: () => void) => void }, takesReady = false) {
  const path = join(tmpdir(), `fngw-control-${process.pid}-${Math.random().toString(36).slice(2)}.sock`)
  const server = net.createServer().listen(path)
  await once(server, 'listening')
  const clock = new FakeClock()
  const notes: string[] = []
  const frames: Frame[] = []
  let onFrame: () => void = () => {}
  let onNote: () => void = () => {}
  const note = (text: string): void => {
    notes.push(text)
    onNote()
  }
  const connection = new ControlConnection(`unix:${path}`, clock, {
    onReady: ({ runtime, version, pid }) => note(`ready ${runtime} ${version} ${pid}`),
    onLost: reason => note(`lost ${reason}`),
    onLog: (worker, stream, text) => note(`log ${worker} ${stream} ${text}`),
    onExited: (worker, exit) => note(`exited ${worker} ${exit.code} ${exit.signal} ${exit.reason}`),
    onTrouble: reason => note(`trouble ${reason}`),
    // None of them is of use.
    onOffered: takesReady ? ({ worker }) => connection.stop(worker, 0) : undefined,
  })
  const [socket] = (await once(server, 'connection')) as [net.Socket]
  const reader = new FrameReader((kind, id, header) => {
    frames.push({ kind, id, header })
    onFrame()
  })
  socket.on('data', bytes => reader.push(bytes))
  socket.on('error', () => {})
  t.teardown(() => {
    connection.close()
    socket.destroy()
    server.close()
    rmSync(path, { force: true })
  })
  const until = async (isTrue: () => boolean): Promise<void> => {
    while (!isTrue())
      await new Promise<void>(resolve => {
        onFrame = onNote = resolve
      })
  }
  const send = (kind: Kind, id: number, header: unknown, body = ''): void =>
    void socket.write(encodeFrame(kind, id, header === '' ? '' : JSON.stringify(header), Buffer.from(body)))
  /** The next frame of a kind that the daemon gets. */
  const next = async (kind: Kind): Promise<Frame> => {
    await until(() => frames.some(frame => frame.kind === kind))
    return frames.splice(
      frames.findIndex(frame => frame.kind === kind),
      1,
    )[0]!
  }
  const noted = async (): Promise<string> => {
    await until(() => notes.length > 0)
    return notes.shift()!
  }
  return { connection, clock, socket, send, next, noted, notes, path }
}

t.test('[runtime/daemon.6, runtime/daemon.14] what a daemon tells is handed on', async t => {
  const { connection, send, next, noted, path } = await setUp(t)
  t.match(await next(KIND.hello), { id: 0, header: '{"role":"control"}' })
  send(KIND.ready, 0, { runtime: 'node', version: '20.1', pid: 7 })
  t.equal(await noted(), 'ready node 20.1 7')
  send(KIND.ready, 0, { runtime: 'other' })
  send(KIND.log, 0, { worker: 'w1', stream: 'stderr' }, 'oops\n')
  t.equal(await noted(), 'log w1 stderr oops\n', 'it is ready once')
  send(KIND.exited, 0, { worker: 'w1', code: 3 })
  t.equal(await noted(), 'exited w1 3 null exited with code 3')
  send(KIND.exited, 0, { worker: 'w2', signal: 'SIGKILL', reason: 'out of memory' })
  t.equal(await noted(), 'exited w2 null SIGKILL out of memory')
  send(KIND.ping, 5, '')
  t.match(await next(KIND.pong), { id: 5 })
  connection.stop('w3', 100)
  t.match(await next(KIND.stop), { header: '{"worker":"w3","grace_ms":100}' })

  const started = connection.start({ key: 'a' })
  const { id, header } = await next(KIND.start)
  t.equal(header, '{"key":"a"}')
  send(KIND.started, id, { worker: 'w4', uri: 'tcp://h:1', pid: 9 })
  t.same(await started, { worker: 'w4', uri: 'tcp://h:1', pid: 9 })
  const plain = connection.start({})
  send(KIND.started, (await next(KIND.start)).id, { worker: 'w5' })
  t.same(
    await plain,
    { worker: 'w5', uri: `unix:${path}`, pid: 0 },
    'without an address it is reached through the daemon',
  )
  const refused = connection.start({})
  send(KIND.error, (await next(KIND.start)).id, { message: 'no such file' })
  await t.rejects(refused, { message: 'no such file' })
})

t.test('[runtime/wire-protocol.9, runtime/daemon.19] a pong may say that no worker can be started', async t => {
  const { send, noted } = await setUp(t)
  send(KIND.ready, 0, { runtime: 'node', version: '20.1', pid: 7 })
  await noted()
  send(KIND.pong, 0, { trouble: 'no processes' })
  t.equal(await noted(), 'trouble no processes')
  for (const header of ['', {}, { trouble: 5 }]) {
    send(KIND.pong, 3, header)
    t.equal(await noted(), 'trouble null')
  }
})

t.test('[runtime/daemon.6] a daemon that says nothing is lost: after hello, and between pings', async t => {
  const mute = await setUp(t)
  mute.clock.advance(9999)
  t.same(mute.notes, [])
  mute.clock.advance(1)
  t.equal(await mute.noted(), 'lost no answer to hello within 10 s')
  t.equal(mute.clock.pending, 0)

  const quiet = await setUp(t)
  quiet.send(KIND.ready, 0, {})
  t.equal(await quiet.noted(), 'ready   0')
  quiet.clock.advance(8000)
  t.same(quiet.notes, [])
  quiet.send(KIND.log, 0, { worker: 'w' }, 'alive')
  t.equal(await quiet.noted(), 'log w stdout alive', 'any frame is a sign of life')
  quiet.clock.advance(9999)
  t.same(quiet.notes, [])
  quiet.clock.advance(1)
  t.equal(await quiet.noted(), 'lost no answer for 8 s')
})

t.test('[runtime/daemon.10] a start ends: without an answer, with the connection, after it', async t => {
  const { connection, clock, send, next, socket, noted } = await setUp(t)
  send(KIND.ready, 0, {})
  await noted()
  const late = connection.start({})
  const { id } = await next(KIND.start)
  // Signs of life, so that the connection itself is not given up before.
  for (const ms of [6000, 6000, 3000]) {
    send(KIND.log, 0, { worker: 'w' }, 'x')
    await noted()
    clock.advance(ms)
  }
  await t.rejects(late, { message: 'no answer to start within 15 s' })
  send(KIND.started, id, { worker: 'w9' })
  t.match(await next(KIND.stop), { header: '{"worker":"w9","grace_ms":0}' }, 'a worker that nobody waits for is ended')

  const open = connection.start({})
  open.catch(() => {})
  await next(KIND.start)
  socket.destroy()
  t.equal(await noted(), 'lost connection closed')
  await t.rejects(open, { message: 'connection closed' })
  await t.rejects(connection.start({}), { message: 'connection closed' })
})

t.test(
  '[runtime/wire-protocol.3, runtime/daemon.6] a daemon that breaks the protocol, or gives up, is lost once',
  async t => {
    const broken = await setUp(t)
    broken.socket.write(Buffer.alloc(64, 0xff))
    t.match(await broken.noted(), /^lost protocol error: /)
    const gone = await setUp(t)
    gone.send(KIND.error, 0, { message: 'out of processes' })
    t.equal(await gone.noted(), 'lost out of processes')
    const closed = await setUp(t)
    closed.connection.close()
    await once(closed.socket, 'close')
    t.same([broken.notes, gone.notes, closed.notes], [[], [], []], 'and nothing after it; a close of ours is no loss')
  },
)

t.test(
  '[runtime/wire-protocol.19] a daemon that tells of workers nobody asked for, and does not read, is lost',
  async t => {
    for (const takesReady of [false, true]) {
      const { send, socket, noted } = await setUp(t, takesReady)
      send(KIND.ready, 0, {})
      await noted()
      socket.pause()
      for (let i = 0; i < 40_000; i++) send(KIND.started, 0, { worker: `w${i}`, uri: 'tcp://127.0.0.1:1' })
      send(KIND.log, 0, { worker: 'w', stream: 'stdout' }, 'all of them were answered')
      t.equal(await noted(), 'lost the daemon sends and does not read')
    }
  },
)
