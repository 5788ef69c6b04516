/** Which names a person may have meant. Owner: page bin/invoke. */

import { nearest } from '../lib/config/fields.ts'

/** Maximum number of names that are listed; shorter lists are printed whole when no name is similar. */
const MAX_TOLD = 10

interface NamesRecord {
  runtimes?: Record<string, { functions?: { name: string; versions: string[] }[] }>
}

/**
 * Continues "unknown function or version".
 * @param catalog - as `GET /_fn/catalog` answers
 */
export function toNameHint(wanted: string, catalog: unknown): string {
  const functions = Object.values((catalog as NamesRecord).runtimes ?? {}).flatMap(runtime => runtime.functions ?? [])
  const names = [...new Set(functions.map(({ name }) => name))].sort()
  if (names.length === 0) return 'there are no functions here'
  if (names.includes(wanted)) {
    const versions = functions.filter(({ name }) => name === wanted).flatMap(one => one.versions)
    return `its versions: ${['default', ...versions].slice(0, MAX_TOLD).join(', ')}`
  }
  const near = names.filter(name => name.toLowerCase().includes(wanted.toLowerCase()))
  const likely = nearest(wanted, names)
  if (near.length === 0 && likely !== null) near.push(likely)
  if (near.length > 0) return `did you mean ${near.slice(0, MAX_TOLD).join(', ')}?`
  return names.length <= MAX_TOLD ? `there are ${names.join(', ')}` : 'fngw routes lists what there is'
}
