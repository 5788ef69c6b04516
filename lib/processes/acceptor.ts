/**
 * An acceptor: takes connections and answers them as the gateway does, from the tree that the first process has read. Whatever
 * there may be only one of is asked of the first process. Owner: page processes/processes.
 */

import { randomBytes } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { BytePool, toBudgetBytes } from '../core/byte-pool.ts'
import type { Claim, FunctionVersion } from '../core/catalog.ts'
import { type Clock, Timer } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import { Descriptors, readDescriptorLimit } from '../core/host.ts'
import type { Discovery } from '../discovery/discover.ts'
import { EdgeProxy } from '../edge/passthrough.ts'
import { countdown, createCatalogSteps, createHandlerParts, createSchemas } from '../gateway/serving.ts'
import { createRequestListener, type Exchange } from '../http/exchange.ts'
import { type PublicCatalog, PublicHandler } from '../http/public.ts'
import { HttpServer } from '../http/server.ts'
import type { AdmissionCall } from '../invocation/admission.ts'
import { RequestIds } from '../invocation/event.ts'
import { type Call, Invoker } from '../invocation/invoke.ts'
import { Added, Metrics } from '../observe/metrics.ts'
import { findSpans } from '../observe/trace.ts'
import { RouteTableBuilder } from '../router/route-table.ts'
import type { RuntimeCall } from '../runtime/call.ts'
import type { Kind } from '../runtime/wire-protocol.ts'
import { AcceptorJournal } from './acceptor-journal.ts'
import { AcceptorLeases, Lease, RemoteWorkers } from './acceptor-leases.ts'
import { CallRelay } from './call-relay.ts'
import { ControlRelay } from './control-relay.ts'
import type { AdoptMessage, BeginMessage, FromAcceptor, Line, ToAcceptor } from './link.ts'

/** Milliseconds between two reports of counts. */
const COUNT_MS = 250
/** Stands for a slot of the first process. */
const ELSEWHERE = {}

interface AcceptorOptions {
  clock: Clock
  begin: BeginMessage
  link: Line
  post: (message: FromAcceptor) => void
}

export class Acceptor {
  readonly #options: AcceptorOptions
  readonly #calls: CallRelay
  readonly #control: ControlRelay
  readonly #journal: AcceptorJournal
  readonly #metrics = new Metrics()
  readonly #edge: EdgeProxy
  readonly #edgeCounts: Added<keyof EdgeProxy['results']>
  /** Memory for bodies on their way from workers to clients. */
  readonly #pool: BytePool
  readonly #descriptors = new Descriptors(readDescriptorLimit())
  readonly #workers: RemoteWorkers
  readonly #leases: AcceptorLeases
  readonly #invoker: Invoker
  readonly #requestIds = new RequestIds(randomBytes(6).toString('hex'))
  readonly #lifecycle = { draining: false, toShed: 0 }
  readonly #schemas: ReturnType<typeof createSchemas>
  readonly #routes: RouteTableBuilder
  readonly #toSteps: ReturnType<typeof createCatalogSteps>
  readonly #public: PublicHandler
  readonly #countTimer: Timer
  #servers: HttpServer[] = []
  #catalog: PublicCatalog | null = null
  #functions: AdoptMessage['discovery']['byKey'] = new Map()
  /** Open connections as reported last. */
  #connections = 0
  /** True when calls ran on leases at the last report. */
  #wasUsed = false

