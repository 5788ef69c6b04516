/** Which files of a folder are its handlers, and which of its other files are routes. Spec: §2.3. */

import type { FunctionConfig } from '../config/function-config.ts'
import type { IgnoredPath } from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import {
  isRuntimeName,
  type Method,
  METHODS,
  RUNTIME_OF_EXTENSION,
  RUNTIMES,
  type RuntimeName,
} from '../core/identity.ts'
import { pathWarning, toChild } from './disk.ts'
import {
  type BadFile,
  extensionOf,
  type FolderKind,
  parseFileName,
  type RouteFile,
  SERVE_ANYWAY,
  toOffReason,
  toTurnOnHint,
  usualRole,
} from './layouts.ts'
import type { DirNode, FileEntry } from './snapshot.ts'

/** Default entry files in order of precedence; the same stem with another module extension comes after them. */
export const ENTRY_CANDIDATES: Readonly<Record<RuntimeName, readonly string[]>> = {
  python: ['handler.py', 'main.py'],
  node: [
    ...['handler.js', 'handler.ts', 'index.js', 'index.ts'],
    ...['handler.mjs', 'handler.cjs', 'handler.mts', 'handler.cts', 'index.mjs', 'index.cjs', 'index.mts', 'index.cts'],
  ],
  php: ['handler.php', 'index.php'],
  lua: ['handler.lua', 'main.lua', 'index.lua'],
  go: ['handler.go', 'main.go'],
  rust: ['handler.rs'],
}

/** Precedence of files that differ only in their extension. */
const EXTENSIONS = [...RUNTIME_OF_EXTENSION.keys()]

const RANK: ReadonlyMap<string, number> = new Map(
  RUNTIMES.flatMap(runtime => ENTRY_CANDIDATES[runtime]).map((fileName, index) => [fileName, index]),
)

/** True for a file of the table: it makes its folder one function. */
export function isEntryName(fileName: string): boolean {
  return RANK.has(fileName)
}

export interface Choice {
  chosen: RouteFile
  /** Files that would have been the handler if the chosen one did not exist. */
  ignored: RouteFile[]
}

/**
 * The handlers among the files that stand for one folder (`handler.*`, `main.*`, `index.*`): the first one of the table.
 * Without a file of the table, as with `index.py` and `main.js`, each language has one of equal right.
 */
export function chooseEntries(files: readonly RouteFile[]): Choice[] {
  const folderFiles = files.filter(file => file.isFolderFile)
  if (folderFiles.some(file => isEntryName(file.fileName))) return choose(folderFiles, compareEntries)
  return chooseRoutes(folderFiles)
}

/** The files that answer, of several with the same route in the same folder: one of each language, the first extension. */
export function chooseRoutes(files: readonly RouteFile[]): Choice[] {
  if (files.length === 1) return [{ chosen: files[0]!, ignored: [] }]
  const ofRuntime = (runtime: RuntimeName) => files.filter(file => file.runtime === runtime)
  return RUNTIMES.flatMap(runtime => choose(ofRuntime(runtime), compareRoutes))
}

function choose(files: readonly RouteFile[], compare: (a: RouteFile, b: RouteFile) => number): Choice[] {
  const [chosen, ...ignored] = [...files].sort(compare)
  return chosen === undefined ? [] : [{ chosen, ignored }]
}

function compareEntries(a: RouteFile, b: RouteFile): number {
  const rankOf = ({ fileName }: RouteFile) => RANK.get(fileName) ?? RANK.size
  return rankOf(a) - rankOf(b) || compareRoutes(a, b)
}

function compareRoutes(a: RouteFile, b: RouteFile): number {
  const byRuntime = RUNTIMES.indexOf(a.runtime) - RUNTIMES.indexOf(b.runtime)
  return byRuntime || EXTENSIONS.indexOf(a.extension) - EXTENSIONS.indexOf(b.extension) || (a.stem < b.stem ? -1 : 1)
}

