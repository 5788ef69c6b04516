/**
 * Debuggers of handlers, in development. An editor connects to a proxy, a port of the gateway that stays the same through
 * reloads, and the gateway passes the bytes on to the newest worker behind it. So the gateway knows which functions a
 * debugger holds, and sets their calls no time limit. Page: runtime/debuggers.
 *
 *   editor ─► proxy, 127.0.0.1:9229, one a worker ─► inspector of Node.js, or debugpy, of a worker
 *   Xdebug of a worker ─► 127.0.0.1, any port ─► editor, 127.0.0.1:9003
 */

import { randomUUID } from 'node:crypto'
import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { pathToFileURL } from 'node:url'
import type { FunctionVersion } from '../core/catalog.ts'
import type { RuntimeName } from '../core/identity.ts'
import type { RequestRecord } from '../observe/events.ts'
import type { Journal } from '../observe/journal.ts'
import type { Worker } from './worker.ts'

/** A language that is debugged, and where its debugger is. */
interface DebugPort {
  /** The first port of the gateway, or for PHP the port at which the editor listens; null for the usual one. */
  port: number | null
}

export interface DebugOptions {
  node?: DebugPort & {
    /** True loads a function only when a debugger is attached. */
    waits?: boolean
  }
  python?: DebugPort & {
    /** Folder that has debugpy; null when the interpreter of the functions has it. */
    path?: string | null
  }
  php?: DebugPort
  /** Name of the only function that is debugged, such as `hello` or `users/[id]`; null or absent for all. */
  fn?: string | null
}

/** A worker that said where its debugger is. */
interface Target {
  worker: Worker
  port: number
  /** Path of its WebSocket; empty for other protocols. */
  path: string
}

type DebuggedRuntime = 'node' | 'python' | 'php'

const HOST = '127.0.0.1'
const USUAL_PORTS = { node: 9229, python: 5678, php: 9003 } as const
/** Ports tried after one that is taken. */
const NEXT_PORTS = 100
/** Functions that have a proxy before they have a worker. */
const MAX_PROXIES_AHEAD = 20
/** Requests that were paused and whose access line was not written yet: those of jobs and schedules have none. */
const MAX_PAUSED = 1000

/** Messages of each language's debugger to the editor when code stops (group 1) and when it continues. */
const STOPS: Readonly<Record<DebuggedRuntime, RegExp>> = {
  node: /("method":"Debugger\.paused")|"method":"Debugger\.resumed"/g,
  python: /("event": ?"stopped")|"event": ?"continued"|"command": ?"(?:continue|next|stepIn|stepOut|disconnect)"/g,
  php: /(status="break")|status="(?:running|stopping|stopped)"/g,
}
/** Longest of them that two reads may cut. */
const MARK_CHARS = 48
/** How a client of debugpy begins. A page in a browser cannot, so that none can debug anything through an open port. */
const DAP_BEGIN = 'Content-Length:'
/** Characters in which Xdebug says whose it is, and connections that wait until a worker says so too. */
const MAX_INIT_CHARS = 4096
const MAX_UNKNOWN = 100
/** Milliseconds after which a connection that no worker has is ended. */
const UNKNOWN_MS = 10_000
const LOCAL_HOST = /^(?:localhost|127\.0\.0\.1|\[::1\])(?::\d+)?$/

export class Debuggers {
  readonly #debug: DebugOptions
  readonly #journal: Pick<Journal, 'log'>
  /** By key of the function. */
  readonly #proxies = new Map<string, DebugProxy[]>()
  /** Open debuggers by key of the function. */
  readonly #attached = new Map<string, number>()
  /** Workers that load their function only with a debugger. */
  readonly #waiting = new Set<Worker>()
  /** Ids of requests that a debugger paused. */
  readonly #paused = new Set<string>()
  readonly #nextPort: { node: number; python: number }
  /** Where Xdebug connects to, and which of its processes is whose. */
  #xdebug: Server | null = null
  readonly #phpWorkers = new Map<number, Worker>()
  /** Of connections that were faster than the word of their worker. */
  readonly #unknown = new Map<number, (worker: Worker) => void>()
  readonly #sockets = new Set<Socket>()
  #isClosed = false

