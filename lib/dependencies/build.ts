/** The interface of a builder, and helpers that builders share: files, source text, results. Owner: §2.16, page dependencies/resolve. */

import { lstatSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join, relative, sep } from 'node:path'
import type { FunctionVersion } from '../core/catalog.ts'
import { orNull } from '../core/errors.ts'
import type { HostEnv } from '../core/host.ts'
import type { RuntimeName } from '../core/identity.ts'
import { nameSome } from '../core/text.ts'
import type { FileReader } from '../files/function-file.ts'
import { nullFor, type OwnFolder } from '../files/own-folder.ts'
import type { BuildTools } from './run-tool.ts'

/** Folder levels below a function's folder that are read for sources. */
const MAX_FOLDER_DEPTH = 12

/** The program that builds, and everything about it that changes the result. */
export interface Toolchain {
  /** Full path. */
  program: string
  /** As of `readVersion`, with system and machine. */
  version: string
}

export interface BuildPlan {
  /** Full path of the program; null where packages are installed. */
  binary: string | null
  /**
   * Does the work; its result is null when another build did it meanwhile. Null when all is there.
   * @throws GatewayError LOAD_FAILED, or any error of the file system
   */
  build: ((tools: BuildTools) => Promise<InstallResult | null>) | null
}

/** One language's way from sources to what a worker needs: go and rust build, an `Installer` installs packages. */
export interface Builder {
  runtime: RuntimeName
  concurrency: number
  timeoutMs: number
  /** Files in a function's folder that decide; default: none. */
  manifests?: readonly string[]
  /** Functions whose sources are read at once, where each read starts a tool; default: all. */
  looksAtOnce?: number | undefined
  /** Names the work, before `<runtime> function <name>`; default `building`. */
  action?: string
  /** False where nothing is done before a call asks for it; default true. */
  isAhead?: boolean
  /** False for a function that certainly needs nothing, so that no tool is looked for; default true. */
  isNeeded?(fn: FunctionVersion): boolean
  /** True when its sources are read only after work for another function; default false. */
  isBusy?(fn: FunctionVersion): boolean
  /** The environment of its tools; default that of builds. */
  toEnv?(hostEnv: HostEnv): Record<string, string>
  /** Adds packages to the manifest of a function's folder with the next install; absent where another tool does that. */
  ask?(fn: FunctionVersion, packages: readonly string[]): void
  /** Text that changes with every file that decides about the function's packages, those of its neighbours too. */
  stampOf?(fn: FunctionVersion): string
  /** The record of a function's packages, under the names of the control plane; null without one. */
  recordOf?(fn: FunctionVersion): object | null
  retain?(functions: ReadonlyMap<string, FunctionVersion>): void
  /** Reads the version of a toolchain. @throws GatewayError LOAD_FAILED */
  readVersion(program: string, tools: BuildTools): Promise<string>
  /**
   * Reads the sources.
   * @param tools - programs that only read them
   * @throws GatewayError LOAD_FAILED when they cannot be a function
   */
  plan(fn: FunctionVersion, toolchain: Toolchain, tools: BuildTools): BuildPlan | Promise<BuildPlan>
}

/** Of the builders of go and rust. */
export interface CompilerOptions {
  functionsRoot: string
  hostEnv: HostEnv
  isPrivate: boolean
  /** Reads files of functions that are kept apart by users; null: links are followed. */
  readFile?: FileReader | null
  goBuildTimeoutSeconds: number
  rustBuildTimeoutSeconds: number
  /** Full path of the folder with the sources of a runtime's worker. */
  workerFolder(runtime: 'go' | 'rust'): string
}

/** Sources of a runtime's worker, read when they are first needed: by path below their folder. */
export function workerSources(folder: string, isWanted: (name: string) => boolean): () => ReadonlyMap<string, string> {
  let sources: Map<string, string> | null = null
  return () => {
    sources ??= new Map(filesBelow(folder, isWanted).map(path => [below(folder, path), readFileSync(path, 'utf8')]))
    return sources
  }
}

/** A folder of a function as commands and hints name it. */
export function toFolderName(functionsRoot: string, folder: string): string {
  return below(functionsRoot, folder) || '.'
}

