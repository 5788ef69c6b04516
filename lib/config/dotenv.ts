/** The text of a `.env` file to values. Owner: §2.14, page config/function-env. */

import { parseEnv } from 'node:util'
import { type Finding, report, toPlace } from './findings.ts'

const KEY = /^[A-Za-z_][A-Za-z0-9_.-]{0,255}$/

/**
 * Reads `KEY=value` lines with quotes, comments and `export` as other tools do. A line of another form is a note, and so is
 * the line it spoils: files of other tools must not keep the gateway from starting. No note ever holds a value.
 * @param label - name of the file in messages
 * @returns an object without prototype
 */
export function parseDotenv(text: string, label: string, findings: Finding[]): Record<string, string> {
  const values: Record<string, string> = Object.create(null)
  const plain = text.replace(/^\uFEFF/, '')
  for (const [key, value] of Object.entries(parseEnv(plain))) {
    if (KEY.test(key) && value !== undefined && !value.includes('\0')) values[key] = value
    else {
      // The line may be a piece of a key or certificate: it is named by its number.
      const at = toPlace(label, `line ${lineOf(plain, key)}`, findings)
      const what = 'is ignored: it is not of the form KEY=value'
      report(
        at,
        'CONFIG_IGNORED_LINE',
        what,
        'Write one KEY=value to a line, and quotes around a value of several lines.',
      )
    }
  }
  return values
}

/** Number of the line that a key, or the first line of what was taken for one, stands on; from 1. */
function lineOf(text: string, key: string): number {
  const [start = ''] = key.split('\n')
  return text.split(/\r?\n/).findIndex(line => line.includes(start)) + 1
}
