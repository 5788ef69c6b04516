/** The commands of `fngw` and their flags. Owner: §1, page bin/dev. */

import { Argument, type Command, Option } from 'commander'
import { METHODS, RUNTIMES } from '../lib/core/identity.ts'
import { createGateway, type Gateway, type GatewayOptions } from '../lib/index.ts'
import { addApiFlags, toApiClient } from './api-flags.ts'
import { toWarningText } from './banner.ts'
import { readCommands } from './command-tree.ts'
import { SHELLS, type Shell, toCompletion } from './completion.ts'
import { addConformance } from './conformance-command.ts'
import { addDaemon } from './daemon-command.ts'
import { addDeps } from './deps-command.ts'
import { type DoctorFlags, runDoctor } from './doctor-command.ts'
import { hashPassword } from './hash-password.ts'
import { type HealthFlags, runHealth } from './health-command.ts'
import { type InitFlags, runInit } from './init-command.ts'
import { type InvokeCommandFlags, runInvoke } from './invoke-command.ts'
import { addJobs } from './jobs-program.ts'
import { type LogsFlags, runLogs } from './logs-command.ts'
import { runOpen } from './open-command.ts'
import { runOpenApi } from './openapi-command.ts'
import { toExplanationText, toRouteLines } from './routes.ts'
import { addSchedule } from './schedule-command.ts'
import {
  addServe,
  createRoot,
  type ProgramOptions,
  REPORTED_IMPORTS,
  SERVE_NAMES,
  toGatewayOptions,
} from './serve-command.ts'
import { addSettingFlags } from './setting-flags.ts'
import { runTests, type TestFlags } from './test-command.ts'
import { UsageError } from './usage-error.ts'
import { TEMPLATE_NAMES } from '../lib/core/templates.ts'
import { LOG_FILES } from '../lib/observe/log-line.ts'

/** Commander's own attributes that are no settings. */
interface CommonFlags {
  json?: boolean
}

/** For reading the tree without serving it. */
const TREE: GatewayOptions['defaults'] = { hotReload: false, accessLog: false }
/** A remote daemon serves a copy that is not edited. */
const DAEMON: GatewayOptions['defaults'] = { hotReload: false, production: true }
/** Settings that decide which file serves a route; the others are about serving. */
const TREE_SETTINGS = ['namespaceDepth', 'forceUrl', 'runtimes']
/** Settings of the OpenAPI document besides those of the tree. */
const DOCUMENT_SETTINGS = ['publicBaseUrl']

export function createProgram(options: ProgramOptions): Command {
  const { output, version } = options
  const program = createRoot(version)
  for (const name of SERVE_NAMES) addServe(program, name, options)
  addDaemon(program, output, (command, dir) => toGatewayOptions(command, dir, DAEMON))
  addInit(program, options)
  addRoutes(program, options)
  addExplain(program, options)
  addOpenApi(program, options)
  addOpen(program, options)
  addHealth(program, options)
  addDoctor(program, options)
  addTest(program, options)
  addHashPassword(program, options)
  addInvoke(program, options)
  addJobs(program, output)
  addSchedule(program, output)
  addDeps(program, {
    output,
    toOptions: (command, dir) => toGatewayOptions(command, dir, { ...TREE, ...REPORTED_IMPORTS }),
    addFlags: command => addSettingFlags(command, { defaults: TREE ?? {}, shown: TREE_SETTINGS }),
  })
  addLogs(program, options)
  addConformance(program, output)
  addCompletion(program, options)
  program
    .command('version')
    .description('Print the version.')
    .action(() => output.result(version))
  return program
}

