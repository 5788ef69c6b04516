/** The text of a `.env` file to values. Owner: §2.14, page config/function-env. */

import { parseEnv } from 'node:util'
import { type Finding, keyOf, reportWrong, toPlace } from './findings.ts'

const KEY = /^[A-Za-z_][A-Za-z0-9_.-]{0,255}$/

/**
 * Reads `KEY=value` lines with quotes, comments and `export` as other tools do. A line without `=` is a finding, and so is
 * what it spoils; no finding ever holds a value.
 * @param label - name of the file in messages
 * @returns an object without prototype
 */
export function parseDotenv(text: string, label: string, findings: Finding[]): Record<string, string> {
  const values: Record<string, string> = Object.create(null)
  for (const [key, value] of Object.entries(parseEnv(text.replace(/^\uFEFF/, '')))) {
    const at = keyOf(toPlace(label, '', findings, true), key)
    if (!KEY.test(key)) reportWrong(at, 'lines of the form KEY=value', value, 'Write one KEY=value to a line.')
    else if (value === undefined || value.includes('\0')) reportWrong(at, 'a text without NUL characters', value)
    else values[key] = value
  }
  return values
}
