/** What the console keeps in the gateway: a JSON object in `.svc/console/state.json`. Owner: page control/ui-state. */

import { showValue } from '../config/findings.ts'
import { parseJsonText } from '../config/json-text.ts'
import { GatewayError } from '../core/errors.ts'
import { isObject } from '../core/json.ts'
import type { OwnFolder } from '../files/own-folder.ts'
import { toGatewayRefusal } from './source-files.ts'

/** Bytes of the object as JSON. */
export const UI_STORE_BYTES = 256 * 1024
const FILE = 'state.json'
/** Requests of the history of Try may hold what only the gateway's owner should read. */
const MODE = 0o600

type UiValues = Readonly<Record<string, unknown>>

interface StoredValues {
  values: UiValues
  /** Why what is in the file is not used; null when it is. */
  problem: string | null
}

export class UiStore {
  readonly #folder: OwnFolder

  /** @param folder - `.svc/console` of the functions root */
  constructor(folder: OwnFolder) {
    this.#folder = folder
  }

  /** Never throws: a file that cannot be used is as none, and the problem is told. */
  read(): StoredValues {
    try {
      const size = this.#folder.statFile(FILE)?.size ?? null
      if (size === null) return { values: {}, problem: null }
      if (size > UI_STORE_BYTES) return toUnused(`has ${size} bytes, at most ${UI_STORE_BYTES} are read`)
      const parsed = parseJsonText(this.#folder.read(FILE) ?? Buffer.from('{}'), UI_STORE_BYTES)
      if (!parsed.ok) return toUnused(`is not JSON: ${parsed.reason}`)
      return isObject(parsed.value) ? { values: parsed.value, problem: null } : toUnused('holds no object')
    } catch (error) {
      return toUnused(`cannot be read: ${(error as Error).message}`)
    }
  }

  /**
   * What the values would be after a change; nothing is written.
   * @param given - null for none at all
   * @param isPart - puts the given members over those that are there; null takes one away
   * @throws GatewayError BAD_REQUEST, BODY_TOO_LARGE
   */
  preview(given: unknown, isPart: boolean): UiValues {
    if (given !== null && !isObject(given))
      throw new GatewayError('BAD_REQUEST', `body field store must be an object, got ${showValue(given)}`)
    const values = isPart && given !== null ? merge(this.read().values, given) : (given ?? {})
    const bytes = Buffer.byteLength(JSON.stringify(values))
    if (bytes <= UI_STORE_BYTES) return values
    const text = `body field store must be at most ${UI_STORE_BYTES} bytes as JSON, would be ${bytes}`
    throw new GatewayError('BODY_TOO_LARGE', text)
  }

  /** @throws GatewayError FORBIDDEN with the reason when the file cannot be written */
  write(values: UiValues): void {
    try {
      // A file that somebody can still mend is not lost.
      if (this.read().problem !== null) this.#folder.rename(FILE, `${FILE}.unused`)
      if (Object.keys(values).length === 0) this.#folder.remove(FILE)
      else this.#folder.write(FILE, JSON.stringify(values), MODE)
    } catch (error) {
      throw toGatewayRefusal(error)
    }
  }
}

function merge(values: UiValues, changes: UiValues): UiValues {
  const isTaken = (name: string): boolean => Object.hasOwn(changes, name) && changes[name] === null
  return Object.fromEntries(Object.entries({ ...values, ...changes }).filter(([name]) => !isTaken(name)))
}

function toUnused(why: string): StoredValues {
  return { values: {}, problem: `.svc/console/${FILE} is not used: it ${why}` }
}