/** Where a folder stands. */
export interface FolderView {
  /** The runtime whose group the folder is in. */
  group: RuntimeName | null
  /** A folder above it is one function, so only explicit files are public. */
  isInsideFunction: boolean
}

export function sameView(a: FolderView, b: FolderView): boolean {
  return a.group === b.group && a.isInsideFunction === b.isInsideFunction
}

interface FileRoute {
  file: RouteFile
  methods: readonly Method[]
}

export interface FolderFiles {
  kind: FolderKind
  /** The file that stands for the folder, or one of each language; none when `entrypoint` names another. */
  entries: readonly RouteFile[]
  /** Methods that prefixed files of the folder take from a default entry file; an explicit `entrypoint` keeps all of its methods. */
  takenMethods: ReadonlySet<Method>
  /** The other public files, for each route one of each language. */
  routes: readonly FileRoute[]
  /** Source files that functions may load. */
  helpers: readonly FileEntry[]
  ignored: readonly IgnoredPath[]
  warnings: readonly Warning[]
}

const NO_METHODS: ReadonlySet<Method> = new Set()
const GET_ALONE: readonly Method[] = ['GET']

/** Sorts the files of a folder that is read and not private. */
export class FileSorter {
  readonly #node: DirNode
  readonly #config: FunctionConfig | null
  readonly #view: FolderView
  readonly #enabled: ReadonlySet<RuntimeName>
  readonly #ignored: IgnoredPath[] = []
  readonly #warnings: Warning[] = []
  readonly #bad: BadFile[] = []
  /** Files that would be routes by their names alone. */
  readonly #noHandlers: IgnoredPath[] = []
  readonly #handlers = new Set<string>()
  /** `handler.*`, `main.*` and `index.*` of every language, also of one that is not enabled here. */
  readonly #canonical: string[] = []
  /** Names of source files that no function loads. */
  readonly #inert = new Set<string>()

  constructor(node: DirNode, config: FunctionConfig | null, view: FolderView, enabled: ReadonlySet<RuntimeName>) {
    this.#node = node
    this.#config = config
    this.#view = view
    this.#enabled = enabled
  }

