/** The files of one folder, sorted into handlers and helpers. Owner: §2.2 and §2.3. */

import type { FunctionConfig } from '../config/function-config.ts'
import type { IgnoredPath } from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import { METHODS, type Method, type RuntimeName } from '../core/identity.ts'
import { pathWarning } from './disk.ts'
import { type Choice, chooseEntries, chooseRoutes } from './entry-file.ts'
import { type BadFile, parseFileName, type RouteFile } from './file-name.ts'
import { type FolderKind, kindOf, SERVE_ANYWAY, usualRole } from './layouts.ts'
import { toOffReason } from './runtime-off.ts'
import type { DirNode, FileEntry } from './snapshot.ts'
import { toChild } from './tree-path.ts'

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
  /** Methods that prefixed files of the folder take from a default entry file; an explicit `entrypoint` keeps all of its own. */
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
      } else if (hasNoCallable === true && !this.#namesCallable()) {
        if (usualRole(this.#node.path, name) === 'script') this.#inert.add(name)
        const ignored = { path: toChild(this.#node.path, name), reason: `defines no handler; ${SERVE_ANYWAY}` }
        ;(parsed.isFolderFile ? this.#ignored : this.#noHandlers).push(ignored)
      } else if (this.#isOfGroup(parsed.runtime)) found.push(parsed)
      else this.#ignore(name, `below the folder ${this.#view.group} only ${this.#view.group} files are handlers`)
    }
    for (const name of this.#node.otherFiles) {
      const parsed = parseFileName(name)
      if (parsed.kind === 'other' && parsed.reason !== null) this.#ignore(name, parsed.reason)
    }
    return found
  }

  #namesCallable(): boolean {
    const { handler, adapter } = this.#config?.invoke ?? {}
    return handler !== undefined || adapter !== undefined
  }

  #isOfGroup(runtime: RuntimeName): boolean {
    return this.#view.group === null || runtime === (this.#config?.runtime ?? this.#view.group)
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
        // Which methods a config that cannot be used would list is unknown: it refuses calls by all of them.
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
