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
import { normalizePath } from '../router/radix-tree.ts'
import type { RouteTable } from '../router/route-table.ts'
import type { Exchange, Step } from './exchange.ts'

type Routes = Pick<RouteTable, 'find' | 'candidates' | 'leaves'>

export interface HomeOptions {
  homes: readonly HomeAction[]
  /** `FN_HOME_FUNCTION`: an absolute path. */
  homeFunction: string | null
  /** `FN_HOME_REDIRECT`. */
  homeRedirect: string | null
  routes: Routes
  /** True when a static file answers at the path; asked at a reload, it may wait for the disk. */
  isAsset(path: string): boolean
}

export interface ChosenHome {
  folder: string
  kind: 'route' | 'redirect'
  target: string
  /** The config that says so; `.` for a setting. */
  origin: string
}

/** One thing a home may do, and the field that says so. */
interface HomeChoice extends ChosenHome {
  field: string
}

interface HomeSteps {
  before: readonly Step[]
  homes: readonly ChosenHome[]
  warnings: readonly Warning[]
}

interface Home extends ChosenHome {
  /** Bits by index in METHODS that stay with the folder's own route; none for `/`, whose home comes first. */
  ownMethods: number
}

/** Picks the home of each folder; what cannot be used is a warning and the next in order is taken. */
export function toHomeSteps(options: HomeOptions): HomeSteps {
  const { routes } = options
  const warnings: Warning[] = []
  const homes = new Map<string, Home>()
  for (const choice of listChoices(options)) {
    const { folder, kind, origin, field } = choice
    if (homes.has(folder)) continue
    const target = kind === 'redirect' ? choice.target : findTarget(choice, options, warnings)
    if (target === null) continue
    const own = folder === '/' ? undefined : routes.leaves.find(leaf => leaf.pattern === folder)
    const ownMethods = own?.methods ?? 0
    if (hasMethod(ownMethods, 'GET')) {
      const message = `${origin}: ${field} is not used for GET: ${folder} has its own route`
      warnings.push({ code: 'HOME_IGNORED', path: origin, message, hint: 'Remove the home, or the route.' })
    }
    homes.set(folder, { folder, kind, target, origin, ownMethods })
  }
  const chosen = Array.from(homes.values(), ({ ownMethods: _, ...home }): ChosenHome => home)
  chosen.sort((a, b) => compareText(a.folder, b.folder))
  return { before: homes.size === 0 ? [] : [toStep(homes, routes)], homes: chosen, warnings }
}

/** In order of precedence. The root's own config speaks before one of a runtime's folder, whose public path is `/` too. */
function listChoices({ homes, homeFunction, homeRedirect }: HomeOptions): HomeChoice[] {
  const depthOf = ({ origin }: HomeAction): number => origin.split('/').length
  const actions = [...homes].sort((a, b) => depthOf(a) - depthOf(b))
  const listed = [
    { folder: '/', kind: 'route', target: homeFunction, field: 'FN_HOME_FUNCTION', origin: '.' } as const,
    { folder: '/', kind: 'redirect', target: homeRedirect, field: 'FN_HOME_REDIRECT', origin: '.' } as const,
    ...actions.flatMap(({ folder, route, redirect, origin }) => [
      { folder, kind: 'route', target: route, field: 'home.route', origin } as const,
      { folder, kind: 'redirect', target: redirect, field: 'home.redirect', origin } as const,
    ]),
  ]
  return listed.flatMap(({ target, ...choice }) => (target === null ? [] : [{ ...choice, target }]))
}

/** A segment that stands for a param in one of the spellings of a route. */
const PARAMS = /(?<slash>^|\/)(?::|\{|\[|\*)[^/]*/g

/** @returns the canonical path of a route that may be this home; null with a warning */
function findTarget(choice: HomeChoice, options: HomeOptions, warnings: Warning[]): string | null {
  const { folder, target, field, origin } = choice
  const path = normalizePath(target)
  const example = target.replace(PARAMS, '$<slash>42')
  const needsValues = example !== target
  if (typeof path === 'string' && path !== folder && !needsValues && leadsTo(path, folder, options)) return path
  const rule = needsValues
    ? 'must have values in place of params'
    : `must be the path of ${folder === '/' ? 'a route other than /' : `a route below ${folder}`}`
  warnings.push({
    code: 'HOME_TARGET_MISSING',
    path: origin,
    message: `${origin === '.' ? '' : `${origin}: `}${field} ${rule}, got ${JSON.stringify(target)} (string); it is not used`,
    hint: needsValues
      ? `Write a path such as ${example}.`
      : folder === '/'
        ? 'Write a path that fngw routes lists.'
        : `Write a path that fngw routes lists below ${folder}, without a leading slash. To send clients elsewhere use home.redirect.`,
  })
  return null
}

/** The root's home may be any route or file; that of another folder is a route in it. */
function leadsTo(path: string, folder: string, { routes, isAsset }: HomeOptions): boolean {
  const leaves = routes.candidates(path)
  if (folder === '/') return leaves.length > 0 || isAsset(path)
  return leaves.some(leaf => leaf.pattern.startsWith(`${folder}/`))
}

function toStep(homes: ReadonlyMap<string, Home>, routes: Routes): Step {
  return exchange => {
    const home = homes.get(exchange.path)
    if (home === undefined) return false
    const method = methodOf(exchange)
    if (hasMethod(home.ownMethods, method)) return false
    if (home.kind === 'redirect') return redirect(exchange, home.target, method, routes)
    // Methods that the home's target does not have stay with the path's own route.
    if (has(routes, method, exchange) && !has(routes, method, exchange, home.target)) return false
    exchange.path = home.target
    return false
  }
}

/** A browser that asks whether it may send a method means that method. */
function methodOf({ method, req }: Exchange): string {
  if (method === 'HEAD') return 'GET'
  return (method === 'OPTIONS' ? headerOf(req.rawHeaders, 'access-control-request-method') : null) ?? method
}

function has(routes: Routes, method: string, exchange: Exchange, path = exchange.path): boolean {
  const found = routes.find(method, path, exchange.host)
  // A host error of the target is its answer, not a reason to ask another route.
  return found.kind === 'match' || found.code === 'HOST_NOT_ALLOWED' || found.code === 'ROUTE_CONFLICT'
}

function redirect(exchange: Exchange, target: string, method: string, routes: Routes): boolean {
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
  const [, base = target, hash = ''] = /^([^#]*)(#.*)$/s.exec(target) ?? []
  return `${base}${base.includes('?') ? '&' : '?'}${search}${hash}`
}

function hasMethod(bits: number, method: string): boolean {
  const index = (METHODS as readonly string[]).indexOf(method)
  return index >= 0 && (bits & (1 << index)) !== 0
}
