#!/usr/bin/env node
/** The command line: flags to a command to an exit code. Owner: §1, page bin/dev. */

import { readFileSync } from 'node:fs'
import { type Command, CommanderError } from 'commander'
import { GatewayError, SettingsError } from '../lib/index.ts'
import { toCount } from '../lib/core/text.ts'
import { packageFile } from '../lib/runtime/package-files.ts'
import { createOutput } from './output.ts'
import { toProgramName } from './program-name.ts'
import { addServe, createRoot, SERVE_NAMES } from './serve-command.ts'
import { CommandError, UsageError } from './usage-error.ts'

const { version } = JSON.parse(readFileSync(packageFile('package.json'), 'utf8')) as { version: string }
const { stdin, stdout, stderr } = process
const output = createOutput(stdout, stderr, process.env)
const program = toProgramName(process.argv[1] ?? 'fngw', process.env, process.cwd())
const terminal = stdin.isTTY && stderr.isTTY ? { input: stdin, output: stderr } : null

/** As warnings are shown. */
function toProblemText({ message, hint }: SettingsError['problems'][number]): string {
  return `${message}\n  fix: ${hint}`
}

function fail(message: string, exitCode: number): void {
  output.note(`fngw: ${message.split('\n').map(output.clean).join('\n')}`)
  process.exitCode = exitCode
}

/** A serving process does not load other commands or their flags. */
async function createCommands(): Promise<Command> {
  const options = { output, version, program, terminal }
  const serving = SERVE_NAMES.find(name => name === process.argv[2])
  if (serving === undefined) return (await import('./program.ts')).createProgram(options)
  const root = createRoot(version)
  addServe(root, serving, options)
  return root
}

try {
  const commands = await createCommands()
  await commands.parseAsync()
} catch (error) {
  // Commander has printed its own message; help and version are no failures.
  if (error instanceof CommanderError) process.exitCode = error.exitCode === 0 ? 0 : 2
  else if (error instanceof UsageError || error instanceof CommandError) fail(error.message, error.exitCode)
  else if (error instanceof GatewayError) fail(error.message, 1)
  else if (error instanceof SettingsError)
    fail(
      [`${toCount(error.problems.length, 'problem')} in the settings`, ...error.problems.map(toProblemText)].join('\n'),
      2,
    )
  else fail(`unexpected: ${(error as Error).stack ?? String(error)}`, 1)
}
