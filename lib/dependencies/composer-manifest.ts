/**
 * `composer.json` and `composer.lock` beside a function: read and checked, with the files that they name by paths.
 * Owner: page dependencies/php.
 */

import { dirname, join, relative, sep } from 'node:path'
import { type GatewayError, orNull } from '../core/errors.ts'
import { isObject } from '../core/json.ts'
import { namesIn } from '../files/own-folder.ts'
import { BuildKey } from './build-cache.ts'
import type { FilePackages } from './file-packages.ts'
import { JsonManifest, readBeside, showToken, toObject } from './install-step.ts'
import { installError } from './tool-failure.ts'

export const COMPOSER_MANIFEST = 'composer.json'

/** Begins with a letter or digit on both sides: never an option, a hidden file or a way upwards. Composer reads capitals as small letters. Each sign can be read in one way only, so that no name takes long. */
const NAME = /^[a-z0-9]+(?:[_.-][a-z0-9]+)*\/[a-z0-9]+(?:(?:[_.]|-{1,2})[a-z0-9]+)*$/i
const MAX_NAME_CHARS = 214
/** PHP itself, its extensions and libraries, and Composer: nothing that is installed. */
const PLATFORM =
  /^(?:php(?:-(?:64bit|ipv6|zts|debug))?|hhvm|(?:ext|lib)-[a-z0-9]+(?:[_.-][a-z0-9]+)*|composer(?:-(?:plugin|runtime)-api)?)$/i
const MAX_CONSTRAINT_CHARS = 512

/** Fields that decide about packages and their autoloader; nothing else reaches Composer, scripts least of all. */
const FIELDS = [
  ...['name', 'version', 'type', 'require', 'require-dev', 'conflict', 'replace', 'provide', 'autoload'],
  ...['repositories', 'minimum-stability', 'prefer-stable', 'extra'],
] as const
/** Of `config`, what says which packages fit and how classes are found. */
const CONFIG_FIELDS = [
  ...['platform', 'platform-check', 'audit', 'sort-packages', 'bin-compat', 'autoloader-suffix', 'prepend-autoloader'],
  ...['optimize-autoloader', 'classmap-authoritative', 'apcu-autoloader'],
] as const
const LINKS = ['require', 'require-dev', 'conflict', 'replace', 'provide'] as const
const OBJECTS = [...LINKS, 'autoload', 'config'] as const

export function isComposerName(name: string): boolean {
  return name.length <= MAX_NAME_CHARS && NAME.test(name)
}

interface ComposerSource {
  /** `off` says that the common repository is not asked; `address` is anything but files of this tree. */
  kind: 'path' | 'off' | 'address' | 'wrong'
  /** Path or address as it is written, or what is wrong. */
  text: string
  /** Word of the file whose line messages name. */
  word: string
}

export class ComposerManifest extends JsonManifest {
  /** @throws GatewayError when it is not a JSON object, or names something that is not a package */
  constructor(text: string, label: string) {
    super(text, label, 'require')
    for (const field of OBJECTS) this.#checkObject(field)
    for (const field of LINKS) this.#checkLinks(field)
  }

  /** Packages that the function itself needs, as they are written. */
  get packages(): string[] {
    return Object.keys(this.objectOf('require')).filter(name => !PLATFORM.test(name))
  }

  get isAsking(): boolean {
    return ['require', 'autoload'].some(field => Object.keys(this.objectOf(field)).length > 0)
  }

  get wantsLock(): boolean {
    return this.objectOf('config').lock !== false
  }

