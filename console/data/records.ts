/** Shapes of what `/_fn/*` answers, as far as pages show it; they are described on the pages below spec/control. Owner: page console/console. */

export interface Warning {
  readonly code: string
  readonly path: string
  readonly message: string
  readonly hint?: string
}

export interface RouteClaim {
  readonly runtime: string
  readonly name: string
  readonly fn_name: string
  /** null for the default. */
  readonly version: string | null
  readonly methods: readonly string[]
  readonly source: string
  readonly source_rank: number
  readonly force_url: boolean
  readonly origin: string
  readonly file: string
}

interface Policy {
  readonly shared_deps?: readonly string[]
}

interface CatalogFunction {
  readonly name: string
  readonly has_default: boolean
  readonly versions: readonly string[]
  readonly file: string | null
  /** By version. */
  readonly version_files?: Readonly<Record<string, string>>
  /** Of the default. */
  readonly policy?: Policy
  readonly versions_policy?: Readonly<Record<string, Policy>>
}

/** `GET /_fn/catalog` */
export interface Catalog {
  /** Seconds since the epoch. */
  readonly generated_at: number
  readonly functions_root?: string
  readonly runtime_order: readonly string[]
  readonly mapped_routes: Readonly<Record<string, readonly RouteClaim[]>>
  readonly mapped_route_conflicts: Readonly<Record<string, readonly RouteClaim[]>>
  readonly runtimes: Readonly<Record<string, { readonly functions: readonly CatalogFunction[] }>>
  readonly warnings: readonly Warning[]
  readonly ignored?: readonly IgnoredPath[]
}

/** A claim on a route, as `GET /_fn/explain` returns it. */
interface ExplainedClaim {
  readonly runtime: string
  readonly name: string
  readonly version: string | null
  readonly file: string
  readonly pattern: string
  readonly methods: readonly string[]
  readonly hosts: readonly string[]
  readonly source: string
  readonly origin: string
  readonly forced: boolean
}

/** `GET /_fn/explain` */
export interface Explanation {
  readonly method: string
  readonly path: string
  readonly host: string
  readonly winner: (ExplainedClaim & { readonly params: Readonly<Record<string, string>> }) | null
  readonly refusal: { readonly status: number; readonly message: string; readonly allow: string | null } | null
  readonly losers: readonly (ExplainedClaim & {
    readonly rule: string
    readonly by: string | null
    readonly reason: string
  })[]
  readonly beside: { readonly kind: string; readonly text: string } | null
  readonly ignored: readonly IgnoredPath[]
  readonly warnings: readonly Warning[]
}

export interface IgnoredPath {
  readonly path: string
  readonly reason: string
}
