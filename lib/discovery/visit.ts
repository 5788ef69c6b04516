/** One folder on the walk: what it holds, and where its own folders stand. Owner: §2.2, page discovery/layouts. */

import type { FunctionConfig } from '../config/function-config.ts'
import type { Warning } from '../core/errors.ts'
import { isVersion } from '../core/identity.ts'
import { MAX_NAMESPACE_DEPTH, MAX_ROUTE_DEPTH } from '../core/limits.ts'
import type { FolderConfigs } from './configs.ts'
import { pathWarning } from './disk.ts'
import { NAME_HINT, nameToSegment } from './file-name.ts'
import type { FolderFacts } from './folder.ts'
import { type FolderFiles, type FolderView, sameView } from './folder-files.ts'
import { isVersionLike } from './layouts.ts'
import { Part } from './part.ts'
import { addHelpers, type Helpers, NO_HELPERS, sameHelpers } from './signature.ts'
import type { DirNode } from './snapshot.ts'
import { toChild } from './tree-path.ts'

/** The function or namespace right above a folder: the folder may be a version of it. */
interface Parent {
  name: string
  config: FunctionConfig | null
  isFunction: boolean
}

export interface Context {
  /** 0 is the root. */
  level: number
  /** Public path in canonical text, empty for the root; null when nothing in the folder has a path of its own. */
  prefix: string | null
  /** Name of the function that the folder may be. */
  name: string
  view: FolderView
  /** Folder levels below the runtime's folder. */
  groupDepth: number
  /** Configs of the folders above, from the root down; null for a folder without one. */
  layers: readonly (FunctionConfig | null)[]
  /** Helper files in reach from above. */
  helpers: Helpers
  parent: Parent | null
}

export const ROOT_CONTEXT: Context = {
  level: 0,
  prefix: '',
  name: '',
  view: { group: null, isInsideFunction: false },
  groupDepth: 0,
  layers: [],
  helpers: NO_HELPERS,
  parent: null,
}

export function sameContext(a: Context, b: Context): boolean {
  return (
    a.prefix === b.prefix &&
    a.name === b.name &&
    a.groupDepth === b.groupDepth &&
    sameView(a.view, b.view) &&
    sameParent(a.parent, b.parent) &&
    a.layers.length === b.layers.length &&
    a.layers.every((layer, index) => layer === b.layers[index]) &&
    sameHelpers(a.helpers, b.helpers)
  )
}

function sameParent(a: Parent | null, b: Parent | null): boolean {
  if (a === null || b === null) return a === b
  return a.name === b.name && a.config === b.config && a.isFunction === b.isFunction
}

export class Visit {
  readonly part = new Part()
  readonly node: DirNode
  readonly context: Context
  readonly facts: FolderFacts
  readonly configs: FolderConfigs
  readonly config: FunctionConfig | null
  readonly files: FolderFiles
  readonly helpers: Helpers
  /** Configs from the root down, the folder's own last. */
  readonly layers: readonly (FunctionConfig | null)[]
  /** Of the folders in it. */
  readonly viewBelow: FolderView
  readonly #parent: Parent | null

  constructor(node: DirNode, context: Context, facts: FolderFacts) {
    this.node = node
    this.context = context
    this.facts = facts
    this.configs = facts.configs(node)
    this.config = this.configs.config
    this.files = facts.files(node, context.view)
    this.helpers = addHelpers(context.helpers, facts.helpers(node, context.view))
    this.layers = [...context.layers, this.config]
    this.viewBelow = facts.viewBelow(node, context.view)
    this.#parent = this.#toParent()
    for (const warnings of [node.problems, this.configs.warnings, this.files.warnings]) this.part.warn(warnings)
    for (const ignored of this.files.ignored) this.part.ignored.push(ignored)
  }

  /** True for a version folder: one right inside a function, unless it declares a name of its own. */
  get isVersion(): boolean {
    const { parent } = this.context
    if (parent?.isFunction !== true || !isVersion(this.node.name)) return false
    return this.config?.name === undefined || this.config.name === parent.name
  }

  /** All that decides where the folders of this one stand, but for themselves: the place of the folder, and what they inherit. */
  get surroundings(): Context {
    const { level, prefix, name, groupDepth } = this.context
    return this.#toContext(level, prefix, name, groupDepth)
  }

  /** Adds a warning about the folder's `fn.config.json`. */
  warn(code: string, text: string, hint: string): void {
    this.part.warnings.push(pathWarning(code, toChild(this.node.path, 'fn.config.json'), text, hint))
  }