function addInit(program: Command, { output, version, program: called, terminal }: ProgramOptions): void {
  program
    .command('init')
    .description('Write a function to start from; nothing is overwritten.')
    .argument('[name]', 'Name and URL path of the function, such as hello or api/users.')
    .addOption(
      new Option('-t, --template <name>', 'Language, or a larger start: api, spa (default node).').choices([
        ...TEMPLATE_NAMES,
      ]),
    )
    .option('-m, --method <name>', `Method it answers: ${METHODS.join(', ')} (default GET and POST).`)
    .option('--types', 'Add _fngw_types.py, the types of events and answers (python).')
    .option('--vscode', 'Add .vscode/launch.json and extensions.json, to debug handlers; without a name only these.')
    .option('-y, --yes', 'Ask nothing: without a name it is hello.')
    .option('--json', 'Print the result as JSON.')
    .addHelpText('after', '\nIt goes into "functions-dir" of fngw.json.\n\nExample:\n  fngw init hello -t python')
    .action(async (name: string | undefined, flags: InitFlags) => {
      const cwd = process.cwd()
      output.result(await runInit(name, flags, { cwd, env: process.env, terminal, program: called, version }))
    })
}

/** Reads the tree without serving it. */
async function withGateway<T>(command: Command, dir: string | undefined, use: (gateway: Gateway) => T): Promise<T> {
  const options = toGatewayOptions(command, dir, TREE)
  const gateway = await createGateway({ ...options, inspect: true })
  try {
    return use(gateway)
  } finally {
    await gateway.close()
  }
}

function addRoutes(program: Command, { output }: ProgramOptions): void {
  const command = program.command('routes').description('Print the route table.').argument('[dir]', 'Functions root.')
  addSettingFlags(command, { defaults: TREE ?? {}, shown: TREE_SETTINGS })
    .option('--json', 'Routes, conflicts, warnings and ignored files as JSON.')
    .addHelpText('after', '\nExample:\n  fngw routes functions --json')
    .action(async (dir: string | undefined) => {
      await withGateway(command, dir, gateway => {
        const catalog = gateway.catalog()
        if (command.opts<CommonFlags>().json === true) {
          const { mapped_routes, mapped_route_conflicts, warnings, ignored } = catalog
          output.result(JSON.stringify({ mapped_routes, mapped_route_conflicts, warnings, ignored }, null, 2))
          return
        }
        for (const line of toRouteLines(catalog)) output.result(output.clean(line))
        for (const warning of gateway.warnings) output.note(toWarningText(warning, output))
      })
    })
}

function addExplain(program: Command, { output }: ProgramOptions): void {
  const command = program
    .command('explain')
    .description('Explain which file serves a request, which candidates lost and why, and which files are ignored.')
    .argument('<method>', 'Such as GET.')
    .argument('<path>', 'Such as /users/7.')
    .argument('[dir]', 'Functions root.')
  addSettingFlags(command, { defaults: TREE ?? {}, shown: TREE_SETTINGS })
    .option('--for-host <name>', 'Host header of the request, for functions with allow_hosts.')
    .option('--json', 'The answer as JSON.')
    .addHelpText('after', '\nExit code 1 when no route matches.\n\nExample:\n  fngw explain GET /users/7 functions')
    .action(async (method: string, path: string, dir: string | undefined) => {
      const flags = command.opts<CommonFlags & { forHost?: string }>()
      await withGateway(command, dir, gateway => {
        const explained = gateway.explain(method.toUpperCase(), path, flags.forHost ?? '')
        if (flags.json === true) output.result(JSON.stringify(explained, null, 2))
        else for (const line of toExplanationText(explained)) output.result(output.clean(line))
        if (explained.refusal !== null && explained.beside === null) process.exitCode = 1
      })
    })
}

function addOpenApi(program: Command, { output }: ProgramOptions): void {
  const command = program
    .command('openapi')
    .description('Print the OpenAPI document of a tree, or write it to a file.')
    .argument('[dir]', 'Functions root.')
  addSettingFlags(command, { defaults: TREE ?? {}, shown: [...TREE_SETTINGS, ...DOCUMENT_SETTINGS] })
    .option('-o, --out <file>', 'Write the document there.')
    .addHelpText('after', '\nNo gateway has to run.\n\nExample:\n  fngw openapi functions --out openapi.json')
    .action(async (dir: string | undefined) => {
      await runOpenApi(toGatewayOptions(command, dir, TREE), command.opts<{ out?: string }>().out, output)
    })
}

