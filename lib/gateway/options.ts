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
import type { Explanation as IgnoredExplanation } from '../discovery/discover.ts'
import type { InjectRequest, InjectResponse } from '../http/inject.ts'
import type { InvokeRequest, InvokeResult } from './catalog-loader.ts'
import type { DoctorCheck } from './doctor.ts'
import type { TestProblem, TestRequest, TestRun } from './test-runs.ts'
import type { GatewayListening, ListenAddress } from './listeners.ts'

export interface GatewayOptions extends SettingsInput {
  /** Variables to read settings from; none by default, `process.env` on the command line. */
  env?: Readonly<Record<string, string | undefined>>
  /** Reads the project file and env files: the one named, or with `explicit: null` the one found. None is read by default. */
  project?: { explicit: string | null } | null
  /** Full path that relative paths start from; the working directory by default. */
  cwd?: string
  clock?: Clock
  /** Reads the tree and starts no runtime: for looking at routes. Calls then answer 503. */
  inspect?: boolean
  /** Lets debuggers into workers, in development only: as the flags `--inspect`, `--debug-py` and `--debug-php` of `fngw dev`. */
  debug?: DebugOptions | null
  /** @internal Joins no fleet, whatever `FN_STORE_URL` says: for a gateway that lives as long as a command. */
  isAlone?: boolean
  /** Parsed command-line flags by setting name; stronger than the environment. */
  flags?: Readonly<Record<string, unknown>>
  /** Replaces defaults: the command line serves development with hot reload. */
  defaults?: Readonly<Record<string, unknown>>
  /**
   * Called before the tree is read. A gateway that listens by then takes requests, which wait until it serves. When it rejects
   * there is no gateway.
   */
  beforeStart?: (gateway: Pick<Gateway, 'settings' | 'listen' | 'on'>) => Promise<void>
}

/** What answers beside the routes: the control plane, a document, a home, a static file. */
export interface BesideRoutes {
  kind: 'control' | 'document' | 'home' | 'asset'
  text: string
}

/** Who answers a request, who lost and why, and which files might have been meant and are not used. */
export interface GatewayExplanation extends Explanation, IgnoredExplanation {
  /** Answers instead of `winner`, or where there is none; null when nothing does. */
  beside: BesideRoutes | null
}

export interface CloseOptions {
  /** Longest wait for what runs; default `shutdownTimeoutMs`. */
  timeoutMs?: number
  /** How long connections are taken before, while probes get 503; default `shutdownDelayMs`. */
  delayMs?: number
}

export interface Gateway extends AsyncDisposable {
  readonly settings: Settings
  /** Where each setting comes from. */
  readonly sources: Readonly<Record<string, SettingSource>>
  /** Problems of settings, tree and programs that do not keep the gateway from serving. */
  readonly warnings: readonly Warning[]
  /** Serves HTTP. Sockets that were handed over count before `port` and `host`. @throws ListenError */
  listen(address?: ListenAddress): Promise<GatewayListening>
  /**
   * Serves one request of a host application, node's or Fastify's; `next` gets what has no route here. A body that the host has
   * parsed is taken from `rawBody` or `body` of the request.
   */
  handle(req: IncomingMessage | WrappedRequest, res: ServerResponse | WrappedResponse, next?: () => void): void
  /** Serves a web request, given as such or as `fetch` takes it; a path alone is one of `http://localhost`. */
  fetch(request: Request | string | URL, init?: RequestInit): Promise<Response>
  /** Serves a request without a port. */
  inject(request: InjectRequest | string): Promise<InjectResponse>
  /** Runs a function by name through the same admission as HTTP. @throws GatewayError NOT_FOUND, ROUTE_CONFLICT */
  invoke(name: string, request?: InvokeRequest): Promise<InvokeResult>
  /** Calls that are made later and kept until they are done. */
  readonly jobs: GatewayJobs
  /** The packages of the tree. */
  readonly dependencies: Pick<Dependencies, 'list' | 'add' | 'install' | 'why' | 'clean'>
  /** Reads the tree again; resolves when the new catalog is in force. */
  reload(): Promise<void>
  /** As `GET /_fn/catalog`. */
  catalog(): Record<string, unknown>
  /** How many routes and conflicts those records have; the records of ten thousand take time and memory to make. */
  counts(): RouteCounts
  /** As `GET /_fn/health`. */
  health(): Record<string, unknown>
  /**
   * Checks the machine, the settings and the tree, as `fngw doctor`.
   * @param options - `loads`: loads each function in a worker that ends right after
   */
  doctor(options?: { loads?: boolean }): Promise<DoctorCheck[]>
  /** @internal The tests of the tree, ready to run: for `fngw test`. */
  tests(request: TestRequest): Promise<(TestRun | TestProblem)[]>
  /** Who answers a request and who lost. */
  explain(method: string, path: string, host?: string): GatewayExplanation
  /**
   * Listens to `request reload warning log build schedule job`; a new listener of `build` hears of those that go on.
   * @param takeLines - of a listener to `request`: takes access lines of other processes of this gateway as they came, instead of records
   * @returns a function that stops listening
   */
  on<Name extends EventName>(name: Name, listener: Listener<Name>, takeLines?: LinesTaker): () => void
  /** Stops accepting, finishes what runs up to the limit, ends every process. Later calls get the same promise. */
  close(options?: CloseOptions): Promise<void>
}

/** Settings that break their rules; every problem is in `problems` and in the message. */
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