  constructor(options: AcceptorOptions) {
    const { clock, begin, link, post } = options
    const { settings, controlPaths, processes } = begin
    this.#options = options
    this.#countTimer = new Timer(clock, true)
    this.#calls = new CallRelay(link)
    this.#control = new ControlRelay(link)
    this.#journal = new AcceptorJournal({ clock, link, post, wasReported: error => this.#calls.wasReported(error) })
    this.#journal.wantsRequests = begin.wantsRequests
    this.#edge = new EdgeProxy({ clock, listening: () => begin.addresses, descriptors: this.#descriptors })
    this.#edgeCounts = new Added(this.#edge.results)
    this.#schemas = createSchemas(settings, this.#journal)
    this.#routes = new RouteTableBuilder(settings.forceUrl)
    this.#toSteps = createCatalogSteps({ settings, clock, schemas: this.#schemas.store, controlPaths })
    this.#pool = new BytePool(clock, undefined, toBudgetBytes(settings.bodyMemoryMb, settings.gatewayWorkers))
    this.#workers = new RemoteWorkers(post)
    this.#leases = new AcceptorLeases({
      ...{ clock, pool: this.#pool, workers: this.#workers, processes, post },
      onLog: (fn, stream, text) => post({ kind: 'output', key: fn.key, stream, text, call: null }),
      onFailure: (fn, error) => this.#journal.failure(fn, error),
    })
    this.#invoker = new Invoker({
      clock,
      sharesOrigin: settings.controlPort === null,
      schemas: this.#schemas.gate,
      dispatcher: { setOf: () => this },
      admission: this,
      edge: this.#edge.handle,
      onLog: ({ fn, id, trace, slots }, stream, text) => {
        // Of a call that runs elsewhere it is known there.
        if (slots instanceof Lease) post({ kind: 'output', key: fn.key, stream, text, call: { id, trace } })
      },
      onCold: fn => this.#metrics.functions.coldStart(fn),
    })
    this.#public = this.#createHandler()
  }

  /** Puts the first tree in force and listens. @throws Error when it cannot */
  async start(): Promise<void> {
    const { clock, begin } = this.#options
    this.#invoker.spans = await findSpans()
    await this.#adopt(begin.tree)
    const server = {
      handle: this.#public.handle,
      clock,
      requestIds: this.#requestIds,
      lifecycle: this.#lifecycle,
      onProblem: (message: string) => this.#journal.log('warn', message),
      descriptors: this.#descriptors,
    }
    this.#servers = begin.fds.map(() => new HttpServer(server))
    await Promise.all(this.#servers.map((server, at) => server.listenOn(begin.fds[at]!)))
    this.#countTimer.repeat(COUNT_MS, () => {
      this.#count()
      this.#leases.look()
    })
  }

  /** Puts a tree in force: the first process read it. */
  async #adopt(tree: AdoptMessage): Promise<void> {
    const discovery = reuseFunctions(tree.discovery, this.#functions)
    await this.#schemas.store.load(discovery.functions)
    const routes = this.#routes.build(discovery.claims, discovery.functions)
    const { before, after } = this.#toSteps(discovery, routes)
    this.#leases.adopt(discovery.byKey)
    this.#functions = discovery.byKey
    this.#catalog = { routes, before, after }
    this.#metrics.functions.adopt(discovery.byKey)
  }

  /** A call runs here on a slot of a lease, else in the first process. */
  dispatch(asked: RuntimeCall): void {
    const call = asked as Call
    if (call.slots instanceof Lease) call.slots.set.dispatch(call)
    else this.#calls.dispatch(call)
  }

  /** Slots of a lease are the acceptor's own; for all others a call goes to the first process and may come back refused. */
  enter(call: AdmissionCall): null {
    const lease = this.#leases.find(call.fn)
    call.phase = 'admitted'
    call.slots = lease ?? ELSEWHERE
    if (lease !== null) lease.active += 1
    return null
  }

  leave(call: AdmissionCall): void {
    const { slots } = call
    if (slots === null) return
    call.slots = null
    if (slots instanceof Lease) this.#leases.leave(slots)
    else this.#calls.leave(call as Call)
  }

  /** A message of the first process, after `begin`. */
  async handle(message: Exclude<ToAcceptor, BeginMessage>): Promise<void> {
    switch (message.kind) {
      case 'adopt':
        await this.#adopt(message)
        return this.#options.post({ kind: 'adopted', generation: message.generation })
      case 'wants':
        this.#journal.wantsRequests = message.requests
        return
      case 'count':
        return this.#count(message.id)
      case 'drain':
        this.#lifecycle.draining = true
        return
      case 'shed':
        // They end with their next response. Some may have gone since they were reported.
        this.#lifecycle.toShed = Math.max(0, this.#openConnections - message.kept)
        return
      case 'lease':
        this.#leases.take(message)
        return
      case 'recall':
        return this.#leases.recall(message.id)
      case 'close':
        return this.#close(message.timeoutMs)
      default:
        this.#workers.handle(message)
    }
  }

  /** @param id - of the question; 0 for none */
  #count(id = 0): void {
    const [counts, edge, { used }] = [this.#metrics.take(), this.#edgeCounts.take(), this.#leases]
    const isUsed = used.some(([, calls]) => calls > 0)
    const connections = this.#openConnections
    const isNews = counts !== null || edge !== null || isUsed || this.#wasUsed || connections !== this.#connections
    this.#wasUsed = isUsed
    this.#connections = connections
    if (id !== 0 || isNews) this.#options.post({ kind: 'counts', id, counts, edge, used, connections })
  }

  get #openConnections(): number {
    return this.#servers.reduce((sum, server) => sum + server.connections, 0)
  }

  /** Finishes open requests; those that take longer are cut. */
  async #close(timeoutMs: number): Promise<void> {
    const left = countdown(this.#options.clock, timeoutMs)
    await Promise.all(this.#servers.map(server => server.close(left())))
    await this.#edge.close(left())
    this.#leases.close()
    this.#countTimer.clear()
    this.#journal.flush()
    this.#count()
  }

  handleFrame(kind: Kind, id: number, header: string, body: Buffer): void {
    if (!this.#calls.handleFrame(kind, id, header, body)) this.#control.handleFrame(kind, id, header, body)
  }

  #createHandler(): PublicHandler {
    const { clock, begin } = this.#options
    const { settings } = begin
    const { controlPort, runtimeDaemons, runtimeSockets } = settings
    const record = createRequestListener(this.#journal, clock, this.#metrics)
    const shared = createHandlerParts({
      settings,
      clock,
      invoker: this.#invoker,
      requestIds: this.#requestIds,
      lifecycle: this.#lifecycle,
      pool: this.#pool,
      descriptors: this.#descriptors,
      onProblem: message => this.#journal.log('warn', message),
      // The first process records the requests that it answers.
      onFinished: exchange => {
        if (!exchange.isControl || controlPort !== null) record(exchange)
      },
      routingOf: name => {
        const sockets = Math.max(runtimeDaemons[name] ?? 1, runtimeSockets[name]?.length ?? 1)
        return sockets > 1 ? 'round_robin' : 'single'
      },
    })
    const refuse = (exchange: Exchange): void =>
      shared.responder.sendError(exchange, new GatewayError('NOT_FOUND', 'not found'))
    return new PublicHandler({
      ...shared,
      catalog: () => this.#catalog!,
      control: controlPort === null ? this.#control.handle : refuse,
    })
  }
}

// A tree from another process, with the objects of the previous tree where nothing changed: facts that are kept by object stay.

function reuseFunctions(discovery: Discovery, known: ReadonlyMap<string, FunctionVersion>): Discovery {
  const kept = new Map<FunctionVersion, FunctionVersion>()
  for (const fn of discovery.functions) {
    const before = known.get(fn.key)
    if (before !== undefined && isDeepStrictEqual(before, fn)) kept.set(fn, before)
  }
  const keep = (fn: FunctionVersion): FunctionVersion => kept.get(fn) ?? fn
  const functions = discovery.functions.map(keep)
  const claims = discovery.claims.map((claim): Claim => ({ ...claim, fn: keep(claim.fn) }))
  return { ...discovery, functions, claims, byKey: new Map(functions.map(fn => [fn.key, fn])) }
}
