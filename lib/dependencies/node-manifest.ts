/**
 * `package.json` and `package-lock.json` beside a function: what they may name, what they ask for and pin, and how they are completed.
 * Owner: page dependencies/node.
 */

import { lstatSync } from 'node:fs'
import { isBuiltin } from 'node:module'
import { join, resolve } from 'node:path'
import { editJsonObject, findIndent, findJsonValue } from '../config/json-text.ts'
import type { GatewayError } from '../core/errors.ts'
import { isObject } from '../core/json.ts'
import { BuildKey } from './build-cache.ts'
import { below, hasFile, labelOf } from './build.ts'
import type { FilePackages } from './file-packages.ts'
import { JsonManifest, readBeside, showToken, toObject } from './install-step.ts'

export const NODE_MANIFEST = 'package.json'
/** Marks a manifest that the gateway made. */
const GENERATED = 'Made from the imports of the function. Edit it freely: what stands here is kept.'
/** Name of the package that is installed from: one for all functions, so that equal manifests share one set. */
const STAGED_NAME = 'fngw-function'
const INSTALLED = ['dependencies', 'optionalDependencies'] as const
const INSTALLED_FIELDS = [...INSTALLED, 'peerDependencies'] as const
/** Where a manifest declares a package. */
export const DECLARING = [...INSTALLED_FIELDS, 'devDependencies'] as const
/** Fields that decide about packages; nothing else of a manifest reaches the installer, its scripts least of all. */
const FIELDS = [
  ...['dependencies', 'devDependencies', 'optionalDependencies', 'peerDependencies'],
  ...['peerDependenciesMeta', 'overrides'],
] as const
const SOURCES_SETTING = 'FN_NODE_PACKAGE_SOURCES'

type Ranges = Readonly<Record<string, string>>

export class NodeManifest extends JsonManifest {
  readonly #omitted: ReadonlySet<string>

  /**
   * @param omitted - names of packages that are left out of every field
   * @throws GatewayError when it is not a JSON object, or a field has the wrong type
   */
  constructor(text: string, label: string, omitted: ReadonlySet<string> = new Set()) {
    super(text, label, 'dependencies')
    this.#omitted = omitted
    for (const field of FIELDS) {
      const value = this.json[field]
      if (value === undefined || isObject(value)) continue
      const why = `${field} must be an object of names and version ranges, got ${showToken(value)}`
      throw this.error(why, field, 'write { "name": "^1.0.0" }')
    }
  }

  get isGenerated(): boolean {
    return this.json.description === GENERATED
  }

