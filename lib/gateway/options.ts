/** What a program that embeds a gateway gives and gets. Owner: §1. */

import type { IncomingMessage, ServerResponse } from 'node:http'
import type { OuterEnv } from '../config/function-env.ts'
import { checkRoot, createOuterEnvReader, loadSettings } from '../config/project-file.ts'
import type { RuntimeName } from '../core/identity.ts'
import type { DebugOptions } from '../runtime/debuggers.ts'
import {
  checkDebug,
  checkImageUser,
  checkIsolation,
  checkRuntimeSockets,
  readPowers,
  readSecrets,
} from '../config/setting-checks.ts'
import {
  type Problem,
  type ResolvedSettings,
  resolveSettings,
  type Settings,
  type SettingsInput,
  type SettingSource,
} from '../config/settings.ts'
import type { Dependencies } from '../dependencies/dependencies.ts'
import type { WrappedRequest, WrappedResponse } from '../http/body.ts'
import type { GatewayJobs } from '../jobs/jobs.ts'
import type { EventName, LinesTaker, Listener } from '../observe/events.ts'
import type { Explanation } from '../router/explain.ts'
import type { RouteCounts } from '../router/route-records.ts'
import { type Clock, systemClock } from '../core/clock.ts'
import type { Warning } from '../core/errors.ts'
import type { IgnoredExplanation } from '../discovery/discover.ts'
import type { InjectRequest, InjectResponse } from '../http/inject.ts'
import type { InvokeRequest, InvokeResult } from './catalog-loader.ts'
import type { DoctorCheck } from './doctor.ts'
import type { TestProblem, TestRequest, TestRun } from './test-runs.ts'
import type { GatewayListening, ListenAddress } from './listeners.ts'

/** Options of `createGateway`: every setting in camelCase, and the fields below. */
export interface GatewayOptions extends SettingsInput {
  /** Environment variables to read settings from, such as `process.env`; none by default. */
  env?: Readonly<Record<string, string | undefined>>
  /** Reads the project file (`explicit` names it, null searches for `fngw.json`) and the env files beside it; none by default. */
  project?: { explicit: string | null } | null
  /** Full path that relative paths start from; the working directory by default. */
  cwd?: string
  /** Replaces the system clock, for tests. */
  clock?: Clock
  /** Reads the tree and starts no runtime, to inspect routes. Calls then get a 503. */
  inspect?: boolean
  /** Debugs handlers, in development only: like the flags `--inspect`, `--debug-py` and `--debug-php` of `fngw dev`. */
  debug?: DebugOptions | null
  /** @internal Joins no fleet, whatever `FN_STORE_URL` says: for a gateway that lives as long as a command. */
  isAlone?: boolean
  /** Parsed command-line flags by setting name; stronger than the environment. */
  flags?: Readonly<Record<string, unknown>>
  /** Replaces the defaults of settings, by setting name. */
  defaults?: Readonly<Record<string, unknown>>
  /**
   * Called before the tree is read. When it calls `listen`, the gateway accepts connections early, and requests wait until it is ready.
   * When the promise rejects, `createGateway` rejects with the same reason.
   */
  beforeStart?: (gateway: Pick<Gateway, 'settings' | 'listen' | 'on'>) => Promise<void>
}

/** A responder other than a route: the control plane, a document, a home, a static file. */
export interface BesideRoutes {
  kind: 'control' | 'document' | 'home' | 'asset'
  text: string
}

/** The function that handles a request, the candidates that lost and why, and similar files that are not used. */
export interface GatewayExplanation extends Explanation, IgnoredExplanation {
  /** What responds instead of `winner`, or without one; null for nothing. */
  beside: BesideRoutes | null
}

/** Options of `gateway.close()`. */
export interface CloseOptions {
  /** Maximum wait for running calls; default `shutdownTimeoutMs`. */
  timeoutMs?: number
  /** How long to keep accepting connections first, while readiness probes get 503; default `shutdownDelayMs`. */
  delayMs?: number
}

