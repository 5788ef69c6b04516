/** The access rules of `/_fn/*`. Pure: settings, a caller and the kind of an endpoint in, a refusal or null out. Spec: §5.1. */

import { timingSafeEqual } from 'node:crypto'
import { isIP } from 'node:net'
import type { Settings } from '../config/settings.ts'
import { getOrMake } from '../core/collections.ts'
import { GatewayError, type Warning } from '../core/errors.ts'
import { isJsonType } from '../core/http-text.ts'
import { TrustedProxies } from '../invocation/forwarded-headers.ts'

/**
 * The kind of an endpoint: `open` responds to every client (health); `page` is a read without data, which has the login form;
 * `acts` does something, whatever the method; `login` acts and needs no session; `write` acts and needs write permission.
 */
export type Access = 'open' | 'read' | 'page' | 'acts' | 'login' | 'write'

/** The settings in force, with the switches of `/_fn/ui-state` applied. */
export interface AccessSettings extends Settings {
  /** The API was switched off while the gateway runs; the token can switch it on again. */
  readonly apiOffByState: boolean
}

export interface Session {
  user: string
  /** `admin` for a login with the admin token, `user` for one with a password. */
  rights: 'admin' | 'user'
}

/** The facts that the rules check. Header values as received, null when absent. */
export interface Caller {
  method: string
  /** Plain address of the socket. */
  socketAddress: string
  /** Address of the client behind trusted proxies; the socket's when there are none. */
  clientAddress: string
  /** A forwarding header came from a client that is not a trusted proxy. */
  forwarded: boolean
  host: string | null
  origin: string | null
  fetchSite: string | null
  /** It names itself a browser, or the page it comes from: some say neither origin nor site of an image. */
  isBrowser: boolean
  contentType: string | null
  /** Value of REQUEST_MARK. */
  mark: string | null
  token: string | null
  /** Of the cookie; null without a login. */
  session: Session | null
}

/** A header that a page can send only by a script of the same origin: no form, image or link carries it. */
export const REQUEST_MARK = 'x-fngw-request'

const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS'])

/** True for the right token; takes the same time for every wrong one of a length. */
export function isAdminToken(given: string | null, wanted: string | null): boolean {
  if (given === null || wanted === null || wanted === '') return false
  const a = Buffer.from(given)
  const b = Buffer.from(wanted)
  // Compared even when the lengths differ: the time must not reveal the length.
  const same = timingSafeEqual(a.length === b.length ? a : Buffer.alloc(b.length), b)
  return same && a.length === b.length
}

/** A `Host` that no web page can make a browser send for its own domain: loopback, an address, or a listed name. */
function isKnownHost(host: string | null, consoleHosts: readonly string[]): boolean {
  if (host === null) return false
  const name = host
    .toLowerCase()
    .replace(/:\d+$/, '')
    .replace(/^\[|\]$/g, '')
    .replace(/\.$/, '')
  if (name === 'localhost' || name.endsWith('.localhost') || isIP(name) !== 0) return true
  return consoleHosts.some(known => known.toLowerCase() === name)
}

/** By `consoleLocalCidrs`: every request is checked. */
const LOCAL_NETWORKS = new WeakMap<readonly string[], TrustedProxies>()

/** Client at loopback or a listed address, not forwarded by a stranger, under a host that DNS rebinding cannot forge. */
function isLocalCaller(caller: Caller, { consoleHosts, consoleLocalCidrs }: AccessSettings): boolean {
  const local = getOrMake(
    LOCAL_NETWORKS,
    consoleLocalCidrs,
    () => new TrustedProxies(['127.0.0.0/8', '::1', ...consoleLocalCidrs]),
  )
  const isLocal = local.isTrusted(caller.socketAddress) && local.isTrusted(caller.clientAddress)
  return isLocal && !caller.forwarded && isKnownHost(caller.host, consoleHosts)
}

/** A call made by a page of another site. */
function isCrossSite({ fetchSite, origin, host }: Caller): boolean {
  if (fetchSite?.includes('cross-site') === true) return true
  return origin !== null && (!URL.canParse(origin) || new URL(origin).host !== host)
}

/**
 * True when only the caller's own code can have made the call: it has a mark or a type that markup cannot send, or it does not
 * come from a browser. Browsers name the origin of every unsafe call or say where it came from, and a form names its type.
 */
function isDeliberate({ mark, contentType, origin, fetchSite, isBrowser }: Caller): boolean {
  if (mark !== null || (contentType !== null && isJsonType(contentType))) return true
  // "none" means that a person typed the address.
  return contentType === null && origin === null && (fetchSite === null ? !isBrowser : fetchSite === 'none')
}

/**
 * Applies the rules in their order: surface off 404, wrong token 401, remote 403, not logged in 401, cross-site 403, made by
 * markup 403, write 403.
 * @returns null when the call may go on
 */
