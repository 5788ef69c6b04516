/** `fngw dev` and `fngw run` with their flags, and the root of every command. Owner: §1, page bin/dev. */

import { Command } from 'commander'
import { RUNTIMES } from '../lib/core/identity.ts'
import type { GatewayOptions } from '../lib/index.ts'
import type { Terminal } from './ask.ts'
import type { KeyInput } from './hot-keys.ts'
import type { Output } from './output.ts'
import { serve } from './serve.ts'
import { addSettingFlags, toFlags } from './setting-flags.ts'

export interface ProgramOptions {
  output: Output
  version: string
  /** How `fngw` is typed here. */
  program: string
  /** null where nobody can answer or press keys. */
  terminal: (Terminal & { input: KeyInput }) | null
}

/** Commander's own attributes that are no settings. */
interface CommonFlags {
  json?: boolean
  config?: string
  open?: boolean
}

interface ServeCommand {
  description: string
  defaults: NonNullable<GatewayOptions['defaults']>
}

const SERVE_COMMANDS: Readonly<Record<'dev' | 'run', ServeCommand>> = {
  dev: {
    description: 'Serve a functions root, with reload on change.',
    // Every language of the tree whose tool is there; the others are warned of.
    defaults: { hotReload: true, logFormat: 'text', runtimes: RUNTIMES },
  },
  run: {
    description: 'Serve a functions root for production: no watcher, neutral error texts.',
    defaults: { hotReload: false, production: true, logFormat: 'json' },
  },
}

type ServeName = keyof typeof SERVE_COMMANDS

export const SERVE_NAMES = Object.keys(SERVE_COMMANDS) as ServeName[]

/** The program without a command. */
export function createRoot(version: string): Command {
  return (
    new Command('fngw')
      .description('Function gateway: a folder of handler files as an HTTP API.')
      .version(version, '-V, --version')
      .exitOverride()
      // What follows a command is its own: `fngw invoke hello --version v2` names a version of the function.
      .enablePositionalOptions()
      // Names alone, so that the descriptions fit 80 columns; `fngw <command> --help` shows the arguments.
      .configureHelp({ subcommandTerm: command => command.name() })
      .showHelpAfterError('(fngw --help lists the commands)')
  )
}

export function addServe(program: Command, name: ServeName, options: ProgramOptions): void {
  const { output, version, program: called, terminal } = options
  const { description, defaults } = SERVE_COMMANDS[name]
  const command = program.command(name).description(description).argument('[dir]', 'Functions root.')
  addSettingFlags(command, { defaults, shown: null })
    .option('--native', 'Use the runtimes installed on this machine (the default).')
    .option('--json', 'One JSON object per line on standard output: ready, log, request, warning, reload.')
  if (name === 'dev') command.option('--open', 'Open the address in the browser.')
  command.addHelpText('after', `\nExample:\n  fngw ${name} functions --port 8080`)
  command.action(async (dir: string | undefined) => {
    const { json, open } = command.opts<CommonFlags>()
    process.exitCode = await serve({
      gateway: toGatewayOptions(command, dir, defaults),
      json: json === true,
      open: open === true,
      output,
      version,
      program: called,
      terminal,
    })
  })
}

/** What a command line says of the gateway. */
export function toGatewayOptions(
  command: Command,
  dir: string | undefined,
  defaults: GatewayOptions['defaults'],
): GatewayOptions {
  const flags = toFlags(command)
  if (dir !== undefined) flags.functionsRoot = dir
  const project = { explicit: command.opts<CommonFlags>().config ?? null }
  return { env: process.env, project, flags, defaults: defaults ?? {} }
}
