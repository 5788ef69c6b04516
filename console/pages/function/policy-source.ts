/** The effective policy of a function, and the source of each value. Owner: page console/function. */

import type { FunctionRecord } from '../../data/function-records.ts'

export interface Holding {
  /** `worker_pool.max_workers` */
  readonly name: string
  readonly value: string
  /** File below the functions root; null for what no file says. */
  readonly file: string | null
  /** Said instead of a file: a setting, `default`, or '' where nothing is known. */
  readonly origin: string
  readonly setting: string | null
}

type Sources = FunctionRecord['policy_sources']

export function toHoldings({
  policy,
  policy_sources: sources,
}: Pick<FunctionRecord, 'policy' | 'policy_sources'>): Holding[] {
  return Object.entries(policy).flatMap(([name, value]) => {
    if (!isBlock(value)) return [toHolding(name, value, sources)]
    return Object.entries(value).map(([inner, one]) => toHolding(`${name}.${inner}`, one, sources))
  })
}

function isBlock(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && Object.keys(value).length > 0
}

/** A block of which nothing is said apart has its source from the whole. */
function toHolding(name: string, value: unknown, sources: Sources): Holding {
  const source = sources?.[name] ?? sources?.[name.split('.')[0] as string]
  const setting = source?.setting ?? null
  const origin = setting !== null ? `setting ${setting}` : source === undefined ? '' : 'default'
  return { name, value: toText(value), file: source?.file ?? null, origin, setting }
}

function toText(value: unknown): string {
  if (value === null || value === undefined) return 'not set'
  if (typeof value === 'string') return value
  if (Array.isArray(value) && value.every(one => typeof one === 'string')) return value.join(', ') || 'none'
  return JSON.stringify(value)
}

/** Name under which the policy has a field of the config: its routing fields stand at the top there. */
export function toPolicyName(path: readonly string[]): string {
  const [block, name] = path
  return (block === 'invoke' || block === 'response') && name !== undefined ? name : path.join('.')
}
