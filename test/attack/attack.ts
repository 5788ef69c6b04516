/** What an attack is: it does its worst to a running gateway on loopback, within fixed bounds, and tells what broke. */

import type { Target } from './target.ts'

/** `quick` is a part of the default tests; `full` is `npm run attack`. */
export type Scale = 'quick' | 'full'

export interface Outcome {
  /** Promises that did not hold, one sentence each. */
  broken: string[]
  /** What was seen, for the reader of a full run. */
  seen: string
}

export interface Attack {
  name: string
  run(target: Target, scale: Scale): Promise<Outcome>
}

/** Longest time that another client may wait while one attacks, milliseconds; judged in a full run alone. */
export const OTHERS_WAIT_MS = 2000

/** Most memory the gateway may have gained when an attack is over, megabytes. */
export const GAINED_MB = 200
