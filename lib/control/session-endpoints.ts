/** `POST /_fn/login` and `POST /_fn/logout`. Owner: §4.2, page control/session. */

import { createHash, createHmac, pbkdf2, randomBytes, scrypt, type ScryptOptions, timingSafeEqual } from 'node:crypto'
import { isIPv6 } from 'node:net'
import { promisify } from 'node:util'
import { boolean, hidden, mapped, object, readRequest, reportWrong, string } from '../config/fields.ts'
import type { Settings } from '../config/settings.ts'
import { MAX_SCRYPT_BYTES, parsePasswordHash, type PasswordHash } from '../config/texts.ts'
import { badRequest, GatewayError } from '../core/errors.ts'
import { Semaphore } from '../core/semaphore.ts'
import { SESSION_COOKIE } from '../invocation/forwarded-headers.ts'
import { type AccessState, isAdminToken, type Session } from './access.ts'
import type { ConsoleStore } from './console-store.ts'
import { type ControlContext, type Endpoint, endpoint, json, readHeader, readJson } from './endpoint.ts'

const DISABLED = 'login disabled: it needs FN_UI_ENABLED=1, and FN_ADMIN_TOKEN or FN_CONSOLE_LOGIN_PASSWORD_HASH'
const BODY_BYTES = 16 * 1024
const MAX_CHARS = 1024

export function createSessionEndpoints(
  { settings }: ControlContext,
  access: AccessState,
  sessions: Sessions,
  store: ConsoleStore,
): readonly Endpoint[] {
  const credentials = new Credentials(settings)
  return [
    endpoint('POST /_fn/login', 'login', async request => {
      if (!access.canLogIn) throw new GatewayError('NOT_FOUND', DISABLED)
      const given = toGiven(await readJson(request, BODY_BYTES))
      const network = toNetwork(request.caller.clientAddress)
      const waitMs = await store.beginLogin(network)
      if (waitMs !== null) {
        const headers = { 'Retry-After': String(Math.max(1, Math.ceil(waitMs / 1000))) }
        throw new GatewayError('CONCURRENCY_LIMIT', 'too many failed logins, try again later', { headers })
      }
      const session = await credentials.check(given)
      if (session === null) throw new GatewayError('UNAUTHORIZED', 'invalid credentials')
      await store.succeedLogin(network)
      // An earlier id is not reused: an attacker who planted it would know the session.
      await sessions.end(readHeader(request, 'cookie'))
      const cookie = sessions.toSetCookie(await sessions.begin(session), request.isSecure)
      return json({ ok: true, user: session.user }, 200, ['Set-Cookie', cookie])
    }),
    endpoint(
      'POST /_fn/logout',
      'login',
      async request => {
        const cookie = readHeader(request, 'cookie')
        await (request.query.everywhere === true ? sessions.endEverywhere(cookie) : sessions.end(cookie))
        return json({ ok: true }, 200, ['Set-Cookie', sessions.toSetCookie(null, request.isSecure)])
      },
      { everywhere: boolean() },
    ),
  ]
}

const TEXT_RULE = `a text of 1 to ${MAX_CHARS} characters`
const text = hidden(
  mapped(string({ multiline: true, rule: TEXT_RULE }), (text, at) =>
    text !== '' && text.length <= MAX_CHARS ? text : reportWrong(at, TEXT_RULE, text),
  ),
)
const FIELDS = { username: text, password: text, token: text }
const LOGIN_BODY = object(FIELDS)

/** Messages repeat neither a value nor an unknown key: both may be passwords. */
function toGiven(body: Readonly<Record<string, unknown>>): Given {
  if (Object.keys(body).some(key => !Object.hasOwn(FIELDS, key)))
    throw badRequest('body', 'has a field that is not username, password or token')
  const { username, password, token } = readRequest(LOGIN_BODY, body)
  if (token !== undefined && username === undefined && password === undefined) return { token }
  if (token !== undefined || username === undefined || password === undefined)
    throw badRequest('body', 'must have username and password, or token')
  return { username, password }
}

// Sessions: random ids, each with a time to live.

/** Cookies of one name that are looked at: a neighbour domain may have put one before ours. */
const MAX_COOKIES = 8
const ID = /^[\w-]{43}$/

type SessionSettings = Pick<
  Settings,
  'adminToken' | 'consoleLoginUsername' | 'consoleLoginPasswordHash' | 'consoleSessionTtlSeconds'
>

export class Sessions {
  readonly #store: ConsoleStore
  readonly #settings: SessionSettings
  readonly #ttlMs: number

  constructor(store: ConsoleStore, settings: SessionSettings) {
    this.#store = store
    this.#settings = settings
    this.#ttlMs = settings.consoleSessionTtlSeconds * 1000
  }

  /** Begins a session. @returns its id: 256 random bits */
  async begin(session: Session): Promise<string> {
    const id = randomBytes(32).toString('base64url')
    const proof = this.#prove(id, session)
    if (proof === null) throw new GatewayError('UNAUTHORIZED', 'invalid credentials')
    await this.#store.beginSession(toKey(id), { owner: toOwner(session), proof }, this.#ttlMs)
    return id
  }