/** `shop/cart/package.json`: a file of a folder that messages name by its label. */
export function labelOf(label: string, name: string): string {
  return label === '.' ? name : `${label}/${name}`
}

/** True for an entry of that name, also for a broken link. */
export function hasFile(folder: string, name: string): boolean {
  return lstatSync(join(folder, name), { throwIfNoEntry: false }) !== undefined
}

/** False for a link: its target is not the gateway's to write. True for a missing file. */
export function isWritable(folder: OwnFolder, name: string): boolean {
  return lstatSync(folder.pathOf(name), { throwIfNoEntry: false })?.isFile() !== false
}

/** The text of a file, null when it does not exist. */
export function readOptional(path: string): string | null {
  return nullFor(['ENOENT'], () => readFileSync(path, 'utf8'))
}

/** The text of a file, null when it cannot be read. */
export function tryRead(path: string): string | null {
  return orNull(() => readFileSync(path, 'utf8'))
}

export function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true
}

/** Folders without sources, beside hidden ones. */
const SKIPPED: ReadonlySet<string> = new Set(['node_modules', 'vendor', '__pycache__', 'target', 'testdata'])

/** Files below a folder that a test takes, full paths in order. */
export function filesBelow(folder: string, isWanted: (name: string) => boolean, depth = 0): string[] {
  if (depth > MAX_FOLDER_DEPTH) return []
  const entries = readdirSync(folder, { withFileTypes: true }).sort((a, b) => (a.name < b.name ? -1 : 1))
  return entries.flatMap(entry => {
    const { name } = entry
    const path = join(folder, name)
    if (entry.isDirectory())
      return name.startsWith('.') || SKIPPED.has(name) ? [] : filesBelow(path, isWanted, depth + 1)
    return entry.isFile() && isWanted(name) ? path : []
  })
}

/** Files of packages that a manifest names by their folder; a folder with more is not a package. */
const MAX_LOCAL_FILES = 5000

/** Full paths of the files of packages that a manifest names by their folders: they are part of what is built. */
export function filesOfPackages(folders: readonly string[]): string[] {
  const found = folders.filter(isFolder).flatMap(folder => filesBelow(folder, () => true))
  return [...new Set(found)].sort().slice(0, MAX_LOCAL_FILES)
}

/** A path below another one, with `/`. */
export function below(folder: string, path: string): string {
  return relative(folder, path).split(sep).join('/')
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

export function lineOf(text: string, position: number): number {
  return text.slice(0, position).split('\n').length
}

function endOfNested(text: string, from: number): number {
  let depth = 0
  for (const mark of text.slice(from).matchAll(/\/\*|\*\//g)) {
    depth += mark[0] === '/*' ? 1 : -1
    if (depth === 0) return from + mark.index + 2
  }
  return text.length
}

export interface InstallResult {
  /** Packages that are there now; null for a program. */
  packages: number | null
  bytes: number
  /** Packages that were asked for, such as `requests==2.32.3`. */
  names: readonly string[]
  /** True when all of it was there already, for another function. */
  isShared: boolean
}

/** One line: `installed 4 packages for python/hello@default in 2.3 s, 34 MB: requests==2.32.3`. */
export function toResultText(key: string, durationMs: number, made: InstallResult): string {
  const { packages, bytes, names, isShared } = made
  const time = `in ${(durationMs / 1000).toFixed(1)} s`
  if (packages === null) return `built ${key} ${time}, ${toSizeText(bytes)}`
  if (packages === 0) return `installed no packages for ${key} ${time}: none is needed`
  const count = `${packages} ${packages === 1 ? 'package' : 'packages'}`
  const shown = names.length === 0 ? '' : `: ${nameSome(names)}`
  return `installed ${count} for ${key} ${time}, ${toSizeText(bytes)}${isShared ? ' shared with others' : ''}${shown}`
}

/** As disks are sold: `34 MB`, `2.1 MB`, `512 kB`. */
export function toSizeText(bytes: number): string {
  if (bytes === 0) return '0 kB'
  let value = bytes / 1000
  const units = ['kB', 'MB', 'GB', 'TB']
  while (value >= 999.5 && units.length > 1) {
    value /= 1000
    units.shift()
  }
  return `${Math.max(value, 0.1).toFixed(value >= 9.95 ? 0 : 1)} ${units[0]}`
}
