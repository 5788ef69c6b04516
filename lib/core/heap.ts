/** A binary heap whose items know their index, so that any of them can be moved or removed. Owner: page scheduler/scheduler. */

export interface HeapItem {
  /** Kept by the heap; -1 outside. */
  heapIndex: number
}

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