  constructor(debug: DebugOptions, journal: Pick<Journal, 'log'>) {
    this.#debug = debug
    this.#journal = journal
    this.#nextPort = {
      node: debug.node?.port ?? USUAL_PORTS.node,
      python: debug.python?.port ?? USUAL_PORTS.python,
    }
  }

  /** True for a runtime whose functions are debugged. */
  covers(runtime: RuntimeName): runtime is DebuggedRuntime {
    return (runtime === 'node' || runtime === 'python' || runtime === 'php') && this.#debug[runtime] !== undefined
  }

  /**
   * Opens the proxies of the functions that are known at the start, in order of their names.
   * @throws Error when a port that was asked for cannot be listened on
   */
  async start(functions: ReadonlyMap<string, FunctionVersion>): Promise<void> {
    if (this.#debug.php !== undefined) await this.#listenForXdebug()
    const debugged = [...functions.values()].filter(fn => this.#isDebugged(fn))
    debugged.sort((a, b) => (a.key < b.key ? -1 : 1))
    const { fn: name = null } = this.#debug
    if (name !== null && debugged.length === 0) {
      const asked = Object.keys(USUAL_PORTS).filter(runtime => this.covers(runtime as RuntimeName))
      this.#journal.log(
        'warn',
        `no function named "${name}" to debug in ${asked.join(', ')}; "fngw routes" lists the names`,
      )
    }
    const ahead = debugged.filter(fn => fn.runtime !== 'php')
    for (const fn of ahead.slice(0, MAX_PROXIES_AHEAD)) await this.#openProxy(fn)
    if (ahead.length > MAX_PROXIES_AHEAD)
      this.#journal.log(
        'info',
        `debugger: ${ahead.length - MAX_PROXIES_AHEAD} more functions get a port when they are called first; --inspect-fn limits it to one function`,
      )
  }

  /** The field `debug` of the `start` of a function's worker; undefined when it is not debugged. */
  toStart(fn: FunctionVersion): object | undefined {
    if (!this.#isDebugged(fn)) return undefined
    if (fn.runtime === 'php') {
      const address = this.#xdebug?.address()
      return typeof address === 'object' && address !== null ? { port: address.port } : undefined
    }
    return fn.runtime === 'node'
      ? { waits: this.#debug.node?.waits === true }
      : { path: this.#debug.python?.path ?? null }
  }

  /** True while a debugger is attached to a worker of the function, or one of them waits for that. */
  holds(fn: FunctionVersion): boolean {
    if ((this.#attached.get(fn.key) ?? 0) > 0) return true
    for (const worker of this.#waiting) {
      if (worker.state === 'dead') this.#waiting.delete(worker)
      else if (worker.set.fn.key === fn.key) return true
    }
    return false
  }

  /** A worker says where its debugger is. @param fields - `port` and `path`, of PHP `pid` */
  async announce(worker: Worker, fields: unknown): Promise<void> {
    const { fn } = worker.set
    if (this.#isClosed || !this.#isDebugged(fn) || typeof fields !== 'object' || fields === null) return
    const { port, path = '', pid, waits } = fields as Record<string, unknown>
    if (fn.runtime === 'php') {
      for (const [known, one] of this.#phpWorkers) if (one.state === 'dead') this.#phpWorkers.delete(known)
      if (typeof pid !== 'number') return
      this.#phpWorkers.set(pid, worker)
      this.#unknown.get(pid)?.(worker)
      this.#unknown.delete(pid)
      return
    }
    if (!isPort(port) || typeof path !== 'string' || !/^[\w/-]*$/.test(path)) return
    if (waits === true) this.#waiting.add(worker)
    const target = { worker, port, path }
    const proxies = this.#proxies.get(fn.key) ?? []
    // The workers of one version have a proxy each; a newer version gets those of the version before.
    const proxy = proxies.find(one => one.target === null || one.target.worker.set.fn !== fn)
    try {
      ;(proxy ?? (await this.#openProxy(fn))).lead(target)
    } catch (error) {
      this.#journal.log('warn', `debugger of ${fn.entryFile}: ${(error as Error).message}`)
    }
  }

  /** Says of the requests that a debugger paused so in the access log. */
  noting<Log extends Pick<Journal, 'request' | 'requestPaused' | 'wantsRequests' | 'callFailed'>>(
    journal: Log,
  ): Pick<Journal, 'request' | 'wantsRequests' | 'callFailed'> {
    return {
      get wantsRequests() {
        return journal.wantsRequests
      },
      callFailed: (call, error) => journal.callFailed(call, error),
      request: (record: RequestRecord) => {
        if (this.#paused.delete(record.id)) journal.requestPaused(record)
        else journal.request(record)
      },
    }
  }

  /** Lets every debugger go: code that is stopped goes on. */
  close(): void {
    this.#isClosed = true
    this.#xdebug?.close()
    for (const proxies of this.#proxies.values()) for (const proxy of proxies) proxy.close()
    for (const socket of this.#sockets) socket.destroy()
  }

  #isDebugged(fn: FunctionVersion): boolean {
    const { fn: name = null } = this.#debug
    return this.covers(fn.runtime) && (name === null || fn.name === name)
  }

  async #openProxy(fn: FunctionVersion): Promise<DebugProxy> {
    const runtime = fn.runtime as 'node' | 'python'
    const mayMove = this.#debug[runtime]?.port == null || this.#proxies.size > 0
    const proxy = runtime === 'node' ? new InspectorProxy(this.#host, fn) : new DebugProxy(this.#host, fn)
    const first = this.#nextPort[runtime]
    for (let port = first; ; port++) {
      try {
        this.#nextPort[runtime] = port === 0 ? 0 : port + 1
        await proxy.listen(port)
        break
      } catch (error) {
        const isTaken = (error as NodeJS.ErrnoException).code === 'EADDRINUSE'
        if (!isTaken || !mayMove || port - first >= NEXT_PORTS || port >= 65_535)
          throw new Error(`cannot listen on ${HOST}:${port} for the debugger: ${(error as Error).message}`)
      }
    }
    this.#proxies.set(fn.key, [...(this.#proxies.get(fn.key) ?? []), proxy])
    this.#journal.log('info', `debugger of ${fn.entryFile}: ${proxy.text}`)
    return proxy
  }

  readonly #host: ProxyHost = {
    join: (editor, target, first) => {
      const worker = connect(target.port, HOST)
      if (first !== null) worker.write(first)
      return this.#join(editor, worker, target.worker)
    },
  }

  /** Passes bytes on between an editor and the debugger of a worker, until one of them hangs up. */
  #join(editor: Socket, debugged: Socket, worker: Worker): Link {
    const { fn } = worker.set
    const link = new Link(STOPS[fn.runtime as DebuggedRuntime], () => this.#notePaused(worker))
    this.#attached.set(fn.key, (this.#attached.get(fn.key) ?? 0) + 1)
    let isOpen = true
    const end = () => {
      editor.destroy()
      debugged.destroy()
      this.#sockets.delete(editor)
      this.#sockets.delete(debugged)
      if (!isOpen) return
      isOpen = false
      link.isOpen = false
      this.#attached.set(fn.key, (this.#attached.get(fn.key) ?? 1) - 1)
    }
    for (const socket of [editor, debugged]) {
      this.#sockets.add(socket)
      socket.setNoDelay(true)
      socket.on('error', () => {})
      socket.on('close', end)
    }
    // From now on it loads, or is about to.
    editor.once('data', () => this.#waiting.delete(worker))
    editor.on('data', bytes => link.read(bytes))
    debugged.on('data', bytes => link.read(bytes))
    editor.pipe(debugged).pipe(editor)
    link.close = end
    return link
  }

  #notePaused(worker: Worker): void {
    const { first } = worker.inflight
    const calls = worker.maxInflight === 1 ? (first === null ? [] : [first]) : worker.inflight.values()
    for (const { header, phase } of calls) {
      if (phase === 'done' || this.#paused.size >= MAX_PAUSED) continue
      const { id } = JSON.parse(header) as { id?: unknown }
      if (typeof id === 'string') this.#paused.add(id)
    }
  }

  /** Xdebug connects itself, from each worker once its first call begins. */
  async #listenForXdebug(): Promise<void> {
    const port = this.#debug.php?.port ?? USUAL_PORTS.php
    const server = createServer(debugged => this.#meetXdebug(debugged, port))
    this.#xdebug = server
    await listenOn(server, 0)
    this.#journal.log(
      'info',
      `debugger of PHP: listen for Xdebug in the editor on ${HOST}:${port}, then send a request`,
    )
  }

  #meetXdebug(debugged: Socket, port: number): void {
    this.#sockets.add(debugged)
    debugged.on('error', () => {})
    debugged.once('close', () => this.#sockets.delete(debugged))
    debugged.setTimeout(UNKNOWN_MS, () => debugged.destroy())
    let head = ''
    const read = (bytes: Buffer) => {
      head += bytes.toString('latin1')
      const pid = Number(/<init [^>]*appid="(\d+)"/.exec(head)?.[1] ?? 0)
      if (pid === 0) {
        if (head.length > MAX_INIT_CHARS) debugged.destroy()
        return
      }
      debugged.off('data', read)
      debugged.pause()
      const lead = (worker: Worker): void => {
        debugged.setTimeout(0)
        this.#toEditor(debugged, head, worker, port)
      }
      const worker = this.#phpWorkers.get(pid)
      if (worker !== undefined) lead(worker)
      else if (this.#unknown.size < MAX_UNKNOWN) {
        this.#unknown.set(pid, lead)
        debugged.once('close', () => this.#unknown.get(pid) === lead && this.#unknown.delete(pid))
      } else debugged.destroy()
    }
    debugged.on('data', read)
  }

  #toEditor(debugged: Socket, head: string, worker: Worker, port: number): void {
    const editor = connect(port, HOST)
    // No editor listens: the function runs without a debugger.
    editor.once('error', () => debugged.destroy())
    editor.once('connect', () => {
      editor.write(Buffer.from(head, 'latin1'))
      this.#join(editor, debugged, worker)
    })
  }
}

interface ProxyHost {
  /** Connects an editor to the debugger of a worker. @param first - to be sent before what the editor sends; null for nothing */
  join(editor: Socket, target: Target, first: string | null): Link
}

/** Bytes on their way between an editor and a worker. */
class Link {
  isOpen = true
  isPaused = false
  close: () => void = () => {}
  readonly #marks: RegExp
  readonly #onPaused: () => void
  #tail = ''

  constructor(marks: RegExp, onPaused: () => void) {
    this.#marks = marks
    this.#onPaused = onPaused
  }

  read(bytes: Buffer): void {
    const text = this.#tail + bytes.toString('latin1')
    let end = 0
    for (const mark of text.matchAll(this.#marks)) {
      end = mark.index + mark[0].length
      this.isPaused = mark[1] !== undefined
      if (this.isPaused) this.#onPaused()
    }
    this.#tail = text.slice(Math.max(end, text.length - MARK_CHARS))
  }
}

/** One port for editors, in front of one worker of a function at a time. Editors that come before there is a worker wait for it. */
class DebugProxy {
  protected readonly fn: FunctionVersion
  protected readonly server: Server
  protected port = 0
  readonly #host: ProxyHost
  /** Of editors, also of those that have said nothing yet. */
  readonly #connections = new Set<Socket>()
  /** Oldest first: the newest that lives is the one. */
  #targets: Target[] = []
  #links: { link: Link; target: Target }[] = []
  #waiting: { editor: Socket; toFirst: (target: Target) => string | null }[] = []

  constructor(host: ProxyHost, fn: FunctionVersion) {
    this.fn = fn
    this.#host = host
    this.server = this.createServer()
    this.server.on('connection', editor => {
      this.#connections.add(editor)
      editor.once('close', () => this.#connections.delete(editor))
    })
  }

  protected createServer(): Server {
    return createServer(editor => {
      editor.on('error', () => {})
      editor.once('data', bytes => {
        if (!bytes.toString('latin1').startsWith(DAP_BEGIN)) {
          editor.destroy()
          return
        }
        editor.pause()
        editor.unshift(bytes)
        this.meet(editor, () => null)
      })
    })
  }

  async listen(port: number): Promise<void> {
    this.port = await listenOn(this.server, port)
  }

  /** Where it is, for people. */
  get text(): string {
    return `attach the editor to ${HOST}:${this.port}`
  }

  get target(): Target | null {
    this.#targets = this.#targets.filter(({ worker }) => worker.state !== 'dead' && worker.state !== 'ending')
    return this.#targets.at(-1) ?? null
  }

  /** It leads to this worker from now on. Editors at the one before come again by themselves, unless its code is stopped. */
  lead(target: Target): void {
    this.#links = this.#links.filter(({ link }) => link.isOpen)
    for (const { link } of this.#links) if (!link.isPaused) link.close()
    this.#targets.push(target)
    for (const { editor, toFirst } of this.#waiting.splice(0)) this.#join(editor, target, toFirst)
  }

  close(): void {
    this.server.close()
    for (const editor of this.#connections) editor.destroy()
  }

  protected meet(editor: Socket, toFirst: (target: Target) => string | null): void {
    const { target } = this
    if (target === null) this.#waiting.push({ editor, toFirst })
    else this.#join(editor, target, toFirst)
  }

  #join(editor: Socket, target: Target, toFirst: (target: Target) => string | null): void {
    if (editor.destroyed) return
    this.#links.push({ target, link: this.#host.join(editor, target, toFirst(target)) })
  }
}

/** The inspector protocol of Node.js: a list of targets over HTTP, and a WebSocket. */
class InspectorProxy extends DebugProxy {
  /** A page in a browser may connect to any port of this machine, but cannot know this. */
  readonly #id = randomUUID()

  protected override createServer(): Server {
    const server = createHttpServer((req, res) => this.#answer(req, res))
    server.on('upgrade', (req, editor, head) => this.#upgrade(req, editor as Socket, head))
    return server
  }

  override get text(): string {
    return `attach VS Code to port ${this.port}, or open ${this.#devtoolsUrl} in Chrome`
  }

  get #devtoolsUrl(): string {
    return `devtools://devtools/bundled/js_app.html?experiments=true&v8only=true&ws=${HOST}:${this.port}/${this.#id}`
  }

  #answer(req: IncomingMessage, res: ServerResponse): void {
    const answers: Record<string, object> = {
      '/json': [this.#toRecord()],
      '/json/list': [this.#toRecord()],
      '/json/version': { Browser: `node.js/${process.version}`, 'Protocol-Version': '1.1' },
    }
    const path = req.url?.replace(/\/$/, '') ?? ''
    const body = isLocal(req) && Object.hasOwn(answers, path) ? answers[path] : undefined
    res.writeHead(body === undefined ? 404 : 200, { 'content-type': 'application/json; charset=UTF-8' })
    res.end(JSON.stringify(body ?? { error: 'not found' }))
  }

  #toRecord(): object {
    return {
      id: this.#id,
      type: 'node',
      title: `fngw: ${this.fn.entryFile}`,
      description: `function ${this.fn.key}`,
      url: pathToFileURL(this.fn.entryPath).href,
      devtoolsFrontendUrl: this.#devtoolsUrl,
      webSocketDebuggerUrl: `ws://${HOST}:${this.port}/${this.#id}`,
    }
  }

  #upgrade(req: IncomingMessage, editor: Socket, head: Buffer): void {
    editor.on('error', () => {})
    if (!isLocal(req) || req.url !== `/${this.#id}`) {
      editor.end('HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n')
      return
    }
    if (head.length > 0) editor.unshift(head)
    const { rawHeaders } = req
    this.meet(editor, ({ port, path }) => {
      const lines = [`GET ${path} HTTP/1.1`, `Host: ${HOST}:${port}`]
      for (let i = 0; i < rawHeaders.length; i += 2)
        if (rawHeaders[i]!.toLowerCase() !== 'host') lines.push(`${rawHeaders[i]}: ${rawHeaders[i + 1]}`)
      return `${lines.join('\r\n')}\r\n\r\n`
    })
  }
}

/** False for a foreign host name that resolves to this machine (DNS rebinding): its pages could read the response. */
function isLocal({ headers: { host = '' } }: IncomingMessage): boolean {
  return LOCAL_HOST.test(host)
}

function isPort(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value > 0 && value <= 65_535
}

/** @returns the port */
function listenOn(server: Server, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, HOST, () => {
      server.off('error', reject)
      server.on('error', () => {})
      const address = server.address()
      resolve(typeof address === 'object' && address !== null ? address.port : port)
    })
  })
}
