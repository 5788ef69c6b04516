/** The text of a `.env` file to values. Owner: §2.14, page config/function-env. */

import { parseEnv } from 'node:util'
import { type Finding, report, toPlace } from './findings.ts'

const ENTRY = /^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]{0,255})\s*=\s*(.*)$/
const BLANK = /^\s*(#.*)?$/

/**
 * Reads `KEY=value` lines with quotes, comments and `export` as other tools do. A line of another form is a note and left
 * out, no problem: files of other tools must not keep the gateway from starting. No note holds anything of the line.
 * @param label - name of the file in messages
 * @returns an object without prototype
 */
export function parseDotenv(text: string, label: string, findings: Finding[]): Record<string, string> {
  const values: Record<string, string> = Object.create(null)
  const entries = keepEntries(text.replace(/^\uFEFF/, ''), number => reportLine(label, number, findings))
  for (const [key, value] of Object.entries(parseEnv(entries))) if (value !== undefined) values[key] = value
  return values
}

function reportLine(label: string, number: number, findings: Finding[]): void {
  // The line may be a piece of a key or certificate, so it is named by its number.
  const hint = 'Write one KEY=value to a line, and quotes around a value of several lines.'
  report(
    toPlace(label, `line ${number}`, findings),
    'CONFIG_IGNORED_LINE',
    'is ignored: it is not of the form KEY=value',
    hint,
  )
}

/** The text without lines of another form: versions of Node differ in what they make of those. */
function keepEntries(text: string, onOther: (lineNumber: number) => void): string {
  const lines = text.split(/\r\n|\n|\r/)
  const kept: string[] = []
  for (let index = 0; index < lines.length; index++) {
    const line = lines[index]!
    const value = ENTRY.exec(line)?.[2]
    if (value === undefined || line.includes('\0')) {
      if (!BLANK.test(line)) onOther(index + 1)
      continue
    }
    const end = lastLineOf(value, lines, index)
    kept.push(...lines.slice(index, end + 1))
    index = end
  }
  return kept.join('\n')
}

/** Index of the line that closes the quotes a value opens; that of the value when nothing is open. */
function lastLineOf(value: string, lines: readonly string[], index: number): number {
  const quote = value[0]
  if (quote !== '"' && quote !== "'" && quote !== '`') return index
  if (value.includes(quote, 1)) return index
  const end = lines.findIndex((line, at) => at > index && line.includes(quote))
  return end < 0 ? index : end
}
