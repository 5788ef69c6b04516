/** Facts about each folder by itself: its config files, its handlers and helpers. Owner: §2.2, §2.3, §2.7, page discovery/layouts. */

import { isProblem, type Parsed } from '../config/fields.ts'
import {
  type FunctionConfig,
  parseFunctionConfig,
  parseRoutesFile,
  type PolicyDefaults,
  type RouteEntry,
} from '../config/function-config.ts'
import { type DeclaredEnv, mergeDeclared, parseFunctionDotenv, parseFunctionEnv } from '../config/function-env.ts'
import type { IgnoredPath } from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import { type Method, METHODS, type RuntimeName } from '../core/identity.ts'
import { pathWarning, toChild } from './disk.ts'
import { type Choice, chooseEntries, chooseRoutes } from './entry-file.ts'
import { type BadFile, CONFIG_FILES, parseFileName, type RouteFile } from './file-name.ts'
import { sourcesBelow } from './functions.ts'
import {
  type FolderKind,
  isScriptFolder,
  kindOf,
  privateReason,
  SERVE_ANYWAY,
  toOffReason,
  usualRole,
} from './layouts.ts'
import {
  type ConfigKind,
  type ConfigText,
  type DirNode,
  type FileEntry,
  NO_TEXTS,
  type SnapshotOptions,
} from './snapshot.ts'

export interface DiscoverOptions {
  /** Enabled runtimes; files of others are ignored. */
  runtimes: readonly RuntimeName[]
  /** Name segments below a runtime's folder. */
  namespaceDepth: number
  /** `FN_FORCE_URL`: every config route is forced. */
  forceUrl: boolean
  defaults: PolicyDefaults
}

interface Helper {
  folder: string
  file: FileEntry
}

/** The facts about folders that the walk and the handlers ask for. */
export class FolderFacts {
  readonly options: DiscoverOptions
  readonly enabled: ReadonlySet<RuntimeName>
  readonly #configs: ConfigReader
  #files = new WeakMap<DirNode, { view: FolderView; files: FolderFiles }>()
  /** By folder: its helper files for the functions around it, as they were found for a view. */
  readonly #helpers = new WeakMap<DirNode, { view: FolderView; found: readonly Helper[] }>()

  constructor(configs: ConfigReader, options: DiscoverOptions) {
    this.#configs = configs
    this.options = options
    this.enabled = new Set(options.runtimes)
  }

  configs(node: DirNode): FolderConfigs {
    return this.#configs.read(node)
  }

  files(node: DirNode, view: FolderView): FolderFiles {
    const known = this.#files.get(node)
    if (known !== undefined && sameView(known.view, view)) return known.files
    const files = sortFiles(node, this.configs(node).config, view, this.enabled)
    this.#files.set(node, { view, files })
    return files
  }

  /** Forgets the files of folders: they are asked for several times in one walk, and seldom after it. */
  endWalk(): void {
    this.#files = new WeakMap()
  }

  /** Where the folders of a folder stand. */
  viewBelow(node: DirNode, view: FolderView): FolderView {
    const { kind } = this.files(node, view)
    if (kind === 'group') return { ...view, group: node.name as RuntimeName }
    // The functions root never contains other functions as their function, even when it is one itself.
    return kind === 'function' && node.path !== '' ? { ...view, isInsideFunction: true } : view
  }

  /** Why a folder publishes nothing, whatever its files are called; null when it may. */
  closed({ skipped, name }: DirNode): string | null {
    return skipped ?? privateReason(name)
  }

  /** True when the folder itself holds a handler. */
  hasHandler(node: DirNode, view: FolderView): boolean {
    const { entries, routes } = this.files(node, view)
    return entries.length > 0 || routes.length > 0 || this.configs(node).config?.entrypoint !== undefined
  }

  /** True when the folder or one below it holds a handler. */
  hasHandlerBelow(node: DirNode, view: FolderView): boolean {
    if (this.closed(node) !== null) return false
    if (this.hasHandler(node, view)) return true
    const viewBelow = this.viewBelow(node, view)
    return node.dirs.some(dir => this.hasHandlerBelow(dir, viewBelow))
  }

