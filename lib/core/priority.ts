/** How far a process stands behind this one when processors are shared out. Owner: page runtime/daemon. */

import { getPriority, setPriority } from 'node:os'
import { MAX_WORKER_NICE } from './limits.ts'

/**
 * Puts a process that has just been started so many steps (of nice) behind this one; what it starts from then on is there too.
 * @returns null, or why the system refuses. One that has ended already needs nothing.
 */
export function lowerPriority(pid: number | undefined, steps: number): string | null {
  if (pid === undefined || steps === 0) return null
  try {
    setPriority(pid, Math.min(MAX_WORKER_NICE, getPriority() + steps))
    return null
  } catch (error) {
    const { info, message } = error as Error & { info?: { code?: string } }
    return info?.code === 'ESRCH'
      ? null
      : `its priority stays that of the gateway (FN_WORKER_NICE=${steps}): ${message}`
  }
}
