/** Limits on concurrent work: in all (`Semaphore`), of one key (`KeyedMutex`), and on the items of a list (`mapSome`). */

/** @typeParam Waiter - identifies waiting work, for `putFirst` */
export class Semaphore<Waiter = unknown> {
  #free: number
  /** The next one first. */
  readonly #waiting: { waiter: Waiter | undefined; go: () => void }[] = []

  /** @param slots - units of work that may go on at once */
  constructor(slots: number) {
    this.#free = slots
  }

  /** Takes a slot without waiting. @returns false when none is free; else `release` gives it back */
  tryTake(): boolean {
    if (this.#free === 0) return false
    this.#free -= 1
    return true
  }

  release(): void {
    // The slot goes to the next waiter without being free in between.
    const next = this.#waiting.shift()
    if (next === undefined) this.#free += 1
    else next.go()
  }

  /** Waits for a slot and holds it until the work has ended. */
  async run<T>(work: () => T | Promise<T>, waiter?: Waiter): Promise<T> {
    if (!this.tryTake()) await new Promise<void>(go => this.#waiting.push({ waiter, go }))
    try {
      return await work()
    } finally {
      this.release()
    }
  }

  /** Moves a waiter to the head of the queue. */
  putFirst(waiter: Waiter): void {
    const at = this.#waiting.findIndex(one => one.waiter === waiter)
    if (at > 0) this.#waiting.unshift(...this.#waiting.splice(at, 1))
  }
}

/** Runs work of one key in order, one after the other; work of different keys runs at once. */
export class KeyedMutex {
  /** The end of the last work of each key; never rejects. */
  readonly #last = new Map<string, Promise<void>>()

  run<T>(key: string, work: () => T | Promise<T>): Promise<T> {
    const done = (this.#last.get(key) ?? Promise.resolve()).then(work)
    const forget = (): void => {
      if (this.#last.get(key) === end) this.#last.delete(key)
    }
    const end = done.then(forget, forget)
    this.#last.set(key, end)
    return done
  }
}

const AT_ONCE = 16

/** The results of work on each item, in their order. Once one has failed no other begins. */
export async function mapSome<T, R>(
  items: readonly T[],
  work: (item: T) => Promise<R>,
  atOnce = AT_ONCE,
): Promise<R[]> {
  const results: R[] = []
  // A generator: the loop that fails ends it for all.
  const left = (function* () {
    yield* items.entries()
  })()
  const next = async (): Promise<void> => {
    for (const [at, item] of left) results[at] = await work(item)
  }
  await Promise.all(Array.from({ length: atOnce }, next))
  return results
}
