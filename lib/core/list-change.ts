/** Differences between two lists, for lists of ten thousand of which few items change. Owner: page router/route-table. */

interface ListChange<T> {
  readonly gone: readonly T[]
  readonly fresh: readonly T[]
}

/** True for the same objects in the same order. */
export function isSameList<T>(a: readonly T[], b: readonly T[]): boolean {
  return a.length === b.length && a.every((item, index) => item === b[index])
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

/**
 * Items of a sorted list that do not come after an item, found by halving.
 * @param from - number of items that are known to
 */
export function countUpTo<T, I>(list: readonly T[], item: I, compare: (a: T, b: I) => number, from = 0): number {
  let low = from
  let high = list.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (compare(list[middle]!, item) <= 0) low = middle + 1
    else high = middle
  }
  return low
}

/** Two sorted lists as one, without sorting again. */
export function mergeSorted<T>(a: readonly T[], b: readonly T[], compare: (a: T, b: T) => number): T[] {
  const merged: T[] = []
  let at = 0
  for (const item of b) {
    // A few new ones among ten thousand: these are not compared one by one.
    for (const end = countUpTo(a, item, compare, at); at < end; at++) merged.push(a[at]!)
    merged.push(item)
  }
  while (at < a.length) merged.push(a[at++]!)
  return merged
}
