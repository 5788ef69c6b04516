/** One folder on the walk: its files, the contexts of the folders in it, and its contribution to the discovery. Owner: §2.2, page discovery/layouts. */

import type { FunctionConfig } from '../config/function-config.ts'
import type { Claim, ClaimSource, FunctionVersion, HomeAction, IgnoredPath, PackageManifest } from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import { isVersion, type Method, RESERVED_PREFIXES } from '../core/identity.ts'
import { MAX_NAMESPACE_DEPTH, MAX_ROUTE_DEPTH } from '../core/limits.ts'
import { isReservedPattern, parsePattern } from '../core/pattern.ts'
import { pathWarning, toChild } from './disk.ts'
import { NAME_HINT, nameToSegment } from './file-name.ts'
import { type FolderConfigs, type FolderFacts, type FolderFiles, type FolderView, sameView } from './folder.ts'
import { addHelpers, type Helpers, NO_HELPERS, sameHelpers } from './functions.ts'
import { isVersionLike } from './layouts.ts'
import type { DirNode } from './snapshot.ts'

/** The function or namespace right above a folder: the folder may be a version of it. */
interface Parent {
  name: string
  config: FunctionConfig | null
  isFunction: boolean
}

export interface Context {
  /** 0 is the root. */
  level: number
  /** Public path in canonical text, empty for the root; null when no file in the folder gets a path from its name. */
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
  readonly part: Contribution
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

  /** @param part - gets the outcome of the folder */
  constructor(node: DirNode, context: Context, facts: FolderFacts, part = new Contribution()) {
    this.part = part
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

  /** True for a version folder: one right inside a function that does not declare another name. */
  get isVersion(): boolean {
    const { parent } = this.context
    if (parent?.isFunction !== true || !isVersion(this.node.name)) return false
    return this.config?.name === undefined || this.config.name === parent.name
  }

  /** Everything that the contexts of its folders are derived from, besides the folders themselves. */
  get surroundings(): Context {
    const { level, prefix, name, groupDepth } = this.context
    return this.#toContext(level, prefix, name, groupDepth)
  }

  /** Adds a warning about the folder's `fn.config.json`. */
  warn(code: string, text: string, hint: string): void {
    this.part.warnings.push(pathWarning(code, toChild(this.node.path, 'fn.config.json'), text, hint))
  }

  /**
   * The context of a folder in this one; null when it is not walked.
   * @param part - gets the warnings about the folder and the reason why it is ignored
   */
  enter(dir: DirNode, part: Contribution): Context | null {
    const { level, name, prefix } = this.context
    const closed = this.facts.closed(dir) ?? this.#assetsOf(dir)
    if (closed !== null) return skip(dir, closed, part)
    const view = this.viewBelow
    const parent = this.#parent
    const groupDepth = view.group === null ? 0 : this.context.groupDepth + 1
    const isGroup = this.node.path === '' && this.facts.files(dir, view).kind === 'group'
    if (isGroup) return this.#toContext(level + 1, prefix, name, groupDepth)
    this.#checkGroup(dir, part)
    const problem = this.#pathProblem(dir, level + 1, groupDepth)
    const canBeVersion = parent !== null && isVersion(dir.name) && (parent.isFunction || isVersionLike(dir.name))
    // A folder such as `1.0.3` in a function has an address; a warning that it has no path would be noise.
    const isExpected = canBeVersion && isVersionLike(dir.name)
    if (problem !== null && !isExpected && this.facts.hasHandlerBelow(dir, view)) part.warnings.push(problem)
    if (problem !== null && !canBeVersion) return skip(dir, problem.message, part)
    const segment = nameToSegment(dir.name)
    const hasPath = problem === null && prefix !== null && !('problem' in segment)
    const prefixBelow = hasPath ? [prefix, segment.canonical].join('/') : null
    return this.#toContext(level + 1, prefixBelow, toChild(name, dir.name), groupDepth)
  }

  #toContext(level: number, prefix: string | null, name: string, groupDepth: number): Context {
    const { viewBelow: view, layers, helpers } = this
    return { level, prefix, name, view, groupDepth, layers, helpers, parent: this.#parent }
  }

  /** One helper file put into the folder of a runtime moves every function below it to another URL: that must be seen. */
  #checkGroup(dir: DirNode, part: Contribution): void {
    const { facts, viewBelow, node } = this
    if (node.path !== '' || !(facts.enabled as ReadonlySet<string>).has(dir.name)) return
    const { kind, routes } = facts.files(dir, viewBelow)
    const file = routes[0]?.file.fileName
    if (kind !== 'routes' || file === undefined) return
    const below = facts.viewBelow(dir, viewBelow)
    if (!dir.dirs.some(kid => facts.hasHandlerBelow(kid, below))) return
    const text = `does not group ${dir.name} functions because it contains ${file}: paths below it begin with /${dir.name}`
    const hint = `Move ${file} elsewhere, or put "_" in front of its name when it is a helper.`
    part.warnings.push(pathWarning('GROUP_HAS_ROUTES', dir.path, text, hint))
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

  /** This folder as the parent of the folders in it. */
  #toParent(): Parent | null {
    if (this.node.path === '' || this.files.kind === 'group') return null
    const { name } = this.context
    if (this.files.kind !== 'function') return { name, config: null, isFunction: false }
    return { name: this.isVersion ? name : (this.config?.name ?? name), config: this.config, isFunction: true }
  }
}