  sort(): FolderFiles {
    const files = this.#routeFiles()
    const kind = this.#kind(files.length > 0)
    const entries = this.#entries(files)
    const isPrivateHere = this.#view.isInsideFunction || kind === 'function'
    const privateReason =
      kind === 'function'
        ? 'private: a file beside the handler of a function'
        : 'private: inside a function only index, handler, main, method-prefixed and dynamic files are public'
    for (const { code, fileName, message, hint } of this.#bad) {
      // A private helper may be called anything.
      if (!isPrivateHere || code !== 'UNSUPPORTED_NAME') this.#warn(code, fileName, message, hint)
    }
    const visible: RouteFile[] = []
    for (const file of files) {
      if (file.isFolderFile) continue
      if (file.isExplicit || !isPrivateHere) visible.push(file)
      else this.#ignore(file.fileName, privateReason)
    }
    for (const ignored of this.#noHandlers)
      this.#ignored.push(isPrivateHere ? { path: ignored.path, reason: privateReason } : ignored)
    const routes = this.#routes(visible)
    const takenMethods = this.#config?.entrypoint === undefined ? takenFrom(routes, '') : NO_METHODS
    const helpers = this.#node.files.filter(({ name }) => !this.#handlers.has(name) && !this.#inert.has(name))
    return { kind, entries, takenMethods, routes, helpers, ignored: this.#ignored, warnings: this.#warnings }
  }

  /**
   * A folder named like an enabled runtime groups functions only at the top and only while it holds no route file itself.
   * The functions root has no name to be a function under, so `index.*` there is its home page and hides nothing.
   */
  #kind(hasRouteFile: boolean): FolderKind {
    const { path } = this.#node
    if (this.#config?.identity) return 'function'
    if (path === '') return this.#canonical.some(file => !file.startsWith('index.')) ? 'function' : 'routes'
    // The path of a folder at the top is its name.
    if (isRuntimeName(path) && this.#enabled.has(path) && !hasRouteFile) return 'group'
    return this.#canonical.length > 0 ? 'function' : 'routes'
  }

  /** Source files of enabled runtimes whose names are routes. */
  #routeFiles(): RouteFile[] {
    const { path, files, otherFiles } = this.#node
    const found: RouteFile[] = []
    const { group } = this.#view
    const { handler, adapter } = this.#config?.invoke ?? {}
    const namesCallable = handler !== undefined || adapter !== undefined
    for (const { name, hasNoCallable } of files) {
      const parsed = parseFileName(name)
      if (parsed.kind === 'route' && parsed.isFolderFile) this.#canonical.push(name)
      if (parsed.kind === 'other') this.#inert.add(name)
      else if (!this.#enabled.has(parsed.runtime)) {
        this.#inert.add(name)
        this.#ignore(name, parsed.kind === 'private' ? parsed.reason : toOffReason(parsed.runtime))
      } else if (parsed.kind === 'private') {
        const { reason, isInert, isTest } = parsed
        if (isInert) this.#inert.add(name)
        if (isTest) this.#noHandlers.push({ path: toChild(path, name), reason, kind: 'test' })
        else this.#ignore(name, reason)
      } else if (parsed.kind === 'bad') {
        this.#ignore(name, parsed.message)
        this.#bad.push(parsed)
      } else if (hasNoCallable === true && !namesCallable) {
        if (usualRole(path, name) === 'script') this.#inert.add(name)
        const into = parsed.isFolderFile ? this.#ignored : this.#noHandlers
        into.push({ path: toChild(path, name), reason: `defines no handler; ${SERVE_ANYWAY}` })
      } else if (group === null || parsed.runtime === (this.#config?.runtime ?? group)) found.push(parsed)
      else this.#ignore(name, `below the folder ${group} only ${group} files are handlers`)
    }
    for (const name of otherFiles) {
      const parsed = parseFileName(name)
      if (parsed.kind === 'other' && parsed.reason !== null) this.#ignore(name, parsed.reason)
    }
    return found
  }

  #entries(files: readonly RouteFile[]): RouteFile[] {
    const { entrypoint, runtime } = this.#config ?? {}
    const wanted: RouteFile[] = []
    for (const file of files) {
      if (!file.isFolderFile) continue
      if (entrypoint !== undefined) this.#ignore(file.fileName, `entrypoint is ${entrypoint}`)
      else if (runtime === undefined || file.runtime === runtime) wanted.push(file)
      else this.#ignore(file.fileName, `fn.config.json sets the runtime ${runtime}`)
    }
    const hint = 'Delete them, or name one in "entrypoint".'
    return chooseEntries(wanted).map(choice =>
      this.#settle(choice, 'DUPLICATE_ENTRY', 'is the handler of its folder', hint),
    )
  }

  #routes(visible: readonly RouteFile[]): FileRoute[] {
    const groups = new Map<string, RouteFile[]>()
    for (const file of visible) {
      const key = `${file.method ?? ''} ${file.path}`
      groups.set(key, [...(groups.get(key) ?? []), file])
    }
    // The methods that an unusable config would list are unknown: it refuses calls by all of them.
    const defaults = this.#config?.problem === undefined ? GET_ALONE : METHODS
    const routes: FileRoute[] = []
    for (const choice of [...groups.values()].flatMap(chooseRoutes)) {
      const file = this.#settle(choice, 'DUPLICATE_ROUTE', 'answers its route', 'Delete them, or rename them.')
      const methods = file.method === null ? (this.#config?.invoke.methods ?? defaults) : [file.method]
      routes.push({ file, methods })
    }
    return routes.flatMap(route => this.#withoutTaken(route, routes))
  }

  /** In one language a method prefix is more exact than none: `get.users.js` answers GET, `users.js` the other methods. */
  #withoutTaken({ file, methods: all }: FileRoute, routes: readonly FileRoute[]): FileRoute[] {
    if (file.method !== null) return [{ file, methods: all }]
    const ofLanguage = routes.filter(other => other.file.runtime === file.runtime)
    const taken = takenFrom(ofLanguage, file.path)
    const methods = taken.size === 0 ? all : all.filter(method => !taken.has(method))
    if (methods.length > 0) return [{ file, methods }]
    this.#ignore(file.fileName, 'files with a method prefix answer all its methods')
    return []
  }

  #settle({ chosen, ignored }: Choice, code: string, role: string, hint: string): RouteFile {
    this.#handlers.add(chosen.fileName)
    for (const { fileName } of ignored) this.#ignore(fileName, `${chosen.fileName} ${role}`)
    const names = ignored.map(file => file.fileName).join(', ')
    if (ignored.length > 0) this.#warn(code, chosen.fileName, `${role}; ignored beside it: ${names}`, hint)
    return chosen
  }

  #ignore(fileName: string, reason: string): void {
    this.#ignored.push({ path: toChild(this.#node.path, fileName), reason })
  }

  #warn(code: string, fileName: string, text: string, hint: string): void {
    this.#warnings.push(pathWarning(code, toChild(this.#node.path, fileName), text, hint))
  }
}

