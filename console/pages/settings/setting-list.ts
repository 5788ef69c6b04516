/** Settings in the order of the page, and their values in words. Owner: page console/settings. */

import { formatBytes } from '../../format.ts'

interface Source {
  readonly kind: string
  readonly name: string | null
  readonly file?: string
}

/** A row of `GET /_fn/settings`. */
export interface Setting {
  readonly name: string
  readonly section: string
  readonly env: string | null
  readonly flag: string | null
  readonly key: string | null
  readonly unit: string | null
  readonly value: unknown
  readonly default: unknown
  readonly source: Source
  readonly meaning: string
}

interface Group {
  title: string
  settings: Setting[]
}

/** Changed settings first, the others by section. */
export function toGroups(settings: readonly Setting[], search: string): Group[] {
  const found = settings.filter(setting => isFound(setting, search))
  const isChanged = ({ source }: Setting): boolean => source.kind !== 'default'
  const groups: Group[] = [{ title: 'Changed', settings: found.filter(isChanged) }]
  for (const section of new Set(settings.map(({ section }) => section)))
    groups.push({ title: section, settings: found.filter(one => one.section === section && !isChanged(one)) })
  return groups.filter(group => group.settings.length > 0)
}

/** Every word has to be somewhere in it. */
function isFound(setting: Setting, search: string): boolean {
  const { name, env, flag, key, meaning, section } = setting
  const text = [name, env, flag, key, meaning, section, toValueText(setting.value, setting.unit)]
    .join(' ')
    .toLowerCase()
  return search
    .toLowerCase()
    .split(/\s+/)
    .every(word => text.includes(word))
}

export function toValueText(value: unknown, unit: string | null): string {
  if (value === null) return 'not set'
  if (Array.isArray(value)) return value.length === 0 ? 'none' : value.map(String).join(', ')
  if (typeof value === 'object') {
    const entries = Object.entries(value as object)
    return entries.length === 0 ? 'none' : entries.map(([name, one]) => `${name}=${toPlain(one)}`).join(', ')
  }
  if (typeof value !== 'number' || unit === null) return String(value)
  return unit === 'bytes' && value >= 1024 ? `${value} bytes (${formatBytes(value)})` : `${value} ${unit}`
}

function toPlain(value: unknown): string {
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}

export function toSourceText({ kind, name, file }: Source): string {
  if (kind === 'default') return 'default'
  // An option of createGateway() is called options.port.
  const word = { env: 'variable ', dotenv: 'variable ', flag: 'flag ', file: 'key ' }[kind] ?? ''
  return `${word}${name}${file === undefined ? '' : ` in ${file}`}`
}
