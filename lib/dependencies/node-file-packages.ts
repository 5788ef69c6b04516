/** Packages that a `package.json` names by a path (`file:../lib`): every name and source is checked, theirs too. Owner: page dependencies/node. */

import { statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { below } from './build.ts'
import { FileCollector, type FilePackages, findInside } from './file-packages.ts'
import type { InstallUnit } from './install-step.ts'
import { readSmallFile } from './manifest-text.ts'
import { NODE_MANIFEST, NodeManifest } from './node-manifest.ts'
import { toPackageSource } from './node-names.ts'
import { labelOf } from './unit-files.ts'

/** Of a manifest, those whose packages are installed. */
const INSTALLED = ['dependencies', 'optionalDependencies'] as const

interface Checks {
  /** Full path without links. */
  root: string
  /** Packages from addresses are allowed. */
  allowSources: boolean
}

/** A quick look whether a manifest names packages by paths. @throws GatewayError when it cannot be read */
export function namesFiles({ folder, label }: Pick<InstallUnit, 'folder' | 'label'>): boolean {
  const text = readSmallFile(join(folder, NODE_MANIFEST), labelOf({ label }, NODE_MANIFEST))
  return text !== null && /:\s*"\s*(?:file:|\.{0,2}\/)/.test(text)
}

/**
 * Checks every name and source of a manifest and of the packages it names by paths.
 * @param folder - full path of the manifest's folder
 * @throws GatewayError naming the line of the manifest
 */
export function checkSources(manifest: NodeManifest, folder: string, checks: Checks): FilePackages {
  const collector = new FileCollector('node_modules')
  const queue: { manifest: NodeManifest; folder: string }[] = [{ manifest, folder }]
  for (const at of queue) {
    for (const path of pathsOf(at.manifest, checks.allowSources)) {
      const target = findInside(resolve(at.folder, path.path), checks.root)
      if (target === null) {
        const why = `file:${path.path} is not in the functions root`
        throw at.manifest.error(`${at.manifest.label}: ${path.name}: ${why}`, path.name, 'move the package into it')
      }
      const fail = (why: string) =>
        at.manifest.error(`${at.manifest.label}: ${why}`, path.name, 'name a smaller folder')
      if (!collector.add(target, fail)) continue
      const label = below(checks.root, join(target, NODE_MANIFEST))
      const text = statSync(target).isDirectory() ? readSmallFile(join(target, NODE_MANIFEST), label) : null
      if (text !== null) queue.push({ manifest: new NodeManifest(text, label), folder: target })
    }
  }
  return collector
}

function pathsOf(manifest: NodeManifest, allowSources: boolean): { name: string; path: string }[] {
  return INSTALLED.flatMap(field =>
    Object.entries(manifest.of(field)).flatMap(([name, spec]) => {
      const source = toPackageSource(name, spec)
      if (source.kind === 'file') return { name, path: source.path }
      if (source.kind === 'wrong') {
        throw manifest.error(`${manifest.label}: ${field}: ${source.why}`, name, 'write a range such as "^1.2.3"')
      }
      if (source.kind === 'address' && !allowSources) {
        const message = `${manifest.label}: ${field}: ${name} comes from ${JSON.stringify(spec)}, not from the registry`
        throw manifest.error(message, name, 'name a version, or set FN_NODE_PACKAGE_SOURCES=1')
      }
      return []
    }),
  )
}
