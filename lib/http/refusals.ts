/**
 * Refusals of routes: prepared once, and sent several at a time. An error for each would be made with its stack, and a
 * body that nobody wants would be read before it is thrown away. Owner: §4.1.
 */

import { GatewayError, toErrorBody } from '../core/errors.ts'
import type { RouteRefusal } from '../router/route-table.ts'
import { type PreparedHead, toPreparedHead } from './constant-answer.ts'
import { DISCARD_BODY_BYTES, type Exchange } from './exchange.ts'

/** Different refusals that are remembered; there are as many as lists of methods. */
const KNOWN_REFUSALS = 256
/** Refusals that leave together. */
const REFUSALS_AT_ONCE = 8

interface Refusal {
  readonly error: GatewayError
  readonly head: PreparedHead
  readonly body: Buffer
}

export class Refusals {
  readonly #known = new Map<string, Refusal>()
  #due: { exchange: Exchange; refusal: Refusal }[] = []

  /** Answers at once, or at the end of the poll phase, when a short body has come and was dropped. */
  send(exchange: Exchange, found: RouteRefusal): void {
    const refusal = this.#of(found)
    const { hasBody, declaredLength, req } = exchange
    const isShort = hasBody && declaredLength >= 0 && declaredLength <= DISCARD_BODY_BYTES
    if (hasBody && (!isShort || exchange.expectsContinue || req.leaveBody === undefined)) {
      exchange.responder.sendError(exchange, refusal.error)
      return
    }
    if (hasBody) req.leaveBody!()
    this.#due.push({ exchange, refusal })
    if (this.#due.length === 1) setImmediate(this.#sendDue)
    // What its body needs has not been parsed yet.
    else if (this.#due.length >= REFUSALS_AT_ONCE && !hasBody) this.#sendDue()
  }

  readonly #sendDue = (): void => {
    const due = this.#due
    this.#due = []
    for (const { exchange, refusal } of due) {
      if (exchange.ended) continue
      const { req, responder } = exchange
      const { error, head, body } = refusal
      exchange.error = error
      if (responder.sendPrepared(exchange, head, body)) continue
      // Whoever lets the rest of the body pass waits for its end.
      if (!req.complete) req.awaitEnd?.()
      responder.sendError(exchange, error)
    }
  }

  #of({ code, message, allow }: RouteRefusal): Refusal {
    const key = `${code} ${allow ?? ''} ${message}`
    let refusal = this.#known.get(key)
    if (refusal === undefined) {
      const error = new GatewayError(code, message, allow === null ? {} : { headers: { Allow: allow } })
      const headers = ['Content-Type', 'application/json', ...(allow === null ? [] : ['Allow', allow])]
      refusal = { error, head: toPreparedHead(error.status, headers), body: Buffer.from(toErrorBody(message)) }
      if (this.#known.size >= KNOWN_REFUSALS) this.#known.clear()
      this.#known.set(key, refusal)
    }
    return refusal
  }
}
