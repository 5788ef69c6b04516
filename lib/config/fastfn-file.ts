/** `fastfn.json`, the project file of FastFN, in the words of `fngw.json`. Owner: §2.15, page config/settings. */

import { isObject } from '../core/json.ts'
import { type Finding, keyOf, type Place, report, reportNoEffect, toPlace } from './findings.ts'

export const FASTFN_FILE = 'fastfn.json'

/** Keys that have no counterpart, with what there is instead. */
const WITHOUT_COUNTERPART: Readonly<Record<string, string>> = {
  domains: 'names and certificates are the business of the proxy in front',
}
const PROGRAMS = 'runtime-binaries'
const PROGRAMS_WITHOUT_COUNTERPART: Readonly<Record<string, string>> = { openresty: 'the gateway serves HTTP itself' }

/**
 * The content of a `fastfn.json` as that of a `fngw.json`: keys in any of its spellings become ours, those without a
 * counterpart go with a note. Values are checked later, like those of any project file.
 */
export function fromFastFn(value: unknown, label: string, findings: Finding[]): unknown {
  const at = toPlace(label, '', findings)
  report(at, 'CONFIG_FOREIGN_FILE', 'is read as the project file', 'Rename it to fngw.json.')
  if (!isObject(value)) return value
  const result: Record<string, unknown> = Object.create(null)
  for (const [key, item] of Object.entries(value)) {
    const name = toKebab(key)
    if (Object.hasOwn(WITHOUT_COUNTERPART, name)) reportNoEffect(keyOf(at, key), WITHOUT_COUNTERPART[name]!)
    else result[name] = name === PROGRAMS ? withoutForeignPrograms(item, keyOf(at, key)) : item
  }
  return result
}

/** Programs may be an object or a text such as `python=python3,openresty=/usr/bin/openresty`. */
function withoutForeignPrograms(programs: unknown, at: Place): unknown {
  const isForeign = (tool: string): boolean => {
    if (!Object.hasOwn(PROGRAMS_WITHOUT_COUNTERPART, tool)) return false
    reportNoEffect(keyOf(at, tool), PROGRAMS_WITHOUT_COUNTERPART[tool]!)
    return true
  }
  if (typeof programs === 'string') {
    const parts = programs.split(',')
    return parts.filter(part => !isForeign(part.split('=')[0]!.trim())).join(',')
  }
  if (!isObject(programs)) return programs
  return Object.fromEntries(Object.entries(programs).filter(([tool]) => !isForeign(tool)))
}

/** `functionsDir` and `functions_dir` to `functions-dir`. */
function toKebab(key: string): string {
  return key.replace(/(?<=[a-z0-9])_?([A-Z])|(?<=[a-z0-9])_(?=[a-z0-9])/g, '-$1').toLowerCase()
}
