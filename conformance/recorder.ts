/** What the checks of one case found in one language, where no test framework is at hand. Owner: page bin/conformance. */

import { isDeepStrictEqual } from 'node:util'
import type { Checks } from './case.ts'

interface Failure {
  name: string
  found: unknown
  wanted: unknown
}

export class Recorder implements Checks {
  readonly failures: Failure[] = []
  /** Parts that the language lacks, with the reason. */
  readonly lacking: string[] = []
  /** Checks that were made. */
  count = 0

  ok(value: unknown, name = 'is so'): void {
    this.#add(Boolean(value), { name, found: value, wanted: true })
  }

  notOk(value: unknown, name = 'is not so'): void {
    this.#add(!value, { name, found: value, wanted: false })
  }

  equal(actual: unknown, wanted: unknown, name = 'is the same'): void {
    this.#add(Object.is(actual, wanted), { name, found: actual, wanted })
  }

  same(actual: unknown, wanted: unknown, name = 'is alike'): void {
    this.#add(isDeepStrictEqual(actual, wanted), { name, found: actual, wanted })
  }

  match(actual: unknown, pattern: unknown, name = 'fits'): void {
    this.#add(fits(actual, pattern), { name, found: actual, wanted: pattern })
  }

  notMatch(actual: unknown, pattern: unknown, name = 'does not fit'): void {
    this.#add(!fits(actual, pattern), { name, found: actual, wanted: pattern })
  }

  pass(name: string, { skip }: { skip: string }): void {
    this.lacking.push(`${name}: ${skip}`)
  }

  /** A case that could not go on. */
  broke(error: unknown): void {
    const { message, code } = error as NodeJS.ErrnoException
    this.#add(false, { name: 'it could be asked', found: message || code || String(error), wanted: 'an answer' })
  }

  #add(isRight: boolean, failure: Failure): void {
    this.count += 1
    if (!isRight) this.failures.push(failure)
  }
}

/** Texts hold the text or fit the pattern; objects and lists have at least what the pattern has; all else is the same. */
function fits(actual: unknown, pattern: unknown): boolean {
  if (pattern instanceof RegExp) return actual !== undefined && actual !== null && pattern.test(String(actual))
  if (typeof pattern === 'string') return typeof actual === 'string' && actual.includes(pattern)
  if (typeof pattern !== 'object' || pattern === null) return Object.is(actual, pattern)
  if (typeof actual !== 'object' || actual === null) return false
  return Object.entries(pattern).every(([key, part]) => fits((actual as Record<string, unknown>)[key], part))
}
