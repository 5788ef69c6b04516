/** Which user ids functions may run under. Owner: §2.15, page runtime/isolation. */

import { type Field, string } from './fields.ts'

/** First and last user id that functions may run under. */
export interface UidRange {
  first: number
  last: number
}

const RULE = 'a range of user ids such as 20000-29999, above 0'
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
  return first >= 1 && last >= first && last <= MAX_UID ? { first, last } : null
}