  get sources(): ComposerSource[] {
    const { repositories } = this.json
    if (repositories === undefined) return []
    if (Array.isArray(repositories)) return repositories.map(value => this.#toSource(null, value))
    if (isObject(repositories)) return Object.entries(repositories).map(([name, value]) => this.#toSource(name, value))
    return [{ kind: 'wrong', text: 'repositories must be a list', word: 'repositories' }]
  }

  /** Paths that are searched for classes while packages are installed. */
  get classPaths(): string[] {
    const autoload = this.objectOf('autoload')
    const config = this.objectOf('config')
    const isSearchingAll = config['optimize-autoloader'] === true || config['classmap-authoritative'] === true
    const rules = isSearchingAll ? ['classmap', 'psr-4', 'psr-0'] : ['classmap']
    return rules.flatMap(rule => textsIn(autoload[rule]))
  }

  /** The manifest that Composer gets. @param plugins - names of packages whose plugins may run */
  toStaged(plugins: readonly string[]): Record<string, unknown> {
    const staged = pick(this.json, FIELDS)
    if (staged.repositories !== undefined) staged.repositories = withoutLinks(staged.repositories)
    const allowed = Object.fromEntries([...plugins.map(name => [name, true] as const), ['*', false] as const])
    return { ...staged, config: { ...pick(this.objectOf('config'), CONFIG_FIELDS), 'allow-plugins': allowed } }
  }

  #checkObject(field: string): void {
    const value = this.json[field]
    // An empty object that PHP wrote is a list.
    if (value === undefined || isObject(value) || (Array.isArray(value) && value.length === 0)) return
    throw this.error(`${field} must be an object, got ${showToken(value)}`, field, `write "${field}": { }`)
  }

  #checkLinks(field: string): void {
    for (const [name, constraint] of Object.entries(this.objectOf(field))) {
      if (!isComposerName(name) && !PLATFORM.test(name)) {
        const hint = 'write vendor/package, php, or ext- and the name of an extension'
        throw this.error(`${field}: ${showToken(name)} is not a package name`, name, hint)
      }
      const isText = typeof constraint === 'string' && !/\p{Cc}/u.test(constraint)
      if (isText && constraint.length <= MAX_CONSTRAINT_CHARS) continue
      const why = `${field}: ${name} must be a version constraint as text, got ${showToken(constraint)}`
      throw this.error(why, name, 'write a constraint such as "^1.2"')
    }
  }

  #toSource(name: string | null, value: unknown): ComposerSource {
    const wrong = (text: string, word = name ?? 'repositories'): ComposerSource => ({ kind: 'wrong', text, word })
    if (value === false && name !== null) return { kind: 'off', text: name, word: name }
    if (!isObject(value)) return wrong(`repositories: ${showToken(value)} is not a repository`)
    const { type, url } = value
    if (type === undefined && Object.values(value).every(one => one === false)) {
      return { kind: 'off', text: Object.keys(value).join(), word: 'repositories' }
    }
    if (typeof type !== 'string') return wrong(`repositories: ${showToken(value)} has no type`)
    if (type === 'package') return { kind: 'address', text: 'a package described in the file', word: type }
    if (typeof url !== 'string') return wrong(`repositories: one of type ${showToken(type)} has no url`, type)
    return { kind: type === 'path' || type === 'artifact' ? 'path' : 'address', text: url, word: url }
  }
}

export function readComposerManifest(folder: string, label: string): ComposerManifest | null {
  return readBeside(folder, label, COMPOSER_MANIFEST, (text, file) => new ComposerManifest(text, file))
}

/** Options that make a link of a package in a path are left out: it is copied, so that the set holds all it needs. */
function withoutLinks(repositories: unknown): unknown {
  if (Array.isArray(repositories)) return repositories.map(withoutLink)
  if (!isObject(repositories)) return repositories
  return Object.fromEntries(Object.entries(repositories).map(([name, value]) => [name, withoutLink(value)]))
}

function withoutLink(repository: unknown): unknown {
  if (!isObject(repository) || toObject(repository.options).symlink !== true) return repository
  const { symlink: _symlink, ...options } = toObject(repository.options)
  const { options: _options, ...rest } = repository
  return Object.keys(options).length === 0 ? rest : { ...rest, options }
}

function textsIn(value: unknown): string[] {
  if (typeof value === 'string') return [value]
  if (Array.isArray(value)) return value.flatMap(textsIn)
  return Object.values(toObject(value)).flatMap(textsIn)
}

function pick(from: Readonly<Record<string, unknown>>, names: readonly string[]): Record<string, unknown> {
  return Object.fromEntries(names.filter(name => from[name] !== undefined).map(name => [name, from[name]]))
}

export const COMPOSER_LOCK = 'composer.lock'

interface LockedPackage {
  name: string
  version: string
  /** `library`, `composer-plugin`, ... */
  type: string
  fields: Readonly<Record<string, unknown>>
}

interface LockedSource {
  name: string
  /** `https` for the hosts that packages of packagist.org are fetched from; `address` for any other. */
  kind: 'path' | 'https' | 'address'
  /** As it is written. */
  url: string
}

export class ComposerLock {
  readonly text: string
  /** Below the functions root, for messages. */
  readonly label: string
  readonly #json: Readonly<Record<string, unknown>>

