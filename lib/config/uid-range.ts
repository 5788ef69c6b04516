/** Which user ids functions may run under. Owner: §2.15, page runtime/isolation. */

import { type Field, string } from './fields.ts'

/** First and last user id of several. */
export interface UidRange {
  first: number
  last: number
}

/** Most groups that a process of Linux may be in: the gateway is in those of all functions. */
const MAX_IDS = 65_536
const RULE = `a range of 2 to ${MAX_IDS} user ids such as 20000-29999, above 0`
/** Largest id that the systems agree on: -1 and -2 stand for "none" and "nobody". */
const MAX_UID = 0xffff_fff0

/** `20000-29999`. */
export function uidRange(): Field<string> {
  const parse = (text: string) => {
    const range = toUidRange(text)
    return range === null ? null : `${range.first}-${range.last}`
  }
  return string({ rule: RULE, parse, pattern: /^\d{1,10} ?- ?\d{1,10}$/ })
}

/** The range of a text that the setting takes; null for others. */
export function toUidRange(text: string): UidRange | null {
  const [first = 0, last = 0] = text.split('-').map(Number)
  const count = last - first + 1
  return first >= 1 && count >= 2 && count <= MAX_IDS && last <= MAX_UID ? { first, last } : null
}

/** Who is who: the first id is the gateway's, the others are functions'. @param text - as the setting takes it */
export function toUsers(text: string): { gateway: number; functions: UidRange } {
  const { first, last } = toUidRange(text)!
  return { gateway: first, functions: { first: first + 1, last } }
}
