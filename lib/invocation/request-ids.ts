/** Ids of requests: taken from the client when well-formed, else made here. Owner: §2.5. */

const REQUEST_ID = /^[\w.-]{1,128}$/

/** True for an id that may stand in headers, logs and JSON as it is. */
export function isRequestId(text: string): boolean {
  return REQUEST_ID.test(text)
}

/** Makes ids that no other process or gateway makes: a random prefix and a count. */
export class RequestIds {
  readonly #prefix: string
  #count = 0

  /** @param prefix - random text of id characters, at least 48 bits */
  constructor(prefix: string) {
    this.#prefix = `${prefix}-`
  }

  next(): string {
    this.#count += 1
    return this.#prefix + this.#count.toString(36)
  }

  /** The client's id when it is one, else a new one. */
  take(offered: string | null): string {
    return offered !== null && REQUEST_ID.test(offered) ? offered : this.next()
  }
}
