/**
 * The environment of a function from all its sources. Spec: §2.14.
 *
 *   .env, .env.local of the project  <  .env of the function  <  fn.env.json  <  variables of the gateway's process
 *
 * The last one gives no keys of its own: it replaces values of keys that one of the files names.
 */

import type { EnvValue } from '../core/catalog.ts'
import { type HostEnv, isFunctionHostVariable } from '../core/host.ts'
import { type DeclaredEnv, isSecretName } from './function-env.ts'
import { BINARY_ENV, SETTING_OPTIONS, type SettingOption } from './setting-options.ts'

/** What comes from outside the functions root. The same object as long as nothing in it changed. */
export interface OuterEnv {
  /** Values of the project's env files, for every function. */
  readonly defaults: Readonly<Record<string, string>>
  /** Variables of the gateway's process. */
  readonly process: HostEnv
}

export const NO_OUTER_ENV: OuterEnv = Object.freeze({ defaults: {}, process: {} })

const SETTING_VARIABLES: ReadonlySet<string> = new Set([
  ...(Object.values(SETTING_OPTIONS) as SettingOption<unknown>[]).flatMap(option => option.env),
  ...Object.values(BINARY_ENV),
])

/** True for a variable that steers the gateway: it may hold its secrets and is never handed to a function. */
function isGatewayVariable(name: string): boolean {
  return name.startsWith('FN_') || SETTING_VARIABLES.has(name)
}

/** The values of the project's env files that functions get: all but those that steer the gateway. */
export function toFunctionDefaults(values: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(values).filter(([name]) => !isGatewayVariable(name)))
}

/** One file's declarations over another's: the upper entry counts whole, its null included. */
export function mergeDeclared(lower: DeclaredEnv, upper: DeclaredEnv): DeclaredEnv {
  const merged: Record<string, EnvValue | null> = Object.create(null)
  for (const declared of [lower, upper]) for (const key of Object.keys(declared)) merged[key] = declared[key]!
  return merged
}

/** Values of a `.env` file as declarations; which of them are secret their names say. */
export function toDeclared(values: Readonly<Record<string, string>>): DeclaredEnv {
  const declared: Record<string, EnvValue | null> = Object.create(null)
  for (const [key, value] of Object.entries(values)) declared[key] = { value, isSecret: isSecretName(key) }
  return declared
}

/** What a handler gets. A key that a file sets to null is left out, whoever else has it. */
export function toFunctionEnv(declared: DeclaredEnv, outer: OuterEnv): Readonly<Record<string, EnvValue>> {
  const env: Record<string, EnvValue> = Object.create(null)
  const all = mergeDeclared(toDeclared(outer.defaults), declared)
  for (const key of Object.keys(all)) {
    const entry = all[key]
    if (entry == null) continue
    env[key] = { value: readProcess(key, outer.process) ?? entry.value, isSecret: entry.isSecret }
  }
  return Object.freeze(env)
}

/**
 * The value that the gateway's process has for a key of a function, if it may replace the function's. Variables that every
 * process has (`PATH`, `HOME`, `TZ`) do not: a function that sets one means its own. A blank one counts as unset, as for
 * settings.
 */
function readProcess(key: string, process: HostEnv): string | null {
  const value = Object.hasOwn(process, key) ? process[key] : undefined
  if (value === undefined || value.trim() === '') return null
  return isGatewayVariable(key) || isFunctionHostVariable(key) ? null : value
}
