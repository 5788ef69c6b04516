/** Packages that a `package.json` names by a path (`file:../lib`): every name and source is checked, theirs too. Owner: page dependencies/node. */

import { lstatSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { GatewayError } from '../core/errors.ts'
import { isObject } from '../core/json.ts'
import { below } from './build.ts'
import { FileCollector, type FilePackages, findInside, type PackageChecks, toPackageBounds } from './file-packages.ts'
import { readSmallFile, showToken } from './manifest-text.ts'
import { NODE_MANIFEST, NodeManifest } from './node-manifest.ts'
import { toPackageSource } from './node-names.ts'

const SOURCES_SETTING = 'FN_NODE_PACKAGE_SOURCES'
/** Of a manifest, those whose packages are installed. */
const INSTALLED = ['dependencies', 'optionalDependencies', 'peerDependencies'] as const

/**
 * Checks every name and source of a manifest and of the packages it names by paths.
 * @param folder - full path of the manifest's folder
 * @throws GatewayError naming the line of the manifest
 */
export function checkSources(manifest: NodeManifest, folder: string, checks: PackageChecks): FilePackages {
  const collector = new FileCollector('node_modules')
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
      // What an archive names is checked in the lock file that the install leaves.
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
  return INSTALLED.flatMap(field =>
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
