/**
 * `package.json` and `package-lock.json` beside a function: what they may name, what they ask for and pin, and how they are completed.
 * Owner: page dependencies/node.
 */

import { statSync } from 'node:fs'
import { isBuiltin } from 'node:module'
import { join } from 'node:path'
import { editJsonObject, findIndent, findJsonValue } from '../config/json-text.ts'
import type { GatewayError } from '../core/errors.ts'
import { isObject } from '../core/json.ts'
import { BuildKey } from './build-cache.ts'
import { labelOf, manifestError, parseManifest, readSmallFile, showToken } from './install-step.ts'

export const NODE_MANIFEST = 'package.json'
/** Marks a manifest that the gateway made. */
const GENERATED = 'Made from the imports of the function. Edit it freely: what stands here is kept.'
/** Fields that decide about packages; nothing else of a manifest reaches the installer, its scripts least of all. */
const FIELDS = [
  'dependencies',
  'devDependencies',
  'optionalDependencies',
  'peerDependencies',
  'peerDependenciesMeta',
  'overrides',
] as const
type Field = (typeof FIELDS)[number]
/** Where a manifest declares a package. */
export const DECLARING = ['dependencies', 'optionalDependencies', 'peerDependencies', 'devDependencies'] as const
/** Fields whose packages npm installs for the function itself. */
const INSTALLED = ['dependencies', 'optionalDependencies'] as const
/** Names to ranges. */
type Ranges = Readonly<Record<string, unknown>>

/** A manifest that was read. */
export class NodeManifest {
  readonly #text: string
  readonly #json: Record<string, unknown>
  /** Below the functions root, for messages. */
  readonly label: string

  readonly #omitted: ReadonlySet<string>

  /**
   * @param omitted - names of packages that are left out of every field
   * @throws GatewayError when it is not a JSON object, or a field has the wrong type
   */
  constructor(text: string, label: string, omitted: ReadonlySet<string> = new Set()) {
    this.#text = text.replace(/^\uFEFF/, '')
    this.label = label
    this.#omitted = omitted
    this.#json = parseManifest(this.#text, label, 'dependencies')
    for (const field of FIELDS) {
      const value = this.#json[field]
      if (value !== undefined && !isObject(value)) {
        const message = `${label}: ${field} must be an object of names and version ranges, got ${showToken(value)}`
        throw this.error(message, field, 'write { "name": "^1.0.0" }')
      }
    }
  }

  get name(): unknown {
    return this.#json.name
  }

  /** Of `package-lock.json`'s first entry: what a lock repeats of the manifest beside the packages. */
  get version(): unknown {
    return this.#json.version
  }

  /** True for one that the gateway made. */
  get isGenerated(): boolean {
    return this.#json.description === GENERATED
  }

