/** Where words go: results to standard output, everything for people to standard error. Owner: page bin/dev. */

import { styleText } from 'node:util'
import { toPrintable } from '../lib/observe/log-text.ts'

type Style = Parameters<typeof styleText>[0]

export interface Output {
  /** A result: the line that a program may read. */
  result(line: string): void
  /** Words for a person. */
  note(text: string): void
  /** Text of others made harmless: no control sequences reach the terminal. */
  clean(text: string): string
  /** Colours where the stream shows them. */
  style(style: Style, text: string): string
}

/** `NO_COLOR` and `TERM=dumb` turn colours off, `FORCE_COLOR` on; else a terminal has them. */
export function hasColour(env: Readonly<Record<string, string | undefined>>, isTerminal: boolean): boolean {
  if (env.NO_COLOR !== undefined && env.NO_COLOR !== '') return false
  if (env.FORCE_COLOR !== undefined && env.FORCE_COLOR !== '' && env.FORCE_COLOR !== '0') return true
  return isTerminal && env.TERM !== 'dumb'
}

export function createOutput(
  stdout: NodeJS.WriteStream,
  stderr: NodeJS.WriteStream,
  env: Readonly<Record<string, string | undefined>>,
): Output {
  // A reader that went away (a closed terminal, `| head`) is no reason to stop serving.
  for (const stream of [stdout, stderr]) stream.on('error', () => {})
  const coloured = hasColour(env, stderr.isTTY === true)
  return {
    result: line => void stdout.write(`${line}\n`),
    note: text => void stderr.write(`${text}\n`),
    clean: text => text.split('\n').map(toPrintable).join('\n'),
    style: (style, text) => (coloured ? styleText(style, text, { validateStream: false }) : text),
  }
}
