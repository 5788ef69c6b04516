/**
 * The home of `/` and of folders: another route, or a redirect. Spec: §2.7, page http/home.
 *
 *   /        FN_HOME_FUNCTION ─► FN_HOME_REDIRECT ─► home.route ─► home.redirect ─► asset ─► route of /
 *   /folder  route of the folder ─► home.route ─► home.redirect; both before a route that merely matches, such as /:x
 *
 * Everything is decided when the catalog is built; a request costs one look into a map.
 */

import type { HomeAction } from '../core/catalog.ts'
import { GatewayError, type Warning } from '../core/errors.ts'
import { headerOf, toAllow } from '../core/http-text.ts'
import { METHODS } from '../core/identity.ts'
import { compareText } from '../core/text.ts'
import { normalizePath } from '../router/path.ts'
import type { RouteTable } from '../router/route-table.ts'
import type { Exchange, Step } from './exchange.ts'

export interface HomeOptions {
  homes: readonly HomeAction[]
  /** `FN_HOME_FUNCTION`: an absolute path. */
  homeFunction: string | null
  /** `FN_HOME_REDIRECT`. */
  homeRedirect: string | null
  routes: Pick<RouteTable, 'find' | 'candidates' | 'leaves'>
  /** True when a static file answers at the path; asked at a reload, it may wait for the disk. */
  isAsset(path: string): boolean
}

/** The home of a folder, for records. */
export interface ChosenHome {
  /** Public path of the folder. */
  folder: string
  kind: 'route' | 'redirect'
  target: string
  /** The config that says so; `.` for a setting. */
  origin: string
}

interface HomeSteps {
  before: readonly Step[]
  homes: readonly ChosenHome[]
  warnings: readonly Warning[]
}

/** One thing a home may do, and where it is written. */
interface HomeChoice {
  kind: 'route' | 'redirect'
  target: string
  field: string
  origin: string
}

interface Home {
  choice: HomeChoice
  /** Bits by index in METHODS that stay with the folder's own route; none for `/`, whose home comes first. */
  ownMethods: number
}

/** Picks the home of each folder; what cannot be used is a warning and the next in order is taken. */
export function toHomeSteps(options: HomeOptions): HomeSteps {
  const warnings: Warning[] = []
  const homes = new Map<string, Home>()
  for (const [folder, actions] of groupByFolder(options)) {
    const choice = toChoices(folder, actions, options).find(choice => isUsable(choice, folder, options, warnings))
    if (choice === undefined) continue
    const own = folder === '/' ? undefined : options.routes.leaves.find(leaf => leaf.pattern === folder)
    const ownMethods = own?.methods ?? 0
    if (hasMethod(ownMethods, 'GET')) {
      const message = `${choice.origin}: ${choice.field} is not used for GET: ${folder} has its own route`
      warnings.push({ code: 'HOME_IGNORED', path: choice.origin, message, hint: 'Remove the home, or the route.' })
    }
    homes.set(folder, { choice, ownMethods })
  }
  return { before: homes.size === 0 ? [] : [toStep(homes, options.routes)], homes: toChosen(homes), warnings }
}

function toChosen(homes: ReadonlyMap<string, Home>): ChosenHome[] {
  const chosen = [...homes].map(([folder, { choice }]) => {
    const { kind, target, origin } = choice
    return { folder, kind, target, origin }
  })
  return chosen.sort((a, b) => compareText(a.folder, b.folder))
}

function groupByFolder({ homes, homeFunction, homeRedirect }: HomeOptions): Map<string, HomeAction[]> {
  const folders = new Map<string, HomeAction[]>()
  if (homeFunction !== null || homeRedirect !== null) folders.set('/', [])
  for (const home of [...homes].sort((a, b) => depthOf(a) - depthOf(b))) {
    const known = folders.get(home.folder)
    if (known === undefined) folders.set(home.folder, [home])
    else known.push(home)
  }
  return folders
}

/** The root's own config speaks before one of a runtime's folder, whose public path is `/` too. */
function depthOf({ origin }: HomeAction): number {
  return origin.split('/').length
}

/** In order of precedence. */
function toChoices(folder: string, actions: readonly HomeAction[], options: HomeOptions): HomeChoice[] {
  const choices: HomeChoice[] = []
  const add = (kind: HomeChoice['kind'], target: string | null, field: string, origin: string): void => {
    if (target !== null) choices.push({ kind, target, field, origin })
  }
  if (folder === '/') {
    add('route', options.homeFunction, 'FN_HOME_FUNCTION', '.')
    add('redirect', options.homeRedirect, 'FN_HOME_REDIRECT', '.')
  }
  for (const { route, redirect, origin } of actions) {
    add('route', route, 'home.route', origin)
    add('redirect', redirect, 'home.redirect', origin)
  }
  return choices
}

