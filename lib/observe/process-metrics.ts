/** The gateway's process as metrics, under the names that tools know from other programs. Owner: page observe/metrics. */

import { readdir, readFile } from 'node:fs/promises'
import { performance } from 'node:perf_hooks'
import type { Clock } from '../core/clock.ts'
import { toFamily } from './histogram.ts'

type Row = readonly [name: string, type: 'counter' | 'gauge', help: string, value: number]

/**
 * @param openFiles - see countOpenFiles
 * @param descriptorLimit - files this process may have open; null where the system does not tell
 */
export function toProcessText(clock: Clock, openFiles: number | null, descriptorLimit: number | null): string {
  const { user, system } = process.cpuUsage()
  const { rss, heapUsed, heapTotal, external } = process.memoryUsage()
  const rows: Row[] = [
    ['process_cpu_seconds_total', 'counter', 'Processor time of the gateway, seconds.', (user + system) / 1e6],
    ['process_resident_memory_bytes', 'gauge', 'Memory of the gateway, bytes.', rss],
    [
      'process_start_time_seconds',
      'gauge',
      'When the process began, seconds since the epoch.',
      (clock.wall() - process.uptime() * 1000) / 1000,
    ],
    ['nodejs_heap_size_used_bytes', 'gauge', 'JavaScript heap in use, bytes.', heapUsed],
    ['nodejs_heap_size_total_bytes', 'gauge', 'JavaScript heap, bytes.', heapTotal],
    ['nodejs_external_memory_bytes', 'gauge', 'Memory of buffers and the like, bytes.', external],
    [
      'nodejs_eventloop_active_seconds_total',
      'counter',
      'Time in which the event loop did something, seconds.',
      performance.eventLoopUtilization().active / 1000,
    ],
  ]
  if (openFiles !== null) rows.push(['process_open_fds', 'gauge', 'Open files and sockets.', openFiles])
  if (descriptorLimit !== null)
    rows.push(['process_max_fds', 'gauge', 'Files and sockets that may be open.', descriptorLimit])
  return rows.map(([name, type, help, value]) => toFamily(name, type, help, [[{}, value]])).join('')
}

/** Open files of this process; null where the system does not tell. */
export async function countOpenFiles(): Promise<number | null> {
  try {
    // The one that reads is gone afterwards.
    return (await readdir('/proc/self/fd')).length - 1
  } catch {
    return null
  }
}

// What processes of this machine hold in memory, as the system tells it.

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
