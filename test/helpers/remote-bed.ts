/**
 * Daemons that run by themselves, gateways that use them, and peers that a test plays by hand.
 *
 *   const { daemon, notes } = await startDaemonFor(t, 'node', tree)
 *   const gateway = await gatewayAt(t, tree, { node: [daemon.uri] })
 *   const peer = await RawPeer.connect(t, daemon.uri)
 */

import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import type net from 'node:net'
import type { Test } from 'tap'
import { createGateway, type Gateway, type RemoteDaemon, startRemoteDaemon } from '../../lib/index.ts'
import type { RemoteDaemonOptions } from '../../lib/remote/remote-daemon.ts'
import { greetDaemon } from '../../lib/runtime/greeting.ts'
import { encodeFrame, FrameReader, KIND, type Kind, parseHeader } from '../../lib/runtime/wire-protocol.ts'
import { dial, NO_TRUST } from '../../lib/runtime/worker-socket.ts'
import type { Tree } from './tree.ts'
import type { Fields } from './worker-client.ts'

export const SECRET = 'a-secret-of-tests-0123456789abcdef'

interface RunningDaemon {
  daemon: RemoteDaemon
  /** What it logged: `level message`. */
  notes: string[]
}

export async function startDaemonFor(
  t: Test,
  runtime: RemoteDaemonOptions['runtime'],
  tree: Tree,
  options: Partial<RemoteDaemonOptions> = {},
): Promise<RunningDaemon> {
  const notes: string[] = []
  const daemon = await startRemoteDaemon({
    runtime,
    listen: 'tcp://127.0.0.1:0',
    functionsRoot: tree.root,
    runtimeSecret: SECRET,
    onLog: ({ level, message }) => notes.push(`${level} ${message}`),
    ...options,
  })
  t.teardown(() => daemon.close())
  return { daemon, notes }
}

interface GatewayBed {
  gateway: Gateway
  /** Warnings of its log. */
  warnings: string[]
}

export async function gatewayAt(
  t: Test,
  tree: Tree,
  sockets: Record<string, string[]>,
  options: Parameters<typeof createGateway>[0] = {},
): Promise<GatewayBed> {
  const warnings: string[] = []
  const gateway = await createGateway({
    functionsRoot: tree.root,
    runtimes: Object.keys(sockets) as never,
    runtimeSockets: sockets,
    runtimeSecret: SECRET,
    beforeStart: async () => {},
    ...options,
  })
  gateway.on('log', ({ level, message }) => {
    if (level === 'warn') warnings.push(message)
  })
  t.teardown(() => gateway.close({ timeoutMs: 1000 }))
  return { gateway, warnings }
}

interface PeerFrame {
  kind: Kind
  id: number
  fields: Fields
  body: string
}

/** A gateway played by hand. */
export class RawPeer {
  readonly socket: net.Socket
  readonly frames: PeerFrame[] = []
  readonly closed: Promise<unknown>
  readonly #reader: FrameReader
  #wake: () => void = () => {}
  #onProblem: (error: unknown) => void = () => {}

  private constructor(socket: net.Socket) {
    this.socket = socket
    this.#reader = new FrameReader((kind, id, header, body) => {
      this.frames.push({ kind, id, fields: parseHeader(header), body: body.toString() })
      this.#wake()
    })
    socket.on('data', chunk => {
      try {
        this.#reader.push(chunk)
      } catch (error) {
        this.#onProblem(error)
      }
    })
    socket.on('error', () => {})
    this.closed = once(socket, 'close').then(() => this.#wake())
  }

  static async connect(t: Test, uri: string): Promise<RawPeer> {
    const socket = dial(uri, NO_TRUST)
    t.teardown(() => socket.destroy())
    const peer = new RawPeer(socket)
    await once(socket, 'connect')
    return peer
  }

  /** Proves that it knows the secret; what comes afterwards are plain frames. */
  async prove(secret = SECRET): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#onProblem = reject
      const send = (frame: Buffer): void => void this.socket.write(frame)
      greetDaemon(this.#reader, { secret, send, binding: () => '' }, resolve)
    })
  }

  send(kind: Kind, id: number, fields: Fields = {}, body = ''): void {
    this.socket.write(encodeFrame(kind, id, JSON.stringify(fields), Buffer.from(body)))
  }

  hello(fields: Fields): void {
    this.socket.write(encodeFrame(KIND.hello, 0, JSON.stringify(fields), Buffer.from([1])))
  }

  /** The next frame of a kind. */
  async next(kind: Kind): Promise<PeerFrame> {
    for (;;) {
      const at = this.frames.findIndex(frame => frame.kind === kind)
      if (at !== -1) return this.frames.splice(at, 1)[0]!
      if (this.socket.destroyed) throw new Error(`closed before a frame of kind ${kind}`)
      await new Promise<void>(resolve => {
        this.#wake = resolve
      })
    }
  }
}

export function hasOpenssl(): boolean {
  return spawnSync('openssl', ['version']).status === 0
}

/** `<name>.pem` and `<name>.key` for this machine, signed by itself. */
export function makeCertificate(pki: Tree, name: string): void {
  const san = 'subjectAltName=IP:127.0.0.1,DNS:localhost'
  const files = ['-keyout', pki.path(`${name}.key`), '-out', pki.path(`${name}.pem`)]
  const args = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2']
  const made = spawnSync('openssl', [...args, ...files, '-subj', `/CN=${name}`, '-addext', san], { encoding: 'utf8' })
  if (made.status !== 0) throw new Error(made.stderr)
}
