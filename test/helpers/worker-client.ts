/**
 * Talks the wire protocol to a real daemon and its workers, without a gateway: starts the daemon of a runtime, starts a
 * worker for a handler file, sends calls.
 *
 *   const daemon = await startDaemon('node', { root })
 *   t.teardown(() => daemon.close())
 *   const worker = await daemon.worker({ dir: root, entry: 'handler.js' })
 *   const answer = await worker.call({ method: 'GET' })        // { kind: 'reply', header, body, stdout, stderr, ... }
 */

import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import net from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import type { AdapterName, RuntimeName } from '../../lib/core/identity.ts'
import { callableOf } from '../../lib/discovery/callable.ts'
import { encodeFrame, FrameReader, KIND, type Kind, parseHeader } from '../../lib/runtime/wire-protocol.ts'
import { TEST_EVENT } from './fn.ts'

const PROJECT = resolve(import.meta.dirname, '../..')
const HELLO_BYTE = Buffer.from([1])

// biome-ignore lint/suspicious/noExplicitAny: headers are whatever a peer sent, and tests look into them
export type Fields = Record<string, any>

export interface Frame {
  kind: Kind
  id: number
  header: Fields
  body: Buffer
}

/** One connection of frames; `wait` takes frames in order, whatever came first. */
export class FrameClient {
  readonly socket: net.Socket
  /** Resolves when the peer or this side closed. */
  readonly closed: Promise<void>
  readonly frames: Frame[] = []
  private waiters: {
    wanted: (frame: Frame) => boolean
    resolve: (frame: Frame) => void
    reject: (e: Error) => void
  }[] = []
  private isClosed = false

  constructor(uri: string) {
    this.socket = net.connect(
      uri.startsWith('tcp://')
        ? { host: new URL(uri).hostname, port: Number(new URL(uri).port) }
        : { path: uri.replace(/^unix:/, '') },
    )
    const reader = new FrameReader((kind, id, header, body) => {
      this.add({ kind, id, header: parseHeader(header), body: Buffer.from(body) })
    })
    this.socket.on('data', chunk => reader.push(chunk))
    this.socket.on('error', () => {})
    this.closed = new Promise(done => {
      this.socket.once('close', () => {
        this.isClosed = true
        for (const waiter of this.waiters.splice(0)) waiter.reject(new Error('connection closed'))
        done()
      })
    })
  }

  send(kind: Kind, id = 0, header: object | string = '', body: Uint8Array | null = null): void {
    this.socket.write(encodeFrame(kind, id, typeof header === 'string' ? header : JSON.stringify(header), body))
  }

  /** Takes the first frame that fits, waiting for it; rejects when the connection closes before. */
  wait(wanted: (frame: Frame) => boolean): Promise<Frame> {
    const at = this.frames.findIndex(wanted)
    if (at >= 0) return Promise.resolve(this.frames.splice(at, 1)[0]!)
    if (this.isClosed) return Promise.reject(new Error('connection closed'))
    return new Promise((resolve, reject) => this.waiters.push({ wanted, resolve, reject }))
  }

  close(): Promise<void> {
    this.socket.destroy()
    return this.closed
  }

  private add(frame: Frame): void {
    const at = this.waiters.findIndex(waiter => waiter.wanted(frame))
    if (at >= 0) this.waiters.splice(at, 1)[0]!.resolve(frame)
    else this.frames.push(frame)
  }
}

export interface WorkerStart {
  /** Full path of the handler's folder. */
  dir: string
  entry: string
  runtime?: string
  name?: string
  version?: string | null
  root?: string
  handler?: string | null
  adapter?: string | null
  env?: Record<string, string>
  packs?: string[]
  production?: boolean
  context?: Record<string, unknown>
}

export interface Answer {
  /** `error` when the call failed. */
  kind: 'reply' | 'error' | 'end'
  header: Fields
  /** All of the body, streamed or not. */
  body: Buffer
  text: string
  /** Sizes of the chunks of a stream; empty when the reply was whole. */
  chunks: number[]
  /** Header of `end` for a stream. */
  end: Fields | null
  stdout: string
  stderr: string
}

/** A worker's own connection. */
export class WorkerClient extends FrameClient {
  readonly id: string
  readonly pid: number
  private nextId = 0

