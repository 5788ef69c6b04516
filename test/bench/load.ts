/** Load by wrk, single requests, and the processor time that servers used for them. Linux only (/proc). */

import { execFile, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const run = promisify(execFile)

/** The line with the address of a gateway, as text or JSON. */
export const READY = /^(?:ready |\{"event":"ready".*"url":")(http:[^\s"]+)/m

export interface LoadResult {
  requestsPerSecond: number
  requests: number
  p50Us: number
  p99Us: number
  /** Answers other than 2xx and 3xx, and socket errors: must be 0 for a figure to count. */
  failures: number
}

export function hasWrk(): boolean {
  return spawnSync('wrk', ['-v']).error === undefined
}

function toMicroseconds(text: string): number {
  const [, number, unit] = /([\d.]+)(us|ms|s|m)/.exec(text) ?? []
  const factor = { us: 1, ms: 1000, s: 1e6, m: 6e7 }[unit ?? 'us'] ?? 1
  return Number(number) * factor
}

/**
 * @param script - what is sent instead of one and the same GET: a file beside this one
 * @param more - arguments of the script
 */
export async function load(
  url: string,
  connections: number,
  seconds: number,
  script: string | null = null,
  more: readonly string[] = [],
): Promise<LoadResult> {
  const scripted = script === null ? [] : ['-s', fileURLToPath(new URL(script, import.meta.url))]
  const args = [
    '-t1',
    `-c${connections}`,
    `-d${seconds}s`,
    '--latency',
    ...scripted,
    url,
    ...(more.length > 0 ? ['--', ...more] : []),
  ]
  const { stdout } = await run('wrk', args)
  const text = (pattern: RegExp): string => pattern.exec(stdout)?.[1] ?? '0'
  const errors = /Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)/.exec(stdout) ?? []
  return {
    requestsPerSecond: Number(text(/Requests\/sec:\s+([\d.]+)/)),
    requests: Number(text(/(\d+) requests in/)),
    p50Us: toMicroseconds(text(/^\s+50%\s+(\S+)/m)),
    p99Us: toMicroseconds(text(/^\s+99%\s+(\S+)/m)),
    failures:
      Number(text(/Non-2xx or 3xx responses: (\d+)/)) + errors.slice(1).reduce((sum, count) => sum + Number(count), 0),
  }
}

/** One kept connection and requests one after the other, with next to no work of its own. */
export class RawClient {
  readonly #socket: Socket

  private constructor(socket: Socket) {
    this.#socket = socket
  }

  static async connect(url: string): Promise<RawClient> {
    const { hostname, port } = new URL(url)
    const socket = connect({ host: hostname, port: Number(port), noDelay: true })
    await once(socket, 'connect')
    return new RawClient(socket)
  }

  /** @returns the status of an answer that arrives in one piece */
  async get(path: string): Promise<number> {
    this.#socket.write(`GET ${path} HTTP/1.1\r\nHost: bench\r\n\r\n`)
    const [bytes] = (await once(this.#socket, 'data')) as [Buffer]
    return Number(bytes.toString('latin1', 9, 12))
  }

  close(): void {
    this.#socket.destroy()
  }
}

/** Milliseconds that a build may take, and between two looks. */
const BUILD_WAIT_MS = 150_000
const BUILD_LOOK_MS = 300

/** The first call of a compiled function waits for its build, a while. */
export async function untilBuilt(url: string): Promise<void> {
  const from = performance.now()
  for (;;) {
    const response = await fetch(url)
    const text = await response.text()
    if (response.status === 200) return
    if (response.status !== 503 || performance.now() - from > BUILD_WAIT_MS) throw new Error(`${url}: ${text}`)
    await new Promise(done => setTimeout(done, BUILD_LOOK_MS))
  }
}

const TICKS_PER_SECOND = 100

interface Stat {
  pid: number
  parent: number
  ticks: number
  rssPages: number
}

function readStats(): Stat[] {
  const stats: Stat[] = []
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue
    try {
      const text = readFileSync(`/proc/${name}/stat`, 'utf8')
      const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
      stats.push({
        pid: Number(name),
        parent: Number(fields[1]),
        ticks: Number(fields[11]) + Number(fields[12]),
        rssPages: Number(fields[21]),
      })
    } catch {
      // The process ended between the listing and the reading.
    }
  }
  return stats
}

export interface Usage {
  /** The process itself, seconds of processor time. */
  ownSeconds: number
  /** With everything it started. */
  treeSeconds: number
  ownRssMb: number
  processes: number
}

/** Processor time and memory of a process and its descendants. */
export function usageOf(pid: number): Usage {
  const stats = readStats()
  const family = new Set([pid])
  for (let grew = true; grew; ) {
    grew = false
    for (const { pid: child, parent } of stats) {
      if (!family.has(child) && family.has(parent)) {
        family.add(child)
        grew = true
      }
    }
  }
  let own = 0
  let tree = 0
  let rss = 0
  for (const stat of stats) {
    if (!family.has(stat.pid)) continue
    tree += stat.ticks
    if (stat.pid === pid) {
      own = stat.ticks
      rss = stat.rssPages
    }
  }
  return {
    ownSeconds: own / TICKS_PER_SECOND,
    treeSeconds: tree / TICKS_PER_SECOND,
    ownRssMb: (rss * 4096) / 1e6,
    processes: family.size,
  }
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  const middle = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[middle]! : ((sorted[middle - 1] ?? 0) + (sorted[middle] ?? 0)) / 2
}
