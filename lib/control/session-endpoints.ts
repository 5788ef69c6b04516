/** `POST /_fn/login` and `POST /_fn/logout`. Owner: §4.2, page control/session. */

import { createHash, pbkdf2, randomBytes, scrypt, type ScryptOptions, timingSafeEqual } from 'node:crypto'
import { isIPv6 } from 'node:net'
import { promisify } from 'node:util'
import { boolean, hidden, mapped, object, readRequest, reportWrong, string } from '../config/fields.ts'
import type { Settings } from '../config/settings.ts'
import { MAX_SCRYPT_BYTES, parsePasswordHash, type PasswordHash } from '../config/texts.ts'
import type { Clock } from '../core/clock.ts'
import { badRequest, GatewayError } from '../core/errors.ts'
import { Semaphore } from '../core/semaphore.ts'
import { SESSION_COOKIE } from '../invocation/forwarded-headers.ts'
import { type AccessState, isAdminToken, type Session } from './access.ts'
import { type ControlContext, type Endpoint, endpoint, json, readHeader, readJson } from './endpoint.ts'

const DISABLED = 'login disabled: it needs FN_UI_ENABLED=1, and FN_ADMIN_TOKEN or FN_CONSOLE_LOGIN_PASSWORD_HASH'
const BODY_BYTES = 16 * 1024
const MAX_CHARS = 1024

export function createSessionEndpoints(
  { clock, settings }: ControlContext,
  access: AccessState,
  sessions: Sessions,
): readonly Endpoint[] {
  const credentials = new Credentials(settings)
  const limit = new LoginLimit(clock)
  return [
    endpoint('POST /_fn/login', 'login', async request => {
      if (!access.canLogIn) throw new GatewayError('NOT_FOUND', DISABLED)
      const given = toGiven(await readJson(request, BODY_BYTES))
      const address = request.caller.clientAddress
      const waitMs = limit.begin(address)
      if (waitMs !== null) {
        const headers = { 'Retry-After': String(Math.max(1, Math.ceil(waitMs / 1000))) }
        throw new GatewayError('CONCURRENCY_LIMIT', 'too many failed logins, try again later', { headers })
      }
      const session = await credentials.check(given)
      if (session === null) throw new GatewayError('UNAUTHORIZED', 'invalid credentials')
      limit.succeed(address)
      // An earlier id is not reused: an attacker who planted it would know the session.
      sessions.end(readHeader(request, 'cookie'))
      const cookie = sessions.toSetCookie(sessions.begin(session), request.isSecure)
      return json({ ok: true, user: session.user }, 200, ['Set-Cookie', cookie])
    }),
    endpoint(
      'POST /_fn/logout',
      'login',
      request => {
        const cookie = readHeader(request, 'cookie')
        if (request.query.everywhere === true) sessions.endEverywhere(cookie)
        else sessions.end(cookie)
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

// Sessions: random ids in memory, each with a time to live.

/** Sessions at once; of more, the oldest ends. */
export const MAX_SESSIONS = 1000
/** Cookies of one name that are looked at: a neighbour domain may have put one before ours. */
const MAX_COOKIES = 8
const ID = /^[\w-]{43}$/

export class Sessions {
  readonly #clock: Clock
  readonly #ttlMs: number
  /** By the hash of the id: the time of a lookup reveals nothing about existing ids. `endsAt`: monotonic ms. */
  readonly #kept = new Map<string, Session & { endsAt: number }>()

  constructor({ clock, ttlMs }: { clock: Clock; ttlMs: number }) {
    this.#clock = clock
    this.#ttlMs = ttlMs
  }

  /** Begins a session. @returns its id: 256 random bits */
  begin(session: Session): string {
    const id = randomBytes(32).toString('base64url')
    this.#dropEnded()
    this.#kept.set(toKey(id), { ...session, endsAt: this.#clock.monotonic() + this.#ttlMs })
    return id
  }

  /** The session of a `Cookie` header; null when none of its cookies has one. */
  find(cookie: string | null): Session | null {
    for (const id of toIds(cookie)) {
      const kept = this.#kept.get(toKey(id))
      if (kept !== undefined && kept.endsAt > this.#clock.monotonic()) return { user: kept.user, rights: kept.rights }
    }
    return null
  }

  /** Ends every session of a `Cookie` header. */
  end(cookie: string | null): void {
    for (const id of toIds(cookie)) this.#kept.delete(toKey(id))
  }

  /** Ends the sessions of a `Cookie` header, and all others of the same user: in every browser. */
  endEverywhere(cookie: string | null): void {
    const session = this.find(cookie)
    this.end(cookie)
    if (session === null) return
    for (const [key, { user, rights }] of this.#kept)
      if (user === session.user && rights === session.rights) this.#kept.delete(key)
  }

  /** `Set-Cookie` that gives the browser an id; null takes it away. */
  toSetCookie(id: string | null, isSecure: boolean): string {
    const age = id === null ? 0 : Math.floor(this.#ttlMs / 1000)
    const secure = isSecure ? '; Secure' : ''
    return `${SESSION_COOKIE}=${id ?? ''}; Path=/; HttpOnly; SameSite=Lax; Max-Age=${age}${secure}`
  }

  /** All live equally long, so the first ones end first. */
  #dropEnded(): void {
    for (const [key, { endsAt }] of this.#kept) {
      if (endsAt > this.#clock.monotonic() && this.#kept.size < MAX_SESSIONS) return
      this.#kept.delete(key)
    }
  }
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

// How often an address may fail to log in.

/** Failures after which an address has to wait, and ms that a failure counts. */
export const MAX_LOGIN_FAILURES = 5
export const LOGIN_FAILURE_MS = 300_000
/** Addresses that are remembered; of more, the one that began first is forgotten. */
export const MAX_LOGIN_ADDRESSES = 10_000

export class LoginLimit {
  readonly #clock: Clock
  /** `since`: monotonic ms of the first one. */
  readonly #failures = new Map<string, { count: number; since: number }>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /**
   * Counts an attempt as failed before it is checked: of many attempts at once only the allowed number is checked.
   * @returns ms to wait when there were too many; null when the try may be made
   */
  begin(address: string): number | null {
    const key = toNetwork(address)
    const now = this.#clock.monotonic()
    const known = this.#failures.get(key)
    if (known !== undefined && now - known.since < LOGIN_FAILURE_MS) {
      if (known.count >= MAX_LOGIN_FAILURES) return LOGIN_FAILURE_MS - (now - known.since)
      known.count += 1
      return null
    }
    this.#failures.delete(key)
    this.#failures.set(key, { count: 1, since: now })
    const [oldest] = this.#failures.keys()
    if (this.#failures.size > MAX_LOGIN_ADDRESSES) this.#failures.delete(oldest!)
    return null
  }

  /** The attempt was right. Earlier failures still count: a client that knows one password must not guess another one freely. */
  succeed(address: string): void {
    const key = toNetwork(address)
    const known = this.#failures.get(key)
    if (known === undefined) return
    known.count -= 1
    if (known.count === 0) this.#failures.delete(key)
  }
}

/** One client has a whole /64 of IPv6 addresses. */
function toNetwork(address: string): string {
  if (!isIPv6(address)) return address
  const [head = '', tail] = address.split('::')
  const left = head === '' ? [] : head.split(':')
  const right = tail === undefined || tail === '' ? [] : tail.split(':')
  const missing = tail === undefined ? 0 : Math.max(0, 8 - left.length - right.length)
  return [...left, ...Array<string>(missing).fill('0'), ...right].slice(0, 4).join(':')
}