  constructor(uri: string, id: string, pid: number, start: WorkerStart, runtime: string) {
    super(uri)
    this.id = id
    this.pid = pid
    this.send(KIND.hello, 0, { role: 'worker' }, HELLO_BYTE)
    const { handler = null, adapter = 'native' } = start
    this.send(KIND.start, 0, {
      key: `${runtime}/${start.name ?? 'test'}@default`,
      runtime,
      name: 'test',
      version: null,
      root: start.dir,
      callable: callableOf(runtime as RuntimeName, { handler, adapter: adapter as AdapterName }),
      adapter,
      env: {},
      packs: [],
      production: false,
      context: {
        runtime,
        function_name: start.name ?? 'test',
        version: 'default',
        timeout_ms: 2500,
        max_body_bytes: 1 << 20,
      },
      ...start,
    })
  }

  /** `ready`, or the `error` that tells why the function cannot be loaded. */
  ready(): Promise<Frame> {
    return this.wait(frame => frame.kind === KIND.ready || (frame.kind === KIND.error && frame.id === 0))
  }

  /** Sends a call and returns its id. */
  open(header: Record<string, unknown> = {}, body: Uint8Array | string | null = null): number {
    this.nextId += 1
    const path = typeof header.path === 'string' ? header.path : '/test'
    const call = {
      ...TEST_EVENT,
      id: `req-${this.nextId}`,
      path,
      raw_path: path,
      ...header,
    }
    this.send(KIND.call, this.nextId, call, typeof body === 'string' ? Buffer.from(body) : body)
    return this.nextId
  }

  /** Sends a call and collects its whole answer, granting a stream more as it comes. */
  async call(header: Record<string, unknown> = {}, body: Uint8Array | string | null = null): Promise<Answer> {
    return this.collect(this.open(header, body))
  }

  /** Everything that comes for one call, up to its last frame. */
  async collect(id: number): Promise<Answer> {
    const answer: Answer = {
      kind: 'reply',
      header: {},
      body: Buffer.alloc(0),
      text: '',
      chunks: [],
      end: null,
      stdout: '',
      stderr: '',
    }
    const parts: Buffer[] = []
    for (;;) {
      const frame = await this.wait(frame => frame.id === id)
      if (frame.kind === KIND.log) {
        answer[frame.header.stream as 'stdout' | 'stderr'] += frame.body.toString()
        continue
      }
      if (frame.kind === KIND.chunk) {
        parts.push(frame.body)
        answer.chunks.push(frame.body.length)
        this.send(KIND.more, id, { bytes: frame.body.length })
        continue
      }
      if (frame.kind === KIND.end) {
        answer.end = frame.header
        if (Object.keys(answer.header).length === 0) answer.kind = 'end'
        break
      }
      answer.header = frame.header
      if (frame.kind === KIND.error) {
        answer.kind = 'error'
        break
      }
      if (frame.header.stream === true) continue
      parts.push(frame.body)
      break
    }
    answer.body = Buffer.concat(parts)
    answer.text = answer.body.toString()
    return answer
  }
}

export interface DaemonOptions {
  /** Functions root, full path. */
  root: string
  /** Environment beside a minimal one: `FNGW_*`. */
  env?: Record<string, string>
  args?: string[]
  /** A program that runs the daemon, with its arguments before those of the daemon. */
  wrap?: string[]
  /** Fields of the control connection's `hello` beside its role. */
  hello?: object
  /** Address to listen on instead of a unix socket, such as `tcp://127.0.0.1:9001`. */
  socket?: string
}

export class DaemonClient {
  readonly runtime: string
  readonly child: ChildProcess
  readonly uri: string
  readonly control: FrameClient
  /** Header of the daemon's `ready`. */
  info: Fields = {}
  /** What the daemon itself printed: must stay empty. */
  output = ''
  readonly exited: Promise<number | null>
  private readonly folder: string
  private startId = 0

  constructor(runtime: string, child: ChildProcess, uri: string, control: FrameClient, folder: string) {
    this.runtime = runtime
    this.child = child
    this.uri = uri
    this.control = control
    this.folder = folder
    child.stdout?.on('data', bytes => (this.output += bytes))
    child.stderr?.on('data', bytes => (this.output += bytes))
    this.exited = new Promise(done => child.once('exit', code => done(code)))
  }

