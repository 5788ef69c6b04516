/** `post.users.[id].js` to method and segments. Owner: §2.2, page discovery/layouts. */

import { isMethod, isNameSegment, type Method, RUNTIME_OF_EXTENSION, type RuntimeName } from '../core/identity.ts'
import { type PatternProblem, parseSegment, type Segment } from '../core/pattern.ts'
import { SERVE_ANYWAY } from './layouts.ts'

/** Stems of files that stand for their folder. */
export const FOLDER_STEMS: ReadonlySet<string> = new Set(['handler', 'main', 'index'])
/** Languages people drop into a tree that no runtime of the gateway runs; other extensions are data. */
const FOREIGN = new Set(
  '.rb .java .kt .cs .pl .sh .bash .ex .exs .scala .swift .dart .c .cc .cpp .clj .jl .tsx .jsx .wasm .zig .hs'.split(
    ' ',
  ),
)
/** Config files of a folder. */
export const CONFIG_FILES = {
  config: 'fn.config.json',
  routes: 'fn.routes.json',
  env: 'fn.env.json',
  dotenv: '.env',
} as const
const CONFIG_NAMES: ReadonlySet<string> = new Set(Object.values(CONFIG_FILES))

export const SCHEMA_NAME = 'schema.json'

/** True for a file that describes the requests of handlers beside it. */
export function isSchemaName(fileName: string): boolean {
  return fileName === SCHEMA_NAME || (fileName.endsWith(`.${SCHEMA_NAME}`) && !fileName.startsWith('.'))
}

/**
 * Names of the file that describes a handler's requests, the first that exists counts: `[id].schema.json` for `[id].js`, and
 * `schema.json` for what stands for its folder.
 */
export function schemaNamesOf(fileName: string, standsForFolder: boolean): string[] {
  const own = `${fileName.slice(0, -extensionOf(fileName).length)}.${SCHEMA_NAME}`
  return standsForFolder ? [own, SCHEMA_NAME] : [own]
}

/** A file that may answer requests. */
export interface RouteFile {
  kind: 'route'
  fileName: string
  runtime: RuntimeName
  /** File name without extension. */
  stem: string
  extension: string
  /** The prefix, null without one. */
  method: Method | null
  /** Canonical text of what follows the folder's path, such as `users/:id`; empty when the file stands for its folder. */
  path: string
  /** `handler`, `main` or `index` without prefix: the file stands for its folder. */
  isFolderFile: boolean
  /** Has a method prefix or a dynamic token: stays public inside a function's folder. */
  isExplicit: boolean
}

/** A source file whose name is not a route. */
interface PrivateFile {
  kind: 'private'
  fileName: string
  runtime: RuntimeName
  reason: string
  /** No function loads it: a test or a declaration. */
  isInert: boolean
  /** A test, which would be a route by the other rules. */
  isTest: boolean
}

/** A source file whose name breaks a rule. */
export interface BadFile {
  kind: 'bad'
  fileName: string
  runtime: RuntimeName
  code: 'AMBIGUOUS_METHOD_PREFIX' | 'UNSUPPORTED_NAME'
  /** Continues the sentence that begins with the path. */
  message: string
  hint: string
}

/** Not source of any runtime. `reason` is null for plain data. */
interface OtherFile {
  kind: 'other'
  fileName: string
  reason: string | null
}

type FileName = RouteFile | PrivateFile | BadFile | OtherFile

/** True for the three files that configure a folder. */
export function isConfigName(fileName: string): boolean {
  return CONFIG_NAMES.has(fileName)
}

/** Files beside a compiled handler that decide what its program is made of. */
const MANIFESTS: ReadonlyMap<string, RuntimeName> = new Map([
  ['go.mod', 'go'],
  ['go.sum', 'go'],
  ['Cargo.toml', 'rust'],
  ['Cargo.lock', 'rust'],
  ['requirements.txt', 'python'],
  ['package.json', 'node'],
  ['package-lock.json', 'node'],
  ['composer.json', 'php'],
  ['composer.lock', 'php'],
])

/** The runtime whose programs or packages a manifest decides about, undefined for any other file. */
export function manifestRuntime(fileName: string): RuntimeName | undefined {
  return MANIFESTS.get(fileName)
}

/** Extension with its dot, empty without one; a leading dot starts a name, not an extension. */
export function extensionOf(fileName: string): string {
  const dot = fileName.lastIndexOf('.')
  return dot <= 0 ? '' : fileName.slice(dot)
}

