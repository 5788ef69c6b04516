/** `fngw dev` and `fngw run` with their flags, and the root of every command. Owner: §1, page bin/dev. */

import { Command, Option } from 'commander'
import { loadSettings } from '../lib/config/project-file.ts'
import { isLoopback } from '../lib/config/setting-checks.ts'
import type { Settings } from '../lib/config/settings.ts'
import { SETTING_OPTIONS } from '../lib/config/setting-options.ts'
import { findToolchain } from '../lib/runtime/binaries.ts'
import type { GatewayOptions } from '../lib/index.ts'
import type { Terminal } from './ask.ts'
import { addDebugFlags, type DebugFlags, takeFolder, toDebugOptions } from './debug-flags.ts'
import type { KeyInput } from './hot-keys.ts'
import type { Output } from './output.ts'
import { type Outside, parseOutside } from './outside.ts'
import { serve } from './serve.ts'
import { addSettingFlags, toFlags } from './setting-flags.ts'
import { UsageError } from './usage-error.ts'

export interface ProgramOptions {
  output: Output
  version: string
  /** How `fngw` is typed here. */
  program: string
  /** null without a terminal. */
  terminal: (Terminal & { input: KeyInput }) | null
}

/** Commander's own attributes that are no settings. */
interface CommonFlags extends DebugFlags {
  json?: boolean
  config?: string
  open?: boolean
  native?: boolean
  /** Given by `fngw dev` to the one in its container. */
  outside?: Outside
}

interface ServeCommand {
  description: string
  defaults: NonNullable<GatewayOptions['defaults']>
  /** Names of the settings in its help; null for all. */
  shown: readonly string[] | null
  /** What `--native` means to it. */
  native: string
}

/** Outside of `dev` nothing is installed that no file names. */
export const REPORTED_IMPORTS = { autoInferPyDeps: 'report', autoInferNodeDeps: 'report' } as const

const SERVE_COMMANDS: Readonly<Record<'dev' | 'run', ServeCommand>> = {
  dev: {
    description: 'Serve a functions root, with reload on change.',
    defaults: { hotReload: true, logFormat: 'text', uiEnabled: true },
    shown: null,
    native: 'Use the programs of this machine, also where FN_RUNTIME_IMAGE names an image.',
  },
  run: {
    description: 'Serve a functions root for production: no watcher, neutral error texts.',
    defaults: { hotReload: false, production: true, logFormat: 'json', ...REPORTED_IMPORTS },
    // It is what an image runs.
    shown: Object.keys(SETTING_OPTIONS).filter(name => name !== 'runtimeImage'),
    native: 'Use the programs of this machine: it always does.',
  },
}

const IN_CONTAINER =
  'a debugger cannot reach the ports of the container that FN_RUNTIME_IMAGE names: add --native to use the programs of this machine'

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
  const { description, defaults, shown, native } = SERVE_COMMANDS[name]
  const command = program.command(name).description(description).argument('[dir]', 'Functions root.')
  addSettingFlags(command, { defaults, shown })
    .option('--native', native)
    .option('--json', 'One JSON object per line on standard output: ready, log, request, warning, reload.')
  if (name === 'dev')
    command
      .option('--open', 'Open the address in the browser.')
      .addOption(new Option('--outside <json>', 'Of container mode.').argParser(parseOutside).hideHelp())
  addDebugFlags(command, name === 'dev')
  command.addHelpText('after', `\nExample:\n  fngw ${name} functions --port 8080`)
  command.action(async (typed: string | undefined) => {
    const flags = command.opts<CommonFlags>()
    const { json, open, native, outside = null } = flags
    const dir = takeFolder(flags, typed)
    const gateway = toGatewayOptions(command, dir, defaults)
    gateway.debug = toDebugOptions(flags)
    // Also with FN_ENV=development: a debugger runs any code.
    if (name === 'run' && gateway.debug !== null)
      throw new UsageError('handlers are debugged in development only: use fngw dev')
    const { host, runtimeImage } = readSettings(gateway)
    const url = outside?.url ?? toUrl(host)
    if (!isLoopback(url)) gateway.defaults = { ...gateway.defaults, uiEnabled: false }
    const asked = { gateway, json: json === true, open: open === true, output, terminal }
    if (name === 'dev' && native !== true && runtimeImage !== null) {
      if (gateway.debug !== null) throw new UsageError(IN_CONTAINER)
      // Read by those alone who ask for it.
      const { serveInContainer } = await import('./container-mode.ts')
      process.exitCode = await serveInContainer({ ...asked, program: called, dir: dir ?? null })
      return
    }
    const { debug } = gateway
    if (debug?.python !== undefined) debug.python.path = await toDebugpy(readSettings(gateway), output)
    process.exitCode = await serve({ ...asked, name, version, program: outside?.program ?? called, outside })
  })
}

/** Without an interpreter the gateway says so itself. */
async function toDebugpy({ binaries, production }: Settings, output: Output): Promise<string | null> {
  const { path: python } = findToolchain('python', binaries, process.env)
  if (python === null || production) return null
  const { findDebugpy } = await import('./debugpy.ts')
  return findDebugpy({ python, env: process.env, note: text => output.note(text) })
}

function readSettings({ env = {}, flags = {}, project }: GatewayOptions): Settings {
  return loadSettings({ env, cwd: process.cwd(), flags, explicit: project?.explicit ?? null }).settings
}

function toUrl(host: string): string {
  return `http://${host.includes(':') ? `[${host}]` : host}`
}

/** The gateway's options from the command line. */
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
