/**
 * A line in which a few go on in each turn of the event loop, so that ten thousand that come at once hold nobody up. Who is asked
 * for comes first. Owner: §2.16, page dependencies/resolve.
 */

/** Looks at sources that one turn of the event loop has time for, at some 0.1 ms each. */
const PER_TURN = 16

/** @typeParam Who - what stands in the line, once */
export class PacedLine<Who> {
  readonly #urgent = new Map<Who, (who: Who) => void>()
  readonly #waiting = new Map<Who, (who: Who) => void>()
  #isMoving = false

  /** Resolves when it is the turn of `who`, never within the caller's. */
  enter(who: Who): Promise<void> {
    return new Promise(go => this.join(who, () => go()))
  }

  /** The same for whom nobody waits: ten thousand have one `go` in common, where each would have a promise of its own. */
  join(who: Who, go: (who: Who) => void): void {
    this.#waiting.set(who, go)
    if (!this.#isMoving) this.#moveSoon()
  }

  has(who: Who): boolean {
    return this.#waiting.has(who) || this.#urgent.has(who)
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
    let left = PER_TURN
    for (const line of [this.#urgent, this.#waiting]) {
      for (const [who, go] of line) {
        if (left-- <= 0) break
        line.delete(who)
        go(who)
      }
    }
    this.#isMoving = false
    if (this.#urgent.size + this.#waiting.size > 0) this.#moveSoon()
  }
}
