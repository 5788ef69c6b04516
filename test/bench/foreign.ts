/** What else the machine does while something is measured: rounds with too much of it are thrown away. Linux only (/proc). */

import { readdirSync, readFileSync } from 'node:fs'

/** Work of others, in processors, with which a round still counts. */
const MOST_FOREIGN = 0.1
/** Rounds thrown away in a row before one counts all the same: a machine that is never free gives a figure too, and says so. */
const MOST_TRIES = 5

/** Ticks of processor time since some moment. */
export interface Times {
  /** Of all processors together, and how long they could have worked. */
  busy: number
  possible: number
  /** Of this process, what it started and what that started, those that have ended too. */
  own: number
}

/** Processors that others used between two readings; `processors` of them there are. */
export function toForeign(before: Times, after: Times, processors: number): number {
  const share = (after.busy - before.busy - (after.own - before.own)) / Math.max(1, after.possible - before.possible)
  return Math.max(0, share) * processors
}

/** @param text - of /proc/stat: the first line has all processors, of which idle and waiting for a disk is no work */
export function toBusy(text: string): { busy: number; possible: number; processors: number } {
  const [user, nice, system, idle, wait, irq, softIrq, steal] = /^cpu +(.*)$/m.exec(text)![1]!.split(' ').map(Number)
  const busy = user! + nice! + system! + irq! + softIrq! + steal!
  return { busy, possible: busy + idle! + wait!, processors: (text.match(/^cpu\d/gm) ?? []).length }
}

/** @param stats - texts of /proc/<pid>/stat of all processes; a process has the time of children that ended and were waited for */
export function toOwn(stats: readonly string[], pid: number): number {
  const processes = stats.map(text => {
    const fields = text
      .slice(text.lastIndexOf(')') + 2)
      .split(' ')
      .map(Number)
    const ticks = fields[11]! + fields[12]! + fields[13]! + fields[14]!
    return { pid: Number.parseInt(text, 10), parent: fields[1]!, ticks }
  })
  const family = new Set([pid])
  for (let size = 0; size < family.size; ) {
    size = family.size
    for (const one of processes) if (family.has(one.parent)) family.add(one.pid)
  }
  return processes.reduce((sum, one) => (family.has(one.pid) ? sum + one.ticks : sum), 0)
}

export interface Meter {
  read: () => Times
  processors: number
}

export const SYSTEM_METER: Meter = {
  read: () => {
    const { busy, possible } = toBusy(readFileSync('/proc/stat', 'utf8'))
    return { busy, possible, own: toOwn(readStats(), process.pid) }
  },
  processors: toBusy(readFileSync('/proc/stat', 'utf8')).processors,
}

function readStats(): string[] {
  return readdirSync('/proc').flatMap(name => {
    if (!/^\d+$/.test(name)) return []
    try {
      return [readFileSync(`/proc/${name}/stat`, 'utf8')]
    } catch {
      // It has ended.
      return []
    }
  })
}

/** Repeats rounds during which others worked, and tells how it went. */
export class QuietRounds {
  readonly #meter: Meter
  readonly #spare: number
  readonly #foreign: number[] = []
  #thrown = 0

  /** @param spare - rounds that may be thrown away in all, for a case that has to end in time */
  constructor(meter: Meter = SYSTEM_METER, spare = Number.POSITIVE_INFINITY) {
    this.#meter = meter
    this.#spare = spare
  }

  /** @param round - measures once; what it returns the last time counts */
  async run<T>(round: () => Promise<T>): Promise<T> {
    for (let tries = 1; ; tries++) {
      const before = this.#meter.read()
      const result = await round()
      const foreign = toForeign(before, this.#meter.read(), this.#meter.processors)
      if (foreign <= MOST_FOREIGN || tries === MOST_TRIES || this.#thrown >= this.#spare) {
        this.#foreign.push(foreign)
        return result
      }
      this.#thrown += 1
    }
  }

  /** Rows for the report: how much of it to believe. */
  toRows(): { name: string; value: number; unit: string; goal?: string; ok?: boolean }[] {
    const worst = Math.max(0, ...this.#foreign)
    return [
      {
        name: `rounds thrown away for work of others, of ${this.#foreign.length + this.#thrown}`,
        value: this.#thrown,
        unit: '',
      },
      {
        name: 'most work of others in a round that counts',
        value: worst,
        unit: 'cpus',
        goal: `<= ${MOST_FOREIGN}`,
        ok: worst <= MOST_FOREIGN,
      },
    ]
  }
}

/** What an answer of bare `node:http` costs says in which mood the machine is: dear awakenings flatter whoever answers in bunches. */
export function toMood(bareMicroseconds: number): { name: string; value: number; unit: string } {
  const mood = bareMicroseconds < 15 ? 'quick' : 'dear awakenings'
  return { name: `mood of the machine: ${mood}; bare node:http, CPU a request`, value: bareMicroseconds, unit: 'us' }
}
