/**
 * Changes of config files by `PUT /_fn/function-config` and `PUT /_fn/function-env`: the given fields are checked and merged in, everything
 * else stays. Owner: pages control/function-config and control/function-env.
 */

import type { Warning } from '../core/errors.ts'
import { isObject } from '../core/json.ts'
import { HIDDEN } from '../core/text.ts'
import { CONFIG_FIELDS, INVOKE_FIELDS } from './function-config-fields.ts'
import { isProblem } from './fields.ts'
import { parseFunctionConfig, parseFunctionConfigValue } from './function-config.ts'
import { isSecretName, parseFunctionEnvValue } from './function-env.ts'
import { editJsonObject, findIndent, findJsonValue, toJsonAt } from './json-text.ts'

/** The new text of a file, or the reasons why it stays as it is. */
export type FileChange =
  | {
      ok: true
      text: string
      /** Values that were not used as given. */
      warnings: string[]
    }
  | { ok: false; problems: string[] }

type Fields = Readonly<Record<string, { readonly aliases: readonly string[] }>>
type Json = Record<string, unknown>

/** Fields of the top level that mean one of a block, which then wins: they are written there. */
const NESTED: readonly (readonly [key: string, block: 'invoke' | 'response'])[] = [
  ['methods', 'invoke'],
  ['routes', 'invoke'],
  ['force-url', 'invoke'],
  ['include_debug_headers', 'response'],
]
const BLOCKS = { invoke: INVOKE_FIELDS, response: { include_debug_headers: CONFIG_FIELDS.include_debug_headers } }

/**
 * @param text - of the file that is there, which is a JSON object; null when there is none
 * @param body - fields to set; null takes one out. `invoke` and `response` are merged field by field, all others replaced whole
 * @param label - name of the file in messages
 */
export function changeConfig(text: string | null, body: Json, label: string): FileChange {
  const { problems, warnings } = split(parseFunctionConfigValue(body, 'body').warnings)
  for (const block of ['invoke', 'response'])
    if (Object.hasOwn(body, block) && !isObject(body[block]) && body[block] !== null)
      problems.add(`body: ${block} must be an object`)
  if (problems.size > 0) return { ok: false, problems: [...problems] }
  const indent = findIndent(text)
  const changed = `${editJsonObject(text, toEdits(text, toNested(toKnown(body, CONFIG_FIELDS)), indent), indent)}\n`
  // A valid value may conflict with the rest of the file, and a file with a problem would not come into force.
  const broken = split(parseFunctionConfig(changed, label).warnings).problems
  if (broken.size > 0) return { ok: false, problems: [...broken] }
  return { ok: true, text: changed, warnings }
}

/** Messages of values that are wrong, and of those that are used otherwise than given. */
function split(found: readonly Warning[]): { problems: Set<string>; warnings: string[] } {
  const messagesOf = (areProblems: boolean) =>
    found.filter(one => isProblem(one) === areProblems).map(({ message }) => message)
  return { problems: new Set(messagesOf(true)), warnings: messagesOf(false) }
}

/** The known fields under their own names: unknown ones were reported and are not written. */
function toKnown(value: Json, fields: Fields): Json {
  const known: Json = Object.create(null)
  for (const [name, { aliases }] of Object.entries(fields)) {
    const key = [name, ...aliases].find(spelling => Object.hasOwn(value, spelling))
    if (key !== undefined) known[name] = value[key]
  }
  return known
}

function toNested(body: Json): Json {
  const result: Json = { ...body }
  for (const block of ['invoke', 'response'] as const) {
    if (isObject(result[block])) result[block] = toKnown(result[block], BLOCKS[block])
  }
  for (const [key, block] of NESTED) {
    if (!Object.hasOwn(result, key)) continue
    const inner = result[block] ?? {}
    if (isObject(inner) && !Object.hasOwn(inner, key)) result[block] = { ...inner, [key]: result[key] }
    delete result[key]
  }
  return result
}

/** Edits at the top level of the file. */
function toEdits(text: string | null, body: Json, indent: string): Map<string, string | null> {
  const edits = new Map<string, string | null>()
  for (const [key, value] of Object.entries(body)) {
    for (const alias of aliasesOf(CONFIG_FIELDS, key)) edits.set(alias, null)
    if (key !== 'invoke' && key !== 'response') edits.set(key, value === null ? null : toJsonAt(value, indent, 1))
    else edits.set(key, value === null ? null : toBlock(text, key, value as Json, indent))
    for (const [outer, block] of NESTED) {
      const isTaken = block === key && (value === null || Object.hasOwn(value as Json, outer))
      if (isTaken) for (const name of [outer, ...aliasesOf(CONFIG_FIELDS, outer)]) edits.set(name, null)
    }
  }
  return edits
}

/** A block of the file with some fields changed; null when nothing is left of it. */
function toBlock(text: string | null, block: 'invoke' | 'response', value: Json, indent: string): string | null {
  const edits = new Map<string, string | null>()
  for (const [key, field] of Object.entries(value)) {
    for (const alias of aliasesOf(BLOCKS[block], key)) edits.set(alias, null)
    edits.set(key, field === null ? null : toJsonAt(field, indent, 2))
  }
  // Both are joined when the file is read: who sets the list means the list.
  if (edits.has('routes') && !edits.has('route')) edits.set('route', null)
  const old = text === null ? null : findJsonValue(text, block)
  const changed = editJsonObject(old?.startsWith('{') === true ? old : null, edits, indent, 1)
  return changed === '{}' ? null : changed
}

function aliasesOf(fields: Fields, key: string): readonly string[] {
  return fields[key]?.aliases ?? []
}

/** The entry of a key in the file. */
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
  const { problems, warnings } = split(parseFunctionEnvValue(body, 'body').warnings)
  const indent = findIndent(text)
  const edits = new Map<string, string | null>()
  for (const [key, given] of Object.entries(body)) {
    if (key === '$schema') continue
    const known = readKnown(text, key)
    const next = toNext(key, given, known, foreign.has(key))
    if (next === 'kept') continue
    if (typeof next === 'string') problems.add(`body: ${JSON.stringify(key.slice(0, 60))} ${next}`)
    else edits.set(key, next.value === null ? null : toJsonAt(next.value, indent, 1))
  }
  if (problems.size > 0) return { ok: false, problems: [...problems] }
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
    // Otherwise a caller with write access could read every secret.
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
  const given = JSON.parse(valueText) as unknown
  const value = isObject(given) ? given.value : given
  if (value === null || value === undefined) return null
  // A flag that is none hides the value, as it does where the file is read.
  const flag = isObject(given) ? (given.is_secret ?? undefined) : undefined
  return { value, isSecret: flag === undefined ? isSecretName(key) : flag !== false, isObject: isObject(given) }
}
