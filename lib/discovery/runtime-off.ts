/** Handler files of languages that are not enabled. Owner: §2.2, page discovery/layouts. */

import type { IgnoredPath } from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import { RUNTIME_OF_EXTENSION, type RuntimeName } from '../core/identity.ts'

/** Files named in one warning. */
const MAX_NAMED_FILES = 5

/** Why a file of a language that is off is ignored. */
export function toOffReason(runtime: RuntimeName): string {
  return `the runtime ${runtime} is not enabled in FN_RUNTIMES`
}

/** What to type: with all that is on now, because a list turns off what it does not name. */
export function toTurnOnHint(runtimes: Iterable<RuntimeName>): string {
  const names = [...runtimes]
  const all = names.join(',')
  return `Turn it on: --runtimes ${all} (FN_RUNTIMES=${all}), or "runtimes": ${JSON.stringify(names)} in fngw.json.`
}

/**
 * One warning for all files of languages that are neither enabled nor disabled.
 * @param enabled - runtimes that are on by default
 */
export function toOffWarnings(ignored: readonly IgnoredPath[], enabled: readonly RuntimeName[]): Warning[] {
  const runtimes = new Set<RuntimeName>()
  const paths: string[] = []
  for (const { path, reason } of ignored) {
    const runtime = RUNTIME_OF_EXTENSION.get(path.slice(path.lastIndexOf('.')))
    if (runtime === undefined || reason !== toOffReason(runtime)) continue
    runtimes.add(runtime)
    paths.push(path)
  }
  const [first] = paths
  if (first === undefined) return []
  const rest = paths.length > MAX_NAMED_FILES ? ` and ${paths.length - MAX_NAMED_FILES} more` : ''
  const named = `${paths.slice(0, MAX_NAMED_FILES).join(', ')}${rest}`
  const message = `${[...runtimes].join(' and ')} ${runtimes.size > 1 ? 'are' : 'is'} not enabled by default; not served: ${named}`
  return [{ code: 'RUNTIME_OFF', path: first, message, hint: toTurnOnHint([...enabled, ...runtimes]) }]
}
