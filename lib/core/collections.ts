/** Maps, sorted lists and heaps. Owner: pages router/route-table, scheduler/scheduler. */

/** A Map or WeakMap. */
interface Keyed<K, V> {
  get(key: K): V | undefined
  set(key: K, value: V): unknown
}

/** The value of a key, which is made when it is missing. */
export function getOrMake<K, V>(map: Keyed<K, V>, key: K, make: () => V): V {
  const known = map.get(key)
  if (known !== undefined) return known
  const made = make()
  map.set(key, made)
  return made
}

interface ListChange<T> {
  readonly gone: readonly T[]
  readonly fresh: readonly T[]
}

/** True for the same objects in the same order. */
export function isSameList<T>(a: readonly T[], b: readonly T[]): boolean {
  return a.length === b.length && a.every((item, index) => item === b[index])
}

/**
 * The difference of two lists of ten thousand of which few items change: equal starts and ends are compared once.
 * Items are the same when they are one object; no list has one twice.
 */
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
 * Items of a sorted list that do not come after an item, by binary search.
 * @param from - number of items that are known to come before it
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

/** Two sorted lists as one. A few new items among ten thousand are not compared with each of them. */
export function mergeSorted<T>(a: readonly T[], b: readonly T[], compare: (a: T, b: T) => number): T[] {
  const merged: T[] = []
  let at = 0
  for (const item of b) {
    for (const end = countUpTo(a, item, compare, at); at < end; at++) merged.push(a[at]!)
    merged.push(item)
  }
  while (at < a.length) merged.push(a[at++]!)
  return merged
}

export interface HeapItem {
  /** Written by the heap; -1 outside. */
  heapIndex: number
}

/** A binary heap whose items know their index, so that any of them can be moved or removed. */
export class Heap<T extends HeapItem> {
  readonly #items: T[] = []
  readonly #isBefore: (a: T, b: T) => boolean

  constructor(isBefore: (a: T, b: T) => boolean) {
    this.#isBefore = isBefore
  }

  get size(): number {
    return this.#items.length
  }

  get first(): T | undefined {
    return this.#items[0]
  }

  /** Adds an item, or moves it after its order has changed. */
  put(item: T): void {
    if (item.heapIndex < 0) item.heapIndex = this.#items.push(item) - 1
    this.#settle(item)
  }

  remove(item: T): void {
    const { heapIndex: index } = item
    if (index < 0) return
    item.heapIndex = -1
    const last = this.#items.pop()!
    if (last === item) return
    this.#place(last, index)
    this.#settle(last)
  }

  #settle(item: T): void {
    const items = this.#items
    let index = item.heapIndex
    while (index > 0) {
      const parent = items[(index - 1) >> 1]!
      if (!this.#isBefore(item, parent)) break
      this.#place(parent, index)
      index = (index - 1) >> 1
    }
    for (;;) {
      let child = items[2 * index + 1]
      const right = items[2 * index + 2]
      if (child === undefined) break
      if (right !== undefined && this.#isBefore(right, child)) child = right
      if (!this.#isBefore(child, item)) break
      const { heapIndex } = child
      this.#place(child, index)
      index = heapIndex
    }
    this.#place(item, index)
  }

  #place(item: T, index: number): void {
    this.#items[index] = item
    item.heapIndex = index
  }
}