  /** Starts a worker and connects to it. */
  async worker(start: WorkerStart & { binary?: string }): Promise<WorkerClient> {
    const { id, uri, pid } = await this.startWorker(start)
    return this.connect(uri, id, pid, start)
  }

  /** Connects to a worker that was started. */
  connect(uri: string, id: string, pid: number, start: WorkerStart): WorkerClient {
    return new WorkerClient(uri, id, pid, start, start.runtime ?? this.runtime)
  }

  /** Asks the daemon for a worker. */
  async startWorker(
    start: Partial<WorkerStart> & { binary?: string } = {},
  ): Promise<{ id: string; uri: string; pid: number }> {
    this.startId += 1
    const id = this.startId
    this.control.send(KIND.start, id, { key: 'test', runtime: this.runtime, name: 'test', version: null, ...start })
    const frame = await this.control.wait(frame => frame.id === id)
    if (frame.kind === KIND.error) throw new Error(String(frame.header.message))
    return { id: frame.header.worker, uri: frame.header.uri ?? this.uri, pid: frame.header.pid }
  }

  /** The `exited` frame of a worker. */
  ended(worker: { id: string }): Promise<Frame> {
    return this.control.wait(frame => frame.kind === KIND.exited && frame.header.worker === worker.id)
  }

  /** Closes the daemon's standard input, as a gateway's end does, and waits for its exit. */
  async close(): Promise<void> {
    this.child.stdin?.destroy()
    await this.exited
    await this.control.close()
    rmSync(this.folder, { recursive: true, force: true })
  }
}

const COMMANDS: Record<string, [string, string[]]> = {
  node: [process.execPath, [join(PROJECT, 'runtimes/daemon/daemon.mjs')]],
  go: [process.execPath, [join(PROJECT, 'runtimes/daemon/daemon.mjs')]],
  rust: [process.execPath, [join(PROJECT, 'runtimes/daemon/daemon.mjs')]],
  python: ['python3', ['-u', join(PROJECT, 'runtimes/python/daemon.py')]],
  php: ['php', [join(PROJECT, 'runtimes/php/daemon.php')]],
}

/** Starts the daemon of a runtime and greets it. */
export async function startDaemon(runtime: string, options: DaemonOptions): Promise<DaemonClient> {
  const folder = mkdtempSync(join(tmpdir(), 'fngw-daemon-'))
  const uri = options.socket ?? `unix:${join(folder, 'd.sock')}`
  const [command, args] = COMMANDS[runtime]!
  const socket = uri.replace(/^unix:/, '')
  const [program, ...before] = [...(options.wrap ?? []), command]
  const child = spawn(
    program!,
    [...before, ...args, '--socket', socket, '--index', '1', '--root', options.root, ...(options.args ?? [])],
    {
      stdio: ['pipe', 'pipe', 'pipe'],
      detached: true,
      env: { PATH: process.env.PATH, HOME: process.env.HOME, FNGW_RUNTIME: runtime, ...options.env },
    },
  )
  let output = ''
  child.stderr?.on('data', bytes => (output += bytes))
  for (;;) {
    const control = new FrameClient(uri)
    control.send(KIND.hello, 0, { role: 'control', ...options.hello }, HELLO_BYTE)
    const ready = await control.wait(frame => frame.kind === KIND.ready).catch(() => null)
    if (ready !== null) {
      const daemon = new DaemonClient(runtime, child, uri, control, folder)
      daemon.info = ready.header
      return daemon
    }
    if (child.exitCode !== null || child.signalCode !== null) throw new Error(`daemon ended: ${output}`)
    await new Promise(done => setTimeout(done, 5))
  }
}

/** Waits until a condition holds, looking every few milliseconds; fails after `timeoutMs`. */
export async function until(condition: () => boolean | Promise<boolean>, timeoutMs = 5000): Promise<void> {
  const start = performance.now()
  while (!(await condition())) {
    if (performance.now() - start > timeoutMs) throw new Error(`condition not met within ${timeoutMs} ms`)
    await new Promise(done => setTimeout(done, 5))
  }
}
