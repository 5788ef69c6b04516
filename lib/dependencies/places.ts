/** So many may work at once; the others wait in line. Owner: §2.16, page dependencies/resolve. */

/** @typeParam Who - what stands in the line */
export class Places<Who> {
  #free: number
  /** First in line first. */
  #waiting: { who: Who; go: () => void }[] = []

  constructor(count: number) {
    this.#free = count
  }

  /** Resolves when a place is the taker's; `leave` gives it back. */
  take(who: Who): Promise<void> {
    if (this.#free > 0) {
      this.#free -= 1
      return Promise.resolve()
    }
    return new Promise(go => this.#waiting.push({ who, go }))
  }

  leave(): void {
    const next = this.#waiting.shift()
    if (next === undefined) this.#free += 1
    else next.go()
  }

  /** Puts one that waits at the head of the line. */
  putFirst(who: Who): void {
    const at = this.#waiting.findIndex(waiting => waiting.who === who)
    if (at > 0) this.#waiting.unshift(...this.#waiting.splice(at, 1))
  }
}