  /**
   * Helper files whose change concerns the functions of a folder and below: its own, those of its private folders, and
   * those of folders that hold no handler themselves, which exist for the handlers around them.
   */
  helpers(node: DirNode, view: FolderView): readonly Helper[] {
    const helpers = this.files(node, view).helpers.map(file => ({ folder: node.path, file }))
    if (node.dirs.length === 0) return helpers
    const viewBelow = this.viewBelow(node, view)
    for (const dir of node.dirs) helpers.push(...this.#helpersOf(dir, viewBelow))
    return helpers
  }

  /** The helper files that a folder has for the functions around it. */
  #helpersOf(dir: DirNode, view: FolderView): readonly Helper[] {
    if (isScriptFolder(dir.path)) return []
    const known = this.#helpers.get(dir)
    if (known !== undefined && sameView(known.view, view)) return known.found
    const own = () => (this.hasHandler(dir, view) ? [] : this.helpers(dir, view))
    const found = this.closed(dir) === null ? own() : sourcesBelow(dir)
    this.#helpers.set(dir, { view, found })
    return found
  }
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
export function sortFiles(
  node: DirNode,
  config: FunctionConfig | null,
  view: FolderView,
  enabled: ReadonlySet<RuntimeName>,
): FolderFiles {
  return new Sorter(node, config, view, enabled).sort()
}

class Sorter {
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
    const kind = this.#kind(files)
    const entries = this.#entries(files)
    const isPrivateHere = this.#view.isInsideFunction || kind === 'function'
    for (const bad of this.#bad) {
      // A private helper may be called anything.
      const isPrivate = isPrivateHere && bad.code === 'UNSUPPORTED_NAME'
      if (!isPrivate) this.#warn(bad.code, bad.fileName, bad.message, bad.hint)
    }
    const visible = files.filter(file => !file.isFolderFile && (file.isExplicit || !isPrivateHere))
    for (const file of files) {
      if (!file.isFolderFile && !visible.includes(file)) this.#ignore(file.fileName, this.#privateReason(kind))
    }
    for (const ignored of this.#noHandlers)
      this.#ignored.push(isPrivateHere ? { path: ignored.path, reason: this.#privateReason(kind) } : ignored)
    const routes = this.#routes(visible)
    const takenMethods = this.#config?.entrypoint === undefined ? takenFrom(routes, '') : NO_METHODS
    const helpers = this.#node.files.filter(({ name }) => !this.#handlers.has(name) && !this.#inert.has(name))
    return { kind, entries, takenMethods, routes, helpers, ignored: this.#ignored, warnings: this.#warnings }
  }

  /** Source files of enabled runtimes whose names are routes. */
  #routeFiles(): RouteFile[] {
    const found: RouteFile[] = []
    const { group } = this.#view
    const { handler, adapter } = this.#config?.invoke ?? {}
    const namesCallable = handler !== undefined || adapter !== undefined
    for (const { name, hasNoCallable } of this.#node.files) {
      const parsed = parseFileName(name)
      if (parsed.kind === 'route' && parsed.isFolderFile) this.#canonical.push(name)
      if (parsed.kind === 'other') this.#inert.add(name)
      else if (!this.#enabled.has(parsed.runtime)) {
        this.#inert.add(name)
        this.#ignore(name, parsed.kind === 'private' ? parsed.reason : toOffReason(parsed.runtime))
      } else if (parsed.kind === 'private') {
        if (parsed.isInert) this.#inert.add(name)
        if (parsed.isTest)
          this.#noHandlers.push({ path: toChild(this.#node.path, name), reason: parsed.reason, kind: 'test' })
        else this.#ignore(name, parsed.reason)
      } else if (parsed.kind === 'bad') {
        this.#ignore(name, parsed.message)
        this.#bad.push(parsed)
      } else if (hasNoCallable === true && !namesCallable) {
        if (usualRole(this.#node.path, name) === 'script') this.#inert.add(name)
        const ignored = { path: toChild(this.#node.path, name), reason: `defines no handler; ${SERVE_ANYWAY}` }
        ;(parsed.isFolderFile ? this.#ignored : this.#noHandlers).push(ignored)
      } else if (group === null || parsed.runtime === (this.#config?.runtime ?? group)) found.push(parsed)
      else this.#ignore(name, `below the folder ${group} only ${group} files are handlers`)
    }
    for (const name of this.#node.otherFiles) {
      const parsed = parseFileName(name)
      if (parsed.kind === 'other' && parsed.reason !== null) this.#ignore(name, parsed.reason)
    }
    return found
  }

  #kind(files: readonly RouteFile[]): FolderKind {
    const { name, path } = this.#node
    return kindOf({
      isRoot: path === '',
      isTopLevel: path !== '' && !path.includes('/'),
      name,
      hasIdentity: this.#config?.identity ?? false,
      canonical: this.#canonical,
      hasRouteFile: files.length > 0,
      enabled: this.#enabled,
    })
  }

  #entries(files: readonly RouteFile[]): RouteFile[] {
    const folderFiles = files.filter(file => file.isFolderFile)
    if (this.#config?.entrypoint !== undefined) {
      for (const { fileName } of folderFiles) this.#ignore(fileName, `entrypoint is ${this.#config.entrypoint}`)
      return []
    }
    const runtime = this.#config?.runtime
    const wanted = folderFiles.filter(file => runtime === undefined || file.runtime === runtime)
    for (const file of folderFiles) {
      if (!wanted.includes(file)) this.#ignore(file.fileName, `fn.config.json sets the runtime ${runtime}`)
    }
    const choices = chooseEntries(wanted)
    const hint = 'Delete them, or name one in "entrypoint".'
    for (const choice of choices) this.#settle(choice, 'DUPLICATE_ENTRY', 'is the handler of its folder', hint)
    return choices.map(({ chosen }) => chosen)
  }

  #routes(visible: readonly RouteFile[]): FileRoute[] {
    const groups = new Map<string, RouteFile[]>()
    for (const file of visible) {
      const key = `${file.method ?? ''} ${file.path}`
      groups.set(key, [...(groups.get(key) ?? []), file])
    }
    const routes: FileRoute[] = []
    for (const group of groups.values()) {
      for (const choice of chooseRoutes(group)) {
        this.#settle(choice, 'DUPLICATE_ROUTE', 'answers its route', 'Delete them, or rename them.')
        const { method } = choice.chosen
        // The methods that an unusable config would list are unknown: it refuses calls by all of them.
        const defaults = this.#config?.problem === undefined ? GET_ALONE : METHODS
        const methods = method === null ? (this.#config?.invoke.methods ?? defaults) : [method]
        routes.push({ file: choice.chosen, methods })
      }
    }
    return routes.flatMap(route => this.#withoutTaken(route, routes))
  }

  /** In one language a method prefix is more exact than none: `get.users.js` answers GET, `users.js` what is left. */
  #withoutTaken(route: FileRoute, all: readonly FileRoute[]): FileRoute[] {
    if (route.file.method !== null) return [route]
    const { runtime } = route.file
    const taken = takenFrom(
      all.filter(({ file }) => file.runtime === runtime),
      route.file.path,
    )
    if (taken.size === 0) return [route]
    const methods = route.methods.filter(method => !taken.has(method))
    if (methods.length > 0) return [{ file: route.file, methods }]
    this.#ignore(route.file.fileName, 'files with a method prefix answer all its methods')
    return []
  }

  #settle({ chosen, ignored }: Choice, code: string, role: string, hint: string): void {
    this.#handlers.add(chosen.fileName)
    if (ignored.length === 0) return
    const names = ignored.map(file => file.fileName).join(', ')
    for (const file of ignored) this.#ignore(file.fileName, `${chosen.fileName} ${role}`)
    this.#warn(code, chosen.fileName, `${role}; ignored beside it: ${names}`, hint)
  }

  #privateReason(kind: FolderKind): string {
    return kind === 'function'
      ? 'private: a file beside the handler of a function'
      : 'private: inside a function only index, handler, main, method-prefixed and dynamic files are public'
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

/** The config files of one folder, parsed. Equal texts give the same objects, so they can be compared by identity. */
export interface FolderConfigs {
  /** null without a file. */
  config: FunctionConfig | null
  routes: readonly RouteEntry[]
  env: DeclaredEnv
  /** Why calls of the folder's functions are refused: without the values a check of a key could let everyone in. */
  envProblem: string | null
  warnings: readonly Warning[]
}

const NO_ENV: DeclaredEnv = Object.freeze(Object.create(null))
const NO_CONFIGS: FolderConfigs = { config: null, routes: [], env: NO_ENV, envProblem: null, warnings: [] }

const PARSERS = {
  config: parseFunctionConfig,
  routes: parseRoutesFile,
  env: parseFunctionEnv,
  dotenv: parseFunctionDotenv,
}
type ParsedKind<Kind extends ConfigKind> = ReturnType<(typeof PARSERS)[Kind]>

/** Parses config files and remembers the outcome for as long as their texts live. */
export class ConfigReader {
  readonly #parsed = new WeakMap<ConfigText, Parsed<unknown>>()

  read(node: DirNode): FolderConfigs {
    if (node.texts === NO_TEXTS) return NO_CONFIGS
    const config = this.#read(node, 'config')
    const routes = this.#read(node, 'routes')
    const env = this.#read(node, 'env')
    const dotenv = this.#read(node, 'dotenv')
    const warnings = [config, routes, env, dotenv].flatMap(parsed => parsed?.warnings ?? [])
    const { env: declared, problem: envProblem } = env?.value ?? { env: NO_ENV, problem: null }
    if (envProblem !== null) {
      const text = 'cannot be used: calls of the functions in its folder are refused with 503'
      warnings.push(pathWarning('CONFIG_CLOSED', toChild(node.path, CONFIG_FILES.env), text, 'Fix the file.'))
    }
    return {
      config: config?.value ?? null,
      routes: routes?.value ?? [],
      env: dotenv === null ? declared : mergeDeclared(dotenv.value, declared),
      envProblem,
      warnings,
    }
  }

  #read<Kind extends ConfigKind>(node: DirNode, kind: Kind): ParsedKind<Kind> | null {
    const text = node.texts[kind]
    if (text === null) return null
    let parsed = this.#parsed.get(text)
    if (parsed === undefined) {
      parsed = parseKept(text, toChild(node.path, CONFIG_FILES[kind]), PARSERS[kind])
      this.#parsed.set(text, parsed)
    }
    // One text object belongs to one file, hence to one kind.
    return parsed as ParsedKind<Kind>
  }
}

/** A text with something wrong changes nothing while an earlier one was right: the function keeps its last good policy. */
function parseKept(
  { text, lastGood }: ConfigText,
  label: string,
  parse: (text: string | null, label: string) => Parsed<unknown>,
): Parsed<unknown> {
  const parsed = parse(text, label)
  if (lastGood === null || (text !== null && !parsed.warnings.some(isProblem))) return parsed
  const kept = pathWarning('CONFIG_KEPT', label, 'is not used: its last good version stays in force', 'Fix the file.')
  return { value: parse(lastGood, label).value, warnings: [...parsed.warnings, kept] }
}

/** How a snapshot of a functions root judges its config files: the part of its options that never differs. */
export const SNAPSHOT_RULES: Pick<SnapshotOptions, 'isGood' | 'excluded'> = {
  isGood: (kind, text) => !PARSERS[kind](text, '').warnings.some(isProblem),
  excluded: rootConfig => {
    const directory = parseFunctionConfig(rootConfig, '').value.assets?.directory
    return new Set(directory === undefined ? [] : [directory])
  },
}
