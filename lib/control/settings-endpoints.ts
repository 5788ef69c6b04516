/** `GET /_fn/settings`: each setting with its value and where that comes from. Owner: page control/settings. */

import { BINARY_ENV, SETTING_OPTIONS, type SettingOption } from '../config/setting-options.ts'
import type { SettingSource } from '../config/settings.ts'
import { HIDDEN } from '../core/text.ts'
import { type ControlContext, type Endpoint, READ } from './endpoint.ts'

/** Settings whose value describes this machine or the access to it, besides those that hold paths. */
const INNER: ReadonlySet<string> = new Set([
  'runtimeSockets',
  'consoleLoginUsername',
  'consoleHosts',
  'consoleLocalCidrs',
  'trustedProxyCidrs',
])

export function createSettingsEndpoints(context: ControlContext): readonly Endpoint[] {
  return [
    {
      method: 'GET',
      path: '/_fn/settings',
      access: READ,
      handle: ({ details }) => ({ status: 200, body: toSettingsRecord(context, details) }),
    },
  ]
}

function toSettingsRecord({ settings, sources, configFile }: ControlContext, details: boolean): object {
  const rows = Object.entries(SETTING_OPTIONS).flatMap(([name, option]) => {
    const value = (settings as unknown as Record<string, unknown>)[name]
    const row = { option: option as SettingOption<unknown>, sources, details }
    return name === 'binaries'
      ? toProgramRecords(row, value as Readonly<Record<string, string>>)
      : [toSettingRecord(row, name, value)]
  })
  return { settings: rows, ...(details && { config_file: configFile }) }
}

interface Row {
  option: SettingOption<unknown>
  sources: ControlContext['sources']
  details: boolean
}

function toSettingRecord({ option, sources, details }: Row, name: string, value: unknown): object {
  const { env, flags, key, fallback, unit, section, description, secret, locate } = option
  const source = toSourceRecord(sources[name], details)
  const isHidden = secret || (!details && (locate !== undefined || INNER.has(name)))
  return {
    ...{ name, section, env: env[0] ?? null, flag: toFlag(flags), key, unit },
    value: isHidden && value !== null ? HIDDEN : value,
    // Commands and other settings decide some: a value that is not set is the default.
    default: source.kind === 'default' && !isHidden ? value : fallback,
    ...{ source, meaning: description, secret },
  }
}

/** The programs of `binaries`; each has a separate variable and source. */
function toProgramRecords(row: Row, programs: Readonly<Record<string, string>>): object[] {
  return Object.entries(BINARY_ENV).map(([tool, variable]) => {
    const option = { ...row.option, env: [variable], fallback: null, locate: (path: unknown) => path }
    return toSettingRecord({ ...row, option }, `binaries.${tool}`, programs[tool] ?? null)
  })
}

/** `--port <n>` as `--port`. */
function toFlag(flags: readonly string[]): string | null {
  const [words] = flags
  return words?.split(/[ ,]/).find(word => word.startsWith('--')) ?? words ?? null
}

interface SourceRecord {
  kind: 'default' | 'flag' | 'env' | 'file' | 'dotenv' | 'option'
  /** Of the flag, the variable, the key or the option; null for a default. */
  name: string | null
  /** The file that it stands in, as the gateway names it. */
  file?: string
}

function toSourceRecord(given: SettingSource | undefined, details: boolean): SourceRecord {
  if (given === undefined || given.source === 'default') return { kind: 'default', name: null }
  const { source, name } = given
  // `fngw.json: port` and `.env: FN_PORT`; a name itself has no colon.
  const colon = name.lastIndexOf(': ')
  if (colon === -1) return { kind: source, name }
  const file = details ? { file: name.slice(0, colon) } : {}
  return { kind: source === 'env' ? 'dotenv' : source, name: name.slice(colon + 2), ...file }
}
