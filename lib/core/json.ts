/** JSON values, and JSON text that is assembled from parts which rarely change. Owner: §2.5. */

import { orNull } from './errors.ts'

/** True for an object in the sense of JSON. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** The object of a JSON text; null for any other text. */
export function parseObject(text: string | null): Record<string, unknown> | null {
  const value: unknown = text === null ? null : orNull(() => JSON.parse(text))
  return isObject(value) ? value : null
}

/** True for a value that a reader can use. */
export type Check = (value: unknown) => boolean

/** Checks an object by its fields; it may have others. */
export function hasShape(fields: Readonly<Record<string, Check>>): Check {
  const checks = Object.entries(fields)
  return value => isObject(value) && checks.every(([name, check]) => check(value[name]))
}

/** What JSON escapes: quote, backslash, controls; lone surrogates are left to JSON.stringify as well. */
const NEEDS_ESCAPE = /["\\\u0000-\u001f\ud800-\udfff]/

/** A string as JSON text; half the time of JSON.stringify for text without special characters. */
export function toJsonString(text: string): string {
  return NEEDS_ESCAPE.test(text) ? JSON.stringify(text) : `"${text}"`
}

/** A record of strings as JSON text. Names are plain data: `__proto__` is an ordinary key of the text. */
export function toJsonRecord(record: Readonly<Record<string, string>>): string {
  let text = ''
  for (const name in record) text += `${text === '' ? '{' : ','}${toJsonString(name)}:${toJsonString(record[name]!)}`
  return text === '' ? '{}' : `${text}}`
}
