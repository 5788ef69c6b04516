/** What the settings of a gateway are once they are read. Spec: §2.15. */

import type { RuntimeName } from '../core/identity.ts'

/** Every setting after flags, environment, `fngw.json` and defaults, checked. Durations in the unit of the name. */
export interface Settings {
  /** Full path. */
  functionsRoot: string
  /** Enabled runtimes in the order given. */
  runtimes: readonly RuntimeName[]
  /** True when `FN_RUNTIMES` (flag, environment or file) names them: a missing program is then shown as down. */
  runtimesExplicit: boolean
  runtimeDaemons: Readonly<Partial<Record<RuntimeName, number>>>
  /** Explicit sockets: `unix:/path`, `tcp://host:port` or `tls://host:port`. */
  runtimeSockets: Readonly<Partial<Record<RuntimeName, readonly string[]>>>
  /** What daemons on tcp and tls sockets have to prove; null: nothing. */
  runtimeSecret: string | null
  /** Full paths. */
  runtimeSecretFile: string | null
  runtimeTlsCaFile: string | null
  /** Programs by tool name: python node npm php composer go cargo docker. Unset: looked up on `PATH`. */
  binaries: Readonly<Record<string, string>>
  runtimeImage: string | null
  namespaceDepth: number
  forceUrl: boolean
  production: boolean
  port: number
  /** True when the port was asked for: a busy one is then an error instead of the next free one. */
  portExplicit: boolean
  host: string
  defaultTimeoutMs: number
  defaultMaxConcurrency: number
  /** Calls that may wait for a function that sets no `max_concurrency`, and how long. */
  defaultMaxQueue: number
  defaultQueueTimeoutMs: number
  defaultMaxBodyBytes: number
  /** What keeps functions apart: processes, or users too. */
  isolation: 'process' | 'user'
  /** What is done, where users keep functions apart, with one whose files others can read. */
  isolationFiles: 'refuse' | 'close' | 'warn'
  /** Such as `20000-29999`. */
  isolationUids: string
  /** Quotas of a function that has a user of its own: processes and threads, open files of each process, temporary files. */
  functionProcesses: number | null
  functionOpenFiles: number | null
  functionTempMb: number | null
  workerMemoryMb: number
  /** Steps of priority that functions' processes stand below this one. */
  workerNice: number
  responseIdleTimeoutMs: number
  bodyMemoryMb: number | null
  luaMemoryMb: number
  goBuildTimeoutSeconds: number
  rustBuildTimeoutSeconds: number
  /** Most ms that a call waits for a build in production. */
  depsWaitMs: number
  /** Installing packages, per runtime. */
  autoRequirements: boolean
  autoNodeDeps: boolean
  autoPhpDeps: boolean
  /** Packages of PHP functions may come from repositories of any kind. */
  phpPackageSources: boolean
  preinstallPhpDepsOnStart: boolean
  /** Installing packages that only imports ask for, per runtime; `report`, of `run`: imports are read, and what is missing is reported. */
  autoInferPyDeps: boolean | 'report'
  autoInferNodeDeps: boolean | 'report'
  pyInferBackend: 'native' | 'pipreqs'
  nodeInferBackend: 'native' | 'detective' | 'require-analyzer'
  /** True: packages may come from repositories and URLs. */
  nodePackageSources: boolean
  /** False: found packages are installed and manifests stay as they are. */
  autoInferWriteManifest: boolean
  /** True: an import that is not resolved fails the function. */
  autoInferStrict: boolean
  preinstallPyDepsOnStart: boolean
  pyRequirementsOptions: boolean
  preinstallNodeDepsOnStart: boolean
  /** Installs at once. */
  preinstallNodeDepsConcurrency: number
  hotReload: boolean
  homeFunction: string | null
  homeRedirect: string | null
  publicBaseUrl: string | null
  docsEnabled: boolean
  openapiTitle: string
  openapiVersion: string
  openapiDescription: string
  openapiIncludeInternal: boolean
  uiEnabled: boolean
  consoleApiEnabled: boolean
  consoleWriteEnabled: boolean
  consoleLocalOnly: boolean
  /** True: `/_fn` wants a session or the token, of local callers too. */
  consoleLoginApi: boolean
  consoleLoginUsername: string
  /** As page control/session describes it. */
  consoleLoginPasswordHash: string | null
  /** Full path. */
  consoleLoginPasswordHashFile: string | null
  consoleSessionTtlSeconds: number
  adminToken: string | null
  /** Full path. */
  adminTokenFile: string | null
  /** Null where the control plane shares the public port. */
  controlPort: number | null
  /** Host names besides loopback and addresses that a local control-plane call may carry. */
  consoleHosts: readonly string[]
  /** Networks besides loopback whose callers count as local. */
  consoleLocalCidrs: readonly string[]
  trustedProxyCidrs: readonly string[]
  trustedProxyHeader: string | null
  schedulerEnabled: boolean
  schedulerIntervalSeconds: number
  schedulerPersistEnabled: boolean
  schedulerPersistIntervalSeconds: number
  schedulerStatePath: string | null
  jobsEnabled: boolean
  jobsMaxConcurrency: number
  jobsMaxResultBytes: number
  /** Key of the signature of job callbacks; null sends them unsigned. */
  jobsCallbackSecret: string | null
  jobsCallbackSecretFile: string | null
  /** Processes that take connections; `auto` is one a processor. */
  gatewayWorkers: number | 'auto'
  shutdownTimeoutMs: number
  shutdownDelayMs: number
  accessLog: boolean
  /** Form of what `fngw` prints while it serves. */
  logFormat: 'json' | 'text'
  /** True writes logs to `.svc/logs` of the functions root; else the newest lines are in memory only. */
  logFiles: boolean
  logLevel: 'debug' | 'info' | 'warn' | 'error' | 'silent'
}
