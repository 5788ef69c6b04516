/** Lock files beside a function: which one is used, what it may say, and what it pins. Owner: page dependencies/node. */

import { statSync } from 'node:fs'
import { join } from 'node:path'
import { isObject } from '../core/json.ts'
import { BuildKey } from './build-cache.ts'
import { readSmallFile } from './manifest-text.ts'
import { DECLARING, type NodeManifest } from './node-manifest.ts'
import { toPackageSource } from './node-names.ts'
import { labelOf } from './unit-files.ts'

/** What npm reads, first found wins; as npm does it. */
export const NODE_LOCKS = ['npm-shrinkwrap.json', 'package-lock.json'] as const
export const NODE_LOCK = 'package-lock.json'
/** Of other package managers: not read, and told. */
const FOREIGN_LOCKS: ReadonlyMap<string, string> = new Map([
  ['pnpm-lock.yaml', 'pnpm'],
  ['yarn.lock', 'yarn'],
  ['bun.lock', 'bun'],
  ['bun.lockb', 'bun'],
])
/** Where a lock's packages lie, below the folder of the manifest. */
const PACKAGE_PATH = /(?:^|\/)node_modules\/((?:@[^/]+\/)?[^/]+)$/

interface LockedPackage {
  /** `node_modules/a/node_modules/b`. */
  path: string
  name: string
  fields: Readonly<Record<string, unknown>>
}

export class NodeLock {
  readonly fileName: string
  readonly text: string
  readonly #json: Readonly<Record<string, unknown>>

  /** @throws Error that names the file when npm could not read it */
  constructor(fileName: string, text: string, label: string) {
    this.fileName = fileName
    this.text = text
    let json: unknown
    try {
      json = JSON.parse(text)
    } catch {
      throw new Error(`${label}: not valid JSON`)
    }
    if (!isObject(json)) throw new Error(`${label}: must be a JSON object`)
    const problem = findProblem('packages', json.packages) ?? findProblem('dependencies', json.dependencies)
    if (problem !== null) throw new Error(`${label}: ${problem}`)
    this.#json = json
  }

