/** The processors that workers may use, and what worker processes of this machine did with their time. Owner: §2.8, page runtime/worker-set. */

import { readFileSync } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import { dirname, join } from 'node:path'
import type { Processors, ProcessorTime } from './growth.ts'

const CGROUP_ROOT = '/sys/fs/cgroup'
const NS_PER_MS = 1e6

/** By process id, with what its children did: a worker stands behind a guard. A process of which the system tells nothing is not there. */
async function readProcessorTimes(pids: readonly number[]): Promise<ReadonlyMap<number, ProcessorTime>> {
  const found = new Map<number, ProcessorTime>()
  await Promise.all(
    pids.map(async pid => {
      const time = { ranMs: 0, queuedMs: 0, isRunnable: false }
      const children = await readFile(`/proc/${pid}/task/${pid}/children`, 'latin1').catch(() => '')
      const isKnown = await Promise.all(
        [String(pid), ...children.split(' ').filter(Boolean)].map(one => add(one, time)),
      )
      if (isKnown.every(Boolean)) found.set(pid, time)
    }),
  )
  return found
}

/** @returns false when the system does not tell */
async function add(pid: string, time: ProcessorTime): Promise<boolean> {
  try {
    const threads = await readdir(`/proc/${pid}/task`)
    await Promise.all(
      threads.map(async thread => {
        const folder = `/proc/${pid}/task/${thread}`
        const [text, state] = await Promise.all([
          readFile(`${folder}/schedstat`, 'latin1'),
          readFile(`${folder}/stat`, 'latin1'),
        ])
        const [ran, queued] = text.split(' ').map(Number)
        time.ranMs += ran! / NS_PER_MS
        time.queuedMs += queued! / NS_PER_MS
        // The name before it may have brackets itself.
        if (state.startsWith(') R', state.lastIndexOf(')'))) time.isRunnable = true
      }),
    )
    return true
  } catch {
    return false
  }
}

/** @param processes - of the gateway, each with workers of its own */
export function systemProcessors(processes = 1): Processors {
  return { count: Math.ceil(countProcessors() / processes), read: readProcessorTimes }
}

/** The smaller of the two, rounded up. @param quotas - texts of `cpu.max` files: `<microseconds | max> <period>` */
export function toProcessors(parallelism: number, quotas: readonly string[]): number {
  const counts = quotas.map(text => {
    const [quota, period] = text.trim().split(' ').map(Number)
    return quota! > 0 && period! > 0 ? quota! / period! : Number.POSITIVE_INFINITY
  })
  return Math.max(1, Math.ceil(Math.min(parallelism, ...counts)))
}

function countProcessors(): number {
  const path = /^0::(\/.*)$/m.exec(readOrEmpty('/proc/self/cgroup'))?.[1] ?? '/'
  const quotas: string[] = []
  // Each level may have a quota.
  for (let folder = path; ; folder = dirname(folder)) {
    quotas.push(readOrEmpty(join(CGROUP_ROOT, folder, 'cpu.max')))
    if (dirname(folder) === folder) return toProcessors(availableParallelism(), quotas)
  }
}

function readOrEmpty(path: string): string {
  try {
    return readFileSync(path, 'latin1')
  } catch {
    return ''
  }
}
