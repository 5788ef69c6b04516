/**
 * The processes of one gateway. The first one is a whole gateway; the others, the acceptors, take connections from the same
 * sockets and leave to it whatever there may be only one of. Owner: page processes/processes.
 *
 *   clients ─► socket ─┬─► first process ───────────────► disk, daemons, workers, schedules, jobs, logs, /_fn
 *                      ├─► acceptor ── calls, /_fn ──► ┘
 *                      └─► acceptor ── calls, /_fn ──► ┘
 */

import type { Settings } from '../config/settings.ts'
import type { EndpointPath } from '../control/control-plane.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { backoffDelay, type Clock, Timer } from '../core/clock.ts'
import type { Lifecycle } from '../core/transitions.ts'
import type { Discovery } from '../discovery/discover.ts'
import type { Listening } from '../http/server.ts'
import type { Journal } from '../observe/journal.ts'
import { addTo, type Metrics } from '../observe/metrics.ts'
import type { WorkerSource } from '../runtime/socket-worker.ts'
import { toLineRecord } from './acceptor-journal.ts'
import { AcceptorProcess } from './acceptor-process.ts'
import type { AcceptorDoorDeps } from './call-relay.ts'
import { Leases, LentWorkers } from './leases.ts'
import { type AdoptMessage, type EdgeResult, type FromAcceptor, fromErrorHeader, type ToAcceptor } from './link.ts'

/** Milliseconds before an acceptor that died is replaced: first, largest; and how long one must have served to count as the first again. */
const RESTART_DELAY_MS = { first: 100, max: 8000 } as const
const RESTART_RESET_MS = 10_000
/** Milliseconds between two looks at how many connections each process has: acceptors report it as often. */
const BALANCE_MS = 250
/** Functions that are no more and may still be called by requests that began before. */
const MAX_GONE = 10_000

interface ProcessesOptions {
  clock: Clock
  settings: Settings
  controlPaths: readonly EndpointPath[]
  /** Fronts beside this process. */
  count: number
  entry: string
  door: Omit<AcceptorDoorDeps, 'findFunction' | 'journal'>
  journal: Journal
  metrics: Pick<Metrics, 'add'>
  admission: ConstructorParameters<typeof Leases>[0]['admission']
  /** The facts with which an acceptor runs calls of a function; null where only this process can, or not now. */
  prepare: ConstructorParameters<typeof Leases>[0]['prepare']
  /** The source of workers of a function; null where there is none. */
  sourceOf(fn: FunctionVersion, program: string | null): WorkerSource | null
  /** Where workers of acceptors are counted. */
  dispatcher: ConstructorParameters<typeof LentWorkers>[0]['dispatcher']
  /** Upstream requests by what became of them. */
  edgeResults: Record<EdgeResult, number>
  /** Open connections of this process; `toShed` of them are to go. */
  connections: () => number
  lifecycle: Pick<Lifecycle, 'toShed'>
  /** Every socket that is listened on now. */
  addresses: () => readonly Listening[]
}

/** What a message of an acceptor does. */
type MessageHandlers = { [Kind in FromAcceptor['kind']]: (message: Extract<FromAcceptor, { kind: Kind }>) => void }

/** A place that an acceptor has: the acceptor of now, or the time until the next. */
interface Place {
  acceptor: AcceptorProcess | null
  readonly timer: Timer
  failures: number
  /** Monotonic ms. */
  startedAt: number
  /** Open ones as reported last. */
  connections: number
}

export class Processes {
  readonly #options: ProcessesOptions
  readonly #places: Place[]
  readonly #leases: Leases
  #sockets: readonly number[] = []
  #tree: AdoptMessage | null = null
  #functions: ReadonlyMap<string, FunctionVersion> = new Map()
  readonly #gone = new Map<string, FunctionVersion>()
  readonly #balanceTimer: Timer
  #isOpen = false
  #isClosing = false
  #isDraining = false

