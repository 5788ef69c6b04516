/**
 * A daemon and its workers in the test's own process, made to break the protocol in any way a test likes.
 *
 *   const daemon = await HostileDaemon.start()
 *   daemon.onCall = (worker, id) => worker.raw(Buffer.from('garbage'))
 *   createGateway({ runtimeSockets: { node: [daemon.uri] }, ... })
 */

import { rmSync } from 'node:fs'
import net from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { BytePool } from '../../lib/core/byte-pool.ts'
import { systemClock } from '../../lib/core/clock.ts'
import { NO_TRUST } from '../../lib/runtime/worker-socket.ts'
import { SocketSet } from '../../lib/runtime/socket-set.ts'
import { encodeFrame, FrameReader, KIND, type Kind, parseHeader } from '../../lib/runtime/wire-protocol.ts'

const NO_LIMIT = 1 << 30

/** One connection that the gateway opened. */
export class HostilePeer {
  readonly socket: net.Socket
  role = ''
  /** Frames received of each kind. */
  readonly received = new Map<Kind, number>()
  isClosed = false

  constructor(socket: net.Socket) {
    this.socket = socket
    socket.on('error', () => {})
    socket.once('close', () => {
      this.isClosed = true
    })
  }

  send(kind: Kind, id: number, header: unknown = '', body: Buffer | null = null): void {
    if (this.isClosed) return
    this.socket.write(encodeFrame(kind, id, typeof header === 'string' ? header : JSON.stringify(header), body))
  }

  raw(bytes: Buffer): void {
    if (!this.isClosed) this.socket.write(bytes)
  }

  reply(id: number, body = 'ok', head: unknown = { status: 200, headers: {} }): void {
    this.send(KIND.reply, id, head, Buffer.from(body))
  }

  hangUp(): void {
    this.socket.destroy()
  }
}

type OnPeer = (peer: HostilePeer, id: number, header: string, body: Buffer) => void

const honest = {
  onControlHello: (peer: HostilePeer) =>
    peer.send(KIND.ready, 0, { runtime: 'node', version: '20.20.0', pid: process.pid }),
  onStart: (peer: HostilePeer, id: number) => peer.send(KIND.started, id, { worker: `w${id}`, pid: 0 }),
  onWorkerStart: (peer: HostilePeer) => peer.send(KIND.ready, 0, { max_inflight: 0 }),
  onCall: (peer: HostilePeer, id: number) => peer.reply(id),
  onPing: (peer: HostilePeer, id: number) => peer.send(KIND.pong, id),
}

export class HostileDaemon {
  readonly uri: string
  readonly peers = new Set<HostilePeer>()
  onControlHello: (peer: HostilePeer, header: string) => void = honest.onControlHello
  onStart: OnPeer = honest.onStart
  onWorkerStart: OnPeer = honest.onWorkerStart
  onCall: OnPeer = honest.onCall
  onPing: OnPeer = honest.onPing
  onCancel: OnPeer = () => {}
  onMore: OnPeer = () => {}
  /** Workers the gateway asked to stop. */
  stops = 0
  starts = 0
  private readonly server: net.Server
  private readonly path: string

  private constructor(path: string) {
    this.path = path
    this.uri = `unix:${path}`
    this.server = net.createServer(socket => this.meet(socket))
  }

  static async start(): Promise<HostileDaemon> {
    const path = join(tmpdir(), `fngw-hostile-${process.pid}-${Math.random().toString(36).slice(2)}.sock`)
    const daemon = new HostileDaemon(path)
    await new Promise<void>(done => daemon.server.listen(path, done))
    return daemon
  }

  /** Behaves from now on, also on connections that are open. */
  reform(): void {
    Object.assign(this, honest, { onCancel: () => {}, onMore: () => {} })
  }

  async close(): Promise<void> {
    for (const peer of this.peers) peer.hangUp()
    await new Promise<void>(done => this.server.close(() => done()))
    rmSync(this.path, { force: true })
  }

  private meet(socket: net.Socket): void {
    const peer = new HostilePeer(socket)
    this.peers.add(peer)
    socket.once('close', () => this.peers.delete(peer))
    const reader = new FrameReader((kind, id, header, body) => this.take(peer, kind, id, header, body), NO_LIMIT)
    socket.on('data', chunk => reader.push(chunk))
  }

  private take(peer: HostilePeer, kind: Kind, id: number, header: string, body: Buffer): void {
    peer.received.set(kind, (peer.received.get(kind) ?? 0) + 1)
    switch (kind) {
      case KIND.hello:
        peer.role = String(parseHeader(header).role)
        if (peer.role === 'control') this.onControlHello(peer, header)
        return
      case KIND.start:
        if (peer.role === 'worker') {
          this.onWorkerStart(peer, id, header, body)
        } else {
          this.starts++
          this.onStart(peer, id, header, body)
        }
        return
      case KIND.call:
        this.onCall(peer, id, header, body)
        return
      case KIND.cancel:
        this.onCancel(peer, id, header, body)
        return
      case KIND.more:
        this.onMore(peer, id, header, body)
        return
      case KIND.ping:
        this.onPing(peer, id, header, body)
        return
      case KIND.stop:
        this.stops++
        return
      default:
    }
  }
}

/** A gateway's sockets before daemons of a test. */
export function setBefore(
  daemons: readonly HostileDaemon[],
  more: Partial<ConstructorParameters<typeof SocketSet>[0]> = {},
): SocketSet {
  return new SocketSet({
    trust: NO_TRUST,
    runtime: 'node',
    clock: systemClock,
    pool: new BytePool(systemClock),
    externalUris: daemons.map(({ uri }) => uri),
    daemonCount: 1,
    launch: () => {
      throw new Error('nothing is spawned')
    },
    socketFolder: null,
    preparer: null,
    facts: { functionsRoot: '/srv', production: false, toContext: () => ({}), toPackDirs: () => [] },
    userOf: () => null,
    startsEarly: false,
    onLog: () => {},
    onEvent: () => {},
    ...more,
  })
}
