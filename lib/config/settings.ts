/** Global settings: one declaration per option. Spec: §2.15. */

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
  /** Explicit sockets: `unix:/path` or `tcp://host:port`. */
  runtimeSockets: Readonly<Partial<Record<RuntimeName, readonly string[]>>>
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
  defaultMaxBodyBytes: number
  workerMemoryMb: number
  goBuildTimeoutSeconds: number
  hotReload: boolean
  homeFunction: string | null
  homeRedirect: string | null
  publicBaseUrl: string | null
  docsEnabled: boolean
  openapiIncludeInternal: boolean
  uiEnabled: boolean
  consoleApiEnabled: boolean
  consoleWriteEnabled: boolean
  consoleLocalOnly: boolean
  adminToken: string | null
  /** Host names besides loopback and addresses that a local control-plane call may carry. */
  consoleHosts: readonly string[]
  trustedProxyCidrs: readonly string[]
  schedulerEnabled: boolean
  schedulerIntervalSeconds: number
  schedulerPersistEnabled: boolean
  schedulerPersistIntervalSeconds: number
  schedulerStatePath: string | null
  shutdownTimeoutMs: number
  accessLog: boolean
  logLevel: 'debug' | 'info' | 'warn' | 'error' | 'silent'
}
