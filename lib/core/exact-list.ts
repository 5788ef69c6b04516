/** Lists that are kept ten thousand times. Owner: page performance. */

export const EMPTY: readonly never[] = Object.freeze([])

/** The same items without the room that a list has after it grew (for one item, room for 17), and one list for all that have none. */
export function exact<T>(list: readonly T[]): readonly T[] {
  return list.length === 0 ? EMPTY : list.slice()
}
