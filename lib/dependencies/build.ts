/** The interface of a builder, and helpers that builders share: results, errors, source files and text. Owner: §2.16, page dependencies/resolve. */

import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join, relative, sep } from 'node:path'
import type { FunctionVersion } from '../core/catalog.ts'
import { type ErrorDetail, GatewayError, orNull } from '../core/errors.ts'
import type { HostEnv } from '../core/host.ts'
import type { RuntimeName } from '../core/identity.ts'
import type { OwnFolder } from '../files/own-folder.ts'
import type { ToolUser } from '../files/tool-user.ts'
import type { ToolResult, ToolRun } from './run-tool.ts'

/** Milliseconds after which a build that failed for no fault of its sources is tried again. */
export const BUILD_RETRY_MS = 10_000
/** Lines and characters of a tool's output that an error shows. */
const MAX_BUILD_TAIL_LINES = 8
const MAX_BUILD_TAIL_CHARS = 2000
/** Characters of a source line that an error shows. */
const MAX_FRAME_CHARS = 160
/** Folder levels below a function's folder that are read for sources. */
const MAX_BUILD_FOLDER_DEPTH = 12

/** The program that builds, and everything about it that changes what it makes. */
export interface Toolchain {
  /** Full path. */
  program: string
  /** Texts a builder asked for with `toolchainArgs`. */
  version: string
}

/** One build or install that is to be done. */
export interface BuildPlan {
  key: string
  /** True when what the key stands for is there. */
  isBuilt: boolean
  /** Full path of the program; null where packages are installed and there is none. */
  binary: string | null
  /**
   * Makes it and puts it in place; null when another build did meanwhile.
   * @throws GatewayError LOAD_FAILED, or any error of the file system
   */
  build(tools: BuildTools): Promise<InstallResult | null>
}

export interface BuildTools {
  /** Aborted when the work is not wanted any more; its tools are killed then. */
  readonly signal: AbortSignal
  /** The user of the tools; absent where functions are not kept apart by users. */
  readonly user?: ToolUser | null
  /** Runs a program with the build environment. */
  run(run: ToolCommand): Promise<ToolResult>
  /** The tools of a shared pack: no function may change what others load. @param folder - full path of the pack */
  forPack?(folder: string): BuildTools
}

interface ToolCommand extends Pick<ToolRun, 'command' | 'args' | 'cwd'> {
  env?: Readonly<Record<string, string>>
  /** The folder that the tool may write to where it runs as a user: below that of the user. */
  owns?: OwnFolder
}

/** One language's way from sources to what a worker needs: `go` and `rust` build, an `Installer` installs packages. */
export interface Builder {
  runtime: RuntimeName
  /** Builds that may run at once. */
  concurrency: number
  timeoutMs: number
  /** Files in a function's folder that decide; absent: none. */
  manifests?: readonly string[]
  /** Functions whose sources are read at once where each read starts a tool; absent where none does, or one serves all. */
  looksAtOnce?: number | undefined
  /** Names the work, before `<runtime> function <name>`; default `building`. */
  action?: string
  /** False where nothing is done before a call asks for it; default true. */
  isAhead?: boolean
  /** False for a function that certainly needs nothing, so that no tool is looked for; absent where each needs something. */
  isNeeded?(fn: FunctionVersion): boolean
  /** True when its sources are read only after work for another function; default false. */
  isBusy?(fn: FunctionVersion): boolean
  /** The environment of its tools; default that of builds. */
  toEnv?(hostEnv: HostEnv): Record<string, string>
  /** Adds packages to the manifest of a function's folder with the next install; absent where another tool does that. */
  ask?(fn: FunctionVersion, packages: readonly string[]): void
  /** Text that changes with every file that decides about the function's packages, those of its neighbours too. */
  stampOf?(fn: FunctionVersion): string
  /** The record of a function's packages, under the names of the control plane; null when nothing is. */
  recordOf?(fn: FunctionVersion): object | null
  /** The functions of a new catalog. */
  retain?(functions: ReadonlyMap<string, FunctionVersion>): void
  /** Reads the version of a toolchain. @throws GatewayError LOAD_FAILED */
  readVersion(program: string, tools: BuildTools, cwd: string): Promise<string>
  /**
   * Reads the sources.
   * @param tools - programs that only look at them
   * @throws GatewayError LOAD_FAILED when they cannot be a function
   */
  plan(fn: FunctionVersion, toolchain: Toolchain, tools: BuildTools): BuildPlan | Promise<BuildPlan>
}