function addOpen(program: Command, { output }: ProgramOptions): void {
  const command = program
    .command('open')
    .description('Open the console of the running gateway, or its documentation, in the browser.')
  addApiFlags(command)
    .addHelpText('after', '\nThe address is printed too.\n\nExample:\n  fngw open --port 8080')
    .action(async () => {
      const surroundings = { cwd: process.cwd(), env: process.env }
      await runOpen({
        output,
        env: process.env,
        publicApi: toApiClient(command, surroundings, 'public'),
        controlApi: toApiClient(command, surroundings),
      })
    })
}

function addHealth(program: Command, { output }: ProgramOptions): void {
  const command = program
    .command('health')
    .description('Check the health of a running gateway, for a container or a service manager.')
    .option('--ready', 'Whether it should get requests: not while it starts or stops.')
    .option('--live', 'Whether it answers at all.')
    .option('--wait <seconds>', 'Ask again for so long until it is (default 0).')
    .option('--timeout <seconds>', 'Longest wait for one answer (default 5).')
    .option('--json', 'Print what the gateway answers.')
  addApiFlags(command)
    .addHelpText('after', '\nExit code 1 when it is not.\n\nExample:\n  fngw health --ready --wait 30')
    .action(async () => {
      const api = toApiClient(command, { cwd: process.cwd(), env: process.env })
      process.exitCode = await runHealth(command.opts<HealthFlags>(), api, output)
    })
}

function addDoctor(program: Command, { output }: ProgramOptions): void {
  const command = program
    .command('doctor')
    .description('Check the machine, the settings and the tree, load every function, and say what to do.')
    .argument('[dir]', 'Functions root.')
  addSettingFlags(command, { defaults: TREE ?? {}, shown: [...TREE_SETTINGS, 'port', 'host'] })
    .option('--json', 'Print the checks as JSON.')
    .option('--fix', 'Remove what a gateway left that was killed: its lock and its record.')
    .option('--no-load', 'Do not load the functions, nor install their packages.')
    .addHelpText('after', '\nExit code 1 when there are warnings, 2 when there are errors.')
    .addHelpText('after', '\nExample:\n  fngw doctor functions')
    .action(async (dir: string | undefined) => {
      process.exitCode = await runDoctor(toGatewayOptions(command, dir, TREE), command.opts<DoctorFlags>(), output)
    })
}

function addTest(program: Command, { output }: ProgramOptions): void {
  const command = program
    .command('test')
    .description('Run the tests beside handlers, with the test runner of each language.')
    .argument('[pattern]', 'Part of the path of test files, such as users or hello.test.py.')
    .argument('[dir]', 'Functions root.')
  addSettingFlags(command, { defaults: TREE ?? {}, shown: ['runtimes'] })
    .option('-w, --watch', 'Run again after each change.')
    .option('--json', 'Print the summary as JSON; what runners print goes to standard error.')
    .addHelpText('after', '\nExit code 1 when a test fails, 2 when tests cannot run or there are none.')
    .addHelpText('after', '\nExample:\n  fngw test users')
    .action(async (pattern: string | undefined, dir: string | undefined) => {
      const options = toGatewayOptions(command, dir, TREE)
      process.exitCode = await runTests(options, pattern ?? null, command.opts<TestFlags>(), output)
    })
}

function addHashPassword(program: Command, { output, terminal }: ProgramOptions): void {
  program
    .command('hash-password')
    .description('Print the hash of a password, for FN_CONSOLE_LOGIN_PASSWORD_HASH.')
    .addHelpText('after', '\nIt is typed twice, or the one line of standard input.')
    .addHelpText('after', '\nExample:\n  fngw hash-password < password.txt > hash.txt')
    .action(async () => output.result(await hashPassword({ stdin: process.stdin, terminal })))
}