  constructor(options: ProcessesOptions) {
    const { clock, admission, count, prepare, journal } = options
    this.#options = options
    this.#balanceTimer = new Timer(clock, true)
    const toPlace = (): Place => {
      return { acceptor: null, timer: new Timer(clock, true), failures: 0, startedAt: 0, connections: 0 }
    }
    this.#places = Array.from({ length: count }, toPlace)
    const findFunction = (key: string): FunctionVersion | null => this.#functions.get(key) ?? null
    this.#leases = new Leases({ clock, admission, processes: count + 1, prepare, findFunction })
    journal.events.onChange = () => this.#post({ kind: 'wants', requests: journal.wantsRequests })
  }

  /** Processes that take connections now, this one among them. */
  get serving(): number {
    return 1 + this.#places.filter(({ acceptor }) => acceptor?.isServing === true).length
  }

  get acceptors(): { pid: number; isServing: boolean; connections: number; startedAt: number }[] {
    return this.#places.flatMap(({ acceptor, connections, startedAt }) =>
      acceptor?.pid == null ? [] : [{ pid: acceptor.pid, isServing: acceptor.isServing, connections, startedAt }],
    )
  }

  /** The gateway serves. @param sockets - descriptors that are listened on */
  open(sockets: readonly number[]): void {
    if (this.#isOpen || this.#isClosing) return
    if (sockets.length === 0) {
      const why = 'this system does not reveal the descriptor of a listening socket, which others would need'
      if (this.#options.addresses().length > 0)
        this.#options.journal.log('warn', `one process takes connections, not ${this.#places.length + 1}: ${why}`)
      return
    }
    this.#isOpen = true
    this.#sockets = sockets
    for (const place of this.#places) this.#start(place)
    // Now and then, who has far more connections than the others lets some go.
    this.#balanceTimer.repeat(BALANCE_MS, () => this.#balance())
  }

  /** A tree is in force here. Resolves when no acceptor answers by an older one: each has confirmed it, or is gone. */
  async adopt(discovery: Discovery): Promise<void> {
    this.#tree = { kind: 'adopt', generation: (this.#tree?.generation ?? 0) + 1, discovery }
    for (const [key, fn] of this.#functions) if (!discovery.byKey.has(key)) this.#gone.set(key, fn)
    for (const key of this.#gone.keys())
      if (discovery.byKey.has(key) || this.#gone.size > MAX_GONE) this.#gone.delete(key)
    this.#functions = discovery.byKey
    const tree = this.#tree
    await Promise.all(this.#places.map(({ acceptor }) => acceptor?.adopt(tree)))
  }

  /** Resolves when everything that the acceptors have counted is counted here. */
  async count(): Promise<void> {
    await Promise.all(this.#places.map(({ acceptor }) => acceptor?.count()))
  }

  drain(): void {
    this.#isDraining = true
    this.#post({ kind: 'drain' })
  }

  /** Lets the acceptors finish. Resolves when all are gone. */
  async close(timeoutMs: number): Promise<void> {
    this.#isClosing = true
    this.#options.journal.events.onChange = null
    this.#leases.close()
    this.#balanceTimer.clear()
    await Promise.all(
      this.#places.map(({ acceptor, timer }) => {
        timer.clear()
        return acceptor?.close(timeoutMs)
      }),
    )
  }

  #start(place: Place): void {
    const { clock, settings, controlPaths, entry, door, journal, addresses, dispatcher, sourceOf } = this.#options
    place.startedAt = clock.monotonic()
    const { wantsRequests } = journal
    const processes = this.#places.length + 1
    const acceptor = new AcceptorProcess({
      clock,
      door: { ...door, journal, findFunction: key => this.#findLast(key) },
      entry,
      sockets: this.#sockets,
      begin: { settings, controlPaths, addresses: addresses(), wantsRequests, processes, tree: this.#tree! },
      onLines: bytes => journal.requestLines(bytes, line => toLineRecord(line, this.#functions)),
      onMessage: message => handlers[message.kind]?.(message as never),
      onEnd: reason => {
        lent.close()
        this.#leases.drop(acceptor)
        this.#handleEnd(place, reason)
      },
    })
    const lent = new LentWorkers({
      clock,
      dispatcher,
      sourceOf,
      findFunction: key => this.#functions.get(key) ?? null,
      post: message => acceptor.post(message),
    })
    const handlers = this.#handlersOf(place, acceptor, lent)
    place.acceptor = acceptor
  }

  #handlersOf(place: Place, acceptor: AcceptorProcess, lent: LentWorkers): MessageHandlers {
    const { journal, metrics, edgeResults } = this.#options
    return {
      serving: () => {
        if (this.#isDraining) acceptor.post({ kind: 'drain' })
      },
      adopted: () => {},
      counts: ({ counts, edge, used, connections }) => {
        if (counts !== null) metrics.add(counts)
        if (edge !== null) addTo(edgeResults, edge)
        this.#leases.note(acceptor, used)
        place.connections = connections
      },
      // A function that cannot be prepared fails its calls with the reason.
      ask: ({ key }) => void this.#leases.ask(acceptor, key).catch(() => {}),
      returned: ({ id, used }) => this.#leases.end(acceptor, id, used),
      freed: ({ id }) => this.#leases.free(acceptor, id),
      startWorker: message => lent.start(message),
      stopWorker: ({ ask, graceMs }) => lent.stop(ask, graceMs),
      log: ({ level, message }) => journal.log(level, message),
      warning: ({ warning }) => journal.warn(warning),
      output: ({ key, stream, text, call }) => {
        const fn = this.#findLast(key)
        if (fn !== null) journal.output(fn, stream, journal.secrets.hide(fn, text), call)
      },
      failed: ({ key, call, error: header }) => {
        const error = fromErrorHeader(header)
        if (error !== null) journal.callFailed({ fn: this.#findLast(key ?? ''), ...call }, error)
      },
      workerFailed: ({ key, error: header }) => {
        const error = fromErrorHeader(header)
        const fn = this.#findLast(key)
        if (error !== null && fn !== null) journal.failure(fn, journal.secrets.hideIn(fn, error))
      },
    }
  }

  /** The function of a key: of the catalog in force, or the last one that had it. */
  #findLast(key: string): FunctionVersion | null {
    return this.#functions.get(key) ?? this.#gone.get(key) ?? null
  }

  #handleEnd(place: Place, reason: string | null): void {
    const { clock, journal } = this.#options
    place.acceptor = null
    place.connections = 0
    if (this.#isClosing) return
    const now = clock.monotonic()
    if (now - place.startedAt >= RESTART_RESET_MS) place.failures = 0
    const delay = backoffDelay(place.failures, RESTART_DELAY_MS)
    place.failures += 1
    const why = reason ?? 'it was asked to end'
    journal.log('warn', `a gateway process is gone (${why}): another one follows in ${delay} ms`)
    place.timer.set(delay, () => this.#start(place))
  }

  #balance(): void {
    const { connections, lifecycle } = this.#options
    const serving = this.#places.filter(({ acceptor }) => acceptor?.isServing === true)
    const open = connections()
    const [kept = null, ...others] = toKept([open, ...serving.map(place => place.connections)])
    lifecycle.toShed = kept === null ? 0 : open - kept
    for (const [at, count] of others.entries())
      if (count !== null) serving[at]!.acceptor!.post({ kind: 'shed', kept: count })
  }

  #post(message: ToAcceptor): void {
    for (const { acceptor } of this.#places) acceptor?.post(message)
  }
}

// Connections evenly over processes: who has too many lets some go, and their clients come again.

/** Connections above the average that are fine: a number, and a share of the average. */
const SLACK = { connections: 4, share: 0.2 } as const

/**
 * How many connections each process keeps; null for one that has not too many. A client that leaves may come to the same one
 * again, so that it can take a few looks until all have as many.
 * @param open - connections of each
 */
export function toKept(open: readonly number[]): (number | null)[] {
  const average = open.reduce((sum, count) => sum + count, 0) / open.length
  const slack = Math.max(SLACK.connections, average * SLACK.share)
  return open.map(count => (count - average > slack ? Math.ceil(average) : null))
}
