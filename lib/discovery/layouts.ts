/**
 * Which names are read, what each file name means, and what kind each folder is. Spec: §2.2.
 *
 *   root ─┬─ hello.js             routes    every file is a route
 *         ├─ users/index.js       function  one function; explicit files below it stay routes
 *         ├─ python/hello/...     group     the runtime's name is not part of the path
 *         ├─ _lib/ src/           private   read for changes, never published
 *         ├─ tests/ scripts/      routes    at the root alone: files without a callable are left out
 *         └─ node_modules/ .git/  skipped   never read
 */

import type { IgnoredPath } from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import {
  isMethod,
  isNameSegment,
  isReservedPath,
  type Method,
  RUNTIME_OF_EXTENSION,
  type RuntimeName,
} from '../core/identity.ts'
import { type PatternProblem, parseSegment, type Segment } from '../core/pattern.ts'
import { nameSome } from '../core/text.ts'

const SKIPPED: ReadonlySet<string> = new Set(['node_modules', 'vendor', '__pycache__', 'target'])

/** Why a folder is never read, by its name alone; null when it is read. */
export function skippedReason(folderName: string): string | null {
  if (folderName.startsWith('.')) return 'the name starts with "."'
  return SKIPPED.has(folderName) ? 'a folder of packages or build results' : null
}

/** Why a folder that is read for changes publishes nothing; null when it may publish. */
export function privateReason(folderName: string): string | null {
  if (folderName.startsWith('_')) return 'private: the name starts with "_"'
  return folderName === 'src' ? 'a source folder of the function around it' : null
}

/** Why nothing in a folder of that name would ever be served; null for a name that a function may have. */
export function unservedReason(name: string): string | null {
  for (const segment of name.split('/')) {
    const reason = skippedReason(segment) ?? privateReason(segment)
    if (reason !== null) return `a function in a folder "${segment}" is never served: ${reason}`
  }
  return isReservedPath(`/${name}`) ? `/${name} is reserved for the gateway itself; choose another name` : null
}

/** Config files of a folder. */
export const CONFIG_FILES = {
  config: 'fn.config.json',
  routes: 'fn.routes.json',
  env: 'fn.env.json',
  dotenv: '.env',
} as const
const CONFIG_NAMES: ReadonlySet<string> = new Set(Object.values(CONFIG_FILES))

/** True for a file that configures a folder. */
export function isConfigName(fileName: string): boolean {
  return CONFIG_NAMES.has(fileName)
}

export const SCHEMA_NAME = 'schema.json'

/**
 * Names of the file that describes a handler's requests, the first that exists counts: `[id].schema.json` for `[id].js`, and
 * `schema.json` for a handler that stands for its folder.
 */
export function schemaNamesOf(fileName: string, standsForFolder: boolean): string[] {
  const own = `${stemOf(fileName)}.${SCHEMA_NAME}`
  return standsForFolder ? [own, SCHEMA_NAME] : [own]
}

/** Files beside a handler that decide what its program or its packages are made of. */
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

/** The name, or the path, of a file without its extension. */
export function stemOf(fileName: string): string {
  return fileName.slice(0, fileName.length - extensionOf(fileName).length)
}

/** True for a file whose content can change what a function does. */
export function isSourceName(fileName: string): boolean {
  return !fileName.startsWith('.') && RUNTIME_OF_EXTENSION.has(extensionOf(fileName))
}

/** True for a file that discovery reads: source, config, schema or manifest. Any other file is data. */
export function isReadName(fileName: string): boolean {
  if (isSourceName(fileName) || isConfigName(fileName) || MANIFESTS.has(fileName)) return true
  return fileName === SCHEMA_NAME || (fileName.endsWith(`.${SCHEMA_NAME}`) && !fileName.startsWith('.'))
}

/** Stems of files that stand for their folder. */
export const FOLDER_STEMS: ReadonlySet<string> = new Set(['handler', 'main', 'index'])
/** Languages people drop into a tree that no runtime of the gateway runs; other extensions are data. */
const FOREIGN = new Set(
  '.rb .java .kt .cs .pl .sh .bash .ex .exs .scala .swift .dart .c .cc .cpp .clj .jl .tsx .jsx .wasm .zig .hs'.split(
    ' ',
  ),
)

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

/** How to serve a file that is not served by its name; ends the reason why it is not. */
export const SERVE_ANYWAY = 'to serve it, name it in fn.routes.json or as "entrypoint" in fn.config.json'

