/** `composer.json` beside a function: read, checked, and what of it reaches Composer. Owner: page dependencies/php. */

import { join } from 'node:path'
import type { GatewayError } from '../core/errors.ts'
import { isObject } from '../core/json.ts'
import { lineOfWord, manifestError, parseManifest, readSmallFile, showToken } from './manifest-text.ts'
import { labelOf } from './unit-files.ts'

export const COMPOSER_MANIFEST = 'composer.json'

/** Begins with a letter or digit on both sides: never an option, a hidden file or a way upwards. Composer reads capitals as small letters. Each sign can be read in one way only, so that no name takes long. */
const NAME = /^[a-z0-9]+(?:[_.-][a-z0-9]+)*\/[a-z0-9]+(?:(?:[_.]|-{1,2})[a-z0-9]+)*$/i
const MAX_NAME_CHARS = 214
/** PHP itself, its extensions and libraries, and Composer: nothing that is installed. */
const PLATFORM =
  /^(?:php(?:-(?:64bit|ipv6|zts|debug))?|hhvm|(?:ext|lib)-[a-z0-9]+(?:[_.-][a-z0-9]+)*|composer(?:-(?:plugin|runtime)-api)?)$/i
const MAX_CONSTRAINT_CHARS = 512

/** What decides about packages and their autoloader; nothing else reaches Composer, scripts least of all. */
const FIELDS = [
  ...['name', 'version', 'type', 'require', 'require-dev', 'conflict', 'replace', 'provide', 'autoload'],
  ...['repositories', 'minimum-stability', 'prefer-stable', 'extra'],
] as const
/** Of `config`, what says which packages fit and how classes are found. */
const CONFIG_FIELDS = [
  ...['platform', 'platform-check', 'audit', 'sort-packages', 'bin-compat', 'autoloader-suffix', 'prepend-autoloader'],
  ...['optimize-autoloader', 'classmap-authoritative', 'apcu-autoloader'],
] as const
/** Fields of names and version constraints. */
const LINKS = ['require', 'require-dev', 'conflict', 'replace', 'provide'] as const
const OBJECTS = [...LINKS, 'autoload', 'config'] as const

/** True for the name of a package that a repository could have. */
export function isComposerName(name: string): boolean {
  return name.length <= MAX_NAME_CHARS && NAME.test(name)
}

/** Where a manifest has its packages from. */
interface ComposerSource {
  /** `off` says that the common repository is not asked; `address` is anything but files of this tree. */
  kind: 'path' | 'off' | 'address' | 'wrong'
  /** Path or address as it is written, or what is wrong. */
  text: string
  /** Word of the file whose line is told. */
  word: string
}

export class ComposerManifest {
  /** Below the functions root, for messages. */
  readonly label: string
  readonly #text: string
  readonly #json: Readonly<Record<string, unknown>>

  /** @throws GatewayError when it is no JSON object, or names something that is no package */
  constructor(text: string, label: string) {
    this.label = label
    this.#text = text
    this.#json = parseManifest(text, label, 'require')
    for (const field of OBJECTS) this.#checkObject(field)
    for (const field of LINKS) this.#checkLinks(field)
  }

