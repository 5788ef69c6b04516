/** Who is logged in: random ids in memory, each with a time to live. Owner: page control/session. */

import { createHash, randomBytes } from 'node:crypto'
import type { Clock } from '../core/clock.ts'
import { SESSION_COOKIE } from '../invocation/forwarded-headers.ts'

/** Sessions at once; of more, the oldest ends. */
export const MAX_SESSIONS = 1000
/** Cookies of one name that are looked at: a neighbour domain may have put one before ours. */
const MAX_COOKIES = 8
const ID = /^[\w-]{43}$/

/** What somebody who logged in may do: `admin` showed the admin token, `user` a password. */
type SessionRights = 'admin' | 'user'

export interface Session {
  user: string
  rights: SessionRights
}

interface Kept extends Session {
  /** Monotonic ms. */
  endsAt: number
}

export class Sessions {
  readonly #clock: Clock
  readonly #ttlMs: number
  /** By the hash of the id: what is compared tells nothing about an id that exists. */
  readonly #kept = new Map<string, Kept>()

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

  /** Ends the sessions of a `Cookie` header, and all others of who began them: in every browser. */
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
