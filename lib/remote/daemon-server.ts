/**
 * Where gateways connect to a daemon that runs by itself. Each connection has a moment to prove itself, in small frames;
 * until then it costs a bounded amount of memory, and the oldest of too many goes. Owner: page remote/daemon-server.
 */

import { chmodSync, rmSync } from 'node:fs'
import { once } from 'node:events'
import net from 'node:net'
import tls from 'node:tls'
import { type Clock, Timer } from '../core/clock.ts'
import { greetGateway, type Role, toProblem } from '../runtime/greeting.ts'
import { encodeFrame, FrameReader, KIND } from '../runtime/wire-protocol.ts'
import { isAnswered, parseSocketUri, toBinding } from '../runtime/worker-socket.ts'

/** Milliseconds a connection has to prove itself and to say what it is for. */
const PROOF_TIMEOUT_MS = 5000
/** Connections that may be about it at once. */
const MAX_UNPROVEN = 256
/** Only the user of the daemon may connect to its socket. */
const SOCKET_MODE = 0o600
/** Milliseconds a peer has to read why its connection ends. */
const LAST_WORD_MS = 5000

/** Ends a connection with the reason, also one whose peer does not read. */
export function endWith(socket: net.Socket, code: 'start' | 'protocol', message: string, clock: Clock): void {
  const timer = new Timer(clock, true)
  timer.set(LAST_WORD_MS, () => socket.destroy())
  socket.once('close', () => timer.clear())
  socket.end(encodeFrame(KIND.error, 0, JSON.stringify({ code, message }), null), () => socket.destroy())
}

export interface Peer extends Role {
  socket: net.Socket
  /** Bytes that it sent already. */
  rest: Buffer
}

interface DaemonServerOptions {
  /** Null on a unix socket, and where only this machine can connect. */
  secret: string | null
  /** Certificate and key; null without TLS. */
  context: tls.SecureContext | null
  clock: Clock
  onPeer(peer: Peer): void
  /** @param from - address of who was refused */
  onRefused(from: string, reason: string): void
}

export class DaemonServer {
  readonly #options: DaemonServerOptions
  readonly #server: net.Server
  /** Oldest first. */
  readonly #unproven = new Set<net.Socket>()
  #path: string | null = null

  constructor(options: DaemonServerOptions) {
    this.#options = options
    // Who ends its half has not read the rest of ours.
    this.#server = net.createServer({ allowHalfOpen: true, noDelay: true }, raw => this.#accept(raw))
  }

  /**
   * @param uri - `unix:/path` or `tcp://host:port`; port 0 takes a free one
   * @returns where it listens, as gateways name it
   * @throws Error with a message for people
   */
  async listen(uri: string): Promise<string> {
    const address = parseSocketUri(uri)
    if ('path' in address) return this.#listenUnix(address.path)
    await this.#bind(address)
    const { port } = this.#server.address() as net.AddressInfo
    const host = net.isIPv6(address.host) ? `[${address.host}]` : address.host
    return `${this.#options.context === null ? 'tcp' : 'tls'}://${host}:${port}`
  }

  /** Takes no more; connections that were handed on are their owner's. */
  close(): void {
    this.#server.close()
    for (const socket of this.#unproven) socket.destroy()
    if (this.#path !== null) rmSync(this.#path, { force: true })
    this.#path = null
  }

  async #listenUnix(path: string): Promise<string> {
    // No one may connect before its rights are set.
    const umask = process.umask(0o177)
    try {
      await this.#bind({ path }).catch(async error => {
        if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error
        if (await isAnswered(path)) throw new Error(`another daemon serves ${path}`)
        rmSync(path, { force: true })
        await this.#bind({ path })
      })
    } finally {
      process.umask(umask)
    }
    chmodSync(path, SOCKET_MODE)
    this.#path = path
    return `unix:${path}`
  }

  async #bind(address: net.ListenOptions): Promise<void> {
    this.#server.listen(address)
    await once(this.#server, 'listening')
    // No descriptors left: the next connection may find one.
    this.#server.on('error', () => {})
  }

  #accept(raw: net.Socket): void {
    const { context, secret, clock, onPeer, onRefused } = this.#options
    const from = raw.remoteAddress ?? 'a process of this machine'
    const socket = context === null ? raw : new tls.TLSSocket(raw, { isServer: true, secureContext: context })
    const [oldest] = this.#unproven
    if (oldest !== undefined && this.#unproven.size >= MAX_UNPROVEN) oldest.destroy()
    this.#unproven.add(raw)
    const timer = new Timer(clock, true)
    const settle = (): void => {
      timer.clear()
      this.#unproven.delete(raw)
      socket.off('data', onData)
    }
    const refuse = (reason: string): void => {
      if (!this.#unproven.has(raw)) return
      settle()
      onRefused(from, reason)
      endWith(socket, 'protocol', reason, clock)
    }
    const reader = new FrameReader(() => {})
    let role: Role | null = null
    const onData = (chunk: Buffer): void => {
      try {
        const taken = reader.push(chunk)
        if (role === null) return
        settle()
        socket.pause()
        onPeer({ ...role, socket, rest: chunk.subarray(taken) })
      } catch (error) {
        refuse(toProblem(error))
      }
    }
    const send = (frame: Buffer): void => void socket.write(frame)
    greetGateway(reader, { secret, send, binding: () => toBinding(socket) }, given => {
      role = given
    })
    timer.set(PROOF_TIMEOUT_MS, () => refuse('it did not prove itself in time'))
    for (const each of new Set([raw, socket])) {
      each.on('error', () => {})
      each.once('close', () => {
        settle()
        raw.destroy()
        socket.destroy()
      })
    }
    // A half that ends before it proved anything has nothing more to say.
    socket.once('end', () => {
      if (this.#unproven.has(raw)) socket.destroy()
    })
    socket.on('data', onData)
  }
}