/** True for a file whose content can change what a function does. */
export function isSourceName(fileName: string): boolean {
  return !fileName.startsWith('.') && RUNTIME_OF_EXTENSION.has(extensionOf(fileName))
}

/** Reads a file name, whatever folder the file is in. */
export function parseFileName(fileName: string): FileName {
  const extension = extensionOf(fileName)
  const runtime = RUNTIME_OF_EXTENSION.get(extension)
  if (runtime === undefined || fileName.startsWith('.')) {
    const reason = FOREIGN.has(extension) ? `no runtime runs ${extension} files` : null
    return { kind: 'other', fileName, reason }
  }
  const stem = fileName.slice(0, -extension.length)
  if (stem.startsWith('_')) {
    const reason = 'private: the name starts with "_"'
    return { kind: 'private', fileName, runtime, reason, isInert: false, isTest: false }
  }
  if (stem.endsWith('.d') && /^\.[mc]?ts$/.test(extension)) {
    return { kind: 'private', fileName, runtime, reason: 'a type declaration file', isInert: true, isTest: false }
  }
  const tokens = splitTokens(stem)
  const first = toMethod(tokens[0])
  if (isTestName(stem, extension)) {
    const reason = `a test file; ${SERVE_ANYWAY}`
    return { kind: 'private', fileName, runtime, reason, isInert: true, isTest: true }
  }
  if (first !== null && toMethod(tokens[1]) !== null) {
    const message = `has two method prefixes, ${tokens[0]} and ${tokens[1]}: exactly one is allowed`
    const hint = 'Make one file for each method, or list the methods in invoke.methods of fn.config.json.'
    return { kind: 'bad', fileName, runtime, code: 'AMBIGUOUS_METHOD_PREFIX', message, hint }
  }
  const words = first === null ? tokens : tokens.slice(1)
  const isFolderFile = first === null && words.length === 1 && FOLDER_STEMS.has(stem)
  if (words.length > 0 && FOLDER_STEMS.has(words.at(-1)!)) words.pop()
  const segments: Segment[] = []
  for (const word of words) {
    const segment = nameToSegment(word)
    if ('problem' in segment) {
      const message = segment.problem
      return { kind: 'bad', fileName, runtime, code: 'UNSUPPORTED_NAME', message, hint: NAME_HINT }
    }
    segments.push(segment)
  }
  const isExplicit = first !== null || segments.some(({ kind }) => kind !== 'static')
  const path = segments.map(({ canonical }) => canonical).join('/')
  return { kind: 'route', fileName, runtime, stem, extension, method: first, path, isFolderFile, isExplicit }
}

export const NAME_HINT =
  'Use letters, digits, "_" and "-", or [id], [...slug], [[...slug]]; "_" in front makes it private.'

/** Reads a token of a file name, or the name of a folder: only brackets mark params there. */
export function nameToSegment(name: string): Segment | PatternProblem {
  if (isNameSegment(name)) return parseSegment(name)
  if (name.startsWith('[')) {
    const segment = parseSegment(name)
    if (!('problem' in segment)) return segment
  }
  const shown = JSON.stringify(name)
  if (name === '') return { problem: 'has an empty part between two dots' }
  if (/[[\]]/.test(name)) return { problem: `has a malformed dynamic part ${shown}` }
  return { problem: `has characters outside the supported ASCII set in ${shown}` }
}

/** `x.test.js`, `x.spec.ts`, `test_x.py`, `conftest.py`, and `x_test.go`, which Go builds into no program. */
function isTestName(stem: string, extension: string): boolean {
  if (/\.(?:test|spec)$/.test(stem) || (extension === '.go' && stem.endsWith('_test'))) return true
  return extension === '.py' && (stem.startsWith('test_') || stem === 'conftest')
}

function toMethod(token: string | undefined): Method | null {
  const upper = token?.toUpperCase()
  return isMethod(upper) ? upper : null
}

/** Splits at dots outside brackets: `users.[...slug]` has two tokens. */
function splitTokens(stem: string): string[] {
  const tokens: string[] = []
  let depth = 0
  let start = 0
  for (let at = 0; at < stem.length; at++) {
    const char = stem[at]
    if (char === '[') depth++
    else if (char === ']') depth--
    else if (char === '.' && depth <= 0) {
      tokens.push(stem.slice(start, at))
      start = at + 1
    }
  }
  tokens.push(stem.slice(start))
  return tokens
}
