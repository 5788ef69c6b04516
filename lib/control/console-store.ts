/**
 * Sessions, failed logins and the saved state of the console. A single gateway keeps them in memory and below its functions root; the
 * gateways of a fleet share them. Spec: page control/console-store.
 */

import { isUtf8 } from 'node:buffer'
import type { Clock } from '../core/clock.ts'
import {
  LOGIN_FAILURE_MS,
  MAX_LOGIN_ADDRESSES,
  MAX_LOGIN_FAILURES,
  MAX_SESSIONS,
  UI_STORE_BYTES,
} from '../core/limits.ts'
import type { OwnFolder } from '../files/own-folder.ts'
import { toGatewayRefusal } from './function-endpoints.ts'

/** A session as it is kept. */
interface KeptSession {
  /** Rights and name of its user. */
  owner: string
  /** That a gateway with the same credentials began it. */
  proof: string
}

/** The saved state as text; the problem says why there is none, and continues "it ...". */
export interface KeptState {
  text: string | null
  problem: string | null
}

/** Methods of a shared store throw GatewayError RUNTIME_DOWN while it is away. */
export interface ConsoleStore {
  /** Name of the saved state in messages. */
  readonly statePlace: string
  /** @param key - hash of its id */
  beginSession(key: string, session: KeptSession, ttlMs: number): Promise<void>
  /** One for each key; null for one that never began or has ended. */
  findSessions(keys: readonly string[]): Promise<(KeptSession | null)[]>
  endSessions(keys: readonly string[]): Promise<void>
  endSessionsOf(owner: string): Promise<void>
  /**
   * Counts an attempt as failed before it is checked: of many attempts at once only the allowed number is checked.
   * @returns ms to wait when there were too many; null when the attempt may be made
   */
  beginLogin(network: string): Promise<number | null>
  /** The attempt was right. Earlier failures still count: a client that knows one password must not guess another one freely. */
  succeedLogin(network: string): Promise<void>
  readState(): Promise<KeptState>
  /**
   * @param text - null removes it
   * @param before - as it was read; when it cannot be used it is set aside, because it may be repaired
   * @returns false when it changed since, and then nothing is written
   */
  writeState(text: string | null, before: KeptState & { isUsed: boolean }): Promise<boolean>
}

const FILE = 'state.json'
/** Requests of the history of Try may hold what only the gateway's owner should read. */
const MODE = 0o600

/** Of one gateway: sessions and failed logins end with the process. */
export class OwnConsoleStore implements ConsoleStore {
  readonly statePlace = `.svc/console/${FILE}`
  readonly #clock: Clock
  readonly #folder: OwnFolder
  /** `endsAt`: monotonic ms. */
  readonly #sessions = new Map<string, KeptSession & { endsAt: number }>()
  /** `since`: monotonic ms of the first one. */
  readonly #failures = new Map<string, { count: number; since: number }>()

  /** @param folder - `.svc/console` of the functions root */
  constructor(clock: Clock, folder: OwnFolder) {
    this.#clock = clock
    this.#folder = folder
  }

  async beginSession(key: string, session: KeptSession, ttlMs: number): Promise<void> {
    const now = this.#clock.monotonic()
    // All live equally long, so the first ones end first.
    for (const [other, { endsAt }] of this.#sessions) {
      if (endsAt > now && this.#sessions.size < MAX_SESSIONS) break
      this.#sessions.delete(other)
    }
    this.#sessions.set(key, { ...session, endsAt: now + ttlMs })
  }

  async findSessions(keys: readonly string[]): Promise<(KeptSession | null)[]> {
    const now = this.#clock.monotonic()
    return keys.map(key => {
      const kept = this.#sessions.get(key)
      return kept !== undefined && kept.endsAt > now ? { owner: kept.owner, proof: kept.proof } : null
    })
  }

  async endSessions(keys: readonly string[]): Promise<void> {
    for (const key of keys) this.#sessions.delete(key)
  }

  async endSessionsOf(owner: string): Promise<void> {
    for (const [key, session] of this.#sessions) if (session.owner === owner) this.#sessions.delete(key)
  }

  async beginLogin(network: string): Promise<number | null> {
    const now = this.#clock.monotonic()
    const known = this.#failures.get(network)
    if (known !== undefined && now - known.since < LOGIN_FAILURE_MS) {
      if (known.count >= MAX_LOGIN_FAILURES) return LOGIN_FAILURE_MS - (now - known.since)
      known.count += 1
      return null
    }
    this.#failures.delete(network)
    this.#failures.set(network, { count: 1, since: now })
    const [oldest] = this.#failures.keys()
    if (this.#failures.size > MAX_LOGIN_ADDRESSES) this.#failures.delete(oldest!)
    return null
  }

  async succeedLogin(network: string): Promise<void> {
    const known = this.#failures.get(network)
    if (known === undefined) return
    known.count -= 1
    if (known.count === 0) this.#failures.delete(network)
  }

  /** Never throws: a file that cannot be used counts as missing. */
  async readState(): Promise<KeptState> {
    return this.#readState()
  }

  /** @throws GatewayError FORBIDDEN with the reason when the file cannot be written */
  async writeState(text: string | null, { text: before, isUsed }: KeptState & { isUsed: boolean }): Promise<boolean> {
    if (this.#readState().text !== before) return false
    try {
      if (!isUsed) this.#folder.rename(FILE, `${FILE}.unused`)
      if (text === null) this.#folder.remove(FILE)
      else this.#folder.write(FILE, text, MODE)
    } catch (error) {
      throw toGatewayRefusal(error)
    }
    return true
  }

  #readState(): KeptState {
    try {
      const size = this.#folder.statFile(FILE)?.size ?? null
      if (size === null) return { text: null, problem: null }
      if (size > UI_STORE_BYTES) return { text: null, problem: `has ${size} bytes, at most ${UI_STORE_BYTES} are read` }
      const bytes = this.#folder.read(FILE)
      if (bytes !== null && !isUtf8(bytes)) return { text: null, problem: 'is not UTF-8' }
      return { text: bytes?.toString('utf8') ?? null, problem: null }
    } catch (error) {
      return { text: null, problem: `cannot be read: ${(error as Error).message}` }
    }
  }
}
