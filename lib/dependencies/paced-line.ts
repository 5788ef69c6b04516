/**
 * A line in which a few go on in each turn of the event loop, so that ten thousand that come at once hold nobody up. Who is asked
 * for comes first. Owner: §2.16, page dependencies/resolve.
 */

/** Looks at sources that one turn of the event loop has time for, at some 0.1 ms each. */
const PER_TURN = 16

/** @typeParam Who - what stands in the line, once */
export class PacedLine<Who> {
  readonly #urgent = new Map<Who, () => void>()
  readonly #waiting = new Map<Who, () => void>()
  #isMoving = false

  /** Resolves when it is the turn of `who`, never within the caller's. */
  enter(who: Who): Promise<void> {
    return new Promise(go => {
      this.#waiting.set(who, go)
      if (!this.#isMoving) this.#moveSoon()
    })
  }

  /** Puts one that waits before all that were not asked for. */
  putFirst(who: Who): void {
    const go = this.#waiting.get(who)
    if (go === undefined) return
    this.#waiting.delete(who)
    this.#urgent.set(who, go)
  }

  #moveSoon(): void {
    this.#isMoving = true
    setImmediate(() => this.#move())
  }

  #move(): void {
    for (let count = 0; count < PER_TURN; count++) {
      const line = this.#urgent.size > 0 ? this.#urgent : this.#waiting
      const [next] = line
      if (next === undefined) break
      line.delete(next[0])
      next[1]()
    }
    this.#isMoving = false
    if (this.#urgent.size + this.#waiting.size > 0) this.#moveSoon()
  }
}
