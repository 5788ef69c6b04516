/** Processes that a gateway in this process started. Linux only (/proc). */

import { readdirSync, readFileSync } from 'node:fs'

/** Daemons of this process and all that came of them. */
export function listProcesses(): number[] {
  const parents = new Map<number, number>()
  const daemons = new Set<number>()
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue
    try {
      const stat = readFileSync(`/proc/${name}/stat`, 'utf8')
      const parent = Number(stat.slice(stat.lastIndexOf(')') + 4).split(' ')[0])
      parents.set(Number(name), parent)
      const isDaemon = /runtimes\/\w+\/daemon\./.test(readFileSync(`/proc/${name}/cmdline`, 'utf8'))
      if (parent === process.pid && isDaemon) daemons.add(Number(name))
    } catch {
      // It ended meanwhile.
    }
  }
  const isOurs = (pid: number | undefined): boolean =>
    pid !== undefined && (daemons.has(pid) || isOurs(parents.get(pid)))
  return [...parents.keys()].filter(isOurs)
}

/** Process ids of a process's children; none of one that is gone. */
export function childrenOf(pid: number): number[] {
  return readOrEmpty(`/proc/${pid}/task/${pid}/children`).trim().split(' ').filter(Boolean).map(Number)
}

/** What a process was started with, its parts apart by NUL; empty of one that is gone. */
export function commandOf(pid: number): string {
  return readOrEmpty(`/proc/${pid}/cmdline`)
}

/** The environment that a process was started with, its parts apart by NUL; empty of one that is gone. */
export function environOf(pid: number): string {
  return readOrEmpty(`/proc/${pid}/environ`)
}

/** Kills a process, or a group by its negative id; one that has just ended by itself is as good. */
export function killIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

function readOrEmpty(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    // It ended meanwhile.
    return ''
  }
}

/** What the system says of a process; empty of one that is gone. */
export function statusOf(pid: number): string {
  return readOrEmpty(`/proc/${pid}/status`)
}

/** Where a process stands: its group, session and terminal (0: none), and how far it stands back (-20 to 19). */
export function placeOf(pid: number): { group: number; session: number; terminal: number; nice: number } {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  // The name, in parentheses, may hold anything.
  const fields = stat
    .slice(stat.lastIndexOf(')') + 2)
    .split(' ')
    .map(Number)
  return { group: fields[2]!, session: fields[3]!, terminal: fields[4]!, nice: fields[16]! }
}

/** False for one that has ended, also while nobody has asked for its exit code. */
export function isRunning(pid: number): boolean {
  return /^State:\s+[^ZX]/m.test(statusOf(pid))
}

/** All that a process started, directly or not. */
export function descendantsOf(pid: number): number[] {
  return childrenOf(pid).flatMap(child => [child, ...descendantsOf(child)])
}

/** True while a process runs; one that ended and waits for its parent to notice does not. */
export function isAlive(pid: number): boolean {
  try {
    // The state follows the name, which stands in parentheses.
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    return !'ZX'.includes(stat[stat.lastIndexOf(')') + 2]!)
  } catch {
    return false
  }
}
