#!/usr/bin/env node
/** The command line: flags to a command to an exit code. Owner: §1, page bin/dev. */

import { readFileSync } from 'node:fs'
import { Command, CommanderError, Option } from 'commander'
import { SETTING_OPTIONS, type SettingOption } from '../lib/config/setting-options.ts'
import { createGateway, type Gateway, type GatewayOptions, SettingsError } from '../lib/index.ts'
import { packageFile } from '../lib/runtime/package-files.ts'
import { init, toInitText } from './init.ts'
import { toWarningText } from './banner.ts'
import { createOutput } from './output.ts'
import { toExplanationText, toRouteRows, toTable } from './routes.ts'
import { serve } from './serve.ts'
import { TEMPLATE_NAMES } from './templates.ts'
import { CommandError, UsageError } from './usage-error.ts'

const { version } = JSON.parse(readFileSync(packageFile('package.json'), 'utf8')) as { version: string }
const output = createOutput(process.stdout, process.stderr, process.env)

/** Commander's own attributes that are no settings. */
interface CommonFlags {
  json?: boolean
  config?: string
  native?: boolean
}

/** Adds every setting that has a flag; unset ones stay away, so that environment and file come through. */
function withSettings(command: Command): Command {
  for (const option of Object.values(SETTING_OPTIONS) as SettingOption<unknown>[]) {
    for (const flag of option.flags) {
      const description = flag.startsWith('--no-') ? `Turn off: ${option.description}` : option.description
      if (flag.startsWith('--')) command.addOption(new Option(flag, description))
    }
  }
  return command.option('--config <file>', 'Project file to use instead of fngw.json.')
}

/** Settings as typed on the command line, by setting name. */
function toFlags(command: Command): Record<string, unknown> {
  const flags: Record<string, unknown> = {}
  for (const [name, value] of Object.entries(command.opts<Record<string, unknown>>())) {
    if (name in SETTING_OPTIONS && command.getOptionValueSource(name) === 'cli') flags[name] = value
  }
  return flags
}

function toGatewayOptions(
  command: Command,
  dir: string | undefined,
  defaults: GatewayOptions['defaults'],
): GatewayOptions {
  const flags = toFlags(command)
  if (dir !== undefined) flags.functionsRoot = dir
  return {
    env: process.env,
    project: { explicit: command.opts<CommonFlags>().config ?? null },
    flags,
    defaults: defaults ?? {},
  }
}

/** Reads the tree without serving it. */
async function withGateway<T>(command: Command, dir: string | undefined, use: (gateway: Gateway) => T): Promise<T> {
  const options = toGatewayOptions(command, dir, { hotReload: false, accessLog: false })
  const gateway = await createGateway({ ...options, inspect: true })
  try {
    return use(gateway)
  } finally {
    await gateway.close()
  }
}

function addServe(
  program: Command,
  name: 'dev' | 'run',
  description: string,
  defaults: GatewayOptions['defaults'],
): void {
  const command = program.command(name).description(description).argument('[dir]', 'Functions root.')
  withSettings(command)
    .option('--native', 'Use the runtimes installed on this machine (the default).')
    .option('--json', 'One JSON object per line on standard output: ready, log, request, warning, reload.')
    .addHelpText('after', `\nExample:\n  fngw ${name} functions --native --port 8080`)
    .action(async (dir: string | undefined) => {
      const gateway = toGatewayOptions(command, dir, defaults)
      process.exitCode = await serve({ gateway, json: command.opts<CommonFlags>().json === true, output, version })
    })
}

function createProgram(): Command {
  const program = new Command('fngw')
    .description('Function gateway: a folder of handler files as an HTTP API.')
    .version(version, '-V, --version')
    .exitOverride()
    // Names alone, so that the descriptions fit 80 columns; `fngw <command> --help` shows the arguments.
    .configureHelp({ subcommandTerm: command => command.name() })
    .showHelpAfterError('(fngw --help lists the commands)')

  addServe(program, 'dev', 'Serve a functions root, with reload on change.', {
    hotReload: true,
    logFormat: 'text',
  })
  addServe(program, 'run', 'Serve a functions root for production: no watcher, neutral error texts.', {
    hotReload: false,
    production: true,
    logFormat: 'json',
  })

  program
    .command('init')
    .description('Write a function to start from; nothing is overwritten.')
    .argument('<name>', 'Name and URL path of the function, such as hello or api/users.')
    .addOption(new Option('-t, --template <name>', 'Language.').choices([...TEMPLATE_NAMES]).default('node'))
    .option('--types', 'Add _fngw_types.py, the types of events and answers (python).')
    .option('--json', 'Print the result as JSON.')
    .addHelpText('after', '\nExample:\n  fngw init hello -t python')
    .action((name: string, flags: { template: string; types?: boolean; json?: boolean }) => {
      const result = init(process.cwd(), name, flags.template, flags.types === true)
      if (flags.json === true) output.result(JSON.stringify(result))
      else output.result(toInitText(result))
    })

  const routes = program.command('routes').description('Print the route table.').argument('[dir]', 'Functions root.')
  withSettings(routes)
    .option('--json', 'Routes, conflicts, warnings and ignored files as JSON.')
    .addHelpText('after', '\nExample:\n  fngw routes functions --json')
    .action(async (dir: string | undefined) => {
      await withGateway(routes, dir, gateway => {
        const catalog = gateway.catalog()
        if (routes.opts<CommonFlags>().json === true) {
          const { mapped_routes, mapped_route_conflicts, warnings, ignored } = catalog
          output.result(JSON.stringify({ mapped_routes, mapped_route_conflicts, warnings, ignored }, null, 2))
          return
        }
        for (const line of toTable(toRouteRows(catalog))) output.result(line)
        for (const warning of gateway.warnings) {
          output.note(toWarningText(warning, output))
        }
      })
    })

  const explain = program
    .command('explain')
    .description('Tell which file answers a request, which lost and why, and which files are ignored.')
    .argument('<method>', 'Such as GET.')
    .argument('<path>', 'Such as /users/7.')
    .argument('[dir]', 'Functions root.')
  withSettings(explain)
    .option('--for-host <name>', 'Host header of the request, for functions with allow_hosts.')
    .option('--json', 'The answer as JSON.')
    .addHelpText('after', '\nExample:\n  fngw explain GET /users/7 functions')
    .action(async (method: string, path: string, dir: string | undefined) => {
      const flags = explain.opts<CommonFlags & { forHost?: string }>()
      await withGateway(explain, dir, gateway => {
        const explained = gateway.explain(method.toUpperCase(), path, flags.forHost ?? '')
        output.result(flags.json === true ? JSON.stringify(explained, null, 2) : toExplanationText(explained))
      })
    })

  program
    .command('version')
    .description('Print the version.')
    .action(() => output.result(version))

  return program
}

function fail(message: string, exitCode: number): void {
  output.note(`fngw: ${message.split('\n').map(output.clean).join('\n')}`)
  process.exitCode = exitCode
}

try {
  await createProgram().parseAsync()
} catch (error) {
  // Commander has printed its own message; help and version are no failures.
  if (error instanceof CommanderError) process.exitCode = error.exitCode === 0 ? 0 : 2
  else if (error instanceof UsageError || error instanceof CommandError) fail(error.message, error.exitCode)
  else if (error instanceof SettingsError)
    fail(`${error.problems.length} problem(s) in the settings\n${error.message}`, 2)
  else fail(`unexpected: ${(error as Error).stack ?? String(error)}`, 1)
}
