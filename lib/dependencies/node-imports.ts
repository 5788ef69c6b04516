/** Which packages functions of one folder import: a quick scan, then a parse in a separate process. Owner: page dependencies/node. */

import { existsSync, readFileSync, statSync } from 'node:fs'
import { dirname, join, relative, resolve, sep } from 'node:path'
import { isObject, parseObject } from '../core/json.ts'
import { below, type BuildTools, tryRead } from './build.ts'
import { passingError } from './install-step.ts'
import { toImportTarget } from './node-manifest.ts'

/** A package, and where it is first imported: file below the functions root. */
export interface ImportedPackage {
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
  /** A part of the work that the backend could not do. */
  problem: string | null
}

export type NodeInferBackend = 'native' | 'detective' | 'require-analyzer'

const MARK = 'fngw-imports '
/** Files that the quick look reads at most, and the bytes of one. */
const MAX_LOOKED_FILES = 200
const MAX_LOOKED_BYTES = 1024 * 1024
/** Every text that may be imported, and many that are not: the parse decides. */
const MAYBE_IMPORTED =
  /(?:\bfrom|\bimport|\brequire(?:\s*\.\s*resolve)?)(?:\s|\/\*[\s\S]*?\*\/|\()*(?:'([^'\n]+)'|"([^"\n]+)"|`([^`\n]+)`)/g
const SOURCE_ENDINGS = ['.js', '.mjs', '.cjs', '.ts', '.mts', '.cts', '.tsx', '.jsx']
const EXTENSIONS = ['', ...SOURCE_ENDINGS]

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
    const text = readLooked(file)
    if (text === null) return true
    for (const [, single, double, tick] of text.matchAll(MAYBE_IMPORTED)) {
      const specifier = (single ?? double ?? tick) as string
      const target = toImportTarget(specifier)
      if (target.kind === 'unresolved' || (target.kind === 'package' && !isLeftOut(target.name))) return true
      const found = /^\.\.?\//.test(specifier) ? findSource(resolve(dirname(file), specifier)) : null
      if (found !== null && isOwn(folder, found)) files.add(found)
      if (files.size > MAX_LOOKED_FILES) return true
    }
  }
  return false
}

interface Search {
  /** Full path of `find-imports.mjs`. */
  script: string
  functionsRoot: string
  folder: string
  entries: readonly string[]
  backend: NodeInferBackend
  /** True for a name in a manifest: a package, whatever files are beside it. */
  isDeclared?: (name: string) => boolean
}

/** @throws GatewayError when the backend is not installed or does not work */
export async function findNodeImports(search: Search, tools: BuildTools): Promise<NodeImports> {
  const { script, functionsRoot, folder, entries, backend, isDeclared = () => false } = search
  const result = await tools.run({
    command: process.execPath,
    args: [script, JSON.stringify({ folder, entries, backend })],
    cwd: folder,
  })
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
  if (line === undefined) return null
  const value = parseObject(line.slice(MARK.length))
  return Array.isArray(value?.found) ? (value as unknown as Answer) : null
}

function toProblem(backend: NodeInferBackend, answer: Answer | null, output: string): Error {
  const setting = 'FN_NODE_INFER_BACKEND'
  if (answer?.isMissing === true && backend !== 'native')
    return passingError(
      `${setting} is ${backend}, and the package ${backend} is not installed`,
      `npm install ${backend} beside fngw, or ${setting}=native`,
    )
  const why = answer?.problem ?? output.trim().split('\n').at(-1)?.slice(0, 300) ?? ''
  return passingError(
    `imports could not be read with ${backend}: ${why}`,
    `${setting}=native, or FN_AUTO_INFER_NODE_DEPS=0`,
  )
}

function readLooked(file: string): string | null {
  try {
    const stats = statSync(file)
    return stats.isFile() && stats.size <= MAX_LOOKED_BYTES ? readFileSync(file, 'utf8') : null
  } catch {
    return ''
  }
}

/** The file an import of a path means, tried as node, tsx and bundlers do. */
function findSource(path: string): string | null {
  const bases = [path, path.replace(/\.([mc]?)js$/, '.$1ts'), join(path, 'index')]
  for (const base of bases) {
    for (const extension of EXTENSIONS) {
      if (statSync(base + extension, { throwIfNoEntry: false })?.isFile() === true) return base + extension
    }
  }
  return null
}

function isOwn(folder: string, file: string): boolean {
  const path = relative(folder, file)
  return !path.startsWith('..') && !path.split(sep).includes('node_modules')
}

const CONFIG = 'tsconfig.json'
/** Configs that extend others, one after the other. */
const MAX_EXTENDS = 5
const MAX_CHARS = 256 * 1024
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
    this.#mappings = readMappings(findConfig(folder, root), MAX_EXTENDS)
  }

  /** True when `paths` of the nearest tsconfig.json lead to a file that is there. */
  isMapped(specifier: string): boolean {
    return this.#mappings.some(({ pattern, targets }) => {
      const found = pattern.exec(specifier)
      return found !== null && targets.some(target => isSource(target.replace('*', () => found[1] ?? '')))
    })
  }

  /** True for `helper` where `helper.js`, or `helper/index.js`, is in the function's folder and is not a handler. */
  isBeside(name: string): boolean {
    const bases = [join(this.#folder, name), join(this.#folder, name, 'index')]
    return bases.some(base => SOURCE_ENDINGS.some(end => existsSync(base + end) && !this.#entries.has(base + end)))
  }
}

function isSource(path: string): boolean {
  return [path, join(path, 'index')].some(base => EXTENSIONS.some(end => existsSync(base + end)))
}

function findConfig(folder: string, root: string): string | null {
  for (let at = folder; ; at = dirname(at)) {
    if (existsSync(join(at, CONFIG))) return join(at, CONFIG)
    if (at === root || at === dirname(at)) return null
  }
}

function readMappings(file: string | null, left: number): Mapping[] {
  const config = file === null ? null : readConfig(file)
  if (file === null || config === null) return []
  const { extends: parent, compilerOptions } = config
  const { paths, baseUrl } = isObject(compilerOptions) ? compilerOptions : {}
  if (!isObject(paths)) {
    if (typeof parent !== 'string' || !parent.startsWith('.') || left === 0) return []
    const next = resolve(dirname(file), parent)
    return readMappings(existsSync(next) ? next : `${next}.json`, left - 1)
  }
  const base = resolve(dirname(file), typeof baseUrl === 'string' ? baseUrl : '.')
  return Object.entries(paths).flatMap(([pattern, targets]) => {
    if (!Array.isArray(targets)) return []
    const parts = pattern.split('*', 2).map(text => text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&'))
    const paths = targets.filter(one => typeof one === 'string').map(one => resolve(base, one))
    return [{ pattern: new RegExp(`^${parts.join('(.*)')}$`, 's'), targets: paths }]
  })
}

/** A tsconfig.json may have comments and commas before a closing bracket. */
function readConfig(file: string): Record<string, unknown> | null {
  const text = tryRead(file)
  if (text === null || text.length > MAX_CHARS) return null
  return parseObject(text.replace(COMMENTS, (_, kept: string | undefined) => kept ?? '').replace(/,(\s*[}\]])/g, '$1'))
}