/** A running gateway. `await using` closes it at the end of the block. */
export interface Gateway extends AsyncDisposable {
  /** The settings in force. */
  readonly settings: Settings
  /** Where each setting comes from, by setting name. */
  readonly sources: Readonly<Record<string, SettingSource>>
  /** Problems with settings, the tree and programs that do not prevent the gateway from serving. */
  readonly warnings: readonly Warning[]
  /** Starts the HTTP server on the `host` and `port` of the address, or of the settings. @throws ListenError */
  listen(address?: ListenAddress): Promise<GatewayListening>
  /**
   * Handles a request of a host application, from node:http, Express or Fastify. Calls `next` when no route matches.
   * A body that the host has parsed is read from `rawBody` or `body` of the request.
   */
  handle(req: IncomingMessage | WrappedRequest, res: ServerResponse | WrappedResponse, next?: () => void): void
  /** Handles a web `Request`, or the arguments of `fetch`. A path is resolved against `http://localhost`. */
  fetch(request: Request | string | URL, init?: RequestInit): Promise<Response>
  /** Handles a request in memory. A string is the URL of a GET request. */
  inject(request: InjectRequest | string): Promise<InjectResponse>
  /** Runs a function by name through the same admission as HTTP. @throws GatewayError NOT_FOUND, ROUTE_CONFLICT */
  invoke(name: string, request?: InvokeRequest): Promise<InvokeResult>
  /** Background jobs. */
  readonly jobs: GatewayJobs
  /** The packages of the functions. */
  readonly dependencies: Pick<Dependencies, 'list' | 'add' | 'install' | 'why' | 'clean'>
  /** Reads the tree again; resolves when the new catalog is in force. */
  reload(): Promise<void>
  /** The functions and routes, as `GET /_fn/catalog` returns them. */
  catalog(): Record<string, unknown>
  /** The number of routes and conflicts, without creating the records of `catalog()`. */
  counts(): RouteCounts
  /** The health record, as `GET /_fn/health` returns it. */
  health(): Record<string, unknown>
  /**
   * Checks the machine, the settings and the tree, like `fngw doctor`.
   * @param options - `loads` also loads each function in a worker
   */
  doctor(options?: { loads?: boolean }): Promise<DoctorCheck[]>
  /** @internal The tests of the tree, ready to run: for `fngw test`. */
  tests(request: TestRequest): Promise<(TestRun | TestProblem)[]>
  /** Explains which function handles a request, without calling it. */
  explain(method: string, path: string, host?: string): GatewayExplanation
  /**
   * Subscribes to an event: `request`, `reload`, `warning`, `log`, `build`, `schedule` or `job`. A new listener to `build` is called for
   * each build in progress.
   * @param takeLines - for `request`: takes access log lines of the gateway's other processes as bytes, instead of records
   * @returns a function that unsubscribes
   */
  on<Name extends EventName>(name: Name, listener: Listener<Name>, takeLines?: LinesTaker): () => void
  /** Stops accepting requests, waits for running calls up to the limit, and stops every process. Later calls return the same promise. */
  close(options?: CloseOptions): Promise<void>
}

/** Thrown for invalid settings. `problems` and the message list every problem. */
export class SettingsError extends Error {
  readonly problems: readonly Problem[]
  constructor(problems: readonly Problem[]) {
    super(problems.map(problem => problem.message).join('\n'))
    this.name = 'SettingsError'
    this.problems = problems
  }
}

// What a gateway is made from: its options, the project's files and this process's environment, read and checked.

/** What a gateway is given beside its settings. */
export interface Host {
  clock: Clock
  /** True reads the tree only. */
  inspect: boolean
  /** Null where handlers are not debugged. */
  debug: DebugOptions | null
  /** Environment of this process. */
  hostEnv: Readonly<Record<string, string | undefined>>
  /** Folder of the project's env files; null when none are read. */
  envDir: string | null
  /** What functions get from outside their root. */
  outerEnv: () => OuterEnv
}

/** Settings alone, with their problems: nothing is checked against this machine. */
export function readSettings(options: GatewayOptions): ResolvedSettings & { envDir: string | null } {
  const { env = {}, project = null, cwd = process.cwd(), flags = {}, defaults, ...rest } = options
  const { inspect, clock, beforeStart, isAlone, debug, ...given } = rest
  const inputs = { options: given, env, cwd, flags, defaults: { hotReload: false, ...defaults } }
  return project === null
    ? { ...resolveSettings(inputs), envDir: null }
    : loadSettings({ ...inputs, explicit: project.explicit })
}

/** @throws SettingsError with every problem at once */
export function readGatewayInputs(options: GatewayOptions): { resolved: ResolvedSettings; host: Host } {
  const { env = {}, inspect = false, clock = systemClock, debug = null } = options
  const { fn, ...debugged } = debug ?? {}
  const { envDir, ...written } = readSettings(options)
  const powers = readPowers()
  const resolved = checkImageUser(checkRuntimeSockets(readSecrets(written)), powers, process.env)
  const problems = [...resolved.problems, ...checkRoot(resolved), ...checkIsolation(resolved, powers)]
  problems.push(...checkDebug(resolved, Object.keys(debugged) as RuntimeName[]))
  if (problems.length > 0) throw new SettingsError(problems)
  const outerEnv = createOuterEnvReader(envDir, env)
  return { resolved, host: { clock, inspect, debug, hostEnv: { ...process.env, ...env }, envDir, outerEnv } }
}