/** A place in a source file: path below the functions root, line from 1. */
export interface Place {
  file: string
  line: number
}

/** Where a compiler found an error. */
export interface CompilerPlace extends Place {
  /** From 1. */
  column: number | undefined
}

/** A build that failed for a reason in the sources: it will fail again until they change. */
export function sourceError(message: string, detail: ErrorDetail = {}): GatewayError {
  return new GatewayError('LOAD_FAILED', message, { detail })
}

/** True when trying again without a change may help: the cause is not a line of the sources. */
export function isPassing(error: GatewayError): boolean {
  return error.code !== 'LOAD_FAILED' || error.detail?.file === undefined
}

/**
 * The error for a tool that ended badly without naming a line of the sources.
 * @param action - such as `go build`
 */
export function toolError(action: string, result: ToolResult, timeoutMs: number, hint?: string): GatewayError {
  const detail: ErrorDetail = hint === undefined ? {} : { hint }
  if (result.timedOut) {
    const message = `build failed: ${action} took longer than ${timeoutMs / 1000} s and was stopped`
    return new GatewayError('LOAD_FAILED', message, { detail })
  }
  const tail = toTail(result.output.split('\n'))
  const why = result.problem ?? `${action} exited with code ${result.code}`
  return new GatewayError('LOAD_FAILED', `build failed: ${tail === '' ? why : tail}`, { detail })
}

/** Errors of a compiler, with paths as the owner of the sources knows them. */
interface CompilerErrors {
  lines: readonly string[]
  /** Of the first error in a file of the function's; null when there is none. */
  first: CompilerPlace | null
  /**
   * Text of the file of the first error; null when it is not one of the sources that were built: `//line` may name any file, and
   * the gateway may read more than the function.
   */
  source: string | null
}

/**
 * The error for a compiler that ended badly: its first lines with the place of the first one, or what else it said.
 * @param hint - what to do, when that is known
 */
export function compilerError(
  action: string,
  result: ToolResult,
  timeoutMs: number,
  { lines, first, source }: CompilerErrors,
  hint: string | undefined,
): GatewayError {
  if (first === null) return toolError(action, result, timeoutMs, hint)
  const { file, line } = first
  const stack = source === null ? null : toSourceFrame(source, first)
  const detail: ErrorDetail = { file, line, ...(stack !== null && { stack }), ...(hint !== undefined && { hint }) }
  return sourceError(`build failed: ${toHead(lines)}`, detail)
}

/** The line of an error and the one before it, numbered, with a mark below the column. */
function toSourceFrame(source: string, { line, column }: CompilerPlace): string {
  const first = Math.max(1, line - 1)
  const lines = source.split('\n').slice(first - 1, line)
  const shown = lines.map(
    (text, at) => `${String(first + at).padStart(5)} | ${text.slice(0, MAX_FRAME_CHARS).replaceAll('\t', ' ')}`,
  )
  const hasMark = column !== undefined && column <= MAX_FRAME_CHARS
  return [...shown, ...(hasMark ? [`      | ${' '.repeat(column - 1)}^`] : [])].join('\n')
}

/** Sources of a runtime's worker, read when they are first needed: by path below their folder. */
export function workerSources(folder: string, isWanted: (name: string) => boolean): () => ReadonlyMap<string, string> {
  let sources: Map<string, string> | null = null
  return () => {
    sources ??= new Map(filesBelow(folder, isWanted).map(path => [below(folder, path), readFileSync(path, 'utf8')]))
    return sources
  }
}

/** A folder of a function as people name it in a command or a hint. */
export function toFolderName(functionsRoot: string, folder: string): string {
  return below(functionsRoot, folder) || '.'
}

