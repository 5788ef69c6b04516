/** Runs fuzz targets in turn and reports the first failure of each with its seed and the smallest input found. */

import { existsSync, readFileSync } from 'node:fs'
import fc from 'fast-check'

/** What one part of the product must hold for every input. */
export interface Target<T = unknown> {
  name: string
  /** Why it cannot run here, such as a missing interpreter; null when it can. */
  missing?: string | null
  open(): Promise<Opened<T>>
}

export interface Opened<T> {
  inputs: fc.Arbitrary<T>
  /** @throws when the product does not hold what it promises */
  check(input: T): Promise<void> | void
  close?(): Promise<void> | void
}

export interface Outcome {
  name: string
  runs: number
  /** Null when every input passed. */
  failure: string | null
}

/** Inputs that failed once, or that reach deep: `corpus/<target>.json`, a list of JSON values. They run first. */
function readCorpus<T>(name: string): [T][] {
  const file = new URL(`corpus/${name}.json`, import.meta.url)
  if (!existsSync(file)) return []
  return (JSON.parse(readFileSync(file, 'utf8')) as unknown[]).map(value => [revive(value) as T])
}

/** Bytes stand in a corpus as `{"hex": "..."}`. */
function revive(value: unknown): unknown {
  if (typeof value === 'object' && value !== null && 'hex' in value) return Buffer.from(String(value.hex), 'hex')
  if (Array.isArray(value)) return value.map(revive)
  if (typeof value === 'object' && value !== null)
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, revive(one)]))
  return value
}

function toCorpus(value: unknown): string {
  return JSON.stringify(value, function (this: Record<string, unknown>, key: string, one: unknown) {
    const given = this[key]
    return Buffer.isBuffer(given) ? { hex: given.toString('hex') } : one
  })
}

/** @param ms - how long to try new inputs; the corpus always runs whole */
export async function fuzz(target: Target, ms: number, seed: number): Promise<Outcome> {
  const { name } = target
  const opened = await target.open()
  try {
    const property = fc.asyncProperty(opened.inputs, async input => opened.check(input))
    const examples = readCorpus(name)
    // Without a limit of time: on a busy machine the first call of a function may take longer than all that is given.
    const first = await fc.check(property, { seed, examples, numRuns: examples.length + 1, endOnFailure: false })
    const details = first.failed
      ? first
      : await fc.check(property, {
          seed,
          numRuns: 1_000_000_000,
          interruptAfterTimeLimit: ms,
          markInterruptAsFailure: false,
          endOnFailure: false,
        })
    const { failed, numRuns, counterexample, errorInstance } = details
    // Interrupted before its first run ended, it is called a failure without an example.
    if (!failed || counterexample === null) return { name, runs: first.numRuns + numRuns, failure: null }
    const error =
      errorInstance instanceof Error ? (errorInstance.stack ?? errorInstance.message) : String(errorInstance)
    const repeat = `repeat: npm run fuzz -- --only ${name} --seed ${seed}`
    const input = `input: ${toCorpus(counterexample[0])}`
    return { name, runs: numRuns, failure: [repeat, input, error].join('\n') }
  } finally {
    await opened.close?.()
  }
}
