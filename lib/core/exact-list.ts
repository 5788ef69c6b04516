/** Lists and numbers that are kept ten thousand times. Owner: page performance. */

export const EMPTY: readonly never[] = Object.freeze([])

/** The same items without the room that a list has after it grew (for one item, room for 17), and one list for all that have none. */
export function exact<T>(list: readonly T[]): readonly T[] {
  if (list.length === 0) return EMPTY
  // A copy of one item still has room for three.
  return list.length === 1 ? [list[0] as T] : list.slice()
}

/** The same number: what the system says of files is kept as a fraction in separate memory, even where it is whole and small. */
export function exactNumber(value: number): number {
  return (value | 0) === value ? value | 0 : value
}