  /** Packages that the function itself needs, as they are written. */
  get packages(): string[] {
    return Object.keys(this.#objectOf('require')).filter(name => !PLATFORM.test(name))
  }

  /** True unless it asks for nothing: no package, no extension, no rule for classes. */
  get isAsking(): boolean {
    return ['require', 'autoload'].some(field => Object.keys(this.#objectOf(field)).length > 0)
  }

  /** False when the author wants no lock file. */
  get wantsLock(): boolean {
    return this.#objectOf('config').lock !== false
  }

  get sources(): ComposerSource[] {
    const { repositories } = this.#json
    if (repositories === undefined) return []
    if (Array.isArray(repositories)) return repositories.map(value => this.#toSource(null, value))
    if (isObject(repositories)) return Object.entries(repositories).map(([name, value]) => this.#toSource(name, value))
    return [{ kind: 'wrong', text: 'repositories must be a list', word: 'repositories' }]
  }

  /** Paths that are searched for classes while packages are installed. */
  get classPaths(): string[] {
    const autoload = this.#objectOf('autoload')
    const config = this.#objectOf('config')
    const isSearchingAll = config['optimize-autoloader'] === true || config['classmap-authoritative'] === true
    const rules = isSearchingAll ? ['classmap', 'psr-4', 'psr-0'] : ['classmap']
    return rules.flatMap(rule => textsIn(autoload[rule]))
  }

  /** What Composer gets. @param plugins - names of packages whose plugins may run */
  toStaged(plugins: readonly string[]): Record<string, unknown> {
    const staged = pick(this.#json, FIELDS)
    if (this.#json.repositories !== undefined) staged.repositories = withoutLinks(this.#json.repositories)
    const allowed = [...plugins.map(name => [name, true] as const), ['*', false] as const]
    const config = { ...pick(this.#objectOf('config'), CONFIG_FIELDS), 'allow-plugins': Object.fromEntries(allowed) }
    return { ...staged, config }
  }

  /** Line of a word in quotes, from 1. */
  lineOf(word: string): number {
    return lineOfWord(this.#text, word)
  }

  /** A failure that names the line of a word. */
  error(why: string, word: string, hint: string): GatewayError {
    return manifestError({ text: this.#text, label: this.label }, `${this.label}: ${why}`, word, hint)
  }

  /** An empty object that PHP wrote is a list. */
  #objectOf(field: string): Readonly<Record<string, unknown>> {
    const value = this.#json[field]
    return isObject(value) ? value : {}
  }

  #checkObject(field: string): void {
    const value = this.#json[field]
    if (value === undefined || isObject(value) || (Array.isArray(value) && value.length === 0)) return
    throw this.error(`${field} must be an object, got ${showToken(value)}`, field, `write "${field}": { }`)
  }

  #checkLinks(field: (typeof LINKS)[number]): void {
    for (const [name, constraint] of Object.entries(this.#objectOf(field))) {
      if (!isComposerName(name) && !PLATFORM.test(name)) {
        const hint = 'write vendor/package, php, or ext- and the name of an extension'
        throw this.error(`${field}: ${showToken(name)} is no name of a package`, name, hint)
      }
      if (typeof constraint === 'string' && isConstraint(constraint)) continue
      const why = `${field}: ${name} must be a version constraint as text, got ${showToken(constraint)}`
      throw this.error(why, name, 'write a constraint such as "^1.2"')
    }
  }

  #toSource(name: string | null, value: unknown): ComposerSource {
    const wrong = (text: string, word = 'repositories'): ComposerSource => ({ kind: 'wrong', text, word })
    if (value === false && name !== null) return { kind: 'off', text: name, word: name }
    if (!isObject(value)) return wrong(`repositories: ${showToken(value)} is no repository`, name ?? undefined)
    const { type, url } = value
    if (type === undefined && Object.values(value).every(one => one === false)) {
      return { kind: 'off', text: Object.keys(value).join(), word: 'repositories' }
    }
    if (typeof type !== 'string') return wrong(`repositories: ${showToken(value)} has no type`, name ?? undefined)
    if (type === 'package') return { kind: 'address', text: 'a package described in the file', word: type }
    if (typeof url !== 'string') return wrong(`repositories: one of type ${showToken(type)} has no url`, type)
    return { kind: type === 'path' || type === 'artifact' ? 'path' : 'address', text: url, word: url }
  }
}

/** @returns null when the folder has none @throws GatewayError when it cannot be used */
export function readComposerManifest(folder: string, folderLabel: string): ComposerManifest | null {
  const label = labelOf({ label: folderLabel }, COMPOSER_MANIFEST)
  const text = readSmallFile(join(folder, COMPOSER_MANIFEST), label)
  return text === null ? null : new ComposerManifest(text, label)
}

/** Options that make a link of a package in a path are left out: it is copied, so that the set holds all it needs. */
function withoutLinks(repositories: unknown): unknown {
  if (Array.isArray(repositories)) return repositories.map(withoutLink)
  if (!isObject(repositories)) return repositories
  return Object.fromEntries(Object.entries(repositories).map(([name, value]) => [name, withoutLink(value)]))
}

function withoutLink(repository: unknown): unknown {
  if (!isObject(repository) || !isObject(repository.options) || repository.options.symlink !== true) return repository
  const { symlink: _symlink, ...options } = repository.options
  const { options: _options, ...rest } = repository
  return Object.keys(options).length === 0 ? rest : { ...rest, options }
}

function isConstraint(text: string): boolean {
  return text.length <= MAX_CONSTRAINT_CHARS && !/\p{Cc}/u.test(text)
}

function textsIn(value: unknown): string[] {
  if (typeof value === 'string') return [value]
  if (Array.isArray(value)) return value.flatMap(textsIn)
  return isObject(value) ? Object.values(value).flatMap(textsIn) : []
}

function pick(from: Readonly<Record<string, unknown>>, names: readonly string[]): Record<string, unknown> {
  return Object.fromEntries(names.filter(name => from[name] !== undefined).map(name => [name, from[name]]))
}
