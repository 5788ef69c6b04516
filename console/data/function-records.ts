/** Shapes of function records; described on the pages below spec/control. Owner: page console/functions. */

/** Who a function is; `version` is `default` where it has none. */
export interface FunctionId {
  readonly runtime: string
  readonly name: string
  readonly version: string
}

/** One row of `functions.states` in `GET /_fn/health`. */
interface FunctionState {
  readonly key: string
  readonly state: string
  readonly workers: number
  /** Why the newest version cannot be loaded; null when it can. */
  readonly load_error: string | null
}

export interface Health {
  readonly functions: { readonly states?: readonly FunctionState[] }
}

export interface EnvEntry {
  readonly value: unknown
  readonly is_secret: boolean
}

/** `GET /_fn/function` */
export interface FunctionRecord {
  readonly runtime: string
  readonly name: string
  readonly version: string | null
  readonly key: string
  readonly kind: string
  /** Below the functions root. */
  readonly file: string
  /** Full paths, for those who may see them. */
  readonly function_dir?: string
  readonly file_path?: string
  readonly config_path?: string
  readonly policy: Readonly<Record<string, unknown>>
  /** `setting` is what says the value where no file does. */
  readonly policy_sources?: Readonly<Record<string, { readonly file: string | null; readonly setting?: string }>>
  readonly runtime_health: { readonly up: boolean; readonly reason: string }
  readonly metadata: {
    readonly endpoints: { readonly public_route: string; readonly mapped_routes: readonly string[] }
    readonly invoke: { readonly default_method: string; readonly methods: readonly string[] }
    readonly dependency_resolution?: Readonly<Record<string, unknown>>
  }
  readonly warnings: readonly string[]
  /** Why the newest version cannot be loaded; null when it can. */
  readonly load_error: string | null
  /** Absent for those who may not see it. */
  readonly code?: string
  readonly code_truncated?: boolean
  readonly etag?: string | null
}

/** Other functions that a file of a function applies to. */
export interface SharedFile {
  /** Keys, not all of them. */
  readonly shared_with: readonly string[]
  readonly shared_with_count: number
}

export const toKey = ({ runtime, name, version }: FunctionId): string => `${runtime}/${name}@${version}`

/** Path of a function's page below `/console`. */
export const toFunctionPage = (id: FunctionId): string => `functions/${toKey(id)}`

/** Query fields that name a function to the gateway. */
export const toTarget = ({
  runtime,
  name,
  version,
}: FunctionId): { runtime: string; name: string; version: string } => ({
  runtime,
  name,
  version,
})

/** A change is made only to the file that has this tag. */
export const toMatch = (etag: string | null): Record<string, string> => (etag === null ? {} : { 'If-Match': etag })

/** @param text - such as `node/users/list@v2`; null for what is none */
export function parseFunctionKey(text: string): FunctionId | null {
  const slash = text.indexOf('/')
  const at = text.lastIndexOf('@')
  if (slash < 1) return null
  const end = at > slash ? at : text.length
  const name = text.slice(slash + 1, end)
  if (name === '') return null
  return { runtime: text.slice(0, slash), name, version: text.slice(end + 1) || 'default' }
}

export const RUNTIMES: readonly string[] = ['node', 'python', 'php', 'lua', 'go', 'rust']

/** Which function the address of its page means: `node/users/list@v2`, or the name alone, and then the runtime is null. */
export function parseFunctionAddress(text: string): (Omit<FunctionId, 'runtime'> & { runtime: string | null }) | null {
  const id = parseFunctionKey(text)
  if (id !== null && RUNTIMES.includes(id.runtime)) return id
  const named = parseFunctionKey(`any/${text}`)
  return named === null ? null : { ...named, runtime: null }
}

/** The name of a function without its runtime. */
export const toShownName = ({ name, version }: Pick<FunctionId, 'name' | 'version'>): string =>
  version === 'default' ? name : `${name}@${version}`
