/** Where packages of Node functions come from: a `node_modules` above, or a path that a manifest names. Owner: page dependencies/node. */

import { lstatSync, realpathSync, statSync } from 'node:fs'
import { dirname, join, resolve, sep } from 'node:path'
import satisfies from 'semver/functions/satisfies.js'
import validRange from 'semver/ranges/valid.js'
import { type GatewayError, orNull } from '../core/errors.ts'
import { isObject, parseObject } from '../core/json.ts'
import { below, tryRead } from './build.ts'
import { FileCollector, findInside, type PackageChecks, toPackageBounds } from './file-packages.ts'
import { readSmallFile, showToken } from './install-step.ts'
import { NODE_MANIFEST, NodeManifest, toPackageSource } from './node-manifest.ts'
import { PackageFolder } from './package-set.ts'

/** Folder of installed packages. */
export const NODE_TARGET = 'node_modules'

// Packages that Node resolves from a `node_modules` above a function, where another package manager put them.

/** The folder from which node takes a package without an install: one above with a `node_modules`; null when there is none. */
export function providerOf(name: string, folder: string): string | null {
  for (let at = dirname(folder); ; at = dirname(at)) {
    if (statSync(join(at, NODE_TARGET, name), { throwIfNoEntry: false }) !== undefined) return at
    if (at === dirname(at)) return null
  }
}

/** Changes when a package is added to or removed from a `node_modules` above a folder. */
export function stampAbove(folder: string): string {
  const stamps: string[] = []
  for (let at = dirname(folder); ; at = dirname(at)) {
    const stats = statSync(join(at, NODE_TARGET), { throwIfNoEntry: false })
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
  if (provider === null || typeof spec !== 'string' || new PackageFolder(provider, NODE_TARGET).set !== null)
    return false
  const source = toPackageSource(name, spec)
  const place = realpathSync(join(provider, NODE_TARGET, name))
  const isWorkspace = !place.split(sep).includes(NODE_TARGET)
  if (source.kind === 'file') return isSamePackage(place, resolve(folder, source.path))
  if (source.kind === 'registry') return (isWorkspace || !isPinned) && isInRange(place, spec.trim(), isWorkspace)
  return source.kind === 'foreign' || (source.kind === 'address' && !isPinned)
}

/** True for the folder itself, and for the copy that a package manager made of it. */
function isSamePackage(place: string, target: string): boolean {
  if (orNull(() => realpathSync(target)) === place) return true
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

function readTitle(folder: string): { name: string | undefined; version: string | undefined } {
  const { name, version } = parseObject(tryRead(join(folder, 'package.json'))) ?? {}
  return {
    name: typeof name === 'string' ? name : undefined,
    version: typeof version === 'string' ? version : undefined,
  }
}

// Packages that a `package.json` names by a path (`file:../lib`): every name and source is checked, theirs too.

const SOURCES_SETTING = 'FN_NODE_PACKAGE_SOURCES'
/** Of a manifest, those whose packages are installed. */
export const INSTALLED_FIELDS = ['dependencies', 'optionalDependencies', 'peerDependencies'] as const

/**
 * Checks every name and source of a manifest and of the packages it names by paths.
 * @param folder - full path of the manifest's folder
 * @throws GatewayError naming the line of the manifest
 */
export function checkSources(manifest: NodeManifest, folder: string, checks: PackageChecks): FileCollector {
  const collector = new FileCollector(NODE_TARGET)
  const { bound, boundName } = toPackageBounds(checks, folder)
  const queue: { manifest: NodeManifest; folder: string }[] = [{ manifest, folder }]
  for (const at of queue) {
    for (const path of pathsOf(at.manifest, checks.allowSources)) {
      const target = findInside(resolve(at.folder, path.path), bound)
      if (target === null) {
        const why = `file:${path.path} is not in ${boundName}`
        const hint = `run npm install in the workspace it belongs to, move the package into ${boundName}, or set ${SOURCES_SETTING}=1`
        throw at.manifest.error(`${at.manifest.label}: ${path.name}: ${why}`, path.name, hint)
      }
      const fail = (why: string) =>
        at.manifest.error(`${at.manifest.label}: ${why}`, path.name, 'name a smaller folder')
      if (!collector.add(target, fail)) continue
      // The dependencies of an archive are checked in the lock file that the install leaves.
      if (lstatSync(target).isFile()) continue
      const label = below(checks.root, join(target, NODE_MANIFEST))
      // A link is not copied with its package.
      const isOwn = lstatSync(join(target, NODE_MANIFEST), { throwIfNoEntry: false })?.isFile() === true
      const text = isOwn ? readSmallFile(join(target, NODE_MANIFEST), label) : null
      if (text !== null) queue.push({ manifest: new NodeManifest(text, label), folder: target })
    }
  }
  return collector
}

function pathsOf(manifest: NodeManifest, allowSources: boolean): { name: string; path: string }[] {
  checkUninstalled(manifest, allowSources)
  return INSTALLED_FIELDS.flatMap(field =>
    Object.entries(manifest.of(field)).flatMap(([name, spec]) => {
      const source = toPackageSource(name, spec)
      if (source.kind === 'file') return { name, path: source.path }
      if (source.kind === 'foreign') {
        const hint = 'run its install in the workspace: what is in node_modules there is used'
        throw manifest.error(`${manifest.label}: ${field}: ${source.why}`, name, hint)
      }
      if (source.kind === 'wrong') {
        throw manifest.error(`${manifest.label}: ${field}: ${source.why}`, name, 'write a range such as "^1.2.3"')
      }
      if (source.kind === 'address' && !allowSources) throw addressError(manifest, field, name, spec)
      return []
    }),
  )
}

/** npm looks up the packages of these fields too, and may install what an override names. */
function checkUninstalled(manifest: NodeManifest, allowSources: boolean): void {
  for (const [name, spec] of Object.entries(manifest.of('devDependencies'))) {
    const isAddress = toPackageSource(name, spec).kind === 'address'
    if (isAddress && !allowSources) throw addressError(manifest, 'devDependencies', name, spec)
  }
  for (const [name, spec] of overridesIn(manifest.of('overrides'))) {
    const { kind } = toPackageSource('x', spec)
    if (kind === 'file' || (kind === 'address' && !allowSources)) throw addressError(manifest, 'overrides', name, spec)
  }
}

/** Names and versions at every depth. `$name` stands for the version in `dependencies`. */
function overridesIn(value: object): [name: string, spec: string][] {
  return Object.entries(value).flatMap(([name, spec]): [string, string][] => {
    if (typeof spec === 'string') return spec.startsWith('$') ? [] : [[name, spec]]
    return isObject(spec) ? overridesIn(spec) : []
  })
}

function addressError(manifest: NodeManifest, field: string, name: string, spec: unknown): GatewayError {
  const message = `${manifest.label}: ${field}: ${name} comes from ${showToken(spec)}, not from the registry`
  return manifest.error(message, name, `name a version, or set ${SOURCES_SETTING}=1`)
}
