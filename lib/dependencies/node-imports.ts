/**
 * Which packages functions of one folder import: a quick scan, then a parse in a separate process; and those that are there already,
 * above the folder or as files of it. Owner: page dependencies/node.
 */

import { existsSync, realpathSync, statSync } from 'node:fs'
import { dirname, join, relative, resolve, sep } from 'node:path'
import satisfies from 'semver/functions/satisfies.js'
import validRange from 'semver/ranges/valid.js'
import { type GatewayError, orNull } from '../core/errors.ts'
import { isObject, parseObject } from '../core/json.ts'
import { isFile } from '../files/own-folder.ts'
import { below, tryRead } from './build.ts'
import { toImportTarget, toPackageSource } from './node-manifest.ts'
import { PackageFolder } from './package-set.ts'
import type { BuildTools } from './run-tool.ts'
import { passingError } from './tool-failure.ts'

export const NODE_TARGET = 'node_modules'

/** A package, and where it is first imported: file below the functions root. */
interface ImportedPackage {
  name: string
  file: string
  line: number
}

/** One import of one file, and the handlers (full paths) that load the file. */
interface ImportPlace extends ImportedPackage {
  entries: readonly string[]
}

export interface NodeImports {
  packages: readonly ImportedPackage[]
  /** Imports of nothing that could be installed, `name` as it is written. */
  unresolved: readonly ImportedPackage[]
  /** Names of both kinds whose imports all stand where the code handles a failure: in a `try`, or with a `catch`. */
  optional: readonly string[]
  /** Every place of the packages and unresolved imports, up to a bound. */
  places: readonly ImportPlace[]
  problem: string | null
}

export type NodeInferBackend = 'native' | 'detective' | 'require-analyzer'

const MARK = 'fngw-imports '
/** Files that the quick scan reads at most, and the bytes of one. */
const MAX_SCANNED_FILES = 200
const MAX_SCANNED_BYTES = 1024 * 1024
/** Every text that may be imported, and many that are not: the parse decides. */
const MAYBE_IMPORTED =
  /(?:\bfrom|\bimport|\brequire(?:\s*\.\s*resolve)?)(?:\s|\/\*[\s\S]*?\*\/|\()*(?:'([^'\n]+)'|"([^"\n]+)"|`([^`\n]+)`)/g
const SOURCE_ENDINGS = ['.js', '.mjs', '.cjs', '.ts', '.mts', '.cts', '.tsx', '.jsx']

/**
 * True when files or what they import beside them may name a package; most functions are known not to without a parse.
 * @param entries - full paths
 */
export function mayImportPackages(
  folder: string,
  entries: readonly string[],
  isLeftOut: (name: string) => boolean,
): boolean {
  const files = new Set(entries)
  for (const file of files) {
    const text = readScanned(file)
    if (text === null) return true
    for (const [, single, double, tick] of text.matchAll(MAYBE_IMPORTED)) {
      const specifier = (single ?? double ?? tick) as string
      const target = toImportTarget(specifier)
      if (target.kind === 'unresolved' || (target.kind === 'package' && !isLeftOut(target.name))) return true
      const found = /^\.\.?\//.test(specifier) ? findSource(resolve(dirname(file), specifier)) : undefined
      if (found !== undefined && isOwn(folder, found)) files.add(found)
      if (files.size > MAX_SCANNED_FILES) return true
    }
  }
  return false
}

/** @returns null for one that is too large, '' for one that cannot be read */
function readScanned(file: string): string | null {
  const stats = orNull(() => statSync(file))
  if (stats === null) return ''
  return stats.isFile() && stats.size <= MAX_SCANNED_BYTES ? (tryRead(file) ?? '') : null
}

/** The file an import of a path means, tried as node, tsx and bundlers do. */
function findSource(path: string): string | undefined {
  return [path, path.replace(/\.([mc]?)js$/, '.$1ts')]
    .flatMap(base => sourcesAt(base, ['', ...SOURCE_ENDINGS]))
    .find(isFile)
}

function isOwn(folder: string, file: string): boolean {
  const path = relative(folder, file)
  return !path.startsWith('..') && !path.split(sep).includes(NODE_TARGET)
}

interface Search {
  script: string
  functionsRoot: string
  folder: string
  entries: readonly string[]
  backend: NodeInferBackend
  /** True for a name in a manifest: a package, whatever files are beside it. */
  isDeclared?: (name: string) => boolean
}

