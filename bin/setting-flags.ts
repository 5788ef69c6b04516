/** Settings as flags of a command, each with its default and its variable. Owner: page bin/dev. */

import { type Command, Option } from 'commander'
import { SETTING_OPTIONS, type SettingOption } from '../lib/config/setting-options.ts'

const SHORT: Readonly<Record<string, string>> = { port: '-p' }

interface FlagChoice {
  /** Defaults of this command, over those of the settings. */
  defaults: Readonly<Record<string, unknown>>
  /** Names of the settings that matter to the command; null for all. Others are taken and not shown. */
  shown: readonly string[] | null
  /** The description of a setting for this command, if it differs from the setting's own. */
  descriptions?: Readonly<Record<string, string>>
}

/** Adds every setting that has a flag; unset ones stay away, so that environment and file come through. */
export function addSettingFlags(command: Command, { defaults, shown, descriptions = {} }: FlagChoice): Command {
  for (const [name, option] of Object.entries(SETTING_OPTIONS) as [string, SettingOption<unknown>][]) {
    const described = { ...option, description: descriptions[name] ?? option.description }
    const value = Object.hasOwn(defaults, name) ? defaults[name] : option.fallback
    for (const flag of option.flags) {
      if (!flag.startsWith('--')) continue
      const added = new Option(toSpelling(name, flag), toDescription(flag, described, value))
      // `--no-console` sets uiEnabled.
      added.attributeName = () => name
      if (shown?.includes(name) === false || isDefault(flag, value)) added.hideHelp()
      command.addOption(added)
    }
  }
  return command.option('--config <file>', 'Project file to use instead of fngw.json.')
}

/** Settings as typed on the command line, by setting name. */
export function toFlags(command: Command): Record<string, unknown> {
  const flags: Record<string, unknown> = {}
  for (const [name, value] of Object.entries(command.opts<Record<string, unknown>>())) {
    if (name in SETTING_OPTIONS && command.getOptionValueSource(name) === 'cli') flags[name] = value
  }
  return flags
}

function toSpelling(name: string, flag: string): string {
  const short = SHORT[name]
  return short === undefined ? flag : `${short}, ${flag}`
}

/** True for a switch that says what holds anyway. */
function isDefault(flag: string, value: unknown): boolean {
  if (flag.includes('<')) return false
  return value === !flag.startsWith('--no-')
}

function toDescription(
  flag: string,
  { description, offDescription, env, unit }: SettingOption<unknown>,
  value: unknown,
): string {
  const text = flag.startsWith('--no-') ? (offDescription ?? description) : description
  const shown = flag.includes('<') ? toShown(value) : null
  const facts = [
    ...(shown === null ? [] : [`default ${shown}${unit === null ? '' : ` ${unit}`}`]),
    // The first one counts; the others are its aliases.
    ...(env[0] === undefined ? [] : [env[0]]),
  ]
  return facts.length === 0 ? text : `${text} (${facts.join('; ')})`
}

/** A default as it would be typed; null for none and for what is empty. */
function toShown(value: unknown): string | null {
  if (value === null || value === undefined) return null
  if (Array.isArray(value)) return value.length === 0 ? null : value.join(',')
  if (typeof value === 'object') return Object.keys(value).length === 0 ? null : JSON.stringify(value)
  return String(value)
}
