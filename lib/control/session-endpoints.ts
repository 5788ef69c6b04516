/** `POST /_fn/login` and `POST /_fn/logout`. Owner: §4.2, page control/session. */

import type { Settings } from '../config/settings.ts'
import type { Clock } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import type { AccessState } from './access-state.ts'
import type { ControlRequest, JsonObject } from './control-request.ts'
import { Credentials, type Given } from './credentials.ts'
import { type ControlReply, type Endpoint, LOGIN } from './endpoint.ts'
import { LoginLimit } from './login-limit.ts'
import type { Sessions } from './sessions.ts'

const DISABLED = 'login disabled: it needs FN_UI_ENABLED=1, and FN_ADMIN_TOKEN or FN_CONSOLE_LOGIN_PASSWORD_HASH'
const BODY_BYTES = 16 * 1024
const MAX_CHARS = 1024

interface SessionEndpointsDeps {
  clock: Clock
  settings: Settings
  sessions: Sessions
  access: AccessState
}

export function createSessionEndpoints(deps: SessionEndpointsDeps): readonly Endpoint[] {
  const { clock, settings, sessions, access } = deps
  const credentials = new Credentials(settings)
  const limit = new LoginLimit(clock)

  const login = async (request: ControlRequest): Promise<ControlReply> => {
    if (!access.canLogIn) throw new GatewayError('NOT_FOUND', DISABLED)
    const given = toGiven(await request.readJson(BODY_BYTES))
    const address = request.caller.clientAddress
    const waitMs = limit.begin(address)
    if (waitMs !== null) throw toTooMany(waitMs)
    const session = await credentials.check(given)
    if (session === null) throw new GatewayError('UNAUTHORIZED', 'invalid credentials')
    limit.succeed(address)
    // An id from before is not taken over: whoever planted it would know the session.
    sessions.end(request.header('cookie'))
    const cookie = sessions.toSetCookie(sessions.begin(session), request.isSecure)
    return { status: 200, body: { ok: true, user: session.user }, headers: ['Set-Cookie', cookie] }
  }

  const logout = (request: ControlRequest): ControlReply => {
    const cookie = request.header('cookie')
    if (request.query.flag('everywhere')) sessions.endEverywhere(cookie)
    else sessions.end(cookie)
    return { status: 200, body: { ok: true }, headers: ['Set-Cookie', sessions.toSetCookie(null, request.isSecure)] }
  }

  return [
    { method: 'POST', path: '/_fn/login', access: LOGIN, handle: login },
    { method: 'POST', path: '/_fn/logout', access: LOGIN, query: ['everywhere'], handle: logout },
  ]
}

function toTooMany(waitMs: number): GatewayError {
  const headers = { 'Retry-After': String(Math.max(1, Math.ceil(waitMs / 1000))) }
  return new GatewayError('CONCURRENCY_LIMIT', 'too many failed logins, try again later', { headers })
}

function toGiven(body: JsonObject): Given {
  const unknown = Object.keys(body).find(key => !['username', 'password', 'token'].includes(key))
  if (unknown !== undefined) throw refuse('has a field that is not username, password or token')
  if (body.token !== undefined && body.username === undefined && body.password === undefined) {
    return { token: toText('token', body.token) }
  }
  if (body.token !== undefined || body.username === undefined || body.password === undefined) {
    throw refuse('must have username and password, or token')
  }
  return { username: toText('username', body.username), password: toText('password', body.password) }
}

/** The value itself is in no message: it may be a password. */
function toText(name: string, value: unknown): string {
  if (typeof value === 'string' && value !== '' && value.length <= MAX_CHARS) return value
  throw refuse(`field ${name} must be a text of 1 to ${MAX_CHARS} characters`)
}

function refuse(why: string): GatewayError {
  return new GatewayError('BAD_REQUEST', `body ${why}`)
}