/** Reads a file name, whatever folder the file is in. */
export function parseFileName(fileName: string): RouteFile | PrivateFile | BadFile | OtherFile {
  const extension = extensionOf(fileName)
  const runtime = RUNTIME_OF_EXTENSION.get(extension)
  if (runtime === undefined || fileName.startsWith('.')) {
    const reason = FOREIGN.has(extension) ? `no runtime runs ${extension} files` : null
    return { kind: 'other', fileName, reason }
  }
  const stem = stemOf(fileName)
  const toPrivate = (reason: string, isInert: boolean, isTest: boolean): PrivateFile => {
    return { kind: 'private', fileName, runtime, reason, isInert, isTest }
  }
  if (stem.startsWith('_')) return toPrivate('private: the name starts with "_"', false, false)
  if (stem.endsWith('.d') && /^\.[mc]?ts$/.test(extension)) return toPrivate('a type declaration file', true, false)
  if (isTestName(stem, extension)) return toPrivate(`a test file; ${SERVE_ANYWAY}`, true, true)
  const tokens = splitTokens(stem)
  const method = toMethod(tokens[0])
  if (method !== null && toMethod(tokens[1]) !== null) {
    const message = `has two method prefixes, ${tokens[0]} and ${tokens[1]}: exactly one is allowed`
    const hint = 'Make one file for each method, or list the methods in invoke.methods of fn.config.json.'
    return { kind: 'bad', fileName, runtime, code: 'AMBIGUOUS_METHOD_PREFIX', message, hint }
  }
  const words = method === null ? tokens : tokens.slice(1)
  const isFolderFile = method === null && words.length === 1 && FOLDER_STEMS.has(stem)
  if (words.length > 0 && FOLDER_STEMS.has(words.at(-1)!)) words.pop()
  const segments: Segment[] = []
  for (const word of words) {
    const segment = nameToSegment(word)
    if ('problem' in segment) {
      return { kind: 'bad', fileName, runtime, code: 'UNSUPPORTED_NAME', message: segment.problem, hint: NAME_HINT }
    }
    segments.push(segment)
  }
  const isExplicit = method !== null || segments.some(({ kind }) => kind !== 'static')
  const path = segments.map(({ canonical }) => canonical).join('/')
  return { kind: 'route', fileName, runtime, stem, extension, method, path, isFolderFile, isExplicit }
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
  // No file name contains a slash.
  return stem.replace(/\[[^\]]*\]*|\./g, part => (part === '.' ? '/' : part)).split('/')
}

const SCRIPT_FOLDERS: ReadonlySet<string> = new Set(['tests', '__tests__', 'scripts'])

/** True for a folder below the root whose files are often tests or scripts. */
export function isScriptFolder(path: string): boolean {
  return SCRIPT_FOLDERS.has(path)
}

/**
 * The usual role of a file, by its name and folder; it is served only when it has a callable. A script is loaded by no
 * function; the configuration of a tool may be, and its default export is for the tool. Null for all other files.
 */
export function usualRole(folder: string, fileName: string): 'script' | 'configuration' | null {
  if (/^(?:gulpfile|Gruntfile)\.|^(?:setup|noxfile)\.py$/.test(fileName)) return 'configuration'
  if (/^(?!(?:get|post|put|patch|delete)\.).*\.config\.[a-z]+$/i.test(fileName)) return 'configuration'
  const [top = ''] = folder.split('/')
  return isScriptFolder(top) || /_test\.[a-z]+$/.test(fileName) ? 'script' : null
}

export type FolderKind = 'function' | 'routes' | 'group'

/**
 * True for a label such as `v1`, `2.0` or `2024-05-01`: a folder without a handler, but with such children,
 * still has versions.
 */
export function isVersionLike(label: string): boolean {
  return /^v?\d+(?:[._-][a-zA-Z0-9_.-]*)?$/.test(label)
}

/** Why a file of a language that is off is ignored. */
export function toOffReason(runtime: RuntimeName): string {
  return `the runtime ${runtime} is not enabled in FN_RUNTIMES`
}

/** The setting to type. It lists the enabled runtimes too, because a list turns off the others. */
export function toTurnOnHint(runtimes: Iterable<RuntimeName>): string {
  const names = [...runtimes]
  const all = names.join(',')
  return `Turn it on: --runtimes ${all} (FN_RUNTIMES=${all}), or "runtimes": ${JSON.stringify(names)} in fngw.json.`
}

/**
 * One warning for all files of languages that are neither enabled nor disabled.
 * @param enabled - runtimes that are on by default
 */
export function toOffWarnings(ignored: readonly IgnoredPath[], enabled: readonly RuntimeName[]): Warning[] {
  const runtimes = new Set<RuntimeName>()
  const paths: string[] = []
  for (const { path, reason } of ignored) {
    const runtime = RUNTIME_OF_EXTENSION.get(path.slice(path.lastIndexOf('.')))
    if (runtime === undefined || reason !== toOffReason(runtime)) continue
    runtimes.add(runtime)
    paths.push(path)
  }
  const [first] = paths
  if (first === undefined) return []
  const message = `${[...runtimes].join(' and ')} ${runtimes.size > 1 ? 'are' : 'is'} not enabled by default; not served: ${nameSome(paths)}`
  return [{ code: 'RUNTIME_OFF', path: first, message, hint: toTurnOnHint([...enabled, ...runtimes]) }]
}
