/** Numbers of the newest steps of time, a row of them for each step, in one array. Owner: page observe/history. */

const NONE = -1

/**
 * Steps are numbered for ever; the row of a step is where that of the step `length` before it was.
 *
 *   step        … 118  119  120  121        length 4, newest 121
 *   row            2    3    0    1         118 is the oldest that is kept
 *
 * Rows between the newest and a later step are emptied when that one is opened, so that a ring that is seldom written
 * costs nothing meanwhile.
 */
export class StepRing {
  readonly numbers: Uint32Array
  readonly #length: number
  readonly #width: number
  #newest = NONE

  /** @param length - steps that are kept; @param width - numbers of a step */
  constructor(length: number, width: number) {
    this.#length = length
    this.#width = width
    this.numbers = new Uint32Array(length * width)
  }

  /** Where the numbers of a step are, for writing; steps are opened in order. */
  open(step: number): number {
    const missed = this.#newest === NONE ? this.#length : Math.min(this.#length, step - this.#newest)
    for (let one = step - missed + 1; one <= step; one++) {
      const at = this.#indexOf(one)
      this.numbers.fill(0, at, at + this.#width)
    }
    if (step > this.#newest) this.#newest = step
    return this.#indexOf(step)
  }

  /** Where the numbers of a step are; -1 for one of which nothing is kept. */
  find(step: number): number {
    const isKept = this.#newest !== NONE && step <= this.#newest && step > this.#newest - this.#length
    return isKept ? this.#indexOf(step) : -1
  }

  #indexOf(step: number): number {
    return (step % this.#length) * this.#width
  }
}
