/** `GET /_fn/settings`: each setting with its value and where that comes from. Owner: page control/settings. */

import { BINARY_ENV, SETTING_OPTIONS, type SettingOption } from '../config/setting-options.ts'
import type { SettingSource } from '../config/settings.ts'
import { HIDDEN } from '../core/text.ts'
import { type ControlContext, type Endpoint, endpoint, json } from './endpoint.ts'

/** Settings whose value describes this machine or the access to it, besides those that hold paths. */
const INNER: ReadonlySet<string> = new Set([
  ...['runtimeSockets', 'consoleLoginUsername', 'consoleHosts', 'consoleLocalCidrs', 'trustedProxyCidrs'],
])

export function createSettingsEndpoints({ settings, sources, configFile }: ControlContext): readonly Endpoint[] {
  const values = settings as unknown as Readonly<Record<string, unknown>>
  return [
    endpoint('GET /_fn/settings', 'read', ({ details }) => {
      const toRow = (name: string, option: SettingOption<unknown>, value: unknown): object =>
        toSettingRecord(name, option, value, toSourceRecord(sources[name], details), details)
      const rows = Object.entries(SETTING_OPTIONS).flatMap(([name, declared]) => {
        const option = declared as SettingOption<unknown>
        if (name !== 'binaries') return [toRow(name, option, values[name])]
        // Each program has a separate variable and source.
        return Object.entries(BINARY_ENV).map(([tool, variable]) => {
          const program = { ...option, env: [variable], fallback: null, locate: (path: unknown) => path }
          return toRow(`binaries.${tool}`, program, settings.binaries[tool as keyof typeof BINARY_ENV] ?? null)
        })
      })
      return json({ settings: rows, ...(details && { config_file: configFile }) })
    }),
  ]
}

function toSettingRecord(
  name: string,
  { env, flags, key, fallback, unit, section, description, secret, locate }: SettingOption<unknown>,
  value: unknown,
  source: SourceRecord,
  details: boolean,
): object {
  const isHidden = secret || (!details && (locate !== undefined || INNER.has(name)))
  return {
    ...{ name, section, env: env[0] ?? null, flag: toFlag(flags), key, unit },
    value: isHidden && value !== null ? HIDDEN : value,
    // Commands and other settings decide some: a value that is not set is the default.
    default: source.kind === 'default' && !isHidden ? value : fallback,
    ...{ source, meaning: description, secret },
  }
}

/** `--port <n>` as `--port`. */
function toFlag([words]: readonly string[]): string | null {
  return words?.split(/[ ,]/).find(word => word.startsWith('--')) ?? words ?? null
}

interface SourceRecord {
  kind: 'default' | 'flag' | 'env' | 'file' | 'dotenv' | 'option'
  /** Of the flag, the variable, the key or the option; null for a default. */
  name: string | null
  /** The file that contains it, as the gateway names it. */
  file?: string
}

function toSourceRecord(given: SettingSource | undefined, details: boolean): SourceRecord {
  if (given === undefined || given.source === 'default') return { kind: 'default', name: null }
  const { source, name } = given
  // `fngw.json: port` and `.env: FN_PORT`; a name itself has no colon.
  const colon = name.lastIndexOf(': ')
  if (colon === -1) return { kind: source, name }
  const kind = source === 'env' ? 'dotenv' : source
  return { kind, name: name.slice(colon + 2), ...(details && { file: name.slice(0, colon) }) }
}
