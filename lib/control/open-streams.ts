/** Answers of the control plane that go on until somebody ends them. Owner: §4.2. */

/** Open at once; with one more the oldest ends, because its reader may be long gone without a word. */
const MAX_OPEN_STREAMS = 64

export class OpenStreams {
  readonly #ends = new Set<() => void>()
  #isClosed = false

  /**
   * @param end - ends the answer; called at most once, and at once when the gateway is closing
   * @returns a function that says that it has ended
   */
  add(end: () => void): () => void {
    if (this.#isClosed) {
      end()
      return () => {}
    }
    const entry = (): void => end()
    this.#ends.add(entry)
    if (this.#ends.size > MAX_OPEN_STREAMS) {
      const [oldest] = this.#ends
      this.#ends.delete(oldest!)
      oldest!()
    }
    return () => this.#ends.delete(entry)
  }

  /** Ends all: a stop does not wait for readers who would stay for ever. */
  close(): void {
    this.#isClosed = true
    for (const end of [...this.#ends]) end()
    this.#ends.clear()
  }
}
