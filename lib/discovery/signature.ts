/** What makes a started worker out of date. Owner: §2.2, page discovery/layouts. */

import { hash } from 'node:crypto'
import type { EnvValue, Policy } from '../core/catalog.ts'
import { RUNTIME_OF_EXTENSION, RUNTIMES, type RuntimeName } from '../core/identity.ts'
import { extensionOf, isSourceName, manifestRuntime } from './file-name.ts'
import type { DirNode, FileEntry } from './snapshot.ts'
import { toChild } from './tree-path.ts'

/** Per runtime a text that changes when a helper file in reach changes; empty without helpers. */
export type Helpers = Readonly<Record<RuntimeName, string>>

export const NO_HELPERS: Helpers = Object.freeze({ python: '', node: '', php: '', lua: '', go: '', rust: '' })

/** Lists a helper file as text that differs when the file does. */
export function stampOf(folder: string, file: FileEntry): string {
  return `${toChild(folder, file.name)}|${file.size}|${file.mtimeMs}`
}

/** Source files of a folder and all below it, such as `_lib` or `src`. */
export function sourcesBelow(node: DirNode): { folder: string; file: FileEntry }[] {
  const own = node.files.filter(file => isSourceName(file.name)).map(file => ({ folder: node.path, file }))
  return [...own, ...node.dirs.flatMap(sourcesBelow)]
}

/** A text that changes when a manifest of a folder's functions does; empty without one. */
export function manifestsOf(node: DirNode, runtime: RuntimeName): string {
  const found = node.files.filter(file => manifestRuntime(file.name) === runtime)
  return found.map(file => stampOf(node.path, file)).join('\n')
}

/** Per runtime the list of packages beside a function, and the folder they are installed into. */
const PACKAGES: Partial<Record<RuntimeName, readonly [manifest: string, installed: string]>> = {
  python: ['requirements.txt', '.deps'],
  node: ['package.json', 'node_modules'],
  php: ['composer.json', 'vendor'],
}

/** True for a folder with a list of packages and no folder of installed ones. */
export function lacksPackages(node: DirNode, runtime: RuntimeName): boolean {
  const names = PACKAGES[runtime]
  if (names === undefined || !node.files.some(file => file.name === names[0])) return false
  return !node.dirs.some(dir => dir.name === names[1])
}

/** Adds the helpers of one folder to those in reach from above. */
export function addHelpers(above: Helpers, found: readonly { folder: string; file: FileEntry }[]): Helpers {
  if (found.length === 0) return above
  const stamps = new Map<RuntimeName, string[]>()
  for (const { folder, file } of found) {
    const runtime = RUNTIME_OF_EXTENSION.get(extensionOf(file.name))
    if (runtime === undefined) continue
    const known = stamps.get(runtime) ?? []
    known.push(stampOf(folder, file))
    stamps.set(runtime, known)
  }
  const helpers: Record<RuntimeName, string> = { ...above }
  for (const [runtime, texts] of stamps) helpers[runtime] = digest(`${above[runtime]}\n${texts.join('\n')}`)
  return helpers
}

export function sameHelpers(a: Helpers, b: Helpers): boolean {
  return a === b || RUNTIMES.every(runtime => a[runtime] === b[runtime])
}

/**
 * The signature of a function version: the handler, its helpers and what its workers are started with. Limits are not
 * part of it, they hold from the next call on; data files are not, since a handler may write them at every call.
 */
export function toSignature(
  entryFile: string,
  entry: FileEntry,
  helpers: string,
  manifests: string,
  policy: Policy,
  env: Readonly<Record<string, EnvValue>>,
): string {
  const { handler, adapterName, sharedDeps, allowScripts } = policy
  const started = JSON.stringify([handler, adapterName, sharedDeps, allowScripts, Object.entries(env)])
  return digest(`${entryFile}|${entry.size}|${entry.mtimeMs}|${helpers}|${manifests}|${started}`)
}

/** Short, and no way back to the env values in it. */
function digest(text: string): string {
  return hash('sha256', text, 'buffer').toString('base64url', 0, 18)
}
