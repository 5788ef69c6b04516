/** The end of a process of this machine that leads a group. Owner: page runtime/daemon. */

import type { ChildProcess } from 'node:child_process'
import type { Clock } from '../core/clock.ts'

/** Milliseconds a daemon has to end after its control input was closed. */
const DAEMON_STOP_GRACE_MS = 2000

/** Kills a process with everything in its group. One that has not made its group yet comes first, so that it starts nobody who is missed. */
export function killGroup(pid: number | undefined): void {
  if (pid === undefined || pid <= 1) return
  for (const target of [pid, -pid]) {
    try {
      process.kill(target, 'SIGKILL')
    } catch {
      // Already gone.
    }
  }
}

/** Ends a daemon that runs, with its group when it takes too long. */
export function endDaemon(child: ChildProcess, clock: Pick<Clock, 'setTimeout' | 'clearTimeout'>): Promise<void> {
  return new Promise(resolve => {
    const timer = clock.setTimeout(() => killGroup(child.pid), DAEMON_STOP_GRACE_MS)
    const end = (): void => {
      clock.clearTimeout(timer)
      resolve()
    }
    child.once('exit', end)
    // It never ran.
    child.once('error', end)
    // The end of its control input tells it to end.
    child.stdin?.destroy()
  })
}