  of(field: string): Readonly<Record<string, unknown>> {
    const entries = Object.entries(this.objectOf(field))
    return Object.fromEntries(entries.filter(([name]) => !this.#omitted.has(name)))
  }

  /** @param fields - default: all, for a package for development too */
  declares(name: string, fields: readonly string[] = DECLARING): boolean {
    return fields.some(field => Object.hasOwn(this.of(field), name))
  }

  installs(name: string): boolean {
    return this.declares(name, INSTALLED_FIELDS)
  }

  get names(): string[] {
    return INSTALLED.flatMap(field => Object.keys(this.of(field)))
  }

  /** The manifest without packages that are there already. */
  without(names: ReadonlySet<string>): NodeManifest {
    return names.size === 0 ? this : new NodeManifest(this.text, this.label, names)
  }

  /** The fields that decide about packages, with further packages to install. */
  toStaged(more: Ranges = {}): Record<string, unknown> {
    const staged: Record<string, unknown> = { name: STAGED_NAME, private: true, ...this.filled(FIELDS) }
    if (Object.keys(more).length > 0) staged.dependencies = { ...this.of('dependencies'), ...more }
    return staged
  }

  filled(fields: readonly string[]): Record<string, unknown> {
    const filled = fields.map(field => [field, this.of(field)] as const)
    return Object.fromEntries(filled.filter(([, ranges]) => Object.keys(ranges).length > 0))
  }

  /** The text with more dependencies: what is there keeps its order, indentation and line ends. */
  append(more: Ranges): string {
    const indent = findIndent(this.text)
    const before = findJsonValue(this.text, 'dependencies')
    const entries = Object.entries(more).map(([name, range]) => [name, JSON.stringify(range)] as const)
    const dependencies = editJsonObject(before, new Map(entries), indent, 1)
    const isWindows = before === null && this.text.includes('\r\n')
    const value = isWindows ? dependencies.replaceAll('\n', '\r\n') : dependencies
    const end = /\s*$/.exec(this.text)?.[0] ?? ''
    return editJsonObject(this.text, new Map([['dependencies', value]]), indent) + end
  }
}

export function readNodeManifest(folder: string, label: string): NodeManifest | null {
  return readBeside(folder, label, NODE_MANIFEST, (text, file) => new NodeManifest(text, file))
}

/** A manifest for a function without one. @param slug - from the function's name */
export function makeNodeManifest(slug: string, ranges: Ranges): string {
  const name = `fn-${slug.toLowerCase().replace(/[^a-z0-9]+/g, '-')}`.replace(/-+$/, '').slice(0, 100)
  return toText({ name, version: '1.0.0', private: true, description: GENERATED, dependencies: ranges })
}

function toText(json: object): string {
  return `${JSON.stringify(json, null, 2)}\n`
}

// Names in imports and manifests: packages of the registry, and nothing that reads as an option, path or address.

const MAX_NAME_CHARS = 214
/** Begins with a letter or digit: never an option, a hidden file or a way upwards. Old names have capitals. */
const NAME = /^(?:@[A-Za-z0-9][A-Za-z0-9._~-]*\/)?[A-Za-z0-9][A-Za-z0-9._~-]*$/
const RESERVED: ReadonlySet<string> = new Set(['node_modules', 'favicon.ico'])
/** `^1.2.3`, `>=1 <3 || 5.x`, `1.0.0 - 2.0.0`, `latest`, `next-14`, `*` and nothing at all. */
const RANGE = /^[\w.+*^~<>=| -]*$/
const MAX_RANGE_CHARS = 256
const SCHEME = /^[a-z][a-z0-9+.-]*:/i

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

export function toPackageSource(name: string, spec: unknown): PackageSource {
  const wrong = (why: string): PackageSource => ({ kind: 'wrong', why })
  if (!isPackageName(name)) return wrong(`${showToken(name)} is not a package name`)
  if (typeof spec !== 'string') return wrong(`${name} must be a version range as text, got ${showToken(spec)}`)
  const text = spec.trim()
  const notRange = `${name}: ${showToken(text)} is not a version range`
  if (text.startsWith('file:')) return { kind: 'file', path: text.slice('file:'.length) }
  if (text.length > MAX_RANGE_CHARS) return wrong(notRange)
  if (RANGE.test(text)) return text.startsWith('-') ? wrong(notRange) : { kind: 'registry' }
  if (text.startsWith('npm:')) return isAlias(text.slice('npm:'.length)) ? { kind: 'registry' } : wrong(notRange)
  if (/^(?:workspace|catalog|link|portal|patch):/.test(text)) {
    return { kind: 'foreign', why: `${name}: ${showToken(spec)} is understood by other package managers than npm` }
  }
  if (/^\.{0,2}\//.test(text)) return { kind: 'file', path: text }
  const isAddress = SCHEME.test(text) || /^[\w.-]+@[\w.-]+:/.test(text) || /^[\w.-]+\/[\w.-]+(?:#.*)?$/.test(text)
  return isAddress ? { kind: 'address' } : wrong(notRange)
}

/** `lodash@^4`: the package that another name stands for. */
function isAlias(text: string): boolean {
  const at = text.indexOf('@', 1)
  const name = at === -1 ? text : text.slice(0, at)
  return isPackageName(name) && RANGE.test(at === -1 ? '' : text.slice(at + 1))
}

// Sources of a manifest and of the packages that it names by paths (`file:../lib`): each one is checked.

/**
 * Checks every name and source of a manifest, and of the packages it names by paths.
 * @param packages - gets these packages
 * @throws GatewayError naming the line of the manifest
 */
export function checkSources(manifest: NodeManifest, packages: FilePackages): void {
  const { allowSources, boundName, root } = packages
  const queue = [{ manifest, folder: packages.folder }]
  for (const at of queue) {
    for (const { name, path } of pathsOf(at.manifest, allowSources)) {
      const target = packages.find(resolve(at.folder, path))
      if (target === null) {
        const hint = `run npm install in the workspace it belongs to, move the package into ${boundName}, or set ${SOURCES_SETTING}=1`
        throw at.manifest.error(`${name}: file:${path} is not in ${boundName}`, name, hint)
      }
      if (!packages.add(target, why => at.manifest.error(why, name, 'name a smaller folder'))) continue
      // The dependencies of an archive are checked in the lock file that the install leaves. A link is not copied with its package.
      const file = join(target, NODE_MANIFEST)
      if (lstatSync(target).isFile() || lstatSync(file, { throwIfNoEntry: false })?.isFile() !== true) continue
      queue.push({ manifest: readNodeManifest(target, below(root, target) || '.')!, folder: target })
    }
  }
}

function pathsOf(manifest: NodeManifest, allowSources: boolean): { name: string; path: string }[] {
  checkUninstalled(manifest, allowSources)
  return INSTALLED_FIELDS.flatMap(field =>
    Object.entries(manifest.of(field)).flatMap(([name, spec]) => {
      const source = toPackageSource(name, spec)
      if (source.kind === 'file') return { name, path: source.path }
      if (source.kind === 'foreign') {
        const hint = 'run its install in the workspace: what is in node_modules there is used'
        throw manifest.error(`${field}: ${source.why}`, name, hint)
      }
      if (source.kind === 'wrong')
        throw manifest.error(`${field}: ${source.why}`, name, 'write a range such as "^1.2.3"')
      if (source.kind === 'address' && !allowSources) throw addressError(manifest, field, name, spec)
      return []
    }),
  )
}

/** npm resolves the packages of these fields too, and may install what an override names. */
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
  const why = `${field}: ${name} comes from ${showToken(spec)}, not from the registry`
  return manifest.error(why, name, `name a version, or set ${SOURCES_SETTING}=1`)
}

// Lock files beside a function: which one is used, its format, and the versions that it pins.

/** The lock files of npm; it reads the first one that is there. */
export const NODE_LOCKS = ['npm-shrinkwrap.json', 'package-lock.json'] as const
export const NODE_LOCK = 'package-lock.json'
/** Lock files of other package managers: not read, with a warning. */
const FOREIGN_LOCKS = { 'pnpm-lock.yaml': 'pnpm', 'yarn.lock': 'yarn', 'bun.lock': 'bun', 'bun.lockb': 'bun' }
/** The path of a lock's package below the folder of the manifest. */
const PACKAGE_PATH = /(?:^|\/)node_modules\/((?:@[^/]+\/)?[^/]+)$/
/** Fields of a package in a lock file that name others; `requires` before npm 7. */
const NAMING_FIELDS = [...INSTALLED_FIELDS, 'requires'] as const

type Fields = Readonly<Record<string, unknown>>

interface LockedPackage {
  path: string
  name: string
  fields: Fields
}

/** A package of a lock file that is not a version of a registry. */
interface LockedSource {
  name: string
  text: string
  /** Path from the folder of the lock file; null for an address. */
  path: string | null
}

/** A lock file that npm could not read. */
class LockProblem extends Error {}

export class NodeLock {
  readonly fileName: string
  readonly text: string
  readonly #json: Fields

  constructor(fileName: string, text: string, label: string) {
    this.fileName = fileName
    this.text = text
    let json: unknown
    try {
      json = JSON.parse(text)
    } catch {
      throw new LockProblem(`${label}: not valid JSON`)
    }
    if (!isObject(json)) throw new LockProblem(`${label}: must be a JSON object`)
    const problem = findProblem('packages', json.packages) ?? findProblem('dependencies', json.dependencies)
    if (problem !== null) throw new LockProblem(`${label}: ${problem}`)
    this.#json = json
  }

  /** The manifest's own entry. */
  get #root(): Fields {
    return toObject(toObject(this.#json.packages)[''])
  }

  /** All but the manifest's own entry; none of a lock in the format before npm 7. */
  get packages(): LockedPackage[] {
    return Object.entries(toObject(this.#json.packages)).flatMap(([path, fields]) => {
      const name = PACKAGE_PATH.exec(path)?.[1]
      return name !== undefined && isObject(fields) ? { path, name, fields } : []
    })
  }

  /** True when it was made from this manifest, as `npm ci` requires. */
  isOf(manifest: NodeManifest): boolean {
    return INSTALLED.every(field => {
      const own = toObject(this.#root[field])
      const ranges = manifest.of(field)
      const names = Object.keys(own)
      return names.length === Object.keys(ranges).length && names.every(name => own[name] === ranges[name])
    })
  }

  /** True for a name that the manifest had when the file was written, and for every name in the format before npm 7. */
  isDeclaring(name: string): boolean {
    if (!isObject(this.#json.packages)) return true
    return NAMING_FIELDS.some(field => Object.hasOwn(toObject(this.#root[field]), name))
  }

  /**
   * The file without packages from paths that the manifest does not name any more: npm would install them from there, or refuse.
   * Their replacements are resolved again.
   */
  withoutStalePaths(manifest: NodeManifest | null): NodeLock {
    const entries = NAMING_FIELDS.flatMap(field => Object.entries(toObject(this.#root[field])))
    const stale = entries.filter(([name, spec]) => {
      const isNamed = DECLARING.some(field => manifest?.of(field)[name] === spec)
      return !isNamed && toPackageSource(name, spec).kind === 'file'
    })
    if (stale.length === 0) return this
    const json = structuredClone(this.#json)
    const packages = toObject(json.packages) as Record<string, unknown>
    for (const [name] of stale) {
      const path = `node_modules/${name}`
      const { link, resolved } = toObject(packages[path])
      const places = link === true ? [path, String(resolved)] : [path]
      for (const key of Object.keys(packages)) {
        if (places.some(place => key === place || key.startsWith(`${place}/node_modules/`))) delete packages[key]
      }
    }
    return new NodeLock(this.fileName, toText(json), this.fileName)
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
      const isRange = version === undefined || toPackageSource('x', version).kind === 'registry'
      // npm fetches what the file lacks from where the package that needs it says.
      const specs = NAMING_FIELDS.flatMap(field => Object.values(toObject(fields[field])))
      const texts = [
        ...(isTarball || resolved === undefined ? [] : [resolved]),
        ...(isRange ? [] : [version]),
        ...specs.filter(spec => toPackageSource('x', spec).kind === 'address'),
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
    return toText(json)
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
    const { '': _root, ...others } = toObject(packages)
    const { name: _own, version: _old, ...fields } = this.#root
    const { name, version } = manifest.json
    const title = { ...(typeof name === 'string' && { name }), ...(typeof version === 'string' && { version }) }
    const own = { ...title, ...fields, ...manifest.filled(INSTALLED) }
    return toText({ ...title, ...rest, packages: { '': own, ...others } })
  }
}

/** Packages of every format: those of npm 7 by path, those before it inside each other. */
function entriesOf(json: Fields): { name: string; fields: Record<string, unknown> }[] {
  const { packages, dependencies } = json
  if (isObject(packages)) {
    return Object.entries(packages).flatMap(([path, fields]) =>
      path !== '' && isObject(fields) ? { name: PACKAGE_PATH.exec(path)?.[1] ?? path, fields } : [],
    )
  }
  return Object.entries(toObject(dependencies)).flatMap(([name, fields]) =>
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
    // In `packages` they are names and ranges, before npm 7 packages.
    const isRanges = at === 'packages' && isObject(dependencies)
    const nested = isRanges ? null : findProblem(`${path}.dependencies`, dependencies)
    if (nested !== null) return nested
  }
  return null
}

function toPath(text: string, isLink: boolean): string | null {
  if (/^file:/i.test(text)) return text.slice('file:'.length)
  return isLink || !/^(?:[a-z][a-z0-9+.-]*:|[^/]*@)/i.test(text) ? text : null
}

/**
 * The lock file of a folder, null when it has none of npm's that can be used.
 * @returns `note` - a warning about one that is there and not used (§2.16.4: ordinary install)
 */
export function readNodeLock(folder: string, label: string): { lock: NodeLock | null; note: string | null } {
  for (const name of NODE_LOCKS) {
    try {
      const lock = readBeside(folder, label, name, (text, file) => new NodeLock(name, text, file))
      if (lock !== null) return { lock, note: null }
    } catch (error) {
      if (!(error instanceof LockProblem)) throw error
      const note = `${error.message}; packages are installed from package.json instead, and versions may differ`
      return { lock: null, note }
    }
  }
  const foreign = Object.entries(FOREIGN_LOCKS).find(([name]) => hasFile(folder, name))
  if (foreign === undefined) return { lock: null, note: null }
  const [name, manager] = foreign
  const note =
    `${labelOf(label, name)} is not read: packages are installed by npm from package.json, and versions may differ. ` +
    `Run npm install --package-lock-only in the folder, or ${manager} install there: ` +
    'a node_modules that is there already is used as it is'
  return { lock: null, note }
}