export async function findNodeImports(search: Search, tools: BuildTools): Promise<NodeImports> {
  const { script, functionsRoot, folder, entries, backend, isDeclared = () => false } = search
  const args = [script, JSON.stringify({ folder, entries, backend })]
  const result = await tools.run({ command: process.execPath, args, cwd: folder })
  const answer = toAnswer(result.output)
  if (answer === null || result.code !== 0) throw toProblem(backend, answer, result.problem ?? result.output)
  const packages = new Map<string, ImportedPackage>()
  const unresolved = new Map<string, ImportedPackage>()
  const optional = new Set<string>()
  const places: ImportPlace[] = []
  const local = new NodeLocalNames(folder, functionsRoot, entries)
  for (const found of answer.found) {
    const { specifier, line } = found
    const target = toImportTarget(specifier)
    if (target.kind === 'none' || local.isMapped(specifier)) continue
    const isPackage = target.kind === 'package' && (isDeclared(target.name) || !local.isBeside(target.name))
    const [name, list] = isPackage ? [target.name, packages] : [specifier, unresolved]
    if (found.optional) {
      optional.add(name)
      continue
    }
    const place = { name, file: below(functionsRoot, join(folder, found.file)), line }
    if (!list.has(name)) list.set(name, place)
    places.push({ ...place, entries: found.entries.flatMap(at => entries[at] ?? []) })
  }
  return {
    packages: [...packages.values()],
    unresolved: [...unresolved.values()],
    optional: [...optional].filter(name => !packages.has(name) && !unresolved.has(name)),
    places,
    problem: answer.problem,
  }
}

interface Answer {
  found: readonly { specifier: string; file: string; line: number; optional: boolean; entries: readonly number[] }[]
  problem: string | null
  isMissing: boolean
}

function toAnswer(output: string): Answer | null {
  const line = output.split('\n').findLast(text => text.startsWith(MARK))
  const value = parseObject(line?.slice(MARK.length) ?? null)
  return Array.isArray(value?.found) ? (value as unknown as Answer) : null
}

function toProblem(backend: NodeInferBackend, answer: Answer | null, output: string): GatewayError {
  const setting = 'FN_NODE_INFER_BACKEND'
  if (answer?.isMissing === true && backend !== 'native') {
    const hint = `npm install ${backend} beside fngw, or ${setting}=native`
    return passingError(`${setting} is ${backend}, and the package ${backend} is not installed`, hint)
  }
  const why = answer?.problem ?? output.trim().split('\n').at(-1)?.slice(0, 300) ?? ''
  const hint = `${setting}=native, or FN_AUTO_INFER_NODE_DEPS=0`
  return passingError(`imports could not be read with ${backend}: ${why}`, hint)
}

const CONFIG = 'tsconfig.json'
/** Configs that extend others, one after the other. */
const MAX_EXTENDS = 5
const MAX_CONFIG_CHARS = 256 * 1024
const COMMENTS = /("(?:[^"\\]|\\.)*")|\/\/[^\n]*|\/\*[\s\S]*?\*\//g

interface Mapping {
  /** Its group is the text in the place of the `*`. */
  pattern: RegExp
  /** Full paths, with `*` for that text. */
  targets: readonly string[]
}

/**
 * Imports that read like names of packages and are files of the function: by `paths` of a tsconfig.json, or because `./` was
 * forgotten. A package of that name would be code of another author.
 */
export class NodeLocalNames {
  readonly #folder: string
  readonly #entries: ReadonlySet<string>
  readonly #mappings: readonly Mapping[]

  /**
   * @param folder - full path of the function's folder
   * @param root - full path of the functions root; folders above it are not read
   * @param entries - full paths of handlers: a route may be called like the package it imports
   */
  constructor(folder: string, root: string, entries: readonly string[]) {
    this.#folder = folder
    this.#entries = new Set(entries)
    const config = foldersFrom(folder, root).find(at => existsSync(join(at, CONFIG)))
    this.#mappings = config === undefined ? [] : readMappings(join(config, CONFIG), MAX_EXTENDS)
  }

