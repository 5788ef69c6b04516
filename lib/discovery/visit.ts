/**
 * One folder on the walk: its context, the contexts of the folders in it, and its handlers: its own, versions, file routes,
 * manifest, home. Owner: §2.2, §2.3, §9, page discovery/layouts.
 */

import type { FunctionConfig, PolicyTarget, RouteEntry } from '../config/function-config.ts'
import type { FunctionVersion, SchemaFileRef } from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import { isFunctionName, isVersion, type Method, METHODS } from '../core/identity.ts'
import { MAX_NAMESPACE_DEPTH, MAX_ROUTE_DEPTH } from '../core/limits.ts'
import { parsePattern } from '../core/pattern.ts'
import { pathWarning, toChild } from './disk.ts'
import { type FolderFiles, type FolderView, findTarget, type Target } from './entry-file.ts'
import type { FolderConfigs, FolderFacts } from './folder.ts'
import {
  addHelpers,
  Contribution,
  type FunctionMaker,
  type Handler,
  type Helpers,
  type Identity,
  lacksPackages,
  manifestsOf,
  NO_HELPERS,
} from './functions.ts'
import {
  isVersionLike,
  NAME_HINT,
  nameToSegment,
  parseFileName,
  type RouteFile,
  SCHEMA_NAME,
  schemaNamesOf,
  stemOf,
  toTurnOnHint,
} from './layouts.ts'
import type { DirNode, FileEntry } from './snapshot.ts'

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
  /** `fn.config.json` of the folder, below the root; it need not exist. */
  readonly #configPath: string
  /** Names of the schema files that describe a handler. */
  readonly #usedSchemas = new Set<string>()

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
    this.#configPath = toChild(node.path, 'fn.config.json')
    this.#parent = this.#toParent()
    for (const warnings of [node.problems, this.configs.warnings, this.files.warnings]) part.warn(warnings)
    for (const ignored of this.files.ignored) part.ignored.push(ignored)
  }

  /** True for a version folder: one right inside a function that does not declare another name. */
  get isVersion(): boolean {
    const { parent } = this.context
    if (parent?.isFunction !== true || !isVersion(this.node.name)) return false
    return this.config?.name === undefined || this.config.name === parent.name
  }

  /** Everything that the contexts of its folders are derived from, besides the folders themselves. */
  get surroundings(): Context {
    const { viewBelow: view, layers, helpers } = this
    return { ...this.context, view, layers, helpers, parent: this.#parent }
  }

  /** Adds a warning about the folder's `fn.config.json`. */
  warn(code: string, text: string, hint: string): void {
    this.part.warnings.push(pathWarning(code, this.#configPath, text, hint))
  }

  // The folders in it.

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
    if (isGroup) return { ...this.surroundings, level: level + 1, groupDepth }
    this.#checkGroup(dir, part)
    const segment = nameToSegment(dir.name)
    const problem =
      'problem' in segment
        ? pathWarning('UNSUPPORTED_NAME', dir.path, segment.problem, NAME_HINT)
        : this.#depthProblem(dir, level + 1, groupDepth)
    const canBeVersion = parent !== null && isVersion(dir.name) && (parent.isFunction || isVersionLike(dir.name))
    // A folder such as `1.0.3` in a function has an address; a warning that it has no path would be noise.
    const isExpected = canBeVersion && isVersionLike(dir.name)
    if (problem !== null && !isExpected && this.facts.hasHandlerBelow(dir, view)) part.warnings.push(problem)
    if (problem !== null && !canBeVersion) return skip(dir, problem.message, part)
    const hasPath = problem === null && prefix !== null && !('problem' in segment)
    // In one piece: a function's claims are made of it.
    const prefixBelow = hasPath ? [prefix, segment.canonical].join('/') : null
    return { ...this.surroundings, level: level + 1, prefix: prefixBelow, name: toChild(name, dir.name), groupDepth }
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

  #depthProblem(dir: DirNode, level: number, groupDepth: number): Warning | null {
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

  // Its handlers.

  /** Adds to the part what the folder itself contributes. */
  addHandlers(maker: FunctionMaker): void {
    const { config, node } = this
    if (config?.problem !== undefined) {
      const text = 'cannot be used: calls of every function in its folder and below are refused with 503'
      this.warn('CONFIG_CLOSED', text, 'Fix the file.')
    }
    const entries = this.#entries()
    if (entries.length === 0) this.#checkEntry()
    for (const entry of entries) {
      if (this.isVersion) this.#addVersion(maker, entry)
      else this.#addFunction(maker, entry)
    }
    this.#addFileRoutes(maker, entries)
    this.#addManifest(maker)
    this.#checkSchema()
    this.#addHome()
    if (config?.assets !== undefined && node.path !== '') {
      this.warn('NESTED_ASSETS', 'sets assets, which only the fn.config.json of the root can', 'Move it to the root.')
    }
  }

  /** The handler that `entrypoint` names, else the folder's entry files. */
  #entries(): Handler[] {
    const { node, config, facts } = this
    const path = config?.entrypoint
    if (path === undefined) return this.files.entries.flatMap(({ fileName }) => this.#handlerOf(fileName) ?? [])
    const target = findTarget(node, path, facts.enabled)
    if (!target.ok) {
      this.warn('ENTRYPOINT', `entrypoint ${JSON.stringify(path)} ${target.problem}`, target.hint)
      return []
    }
    const wanted = config?.runtime ?? target.runtime
    if (wanted === target.runtime) return [this.#handler(target, true)]
    const text = `entrypoint ${JSON.stringify(path)} is a ${target.runtime} file, but runtime is "${wanted}"`
    this.warn('ENTRYPOINT', text, 'Make the two agree, or leave out runtime.')
    return []
  }

  /** A declared function without a handler is a mistake, unless files or versions below it are what it is for. */
  #checkEntry(): void {
    const { node, files, config, configs, facts, viewBelow } = this
    if (config?.identity !== true || config.entrypoint !== undefined) return
    const { runtime } = config
    if (runtime !== undefined && !facts.enabled.has(runtime)) {
      const text = `sets the runtime ${runtime}, which is not enabled`
      this.warn('RUNTIME_DISABLED', text, toTurnOnHint([...facts.enabled, runtime]))
      return
    }
    const isUsed = files.routes.length > 0 || configs.routes.length > 0
    if (isUsed || node.dirs.some(dir => facts.hasHandlerBelow(dir, viewBelow))) return
    const what = runtime === undefined ? 'handler file' : `handler file for ${runtime}`
    const hint = 'Add a file such as handler.py or handler.js, or set "entrypoint".'
    this.warn('NO_ENTRY_FILE', `declares a function, but its folder has no ${what}`, hint)
  }

  #addFunction(maker: FunctionMaker, handler: Handler): void {
    const { part, config, node } = this
    const { name, parent } = this.context
    const kind: FunctionVersion['kind'] = this.files.kind === 'function' ? 'function' : 'file'
    const ownName = config?.name ?? (name === '' ? stemOf(handler.file.name) : name)
    const fn = this.#make(maker, handler, { name: ownName, version: null, kind }, { kind }, true)
    if (this.#claimEntry(fn)) part.functions.push(fn)
    // `v1` in a folder without a handler: the folder is a function that has versions only.
    const isVersionOnly = kind === 'function' && parent?.isFunction === false && isVersionLike(node.name)
    if (!isVersionOnly || !isVersion(node.name) || !isFunctionName(parent.name)) return
    const version = { name: parent.name, version: node.name, kind }
    part.functions.push(this.#make(maker, handler, version, { kind }, false))
  }

  /** A folder inside a function: `@version` of it, and a separate route by its path. */
  #addVersion(maker: FunctionMaker, handler: Handler): void {
    const { part, config, node } = this
    const { name, prefix, parent } = this.context
    const kind = 'function'
    const isAddressed = isFunctionName(parent!.name)
    if (isAddressed) {
      const identity = { name: parent!.name, version: node.name, kind } as const
      const fn = this.#make(maker, handler, identity, { kind: 'version' }, true)
      part.functions.push(fn)
      // Its own config never forces it onto a URL (§9).
      this.#claimListed(fn, false)
    }
    if (prefix === null) return
    // A schedule runs once: on the version when there is one.
    const fn = this.#make(maker, handler, { name, version: null, kind }, { kind }, !isAddressed)
    if (!this.#claimPath(fn, false)) return
    part.functions.push(fn)
    if (config?.identity === true && !takesTheRest(prefix)) this.#claimByConfig(fn, `${prefix}/*`, false, true)
  }

  /** True when the function has a route, or asked for none. */
  #claimEntry(fn: FunctionVersion): boolean {
    const { config, files } = this
    const { prefix, view } = this.context
    const forced = config?.invoke.forceUrl === true
    if (config?.invoke.routes !== undefined) {
      this.#claimListed(fn, forced)
      return true
    }
    // The routes that an unusable config would list are unknown: it refuses calls at all the default ones.
    const hasDefaults = files.kind === 'function' && (view.group !== null || config?.problem !== undefined)
    const isNamed = config?.identity === true || hasDefaults
    if (!isNamed || (prefix === '' && config?.name === undefined)) return this.#claimPath(fn, forced)
    const path = config?.name === undefined ? prefix : `/${config.name}`
    if (path === null || !this.#claimByConfig(fn, path, forced, true)) return false
    return takesTheRest(path) || this.#claimByConfig(fn, `${path}/*`, forced, true)
  }

  /** Claims the folder's own path, as a file does. */
  #claimPath(fn: FunctionVersion, forced: boolean): boolean {
    const { part, files } = this
    const { prefix } = this.context
    if (prefix === null) return false
    const { methods: all } = fn.policy
    const methods = files.takenMethods.size === 0 ? all : all.filter(method => !files.takenMethods.has(method))
    if (methods.length === 0) {
      part.ignore(fn.entryFile, 'files with a method prefix answer all its methods')
      return false
    }
    const route = prefix === '' ? '/' : prefix
    return part.claim({ fn, route, methods, source: 'file', forced, origin: fn.entryFile, implied: true })
  }

  #claimListed(fn: FunctionVersion, forced: boolean): void {
    for (const route of this.config?.invoke.routes ?? []) this.#claimByConfig(fn, route, forced, false)
  }

  /** @param implied - false for a route that the config lists */
  #claimByConfig(fn: FunctionVersion, route: string, forced: boolean, implied: boolean): boolean {
    const isForced = forced || this.facts.options.forceUrl
    const origin = this.config === null ? fn.entryFile : this.#configPath
    const { methods } = fn.policy
    return this.part.claim({ fn, route, methods, source: 'config', forced: isForced, origin, implied })
  }

  #addHome(): void {
    const { prefix } = this.context
    const home = this.config?.home
    if (home === undefined || prefix === null) return
    if (prefix.includes('/:')) {
      const hint = 'Set home in a folder without [..] in its path.'
      this.warn('HOME_IGNORED', `sets home, but the path of its folder is ${prefix}`, hint)
      return
    }
    const { route, redirect = null } = home
    const path = route === undefined || route.startsWith('/') ? (route ?? null) : `${prefix}/${route}`
    this.part.homes.push({ folder: prefix === '' ? '/' : prefix, route: path, redirect, origin: this.#configPath })
  }

  /** @param entries - handlers of the folder itself */
  #addFileRoutes(maker: FunctionMaker, entries: readonly Handler[]): void {
    const { part, config } = this
    const { prefix, name } = this.context
    const { routes } = this.files
    const hasEntry = entries.length > 0
    for (const { file, methods: wanted } of routes) {
      const handler = this.#handlerOf(file.fileName)
      if (handler === null) continue
      const methods = hasEntry ? this.#leftByEntrypoint(file, wanted, entries[0]!) : wanted
      if (methods.length === 0) continue
      const identity = { name: toChild(name, file.stem), version: null, kind: 'file' } as const
      const fn = this.#make(maker, handler, identity, { kind: 'file', methods }, !hasEntry && routes.length === 1)
      if (prefix === null) {
        part.ignore(fn.entryFile, 'its folder has no public path')
        continue
      }
      const claim = { fn, route: `${prefix}/${file.path}`, methods, source: 'file', forced: false } as const
      if (part.claim({ ...claim, origin: fn.entryFile, implied: false })) part.functions.push(fn)
    }
    if (hasEntry || routes.length === 1 || config === null || config.problem !== undefined) return
    if (config.schedule === undefined && config.scheduleProblem === undefined && config.keepWarm === undefined) return
    const text = `sets schedule or keep_warm, but its folder has ${routes.length} handlers and none that stands for it`
    const hint = 'Move the block to the fn.config.json of a folder with one handler.'
    this.warn('SCHEDULE_WITHOUT_FUNCTION', text, hint)
  }

  /** An explicit `entrypoint` answers all its methods: what it leaves to another file of its folder with the same route. */
  #leftByEntrypoint(file: RouteFile, methods: readonly Method[], entry: Handler): readonly Method[] {
    const { part, node, config } = this
    const { prefix } = this.context
    if (config?.entrypoint === undefined || prefix === null) return methods
    const pattern = parsePattern(`${prefix}/${file.path}`)
    if ('problem' in pattern) return methods
    const held = new Set<Method>()
    const entryFile = toChild(entry.folder, entry.file.name)
    for (const claim of part.claims) {
      if (claim.fn.entryFile !== entryFile || claim.pattern.shape !== pattern.shape) continue
      for (const method of claim.methods) held.add(method)
    }
    const taken = methods.filter(method => held.has(method))
    const path = toChild(node.path, file.fileName)
    if (taken.length > 0 && path !== entryFile) {
      part.ignore(path, `entrypoint is ${config.entrypoint}, which answers ${taken.join(', ')} of this path`)
    }
    return methods.filter(method => !held.has(method))
  }

  /** One function for each file, whatever routes lead to it. */
  #addManifest(maker: FunctionMaker): void {
    const byTarget = new Map<string, RouteEntry[]>()
    for (const entry of this.configs.routes) {
      byTarget.set(entry.target, [...(byTarget.get(entry.target) ?? []), entry])
    }
    for (const [path, entries] of byTarget) this.#addTarget(maker, path, entries)
  }

  #addTarget(maker: FunctionMaker, path: string, entries: readonly RouteEntry[]): void {
    const { part, node, layers, configs, helpers, facts } = this
    const origin = toChild(node.path, 'fn.routes.json')
    const target = findTarget(node, path, facts.enabled)
    if (!target.ok) {
      const text = `routes[${JSON.stringify(entries[0]!.definition)}]: the target ${JSON.stringify(path)} ${target.problem}`
      part.warnings.push(pathWarning('MANIFEST_TARGET', origin, text, target.hint))
      return
    }
    const { runtime, folder, file } = target
    const inner = target.folders.map(one => facts.configs(one))
    const { env, envProblem } = inner.at(-1) ?? configs
    const targetNode = target.folders.at(-1) ?? node
    const handler: Handler = {
      ...{ runtime, folder, file, fnFolder: folder, env, envProblem, helpers },
      layers: [...layers, ...inner.map(({ config }) => config)],
      manifests: manifestsOf(targetNode, runtime),
      schema: this.#schemaOf(targetNode, file),
    }
    const named = new Set(entries.flatMap(entry => entry.methods))
    const methods = METHODS.filter(method => named.has(method))
    const identity = { name: toChild(this.context.name, stemOf(path)), version: null, kind: 'file' } as const
    const fn = this.#make(maker, handler, identity, { kind: 'file', methods }, false)
    let isClaimed = false
    for (const entry of entries) {
      const claim = { fn, route: entry.path, methods: entry.methods, source: 'manifest', forced: false } as const
      if (part.claim({ ...claim, origin, implied: false })) isClaimed = true
    }
    if (isClaimed) part.targets.push(fn)
  }

  /** A file right in the folder as a handler; null when it cannot be one. */
  #handlerOf(fileName: string): Handler | null {
    const target = findTarget(this.node, fileName, this.facts.enabled)
    return target.ok ? this.#handler(target) : null
  }

  /** A file of the folder or below it as a handler of the folder. @param isEntrypoint - see `#schemaOf` */
  #handler({ runtime, folder, file }: Target, isEntrypoint = false): Handler {
    const { node, layers, helpers, configs, part } = this
    const { env, envProblem } = configs
    const manifests = manifestsOf(node, runtime)
    if (lacksPackages(node, runtime)) part.manifests.push({ runtime, folder: node.path })
    const schema = this.#schemaOf(node, file, isEntrypoint)
    return { runtime, folder, file, fnFolder: node.path, layers, env, envProblem, helpers, manifests, schema }
  }

  /** Problems of the folder's config that concern this function become warnings of the folder. */
  #make(
    maker: FunctionMaker,
    handler: Handler,
    identity: Identity,
    target: PolicyTarget,
    isScheduled: boolean,
  ): FunctionVersion {
    const { warnings } = this.part
    const found: Warning[] = []
    const fn = maker.make(handler, identity, { ...target, label: this.#configPath, warnings: found }, isScheduled)
    // One config may make several functions and is wrong once.
    for (const warning of found) if (!warnings.some(known => known.message === warning.message)) warnings.push(warning)
    return fn
  }

  /**
   * The schema file beside a handler.
   * @param node - folder in which it is looked for
   * @param isEntrypoint - the config names the handler: it stands for this folder
   */
  #schemaOf(node: DirNode, file: FileEntry, isEntrypoint = false): SchemaFileRef | null {
    if (!node.files.some(other => other.name.endsWith(SCHEMA_NAME))) return null
    const name = parseFileName(file.name)
    const standsForFolder = isEntrypoint || (name.kind === 'route' && name.path === '')
    for (const wanted of schemaNamesOf(file.name, standsForFolder)) {
      const found = node.files.find(other => other.name === wanted)
      if (found === undefined) continue
      if (node === this.node) this.#usedSchemas.add(wanted)
      return { path: toChild(node.path, wanted), size: found.size, mtimeMs: found.mtimeMs }
    }
    return null
  }

  /** Warns of a `schema.json` that describes nothing; files of other names may be data of a handler. */
  #checkSchema(): void {
    const { node, part } = this
    if (this.#usedSchemas.has(SCHEMA_NAME) || !node.files.some(file => file.name === SCHEMA_NAME)) return
    const text = 'describes no handler: it is not used'
    const hint = 'It is for index, handler, main and get.js of its folder; [id].js has [id].schema.json.'
    part.warnings.push(pathWarning('SCHEMA_UNUSED', toChild(node.path, SCHEMA_NAME), text, hint))
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

/** True for a pattern that ends in a catch-all: nothing is left for a wildcard below it. */
function takesTheRest(pattern: string): boolean {
  return pattern.endsWith('*') || pattern.endsWith('*?')
}
