/** Names of settings that nothing reads: a typing error would otherwise be a silent default. Owner: §2.15. */

import { relative } from 'node:path'
import { type Finding, keyOf, reportNoEffect, reportUnknownKey, toPlace } from './findings.ts'
import { BINARY_ENV, ENV_WITHOUT_EFFECT, SETTING_OPTIONS } from './setting-options.ts'

/** Options of `createGateway` that are no settings. */
const HOST_OPTIONS = ['env', 'project', 'cwd', 'clock', 'inspect', 'flags', 'defaults', 'beforeStart']
const ROWS = Object.values(SETTING_OPTIONS)

interface GivenVariables {
  env?: Readonly<Record<string, string | undefined>>
  /** Variables that come from an env file, with its full path. */
  envFiles?: Readonly<Record<string, string>>
  cwd: string
}

/** Of all variables only those that begin with `FN_` are meant for the gateway. */
export function checkVariableNames({ env = {}, envFiles = {}, cwd }: GivenVariables): Finding[] {
  const findings: Finding[] = []
  const known = new Set([...ROWS.flatMap(row => [...row.env]), ...Object.values(BINARY_ENV)])
  for (const variable of Object.keys(env).sort()) {
    if (!variable.startsWith('FN_') || known.has(variable) || env[variable] === undefined) continue
    const file = Object.hasOwn(envFiles, variable) ? relative(cwd, envFiles[variable]!) : null
    const at = toPlace(file, variable, findings)
    const why = Object.hasOwn(ENV_WITHOUT_EFFECT, variable) ? ENV_WITHOUT_EFFECT[variable] : undefined
    if (why === undefined) reportUnknownKey(at, variable, known, 'variable')
    else reportNoEffect(at, why)
  }
  return findings
}

/** Keys of the project file; a newer version may know them, so none is a problem. */
export function checkFileKeys(file: Readonly<Record<string, unknown>>, fileLabel: string): Finding[] {
  const findings: Finding[] = []
  const known = ROWS.flatMap(row => (row.key === null ? [] : [row.key, ...row.keyAliases]))
  for (const key of Object.keys(file)) {
    if (key === '$schema' || known.includes(key)) continue
    reportUnknownKey(keyOf(toPlace(fileLabel, '', findings), key), key, known)
  }
  return findings
}

/** Options in code: an unknown one is a problem, because the programmer sees it at once. */
export function checkOptionNames(options: Readonly<Record<string, unknown>>): Finding[] {
  const findings: Finding[] = []
  const known = [...Object.keys(SETTING_OPTIONS), ...HOST_OPTIONS]
  for (const name of Object.keys(options)) {
    if (Object.hasOwn(SETTING_OPTIONS, name)) continue
    reportUnknownKey(toPlace(null, `options.${name}`, findings), name, known, 'option', true)
  }
  return findings
}