function skip(dir: DirNode, reason: string, part: Contribution): null {
  part.ignore(dir.path, reason)
  part.warn(problemsBelow(dir))
  return null
}

function problemsBelow(node: DirNode): Warning[] {
  return [...node.problems, ...node.dirs.flatMap(problemsBelow)]
}

interface ClaimRequest {
  fn: FunctionVersion
  /** In any accepted spelling. */
  route: string
  methods: readonly Method[]
  source: ClaimSource
  forced: boolean
  /** File that makes the claim, below the root. */
  origin: string
  implied: boolean
}

/**
 * The outcome of a folder and all below it. Claims come from three sources; the router decides which one wins.
 *
 *   file      a file's or folder's own path      users/[id].js         GET /users/:id
 *   manifest  fn.routes.json                     "GET /items": "x.py"  GET /items
 *   config    invoke.routes, or /<name> and /<name>/* of a named function
 */
export class Contribution {
  readonly functions: FunctionVersion[] = []
  /** Handlers that a manifest names; they may be functions already. */
  readonly targets: FunctionVersion[] = []
  readonly claims: Claim[] = []
  readonly homes: HomeAction[] = []
  readonly warnings: Warning[] = []
  readonly ignored: IgnoredPath[] = []
  readonly manifests: PackageManifest[] = []

  /** Adds the outcome of a folder below. */
  add(below: Contribution): void {
    append(this.functions, below.functions)
    append(this.targets, below.targets)
    append(this.claims, below.claims)
    append(this.homes, below.homes)
    append(this.warnings, below.warnings)
    append(this.ignored, below.ignored)
    append(this.manifests, below.manifests)
  }

  /** Adds a claim, or the warning why it cannot be one; true for a claim, and for a private function, which needs none. */
  claim(request: ClaimRequest): boolean {
    if (request.fn.policy.isPrivate) return true
    const outcome = toClaim(request)
    if ('code' in outcome) {
      this.warnings.push(outcome)
      return false
    }
    this.claims.push(outcome)
    return true
  }

  ignore(path: string, reason: string): void {
    this.ignored.push({ path, reason })
  }

  warn(warnings: readonly Warning[]): void {
    append(this.warnings, warnings)
  }
}

/** Not `push(...items)`: a folder may have more functions than a call takes arguments. */
function append<T>(list: T[], items: readonly T[]): void {
  for (let i = 0; i < items.length; i++) list.push(items[i]!)
}

/** Makes a claim, or the warning why it cannot be one. */
function toClaim(request: ClaimRequest): Claim | Warning {
  const { fn, route, methods, source, forced, origin, implied } = request
  const pattern = parsePattern(route)
  if ('problem' in pattern) {
    const hint = 'Routes look like /users/:id, /docs/:slug*, /docs/:slug*? or /files/*.'
    return pathWarning(
      'INVALID_ROUTE',
      origin,
      `cannot have the route ${JSON.stringify(route)}: it ${pattern.problem}`,
      hint,
    )
  }
  if (isReservedPattern(pattern)) {
    const reserved = RESERVED_PREFIXES.join(' and ')
    const hint = 'Rename the file or folder, or list another route in invoke.routes of fn.config.json.'
    return pathWarning(
      'RESERVED_PREFIX',
      origin,
      `cannot have the route ${pattern.text}: ${reserved} are reserved`,
      hint,
    )
  }
  return { pattern, methods, hosts: fn.policy.allowHosts, fn, source, forced, origin, implied }
}
