/** Warnings and route conflicts as the overview lists them, with the function that each is about. Owner: page console/overview. */

import type { Catalog, RouteClaim, Warning } from '../../data/records.ts'
import { toHref } from '../../router.ts'

interface Problem {
  code: string
  /** File that it is about. */
  path: string
  /** Where that file is shown; null where no one function has it. */
  href: string | null
  message: string
  hint: string | null
}

interface Conflict {
  route: string
  /** Those that are disputed. */
  methods: string
  hint: string
  claims: { key: string; href: string; path: string; source: string }[]
}

/** A conflict is listed with its claims instead. */
const CONFLICT = 'ROUTE_CONFLICT'
const SOURCES: Readonly<Record<string, string>> = {
  file: 'by its file name',
  manifest: 'by the manifest',
  config: 'by its config',
}

export function toProblems(catalog: Catalog): { warnings: Problem[]; conflicts: Conflict[] } {
  const places = toPlaces(catalog)
  const conflicts = catalog.warnings.filter(({ code }) => code === CONFLICT)
  return {
    warnings: catalog.warnings
      .filter(({ code }) => code !== CONFLICT)
      .map(warning => ({
        code: warning.code,
        path: warning.path,
        href: toFileHref(warning.path, places),
        message: toMessage(warning),
        hint: warning.hint ?? null,
      })),
    conflicts: Object.entries(catalog.mapped_route_conflicts).map(([route, claims]) => ({
      route,
      methods: toDisputed(claims),
      hint: conflicts.find(({ message }) => message.includes(` ${route} is claimed`))?.hint ?? '',
      claims: claims.map(claim => {
        const key = toKey(claim)
        return { key, href: toHref(`functions/${key}`), path: claim.origin, source: SOURCES[claim.source] ?? '' }
      }),
    })),
  }
}

function toKey({ runtime, fn_name: name, version }: RouteClaim): string {
  return `${runtime}/${name}@${version ?? 'default'}`
}

/** Methods that more than one claims. */
function toDisputed(claims: readonly RouteClaim[]): string {
  const all = claims.flatMap(({ methods }) => methods)
  return [...new Set(all.filter((method, index) => all.indexOf(method) !== index))].join(', ')
}

/** Removes the file name that the row already shows. */
function toMessage({ path, message }: Warning): string {
  return message.startsWith(`${path}: `) ? message.slice(path.length + 2) : message
}

/** Key of a function by its file, and by its folder where it is the only one in it; null for several. */
type Places = ReadonlyMap<string, string | null>

function toPlaces({ runtimes }: Catalog): Places {
  const places = new Map<string, string | null>()
  for (const [runtime, { functions }] of Object.entries(runtimes))
    for (const { name, file, version_files: files = {} } of functions)
      for (const [version, path] of [...Object.entries(files), ['default', file] as const]) {
        if (path === null) continue
        const key = `${runtime}/${name}@${version}`
        const folder = toFolder(path)
        places.set(path, key)
        places.set(folder, places.has(folder) ? null : key)
      }
  return places
}

function toFolder(path: string): string {
  return path.slice(0, path.lastIndexOf('/') + 1)
}

const TABS: Readonly<Record<string, string>> = { 'fn.config.json': 'config', 'fn.env.json': 'env' }

function toFileHref(path: string, places: Places): string | null {
  const key = places.get(path) ?? places.get(toFolder(path)) ?? null
  return key === null
    ? null
    : toHref(`functions/${key}`, { tab: TABS[path.slice(path.lastIndexOf('/') + 1)] ?? 'code' })
}
