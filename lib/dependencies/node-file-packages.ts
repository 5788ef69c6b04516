/**
 * Packages that a manifest names by a path (`file:../lib`): checked, part of the key, and copied beside the manifest that
 * npm is given, so that the path means the same there. Owner: page dependencies/node.
 *
 *   <root>/shop/cart/package.json  "file:../lib"      <draft>/tree/shop/cart/package.json
 *   <root>/shop/lib/...                         ->    <draft>/tree/shop/lib/...
 */

import { copyFileSync, lstatSync, mkdirSync, readdirSync, readFileSync, realpathSync, statSync } from 'node:fs'
import { dirname, join, relative, resolve, sep } from 'node:path'
import { below } from './build.ts'
import type { BuildKey } from './build-cache.ts'
import { NODE_MANIFEST, NodeManifest, readSmallFile } from './node-manifest.ts'
import { toPackageSource } from './node-names.ts'

/** Files and bytes of all packages that one function names by paths. */
const MAX_FILES = 5000
const MAX_BYTES = 64 * 1024 * 1024
const SKIPPED: ReadonlySet<string> = new Set(['node_modules', '.git', '.svc', '.svc-deps'])
/** Of a manifest, those whose packages are installed. */
const INSTALLED = ['dependencies', 'optionalDependencies'] as const

export interface FilePackages {
  /** Full paths of the files, all below the functions root. */
  files: readonly string[]
}

interface Checks {
  /** Full path without links. */
  root: string
  /** Packages from addresses are allowed. */
  allowSources: boolean
}

/**
 * Checks every name and source of a manifest and of the packages it names by paths.
 * @param folder - full path of the manifest's folder
 * @throws GatewayError naming the line of the manifest
 */
export function checkSources(manifest: NodeManifest, folder: string, checks: Checks): FilePackages {
  const files: string[] = []
  const seen = new Set<string>()
  const queue: { manifest: NodeManifest; folder: string }[] = [{ manifest, folder }]
  let bytes = 0
  for (const at of queue) {
    for (const path of pathsOf(at.manifest, checks.allowSources)) {
      const target = findInside(resolve(at.folder, path.path), checks.root)
      if (target === null) {
        const why = `file:${path.path} is not in the functions root`
        throw at.manifest.error(`${at.manifest.label}: ${path.name}: ${why}`, path.name, 'move the package into it')
      }
      if (seen.has(target)) continue
      seen.add(target)
      const found = filesOf(target)
      bytes += found.reduce((sum, file) => sum + statSync(file).size, 0)
      files.push(...found)
      if (files.length > MAX_FILES || bytes > MAX_BYTES) {
        const why = `more than ${MAX_FILES} files or ${MAX_BYTES / 1024 / 1024} MiB in packages named by paths`
        throw at.manifest.error(`${at.manifest.label}: ${why}`, path.name, 'name a smaller folder')
      }
      const label = below(checks.root, join(target, NODE_MANIFEST))
      const text = statSync(target).isDirectory() ? readSmallFile(join(target, NODE_MANIFEST), label) : null
      if (text !== null) queue.push({ manifest: new NodeManifest(text, label), folder: target })
    }
  }
  return { files }
}

/** Adds what the packages hold to a key. */
export function addFilePackages(key: BuildKey, { files }: FilePackages, root: string): void {
  for (const file of files) key.add(below(root, file), readFileSync(file))
}

/** Copies the packages to where the same paths lead from a copy of the function's folder. @param tree - stands for the root */
export function copyFilePackages({ files }: FilePackages, root: string, tree: string): void {
  for (const file of files) {
    const copy = join(tree, relative(root, file))
    mkdirSync(dirname(copy), { recursive: true })
    copyFileSync(file, copy)
  }
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

/** The real path of what is inside the root; null for what is not, or is not there. */
function findInside(path: string, root: string): string | null {
  try {
    const real = realpathSync(path)
    return real.startsWith(root + sep) ? real : null
  } catch {
    return null
  }
}

/** Regular files; links are left out, because they could lead anywhere. */
function filesOf(target: string): string[] {
  const stats = lstatSync(target)
  if (stats.isFile()) return [target]
  const found: string[] = []
  const folders = [target]
  for (const folder of folders) {
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      if (SKIPPED.has(entry.name)) continue
      if (entry.isDirectory()) folders.push(join(folder, entry.name))
      else if (entry.isFile()) found.push(join(folder, entry.name))
      if (found.length > MAX_FILES) return found
    }
  }
  return found.sort()
}
