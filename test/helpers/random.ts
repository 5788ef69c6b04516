/** Numbers that look random and come again for the same seed (mulberry32). */

/** @returns a function that gives an integer of at least 0 and below `bound` */
export function createRandom(seed: number): (bound: number) => number {
  let state = seed >>> 0
  return bound => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) % bound
  }
}

export class Random {
  /** An integer of at least 0 and below `bound`. */
  readonly below: (bound: number) => number

  constructor(seed: number) {
    this.below = createRandom(seed)
  }

  pick<T>(list: readonly T[]): T {
    return list[this.below(list.length)]!
  }
}
