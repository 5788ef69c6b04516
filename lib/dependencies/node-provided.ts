/** Packages that Node resolves from a `node_modules` above a function, where another package manager put them. Owner: page dependencies/node. */

import { readFileSync, realpathSync, statSync } from 'node:fs'
import { dirname, join, resolve, sep } from 'node:path'
import satisfies from 'semver/functions/satisfies.js'
import validRange from 'semver/ranges/valid.js'
import { isObject } from '../core/json.ts'
import { toPackageSource } from './node-names.ts'
import { PackageFolder } from './package-set.ts'

const INSTALLED = 'node_modules'

/** The folder from which node takes a package without an install: one above with a `node_modules`; null when there is none. */
export function providerOf(name: string, folder: string): string | null {
  for (let at = dirname(folder); ; at = dirname(at)) {
    if (statSync(join(at, INSTALLED, name), { throwIfNoEntry: false }) !== undefined) return at
    if (at === dirname(at)) return null
  }
}

/** Changes when a package is added to or removed from a `node_modules` above a folder. */
export function stampAbove(folder: string): string {
  const stamps: string[] = []
  for (let at = dirname(folder); ; at = dirname(at)) {
    const stats = statSync(join(at, INSTALLED), { throwIfNoEntry: false })
    if (stats !== undefined) stamps.push(`${at} ${stats.mtimeMs}`)
    if (at === dirname(at)) return stamps.join('\n')
  }
}

/**
 * True when what Node resolves from above satisfies an entry of a manifest, so that nothing is installed for it.
 * @param spec - the value beside the name in `dependencies`
 * @param isPinned - a lock file beside the manifest decides: only a package of a workspace, which is a link, comes before it
 */
export function isProvidedAbove(name: string, spec: unknown, folder: string, isPinned: boolean): boolean {
  const provider = providerOf(name, folder)
  // A set of the gateway's own belongs to another function, and may become another one at any time.
  if (provider === null || typeof spec !== 'string' || new PackageFolder(provider, INSTALLED).set !== null) return false
  const source = toPackageSource(name, spec)
  const place = realpathSync(join(provider, INSTALLED, name))
  const isWorkspace = !place.split(sep).includes(INSTALLED)
  if (source.kind === 'file') return isSamePackage(place, resolve(folder, source.path))
  if (source.kind === 'registry') return (isWorkspace || !isPinned) && isInRange(place, spec.trim(), isWorkspace)
  return source.kind === 'foreign' || (source.kind === 'address' && !isPinned)
}

/** True for the folder itself, and for the copy that a package manager made of it. */
function isSamePackage(place: string, target: string): boolean {
  try {
    if (realpathSync(target) === place) return true
  } catch {
    return false
  }
  const [copy, own] = [readTitle(place), readTitle(target)]
  return own.name !== undefined && copy.name === own.name && copy.version === own.version
}

function isInRange(place: string, spec: string, isWorkspace: boolean): boolean {
  const alias = /^npm:(.[^@]*)(?:@(.*))?$/.exec(spec)
  const { name, version } = readTitle(place)
  if (alias !== null && alias[1] !== name) return false
  const range = alias === null ? spec : (alias[2] ?? '*')
  // A tag (`latest`) is known to the registry alone; package managers take the workspace's package for it.
  if (validRange(range, { loose: true }) === null) return isWorkspace
  return satisfies(version ?? '0.0.0', range, { loose: true, includePrerelease: isWorkspace })
}

function readTitle(folder: string): { name?: string; version?: string } {
  try {
    const json: unknown = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
    const { name, version } = isObject(json) ? json : {}
    return { ...(typeof name === 'string' && { name }), ...(typeof version === 'string' && { version }) }
  } catch {
    return {}
  }
}
