/**
 * One runtime's daemon by itself, for gateways elsewhere: the daemon process, what makes its functions ready, and the
 * socket where gateways prove themselves. Owner: §1, §2.15, page remote/daemon-server.
 *
 *   gateway ═ tcp, tls or unix ═ DaemonServer ─ Relays ─ private unix sockets ─ daemon process ─ workers
 */

import { readFileSync } from 'node:fs'
import tls from 'node:tls'
import { isLoopback } from '../config/setting-checks.ts'
import type { Settings } from '../config/settings.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { type Clock, within } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import { Descriptors } from '../core/host.ts'
import type { RuntimeName } from '../core/identity.ts'
import { SharedPacks } from '../dependencies/dependencies.ts'
import { findChange } from '../discovery/loaded-files.ts'
import { type FolderContent, FolderReader } from '../files/folder-content.ts'
import { isFile } from '../files/own-folder.ts'
import type { Catalog, CatalogLoader } from '../gateway/catalog-loader.ts'
import { createCatalogLoader, createRuntimes, type GatewayContext } from '../gateway/compose.ts'
import { type GatewayOptions, type Host, readGatewayInputs } from '../gateway/options.ts'
import { createSchemas } from '../gateway/serving.ts'
import type { LogRecord } from '../observe/events.ts'
import { OutputBudget } from '../observe/function-output.ts'
import { Journal } from '../observe/journal.ts'
import type { Preparer, Runtime } from '../runtime/runtime.ts'
import { killGroup, type SocketHealth } from '../runtime/daemon.ts'
import { DaemonServer, endWith, type Peer } from './daemon-server.ts'
import { GatewayRelay } from './gateway-relay.ts'
import { PathMap, WorkerRelay } from './worker-relay.ts'

/** Options of `startRemoteDaemon`. */
export interface RemoteDaemonOptions extends Omit<GatewayOptions, 'runtimes' | 'beforeStart' | 'inspect'> {
  /** The runtime; Lua runs in the gateway itself. */
  runtime: Exclude<RuntimeName, 'lua'>
  /** Address to listen on: `unix:/path` or `tcp://host:port`. */
  listen: string
  /** Paths of PEM files; without them no TLS. */
  tls?: { certFile: string; keyFile: string } | null
  /** Receives the log records of the daemon and its functions. */
  onLog(record: LogRecord): void
}

/** A running daemon for gateways on other machines. */
export interface RemoteDaemon {
  /** Its address, for `FN_RUNTIME_SOCKETS` of the gateways. */
  readonly uri: string
  /** The settings in force. */
  readonly settings: Settings
  /** Stops the daemon and its workers. */
  close(): Promise<void>
}

/** Thrown when a daemon does not start; the message says why. */
export class RemoteDaemonError extends Error {}

/**
 * Starts the daemon of one runtime for gateways on other machines, then listens.
 * @throws RemoteDaemonError, SettingsError
 */
export async function startRemoteDaemon(options: RemoteDaemonOptions): Promise<RemoteDaemon> {
  const { runtime, listen, tls: files = null, onLog, ...rest } = options
  // Sockets and isolation are the business of gateways; which runtime it is was asked for.
  const own = { runtimes: [runtime], runtimeSockets: {}, runtimeDaemons: {}, accessLog: false, logFiles: false }
  const { resolved, host } = readGatewayInputs({ ...rest, ...own })
  checkTrust(resolved.settings, listen)
  const context = files === null ? null : toContext(files)
  const daemon = new ListeningDaemon(resolved.settings, host, options)
  try {
    await daemon.start(context)
  } catch (error) {
    await daemon.close()
    throw error
  }
  return daemon
}

function checkTrust({ isolation, runtimeSecret }: Settings, listen: string): void {
  if (isolation === 'user')
    throw new RemoteDaemonError(
      'FN_ISOLATION=user is for the daemons of a gateway: run fngw daemon as the user that functions shall have',
    )
  if (runtimeSecret === null && !listen.startsWith('unix:') && !isLoopback(listen))
    throw new RemoteDaemonError(
      `${listen} can be reached from other machines, and a client that connects can run code: set FN_RUNTIME_SECRET_FILE here and for the gateway`,
    )
}

function toContext({ certFile, keyFile }: NonNullable<RemoteDaemonOptions['tls']>): tls.SecureContext {
  try {
    return tls.createSecureContext({ cert: readFileSync(certFile), key: readFileSync(keyFile), minVersion: 'TLSv1.2' })
  } catch (error) {
    throw new RemoteDaemonError(`certificate and key cannot be used: ${(error as Error).message}`)
  }
}

