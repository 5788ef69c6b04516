/** Text from outside as one readable, bounded line. Owner: page observe/log-store. */

import { MAX_LOG_LINE_BYTES } from '../core/limits.ts'

/** Controls of both blocks, and the characters that start a line or turn its direction in a terminal or editor. */
const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/
const UNSAFE_ALL = new RegExp(UNSAFE.source, 'g')

const SHORT_ESCAPES: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' }

/** Escapes what would break the line or command a terminal (an attacker's escape sequences in a path). */
export function toPrintable(text: string): string {
  return UNSAFE.test(text) ? text.replace(UNSAFE_ALL, escapeCharacter) : text
}

function escapeCharacter(character: string): string {
  const short = SHORT_ESCAPES[character]
  if (short !== undefined) return short
  const code = character.charCodeAt(0)
  return code < 256 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u${code.toString(16).padStart(4, '0')}`
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
