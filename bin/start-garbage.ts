/**
 * Gives back what a start leaves: room for new objects, which it made grow, and old garbage. The engine collects both by itself, in
 * small steps, but not before 100 s have gone by without a collection, unless memory pressure is signalled, as it is for the first seconds.
 * Owner: page bin/dev.
 */

import { setFlagsFromString } from 'node:v8'
import { type Clock, systemClock } from '../lib/core/clock.ts'

/** Milliseconds from the readiness line. */
const BEGIN_MS = 3000
/** The engine looks 8 s after the last collection of the start, and every 8 s from then on. */
const LAST_MS = 25_000

interface Means {
  clock: Pick<Clock, 'setTimeout' | 'clearTimeout'>
  setFlags(flags: string): void
}

const OWN: Means = { clock: systemClock, setFlags: setFlagsFromString }

/** Keeps no process alive. @returns a function that ends it */
export function giveBackStart({ clock, setFlags }: Means = OWN): () => void {
  let timer: NodeJS.Timeout
  let isTold = false
  const wait = (ms: number, act: () => void): void => {
    timer = clock.setTimeout(act, ms)
    timer.unref?.()
  }
  const end = (): void => {
    clock.clearTimeout(timer)
    if (isTold) setFlags('--no-optimize-for-size')
    isTold = false
  }
  wait(BEGIN_MS, () => {
    isTold = true
    setFlags('--optimize-for-size')
    wait(LAST_MS, end)
  })
  return end
}