class ListeningDaemon implements RemoteDaemon {
  uri = ''
  readonly settings: Settings
  readonly #options: RemoteDaemonOptions
  readonly #clock: Clock
  readonly #journal: Journal
  readonly #parts: ReturnType<typeof createRuntimes>
  readonly #runtime: Runtime
  readonly #loader: CatalogLoader
  readonly #relays: Relays
  readonly #refusals: OutputBudget
  #server: DaemonServer | null = null
  #catalog!: Catalog
  #reloading: Promise<void> | null = null

  constructor(settings: Settings, host: Host, options: RemoteDaemonOptions) {
    this.settings = settings
    this.#options = options
    const { clock } = host
    const { runtime } = options
    const { functionsRoot: root } = settings
    this.#clock = clock
    this.#refusals = new OutputBudget(clock)
    const journal = new Journal({ clock, functionsRoot: null, accessLog: false })
    journal.on('log', options.onLog)
    this.#journal = journal
    const packs = new SharedPacks(root)
    const context: GatewayContext = {
      debuggers: null,
      ...{ ...host, settings, journal, packs, loaded: null, fleet: null },
      descriptors: new Descriptors(),
      lifecycle: { starting: false, draining: false },
      catalog: () => this.#catalog,
    }
    this.#parts = createRuntimes(context)
    this.#runtime = this.#parts.runtimes.byName.get(runtime)!
    const schemas = createSchemas({ functionsRoot: root, production: true, isolation: 'process' }, journal).store
    this.#loader = createCatalogLoader(context, [], schemas)
    const preparer = new StartPreparer({
      runtime,
      root,
      clock,
      preparer: this.#runtime.preparer,
      find: key => this.#catalog.functions.get(key),
      isChanged: fn => findChange(this.#catalog.snapshot, fn) !== null,
      reload: () => this.#reload(),
    })
    const content = new FolderReader(root)
    this.#relays = new Relays({
      clock,
      root,
      health: () => this.#runtime.health().sockets[0]!,
      content: () => content.read(),
      toStart: header => preparer.toStart(header),
      packsOf: key => {
        const fn = this.#catalog.functions.get(key)
        return fn === undefined ? [] : packs.dirsOf(fn)
      },
      onNote: text => journal.log('info', text),
    })
  }

  async start(context: tls.SecureContext | null): Promise<void> {
    const { listen, runtime } = this.#options
    await this.#reload()
    await this.#runtime.start()
    const { up, reason } = this.#runtime.health().sockets[0]!
    if (!up) throw new RemoteDaemonError(`the ${runtime} daemon does not start: ${reason}`)
    const isUnix = listen.startsWith('unix:')
    this.#server = new DaemonServer({
      secret: isUnix ? null : this.settings.runtimeSecret,
      context: isUnix ? null : context,
      clock: this.#clock,
      onPeer: peer => this.#relays.take(peer),
      onRefused: (from, why) => {
        const line = this.#refusals.take(from, `refused ${from}: ${why}`)
        if (line !== '') this.#journal.log('warn', line)
      },
    })
    this.uri = await this.#server.listen(listen).catch(error => {
      throw new RemoteDaemonError(`cannot listen on ${listen}: ${(error as Error).message}`)
    })
  }

  async close(): Promise<void> {
    this.#server?.close()
    this.#relays.close('the daemon is stopping')
    await this.#parts.dependencies.close()
    await this.#parts.runtimes.close(0)
    await this.#journal.close()
  }

  /** Requests during a read wait for the same read. */
  #reload(): Promise<void> {
    this.#reloading ??= this.#load().finally(() => {
      this.#reloading = null
    })
    return this.#reloading
  }

  async #load(): Promise<void> {
    this.#catalog = await this.#loader.load(null)
    this.#parts.dependencies.retain(this.#catalog.functions)
  }
}

// The gateways of one daemon, with their workers.

interface RelaysOptions {
  clock: Clock
  root: string
  health(): SocketHealth
  content(): Promise<FolderContent | null>
  toStart(header: Header): Promise<Header>
  packsOf(key: string): readonly string[]
  onNote(text: string): void
}

export class Relays {
  readonly #options: RelaysOptions
  /** Where each worker listens, and the connections of its gateway's workers. */
  readonly #workers = new Map<string, { uri: string; relays: Set<WorkerRelay> }>()
  readonly #controls = new Set<GatewayRelay>()

