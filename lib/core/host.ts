/** Variables of the gateway's own process that others may see; every other one stays here. Owner: §2.14, page config/function-env. */

import { executionAsyncResource } from 'node:async_hooks'
import { readFileSync } from 'node:fs'
import { getPriority, setPriority } from 'node:os'
import { GatewayError } from './errors.ts'
import { MAX_WORKER_NICE } from './limits.ts'

export type HostEnv = Readonly<Record<string, string | undefined>>

/** What every program needs: where programs and home are, language, time zone, certificates. */
const COMMON = 'PATH|HOME|LANG|TZ|LC_[A-Z]+|SSL_CERT_(?:FILE|DIR)'

const FUNCTION_VARIABLES = new RegExp(`^(?:${COMMON}|USER|LOGNAME|LANGUAGE|TMPDIR|TMP|TEMP)$`)

const GO_VARIABLES =
  'GO(?:PATH|CACHE|MODCACHE|ROOT|PROXY|PRIVATE|NOPROXY|SUMDB|NOSUMDB|INSECURE|TOOLCHAIN|ENV|FLAGS|EXPERIMENT|AMD64|ARM64)'
const C_VARIABLES = 'CC|CXX|PKG_CONFIG_PATH|CGO_(?:CFLAGS|LDFLAGS)'
/** Without tokens: the ones for publishing are the same variables, and a build runs code of every crate. */
const RUST_VARIABLES =
  'CARGO_HOME|CARGO_(?:NET|HTTP|REGISTR(?:Y|IES)|SOURCE)_(?!\\w*(?:TOKEN|SECRET_KEY)$)\\w+|RUSTUP_(?:HOME|TOOLCHAIN)'
const PROXY_VARIABLES = '(?:HTTPS?|ALL|NO)_PROXY|(?:https?|all|no)_proxy'

const TOOL_VARIABLES = new RegExp(`^(?:${COMMON}|${PROXY_VARIABLES}|${GO_VARIABLES}|${C_VARIABLES}|${RUST_VARIABLES})$`)

const PYTHON_TOOL_VARIABLES = new RegExp(
  `^(?:${COMMON}|${PROXY_VARIABLES}|XDG_(?:CACHE|CONFIG)_HOME|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|` +
    'PIP_(?:INDEX_URL|EXTRA_INDEX_URL|NO_INDEX|FIND_LINKS|TRUSTED_HOST|CERT|CLIENT_CERT|PROXY|CACHE_DIR|NO_CACHE_DIR|CONFIG_FILE|' +
    'DEFAULT_TIMEOUT|TIMEOUT|RETRIES|ONLY_BINARY|NO_BINARY|PREFER_BINARY|CONSTRAINT|REQUIRE_HASHES)|' +
    'UV_(?:DEFAULT_INDEX|INDEX|INDEX_URL|EXTRA_INDEX_URL|INDEX_STRATEGY|NO_INDEX|FIND_LINKS|INSECURE_HOST|NATIVE_TLS|SYSTEM_CERTS|CACHE_DIR|NO_CACHE|' +
    'CONFIG_FILE|HTTP_TIMEOUT|OFFLINE|NO_BUILD|ONLY_BINARY|CONSTRAINT|REQUIRE_HASHES|KEYRING_PROVIDER))$',
)

const COMPOSER_VARIABLES = new RegExp(
  `^(?:${COMMON}|${PROXY_VARIABLES}|XDG_(?:CACHE|CONFIG|DATA)_HOME|` +
    'COMPOSER_(?:HOME|CACHE_DIR|CAFILE|DISABLE_NETWORK|IPRESOLVE|MAX_PARALLEL_HTTP|MEMORY_LIMIT))$',
)

/** True for a variable that every worker gets from the host. */
export function isFunctionHostVariable(name: string): boolean {
  return FUNCTION_VARIABLES.test(name)
}

/** What workers of functions may see: nothing that could hold a secret of the gateway. */
export function toFunctionHostEnv(hostEnv: HostEnv): Record<string, string> {
  return pick(hostEnv, FUNCTION_VARIABLES)
}

/** What build tools may see: also their caches, package sources and proxies, with the credentials in these, but no token. */
export function toToolHostEnv(hostEnv: HostEnv): Record<string, string> {
  return pick(hostEnv, TOOL_VARIABLES)
}

