/** The end of a process of this machine that leads a group. Owner: page runtime/daemon. */

/** Kills a process with everything in its group. */
export function killGroup(pid: number | undefined): void {
  if (pid === undefined || pid <= 1) return
  for (const target of [-pid, pid]) {
    try {
      process.kill(target, 'SIGKILL')
    } catch {
      // Already gone.
    }
  }
}