  constructor(options: RelaysOptions) {
    this.#options = options
  }

  take(peer: Peer): void {
    if (peer.role === 'control') this.#addControl(peer)
    else this.#addWorker(peer)
  }

  close(reason: string): void {
    for (const control of this.#controls) control.close(reason)
  }

  #addControl(peer: Peer): void {
    const { health, onNote } = this.#options
    const { up, reason, uri } = health()
    if (!up || uri === '') {
      this.#refuse(peer, reason)
      return
    }
    const from = peer.socket.remoteAddress ?? 'this machine'
    onNote(`a gateway connected from ${from}`)
    const relays = new Set<WorkerRelay>()
    const control = new GatewayRelay({
      ...this.#options,
      peer,
      uri,
      onWorker: (worker, workerUri) => {
        if (workerUri === null) this.#workers.delete(worker)
        else this.#workers.set(worker, { uri: workerUri, relays })
      },
      endProcess: killGroup,
      onClose: () => {
        for (const relay of relays) relay.close()
        this.#controls.delete(control)
        onNote(`the gateway at ${from} is gone`)
      },
    })
    this.#controls.add(control)
  }

  #addWorker(peer: Peer): void {
    const worker = this.#workers.get(peer.worker)
    if (worker === undefined) {
      this.#refuse(peer, `unknown worker ${JSON.stringify(peer.worker)}`)
      return
    }
    const { uri, relays } = worker
    const relay = new WorkerRelay({ ...this.#options, peer, uri })
    relays.add(relay)
    peer.socket.once('close', () => relays.delete(relay))
  }

  #refuse({ socket }: Peer, message: string): void {
    socket.resume()
    endWith(socket, 'start', message, this.#options.clock)
  }
}

// The start that a gateway asks for, as this machine knows it: the function is found and made ready here.

/** Milliseconds a start waits for a build or an install: a gateway waits 15 s for the answer. */
const PREPARE_WAIT_MS = 12_000

type Header = Record<string, unknown>

interface StartPreparerOptions {
  runtime: RuntimeName
  root: string
  clock: Clock
  /** Null for a runtime whose functions need nothing. */
  preparer: Preparer | null
  /** The function of a key in the tree as it was read last. */
  find(key: string): FunctionVersion | undefined
  /** True when its files are not what was read. */
  isChanged(fn: FunctionVersion): boolean
  reload(): Promise<void>
}

export class StartPreparer {
  readonly #options: StartPreparerOptions

  constructor(options: StartPreparerOptions) {
    this.#options = options
  }

  /**
   * @param header - of a gateway's `start`
   * @returns header for the daemon process: nothing of it names a program, a user, or a path outside the functions folder
   * @throws Error with a message for people
   */
  async toStart(header: Header): Promise<Header> {
    const { runtime, root } = this.#options
    if (header.runtime !== runtime)
      throw new Error(`this daemon runs ${runtime} functions, not ${JSON.stringify(header.runtime)}`)
    const map = new PathMap(String(header.root ?? ''), root)
    const dir = map.toHere(header.dir)
    const entry = map.toHere(header.entry)
    if (!isFile(entry)) throw new Error(`${entry.slice(root.length + 1)} is missing in the daemon's folder ${root}`)
    const program = await this.#prepare(String(header.key), entry)
    const { key, name, version } = header
    return { key, runtime, name, version, dir, entry, ...(program !== null && { binary: program }) }
  }

  /** @returns full path of the function's program, null for one that needs none */
  async #prepare(key: string, entry: string): Promise<string | null> {
    const { preparer, clock } = this.#options
    if (preparer === null) return null
    const fn = await this.#find(key, entry)
    const work = preparer.prepare(fn).then(
      program => ({ program }),
      error => {
        const hint = error instanceof GatewayError ? error.detail?.hint : undefined
        throw hint === undefined ? error : new Error(`${error.message} (${hint})`)
      },
    )
    const prepared = await within(clock, PREPARE_WAIT_MS, work)
    if (prepared === null) throw new Error(`${preparer.toStep(fn)}; it goes on in the background`)
    return prepared.program
  }

  async #find(key: string, entry: string): Promise<FunctionVersion> {
    const { root, find, isChanged, reload } = this.#options
    const known = find(key)
    if (known?.entryPath === entry && !isChanged(known)) return known
    await reload()
    const found = find(key)
    if (found?.entryPath !== entry) throw new Error(`the daemon finds no function ${key} in ${root}`)
    return found
  }
}
