/** The handlers of one folder: its own, versions, file routes, manifest, home. Owner: §2.2, §2.3, §9. */

import type { PolicyTarget, RouteEntry } from '../config/function-config.ts'
import type { FunctionVersion, SchemaFileRef } from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import { isFunctionName, isVersion, type Method, METHODS } from '../core/identity.ts'
import { parsePattern } from '../core/pattern.ts'
import { pathWarning, toChild } from './disk.ts'
import { findTarget, type Target } from './entry-file.ts'
import { extensionOf, parseFileName, type RouteFile, SCHEMA_NAME, schemaNamesOf } from './file-name.ts'
import { type FunctionMaker, type Handler, type Identity, lacksPackages, manifestsOf } from './functions.ts'
import { isVersionLike, toTurnOnHint } from './layouts.ts'
import type { DirNode, FileEntry } from './snapshot.ts'
import type { Visit } from './visit.ts'

/** Adds to the visit's part what the folder itself contributes. */
export function addHandlers(visit: Visit, maker: FunctionMaker): void {
  new Handlers(visit, maker).add()
}

class Handlers {
  readonly #visit: Visit
  readonly #maker: FunctionMaker
  /** `fn.config.json` of the folder, below the root; it need not exist. */
  readonly #configPath: string
  /** Names of the schema files that describe a handler. */
  readonly #usedSchemas = new Set<string>()

  constructor(visit: Visit, maker: FunctionMaker) {
    this.#visit = visit
    this.#maker = maker
    this.#configPath = toChild(visit.node.path, 'fn.config.json')
  }

  add(): void {
    const visit = this.#visit
    if (visit.config?.problem !== undefined) {
      const text = 'cannot be used: calls of every function in its folder and below are refused with 503'
      visit.warn('CONFIG_CLOSED', text, 'Fix the file.')
    }
    const entries = this.#entries()
    if (entries.length === 0) this.#checkEntry()
    for (const entry of entries) {
      if (visit.isVersion) this.#addVersion(entry)
      else this.#addFunction(entry)
    }
    this.#addFileRoutes(entries)
    this.#addManifest()
    this.#checkSchema()
    this.#addHome()
    if (visit.config?.assets !== undefined && visit.node.path !== '') {
      visit.warn('NESTED_ASSETS', 'sets assets, which only the fn.config.json of the root can', 'Move it to the root.')
    }
  }

  /** The handler that `entrypoint` names, else the folder's entry files. */
  #entries(): Handler[] {
    const { node, files, config, facts } = this.#visit
    const path = config?.entrypoint
    if (path === undefined) {
      return files.entries.flatMap(({ fileName }) => {
        const target = findTarget(node, fileName, facts.enabled)
        return target.ok ? [this.#handler(target)] : []
      })
    }
    const target = findTarget(node, path, facts.enabled)
    if (!target.ok) {
      this.#visit.warn('ENTRYPOINT', `entrypoint ${JSON.stringify(path)} ${target.problem}`, target.hint)
      return []
    }
    const wanted = config?.runtime ?? target.runtime
    if (wanted === target.runtime) return [this.#handler(target)]
    const text = `entrypoint ${JSON.stringify(path)} is a ${target.runtime} file, but runtime is "${wanted}"`
    this.#visit.warn('ENTRYPOINT', text, 'Make the two agree, or leave out runtime.')
    return []
  }

  /** A declared function without a handler is a mistake, unless files or versions below it are what it is for. */
  #checkEntry(): void {
    const { node, files, config, configs, facts, viewBelow } = this.#visit
    if (config?.identity !== true || config.entrypoint !== undefined) return
    const { runtime } = config
    if (runtime !== undefined && !facts.enabled.has(runtime)) {
      const text = `sets the runtime ${runtime}, which is not enabled`
      this.#visit.warn('RUNTIME_DISABLED', text, toTurnOnHint([...facts.enabled, runtime]))
      return
    }
    const isUsed = files.routes.length > 0 || configs.routes.length > 0
    if (isUsed || node.dirs.some(dir => facts.hasHandlerBelow(dir, viewBelow))) return
    const what = runtime === undefined ? 'handler file' : `handler file for ${runtime}`
    const hint = 'Add a file such as handler.py or handler.js, or set "entrypoint".'
    this.#visit.warn('NO_ENTRY_FILE', `declares a function, but its folder has no ${what}`, hint)
  }

