/** What a list has that the one before it had not: for lists of ten thousand of which few items change. Owner: page router/route-table. */

export interface ListChange<T> {
  readonly gone: readonly T[]
  readonly fresh: readonly T[]
}

/** Items are the same when they are one object; both lists have each of them once. What is at both ends of both costs one look. */
export function compareLists<T>(before: readonly T[], after: readonly T[]): ListChange<T> {
  const shorter = Math.min(before.length, after.length)
  let start = 0
  while (start < shorter && before[start] === after[start]) start++
  let end = 0
  while (end < shorter - start && before.at(-1 - end) === after.at(-1 - end)) end++
  const gone = before.slice(start, before.length - end)
  const fresh = after.slice(start, after.length - end)
  if (gone.length === 0 || fresh.length === 0) return { gone, fresh }
  const [old, young] = [new Set(gone), new Set(fresh)]
  return { gone: gone.filter(item => !young.has(item)), fresh: fresh.filter(item => !old.has(item)) }
}

/** Two lists in one order as one, without sorting it anew. */
export function mergeSorted<T>(a: readonly T[], b: readonly T[], compare: (a: T, b: T) => number): T[] {
  const merged: T[] = []
  let at = 0
  for (const item of b) {
    while (at < a.length && compare(a[at]!, item) <= 0) merged.push(a[at++]!)
    merged.push(item)
  }
  while (at < a.length) merged.push(a[at++]!)
  return merged
}

/** Values of one map after another: for whoever keeps something of each and does not want to look at all of them each time. */
export class ValueChanges<T> {
  #values: readonly T[] = []

  /** What is different from the map before; at first all of it is fresh. */
  next(map: ReadonlyMap<string, T>): ListChange<T> {
    const before = this.#values
    this.#values = [...map.values()]
    return compareLists(before, this.#values)
  }
}