  /** All but the manifest's own entry; none of a lock in the format before npm 7. */
  get packages(): LockedPackage[] {
    const packages = isObject(this.#json.packages) ? this.#json.packages : {}
    return Object.entries(packages).flatMap(([path, fields]) => {
      const name = PACKAGE_PATH.exec(path)?.[1]
      return name !== undefined && isObject(fields) ? { path, name, fields } : []
    })
  }

  /** True when it was made from these wishes: what `npm ci` asks of it. */
  isOf(field: string, ranges: Readonly<Record<string, unknown>>): boolean {
    const packages = isObject(this.#json.packages) ? this.#json.packages : {}
    const root = isObject(packages['']) ? packages[''] : {}
    const own = isObject(root[field]) ? root[field] : {}
    const names = Object.keys(own)
    return names.length === Object.keys(ranges).length && names.every(name => own[name] === ranges[name])
  }

  /** True for a name that the manifest had when the file was written, and for every name in the format before npm 7. */
  isDeclaring(name: string): boolean {
    if (!isObject(this.#json.packages)) return true
    const { '': root } = this.#json.packages
    return WISHES.some(field => isObject(root) && isObject(root[field]) && Object.hasOwn(root[field], name))
  }

  /**
   * The file without packages from paths that the manifest names no more: npm would install them from there, or refuse. What it
   * names instead is resolved again.
   */
  withoutStalePaths(manifest: NodeManifest | null): NodeLock {
    const json = structuredClone(this.#json)
    const packages = isObject(json.packages) ? json.packages : {}
    const root = isObject(packages['']) ? packages[''] : {}
    const stale = WISHES.flatMap(field => {
      const wishes = isObject(root[field]) ? Object.entries(root[field]) : []
      return wishes.flatMap(([name, spec]) => {
        const isPath = toPackageSource(name, spec).kind === 'file'
        return isPath && !DECLARING.some(own => manifest?.of(own)[name] === spec) ? [`node_modules/${name}`] : []
      })
    })
    if (stale.length === 0) return this
    for (const path of stale) {
      const entry = packages[path]
      const places = [path, ...(isObject(entry) && entry.link === true ? [String(entry.resolved)] : [])]
      for (const key of Object.keys(packages)) {
        if (places.some(place => key === place || key.startsWith(`${place}/node_modules/`))) delete packages[key]
      }
    }
    return new NodeLock(this.fileName, `${JSON.stringify(json, null, 2)}\n`, this.fileName)
  }

  /** Version of a package right in `node_modules`. */
  versionOf(name: string): string | null {
    const version = this.packages.find(({ path }) => path === `node_modules/${name}`)?.fields.version
    return typeof version === 'string' ? version : null
  }

  /** Where packages come from that are not versions of a registry: `git+ssh://...`, `file:../lib`. */
  get sources(): LockedSource[] {
    return this.#entries().flatMap(({ name, fields }) => {
      const { resolved, version, link } = fields
      const isTarball = typeof resolved === 'string' && /^https?:/i.test(resolved) && link !== true
      const texts = [
        ...(isTarball || resolved === undefined ? [] : [resolved]),
        ...(isRange(version) ? [] : [version]),
        // npm fetches what the file lacks from where the package that needs it says.
        ...WISHES.flatMap(field => (isObject(fields[field]) ? Object.values(fields[field]) : [])).filter(isAddress),
      ]
      return texts.map(text => ({ name, text: String(text), path: toPath(String(text), link === true) }))
    })
  }

  /**
   * The text that npm gets where packages come from the registry alone: npm asks the registry for the tarball of each version,
   * whatever address the file has, and compares it with the digest in the file.
   */
  toStaged(): string {
    const json = structuredClone(this.#json)
    for (const { fields } of entriesOf(json)) {
      if (typeof fields.resolved === 'string' && /^https?:/i.test(fields.resolved)) delete fields.resolved
    }
    return `${JSON.stringify(json, null, 2)}\n`
  }

  #entries(): LockedEntry[] {
    return entriesOf(this.#json)
  }

  /** Digest of all that it pins, whatever the manifest around it is called. */
  get digest(): string {
    const key = new BuildKey()
    for (const { path, fields } of this.packages) key.add(path, JSON.stringify(fields))
    return key.toString()
  }

  /** The text as npm writes it beside a manifest, with the manifest's name, version and wishes. */
  toTextFor(manifest: NodeManifest): string {
    const { name: _name, version: _version, packages, ...rest } = this.#json
    const all = isObject(packages) ? packages : {}
    const { '': root, ...others } = all
    const { name: _own, version: _old, ...fields } = isObject(root) ? root : {}
    const title = {
      ...(typeof manifest.name === 'string' && { name: manifest.name }),
      ...(typeof manifest.version === 'string' && { version: manifest.version }),
    }
    const wishes: Record<string, unknown> = {}
    for (const field of ['dependencies', 'optionalDependencies'] as const)
      if (Object.keys(manifest.of(field)).length > 0) wishes[field] = manifest.of(field)
    const json = { ...title, ...rest, packages: { '': { ...title, ...fields, ...wishes }, ...others } }
    return `${JSON.stringify(json, null, 2)}\n`
  }
}

/** Fields of a package in a lock file that name others; `requires` before npm 7. */
const WISHES = ['dependencies', 'optionalDependencies', 'peerDependencies', 'requires'] as const

interface LockedEntry {
  name: string
  fields: Record<string, unknown>
}

/** A package of a lock file that is not a version of a registry. */
interface LockedSource {
  name: string
  /** As it is written. */
  text: string
  /** Path from the folder of the lock file; null for an address. */
  path: string | null
}

/** Packages of every format: those of npm 7 by path, those before it inside each other. */
function entriesOf(json: Readonly<Record<string, unknown>>): LockedEntry[] {
  const { packages } = json
  if (isObject(packages)) {
    return Object.entries(packages).flatMap(([path, fields]) =>
      path !== '' && isObject(fields) ? { name: PACKAGE_PATH.exec(path)?.[1] ?? path, fields } : [],
    )
  }
  if (!isObject(json.dependencies)) return []
  return Object.entries(json.dependencies).flatMap(([name, fields]) =>
    isObject(fields) ? [{ name, fields }, ...entriesOf({ dependencies: fields.dependencies })] : [],
  )
}

/** Why npm, clean install and ordinary install alike, would fail on the entries of a lock file; null when it would not. */
function findProblem(at: string, entries: unknown): string | null {
  if (entries === undefined) return null
  if (!isObject(entries)) return `${at} must be an object`
  for (const [name, fields] of Object.entries(entries)) {
    const path = `${at}[${JSON.stringify(name)}]`
    if (!isObject(fields)) return `${path} must be an object`
    const { version, dependencies } = fields
    // The manifest's own entry, '', has any text there; an address or an alias has other signs.
    const isVersion =
      version === undefined || name === '' || (typeof version === 'string' && /^\d+\.\d+\.\d+|[:/]/.test(version))
    if (!isVersion) return `${path}.version must be a version`
    const isFlat = at === 'packages'
    if (isFlat && dependencies !== undefined && !isObject(dependencies)) return `${path}.dependencies must be an object`
    const nested = isFlat ? null : findProblem(`${path}.dependencies`, dependencies)
    if (nested !== null) return nested
  }
  return null
}

/** A version, or a version of another package: `npm:other@1.0.0`. */
function isRange(version: unknown): boolean {
  return version === undefined || toPackageSource('x', version).kind === 'registry'
}

function isAddress(spec: unknown): boolean {
  return toPackageSource('x', spec).kind === 'address'
}

function toPath(text: string, isLink: boolean): string | null {
  if (/^file:/i.test(text)) return text.slice('file:'.length)
  return isLink || !/^(?:[a-z][a-z0-9+.-]*:|[^/]*@)/i.test(text) ? text : null
}

/** @returns null when the folder has none of npm's */
export function readNodeLock(folder: string, folderLabel: string): ReadLock {
  for (const name of NODE_LOCKS) {
    const label = labelOf({ label: folderLabel }, name)
    const text = readSmallFile(join(folder, name), label)
    if (text === null) continue
    try {
      return { lock: new NodeLock(name, text, label), problem: null }
    } catch (error) {
      const problem = `${(error as Error).message}; packages are installed from package.json instead, and versions may differ`
      return { lock: null, problem }
    }
  }
  return { lock: null, problem: null }
}

/** The lock file of a folder; `problem` says why one that is there cannot be used (§2.16.4: ordinary install). */
interface ReadLock {
  lock: NodeLock | null
  problem: string | null
}

/** What is said of a lock file that is not read; null when there is none or npm's is beside it. */
export function foreignLockNote(folder: string, label: string, lock: NodeLock | null): string | null {
  if (lock !== null) return null
  for (const [name, manager] of FOREIGN_LOCKS) {
    if (statSync(join(folder, name), { throwIfNoEntry: false }) === undefined) continue
    const at = labelOf({ label }, name)
    return (
      `${at} is not read: packages are installed by npm from package.json, and versions may differ. ` +
      `Run npm install --package-lock-only in the folder, or ${manager} install there: ` +
      'a node_modules that is there already is used as it is'
    )
  }
  return null
}