  of(field: Field): Ranges {
    const value = this.#json[field]
    if (!isObject(value)) return {}
    if (this.#omitted.size === 0) return value
    return Object.fromEntries(Object.entries(value).filter(([name]) => !this.#omitted.has(name)))
  }

  /** True for a package of any field, one for development too. */
  declares(name: string): boolean {
    return DECLARING.some(field => Object.hasOwn(this.of(field), name))
  }

  /** Names of packages that are installed. */
  get names(): string[] {
    return INSTALLED.flatMap(field => Object.keys(this.of(field)))
  }

  /** The manifest without packages that are there already. */
  without(names: ReadonlySet<string>): NodeManifest {
    return names.size === 0 ? this : new NodeManifest(this.#text, this.label, names)
  }

  /** The fields that decide about packages, with further packages to install. */
  toStaged(more: Readonly<Record<string, string>> = {}): Record<string, unknown> {
    const staged: Record<string, unknown> = { name: STAGED_NAME, private: true }
    for (const field of FIELDS) if (Object.keys(this.of(field)).length > 0) staged[field] = this.of(field)
    if (Object.keys(more).length > 0) staged.dependencies = { ...this.of('dependencies'), ...more }
    return staged
  }

  /** The text with more dependencies: what is there keeps its order, indentation and line ends. */
  append(more: Readonly<Record<string, string>>): string {
    const indent = findIndent(this.#text)
    const before = findJsonValue(this.#text, 'dependencies')
    const entries = Object.entries(more).map(([name, range]) => [name, JSON.stringify(range)] as const)
    const dependencies = editJsonObject(before, new Map(entries), indent, 1)
    const isWindows = before === null && this.#text.includes('\r\n')
    const value = isWindows ? dependencies.replaceAll('\n', '\r\n') : dependencies
    const end = /\s*$/.exec(this.#text)?.[0] ?? ''
    return editJsonObject(this.#text, new Map([['dependencies', value]]), indent) + end
  }

  /** A failure that names the line of a word of the manifest. */
  error(message: string, word: string, hint: string): GatewayError {
    return manifestError({ text: this.#text, label: this.label }, message, word, hint)
  }
}

/** Name of the package that is installed from: one for all functions, so that equal manifests share one set. */
const STAGED_NAME = 'fngw-function'

/** @returns null when the folder has none @throws GatewayError when it cannot be used */
export function readNodeManifest(folder: string, folderLabel: string): NodeManifest | null {
  const label = labelOf({ label: folderLabel }, NODE_MANIFEST)
  const text = readSmallFile(join(folder, NODE_MANIFEST), label)
  return text === null ? null : new NodeManifest(text, label)
}

/** A manifest for a function without one. @param slug - from the function's name */
export function makeNodeManifest(slug: string, ranges: Readonly<Record<string, string>>): string {
  const name = `fn-${slug.toLowerCase().replace(/[^a-z0-9]+/g, '-')}`.replace(/-+$/, '').slice(0, 100)
  const json = { name, version: '1.0.0', private: true, description: GENERATED, dependencies: ranges }
  return `${JSON.stringify(json, null, 2)}\n`
}

// Names in imports and manifests: packages of the registry, and nothing that reads as an option, path or address.

/** Longest name the registry takes. */
const MAX_NAME_CHARS = 214
/** Begins with a letter or digit: never an option, a hidden file or a way upwards. Old names have capitals. */
const NAME = /^(?:@[A-Za-z0-9][A-Za-z0-9._~-]*\/)?[A-Za-z0-9][A-Za-z0-9._~-]*$/
const RESERVED: ReadonlySet<string> = new Set(['node_modules', 'favicon.ico'])
/** `^1.2.3`, `>=1 <3 || 5.x`, `1.0.0 - 2.0.0`, `latest`, `next-14`, `*` and nothing at all. */
const RANGE = /^[\w.+*^~<>=| -]*$/
const MAX_RANGE_CHARS = 256
const SCHEME = /^[a-z][a-z0-9+.-]*:/i

/** True for the name of a package that the registry could have. */
export function isPackageName(name: string): boolean {
  return name.length <= MAX_NAME_CHARS && NAME.test(name) && !RESERVED.has(name.toLowerCase())
}

/** The meaning of one import. */
type ImportTarget =
  | { kind: 'package'; name: string }
  /** Comes with node, with the function, or from an address that node reads itself. */
  | { kind: 'none' }
  /** Nothing that npm could install. */
  | { kind: 'unresolved' }

/** @param specifier - the text between the quotes of an import */
export function toImportTarget(specifier: string): ImportTarget {
  // `@/x` and `~/x` are what a tsconfig.json makes of them.
  if (/^\.\.?(?:\/|$)|^\/|^#|^[@~]\//.test(specifier) || /^[A-Za-z]:[\\/]/.test(specifier)) return { kind: 'none' }
  if (SCHEME.test(specifier)) return { kind: /^(?:node|data|file):/i.test(specifier) ? 'none' : 'unresolved' }
  const name = specifier.split('/', specifier.startsWith('@') ? 2 : 1).join('/')
  // `punycode/` is the package of that name, `punycode` what node brings.
  if (isBuiltin(specifier)) return { kind: 'none' }
  return isPackageName(name) ? { kind: 'package', name } : { kind: 'unresolved' }
}

/** The source that a manifest gives for one name. */
type PackageSource =
  | { kind: 'registry' }
  /** A folder or archive on this machine, as it is written after `file:`. */
  | { kind: 'file'; path: string }
  /** A repository or an address: fetched by other programs than the registry's client, from anywhere. */
  | { kind: 'address' }
  /** Only another package manager than npm installs it (`workspace:*`). */
  | { kind: 'foreign'; why: string }
  | { kind: 'wrong'; why: string }

/** @param spec - the value beside the name in `dependencies` */
export function toPackageSource(name: string, spec: unknown): PackageSource {
  if (!isPackageName(name)) {
    return { kind: 'wrong', why: `${showToken(name)} is not a package name` }
  }
  if (typeof spec !== 'string')
    return { kind: 'wrong', why: `${name} must be a version range as text, got ${showToken(spec)}` }
  const text = spec.trim()
  const wrong = (): PackageSource => ({ kind: 'wrong', why: `${name}: ${showToken(text)} is not a version range` })
  if (text.length > MAX_RANGE_CHARS && !text.startsWith('file:')) return wrong()
  if (RANGE.test(text)) return text.startsWith('-') ? wrong() : { kind: 'registry' }
  if (text.startsWith('file:')) return { kind: 'file', path: text.slice('file:'.length) }
  if (text.startsWith('npm:')) return isAlias(text.slice('npm:'.length)) ? { kind: 'registry' } : wrong()
  if (/^(?:workspace|catalog|link|portal|patch):/.test(text)) {
    const why = `${name}: ${showToken(spec)} is understood by other package managers than npm`
    return { kind: 'foreign', why }
  }
  if (/^\.{0,2}\//.test(text)) return { kind: 'file', path: text }
  if (SCHEME.test(text) || /^[\w.-]+@[\w.-]+:/.test(text) || /^[\w.-]+\/[\w.-]+(?:#.*)?$/.test(text))
    return { kind: 'address' }
  return wrong()
}

/** `lodash@^4`: the package that another name stands for. */
function isAlias(text: string): boolean {
  const at = text.indexOf('@', 1)
  const name = at === -1 ? text : text.slice(0, at)
  return isPackageName(name) && RANGE.test(at === -1 ? '' : text.slice(at + 1))
}

// Lock files beside a function: which one is used, its format, and the versions that it pins.

/** The lock files of npm; it reads the first one that is there. */
export const NODE_LOCKS = ['npm-shrinkwrap.json', 'package-lock.json'] as const
export const NODE_LOCK = 'package-lock.json'
/** Lock files of other package managers: not read, with a warning. */
const FOREIGN_LOCKS: ReadonlyMap<string, string> = new Map([
  ['pnpm-lock.yaml', 'pnpm'],
  ['yarn.lock', 'yarn'],
  ['bun.lock', 'bun'],
  ['bun.lockb', 'bun'],
])
/** The path of a lock's package below the folder of the manifest. */
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

  /** The manifest's own entry. */
  get #root(): Readonly<Record<string, unknown>> {
    return asObject(asObject(this.#json.packages)[''])
  }

  /** All but the manifest's own entry; none of a lock in the format before npm 7. */
  get packages(): LockedPackage[] {
    return Object.entries(asObject(this.#json.packages)).flatMap(([path, fields]) => {
      const name = PACKAGE_PATH.exec(path)?.[1]
      return name !== undefined && isObject(fields) ? { path, name, fields } : []
    })
  }

  /** True when it was made from this manifest, as `npm ci` requires. */
  isOf(manifest: NodeManifest): boolean {
    return INSTALLED.every(field => {
      const own = asObject(this.#root[field])
      const ranges = manifest.of(field)
      const names = Object.keys(own)
      return names.length === Object.keys(ranges).length && names.every(name => own[name] === ranges[name])
    })
  }

  /** True for a name that the manifest had when the file was written, and for every name in the format before npm 7. */
  isDeclaring(name: string): boolean {
    if (!isObject(this.#json.packages)) return true
    return NAMING_FIELDS.some(field => Object.hasOwn(asObject(this.#root[field]), name))
  }

  /**
   * The file without packages from paths that the manifest does not name any more: npm would install them from there, or refuse.
   * Their replacements are resolved again.
   */
  withoutStalePaths(manifest: NodeManifest | null): NodeLock {
    const json = structuredClone(this.#json)
    const packages = asObject(json.packages)
    const stale = NAMING_FIELDS.flatMap(field =>
      Object.entries(asObject(this.#root[field])).flatMap(([name, spec]) => {
        const isPath = toPackageSource(name, spec).kind === 'file'
        return isPath && !DECLARING.some(own => manifest?.of(own)[name] === spec) ? [`node_modules/${name}`] : []
      }),
    )
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
    return entriesOf(this.#json).flatMap(({ name, fields }) => {
      const { resolved, version, link } = fields
      const isTarball = typeof resolved === 'string' && /^https?:/i.test(resolved) && link !== true
      const texts = [
        ...(isTarball || resolved === undefined ? [] : [resolved]),
        ...(isRange(version) ? [] : [version]),
        // npm fetches what the file lacks from where the package that needs it says.
        ...NAMING_FIELDS.flatMap(field => Object.values(asObject(fields[field]))).filter(isAddress),
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

  /** Digest of all that it pins, whatever the manifest around it is called. */
  get digest(): string {
    const key = new BuildKey()
    for (const { path, fields } of this.packages) key.add(path, JSON.stringify(fields))
    return key.toString()
  }

  /** The text as npm writes it beside a manifest, with the manifest's name, version and dependencies. */
  toTextFor(manifest: NodeManifest): string {
    const { name: _name, version: _version, packages, ...rest } = this.#json
    const { '': _root, ...others } = asObject(packages)
    const { name: _own, version: _old, ...fields } = this.#root
    const title = {
      ...(typeof manifest.name === 'string' && { name: manifest.name }),
      ...(typeof manifest.version === 'string' && { version: manifest.version }),
    }
    const named: Record<string, unknown> = {}
    for (const field of INSTALLED) if (Object.keys(manifest.of(field)).length > 0) named[field] = manifest.of(field)
    const json = { ...title, ...rest, packages: { '': { ...title, ...fields, ...named }, ...others } }
    return `${JSON.stringify(json, null, 2)}\n`
  }
}

function asObject(value: unknown): Record<string, unknown> {
  return isObject(value) ? value : {}
}

/** Fields of a package in a lock file that name others; `requires` before npm 7. */
const NAMING_FIELDS = ['dependencies', 'optionalDependencies', 'peerDependencies', 'requires'] as const

/** A package of a lock file that is not a version of a registry. */
interface LockedSource {
  name: string
  /** As it is written. */
  text: string
  /** Path from the folder of the lock file; null for an address. */
  path: string | null
}

/** Packages of every format: those of npm 7 by path, those before it inside each other. */
function entriesOf(json: Readonly<Record<string, unknown>>): { name: string; fields: Record<string, unknown> }[] {
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

/**
 * The lock file of a folder, null when it has none of npm's.
 * @returns `problem` - why one that is there cannot be used (§2.16.4: ordinary install)
 */
export function readNodeLock(folder: string, folderLabel: string): { lock: NodeLock | null; problem: string | null } {
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

/** The warning for a lock file that is not read; null when there is none or npm's is beside it. */
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
