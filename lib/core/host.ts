/**
 * The process that the gateway runs in and its children: the variables that functions and tools may see, the limit of open files, memory
 * and priority. Owner: §2.14, §4.1, pages config/function-env, runtime/daemon, performance.
 */

import { executionAsyncResource } from 'node:async_hooks'
import { readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { getPriority, setPriority } from 'node:os'
import { GatewayError, orNull } from './errors.ts'
import { MAX_WORKER_NICE } from './limits.ts'
import { Semaphore } from './semaphore.ts'

export type HostEnv = Readonly<Record<string, string | undefined>>

/** Every program needs these: places of programs and of home, language, time zone, certificates. */
const COMMON = 'PATH|HOME|LANG|TZ|LC_[A-Z]+|SSL_CERT_(?:FILE|DIR)|NODE_EXTRA_CA_CERTS'
const PROXY_VARIABLES = '(?:HTTPS?|ALL|NO)_PROXY|(?:https?|all|no)_proxy'
const GO_VARIABLES =
  'GO(?:PATH|CACHE|MODCACHE|ROOT|PROXY|PRIVATE|NOPROXY|SUMDB|NOSUMDB|INSECURE|TOOLCHAIN|ENV|FLAGS|EXPERIMENT|AMD64|ARM64)'
const C_VARIABLES = 'CC|CXX|PKG_CONFIG_PATH|CGO_(?:CFLAGS|LDFLAGS)'
/** Without tokens: the ones for publishing are the same variables, and a build runs code of every crate. */
const RUST_VARIABLES =
  'CARGO_HOME|CARGO_(?:NET|HTTP|REGISTR(?:Y|IES)|SOURCE)_(?!\\w*(?:TOKEN|SECRET_KEY)$)\\w+|RUSTUP_(?:HOME|TOOLCHAIN)'
const PIP_VARIABLES =
  'PIP_(?:INDEX_URL|EXTRA_INDEX_URL|NO_INDEX|FIND_LINKS|TRUSTED_HOST|CERT|CLIENT_CERT|PROXY|CACHE_DIR|NO_CACHE_DIR|CONFIG_FILE|' +
  'DEFAULT_TIMEOUT|TIMEOUT|RETRIES|ONLY_BINARY|NO_BINARY|PREFER_BINARY|CONSTRAINT|REQUIRE_HASHES)'
const UV_VARIABLES =
  'UV_(?:DEFAULT_INDEX|INDEX|INDEX_URL|EXTRA_INDEX_URL|INDEX_STRATEGY|NO_INDEX|FIND_LINKS|INSECURE_HOST|NATIVE_TLS|SYSTEM_CERTS|' +
  'CACHE_DIR|NO_CACHE|CONFIG_FILE|HTTP_TIMEOUT|OFFLINE|NO_BUILD|ONLY_BINARY|CONSTRAINT|REQUIRE_HASHES|KEYRING_PROVIDER)'
const COMPOSER_VARIABLES = 'COMPOSER_(?:HOME|CACHE_DIR|CAFILE|DISABLE_NETWORK|IPRESOLVE|MAX_PARALLEL_HTTP|MEMORY_LIMIT)'

const FUNCTION_VARIABLES = toPattern(COMMON, 'USER|LOGNAME|LANGUAGE|TMPDIR|TMP|TEMP')

function toPattern(...names: readonly string[]): RegExp {
  return new RegExp(`^(?:${names.join('|')})$`)
}

/** True for a variable that every worker gets from the host. */
export function isFunctionHostVariable(name: string): boolean {
  return FUNCTION_VARIABLES.test(name)
}

type HostEnvFilter = (hostEnv: HostEnv) => Record<string, string>

function toFilter(pattern: RegExp): HostEnvFilter {
  const isPicked = (entry: [string, string | undefined]): entry is [string, string] =>
    entry[1] !== undefined && pattern.test(entry[0])
  return hostEnv => Object.fromEntries(Object.entries(hostEnv).filter(isPicked))
}

/** For workers of functions: nothing that could hold a secret of the gateway. */
export const toFunctionHostEnv = toFilter(FUNCTION_VARIABLES)

/** For build tools: also caches, package sources and proxies, with the credentials in these, but no token. */
export const toToolHostEnv = toFilter(toPattern(COMMON, PROXY_VARIABLES, GO_VARIABLES, C_VARIABLES, RUST_VARIABLES))

/** For pip and uv. */
export const toPythonHostEnv = toFilter(
  toPattern(
    COMMON,
    PROXY_VARIABLES,
    'XDG_(?:CACHE|CONFIG)_HOME|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE',
    PIP_VARIABLES,
    UV_VARIABLES,
  ),
)

/** For Composer; without `COMPOSER_AUTH`, because allowed plugins would see it too. */
export const toComposerHostEnv = toFilter(
  toPattern(COMMON, PROXY_VARIABLES, 'XDG_(?:CACHE|CONFIG|DATA)_HOME', COMPOSER_VARIABLES),
)

/** Folders of tools that belong to the gateway's user. Its programs of Rust stay in their place. */
const TOOL_FOLDERS =
  /^(?:GO(?:PATH|CACHE|MODCACHE|ENV)|CARGO_HOME|XDG_\w+|(?:PIP|UV|COMPOSER)_CACHE_DIR|COMPOSER_HOME|npm_config_(?:cache|userconfig))$/i

/**
 * For a tool that runs as another user: the same package sources, and folders of that user.
 * @param env - from one of the functions above
 * @param home - full path of the user's home
 */
export function toUserToolEnv(env: Readonly<Record<string, string>>, home: string): Record<string, string> {
  const kept = Object.entries(env).filter(([name]) => !TOOL_FOLDERS.test(name))
  const { HOME: own } = env
  return { ...(own !== undefined && { RUSTUP_HOME: `${own}/.rustup` }), ...Object.fromEntries(kept), HOME: home }
}

/** Descriptors that are reserved for workers, logs and reloads: a share of the limit, and a minimum. */
const RESERVED = { share: 0.1, min: 64 } as const

/** One count for the descriptors of client connections, of files that are sent, and of connections to upstreams. */
export class Descriptors {
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

  /** Counts one that is open already, whatever the limit. */
  add(): void {
    this.#used += 1
  }

  /** Counts one that is about to be opened. @throws GatewayError when the limit is reached */
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
  const limits = orNull(() => readFileSync('/proc/self/limits', 'latin1'))
  const limit = /^Max open files\s+(\d+)/m.exec(limits ?? '')?.[1]
  return limit === undefined ? null : Number(limit)
}

/** Processes whose memory is read at once, and at most. */
const AT_ONCE = 32
const MAX_PROCESSES = 2000

/**
 * Resident bytes by process id. Processes that have ended are left out, and all of them on systems that do not report it.
 * @param withChildren - includes the children of each process
 */
export async function readMemoryOf(
  pids: readonly number[],
  withChildren = false,
): Promise<ReadonlyMap<number, number>> {
  const found = new Map<number, number>()
  const turn = new Semaphore(AT_ONCE)
  const read = async (pid: number): Promise<void> => {
    const own = await readMemory(pid)
    if (own === null) return
    const children = withChildren ? await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8').catch(() => '') : ''
    let sum = own
    for (const bytes of await Promise.all(children.split(' ').filter(Boolean).map(readMemory))) sum += bytes ?? 0
    found.set(pid, sum)
  }
  await Promise.all(pids.slice(0, MAX_PROCESSES).map(pid => turn.run(() => read(pid))))
  return found
}

async function readMemory(pid: number | string): Promise<number | null> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '')
  const kilobytes = /^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]
  return kilobytes === undefined ? null : Number(kilobytes) * 1024
}

/**
 * Lowers the priority of a process that has just been started by a number of steps (nice); its later children inherit it.
 * @returns null, also for a process that has ended already; else why the system refuses
 */
export function lowerPriority(pid: number | undefined, steps: number): string | null {
  if (pid === undefined || steps === 0) return null
  try {
    setPriority(pid, Math.min(MAX_WORKER_NICE, getPriority() + steps))
    return null
  } catch (error) {
    const { info, message } = error as Error & { info?: { code?: string } }
    if (info?.code === 'ESRCH') return null
    return `its priority stays that of the gateway (FN_WORKER_NICE=${steps}): ${message}`
  }
}

let kept: object | null = null

/**
 * Keeps `process.nextTick` fast; to be called early, any number of times. V8 builds the object of a tick quickly while the hidden
 * class of such objects exists. In a process that is idle when it collects garbage, no tick is alive, the class is dropped with the
 * last one, and every later tick is built the slow way: about 15 % of a request's work. One tick that is kept keeps the class.
 */
export function keepTickShape(): void {
  if (kept !== null) return
  kept = {}
  process.nextTick(() => {
    kept = executionAsyncResource()
  })
}