  #addFunction(handler: Handler): void {
    const { part, config, files, context, node } = this.#visit
    const { name, parent } = context
    const isFunction = files.kind === 'function'
    const identity: Identity = {
      name: config?.name ?? (name === '' ? stemOf(handler.file.name) : name),
      version: null,
      kind: isFunction ? 'function' : 'file',
    }
    const fn = this.#make(handler, identity, { kind: isFunction ? 'function' : 'file' }, true)
    if (this.#claimEntry(fn)) part.functions.push(fn)
    // `v1` in a folder without a handler: the folder is a function that has versions only.
    const isVersionOnly = isFunction && parent?.isFunction === false && isVersionLike(node.name) && isVersion(node.name)
    if (!isVersionOnly || !isFunctionName(parent.name)) return
    part.functions.push(this.#make(handler, versionOf(parent.name, node.name), { kind: 'function' }, false))
  }

  /** A folder inside a function: `@version` of it, and a separate route by its path. */
  #addVersion(handler: Handler): void {
    const { part, config, context, node, facts } = this.#visit
    const { name, prefix } = context
    const parentName = context.parent!.name
    const isAddressed = isFunctionName(parentName)
    if (isAddressed) {
      const fn = this.#make(handler, versionOf(parentName, node.name), { kind: 'version' }, true)
      part.functions.push(fn)
      // Its own config never forces it onto a URL (§9).
      this.#claimListed(fn, false)
    }
    if (prefix === null) return
    // A schedule runs once: on the version when there is one.
    const fn = this.#make(handler, { name, version: null, kind: 'function' }, { kind: 'function' }, !isAddressed)
    if (!this.#claimPath(fn, false)) return
    part.functions.push(fn)
    if (config?.identity !== true || takesTheRest(prefix)) return
    const { methods } = fn.policy
    const forced = facts.options.forceUrl
    const origin = this.#configPath
    part.claim({ fn, route: `${prefix}/*`, methods, source: 'config', forced, origin, implied: true })
  }

  /** True when the function has a route, or asked for none. */
  #claimEntry(fn: FunctionVersion): boolean {
    const { part, config, files, context, facts } = this.#visit
    const { prefix, view } = context
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
    if (path === null) return false
    const request = {
      fn,
      methods: fn.policy.methods,
      source: 'config',
      forced: forced || facts.options.forceUrl,
      origin: config === null ? fn.entryFile : this.#configPath,
      implied: true,
    } as const
    if (!part.claim({ ...request, route: path })) return false
    return takesTheRest(path) || part.claim({ ...request, route: `${path}/*` })
  }

