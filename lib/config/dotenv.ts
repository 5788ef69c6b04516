/** The text of a `.env` file to values. Owner: §2.14, page config/function-env. */

import { parseEnv } from 'node:util'
import { type Finding, keyOf, report, toPlace } from './findings.ts'

const KEY = /^[A-Za-z_][A-Za-z0-9_.-]{0,255}$/

/**
 * Reads `KEY=value` lines with quotes, comments and `export` as other tools do. A line of another form is a note, and so is
 * the line it spoils: files of other tools must not keep the gateway from starting. No note ever holds a value.
 * @param label - name of the file in messages
 * @returns an object without prototype
 */
export function parseDotenv(text: string, label: string, findings: Finding[]): Record<string, string> {
  const values: Record<string, string> = Object.create(null)
  for (const [key, value] of Object.entries(parseEnv(text.replace(/^\uFEFF/, '')))) {
    if (KEY.test(key) && value !== undefined && !value.includes('\0')) values[key] = value
    else {
      const at = keyOf(toPlace(label, '', findings, true), key)
      const text = 'is ignored: it is no line of the form KEY=value'
      report(at, 'CONFIG_IGNORED_LINE', text, 'Write one KEY=value to a line.')
    }
  }
  return values
}
