/** Rows of the page of packs and installs. Owner: page console/packs. */

import type { Catalog } from '../../data/records.ts'
import { formatCount, formatNumberOf } from '../../format.ts'

/** A row of `GET /_fn/dependencies`. */
export interface Preparation {
  readonly key: string
  readonly runtime: string
  readonly state: string
  readonly step: string | null
  /** Seconds since the epoch. */
  readonly since: number | null
  readonly error: string | null
  readonly file: string | null
  readonly line: number | null
  readonly hint: string | null
}

export interface Dependencies {
  readonly functions: readonly Preparation[]
  readonly running: readonly {
    readonly key: string
    readonly runtime: string
    readonly action: string
    readonly since: number
  }[]
}

/** `GET /_fn/packs` */
export interface Packs {
  readonly packs_root?: string
  readonly runtimes: Readonly<Record<string, { readonly packs: readonly PackFacts[] }>>
}

interface PackFacts {
  readonly name: string
  readonly dir?: string
  readonly requirements_txt?: boolean
  readonly deps_dir?: boolean
  readonly package_json?: boolean
  readonly lock_file?: string | null
  readonly node_modules?: boolean
}

export interface PackRow {
  key: string
  runtime: string
  name: string
  dir: string | null
  /** Files that say what is in it. */
  files: string
  isInstalled: boolean
  /** Keys of the functions that name it. */
  usedBy: string[]
}

const RANKS: Readonly<Record<string, number>> = { failed: 0, preparing: 1, ready: 2 }

/** Those that failed first, then those under way; those that need nothing are left out. */
export function toPreparations({ functions }: Dependencies): Preparation[] {
  const rows = functions.filter(({ state }) => state !== 'none')
  return rows.sort((a, b) => (RANKS[a.state] ?? 3) - (RANKS[b.state] ?? 3) || (a.key < b.key ? -1 : 1))
}

/** "2 functions failed, 1 is prepared now, 12 ready, 5 need nothing." */
export function toSummary({ functions }: Dependencies): string {
  const count = (state: string): number => functions.filter(one => one.state === state).length
  const failed = count('failed')
  const preparing = count('preparing')
  const parts = [
    ...(failed > 0 ? [`${formatNumberOf(failed, 'function')} failed`] : []),
    ...(preparing > 0 ? [`${formatNumberOf(preparing, 'function')} installing`] : []),
    `${formatNumberOf(count('ready'), 'function')} ready`,
    `${formatCount(count('none'))} without packages or not called yet`,
  ]
  return `${parts.join(', ')}.`
}

export function toPackRows({ runtimes }: Packs, catalog: Catalog | null): PackRow[] {
  const users = toUsers(catalog)
  return Object.entries(runtimes).flatMap(([runtime, { packs }]) =>
    packs.map(pack => {
      const key = `${runtime}/${pack.name}`
      const files = [
        pack.requirements_txt === true && 'requirements.txt',
        pack.package_json === true && 'package.json',
        pack.lock_file,
      ].filter((file): file is string => typeof file === 'string')
      return {
        ...{ key, runtime, name: pack.name, dir: pack.dir ?? null, files: files.join(', ') },
        isInstalled: pack.deps_dir ?? pack.node_modules ?? false,
        usedBy: users.get(key) ?? [],
      }
    }),
  )
}

/** Keys of functions by the pack that they name. */
function toUsers(catalog: Catalog | null): Map<string, string[]> {
  const users = new Map<string, string[]>()
  for (const [runtime, { functions }] of Object.entries(catalog?.runtimes ?? {}))
    for (const { name, has_default: hasDefault, policy, versions_policy: others = {} } of functions)
      for (const [version, { shared_deps: packs = [] }] of [
        ...(hasDefault && policy !== undefined ? [['default', policy] as const] : []),
        ...Object.entries(others),
      ])
        for (const pack of packs) {
          const key = `${runtime}/${pack}`
          users.set(key, [...(users.get(key) ?? []), `${runtime}/${name}@${version}`])
        }
  return users
}
