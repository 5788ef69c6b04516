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