  constructor(text: string, label: string) {
    this.text = text
    this.label = label
    const json: unknown = orNull(() => JSON.parse(text))
    this.#json = toObject(json)
    if (Array.isArray(this.#json.packages)) return
    const why = json === null ? 'is not JSON' : 'is not a Composer 2 lock file'
    throw installError(`${label}: ${why}`, { file: label }, 'delete it, and it is made again from composer.json')
  }

  /** Those that are installed; packages for development are not. */
  get packages(): LockedPackage[] {
    return packagesIn(this.#json.packages)
  }

  get sources(): LockedSource[] {
    return [...this.packages, ...packagesIn(this.#json['packages-dev'])].flatMap(({ name, fields }) =>
      [fields.dist, fields.source].map(toObject).flatMap(({ type, url }) => {
        return typeof url === 'string' ? { name, kind: toKind(type, url), url } : []
      }),
    )
  }

  /**
   * The file without packages from paths that the manifest does not name any more: Composer would install them from there. Their
   * replacements are resolved again.
   */
  withoutStalePaths(isNamed: (url: string) => boolean): ComposerLock {
    const stale = this.sources.filter(({ kind, url }) => kind === 'path' && !isNamed(url)).map(({ name }) => name)
    if (stale.length === 0) return this
    return new ComposerLock(
      this.#toText(({ name, fields }) => (stale.includes(name) ? [] : [fields])),
      this.label,
    )
  }

  /** Version of a package, as its author writes it; null when it is not pinned. */
  versionOf(name: string): string | null {
    return this.packages.find(one => one.name === name.toLowerCase())?.version ?? null
  }

  get digest(): string {
    return new BuildKey().add('lock', JSON.stringify(this.#json)).toString()
  }

  /** The text that Composer gets: packages in paths are copied, whatever the lock file says of links. */
  toStaged(): string {
    return this.#toText(({ fields }) => {
      const options = fields['transport-options']
      if (!isObject(options)) return [fields]
      const { symlink: _symlink, ...rest } = options
      return [{ ...fields, 'transport-options': rest }]
    })
  }

  #toText(change: (one: LockedPackage) => Readonly<Record<string, unknown>>[]): string {
    const json = { ...this.#json }
    for (const field of ['packages', 'packages-dev']) {
      const list = json[field]
      if (Array.isArray(list)) json[field] = list.flatMap(entry => packagesIn([entry]).map(change)[0] ?? [entry])
    }
    return `${JSON.stringify(json, null, 4)}\n`
  }
}

export function readComposerLock(folder: string, label: string): ComposerLock | null {
  return readBeside(folder, label, COMPOSER_LOCK, (text, file) => new ComposerLock(text, file))
}

function packagesIn(list: unknown): LockedPackage[] {
  const found = Array.isArray(list) ? list.filter(isObject) : []
  return found.flatMap(fields => {
    const { name, version, type } = fields
    if (typeof name !== 'string') return []
    return { name: name.toLowerCase(), version: String(version ?? ''), type: String(type ?? 'library'), fields }
  })
}

/** Where packagist.org says that its packages are. */
const PACKAGE_HOSTS: ReadonlySet<string> = new Set([
  ...['api.github.com', 'codeload.github.com', 'github.com', 'gitlab.com', 'bitbucket.org'],
  ...['packagist.org', 'repo.packagist.org'],
])

/** Packages of the common repository name their repository too, by https; nothing else fetches from one. */
function toKind(type: unknown, url: string): LockedSource['kind'] {
  if (/^https:\/\//i.test(url)) return isPackageHost(url) ? 'https' : 'address'
  const isAddress = /^[a-z][a-z0-9+.-]*:/i.test(url) || /^[^/]+@[^/]+:/.test(url)
  const isFile = type === 'path' || type === 'zip' || type === 'tar'
  return isAddress || !isFile ? 'address' : 'path'
}

function isPackageHost(url: string): boolean {
  if (!URL.canParse(url)) return false
  const { hostname, port, username } = new URL(url)
  return port === '' && username === '' && PACKAGE_HOSTS.has(hostname)
}

// Files that Composer reads beside `composer.json`: packages in paths, and classes that it lists.

/** Folders that one pattern may stand for. */
const MAX_MATCHES = 1000
const SOURCES_SETTING = 'FN_PHP_PACKAGE_SOURCES'

type Fail = (why: string, hint: string) => GatewayError

/**
 * Checks where a manifest and a lock file have their packages from.
 * @param packages - gets the files that their paths lead to
 * @returns `packages`
 * @throws GatewayError naming the line of the manifest, or the lock file
 */
export function checkComposerSources(
  manifest: ComposerManifest,
  lock: ComposerLock | null,
  packages: FilePackages,
): FilePackages {
  const { allowSources } = packages
  for (const { kind, text, word } of manifest.sources) {
    if (kind === 'wrong') throw manifest.error(text, word, 'write { "type": "path", "url": "../package" }')
    if (kind === 'address' && !allowSources) {
      const why = `repositories: packages come from ${showToken(text)}, not from packagist.org`
      throw manifest.error(why, word, `take it out, or set ${SOURCES_SETTING}=1`)
    }
    const fail: Fail = (why, hint) => manifest.error(`repositories: ${why}`, word, hint)
    if (kind === 'path') addPath(packages, text, fail)
  }
  for (const path of manifest.classPaths) {
    const fail: Fail = (why, hint) => manifest.error(`autoload: ${why}`, path, hint)
    // Composer reports a missing folder itself.
    addPath(packages, path, fail, true)
  }
  for (const { name, kind, url } of lock?.sources ?? []) {
    const file = lock!.label
    const fail: Fail = (why, hint) => installError(`${file}: ${why}`, { file }, hint)
    if (kind === 'path') addPath(packages, url, fail)
    if (kind !== 'address' || allowSources) continue
    const why = `${name} comes from ${showToken(url)}, not from packagist.org`
    throw fail(why, `delete the lock file, or set ${SOURCES_SETTING}=1`)
  }
  return packages
}

function addPath(packages: FilePackages, path: string, fail: Fail, mayLack = false): void {
  const { folder, root, bound, boundName } = packages
  const shown = JSON.stringify(path)
  // Composer puts variables and the home in.
  if (/^[/\\~]|[$%{}[\]\p{Cc}]|^[a-z]:/iu.test(path)) {
    throw fail(`${shown} is not a plain path`, 'write it as it leads there from composer.json, with * at most')
  }
  if (bound !== '' && climbsOut(path, folder, root)) {
    const hint = `run composer install in the folder, move the package into ${boundName}, or set ${SOURCES_SETTING}=1`
    throw fail(`${shown} is not in ${boundName}`, hint)
  }
  const isPattern = /[*?]/.test(path)
  for (const place of expand(folder, path)) {
    const target = place === bound ? bound : packages.find(place)
    if (target === place) packages.add(target, why => fail(why, 'name a smaller folder'))
    else if (!isPattern && !(mayLack && target === null)) {
      const why = target === null ? `is not there, or leads out of ${boundName}` : 'leads over a link'
      throw fail(`${shown} ${why}`, `name a folder in ${boundName}`)
    }
  }
}

/** True for a path that leaves the root on its way, be it to come back: from a copy of the folder it would lead elsewhere. */
function climbsOut(path: string, folder: string, root: string): boolean {
  let depth = folder === root ? 0 : relative(root, folder).split(sep).length
  for (const part of path.split('/')) {
    if (part === '' || part === '.') continue
    depth += part === '..' ? -1 : 1
    if (depth < 0) return true
  }
  return false
}

function expand(folder: string, path: string): string[] {
  let found = [folder]
  for (const part of path.split('/')) {
    if (part === '' || part === '.') continue
    if (part === '..') found = found.map(dirname)
    else if (!/[*?]/.test(part)) found = found.map(place => join(place, part))
    else found = found.flatMap(place => matchesIn(place, part)).slice(0, MAX_MATCHES)
  }
  return found
}

function matchesIn(folder: string, pattern: string): string[] {
  const names = namesIn(folder).filter(name => !name.startsWith('.') && isMatch(name, pattern))
  return names.sort().map(name => join(folder, name))
}

/** True when `*` stands for any signs and `?` for one. Only the last `*` is ever taken back, so that no pattern takes long. */
function isMatch(name: string, pattern: string): boolean {
  let at = 0
  let star = -1
  let afterStar = 0
  for (let i = 0; i < name.length; ) {
    if (pattern[at] === '*') {
      star = at++
      afterStar = i
    } else if (at < pattern.length && (pattern[at] === '?' || pattern[at] === name[i])) {
      at += 1
      i += 1
    } else if (star >= 0) {
      at = star + 1
      i = ++afterStar
    } else return false
  }
  return /^\**$/.test(pattern.slice(at))
}
