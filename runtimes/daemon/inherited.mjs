/**
 * Descriptors that this process inherited beyond the standard three: whatever the program that started the gateway left
 * open. No function has business with them. Page: runtime/daemon.
 */

import { closeSync, readdirSync, readFileSync } from 'node:fs'

const FIRST = 3
/** Flag of a descriptor that a program does not hand on, octal as in /proc. Node sets it on every one of its own. */
const CLOSE_ON_EXEC = 0o2000000

/** Closes them here, so that no worker gets them. Without /proc nothing is known of them. */
export function closeInherited() {
  for (const fd of list()) {
    if (fd < FIRST || !isInherited(fd)) continue
    try {
      closeSync(fd)
    } catch {
      // Gone already.
    }
  }
}

function list() {
  try {
    return readdirSync('/proc/self/fd').map(Number)
  } catch {
    return []
  }
}

/** @param {number} fd */
function isInherited(fd) {
  try {
    const flags = /^flags:\s*([0-7]+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, 'utf8'))?.[1]
    return flags !== undefined && (Number.parseInt(flags, 8) & CLOSE_ON_EXEC) === 0
  } catch {
    return false
  }
}
