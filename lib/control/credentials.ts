/** Whether a name and a password, or a token, are the right ones. Owner: page control/session. */

import { createHash, pbkdf2, type ScryptOptions, scrypt, timingSafeEqual } from 'node:crypto'
import { promisify } from 'node:util'
import { MAX_SCRYPT_BYTES, type PasswordHash, parsePasswordHash } from '../config/password-hash.ts'
import type { Settings } from '../config/settings.ts'
import { GatewayError } from '../core/errors.ts'
import { isAdminToken } from './access.ts'
import type { Session } from './sessions.ts'

/** Passwords that are checked or wait to be: each costs memory and a thread for some 50 ms. */
export const MAX_PASSWORD_CHECKS = 16

type LoginSettings = Pick<Settings, 'adminToken' | 'consoleLoginUsername' | 'consoleLoginPasswordHash'>

/** What somebody gives to log in. */
export type Given = { username: string; password: string } | { token: string }

const deriveScrypt = promisify<string, Buffer, number, ScryptOptions, Buffer>(scrypt)
const derivePbkdf2 = promisify(pbkdf2)

export class Credentials {
  readonly #settings: LoginSettings
  readonly #hash: PasswordHash | null
  /** The check that was asked for last; passwords are checked one after the other. */
  #last: Promise<unknown> = Promise.resolve()
  #checks = 0

  constructor(settings: LoginSettings) {
    this.#settings = settings
    const { consoleLoginPasswordHash: text } = settings
    this.#hash = text === null ? null : parsePasswordHash(text)
  }

  /**
   * The session somebody may begin; null for wrong credentials, in a time that does not tell which of them is wrong.
   * @throws GatewayError CONCURRENCY_LIMIT when too many passwords wait
   */
  async check(given: Given): Promise<Session | null> {
    if ('token' in given) {
      return isAdminToken(given.token, this.#settings.adminToken) ? { user: 'admin', rights: 'admin' } : null
    }
    const isPassword = this.#hash !== null && (await this.#inTurn(() => isRight(given.password, this.#hash!)))
    const isUser = isSameText(given.username, this.#settings.consoleLoginUsername)
    return isPassword && isUser ? { user: given.username, rights: 'user' } : null
  }

  async #inTurn(check: () => Promise<boolean>): Promise<boolean> {
    if (this.#checks >= MAX_PASSWORD_CHECKS) {
      throw new GatewayError('CONCURRENCY_LIMIT', 'too many logins at once, try again later')
    }
    this.#checks += 1
    try {
      const turn = this.#last.then(check)
      this.#last = turn.catch(() => null)
      return await turn
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
          // What scrypt itself counts is a little more than its blocks.
          maxmem: 2 * MAX_SCRYPT_BYTES,
        })
      : await derivePbkdf2(password, salt, hash.iterations, digest.length, 'sha256')
  return timingSafeEqual(derived, digest)
}

/** Compared as hashes: the time tells neither length nor beginning. */
function isSameText(given: string, wanted: string): boolean {
  const toDigest = (text: string): Buffer => createHash('sha256').update(text).digest()
  return timingSafeEqual(toDigest(given), toDigest(wanted))
}