function isUsable(choice: HomeChoice, folder: string, options: HomeOptions, warnings: Warning[]): boolean {
  if (choice.kind === 'redirect') return true
  const { target, field, origin } = choice
  const needsValues = PARAM.test(target)
  const path = normalizePath(target)
  if (typeof path === 'string' && path !== folder && !needsValues) {
    choice.target = path
    if (leadsTo(path, folder, options)) return true
  }
  const rule = needsValues
    ? 'must have values in place of params'
    : `must be the path of ${folder === '/' ? 'a route other than /' : `a route below ${folder}`}`
  warnings.push({
    code: 'HOME_TARGET_MISSING',
    path: origin,
    message: `${origin === '.' ? '' : `${origin}: `}${field} ${rule}, got ${JSON.stringify(target)} (string); it is not used`,
    hint: needsValues
      ? `Write a path such as ${target.replace(PARAMS, '$<slash>42')}.`
      : folder === '/'
        ? 'Write a path that fngw routes lists.'
        : `Write a path that fngw routes lists below ${folder}, without a leading slash. To send clients elsewhere use home.redirect.`,
  })
  return false
}

/** A segment that stands for a param in one of the spellings of a route. */
const PARAM = /(?:^|\/)(?::|\{|\[|\*)/
const PARAMS = /(?<slash>^|\/)(?::|\{|\[|\*)[^/]*/g

/** The root's home may be any route or file; that of another folder is a route in it. */
function leadsTo(path: string, folder: string, { routes, isAsset }: HomeOptions): boolean {
  const leaves = routes.candidates(path)
  if (folder === '/') return leaves.length > 0 || isAsset(path)
  return leaves.some(({ leaf }) => leaf.pattern.startsWith(`${folder}/`))
}

function toStep(homes: ReadonlyMap<string, Home>, routes: HomeOptions['routes']): Step {
  return exchange => {
    const home = homes.get(exchange.path)
    if (home === undefined) return false
    const { choice, ownMethods } = home
    const method = methodOf(exchange)
    if (hasMethod(ownMethods, method)) return false
    if (choice.kind === 'redirect') return redirect(exchange, choice.target, method, routes)
    // Methods that the home's target does not have stay with the path's own route.
    if (has(routes, method, exchange) && !has(routes, method, exchange, choice.target)) return false
    exchange.path = choice.target
    return false
  }
}

/** A browser that asks whether it may send a method means that method. */
function methodOf({ method, req }: Exchange): string {
  if (method === 'HEAD') return 'GET'
  return (method === 'OPTIONS' ? headerOf(req.rawHeaders, 'access-control-request-method') : null) ?? method
}

function has(routes: HomeOptions['routes'], method: string, exchange: Exchange, path = exchange.path): boolean {
  const found = routes.find(method, path, exchange.host)
  // A host error of the target is its answer, not a reason to ask another route.
  return found.kind === 'match' || found.code === 'HOST_NOT_ALLOWED' || found.code === 'ROUTE_CONFLICT'
}

function redirect(exchange: Exchange, target: string, method: string, routes: HomeOptions['routes']): boolean {
  if (exchange.method === 'GET' || exchange.method === 'HEAD') {
    exchange.responder.send(exchange, 302, ['Location', withQuery(target, exchange.search)], null)
    return true
  }
  if (has(routes, method, exchange)) return false
  const headers = { Allow: toAllow(METHODS.filter(name => name === 'GET' || has(routes, name, exchange))) }
  exchange.responder.sendError(exchange, new GatewayError('METHOD_NOT_ALLOWED', 'method not allowed', { headers }))
  return true
}

/** The client's query behind the configured target: it can add to the query and to nothing before it. */
function withQuery(target: string, search: string): string {
  if (search === '' || !/^[\x21-\x7e]+$/.test(search)) return target
  const hash = target.indexOf('#')
  const base = hash < 0 ? target : target.slice(0, hash)
  return `${base}${base.includes('?') ? '&' : '?'}${search}${hash < 0 ? '' : target.slice(hash)}`
}

function hasMethod(bits: number, method: string): boolean {
  const index = (METHODS as readonly string[]).indexOf(method)
  return index >= 0 && (bits & (1 << index)) !== 0
}
