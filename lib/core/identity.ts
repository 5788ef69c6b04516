/** Names of functions, versions, runtimes and methods. Spec: §2.1. */

/** Runtimes in the fixed order that settles several languages in one folder (§2.3). */
export const RUNTIMES = ['python', 'node', 'php', 'lua', 'go', 'rust'] as const
/** Name of a runtime. TypeScript runs in `node`. */
export type RuntimeName = (typeof RUNTIMES)[number]

/** Runtimes enabled when `FN_RUNTIMES` is unset; go and rust are experimental. */
export const DEFAULT_RUNTIMES: readonly RuntimeName[] = ['python', 'node', 'php', 'lua']

/** Methods a function may allow, in the order they are listed. */
export const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'] as const
export type Method = (typeof METHODS)[number]

/** Characters of a function's name, its namespace included. */
export const MAX_NAME_CHARS = 512

const SEGMENT = /^[a-zA-Z0-9_-]+$/
const VERSION = /^[a-zA-Z0-9_.-]+$/
/** The name of a shared pack, such as `base` or `img.tools`. */
export const PACK_NAME = /^[a-zA-Z0-9_-][a-zA-Z0-9_.-]*$/
/** Continues "a pack name, which". */
export const PACK_NAME_RULE = 'has letters, digits, _ . and -, and does not begin with a dot'
const HANDLER = /^[a-zA-Z_][a-zA-Z0-9_]*$/

/** Extension (with dot) to runtime. */
export const RUNTIME_OF_EXTENSION: ReadonlyMap<string, RuntimeName> = new Map([
  ['.py', 'python'],
  ['.js', 'node'],
  ['.ts', 'node'],
  ['.mjs', 'node'],
  ['.cjs', 'node'],
  ['.mts', 'node'],
  ['.cts', 'node'],
  ['.php', 'php'],
  ['.lua', 'lua'],
  ['.go', 'go'],
  ['.rs', 'rust'],
])

/** Prefixes no public route may take (§1, 7). */
export const RESERVED_PREFIXES = ['/_fn', '/console'] as const

/** True for one segment of a name, such as `users`. */
export function isNameSegment(text: string): boolean {
  return SEGMENT.test(text)
}

/** True for a flat or namespaced name, such as `hello` or `api/v1/users`. */
export function isFunctionName(text: string): boolean {
  return text.length <= MAX_NAME_CHARS && text.split('/').every(isNameSegment)
}

/** True for a version label, such as `v2` or `1.0.3`. `.` and `..` are folder words, never versions. */
export function isVersion(text: string): boolean {
  return VERSION.test(text) && text !== '.' && text !== '..'
}

/** True for a callable name (`invoke.handler`, §2.4). */
export function isHandlerName(text: string): boolean {
  return HANDLER.test(text)
}

export function isRuntimeName(text: unknown): text is RuntimeName {
  return typeof text === 'string' && (RUNTIMES as readonly string[]).includes(text)
}

export function isMethod(text: unknown): text is Method {
  return typeof text === 'string' && (METHODS as readonly string[]).includes(text)
}

/** True when a decoded, normalized path lies at or below a reserved prefix. */
export function isReservedPath(urlPath: string): boolean {
  for (const prefix of RESERVED_PREFIXES) {
    if (urlPath === prefix || urlPath.startsWith(`${prefix}/`)) return true
  }
  return false
}

/** The key of a function version in records and state files: `runtime/name@version`. */
export function toFunctionKey(runtime: RuntimeName, name: string, version: string | null): string {
  // In one piece: a map hashes and compares it faster than the parts of a template.
  return [runtime, '/', name, '@', version ?? 'default'].join('')
}

interface Named {
  runtime: string
  name: string
  version: string | null
}

/** The names of a function version in metrics, logs and events. */
export function toFunctionLabels({ runtime, name, version }: Named) {
  return { runtime, fn: name, version: version ?? 'default' }
}

export const ADAPTERS = ['native', 'cloud-lambda', 'edge-worker'] as const

export type AdapterName = (typeof ADAPTERS)[number]

/** Other spellings of an adapter in `invoke.adapter`. */
export const ADAPTER_SPELLINGS = {
  lambda: 'cloud-lambda',
  'apigw-v2': 'cloud-lambda',
  'api-gateway-v2': 'cloud-lambda',
  worker: 'edge-worker',
  workers: 'edge-worker',
  // Names of the nearest existing system, accepted without a warning.
  'aws-lambda': 'cloud-lambda',
  'cloudflare-worker': 'edge-worker',
  'cloudflare-workers': 'edge-worker',
  none: 'native',
  default: 'native',
  '': 'native',
} as const

/** Runtimes that have more than the native adapter. */
const ADAPTED_RUNTIMES: ReadonlySet<RuntimeName> = new Set(['node', 'python'])

/** True when handlers of the runtime may be written for the adapter. */
export function hasAdapter(runtime: RuntimeName, adapter: AdapterName): boolean {
  return adapter === 'native' || ADAPTED_RUNTIMES.has(runtime)
}
