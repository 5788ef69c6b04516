/**
 * One runtime's daemon by itself, for gateways elsewhere: the daemon process, what makes its functions ready, and the
 * socket where gateways prove themselves. Owner: §1, §2.15, page remote/daemon-server.
 *
 *   gateway ═ tcp, tls or unix ═ DaemonServer ─ Relays ─ private unix sockets ─ daemon process ─ workers
 */

import { readFileSync } from 'node:fs'
import tls from 'node:tls'
import { isLoopback } from '../config/runtime-sockets.ts'
import type { Settings } from '../config/settings.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { Descriptors } from '../core/host.ts'
import type { RuntimeName } from '../core/identity.ts'
import { SharedPacks } from '../dependencies/shared-packs.ts'
import { findChange } from '../discovery/disk-change.ts'
import { FolderReader } from '../files/folder-content.ts'
import type { Catalog, CatalogLoader } from '../gateway/catalog-loader.ts'
import { createCatalogLoader, createRuntimes, type GatewayContext } from '../gateway/compose.ts'
import { type GatewayOptions, type Host, readGatewayInputs } from '../gateway/options.ts'
import { createSchemas } from '../gateway/serving.ts'
import type { LogRecord } from '../observe/events.ts'
import { OutputBudget } from '../observe/function-output.ts'
import { Journal } from '../observe/journal.ts'
import type { Preparer, Runtime } from '../runtime/runtime.ts'
import { DaemonServer } from './daemon-server.ts'
import { Relays } from './relays.ts'
import { StartPreparer } from './start-preparer.ts'

export interface RemoteDaemonOptions extends Omit<GatewayOptions, 'runtimes' | 'beforeStart' | 'inspect'> {
  runtime: Exclude<RuntimeName, 'lua'>
  /** `unix:/path` or `tcp://host:port`. */
  listen: string
  /** Files in PEM; null: no TLS. */
  tls?: { certFile: string; keyFile: string } | null
  onLog(record: LogRecord): void
}

export interface RemoteDaemon {
  /** As it belongs into `FN_RUNTIME_SOCKETS`. */
  readonly uri: string
  readonly settings: Settings
  close(): Promise<void>
}

/** Why a daemon does not start, in words for people. */
export class RemoteDaemonError extends Error {}

/**
 * Starts the daemon process, then listens.
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
      `${listen} can be reached from other machines, and whoever connects runs code: set FN_RUNTIME_SECRET_FILE here and for the gateway`,
    )
}

function toContext({ certFile, keyFile }: { certFile: string; keyFile: string }): tls.SecureContext {
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
  readonly #host: Host
  readonly #journal: Journal
  readonly #parts: ReturnType<typeof createRuntimes>
  readonly #packs: SharedPacks
  readonly #runtime: Runtime
  readonly #loader: CatalogLoader
  readonly #relays: Relays
  readonly #refusals: OutputBudget
  #server: DaemonServer | null = null
  #catalog!: Catalog
  #reloading: Promise<void> | null = null

  constructor(settings: Settings, host: Host, options: RemoteDaemonOptions) {
    this.settings = settings
    this.#host = host
    this.#options = options
    const { clock } = host
    const { functionsRoot } = settings
    this.#refusals = new OutputBudget(clock)
    this.#journal = new Journal({ clock, functionsRoot: null, accessLog: false })
    this.#journal.on('log', options.onLog)
    this.#packs = new SharedPacks(functionsRoot)
    const journal = this.#journal
    const context: GatewayContext = {
      ...{ ...host, settings, journal, packs: this.#packs, loaded: null },
      descriptors: new Descriptors(),
      lifecycle: { starting: false, draining: false },
      catalog: () => this.#catalog,
    }
    this.#parts = createRuntimes(context)
    this.#runtime = this.#parts.runtimes.byName.get(options.runtime)!
    const schemas = createSchemas({ functionsRoot, production: true, isolation: 'process' }, journal).store
    this.#loader = createCatalogLoader(context, [], schemas)
    const preparer = new StartPreparer({
      runtime: options.runtime,
      root: functionsRoot,
      clock,
      preparer: this.#toPreparer(),
      functions: () => this.#catalog.functions,
      isChanged: fn => findChange(this.#catalog.snapshot, fn) !== null,
      reload: () => this.#reload(),
    })
    const content = new FolderReader(functionsRoot)
    this.#relays = new Relays({
      clock,
      root: functionsRoot,
      health: () => this.#runtime.health().sockets[0]!,
      content: () => content.read(),
      toStart: header => preparer.toStart(header),
      packsOf: key => this.#packsOf(key),
      onNote: text => this.#journal.log('info', text),
    })
  }

  async start(context: tls.SecureContext | null): Promise<void> {
    const { listen } = this.#options
    await this.#reload()
    await this.#runtime.start()
    const { up, reason } = this.#runtime.health().sockets[0]!
    if (!up) throw new RemoteDaemonError(`the ${this.#options.runtime} daemon does not start: ${reason}`)
    this.#server = new DaemonServer({
      secret: listen.startsWith('unix:') ? null : this.settings.runtimeSecret,
      context: listen.startsWith('unix:') ? null : context,
      clock: this.#host.clock,
      onPeer: peer => this.#relays.take(peer),
      onRefused: (from, why) => this.#tellRefused(from, why),
    })
    try {
      this.uri = await this.#server.listen(listen)
    } catch (error) {
      throw new RemoteDaemonError(`cannot listen on ${listen}: ${(error as Error).message}`)
    }
  }

  async close(): Promise<void> {
    this.#server?.close()
    this.#relays.close('the daemon is stopping')
    await this.#parts.dependencies.close()
    await this.#parts.runtimes.close(0)
    await this.#journal.close()
  }

  #toPreparer(): Preparer | null {
    return this.#runtime.preparer
  }

  #packsOf(key: string): readonly string[] {
    const fn: FunctionVersion | undefined = this.#catalog.functions.get(key)
    return fn === undefined ? [] : this.#packs.dirsOf(fn)
  }

  /** Whoever asks while it is read waits for the same reading. */
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

  #tellRefused(from: string, why: string): void {
    const line = this.#refusals.take(from, `refused ${from}: ${why}`)
    if (line !== '') this.#journal.log('warn', line)
  }
}