/** Takes a flag that may be given several times. */
function collect(value: string, before: string[] | undefined): string[] {
  return [...(before ?? []), value]
}

function addLogs(program: Command, { output }: ProgramOptions): void {
  const command = program
    .command('logs')
    .description('Show the logs of the running gateway.')
    .option('-f, --follow', 'Go on with every line that comes.')
    .addOption(new Option('--file <name>', 'Which log (default all).').choices([...LOG_FILES, 'all']))
    .option('-n, --lines <count>', 'How many lines there are already, at most (default 200).')
    .option('--fn <name>', 'Lines of one function, such as hello or users/[id].')
    .option('--version <label>', 'Lines of one version of it.')
    .addOption(new Option('--runtime <name>', 'Lines of functions in one language.').choices([...RUNTIMES]))
    .addOption(new Option('--stream <name>', 'Output of functions alone.').choices(['stdout', 'stderr']))
    .option('--raw', 'Lines as the gateway has them.')
    .option('--json', 'One JSON object per line.')
  addApiFlags(command)
    .addHelpText('after', '\nExample:\n  fngw logs -f --fn hello')
    .action(async () => {
      const api = toApiClient(command, { cwd: process.cwd(), env: process.env })
      await runLogs(command.opts<LogsFlags>(), api, output)
    })
}

function addInvoke(program: Command, { output }: ProgramOptions): void {
  const command = program
    .command('invoke')
    .description('Run a function by its name, in the running gateway or without one.')
    .argument('<name>', 'Name of the function, such as hello, api/users or users/[id].')
    .argument('[dir]', 'Functions root, for --local.')
    .option('-X, --method <name>', 'Method (default GET, with -d POST).')
    .option('-d, --data <text>', 'Body: text, @FILE, or @- for standard input.')
    .option('-H, --header <line>', 'Header, such as "Accept: text/plain"; may be repeated.', collect)
    .option('-q, --query <pair>', 'Query parameter, name=value; may be repeated.', collect)
    .option('--route <path>', 'Path at which it is called, such as /users/7 or /users/:id with --param.')
    .option('--param <pair>', 'Route parameter, name=value; may be repeated.', collect)
    .option('--version <label>', 'Version of the function.')
    .option('--runtime <name>', `Where several languages have the name: ${RUNTIMES.join(', ')}.`)
    .option('--context <json>', 'JSON object for event.context.user, or @FILE.')
    .option('-i, --include', 'Print status and headers too, on standard error.')
    .option('--json', 'Print the whole answer as JSON.')
    .option('--local', 'Run it in a temporary gateway instead of the running one.')
  addApiFlags(command, TREE)
    .addHelpText('after', '\nExit code 1 when the answer is 400 or more.')
    .addHelpText('after', `\nExample:\n  fngw invoke hello -d '{"name":"you"}' -i`)
    .action(async (name: string, dir: string | undefined) => {
      const flags = command.opts<InvokeCommandFlags>()
      if (dir !== undefined && flags.local !== true)
        throw new UsageError(
          `the functions root ${JSON.stringify(dir)} is for --local: the running gateway has its own`,
        )
      process.exitCode = await runInvoke(name, flags, {
        output,
        stdin: process.stdin,
        api: () => toApiClient(command, { cwd: process.cwd(), env: process.env }),
        gateway: toGatewayOptions(command, dir, TREE),
      })
    })
}

function addCompletion(program: Command, { output }: ProgramOptions): void {
  program
    .command('completion')
    .description('Print the completion of this command line for a shell.')
    .addArgument(new Argument('<shell>', 'Shell that reads it.').choices(SHELLS))
    .addHelpText('after', '\nExample:\n  source <(fngw completion bash)')
    .action((shell: Shell) => output.result(toCompletion(shell, readCommands(program)).trimEnd()))
}