  /** Where a folder of this one stands; null when it is not walked. */
  enter(dir: DirNode): Context | null {
    const { level, name, prefix } = this.context
    const closed = this.facts.closed(dir) ?? this.#assetsOf(dir)
    if (closed !== null) return this.#skip(dir, closed)
    const view = this.viewBelow
    const parent = this.#parent
    const groupDepth = view.group === null ? 0 : this.context.groupDepth + 1
    const isGroup = this.node.path === '' && this.facts.files(dir, view).kind === 'group'
    if (isGroup) return this.#toContext(level + 1, prefix, name, groupDepth)
    this.#checkGroup(dir)
    const problem = this.#pathProblem(dir, level + 1, groupDepth)
    const canBeVersion = parent !== null && isVersion(dir.name) && (parent.isFunction || isVersionLike(dir.name))
    // A folder such as `1.0.3` in a function has an address; that it has no path of its own surprises nobody.
    const isExpected = canBeVersion && isVersionLike(dir.name)
    if (problem !== null && !isExpected && this.facts.hasHandlerBelow(dir, view)) this.part.warnings.push(problem)
    if (problem !== null && !canBeVersion) return this.#skip(dir, problem.message)
    const segment = nameToSegment(dir.name)
    const hasPath = problem === null && prefix !== null && !('problem' in segment)
    const prefixBelow = hasPath ? [prefix, segment.canonical].join('/') : null
    // Mostly its path below the root, which is then kept once.
    const nameBelow = name === this.node.path ? dir.path : toChild(name, dir.name)
    return this.#toContext(level + 1, prefixBelow, nameBelow, groupDepth)
  }

  /** Field by field: what `...` copies from has a hidden class of its own for each of ten thousand folders, at 300 bytes. */
  #toContext(level: number, prefix: string | null, name: string, groupDepth: number): Context {
    const { viewBelow: view, layers, helpers } = this
    return { level, prefix, name, view, groupDepth, layers, helpers, parent: this.#parent }
  }

  /** One helper file put into the folder of a runtime moves every function below it to another URL: that must be seen. */
  #checkGroup(dir: DirNode): void {
    const { facts, viewBelow, node } = this
    if (node.path !== '' || !(facts.enabled as ReadonlySet<string>).has(dir.name)) return
    const { kind, routes } = facts.files(dir, viewBelow)
    const file = routes[0]?.file.fileName
    if (kind !== 'routes' || file === undefined) return
    const below = facts.viewBelow(dir, viewBelow)
    if (!dir.dirs.some(kid => facts.hasHandlerBelow(kid, below))) return
    const text = `does not group ${dir.name} functions because it contains ${file}: paths below it begin with /${dir.name}`
    const hint = `Move ${file} elsewhere, or put "_" in front of its name when it is a helper.`
    this.part.warnings.push(pathWarning('GROUP_HAS_ROUTES', dir.path, text, hint))
  }

  #skip(dir: DirNode, reason: string): null {
    this.part.ignored.push({ path: dir.path, reason })
    this.part.warn(problemsBelow(dir))
    return null
  }

  /** Files for browsers must not run here, also where `assets` has no effect because it is not in the root's config. */
  #assetsOf(dir: DirNode): string | null {
    const names = this.node.path.split('/')
    for (const [level, config] of this.layers.entries()) {
      const directory = config?.assets?.directory
      if (level === 0 || directory === undefined) continue
      const folder = names.slice(0, level).join('/')
      if (toChild(folder, directory) === dir.path) return `files for browsers: the assets of ${folder}/fn.config.json`
    }
    return null
  }

  /** Why a folder has no public path. */
  #pathProblem(dir: DirNode, level: number, groupDepth: number): Warning | null {
    const segment = nameToSegment(dir.name)
    if ('problem' in segment) return pathWarning('UNSUPPORTED_NAME', dir.path, segment.problem, NAME_HINT)
    const { namespaceDepth } = this.facts.options
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
  #toParent(): Parent | null {
    if (this.node.path === '' || this.files.kind === 'group') return null
    const { name } = this.context
    if (this.files.kind !== 'function') return { name, config: null, isFunction: false }
    return { name: this.isVersion ? name : (this.config?.name ?? name), config: this.config, isFunction: true }
  }
}

function problemsBelow(node: DirNode): Warning[] {
  return [...node.problems, ...node.dirs.flatMap(problemsBelow)]
}
