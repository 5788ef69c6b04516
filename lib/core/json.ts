/** JSON values, and JSON text put together from parts that are mostly text that never changes. Owner: §2.5. */

/** True for what JSON calls an object. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** The object that a JSON text is; null for any other text. */
export function parseObject(text: string | null): Record<string, unknown> | null {
  if (text === null) return null
  try {
    const value: unknown = JSON.parse(text)
    return isObject(value) ? value : null
  } catch {
    return null
  }
}

/** What JSON escapes: quote, backslash, controls; lone surrogates are left to JSON.stringify as well. */
const NEEDS_ESCAPE = /["\\\u0000-\u001f\ud800-\udfff]/

/** A string as JSON text; half the time of JSON.stringify for text without special characters. */
export function toJsonString(text: string): string {
  return NEEDS_ESCAPE.test(text) ? JSON.stringify(text) : `"${text}"`
}

export function toJsonStringOrNull(text: string | null): string {
  return text === null ? 'null' : toJsonString(text)
}

/** A record of strings as JSON text. Names are plain data: `__proto__` is an ordinary key of the text. */
export function toJsonRecord(record: Readonly<Record<string, string>>): string {
  let text = ''
  for (const name in record) text += `${text === '' ? '{' : ','}${toJsonString(name)}:${toJsonString(record[name]!)}`
  return text === '' ? '{}' : `${text}}`
}