/** Methods that prefixed files take on one path of the folder. */
function takenFrom(routes: readonly FileRoute[], path: string): ReadonlySet<Method> {
  const taken = routes.filter(({ file }) => file.method !== null && file.path === path)
  return taken.length === 0 ? NO_METHODS : new Set(taken.flatMap(route => route.methods))
}

/** A handler file that `entrypoint` or `fn.routes.json` names. */
export interface Target {
  ok: true
  runtime: RuntimeName
  /** Folders from below the starting one down to the file's. */
  folders: readonly DirNode[]
  /** Folder of the file, below the root. */
  folder: string
  file: FileEntry
}

interface NoTarget {
  ok: false
  /** Continues the sentence that begins with the path. */
  problem: string
  hint: string
}

/**
 * Finds a file below a folder. Private folders may be entered, folders that are not read may not.
 * @param path - relative, checked: no `..`, no leading slash
 */
export function findTarget(start: DirNode, path: string, enabled: ReadonlySet<RuntimeName>): Target | NoTarget {
  const names = path.split('/')
  const fileName = names.pop()!
  const folders: DirNode[] = []
  let node = start
  for (const name of names) {
    const dir = node.dirs.find(candidate => candidate.name === name)
    if (dir === undefined) return missing(start, path)
    if (dir.skipped !== null) {
      return { ok: false, problem: `is in ${dir.path}, which is not read: ${dir.skipped}`, hint: 'Move the file.' }
    }
    folders.push(dir)
    node = dir
  }
  const file = node.files.find(candidate => candidate.name === fileName)
  const extension = extensionOf(fileName)
  const runtime = RUNTIME_OF_EXTENSION.get(extension)
  if (runtime === undefined) {
    const isThere = file !== undefined || node.otherFiles.includes(fileName)
    if (!isThere) return missing(start, path)
    const hint = `Name a file with one of ${[...RUNTIME_OF_EXTENSION.keys()].join(' ')}.`
    return { ok: false, problem: `is not a handler: no runtime runs "${extension}" files`, hint }
  }
  if (file === undefined) return missing(start, path)
  if (!enabled.has(runtime)) {
    const problem = `needs the runtime ${runtime}, which is not enabled`
    return { ok: false, problem, hint: toTurnOnHint([...enabled, runtime]) }
  }
  return { ok: true, runtime, folders, folder: node.path, file }
}

function missing(start: DirNode, path: string): NoTarget {
  const where = start.path === '' ? 'the functions root' : start.path
  return { ok: false, problem: `does not exist below ${where}`, hint: `Create ${path}, or fix the path.` }
}
