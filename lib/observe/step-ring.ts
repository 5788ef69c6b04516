/** A row for each of the newest steps of time. Owner: page observe/history. */

const NONE = -1

/**
 * Steps are numbered for ever; the row of a step is where that of the step `length` before it was.
 *
 *   step        … 118  119  120  121        length 4, newest 121
 *   row            2    3    0    1         118 is the oldest that is kept
 *
 * Rows between the newest and a later step are emptied when that one is written, so that a ring that is seldom written
 * costs nothing meanwhile.
 */
export class StepRing<Row> {
  readonly #rows: (Row | null)[]
  #newest = NONE

  /** @param length - steps that are kept */
  constructor(length: number) {
    this.#rows = Array<Row | null>(length).fill(null)
  }

  /** Steps are written in order. */
  set(step: number, row: Row): void {
    const { length } = this.#rows
    const missed = this.#newest === NONE ? 0 : Math.min(length, step - this.#newest)
    for (let one = step - missed + 1; one < step; one++) this.#rows[one % length] = null
    if (step > this.#newest) this.#newest = step
    this.#rows[step % length] = row
  }

  /** The row of a step; null for one in which nothing was written or of which nothing is kept. */
  get(step: number): Row | null {
    const { length } = this.#rows
    const isKept = this.#newest !== NONE && step <= this.#newest && step > this.#newest - length
    return isKept ? this.#rows[step % length]! : null
  }
}