export function checkAccess(caller: Caller, access: Access, settings: AccessSettings): GatewayError | null {
  if (access === 'open') return null
  const hasToken = isAdminToken(caller.token, settings.adminToken)
  if (!settings.consoleApiEnabled && !(settings.apiOffByState && hasToken))
    return new GatewayError('NOT_FOUND', 'console api disabled')
  if (hasToken) return null
  if (settings.adminToken !== null && caller.token !== null)
    return new GatewayError('UNAUTHORIZED', 'wrong admin token')
  const isAdmin = isAdministrator(caller, settings)
  if (settings.consoleLocalOnly && !isAdmin && !isLocalCaller(caller, settings))
    return new GatewayError('FORBIDDEN', 'console api local-only')
  const isBeforeLogin = access === 'login' || access === 'page'
  if (settings.consoleLoginApi && caller.session === null && !isBeforeLogin)
    return new GatewayError('UNAUTHORIZED', 'login required')
  const isRead = SAFE_METHODS.has(caller.method) && (access === 'read' || access === 'page')
  // Links of other sites may lead to the console: its page shows nothing by itself.
  if (isRead && access === 'page') return null
  // Another port of this machine is the same site and another origin.
  const isForeign = isCrossSite(caller) || (isRead && caller.fetchSite?.includes('same-site') === true)
  if (isForeign) return new GatewayError('FORBIDDEN', 'cross-site request refused')
  if (isRead) return null
  if (!isDeliberate(caller))
    return new GatewayError('FORBIDDEN', 'send the header X-Fngw-Request: 1, or Content-Type: application/json')
  if (access === 'write' && !isAdmin && !settings.consoleWriteEnabled)
    return new GatewayError('FORBIDDEN', 'console write disabled')
  return null
}

/** True for the token, or for a session that began with it. */
export function isAdministrator(caller: Caller, flags: AccessSettings): boolean {
  return isAdminToken(caller.token, flags.adminToken) || caller.session?.rights === 'admin'
}

/** True when paths, addresses and other internal facts may be shown: to a local caller, one with the token, or one with a session. */
export function maySeeDetails(caller: Caller, flags: AccessSettings): boolean {
  const isKnown = caller.session !== null || isAdminToken(caller.token, flags.adminToken)
  return isKnown || (!flags.consoleLoginApi && isLocalCaller(caller, flags))
}

/** True when local callers need the token or a session too. With FN_ISOLATION=user a function may be such a caller. */
function needsLogin({ consoleLoginApi, isolation }: Settings): boolean {
  return consoleLoginApi || isolation === 'user'
}

/** Warnings about settings that lock everyone out, or that are less safe than they look. */
export function toAccessWarnings(settings: Settings): Warning[] {
  const { consoleApiEnabled, adminToken, uiEnabled, consoleLoginPasswordHash, consoleLoginApi } = settings
  if (!consoleApiEnabled) return []
  const canLogIn = adminToken !== null || (uiEnabled && consoleLoginPasswordHash !== null)
  if (needsLogin(settings) && !canLogIn) {
    const cause = consoleLoginApi ? 'FN_CONSOLE_LOGIN_API=1' : 'FN_ISOLATION=user'
    return [
      {
        code: 'LOGIN_IMPOSSIBLE',
        path: '.',
        message: `${cause} requires a login and no login is possible: all endpoints below /_fn except health respond with 401`,
        hint: 'Set FN_ADMIN_TOKEN or FN_ADMIN_TOKEN_FILE, or FN_UI_ENABLED=1 and FN_CONSOLE_LOGIN_PASSWORD_HASH.',
      },
    ]
  }
  if (needsLogin(settings) || settings.consoleLocalOnly || adminToken === null) return []
  return [
    {
      code: 'CONTROL_OPEN',
      path: '.',
      message: 'FN_CONSOLE_LOCAL_ONLY is off: any client may read /_fn/catalog and reload without the admin token',
      hint: 'Leave FN_CONSOLE_LOCAL_ONLY on: the admin token gives access from anywhere.',
    },
  ]
}

type Switch = 'uiEnabled' | 'consoleApiEnabled' | 'consoleWriteEnabled' | 'consoleLocalOnly' | 'consoleLoginApi'

/** Names of the switches in JSON. */
export const SWITCHES: Readonly<Record<string, Switch>> = {
  ui_enabled: 'uiEnabled',
  api_enabled: 'consoleApiEnabled',
  write_enabled: 'consoleWriteEnabled',
  local_only: 'consoleLocalOnly',
  login_api_enabled: 'consoleLoginApi',
}

export type Switches = Readonly<Record<Switch, boolean>>

/** Lives as long as the gateway: a start begins with the settings again. */
export class AccessState {
  readonly #settings: Settings
  #flags: AccessSettings
  /** Called after every change of the switches. */
  onChange: (() => void) | null = null

  constructor(settings: Settings) {
    this.#settings = settings
    this.#flags = { ...settings, ...this.preview(null), apiOffByState: false }
  }

  get flags(): AccessSettings {
    return this.#flags
  }

  /** True when there is something to log in with, and for. */
  get canLogIn(): boolean {
    const { adminToken, consoleLoginPasswordHash } = this.#settings
    return this.#flags.uiEnabled && (adminToken !== null || consoleLoginPasswordHash !== null)
  }

  /** The switches after some changes; null: as the settings say. Nothing is changed. */
  preview(changes: Partial<Switches> | null): Switches {
    const all: Settings = changes === null ? this.#settings : { ...this.#flags, ...changes }
    const switches = Object.fromEntries(Object.values(SWITCHES).map(name => [name, all[name]])) as Switches
    return { ...switches, consoleLoginApi: needsLogin(all) }
  }

  apply(changes: Partial<Switches> | null): void {
    const switches = this.preview(changes)
    const apiOffByState = this.#settings.consoleApiEnabled && !switches.consoleApiEnabled
    this.#flags = { ...this.#settings, ...switches, apiOffByState }
    this.onChange?.()
  }

  /** True when the switches allow more than the current flags: only an administrator may set them. */
  isLoosening(next: Switches): boolean {
    const now = this.#flags
    return (
      (now.consoleLocalOnly && !next.consoleLocalOnly) ||
      (now.consoleLoginApi && !next.consoleLoginApi) ||
      (!now.consoleWriteEnabled && next.consoleWriteEnabled)
    )
  }
}