  /** True when `paths` of the nearest tsconfig.json lead to an existing file. */
  isMapped(specifier: string): boolean {
    return this.#mappings.some(({ pattern, targets }) => {
      const found = pattern.exec(specifier)
      if (found === null) return false
      const files = targets.map(target => target.replace('*', () => found[1] ?? ''))
      return files.some(file => sourcesAt(file, ['', ...SOURCE_ENDINGS]).some(existsSync))
    })
  }

  /** True for `helper` where `helper.js`, or `helper/index.js`, is in the function's folder and is not a handler. */
  isBeside(name: string): boolean {
    const files = sourcesAt(join(this.#folder, name), SOURCE_ENDINGS)
    return files.some(file => existsSync(file) && !this.#entries.has(file))
  }
}

function sourcesAt(path: string, endings: readonly string[]): string[] {
  return [path, join(path, 'index')].flatMap(base => endings.map(ending => base + ending))
}

function foldersFrom(folder: string, last: string): string[] {
  return folder === last || folder === dirname(folder) ? [folder] : [folder, ...foldersFrom(dirname(folder), last)]
}

function readMappings(file: string, left: number): Mapping[] {
  const text = tryRead(file)
  if (text === null || text.length > MAX_CONFIG_CHARS) return []
  // A tsconfig.json may have comments and commas before a closing bracket.
  const bare = text.replace(COMMENTS, (_, kept: string | undefined) => kept ?? '').replace(/,(\s*[}\]])/g, '$1')
  const { extends: parent, compilerOptions } = parseObject(bare) ?? {}
  const { paths, baseUrl } = isObject(compilerOptions) ? compilerOptions : {}
  if (!isObject(paths)) {
    if (typeof parent !== 'string' || !parent.startsWith('.') || left === 0) return []
    const next = resolve(dirname(file), parent)
    return readMappings(existsSync(next) ? next : `${next}.json`, left - 1)
  }
  const base = resolve(dirname(file), typeof baseUrl === 'string' ? baseUrl : '.')
  return Object.entries(paths).flatMap(([pattern, targets]) => {
    if (!Array.isArray(targets)) return []
    const parts = pattern.split('*', 2).map(part => part.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&'))
    const files = targets.filter(one => typeof one === 'string').map(one => resolve(base, one))
    return [{ pattern: new RegExp(`^${parts.join('(.*)')}$`, 's'), targets: files }]
  })
}

// Packages that Node resolves from a `node_modules` above a function, where another package manager put them.

function foldersAbove(folder: string): string[] {
  return foldersFrom(folder, '').slice(1)
}

/** The folder from which node takes a package without an install: one above with a `node_modules`; null when there is none. */
export function providerOf(name: string, folder: string): string | null {
  return foldersAbove(folder).find(at => existsSync(join(at, NODE_TARGET, name))) ?? null
}

/** Changes when a package is added to or removed from a `node_modules` above a folder. */
export function stampAbove(folder: string): string {
  return foldersAbove(folder)
    .flatMap(at => {
      const stats = statSync(join(at, NODE_TARGET), { throwIfNoEntry: false })
      return stats === undefined ? [] : `${at} ${stats.mtimeMs}`
    })
    .join('\n')
}

/**
 * True when what Node resolves from above satisfies an entry of a manifest, so that nothing is installed for it.
 * @param spec - the value beside the name in `dependencies`
 * @param isPinned - a lock file beside the manifest decides: only a package of a workspace, which is a link, comes before it
 */
export function isProvidedAbove(name: string, spec: unknown, folder: string, isPinned: boolean): boolean {
  const provider = providerOf(name, folder)
  if (provider === null || typeof spec !== 'string') return false
  // A set of the gateway's own belongs to another function, and may become another one at any time.
  if (new PackageFolder(provider, NODE_TARGET).set !== null) return false
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
  return typeof own.name === 'string' && copy.name === own.name && copy.version === own.version
}

function isInRange(place: string, spec: string, isWorkspace: boolean): boolean {
  const alias = /^npm:(.[^@]*)(?:@(.*))?$/.exec(spec)
  const { name, version } = readTitle(place)
  if (alias !== null && alias[1] !== name) return false
  const range = alias === null ? spec : (alias[2] ?? '*')
  // A tag (`latest`) is known to the registry alone; package managers take the workspace's package for it.
  if (validRange(range, { loose: true }) === null) return isWorkspace
  const own = typeof version === 'string' ? version : '0.0.0'
  return satisfies(own, range, { loose: true, includePrerelease: isWorkspace })
}

function readTitle(folder: string): { name?: unknown; version?: unknown } {
  return parseObject(tryRead(join(folder, 'package.json'))) ?? {}
}
