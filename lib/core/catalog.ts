/** The shapes that discovery makes and everything after it reads. Data only. Spec: §1, §2.7. */

import type { AdapterName, Method, RuntimeName } from './identity.ts'
import type { Pattern } from './pattern.ts'

/** `worker_pool` of one function, checked (§2.8). */
export interface WorkerPoolPolicy {
  enabled: boolean
  /** Workers kept started. */
  minWarm: number
  /** Calls admitted at once; 0 means unlimited. */
  maxWorkers: number
  /** Calls that may wait. */
  maxQueue: number
  queueTimeoutMs: number
  /** Accepted for compatibility, unused: the queue wakes up in order without polling. */
  queuePollMs: number
  idleTtlSeconds: number
  overflowStatus: 429 | 503
}

/** Where calls wait that find `max_concurrency` reached. */
export interface QueuePolicy {
  /** Calls that may wait. */
  maxQueue: number
  timeoutMs: number
  /** When the first waiting call has waited longer, further ones are refused at once; 0: only their number counts. */
  maxWaitMs: number
}

/** `keep_warm` of one function (§2.9). */
export interface KeepWarmPolicy {
  enabled: boolean
  minWarm: number
  pingEverySeconds: number
  idleTtlSeconds: number
}

/** `edge` of one function (§2.10). */
export interface EdgePolicy {
  baseUrl: string | null
  allowHosts: readonly string[]
  allowPrivate: boolean
  maxResponseBytes: number
}

/** `schedule.retry` (§2.13), clamped. */
export interface RetryPolicy {
  maxAttempts: number
  baseDelaySeconds: number
  maxDelaySeconds: number
  jitter: number
}

/** `schedule` of one function (§2.13). */
export interface SchedulePolicy {
  enabled: boolean
  everySeconds: number | null
  cron: string | null
  timezone: string
  method: Method
  query: Readonly<Record<string, unknown>>
  headers: Readonly<Record<string, string>>
  body: string | null
  context: Readonly<Record<string, unknown>> | null
  retry: RetryPolicy | null
}

/** `cors` at root, folder or function level. */
export interface CorsPolicy {
  /** Exact origins, or `*`. */
  origins: readonly string[]
  methods: readonly string[]
  headers: readonly string[]
  expose: readonly string[]
  credentials: boolean
  maxAgeSeconds: number
}

/** Everything a call of one function version is held to, after overlays and defaults. */
export interface Policy {
  timeoutMs: number
  /** 0 means unlimited. */
  maxConcurrency: number
  /** Null when `max_concurrency` is set in a config: such a limit applies at once. */
  defaultQueue: QueuePolicy | null
  maxBodyBytes: number
  methods: readonly Method[]
  allowHosts: readonly string[]
  /** No public route: schedules, jobs and `/_fn/invoke` alone call it. */
  isPrivate: boolean
  handler: string | null
  /** null: an unknown adapter name was given; calls answer 500 (§2.12). */
  adapter: AdapterName | null
  adapterName: string
  workerPool: WorkerPoolPolicy | null
  keepWarm: KeepWarmPolicy | null
  edge: EdgePolicy | null
  schedule: SchedulePolicy | null
  /** Why a schedule that is written down is not used; null without one, and for a good one. */
  scheduleProblem: string | null
  cors: CorsPolicy | null
  /** Why every call is refused: a config that it inherits from cannot be used; null for good ones. */
  configProblem: string | null
  sharedDeps: readonly string[]
  /** Node packages whose install scripts may run. */
  allowScripts: readonly string[]
  includeDebugHeaders: boolean
  group: string | null
  /** True: requests are checked against the function's `schema.json` before it is called. */
  validate: boolean
  summary: string | null
  exampleQuery: Readonly<Record<string, unknown>> | null
  exampleBody: unknown
  exampleContentType: string | null
}

/** Which symbol of a handler file is called (§2.4). Goes to the worker as it is. */
export interface Callable {
  /** Symbols to look for, first found wins. */
  readonly names: readonly string[]
}

/** A value of `fn.env.json` (§2.14). */
export interface EnvValue {
  value: string
  isSecret: boolean
}

/** One deployable function version. Frozen; a reload that changes nothing about it reuses the object. */
export interface FunctionVersion {
  /** `runtime/name@version`, unique in a catalog. */
  key: string
  runtime: RuntimeName
  /** For a file route: its path below the root without extension, such as `users/[id]`. */
  name: string
  version: string | null
  /** `file` for a zero-config file route, else `function`. */
  kind: 'file' | 'function'
  /** Full path of the folder that holds the handler. */
  fnDir: string
  /** Full path of the handler file. */
  entryPath: string
  /** Handler file below the functions root, posix separators. */
  entryFile: string
  policy: Policy
  callable: Callable
  env: Readonly<Record<string, EnvValue>>
  /**
   * Text that differs when a worker started for the old one must not serve the new one: the handler and helper files'
   * size and mtime, the callable, adapter, environment, shared packs.
   */
  signature: string
  /** The `schema.json` that describes its requests; null without one. No worker reads it. */
  schema: SchemaFileRef | null
}

/** A file as it was found. */
export interface SchemaFileRef {
  /** Below the functions root. */
  path: string
  size: number
  mtimeMs: number
}

/** Where a claim on a route comes from, lowest rank first. */
export type ClaimSource = 'file' | 'manifest' | 'config'

/** One function's wish to answer a pattern. */
export interface Claim {
  pattern: Pattern
  methods: readonly Method[]
  /** Lower-case host rules: exact, `host:port` or `*.suffix`; empty means every host. */
  hosts: readonly string[]
  fn: FunctionVersion
  source: ClaimSource
  /** Takes the pattern from an unforced claim (`invoke.force-url`, `FN_FORCE_URL`). */
  forced: boolean
  /** File that makes the claim, below the root. */
  origin: string
  /** True for the claim that follows from a name alone (`/<name>`, `/<name>/*`), false for a listed route. */
  implied: boolean
}

/** `home` of the root or of a folder (§2.7). */
export interface HomeAction {
  /** Folder as a public path: `/` or `/admin`. */
  folder: string
  route: string | null
  redirect: string | null
  origin: string
}

/** The static mount (§2.11), checked to exist. */
export interface AssetsMount {
  /** Full path of the directory. */
  directory: string
  notFoundHandling: '404' | 'single-page-application'
  runWorkerFirst: boolean
}

/** A list of packages in the folder of a function, without a folder of installed ones beside it. */
export interface PackageManifest {
  runtime: RuntimeName
  /** Below the functions root. */
  folder: string
}

/** A file or folder that exposes nothing, and why; shown by `fngw explain`. */
export interface IgnoredPath {
  path: string
  reason: string
  /** `test`: by its name it would be a route, but names like it belong to tests. */
  kind?: 'test'
}
