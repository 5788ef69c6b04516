/** What `PUT /_fn/function-env` makes of a file: keys are set, kept or taken out. Owner: page control/function-env. */

import { isObject } from '../core/json.ts'
import type { FileChange } from './config-change.ts'
import { HIDDEN } from '../core/text.ts'
import { isSecretName, parseFunctionEnvValue } from './function-env.ts'
import { editJsonObject, findIndent, findJsonValue, toJsonAt } from './json-edit.ts'

type Json = Record<string, unknown>

/** What the file says of a key. */
interface Known {
  value: unknown
  isSecret: boolean
  /** Written as `{ value, is_secret }`. */
  isObject: boolean
}

/**
 * @param text - of the file that is there, which is a JSON object; null when there is none
 * @param body - keys to scalars, `{ value, is_secret }` or null
 * @param foreign - keys whose values come from elsewhere: one that is sent back hidden stays theirs
 */
export function changeEnv(text: string | null, body: Json, foreign: ReadonlySet<string>): FileChange {
  const found = parseFunctionEnvValue(body, 'body').problems
  const problems = found.filter(({ code }) => code === 'CONFIG_VALUE').map(({ message }) => message)
  const warnings = found.filter(({ code }) => code !== 'CONFIG_VALUE').map(({ message }) => message)
  const indent = findIndent(text)
  const edits = new Map<string, string | null>()
  for (const [key, given] of Object.entries(body)) {
    if (key === '$schema') continue
    const known = readKnown(text, key)
    const next = toNext(key, given, known, foreign.has(key))
    if (next === 'kept') continue
    if (typeof next === 'string') problems.push(`body: ${JSON.stringify(key.slice(0, 60))} ${next}`)
    else edits.set(key, next.value === null ? null : toJsonAt(next.value, indent, 1))
  }
  if (problems.length > 0) return { ok: false, problems }
  return { ok: true, text: `${editJsonObject(text, edits, indent)}\n`, warnings }
}

/** The JSON a key gets, null to take it out; `kept` when it stays as it is; else what is wrong. */
function toNext(key: string, given: unknown, known: Known | null, isForeign: boolean): { value: unknown } | string {
  const { value, is_secret: flag } = isObject(given) ? given : { value: given, is_secret: undefined }
  if (value === null || value === undefined) return { value: null }
  const wasSecret = known?.isSecret ?? isSecretName(key)
  const isSecret = typeof flag === 'boolean' ? flag : wasSecret
  if (value === HIDDEN) {
    if (known === null)
      return isForeign ? 'kept' : `is new, and ${HIDDEN} stands for a value that is there: give the value`
    // Else whoever may write could read every secret.
    if (wasSecret && !isSecret) return 'cannot be shown from now on without its value: give the value too'
    if (isSecret === wasSecret) return 'kept'
  }
  const next = value === HIDDEN ? known!.value : value
  const isPlain = flag === undefined && known?.isObject !== true && isSecret === isSecretName(key)
  return { value: isPlain ? next : { value: next, is_secret: isSecret } }
}

function readKnown(text: string | null, key: string): Known | null {
  const valueText = text === null ? null : findJsonValue(text, key)
  if (valueText === null) return null
  const entry = JSON.parse(valueText) as unknown
  if (!isObject(entry)) return entry === null ? null : { value: entry, isSecret: isSecretName(key), isObject: false }
  if (entry.value === null || entry.value === undefined) return null
  // A flag that is none hides the value, as it does where the file is read.
  const isSecret =
    entry.is_secret === undefined || entry.is_secret === null ? isSecretName(key) : entry.is_secret !== false
  return { value: entry.value, isSecret, isObject: true }
}
