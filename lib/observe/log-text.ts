/** Text from outside as one readable, bounded line. Owner: page observe/log-store. */

import { escapeUnsafe, toUnicodeEscape } from '../core/text.ts'

/** Bytes of one log line. */
export const MAX_LOG_LINE_BYTES = 8 * 1024

const SHORT_ESCAPES: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '  ' }

/** Escapes what would break the line or command a terminal (an attacker's escape sequences in a path). */
export function toPrintable(text: string): string {
  return escapeUnsafe(text, escapeCharacter)
}

function escapeCharacter(character: string): string {
  const short = SHORT_ESCAPES[character]
  if (short !== undefined) return short
  const code = character.charCodeAt(0)
  return code < 256 ? `\\x${code.toString(16).padStart(2, '0')}` : toUnicodeEscape(character)
}

/** A printable line of at most MAX_LOG_LINE_BYTES in UTF-8; what is cut off is said at its end. */
export function toLogLine(text: string): string {
  // No character is escaped to more than six, so a far longer text need not be looked at whole.
  const isCutEarly = text.length > MAX_LOG_LINE_BYTES
  const line = toPrintable(isCutEarly ? text.slice(0, MAX_LOG_LINE_BYTES) : text)
  if (!isCutEarly && line.length * 3 <= MAX_LOG_LINE_BYTES) return line
  if (!isCutEarly && Buffer.byteLength(line) <= MAX_LOG_LINE_BYTES) return line
  const note = '... (cut)'
  const bytes = Buffer.from(line).subarray(0, MAX_LOG_LINE_BYTES - note.length)
  // A character cut in two decodes to one replacement mark of three bytes: it goes.
  return `${bytes.toString('utf8').replace(/\ufffd$/, '')}${note}`
}
