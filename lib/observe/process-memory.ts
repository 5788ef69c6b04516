/** What processes of this machine hold in memory, as the system tells it. Owner: page control/workers. */

import { readFile } from 'node:fs/promises'

/** Processes that are asked at once, and at most: the rest is not known. */
const AT_ONCE = 32
const MAX_PROCESSES = 2000

/**
 * Resident bytes by process id; one that is gone, or of a system that does not tell, is not there.
 * @param withChildren - also what the processes hold that it started itself
 */
export async function readMemoryOf(
  pids: readonly number[],
  withChildren = false,
): Promise<ReadonlyMap<number, number>> {
  const found = new Map<number, number>()
  for (let at = 0; at < Math.min(pids.length, MAX_PROCESSES); at += AT_ONCE) {
    const some = pids.slice(at, at + AT_ONCE)
    const sizes = await Promise.all(some.map(pid => (withChildren ? readFamily(pid) : readMemory(pid))))
    for (const [index, bytes] of sizes.entries()) if (bytes !== null) found.set(some[index]!, bytes)
  }
  return found
}

async function readFamily(pid: number): Promise<number | null> {
  const own = await readMemory(pid)
  if (own === null) return null
  const children = await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8').catch(() => '')
  const sizes = await Promise.all(
    children
      .split(' ')
      .filter(Boolean)
      .map(child => readMemory(Number(child))),
  )
  return sizes.reduce<number>((sum, bytes) => sum + (bytes ?? 0), own)
}

async function readMemory(pid: number): Promise<number | null> {
  try {
    const kilobytes = /^VmRSS:\s+(\d+) kB$/m.exec(await readFile(`/proc/${pid}/status`, 'utf8'))?.[1]
    return kilobytes === undefined ? null : Number(kilobytes) * 1024
  } catch {
    return null
  }
}
