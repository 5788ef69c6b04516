/** So many places, which nobody waits for: what takes much memory for speed has one, and all others go on without. Owner: page core/byte-pool. */

export class FreePlaces {
  #left: number

  constructor(count: number) {
    this.#left = count
  }

  /** @returns false when there is none; else `giveBack` gives it back */
  take(): boolean {
    if (this.#left === 0) return false
    this.#left -= 1
    return true
  }

  giveBack(): void {
    this.#left += 1
  }
}