  /** The session of a `Cookie` header; null when none of its cookies has one. @throws GatewayError while a shared store is away */
  async find(cookie: string | null): Promise<Session | null> {
    const ids = toIds(cookie)
    if (ids.length === 0) return null
    for (const [i, kept] of (await this.#store.findSessions(ids.map(toKey))).entries()) {
      const session = kept === null ? null : toSession(kept.owner)
      if (session === null) continue
      const proof = this.#prove(ids[i]!, session)
      if (proof !== null && isSameText(kept!.proof, proof)) return session
    }
    return null
  }

  /**
   * Ties a session to the credentials that began it: it ends when they change, and who can write to the store but does not know them
   * cannot make one. The id is not in the store, so a proof does not help to guess a token either.
   * @returns null where this login is not configured
   */
  #prove(id: string, session: Session): string | null {
    const { adminToken, consoleLoginUsername, consoleLoginPasswordHash } = this.#settings
    const secret = session.rights === 'admin' ? adminToken : consoleLoginPasswordHash
    if (secret === null || secret === '') return null
    const user = session.rights === 'admin' ? '' : consoleLoginUsername
    return createHmac('sha256', secret)
      .update(JSON.stringify([id, user, toOwner(session)]))
      .digest('base64url')
  }

  /** Ends every session of a `Cookie` header. */
  async end(cookie: string | null): Promise<void> {
    const ids = toIds(cookie)
    if (ids.length > 0) await this.#store.endSessions(ids.map(toKey))
  }

  /** Ends the sessions of a `Cookie` header, and all others of the same user: in every browser. */
  async endEverywhere(cookie: string | null): Promise<void> {
    const session = await this.find(cookie)
    await this.end(cookie)
    if (session !== null) await this.#store.endSessionsOf(toOwner(session))
  }

  /** `Set-Cookie` that gives the browser an id; null takes it away. */
  toSetCookie(id: string | null, isSecure: boolean): string {
    const age = id === null ? 0 : Math.floor(this.#ttlMs / 1000)
    const secure = isSecure ? '; Secure' : ''
    return `${SESSION_COOKIE}=${id ?? ''}; Path=/; HttpOnly; SameSite=Lax; Max-Age=${age}${secure}`
  }
}

function toOwner({ rights, user }: Session): string {
  return `${rights} ${user}`
}

function toSession(owner: string): Session | null {
  const [, rights, user] = /^(admin|user) (.*)$/s.exec(owner) ?? []
  return user === undefined ? null : { user, rights: rights as Session['rights'] }
}

function toIds(cookie: string | null): string[] {
  const ids: string[] = []
  for (const pair of cookie?.split(';') ?? []) {
    const [name, value] = pair.trim().split('=', 2)
    if (name === SESSION_COOKIE && value !== undefined && ID.test(value) && ids.length < MAX_COOKIES) ids.push(value)
  }
  return ids
}

function toKey(id: string): string {
  return createHash('sha256').update(id).digest('base64')
}

// Whether a name and a password, or a token, are the right ones.

/** Passwords that are checked or wait to be: each costs memory and a thread for some 50 ms. */
export const MAX_PASSWORD_CHECKS = 16

/** Credentials of a login. */
export type Given = { username: string; password: string } | { token: string }

const deriveScrypt = promisify<string, Buffer, number, ScryptOptions, Buffer>(scrypt)
const derivePbkdf2 = promisify(pbkdf2)

export class Credentials {
  readonly #settings: ConstructorParameters<typeof Credentials>[0]
  readonly #hash: PasswordHash | null
  /** Passwords are checked one after the other. */
  readonly #turn = new Semaphore(1)
  #checks = 0

  constructor(settings: Pick<Settings, 'adminToken' | 'consoleLoginUsername' | 'consoleLoginPasswordHash'>) {
    this.#settings = settings
    const { consoleLoginPasswordHash: text } = settings
    this.#hash = text === null ? null : parsePasswordHash(text)
  }

  /**
   * The session that the credentials allow; null for wrong ones, in a time that does not reveal which of them is wrong.
   * @throws GatewayError CONCURRENCY_LIMIT when too many passwords wait
   */
  async check(given: Given): Promise<Session | null> {
    if ('token' in given)
      return isAdminToken(given.token, this.#settings.adminToken) ? { user: 'admin', rights: 'admin' } : null
    const hash = this.#hash
    const isPassword = hash !== null && (await this.#inTurn(() => isRight(given.password, hash)))
    const isUser = isSameText(given.username, this.#settings.consoleLoginUsername)
    return isPassword && isUser ? { user: given.username, rights: 'user' } : null
  }

  async #inTurn(check: () => Promise<boolean>): Promise<boolean> {
    if (this.#checks >= MAX_PASSWORD_CHECKS)
      throw new GatewayError('CONCURRENCY_LIMIT', 'too many logins at once, try again later')
    this.#checks += 1
    try {
      return await this.#turn.run(check)
    } finally {
      this.#checks -= 1
    }
  }
}

async function isRight(password: string, hash: PasswordHash): Promise<boolean> {
  const { salt, digest } = hash
  const derived =
    hash.kind === 'scrypt'
      ? await deriveScrypt(password, salt, digest.length, {
          N: hash.cost,
          r: hash.blockSize,
          p: hash.parallel,
          // The count of scrypt itself is a little more than its blocks.
          maxmem: 2 * MAX_SCRYPT_BYTES,
        })
      : await derivePbkdf2(password, salt, hash.iterations, digest.length, 'sha256')
  return timingSafeEqual(derived, digest)
}

/** Compared as hashes: the time reveals neither length nor beginning. */
function isSameText(given: string, wanted: string): boolean {
  const toDigest = (text: string): Buffer => createHash('sha256').update(text).digest()
  return timingSafeEqual(toDigest(given), toDigest(wanted))
}

/** One client has a whole /64 of IPv6 addresses. */
export function toNetwork(address: string): string {
  if (!isIPv6(address)) return address
  const [head = '', tail] = address.split('::')
  const left = head === '' ? [] : head.split(':')
  const right = tail === undefined || tail === '' ? [] : tail.split(':')
  const missing = tail === undefined ? 0 : Math.max(0, 8 - left.length - right.length)
  return [...left, ...Array<string>(missing).fill('0'), ...right].slice(0, 4).join(':')
}
