/** Secret values of a function, taken out of what it prints and throws. Owner: page control/secrets. */

import type { EnvValue, FunctionVersion } from '../core/catalog.ts'
import { type ErrorDetail, GatewayError } from '../core/errors.ts'
import { HIDDEN } from '../core/text.ts'

/** Shorter values are no secrets that anybody could keep, and stand in every other line by chance. */
export const MIN_SECRET_CHARS = 8

type Env = Readonly<Record<string, EnvValue>>
type WithEnv = Pick<FunctionVersion, 'env'>

export class SecretMask {
  /** What is looked for, longest first; by the environment, which a reload that changes nothing keeps. */
  readonly #texts = new WeakMap<Env, readonly string[]>()
  /** An error that several calls waited for stays one error. */
  readonly #errors = new WeakMap<GatewayError, GatewayError>()

  /** Text of a function without its secrets. One that is printed in pieces is not seen. */
  hide({ env }: WithEnv, text: string): string {
    let shown = text
    for (const secret of this.#textsOf(env)) if (shown.includes(secret)) shown = shown.replaceAll(secret, HIDDEN)
    return shown
  }

  /** An error without secrets; the same one when it has none. */
  hideIn(fn: WithEnv, error: GatewayError): GatewayError {
    if (this.#textsOf(fn.env).length === 0) return error
    const known = this.#errors.get(error)
    if (known !== undefined) return known
    const { code, status, headers } = error
    const message = this.hide(fn, error.message)
    const detail = error.detail && this.#hideInDetail(fn, error.detail)
    if (message === error.message && detail === error.detail) return error
    // Its cause may say the same again.
    const hidden = new GatewayError(code, message, { status, ...(headers && { headers }), ...(detail && { detail }) })
    this.#errors.set(error, hidden)
    return hidden
  }

  #hideInDetail(fn: WithEnv, detail: ErrorDetail): ErrorDetail {
    const { stack, hint } = detail
    const hidden = {
      ...detail,
      ...(stack !== undefined && { stack: this.hide(fn, stack) }),
      ...(hint !== undefined && { hint: this.hide(fn, hint) }),
    }
    return hidden.stack === stack && hidden.hint === hint ? detail : hidden
  }

  #textsOf(env: Env): readonly string[] {
    const known = this.#texts.get(env)
    if (known !== undefined) return known
    const values = Object.values(env).flatMap(({ value, isSecret }) => (isSecret ? [value] : []))
    // A key in several lines is printed line by line; JSON and URLs write some characters in another way.
    const texts = values
      .flatMap(value => [value, ...value.split(/\r?\n/)])
      .flatMap(value => [value, JSON.stringify(value).slice(1, -1), encodeURIComponent(Buffer.from(value).toString())])
      .filter(text => text.trim().length >= MIN_SECRET_CHARS)
    const found = [...new Set(texts)].sort((a, b) => b.length - a.length)
    this.#texts.set(env, found)
    return found
  }
}
