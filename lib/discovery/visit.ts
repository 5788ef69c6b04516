/** One folder on the walk: what it holds, and where its own folders stand. Owner: §2.2, page discovery/layouts. */

import type { FunctionConfig } from '../config/function-config.ts'
import type { Warning } from '../core/errors.ts'
import { isVersion } from '../core/identity.ts'
import { MAX_NAMESPACE_DEPTH, MAX_ROUTE_DEPTH } from '../core/limits.ts'
import type { FolderConfigs } from './configs.ts'
import type { Context, Parent } from './context.ts'
import { pathWarning } from './disk.ts'
import { NAME_HINT, nameToSegment } from './file-name.ts'
import type { FolderReader } from './folder.ts'
import type { FolderFiles, FolderView } from './folder-files.ts'
import { isVersionLike, privateReason } from './layouts.ts'
import { Part } from './part.ts'
import { addHelpers, type Helpers } from './signature.ts'
import { type DirNode, toChild } from './snapshot.ts'

export class Visit {
  readonly part = new Part()
  readonly node: DirNode
  readonly context: Context
  readonly reader: FolderReader
  readonly configs: FolderConfigs
  readonly config: FunctionConfig | null
  readonly files: FolderFiles
  readonly helpers: Helpers
  /** Configs from the root down, the folder's own last. */
  readonly layers: readonly (FunctionConfig | null)[]
  /** Of the folders in it. */
  readonly viewBelow: FolderView

  constructor(node: DirNode, context: Context, reader: FolderReader) {
    this.node = node
    this.context = context
    this.reader = reader
    this.configs = reader.configs(node)
    this.config = this.configs.config
    this.files = reader.files(node, context.view)
    this.helpers = addHelpers(context.helpers, reader.helpers(node, context.view))
    this.layers = [...context.layers, this.config]
    this.viewBelow = reader.viewBelow(node, context.view)
    for (const warnings of [node.problems, this.configs.warnings, this.files.warnings]) this.part.warn(warnings)
    for (const { path, reason } of this.files.ignored) this.part.ignore(path, reason)
  }

  /** True for a version folder: one right inside a function, unless it declares a name of its own. */
  get isVersion(): boolean {
    const { parent } = this.context
    if (parent?.isFunction !== true || !isVersion(this.node.name)) return false
    return this.config?.name === undefined || this.config.name === parent.name
  }

  /** Adds a warning about the folder's `fn.config.json`. */
  warn(code: string, text: string, hint: string): void {
    this.part.warnings.push(pathWarning(code, toChild(this.node.path, 'fn.config.json'), text, hint))
  }

  /** Where a folder of this one stands; null when it is not walked. */
  enter(dir: DirNode): Context | null {
    const { level, name, prefix } = this.context
    const closed = dir.skipped ?? privateReason(dir.name)
    if (closed !== null) return this.#skip(dir, closed)
    const view = this.viewBelow
    const parent = this.#parent()
    const groupDepth = view.group === null ? 0 : this.context.groupDepth + 1
    const below = { level: level + 1, view, groupDepth, layers: this.layers, helpers: this.helpers, parent }
    const isGroup = this.node.path === '' && this.reader.files(dir, view).kind === 'group'
    if (isGroup) return { ...below, prefix, name }
    this.#checkGroup(dir)
    const problem = this.#pathProblem(dir, below.level, groupDepth)
    const canBeVersion = parent !== null && isVersion(dir.name) && (parent.isFunction || isVersionLike(dir.name))
    // A folder such as `1.0.3` in a function has an address; that it has no path of its own surprises nobody.
    const isExpected = canBeVersion && isVersionLike(dir.name)
    if (problem !== null && !isExpected && this.reader.hasHandlerBelow(dir, view)) this.part.warnings.push(problem)
    if (problem !== null && !canBeVersion) return this.#skip(dir, problem.message)
    const segment = nameToSegment(dir.name)
    const hasPath = problem === null && prefix !== null && !('problem' in segment)
    return { ...below, prefix: hasPath ? `${prefix}/${segment.canonical}` : null, name: toChild(name, dir.name) }
  }

  /** One helper file put into the folder of a runtime moves every function below it to another URL: that must be seen. */
  #checkGroup(dir: DirNode): void {
    const { reader, viewBelow, node } = this
    if (node.path !== '' || !(reader.enabled as ReadonlySet<string>).has(dir.name)) return
    const { kind, routes } = reader.files(dir, viewBelow)
    const file = routes[0]?.file.fileName
    if (kind !== 'routes' || file === undefined) return
    const below = reader.viewBelow(dir, viewBelow)
    if (!dir.dirs.some(kid => reader.hasHandlerBelow(kid, below))) return
    const text = `groups no ${dir.name} functions because it holds ${file}: paths below it begin with /${dir.name}`
    const hint = `Move ${file} elsewhere, or put "_" in front of its name when it is a helper.`
    this.part.warnings.push(pathWarning('GROUP_HAS_ROUTES', dir.path, text, hint))
  }

  #skip(dir: DirNode, reason: string): null {
    this.part.ignore(dir.path, reason)
    this.part.warn(problemsBelow(dir))
    return null
  }

  /** Why a folder has no public path. */
  #pathProblem(dir: DirNode, level: number, groupDepth: number): Warning | null {
    const segment = nameToSegment(dir.name)
    if ('problem' in segment) return pathWarning('UNSUPPORTED_NAME', dir.path, segment.problem, NAME_HINT)
    const { namespaceDepth } = this.reader.options
    if (groupDepth > namespaceDepth && !this.viewBelow.isInsideFunction) {
      const text = `is skipped: names below the folder of a runtime have at most ${namespaceDepth} segments`
      const hint = `Move it up, or raise FN_NAMESPACE_DEPTH (at most ${MAX_NAMESPACE_DEPTH}).`
      return pathWarning('NAMESPACE_DEPTH', dir.path, text, hint)
    }
    if (level <= MAX_ROUTE_DEPTH) return null
    const text = `is skipped: routes come from at most ${MAX_ROUTE_DEPTH} folder levels`
    return pathWarning('ROUTE_DEPTH', dir.path, text, 'Move it up, or list its files in a fn.routes.json further up.')
  }

  /** What this folder is to the folders in it. */
  #parent(): Parent | null {
    if (this.node.path === '' || this.files.kind === 'group') return null
    const { name } = this.context
    if (this.files.kind !== 'function') return { name, config: null, isFunction: false }
    return { name: this.isVersion ? name : (this.config?.name ?? name), config: this.config, isFunction: true }
  }
}

function problemsBelow(node: DirNode): Warning[] {
  return [...node.problems, ...node.dirs.flatMap(problemsBelow)]
}