/** What pip and uv may see: where packages come from, caches and proxies. */
export function toPythonHostEnv(hostEnv: HostEnv): Record<string, string> {
  return pick(hostEnv, PYTHON_TOOL_VARIABLES)
}

/** What Composer may see: its home and caches, and proxies; no `COMPOSER_AUTH`, because plugins that are allowed see it too. */
export function toComposerHostEnv(hostEnv: HostEnv): Record<string, string> {
  return pick(hostEnv, COMPOSER_VARIABLES)
}

/** Folders of tools that are the gateway's. Its programs of Rust stay where they are. */
const TOOL_FOLDERS =
  /^(?:GO(?:PATH|CACHE|MODCACHE|ENV)|CARGO_HOME|XDG_\w+|(?:PIP|UV|COMPOSER)_CACHE_DIR|COMPOSER_HOME|npm_config_(?:cache|userconfig))$/i

/**
 * What a tool sees that runs as another user: the same package sources, and folders of that user.
 * @param env - as one of the functions above gives it
 * @param home - full path of the user's home
 */
export function toUserToolEnv(env: Readonly<Record<string, string>>, home: string): Record<string, string> {
  const kept = Object.entries(env).filter(([name]) => !TOOL_FOLDERS.test(name))
  const { HOME: own } = env
  return { ...(own !== undefined && { RUSTUP_HOME: `${own}/.rustup` }), ...Object.fromEntries(kept), HOME: home }
}

function pick(hostEnv: HostEnv, names: RegExp): Record<string, string> {
  const picked: Record<string, string> = {}
  for (const [name, value] of Object.entries(hostEnv)) {
    if (value !== undefined && names.test(name)) picked[name] = value
  }
  return picked
}

// How many files and connections this process may have open.

/** Descriptors that are reserved for workers, logs and reloads: a share of the limit, and a minimum. */
const RESERVED = { share: 0.1, min: 64 } as const

/** Descriptors of client connections, of files that are sent, and of connections to upstreams, one count for all. */
export class Descriptors {
  /** How many there may be. */
  readonly limit: number
  #used = 0

  /** @param systemLimit - files that this process may have open; null when unknown */
  constructor(systemLimit: number | null = null) {
    const reserve = Math.max(RESERVED.min, Math.ceil((systemLimit ?? 0) * RESERVED.share))
    this.limit = systemLimit === null ? Number.POSITIVE_INFINITY : Math.max(1, systemLimit - reserve)
  }

  /** How many are left; below 0 for connections that were accepted beyond the limit. */
  get free(): number {
    return this.limit - this.#used
  }

  /** One more is open, whatever the limit. */
  add(): void {
    this.#used += 1
  }

  /** One more is about to be opened. @throws GatewayError when the limit is reached */
  take(): void {
    if (this.free <= 0) throw new GatewayError('OVERLOADED', 'too many files and connections are open; try again later')
    this.#used += 1
  }

  giveBack(): void {
    this.#used -= 1
  }
}

/** null where the system does not report it. */
export function readDescriptorLimit(): number | null {
  try {
    const limit = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'latin1'))?.[1]
    return limit === undefined ? null : Number(limit)
  } catch {
    return null
  }
}

// How far a process stands behind this one when processors are shared out.

/**
 * Puts a process that has just been started so many steps (of nice) behind this one; what it starts from then on is there too.
 * @returns null, or why the system refuses. One that has ended already needs nothing.
 */
export function lowerPriority(pid: number | undefined, steps: number): string | null {
  if (pid === undefined || steps === 0) return null
  try {
    setPriority(pid, Math.min(MAX_WORKER_NICE, getPriority() + steps))
    return null
  } catch (error) {
    const { info, message } = error as Error & { info?: { code?: string } }
    return info?.code === 'ESRCH'
      ? null
      : `its priority stays that of the gateway (FN_WORKER_NICE=${steps}): ${message}`
  }
}

// // Keeps `process.nextTick` fast.
// The engine builds the object of a tick quickly while the hidden class of such objects exists. In a process that is
// idle when it collects garbage no tick is alive, the class goes with the last one, and from then on every tick of the
// process is built the slow way: about 15 % of a request's work. One tick that is never let go keeps the class.

let kept: object | null = null

/** To be called early, any number of times. */
export function keepTickShape(): void {
  if (kept !== null) return
  kept = {}
  process.nextTick(() => {
    kept = executionAsyncResource()
  })
}
