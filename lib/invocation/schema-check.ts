/** Where calls meet the schemas of their functions, whatever door they came through. Owner: page validation/request-schema. */

import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError } from '../core/errors.ts'
import type { Difference } from '../validation/schema-compiler.ts'
import type { RequestSchema, RequestTexts } from '../validation/request-schema.ts'
import type { ReplyHead } from './response.ts'

/** Bytes of an answer that is looked at. */
const MAX_ANSWER_BYTES = 1024 * 1024
/** Differences that are told of one function until it changes. */
const MAX_TOLD = 20

interface SchemaChecks {
  /** An error answers every call of a function that asks for a check which cannot be made. */
  checkOf(fn: FunctionVersion): RequestSchema | GatewayError
}

/** Told of an answer that differs from its schema. */
export type DifferenceListener = (fn: FunctionVersion, method: string, status: number, difference: Difference) => void

export class SchemaGate {
  readonly #checks: SchemaChecks
  /** Null where answers are not looked at: in production. */
  readonly #onDifference: DifferenceListener | null
  readonly #told = new WeakMap<FunctionVersion, Set<string>>()

  constructor(checks: SchemaChecks, onDifference: DifferenceListener | null) {
    this.#checks = checks
    this.#onDifference = onDifference
  }

  /** @returns the refusal of a request whose parameters are wrong, or null */
  checkTexts(fn: FunctionVersion, texts: RequestTexts): GatewayError | null {
    const schema = this.#checks.checkOf(fn)
    return schema instanceof GatewayError ? schema : schema.checkTexts(texts)
  }

  /** @returns the refusal of a request whose body is wrong, or null */
  checkBody(fn: FunctionVersion, method: string, contentType: string | null, body: Buffer | null): GatewayError | null {
    const schema = this.#checks.checkOf(fn)
    return schema instanceof GatewayError ? schema : schema.checkBody(method, contentType, body)
  }

  /** Tells how an answer differs, each difference once. */
  look(fn: FunctionVersion, method: string, { status, headers }: ReplyHead, body: Buffer): void {
    if (this.#onDifference === null || body.length > MAX_ANSWER_BYTES || method === 'HEAD') return
    const schema = this.#checks.checkOf(fn)
    if (schema instanceof GatewayError) return
    const difference = schema.checkResponse(method, status, typeOf(headers), body)
    if (difference === null) return
    const told = this.#told.get(fn) ?? new Set()
    this.#told.set(fn, told)
    const key = `${method} ${status} ${difference.name}`
    if (told.has(key) || told.size >= MAX_TOLD) return
    told.add(key)
    this.#onDifference(fn, method, status, difference)
  }
}

function typeOf(headers: readonly string[]): string | null {
  for (let i = 0; i < headers.length; i += 2) if (headers[i]!.toLowerCase() === 'content-type') return headers[i + 1]!
  return null
}
