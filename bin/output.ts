/** Where words go: results to standard output, everything for people to standard error. Owner: page bin/dev. */

import type { Writable } from 'node:stream'
import { styleText } from 'node:util'
import { toPrintable } from '../lib/observe/log-line.ts'

type Style = Parameters<typeof styleText>[0]

/** Bytes that may wait for a reader of standard error; what comes after that is left out. */
const MAX_WAITING_BYTES = 4 * 1024 * 1024

/** To the start of the line, and empties it. */
const CLEAR_LINE = '\r\u001b[2K'

export interface Output {
  readonly stdout: Writable
  /** True where a person reads standard output. */
  readonly isTerminal: boolean
  /** A result: the line that a program may read. */
  result(line: string): void
  /** Words for a person. */
  note(text: string): void
  /** True where a line can be drawn over again. */
  readonly hasStatus: boolean
  /** A line that stays below what is printed, in place of the one before; null for none. Only where `hasStatus`. */
  status(text: string | null): void
  /** Empties the terminal; elsewhere it does nothing. */
  clear(): void
  /** Text of others as one harmless line: it neither starts another line nor steers the terminal. */
  clean(text: string): string
  /** Colours where the stream shows them. */
  style(style: Style, text: string): string
  /** The same for results, which may go elsewhere than words. */
  styleResult(style: Style, text: string): string
}

/** `NO_COLOR` and `TERM=dumb` turn colours off; `FORCE_COLOR` turns them on, or off with `0`; else a terminal has them. */
export function hasColour(env: Readonly<Record<string, string | undefined>>, isTerminal: boolean): boolean {
  if (env.NO_COLOR !== undefined && env.NO_COLOR !== '') return false
  if (env.FORCE_COLOR === '0' || env.FORCE_COLOR === 'false') return false
  if (env.FORCE_COLOR !== undefined && env.FORCE_COLOR !== '') return true
  return isTerminal && env.TERM !== 'dumb'
}

export function createOutput(
  stdout: NodeJS.WriteStream,
  stderr: NodeJS.WriteStream,
  env: Readonly<Record<string, string | undefined>>,
): Output {
  // A reader that went away (a closed terminal, `| head`) does not stop the gateway.
  for (const stream of [stdout, stderr]) stream.on('error', () => {})
  const paint = (stream: NodeJS.WriteStream): Output['style'] =>
    hasColour(env, stream.isTTY === true)
      ? (style, text) => styleText(style, text, { validateStream: false })
      : (_style, text) => text
  const hasStatus = stderr.isTTY === true && env.TERM !== 'dumb'
  let status: string | null = null
  let dropped = 0
  /** Prints above the status line. */
  const put = (write: () => void): void => {
    if (status !== null) stderr.write(CLEAR_LINE)
    write()
    if (status !== null) stderr.write(status)
  }
  return {
    stdout,
    isTerminal: stdout.isTTY === true,
    hasStatus,
    status: text => {
      if (!hasStatus) return
      if (status !== null) stderr.write(CLEAR_LINE)
      // A line that is broken by the terminal could not be taken away again.
      status = text === null ? null : [...text].slice(0, (stderr.columns ?? 80) - 1).join('')
      if (status !== null) stderr.write(status)
    },
    result: line => put(() => stdout.write(`${line}\n`)),
    note: text => {
      // A reader that has stopped would have every line kept in memory.
      if (stderr.writableLength > MAX_WAITING_BYTES) {
        dropped += 1
        return
      }
      if (dropped > 0) stderr.write(`... ${dropped} lines were left out: the reader is too slow\n`)
      dropped = 0
      put(() => stderr.write(`${text}\n`))
    },
    clear: () => {
      // The screen and what was scrolled out of it.
      if (stderr.isTTY === true) stderr.write('\u001b[2J\u001b[3J\u001b[H')
    },
    clean: toPrintable,
    style: paint(stderr),
    styleResult: paint(stdout),
  }
}
