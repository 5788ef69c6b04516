/** fn.config.json as text, as values, and as the change that the gateway is asked for. Owner: page console/function. */

export type Config = Readonly<Record<string, unknown>>

export const toConfigText = (config: Config | null): string => `${JSON.stringify(config ?? {}, null, 2)}\n`

/** @returns the values, or the line and what is wrong there */
export function parseConfigText(text: string): { config: Config } | { line: number; message: string } {
  try {
    const value: unknown = JSON.parse(text)
    if (isObject(value)) return { config: value }
    return { line: 1, message: 'must be an object: { ... }' }
  } catch (error) {
    const { message } = error as Error
    const line = /line (\d+)/.exec(message)?.[1]
    const position = /position (\d+)/.exec(message)?.[1]
    // Browsers give no position for the end of a text.
    const at = position === undefined ? text.length : Number(position)
    return { line: line === undefined ? text.slice(0, at).split('\n').length : Number(line), message }
  }
}

function isObject(value: unknown): value is Config {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

export function getField(config: Config, path: readonly string[]): unknown {
  let value: unknown = config
  for (const name of path) value = isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined
  return value
}

/** @param value - undefined takes the field out; a block that has nothing left goes too */
export function setField(config: Config, path: readonly string[], value: unknown): Config {
  const [name, ...rest] = path as [string, ...string[]]
  const { [name]: before, ...others } = config
  const next = rest.length === 0 ? value : setField(isObject(before) ? before : {}, rest, value)
  const isGone = next === undefined || (rest.length > 0 && isObject(next) && Object.keys(next).length === 0)
  if (isGone) return others
  // A field keeps its place in the file.
  return Object.hasOwn(config, name) ? { ...config, [name]: next } : { ...others, [name]: next }
}

/** Blocks that the gateway merges field by field; all others it replaces. */
const MERGED = new Set(['invoke', 'response'])

/** What `PUT /_fn/function-config` is sent: fields that changed, null for those that are gone. */
export function toChange(before: Config, after: Config): Record<string, unknown> {
  const change: Record<string, unknown> = {}
  for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const [old, next] = [before[name], after[name]]
    if (isSame(old, next)) continue
    if (MERGED.has(name) && isObject(old) && (isObject(next) || next === undefined)) {
      change[name] = toChange(old, next ?? {})
    } else change[name] = next ?? null
  }
  return change
}

function isSame(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other)
}

/** Error messages by field name; '' has those about no field. */
export function parseRefusal(message: string): Map<string, string> {
  const found = new Map<string, string>()
  for (const part of message.split(/; (?=(?:body|[^\s;:]+\.json): )/)) {
    const match = /^(?:body|\S+\.json): ([a-zA-Z_$][\w$-]*(?:\.[\w$-]+|\[\d+\])*) (.+)$/s.exec(part)
    const field = match?.[1]?.replace(/\[\d+\]/g, '').replace(/\.\d+(?=\.|$)/g, '') ?? ''
    const text = match?.[2] ?? part
    found.set(field, found.has(field) ? `${found.get(field)}; ${text}` : text)
  }
  return found
}

/** Line of a field in the text, from 1; that of the block when the field is not there. */
export function lineOfField(text: string, name: string): number {
  let at = 0
  for (const key of name.split('.')) {
    const found = text.indexOf(`${JSON.stringify(key)}:`, at)
    if (found === -1) break
    at = found
  }
  return text.slice(0, at).split('\n').length
}