  /** Claims the folder's own path, as a file does. */
  #claimPath(fn: FunctionVersion, forced: boolean): boolean {
    const { part, files, context } = this.#visit
    const { prefix } = context
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
    const { part, config, facts } = this.#visit
    const isForced = forced || facts.options.forceUrl
    const origin = this.#configPath
    for (const route of config?.invoke.routes ?? []) {
      const { methods } = fn.policy
      part.claim({ fn, route, methods, source: 'config', forced: isForced, origin, implied: false })
    }
  }

  #addHome(): void {
    const { part, config, context } = this.#visit
    const { prefix } = context
    if (config?.home === undefined || prefix === null) return
    if (prefix.includes('/:')) {
      const hint = 'Set home in a folder without [..] in its path.'
      this.#visit.warn('HOME_IGNORED', `sets home, but the path of its folder is ${prefix}`, hint)
      return
    }
    const { route, redirect } = config.home
    const path = route === undefined || route.startsWith('/') ? (route ?? null) : `${prefix}/${route}`
    const folder = prefix === '' ? '/' : prefix
    part.homes.push({ folder, route: path, redirect: redirect ?? null, origin: this.#configPath })
  }

  /** @param entries - handlers of the folder itself */
  #addFileRoutes(entries: readonly Handler[]): void {
    const visit = this.#visit
    const { part, node, files, config, context, facts } = visit
    const { prefix, name } = context
    const { routes } = files
    const hasEntry = entries.length > 0
    const isLone = !hasEntry && routes.length === 1
    for (const { file, methods: wanted } of routes) {
      const target = findTarget(node, file.fileName, facts.enabled)
      if (!target.ok) continue
      const methods = hasEntry ? this.#leftByEntrypoint(file, wanted, entries[0]!) : wanted
      if (methods.length === 0) continue
      const identity: Identity = { name: toChild(name, file.stem), version: null, kind: 'file' }
      const fn = this.#make(this.#handler(target), identity, { kind: 'file', methods }, isLone)
      if (prefix === null) {
        part.ignore(fn.entryFile, 'its folder has no public path')
        continue
      }
      const route = `${prefix}/${file.path}`
      const origin = fn.entryFile
      if (part.claim({ fn, route, methods, source: 'file', forced: false, origin, implied: false }))
        part.functions.push(fn)
    }
    if (hasEntry || routes.length === 1) return
    if (config === null || config.problem !== undefined) return
    if (config.schedule === undefined && config.scheduleProblem === undefined && config.keepWarm === undefined) return
    const text = `sets schedule or keep_warm, but its folder has ${routes.length} handlers and none that stands for it`
    const hint = 'Move the block to the fn.config.json of a folder with one handler.'
    visit.warn('SCHEDULE_WITHOUT_FUNCTION', text, hint)
  }

  /** An explicit `entrypoint` answers all its methods: what it leaves to another file of its folder with the same route. */
  #leftByEntrypoint(file: RouteFile, methods: readonly Method[], entry: Handler): readonly Method[] {
    const { part, node, config, context } = this.#visit
    if (config?.entrypoint === undefined || context.prefix === null) return methods
    const pattern = parsePattern(`${context.prefix}/${file.path}`)
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
  #addManifest(): void {
    const byTarget = new Map<string, RouteEntry[]>()
    for (const entry of this.#visit.configs.routes) {
      byTarget.set(entry.target, [...(byTarget.get(entry.target) ?? []), entry])
    }
    for (const [path, entries] of byTarget) this.#addTarget(path, entries)
  }

  #addTarget(path: string, entries: readonly RouteEntry[]): void {
    const { part, node, layers, configs, helpers, context, facts } = this.#visit
    const origin = toChild(node.path, 'fn.routes.json')
    const target = findTarget(node, path, facts.enabled)
    if (!target.ok) {
      const text = `routes[${JSON.stringify(entries[0]!.definition)}]: the target ${JSON.stringify(path)} ${target.problem}`
      part.warnings.push(pathWarning('MANIFEST_TARGET', origin, text, target.hint))
      return
    }
    const inner = target.folders.map(folder => facts.configs(folder))
    const { env, envProblem } = inner.at(-1) ?? configs
    const targetNode = target.folders.at(-1) ?? node
    const handler: Handler = {
      runtime: target.runtime,
      folder: target.folder,
      file: target.file,
      fnFolder: target.folder,
      layers: [...layers, ...inner.map(({ config }) => config)],
      env,
      envProblem,
      helpers,
      manifests: manifestsOf(targetNode, target.runtime),
      schema: this.#schemaOf(targetNode, target.file),
    }
    const named = new Set(entries.flatMap(entry => entry.methods))
    const methods = METHODS.filter(method => named.has(method))
    const name = toChild(context.name, path.slice(0, path.length - extensionOf(path).length))
    const fn = this.#make(handler, { name, version: null, kind: 'file' }, { kind: 'file', methods }, false)
    let isClaimed = false
    for (const entry of entries) {
      const request = { fn, route: entry.path, methods: entry.methods, source: 'manifest', forced: false } as const
      if (part.claim({ ...request, origin, implied: false })) isClaimed = true
    }
    if (isClaimed) part.targets.push(fn)
  }

  /** A file of the folder or below it as a handler of the folder. */
  #handler({ runtime, folder, file }: Target): Handler {
    const { node, layers, helpers, configs, part } = this.#visit
    const manifests = manifestsOf(node, runtime)
    if (lacksPackages(node, runtime)) part.manifests.push({ runtime, folder: node.path })
    // An entrypoint further down stands for the folder of its function.
    const schema = this.#schemaOf(node, file, folder !== node.path)
    return {
      runtime,
      folder,
      file,
      fnFolder: node.path,
      layers,
      env: configs.env,
      envProblem: configs.envProblem,
      helpers,
      manifests,
      schema,
    }
  }

  /** Problems of the folder's config that concern this function become warnings of the folder. */
  #make(handler: Handler, identity: Identity, target: PolicyTarget, isScheduled: boolean): FunctionVersion {
    const { warnings } = this.#visit.part
    const found: Warning[] = []
    const fn = this.#maker.make(handler, identity, { ...target, label: this.#configPath, warnings: found }, isScheduled)
    // One config may make several functions and is wrong once.
    for (const warning of found) if (!warnings.some(known => known.message === warning.message)) warnings.push(warning)
    return fn
  }

  /**
   * The file beside a handler.
   * @param node - folder in which it is looked for
   * @param isEntrypoint - the handler is in a folder below, and stands for this folder
   */
  #schemaOf(node: DirNode, file: FileEntry, isEntrypoint = false): SchemaFileRef | null {
    const name = parseFileName(file.name)
    const standsForFolder = isEntrypoint || (name.kind === 'route' && name.path === '')
    for (const wanted of schemaNamesOf(file.name, standsForFolder)) {
      const found = node.files.find(other => other.name === wanted)
      if (found === undefined) continue
      if (node === this.#visit.node) this.#usedSchemas.add(wanted)
      return { path: toChild(node.path, wanted), size: found.size, mtimeMs: found.mtimeMs }
    }
    return null
  }

  /** Warns of a `schema.json` that describes nothing; files of other names may be data of a handler. */
  #checkSchema(): void {
    const { node, part } = this.#visit
    if (this.#usedSchemas.has(SCHEMA_NAME) || !node.files.some(file => file.name === SCHEMA_NAME)) return
    const text = 'describes no handler: it is not used'
    const hint = 'It is for index, handler, main and get.js of its folder; [id].js has [id].schema.json.'
    part.warnings.push(pathWarning('SCHEMA_UNUSED', toChild(node.path, SCHEMA_NAME), text, hint))
  }
}

function versionOf(name: string, version: string): Identity {
  return { name, version, kind: 'function' }
}

/** True for a pattern that ends in a catch-all: nothing is left for a wildcard below it. */
function takesTheRest(pattern: string): boolean {
  return pattern.endsWith('*') || pattern.endsWith('*?')
}

function stemOf(fileName: string): string {
  return fileName.slice(0, fileName.length - extensionOf(fileName).length)
}