/** The error for a toolchain that cannot build. */
export function toOldError(found: string, oldest: string): GatewayError {
  const hint = `${found} is too old: ${oldest} or newer is needed`
  return new GatewayError('RUNTIME_DOWN', 'runtime down', { headers: { 'Retry-After': '1' }, detail: { hint } })
}

/** The last lines of a tool's output, without empty ones. */
function toTail(lines: readonly string[]): string {
  const full = lines.map(line => line.trimEnd()).filter(line => line.trim() !== '')
  return cut(full.slice(-MAX_BUILD_TAIL_LINES).join('\n'))
}

/** The first lines: where a compiler begins with the error that matters. */
function toHead(lines: readonly string[]): string {
  const rest = lines.length - MAX_BUILD_TAIL_LINES
  const shown = rest > 0 ? [...lines.slice(0, MAX_BUILD_TAIL_LINES), `and ${rest} more`] : lines
  return cut(shown.join('\n'))
}

function cut(text: string): string {
  return text.length <= MAX_BUILD_TAIL_CHARS ? text : `${text.slice(0, MAX_BUILD_TAIL_CHARS)}...`
}

/** The text of a file, null when it is not there. */
export function readOptional(path: string): string | null {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
    throw error
  }
}

/** The text of a file, null when it cannot be read. */
export function tryRead(path: string): string | null {
  return orNull(() => readFileSync(path, 'utf8'))
}

/** Files that are worked on at once. */
const AT_ONCE = 16

/** Results of work for all items in order, a few at once. */
export async function mapSome<T, R>(items: readonly T[], work: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = []
  for (let at = 0; at < items.length; at += AT_ONCE) {
    results.push(...(await Promise.all(items.slice(at, at + AT_ONCE).map(work))))
  }
  return results
}

export function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true
}

/** Files below a folder that a test takes, full paths in order; hidden folders, packages and build results are not entered. */
export function filesBelow(folder: string, isWanted: (name: string) => boolean, depth = 0): string[] {
  if (depth > MAX_BUILD_FOLDER_DEPTH) return []
  const found: string[] = []
  const entries = readdirSync(folder, { withFileTypes: true }).sort((a, b) => (a.name < b.name ? -1 : 1))
  for (const entry of entries) {
    const path = join(folder, entry.name)
    if (entry.isDirectory()) {
      if (!entry.name.startsWith('.') && !SKIPPED.has(entry.name)) found.push(...filesBelow(path, isWanted, depth + 1))
    } else if (entry.isFile() && isWanted(entry.name)) found.push(path)
  }
  return found
}

/** Files of packages that a manifest names by their folder; a folder with more is not a package. */
const MAX_LOCAL_FILES = 5000

/** Full paths of the files of packages that a manifest names by their folders: they are part of what is built. */
export function filesOfPackages(folders: readonly string[]): string[] {
  const found = folders.filter(isFolder).flatMap(folder => filesBelow(folder, () => true))
  return [...new Set(found)].sort().slice(0, MAX_LOCAL_FILES)
}

const SKIPPED: ReadonlySet<string> = new Set(['node_modules', 'vendor', '__pycache__', 'target', 'testdata'])

/** A path below another one, with `/`. */
export function below(folder: string, path: string): string {
  return relative(folder, path).split(sep).join('/')
}

const METHOD_PREFIX = /^(?:get|post|put|patch|delete)(?:\.|$)/i

/**
 * True when a source file beside the handler belongs to it: `_` files always, plain files only in the folder of a
 * function, where files with a method or a `[token]` in their name are separate routes.
 */
export function isMember(fn: FunctionVersion, fileName: string): boolean {
  if (fileName.startsWith('.')) return false
  if (fileName.startsWith('_')) return true
  const stem = fileName.replace(/\.[^.]+$/, '')
  return fn.kind === 'function' && !METHOD_PREFIX.test(stem) && !stem.includes('[')
}

// Source text without a compiler: code, comments and quoted text.

/**
 * Comments and quoted text of each language; of a block comment that may be nested only its beginning. Without an end they reach
 * to the end of the text.
 */
