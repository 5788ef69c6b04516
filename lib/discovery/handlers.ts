/** The handlers of one folder: its own, versions, file routes, manifest, home. Owner: §2.2, §2.3, §9. */

import type { FunctionVersion } from '../core/catalog.ts'
import { isFunctionName, isVersion } from '../core/identity.ts'
import { findTarget } from './entry-file.ts'
import { extensionOf } from './file-name.ts'
import { addFileRoutes } from './file-routes.ts'
import { FolderMaker } from './folder-maker.ts'
import type { FunctionMaker, Handler, Identity } from './functions.ts'
import { isVersionLike } from './layouts.ts'
import { addManifest } from './manifest.ts'
import { toTurnOnHint } from './runtime-off.ts'
import type { Visit } from './visit.ts'

/** Adds to the visit's part what the folder itself contributes. */
export function addHandlers(visit: Visit, maker: FunctionMaker): void {
  new Handlers(visit, maker).add()
}

class Handlers {
  readonly #visit: Visit
  readonly #folder: FolderMaker

  constructor(visit: Visit, maker: FunctionMaker) {
    this.#visit = visit
    this.#folder = new FolderMaker(visit, maker)
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
    addFileRoutes(this.#folder, entries)
    addManifest(this.#folder)
    this.#visit.part.warnings.push(...this.#folder.schemas.check())
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
        return target.ok ? [this.#folder.handler(target)] : []
      })
    }
    const target = findTarget(node, path, facts.enabled)
    if (!target.ok) {
      this.#visit.warn('ENTRYPOINT', `entrypoint ${JSON.stringify(path)} ${target.problem}`, target.hint)
      return []
    }
    const wanted = config?.runtime ?? target.runtime
    if (wanted === target.runtime) return [this.#folder.handler(target)]
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
    const fn = this.#folder.make(handler, identity, { kind: isFunction ? 'function' : 'file' }, true)
    if (this.#claimEntry(fn)) part.functions.push(fn)
    // `v1` in a folder without a handler of its own: the folder is a function that has versions only.
    const isVersionOnly = isFunction && parent?.isFunction === false && isVersionLike(node.name) && isVersion(node.name)
    if (!isVersionOnly || !isFunctionName(parent.name)) return
    part.functions.push(this.#folder.make(handler, versionOf(parent.name, node.name), { kind: 'function' }, false))
  }

  /** A folder inside a function: `@version` of it, and by its path a route of its own. */
  #addVersion(handler: Handler): void {
    const { part, config, context, node, facts } = this.#visit
    const { name, prefix } = context
    const parentName = context.parent!.name
    const isAddressed = isFunctionName(parentName)
    if (isAddressed) {
      const fn = this.#folder.make(handler, versionOf(parentName, node.name), { kind: 'version' }, true)
      part.functions.push(fn)
      // Its own config never forces it onto a URL (§9).
      this.#claimListed(fn, false)
    }
    if (prefix === null) return
    // A schedule runs once: on the version when there is one.
    const fn = this.#folder.make(handler, { name, version: null, kind: 'function' }, { kind: 'function' }, !isAddressed)
    if (!this.#claimPath(fn, false)) return
    part.functions.push(fn)
    if (config?.identity !== true || takesTheRest(prefix)) return
    const { methods } = fn.policy
    const forced = facts.options.forceUrl
    const origin = this.#folder.configPath
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
    // Which routes a config that cannot be used would list is unknown: it refuses calls at all the default ones.
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
      origin: config === null ? fn.entryFile : this.#folder.configPath,
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
    const origin = this.#folder.configPath
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
    part.homes.push({ folder, route: path, redirect: redirect ?? null, origin: this.#folder.configPath })
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
