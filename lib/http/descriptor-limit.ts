/** How many files this process may have open. Owner: §4.1. */

import { readFileSync } from 'node:fs'

/** null where the system does not tell. */
export function readDescriptorLimit(): number | null {
  try {
    const limit = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'latin1'))?.[1]
    return limit === undefined ? null : Number(limit)
  } catch {
    return null
  }
}
