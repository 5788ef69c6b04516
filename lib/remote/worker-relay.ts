/** Joins a gateway's connection to the worker it asked for. Owner: page remote/daemon-server. */

import net from 'node:net'
import { posix } from 'node:path'
import { Transform } from 'node:stream'
import { type Clock, Timer } from '../core/clock.ts'
import { encodeFrame, encodeHello, FrameReader, KIND, type Kind, parseHeader } from '../runtime/wire-protocol.ts'
import type { Peer } from './daemon-server.ts'

/** Milliseconds a gateway has to send `start`. */
const START_TIMEOUT_MS = 15_000
/** Kinds whose header may name files, with the fields that do. */
const NAMING: ReadonlyMap<Kind, readonly string[]> = new Map([
  [KIND.ready, ['files']],
  [KIND.loaded, ['files']],
  [KIND.error, ['message', 'file', 'stack', 'hint']],
])

interface WorkerRelayOptions {
  peer: Peer
  /** `unix:/path` of the worker on this machine. */
  uri: string
  /** Full path of the functions folder here. */
  root: string
  clock: Clock
  /** Folders of the function's shared packs here. */
  packsOf(key: string): readonly string[]
}

/** Two sockets that are one connection from the first `start` on: the end of one is the end of both. */
export class WorkerRelay {
  readonly #options: WorkerRelayOptions
  readonly #local: net.Socket

  constructor(options: WorkerRelayOptions) {
    this.#options = options
    const { peer, uri, clock } = options
    const { socket } = peer
    const local = net.connect({ path: uri.slice('unix:'.length), allowHalfOpen: true })
    this.#local = local
    const timer = new Timer(clock)
    timer.set(START_TIMEOUT_MS, () => this.close())
    for (const [one, other] of [
      [socket, local],
      [local, socket],
    ] as const) {
      one.on('error', () => other.destroy())
      one.once('close', () => {
        timer.clear()
        other.destroy()
      })
    }
    const reader = new FrameReader(() => {})
    let start: { id: number; header: string } | null = null
    reader.guard([KIND.start], (_kind, id, header) => {
      reader.stop()
      start = { id, header }
    })
    const onData = (chunk: Buffer): void => {
      try {
        const taken = reader.push(chunk)
        if (start === null) return
        socket.off('data', onData)
        socket.pause()
        timer.clear()
        this.#join(start.id, parseHeader(start.header), chunk.subarray(taken))
      } catch (error) {
        const { message } = error as Error
        socket.end(encodeFrame(KIND.error, 0, JSON.stringify({ code: 'protocol', message }), null))
        this.close()
      }
    }
    socket.on('data', onData)
    socket.resume()
    onData(peer.rest)
  }

  close(): void {
    this.#options.peer.socket.destroy()
    this.#local.destroy()
  }

  /** @param rest - bytes behind the `start` */
  #join(id: number, header: Record<string, unknown>, rest: Buffer): void {
    const { root, packsOf, peer } = this.#options
    const map = new PathMap(String(header.root ?? ''), root)
    const paths = { root, dir: map.toHere(header.dir), entry: map.toHere(header.entry) }
    const start = { ...header, ...paths, packs: packsOf(String(header.key)) }
    const local = this.#local
    local.write(encodeHello({ role: 'worker' }))
    local.write(encodeFrame(KIND.start, id, JSON.stringify(start), null))
    local.write(rest)
    peer.socket.pipe(local)
    if (map.isSame) local.pipe(peer.socket)
    else {
      const renaming = createRenaming(map, header)
      renaming.on('error', error => local.destroy(error))
      local.pipe(renaming).pipe(peer.socket)
    }
  }
}

/** Frames of a worker as they come, with its files named as the gateway knows them. */
function createRenaming(map: PathMap, start: Record<string, unknown>): Transform {
  const { max_body_bytes: most } = (start.context ?? {}) as { max_body_bytes?: unknown }
  const reader = new FrameReader(
    (kind, id, header, body) => renaming.push(encodeFrame(kind, id, rename(map, kind, header), body)),
    typeof most === 'number' ? most : 0,
  )
  const renaming = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      try {
        reader.push(chunk)
        done()
      } catch (error) {
        done(error as Error)
      }
    },
  })
  return renaming
}

function rename(map: PathMap, kind: Kind, header: string): string {
  const names = NAMING.get(kind)
  if (names === undefined) return header
  const fields = parseHeader(header)
  for (const name of names) {
    const value = fields[name]
    if (typeof value === 'string') fields[name] = map.toThere(value)
    else if (Array.isArray(value))
      fields[name] = value.map(item => (typeof item === 'string' ? map.toThere(item) : item))
  }
  return JSON.stringify(fields)
}

// One functions folder under two names: the gateway's path, and the path here.

export class PathMap {
  readonly #there: string
  readonly #here: string

  /**
   * @param there - functions root of the gateway, full path
   * @param here - full path of the same folder on this machine
   */
  constructor(there: string, here: string) {
    this.#there = withSlash(there)
    this.#here = withSlash(here)
  }

  /** True when no path has to be changed. */
  get isSame(): boolean {
    return this.#there === this.#here
  }

  /**
   * A path of the gateway as it is here.
   * @throws Error when it is not below the functions root: a gateway reaches nothing else
   */
  toHere(path: unknown): string {
    const plain = typeof path === 'string' && path !== '' ? posix.normalize(path) : ''
    if (plain !== '' && withSlash(plain) === this.#there) return this.#here.slice(0, -1) || '/'
    if (plain === '' || plain.includes('\0') || !plain.startsWith(this.#there))
      throw new Error(`${JSON.stringify(path)} is not below the functions folder of the gateway, ${this.#there}`)
    return this.#here + plain.slice(this.#there.length)
  }

  /** A text for the gateway: paths of the folder are as the gateway knows them. */
  toThere(text: string): string {
    return this.isSame ? text : text.replaceAll(this.#here, this.#there)
  }
}

function withSlash(path: string): string {
  const plain = posix.normalize(path)
  return plain.endsWith('/') ? plain : `${plain}/`
}
