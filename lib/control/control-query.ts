/** The query of a control-plane request: each field read by its rule, everything else 400. Owner: §4.2. */

import { nearest, showText } from '../config/findings.ts'
import { GatewayError } from '../core/errors.ts'
import { decodePercent } from '../core/http-text.ts'

/** Longest value of a field, characters. */
const MAX_VALUE_CHARS = 4096

export class ControlQuery {
  readonly #values: ReadonlyMap<string, string>
  readonly #known: readonly string[]

  private constructor(values: ReadonlyMap<string, string>, known: readonly string[]) {
    this.#values = values
    this.#known = known
  }

  /**
   * @param search - what follows `?`, as the client wrote it
   * @param known - names of the fields; `any` reads nothing
   * @throws GatewayError BAD_REQUEST for a field that is unknown, given twice, or written wrong
   */
  static parse(search: string, known: readonly string[] | 'any'): ControlQuery {
    const values = new Map<string, string>()
    if (known === 'any') return new ControlQuery(values, [])
    for (const pair of search.split('&')) {
      if (pair === '') continue
      const equals = pair.indexOf('=')
      const name = decode(equals === -1 ? pair : pair.slice(0, equals))
      const value = decode(equals === -1 ? '' : pair.slice(equals + 1))
      if (!known.includes(name)) throw toUnknown(name, known)
      if (values.has(name)) throw refuse(name, 'must be given once, got it twice')
      if (value.length > MAX_VALUE_CHARS) throw refuse(name, `must have at most ${MAX_VALUE_CHARS} characters`)
      if (value.includes('\0')) throw refuse(name, 'must be text without NUL characters')
      values.set(name, value)
    }
    return new ControlQuery(values, known)
  }

  /** The value, null when it is not given or empty. */
  text(name: string): string | null {
    if (!this.#known.includes(name)) throw new Error(`the endpoint does not list the query field ${name}`)
    return this.#values.get(name) || null
  }

  /** A value that must be there. */
  required(name: string): string {
    const value = this.text(name)
    if (value === null) throw refuse(name, `is missing: add ?${name}=...`)
    return value
  }

  /** A whole number between two bounds. */
  integer(name: string, { min, max, default: fallback }: { min: number; max: number; default: number }): number {
    const text = this.text(name)
    if (text === null) return fallback
    const value = /^-?\d{1,15}$/.test(text) ? Number(text) : Number.NaN
    if (value >= min && value <= max) return value
    throw refuse(name, `must be an integer from ${min} to ${max}, got "${showText(text)}"`)
  }

  /** `1`, `true`, `yes`, `on` or the bare name; `0`, `false`, `no`, `off`; false when it is not given. */
  flag(name: string): boolean {
    const text = this.text(name)
    if (text === null) return this.#values.has(name)
    const word = text.toLowerCase()
    if (['1', 'true', 'yes', 'on'].includes(word)) return true
    if (['0', 'false', 'no', 'off'].includes(word)) return false
    throw refuse(name, `must be 1 or 0, got "${showText(text)}"`)
  }

  /** One of some words. */
  oneOf<Word extends string>(name: string, words: readonly Word[], fallback: Word): Word {
    const text = this.text(name)
    if (text === null) return fallback
    const found = words.find(word => word === text)
    if (found !== undefined) return found
    throw refuse(name, `must be one of ${words.join(', ')}, got "${showText(text)}"`)
  }
}

function decode(text: string): string {
  const decoded = decodePercent(text.replaceAll('+', ' '))
  if (decoded === null) throw new GatewayError('BAD_REQUEST', `query has a broken percent escape: "${showText(text)}"`)
  return decoded
}

function toUnknown(name: string, known: readonly string[]): GatewayError {
  const near = nearest(name, known)
  const fields = known.length === 0 ? 'this endpoint has none' : `it has ${known.join(', ')}`
  const hint = near === null ? fields : `did you mean ${near}?`
  return new GatewayError('BAD_REQUEST', `query field "${showText(name)}" is not known: ${hint}`)
}

function refuse(name: string, why: string): GatewayError {
  return new GatewayError('BAD_REQUEST', `query field ${name} ${why}`)
}
