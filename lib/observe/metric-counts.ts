/** What was counted since it was last taken, as data: one process counts for another. Owner: page observe/metrics. */

/** Numbers of one function. */
export interface FunctionCounts {
  key: string
  durations: Float64Array
  waits: Float64Array
  coldStarts: number
}

export interface MetricCounts {
  /** Place and count, in turn, of the requests by method, status and plane. */
  requests: number[]
  durations: Float64Array
  functions: FunctionCounts[]
}

/** What was added to named numbers since the last look. */
export class Added<Name extends string> {
  readonly #numbers: Readonly<Record<Name, number>>
  readonly #seen: Record<Name, number>

  constructor(numbers: Readonly<Record<Name, number>>) {
    this.#numbers = numbers
    this.#seen = { ...numbers }
  }

  /** @returns null when nothing was added */
  take(): Record<Name, number> | null {
    const added: Record<Name, number> = { ...this.#numbers }
    let sum = 0
    for (const name of Object.keys(added) as Name[]) {
      added[name] -= this.#seen[name]
      sum += added[name]
    }
    Object.assign(this.#seen, this.#numbers)
    return sum === 0 ? null : added
  }
}

/** Adds named numbers to others. */
export function addTo<Name extends string>(sums: Record<Name, number>, added: Readonly<Record<Name, number>>): void {
  for (const name of Object.keys(added) as Name[]) sums[name] += added[name]
}
