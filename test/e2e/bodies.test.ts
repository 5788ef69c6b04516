/**
 * Bodies through server, socket worker and back, in a pool that spoils every slab that is freed: bytes that are read after
 * that come out wrong. The worker is a plain server that gives each call's body back, cut in odd places.
 */

import { once } from 'node:events'
import { Agent, type IncomingMessage, request } from 'node:http'
import net, { type AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { BytePool } from '../../lib/core/byte-pool.ts'
import { systemClock } from '../../lib/core/clock.ts'
import { STREAM_WINDOW_BYTES } from '../../lib/core/limits.ts'
import { HttpServer } from '../../lib/http/server.ts'
import { NO_TRUST } from '../../lib/runtime/worker-socket.ts'
import { SocketWorker } from '../../lib/runtime/socket-worker.ts'
import type { StartedWorker } from '../../lib/runtime/socket-worker.ts'
import { encodeFrame, FrameReader, KIND, parseHeader } from '../../lib/runtime/wire-protocol.ts'
import { WorkerSet } from '../../lib/runtime/worker-set.ts'
import { makeFn } from '../helpers/fn.ts'
import { makePublic } from '../helpers/public.ts'
import { RawConnection } from '../helpers/raw-http.ts'

const KIB = 1024
const MIB = 1024 * KIB
const MOST = 4 * MIB
/** As much as a worker may wait for at once (`runtime/wire-protocol.15`). */
const CHUNK = 128 * KIB
const HEAD = '"status":200,"headers":{"content-type":"application/octet-stream"}'
const FN = makeFn({ policy: { methods: ['GET', 'POST'], maxBodyBytes: MOST, timeoutMs: 60_000, maxConcurrency: 0 } })

/** Kept connections get whole answers the short way. */
const KEPT = new Agent({ keepAlive: true })
t.teardown(() => KEPT.destroy())

interface Bed {
  pool: BytePool
  port: number
  set: WorkerSet
  /** Ends the worker's connection in the middle of its next answer. */
  dieInNextAnswer: () => void
}

/** A gateway's path of a request over one worker on a socket. */
async function setUp(t: Test): Promise<Bed> {
  const pool = new BytePool(systemClock, bytes => bytes.fill(0xdd))
  let dies = false
  const echo = net.createServer(socket => {
    /** Frames of streams that wait for the gateway to grant more, by call. */
    const streams = new Map<number, { frames: Buffer[]; credit: number }>()
    const send = (id: number, frame: Buffer) => {
      if (dies) {
        dies = false
        socket.end(frame.subarray(0, frame.length - 1))
        return
      }
      // Two writes: the frame's end comes with the beginning of the next one, or alone.
      const cut = (id * 7919) % frame.length
      socket.write(frame.subarray(0, cut))
      socket.write(frame.subarray(cut))
    }
    const goOn = (id: number, granted: number) => {
      const stream = streams.get(id)
      if (stream === undefined) return
      stream.credit += granted
      while (stream.frames.length > 0 && stream.credit >= bodyBytesOf(stream.frames[0]!)) {
        const frame = stream.frames.shift()!
        stream.credit -= bodyBytesOf(frame)
        send(id, frame)
      }
    }
    const answer = (id: number, body: Buffer) => {
      if (body.length <= MIB) {
        send(id, encodeFrame(KIND.reply, id, `{${HEAD}}`, body))
        return
      }
      streams.set(id, { frames: toStream(id, body), credit: STREAM_WINDOW_BYTES })
      goOn(id, 0)
    }
    const reader = new FrameReader((kind, id, header, body) => {
      if (kind === KIND.start) socket.write(encodeFrame(KIND.ready, 0, '{"max_inflight":0}', null))
      if (kind === KIND.call) answer(id, Buffer.from(body))
      if (kind === KIND.ping) socket.write(encodeFrame(KIND.pong, id, '', null))
      if (kind === KIND.more) goOn(id, Number(parseHeader(header).bytes))
      if (kind === KIND.cancel && streams.delete(id)) send(id, encodeFrame(KIND.end, id, '{"canceled":true}', null))
    }, MOST)
    socket.on('data', chunk => reader.push(chunk))
    socket.on('error', () => {})
  })
  await new Promise<void>(done => echo.listen(0, '127.0.0.1', done))
  const uri = `tcp://127.0.0.1:${(echo.address() as AddressInfo).port}`
  const place = { id: 'w', uri, isShared: false, trust: NO_TRUST, socketIndex: 1, pid: null }
  const started: StartedWorker = { ...place, kill: () => {}, ended: new Promise(() => {}) }
  const set = new WorkerSet({
    fn: FN,
    clock: systemClock,
    maxWorkers: 1,
    minWarm: 0,
    idleTtlMs: 60_000,
    sockets: null,
    preparer: null,
    spawn: owner => new SocketWorker(owner, { startWorker: async () => started }, '{}', pool),
    onLog: () => {},
    onFailure: () => {},
    onEmpty: () => {},
  })
  const made = makePublic({ '/echo': FN }, { pool })
  made.runtime.dispatch = call => set.dispatch(call)
  const server = new HttpServer({ ...made, requestIds: made.requestIds })
  const { port } = await server.listen(0, '127.0.0.1')
  t.teardown(async () => {
    await server.close(0)
    set.close()
    echo.close()
  })
  return {
    pool,
    port,
    set,
    dieInNextAnswer: () => {
      dies = true
    },
  }
}

/** As a worker sends a body that is too large for one frame. */
function toStream(id: number, body: Buffer): Buffer[] {
  const frames = [encodeFrame(KIND.reply, id, `{${HEAD},"stream":true,"length":${body.length}}`, null)]
  for (let at = 0; at < body.length; at += CHUNK)
    frames.push(encodeFrame(KIND.chunk, id, '', body.subarray(at, at + CHUNK)))
  return [...frames, encodeFrame(KIND.end, id, '', null)]
}

/** What counts against a window: bodies, not what is around them. */
function bodyBytesOf(frame: Buffer): number {
  return frame.length - 13 - frame.readUInt32BE(9)
}

/** Bytes that tell where they belong. */
function makeBody(length: number, seed: number): Buffer {
  const body = Buffer.allocUnsafeSlow(length)
  for (let i = 0; i < length; i++) body[i] = (i * 31 + (i >> 8) * 17 + seed) & 0xff
  return body
}

/** @param takesSlowly - reads in small pieces, with turns of the loop between them */
async function post(port: number, body: Buffer, takesSlowly = false): Promise<{ status: number; body: Buffer }> {
  const req = request({ port, path: '/echo', method: 'POST', agent: KEPT })
  req.end(body)
  const [res] = (await once(req, 'response')) as [IncomingMessage]
  const pieces: Buffer[] = []
  if (takesSlowly) {
    for await (const piece of res) {
      pieces.push(piece)
      res.pause()
      for (let turn = 0; turn < 3; turn++) await new Promise(setImmediate)
      res.resume()
    }
  } else {
    for await (const piece of res) pieces.push(piece)
  }
  return { status: res.statusCode!, body: Buffer.concat(pieces) }
}

t.test('[core/byte-pool.3, core/byte-pool.6, core/byte-pool.7] every size at each border comes back whole', async t => {
  const { port } = await setUp(t)
  const borders = [16 * KIB, 64 * KIB, CHUNK, 200 * KIB, 256 * KIB, MIB]
  const sizes = [0, 1, 2, ...borders.flatMap(border => [border - 1, border, border + 1]), 3 * MIB + 5, MOST]
  for (const [index, size] of sizes.entries()) {
    const body = makeBody(size, index)
    for (const isSlow of [false, true]) {
      const answer = await post(port, body, isSlow)
      t.ok(answer.status === 200 && answer.body.equals(body), `${size} bytes${isSlow ? ', taken slowly' : ''}`)
    }
  }
})

t.test('[core/byte-pool.2, core/byte-pool.3] many at once, of many sizes, do not read each other', async t => {
  const { port, pool } = await setUp(t)
  const sizes = [10, 20_000, 70_000, 150_000, 300_000, MIB, MIB + 1, 2 * MIB]
  const calls = Array.from({ length: 40 }, async (_, index) => {
    const body = makeBody(sizes[index % sizes.length]!, index * 13)
    const answer = await post(port, body, index % 3 === 0)
    return answer.status === 200 && answer.body.equals(body)
  })
  t.ok((await Promise.all(calls)).every(Boolean))
  t.ok(pool.freeBytes > 0, 'what was used lies in the pool again')
})

t.test('[core/byte-pool.3] answers on one connection, asked for in one packet, keep their order', async t => {
  const { port } = await setUp(t)
  const connection = await RawConnection.open(port)
  t.teardown(() => connection.socket.destroy())
  const bodies = [100_000, 5, 30_000, 200_000].map((size, index) => makeBody(size, index))
  const requests = bodies.map(body =>
    Buffer.concat([Buffer.from(`POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: ${body.length}\r\n\r\n`), body]),
  )
  connection.write(Buffer.concat(requests))
  const answers = await connection.answers(bodies.length)
  for (const [index, body] of bodies.entries())
    t.ok(Buffer.from(answers[index]!.body, 'latin1').equals(body), `answer ${index + 1}`)
})

t.test('[core/byte-pool.3] clients that leave in the middle spoil nobody else’s answer', async t => {
  const { port } = await setUp(t)
  const leavers = Array.from({ length: 10 }, async (_, index) => {
    const connection = await RawConnection.open(port)
    // Never reads: its answer waits in the gateway.
    connection.socket.pause()
    const body = makeBody(2 * MIB, index)
    connection.write(`POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: ${body.length}\r\n\r\n`)
    connection.write(index % 2 === 0 ? body : body.subarray(0, MIB))
    await new Promise(resolve => connection.socket.write('', resolve))
    connection.socket.destroy()
  })
  const stayers = Array.from({ length: 10 }, async (_, index) => {
    const body = makeBody(300_000 + index, index)
    return (await post(port, body)).body.equals(body)
  })
  t.ok((await Promise.all(stayers)).every(Boolean))
  await Promise.all(leavers)
  const after = makeBody(500_000, 77)
  t.ok((await post(port, after)).body.equals(after))
})

t.test('[core/byte-pool.6] a worker that dies in the middle of a large frame takes nothing with it', async t => {
  const { port, dieInNextAnswer } = await setUp(t)
  for (const size of [70_000, MIB, 2 * MIB]) {
    dieInNextAnswer()
    const body = makeBody(size, 3)
    const failed = await post(port, body).catch((error: Error) => error)
    t.ok(failed instanceof Error || failed.status === 503, `${size} bytes: cut, or refused`)
    const answer = await post(port, body)
    t.ok(answer.status === 200 && answer.body.equals(body), 'the next worker')
  }
})