export const GO_TEXT =
  /\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)|`[^`]*`?|"[^"\\]*(?:\\[\s\S]?[^"\\]*)*"?|'[^'\\]*(?:\\[\s\S]?[^'\\]*)*'?/g
/** `r#"..."#` has no escapes; `'` may begin a lifetime instead of a character. */
export const RUST_TEXT =
  /\/\/[^\n]*|\/\*|(?<=(?<!\w)b?r(#*))"[\s\S]*?(?:"\1|$)|"[^"\\]*(?:\\[\s\S]?[^"\\]*)*"?|'(?:\\[\s\S]?[^'\\]*(?:\\[\s\S]?[^'\\]*)*'?|[^\\']')/g

/** The text with comments and quoted text blanked out; every line and column stays where it is. */
export function blankOut(text: string, marks: RegExp): string {
  let code = ''
  let at = 0
  for (let found = marks.exec(text); found !== null; found = marks.exec(text)) {
    const end = found[0] === '/*' ? endOfNested(text, found.index) : marks.lastIndex
    code += text.slice(at, found.index) + text.slice(found.index, end).replace(/[^\n]/g, ' ')
    at = marks.lastIndex = end
  }
  return code + text.slice(at)
}

/** 1-based line of a position. */
export function lineOf(text: string, position: number): number {
  let line = 1
  for (let at = text.indexOf('\n'); at !== -1 && at < position; at = text.indexOf('\n', at + 1)) line += 1
  return line
}

function endOfNested(text: string, from: number): number {
  let depth = 0
  for (const mark of text.slice(from).matchAll(/\/\*|\*\//g)) {
    depth += mark[0] === '/*' ? 1 : -1
    if (depth === 0) return from + mark.index + 2
  }
  return text.length
}

/** The outcome of a build or an install. */
export interface InstallResult {
  /** Packages that are there now; null for a program. */
  packages: number | null
  bytes: number
  /** Packages that were asked for, such as `requests==2.32.3`. */
  names: readonly string[]
  /** True when all of it was there already, for another function. */
  isShared: boolean
}

/** Names that one line shows. */
const MAX_SHOWN_NAMES = 5

/** @param path - full path of the program */
export function toProgramResult(path: string): InstallResult {
  return { packages: null, bytes: statSync(path).size, names: [], isShared: false }
}

/** All that one install put in place: packs and the function's own. */
export function joinResults(parts: readonly InstallResult[]): InstallResult {
  return {
    packages: parts.reduce((sum, { packages }) => sum + (packages ?? 0), 0),
    bytes: parts.reduce((sum, { bytes }) => sum + bytes, 0),
    names: parts.flatMap(({ names }) => names),
    isShared: parts.every(({ isShared }) => isShared),
  }
}

/** One line: `installed 4 packages for python/hello@default in 2.3 s, 34 MB: requests==2.32.3`. */
export function toResultText(
  key: string,
  durationMs: number,
  { packages, bytes, names, isShared }: InstallResult,
): string {
  const time = `in ${(durationMs / 1000).toFixed(1)} s`
  if (packages === null) return `built ${key} ${time}, ${toSizeText(bytes)}`
  if (packages === 0) return `installed no packages for ${key} ${time}: none is needed`
  const count = `${packages} ${packages === 1 ? 'package' : 'packages'}`
  const more = names.length > MAX_SHOWN_NAMES ? ` and ${names.length - MAX_SHOWN_NAMES} more` : ''
  const shown = names.length === 0 ? '' : `: ${names.slice(0, MAX_SHOWN_NAMES).join(', ')}${more}`
  return `installed ${count} for ${key} ${time}, ${toSizeText(bytes)}${isShared ? ' shared with others' : ''}${shown}`
}

/** As disks are sold: `34 MB`, `2.1 MB`, `512 kB`. */
export function toSizeText(bytes: number): string {
  if (bytes === 0) return '0 kB'
  const units = ['kB', 'MB', 'GB', 'TB']
  let value = bytes / 1000
  let unit = 0
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000
    unit += 1
  }
  const digits = value >= 9.95 ? 0 : 1
  return `${Math.max(value, 0.1).toFixed(digits)} ${units[unit]}`
}
