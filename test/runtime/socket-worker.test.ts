import net, { type AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { BytePool } from '../../lib/core/byte-pool.ts'
import { type Clock, systemClock } from '../../lib/core/clock.ts'
import { GatewayError } from '../../lib/core/errors.ts'
import { RuntimeCall } from '../../lib/runtime/call.ts'
import { NO_TRUST } from '../../lib/runtime/worker-socket.ts'
import {
  FLUSH_FRAMES,
  SocketWorker,
  type StartedWorker,
  WorkerEnd,
  type WorkerExit,
} from '../../lib/runtime/socket-worker.ts'
import { encodeFrame, FrameReader, KIND, type Kind } from '../../lib/runtime/wire-protocol.ts'
import { WorkerSet } from '../../lib/runtime/worker-set.ts'
import { FakeClock } from '../helpers/clock.ts'
import { makeFn } from '../helpers/fn.ts'

interface Frame {
  kind: Kind
  id: number
  header: string
  body: string
}

class TestCall extends RuntimeCall {
  readonly answer: Promise<string>
  private settle!: (text: string) => void
  constructor() {
    super(FN)
    this.answer = new Promise(resolve => {
      this.settle = resolve
    })
  }
  override onReply(header: string, body: Buffer): void {
    this.settle(`${header} ${body}`)
  }
  override onChunk(): void {}
  override onEnd(): void {}
  override onLog(): void {}
  override onError(error: GatewayError): void {
    this.settle(`${error.status} ${error.message}`)
  }
}

const FN = makeFn({ policy: { maxBodyBytes: 1000 } })

/** A worker made of a plain server: the test reads and writes its frames by hand. */
interface Peer {
  set: WorkerSet
  /** The next frames, in order. */
  take: (count: number) => Promise<Frame[]>
  send: (kind: Kind, id: number, header?: string, body?: string) => void
  raw: (bytes: Buffer) => void
  closed: Promise<void>
  hangUp: () => void
  exit: (exit: WorkerExit) => void
  kills: number[]
  /** Files that workers said they had loaded. */
  files: string[][]
}

async function connect(
  t: Test,
  startProblem: GatewayError | null = null,
  pool = new BytePool(systemClock),
  flushFrames?: number,
  clock: Clock = systemClock,
): Promise<Peer> {
  const frames: Frame[] = []
  let wake = (): void => {}
  let socket!: net.Socket
  let onClosed!: () => void
  const closed = new Promise<void>(resolve => {
    onClosed = resolve
  })
  const reader = new FrameReader((kind, id, header, body) => {
    frames.push({ kind, id, header, body: body.toString() })
    wake()
  }, 1 << 20)
  const server = net.createServer(accepted => {
    socket = accepted
    accepted.on('data', chunk => reader.push(chunk))
    accepted.on('error', () => {})
    accepted.on('close', onClosed)
  })
  await new Promise<void>(done => server.listen(0, '127.0.0.1', done))
  const { port } = server.address() as AddressInfo
  const kills: number[] = []
  const files: string[][] = []
  const end = new WorkerEnd()
  const started: StartedWorker = {
    id: 'w1',
    uri: `tcp://127.0.0.1:${port}`,
    isShared: false,
    trust: NO_TRUST,
    socketIndex: 3,
    pid: null,
    kill: graceMs => {
      kills.push(graceMs)
      socket?.destroy()
    },
    ended: end.ended,
  }
  const set = new WorkerSet({
    fn: FN,
    clock,
    maxWorkers: 1,
    minWarm: 0,
    idleTtlMs: 60_000,
    sockets: null,
    preparer: null,
    spawn: owner =>
      new SocketWorker(
        owner,
        { startWorker: () => (startProblem === null ? Promise.resolve(started) : Promise.reject(startProblem)) },
        '{"key":"node/hello@default"}',
        pool,
        flushFrames,
      ),
    onLog: () => {},
    onFiles: (_fn, paths) => files.push([...paths]),
    onFailure: () => {},
    onEmpty: () => {},
  })
  t.teardown(() => {
    set.close()
    socket?.destroy()
    server.close()
  })
  return {
    set,
    take: async count => {
      while (frames.length < count) {
        await new Promise<void>(resolve => {
          wake = resolve
        })
      }
      return frames.splice(0, count)
    },
    send: (kind, id, header = '', body = '') => socket.write(encodeFrame(kind, id, header, Buffer.from(body))),
    raw: bytes => socket.write(bytes),
    closed,
    hangUp: () => socket.end(),
    exit: exit => end.settle(exit),
    kills,
    files,
  }
}

function dispatch(set: WorkerSet, header: string, body = ''): TestCall {
  const call = new TestCall()
  call.header = header
  call.body = body === '' ? null : Buffer.from(body)
  set.dispatch(call)
  return call
}

t.test(
  '[runtime/wire-protocol.4, runtime/wire-protocol.10] hello, start and the first call travel together; answers match by id',
  async t => {
    const peer = await connect(t)
    const first = dispatch(peer.set, '{"n":1}', 'body')
    const [hello, start, call] = await peer.take(3)
    t.same(hello, { kind: KIND.hello, id: 0, header: '{"role":"worker"}', body: '\u0001' })
    t.same(start, { kind: KIND.start, id: 0, header: '{"key":"node/hello@default"}', body: '' })
    t.match(call, { kind: KIND.call, header: '{"n":1}', body: 'body' })
    peer.send(KIND.ready, 0, '{"max_inflight":0}')
    peer.send(KIND.reply, call!.id, '{"status":200}', 'one')
    t.equal(await first.answer, '{"status":200} one')
    const calls = [dispatch(peer.set, '{"n":2}'), dispatch(peer.set, '{"n":3}')]
    const sent = await peer.take(2)
    t.not(sent[0]!.id, sent[1]!.id)
    t.ok(sent.every(frame => frame.id >= 1))
    peer.send(KIND.reply, sent[1]!.id, '{}', 'three')
    peer.send(KIND.reply, sent[0]!.id, '{}', 'two')
    t.same(await Promise.all(calls.map(one => one.answer)), ['{} two', '{} three'], 'in whatever order they come')
    t.equal(calls[0]!.host!.socketIndex, 3)
  },
)

t.test(
  '[runtime/worker-set.21] calls leave in bunches, larger ones where other processes have work meanwhile',
  async t => {
    for (const [flushFrames, bunches] of [
      [undefined, 4],
      [FLUSH_FRAMES.alone, 4],
      [FLUSH_FRAMES.besideOthers, 2],
    ]) {
      // Time stands still: a worker that is silent for long gets no further call.
      const peer = await connect(t, null, new BytePool(systemClock), flushFrames, new FakeClock())
      const first = dispatch(peer.set, '{"n":0}')
      const [, , call] = await peer.take(3)
      peer.send(KIND.ready, 0, '{"max_inflight":0}')
      peer.send(KIND.reply, call!.id, '{}', 'ready')
      await first.answer
      const written: number[] = []
      const { write } = net.Socket.prototype
      t.teardown(() => {
        net.Socket.prototype.write = write
      })
      net.Socket.prototype.write = function (this: net.Socket, bytes: Buffer, ...rest: []) {
        if (this.remoteAddress !== undefined) written.push(bytes.length)
        return write.call(this, bytes, ...rest)
      } as typeof write
      const calls = Array.from({ length: 35 }, (_, n) => dispatch(peer.set, `{"n":${n}}`))
      t.equal(written.length, bunches, 'while more come')
      await new Promise(setImmediate)
      t.equal(written.length, bunches! + 1, 'the rest at the end of the turn')
      net.Socket.prototype.write = write
      const sent = await peer.take(35)
      t.same(
        sent.map(({ header }) => header),
        calls.map((_, n) => `{"n":${n}}`),
        'in order',
      )
    }
  },
)

t.test(
  '[runtime/wire-protocol.3, runtime/wire-protocol.10] a load error, a protocol error and a hang-up end the worker alone',
  async t => {
    const cases: [name: string, act: (peer: Peer, id: number) => void, answer: RegExp][] = [
      ['load', peer => peer.send(KIND.error, 0, '{"code":"load","message":"no handler"}'), /^500 no handler/],
      [
        'length 4 GiB',
        peer => peer.raw(Buffer.from('ffffffff', 'hex')),
        /^503 runtime worker ended: protocol error: frame length/,
      ],
      [
        'unknown kind',
        peer => peer.raw(Buffer.from('00000009630000000100000000', 'hex')),
        /^503 .*unknown frame kind 99/,
      ],
      ['header not JSON', (peer, id) => peer.send(KIND.error, id, 'nope'), /^503 .*not JSON/],
      ['hang-up', peer => peer.hangUp(), /^503 runtime worker ended: connection closed/],
      [
        'exit with a reason',
        peer => {
          peer.exit({ code: 3, signal: null, reason: 'exit code 3' })
          peer.hangUp()
        },
        /^503 runtime worker ended: exit code 3/,
      ],
      [
        'broken contract',
        (peer, id) => peer.send(KIND.error, id, '{"code":"contract","message":"bad"}'),
        /^502 invalid runtime response: bad/,
      ],
    ]
    for (const [name, act, answer] of cases) {
      const peer = await connect(t)
      const call = dispatch(peer.set, '{}')
      const sent = await peer.take(3)
      if (name !== 'load') peer.send(KIND.ready, 0, '{"max_inflight":0}')
      act(peer, sent[2]!.id)
      t.match(await call.answer, answer, name)
    }
  },
)

t.test('[core/byte-pool.9] a body that is on its way stays as it is, though its request is over', async t => {
  const spoiled: number[] = []
  const pool = new BytePool(systemClock, bytes => {
    spoiled.push(bytes.length)
    bytes.fill('!')
  })
  const give = (set: WorkerSet, letter: string): TestCall => {
    const call = new TestCall()
    const parts = [pool.take(1 << 20), pool.take(300_000)]
    for (const part of parts) part.fill(letter)
    call.body = parts
    set.dispatch(call)
    for (const part of parts) pool.free(part)
    return call
  }
  const peer = await connect(t, null, pool)
  // The first waits for the connection, the second finds it there.
  const one = give(peer.set, 'a')
  const [, , first] = await peer.take(3)
  t.ok(first!.body === 'a'.repeat((1 << 20) + 300_000))
  peer.send(KIND.ready, 0, '{"max_inflight":0}')
  peer.send(KIND.reply, first!.id, '{}', 'one')
  t.equal(await one.answer, '{} one')
  const second = give(peer.set, 'b')
  const [sent] = await peer.take(1)
  t.ok(sent!.body === 'b'.repeat((1 << 20) + 300_000))
  peer.send(KIND.reply, sent!.id, '{}', 'two')
  t.equal(await second.answer, '{} two')
  t.same(spoiled, [1 << 20, 1 << 19, 1 << 20, 1 << 19], 'free when they are written')

  spoiled.length = 0
  const down = await connect(t, new GatewayError('RUNTIME_DOWN', 'runtime down'), pool)
  t.match(await give(down.set, 'c').answer, /^503/)
  t.same(spoiled, [1 << 20, 1 << 19], 'free when there is nobody to write them to')
})

t.test('[runtime/worker-set.9] a runtime that is down answers at once', async t => {
  const down = new GatewayError('RUNTIME_DOWN', 'runtime down')
  const peer = await connect(t, down)
  t.equal(await dispatch(peer.set, '{}').answer, '503 runtime down')
  t.equal(await dispatch(peer.set, '{}').answer, '503 runtime down', 'and again')
})

t.test(
  '[runtime/wire-protocol.16, runtime/wire-protocol.18] cancel is sent; a worker that is not needed any more sees its connection close',
  async t => {
    const peer = await connect(t)
    const call = dispatch(peer.set, '{}')
    const [, , sent] = await peer.take(3)
    peer.send(KIND.ready, 0, '{"max_inflight":0}')
    call.withdraw()
    t.match(await peer.take(1), [{ kind: KIND.cancel, id: sent!.id }])
    peer.send(KIND.end, sent!.id, '{"canceled":true}')
    peer.set.retire()
    await peer.closed
    t.equal(peer.set.workers.length, 0)
  },
)

t.test('[runtime/wire-protocol.11] loaded files are passed on, and what is no full path is not', async t => {
  const peer = await connect(t)
  const call = dispatch(peer.set, '{}')
  const [, , sent] = await peer.take(3)
  peer.send(KIND.ready, 0, '{"max_inflight":1,"files":["/a/b.py","c.py",7,null]}')
  peer.send(KIND.loaded, 0, '{"files":["/a/lazy.py"]}')
  for (const header of ['{}', '{"files":"/a"}', '{"files":{"0":"/a"}}', '']) peer.send(KIND.loaded, 0, header)
  peer.send(KIND.reply, sent!.id, '{"status":200}', 'ok')
  t.equal(await call.answer, '{"status":200} ok')
  t.same(peer.files, [['/a/b.py'], ['/a/lazy.py']])
})
