/** `fngw deps`: the packages of a tree, without a running gateway. Owner: page bin/deps. */

import type { Command } from 'commander'
import { createGateway, type Gateway, type GatewayOptions } from '../lib/index.ts'
import type { Output } from './output.ts'
import { createBuildStatus } from './status-line.ts'
import { CommandError } from './usage-error.ts'

interface DepsFlags {
  json?: boolean
  all?: boolean
}

interface DepsOptions {
  output: Output
  /** The tree that a command speaks of. */
  toOptions: (command: Command, dir: string | undefined) => GatewayOptions
  /** Adds the flags of settings. */
  addFlags: (command: Command) => Command
}

type Work = (gateway: Gateway, flags: DepsFlags) => void | Promise<void>

export function addDeps(program: Command, options: DepsOptions): void {
  const { output } = options
  const deps = program.command('deps').description('Show, install and clean the packages of functions.')
  const say = (value: unknown, isJson: boolean, lines: readonly string[], none: string): void => {
    if (isJson) output.result(JSON.stringify(value, null, 2))
    else if (lines.length === 0) output.note(none)
    for (const line of isJson ? [] : lines) output.result(output.clean(line))
  }
  add(
    deps,
    'ls',
    'List what is installed for each function and shared pack.',
    options,
    ({ dependencies }, { json }) => {
      const rows = dependencies.list()
      const lines = rows.map(({ key, record, installed }) => {
        const problem = record?.last_error == null ? '' : `  ${record.last_install_status}: ${record.last_error}`
        return `${key}  ${installed.join(', ') || 'nothing'}${problem}`
      })
      say(rows, json === true, lines, 'no packages')
    },
  )
  add(deps, 'install', 'Install what functions need, as their first calls would.', options, (gateway, flags) =>
    runInstalls(gateway, flags.json === true, output, onDone => gateway.dependencies.install(onDone)),
  )
  const clean = add(deps, 'clean', 'Delete sets of packages that nothing uses any more.', options, (gateway, flags) => {
    const gone = gateway.dependencies.clean(flags.all === true)
    say(
      gone,
      flags.json === true,
      gone.map(name => `deleted ${name}`),
      'nothing to delete',
    )
  })
  clean.option('--all', 'Those in use too, with what the gateway installed beside functions.')
  addAdd(deps, options)
  addWhy(deps, options, say)
}

function addAdd(deps: Command, options: DepsOptions): void {
  const add = deps
    .command('add')
    .description('Install packages and write them into the manifest of a function.')
    .argument('[packages...]', 'Packages, such as lodash@^4 or requests==2.32.3; none: those that the code imports.')
    .requiredOption('--to <function>', 'Function, or its folder below the functions root.')
    .option('--dir <dir>', 'Functions root.')
    .option('--json', 'As JSON.')
    .addHelpText('after', '\nExample:\n  fngw deps add lodash --to hello')
  options.addFlags(add).action(async (packages: string[]) => {
    const { to, dir, json } = add.opts<DepsFlags & { to: string; dir?: string }>()
    const tree = options.toOptions(add, dir)
    const infers = packages.length === 0 && { autoInferPyDeps: true, autoInferNodeDeps: true }
    // What other imports lack does not keep a package out.
    const flags = { ...tree.flags, ...infers, autoInferStrict: false, autoInferWriteManifest: true }
    await withTree({ ...tree, flags }, gateway =>
      runInstalls(gateway, json === true, options.output, onDone => addPackages(gateway, to, packages, onDone)),
    )
  })
}

async function addPackages(
  { dependencies }: Gateway,
  to: string,
  ...rest: [readonly string[], OnDone]
): Promise<Outcomes> {
  // What is wrong with `--to` is thrown before anything is installed.
  let work: Promise<Outcomes>
  try {
    work = dependencies.add(to, ...rest)
  } catch (error) {
    throw new CommandError((error as Error).message)
  }
  return work
}

function addWhy(
  deps: Command,
  options: DepsOptions,
  say: (value: unknown, isJson: boolean, lines: readonly string[], none: string) => void,
): void {
  const why = deps
    .command('why')
    .description('List the functions that have a package, and which dependency requires it.')
    .argument('<name>', 'Name of the package.')
    .argument('[dir]', 'Functions root.')
    .option('--json', 'As JSON.')
  options.addFlags(why).action(async (name: string, dir: string | undefined) => {
    await withTree(options.toOptions(why, dir), ({ dependencies }) => {
      const reasons = dependencies.why(name)
      const lines = reasons.map(({ key, way }) => `${key}  ${way.join(' > ')}`)
      say(reasons, why.opts<DepsFlags>().json === true, lines, `nothing has ${options.output.clean(name)}`)
      if (reasons.length === 0) process.exitCode = 1
    })
  })
}

function add(deps: Command, name: string, description: string, options: DepsOptions, work: Work): Command {
  const command = deps.command(name).description(description).argument('[dir]', 'Functions root.')
  command.option('--json', 'As JSON.')
  return options.addFlags(command).action(async (dir: string | undefined) => {
    await withTree(options.toOptions(command, dir), gateway => work(gateway, command.opts<DepsFlags>()))
  })
}

type Dependencies = Gateway['dependencies']
type OnDone = Parameters<Dependencies['install']>[0]
type Outcomes = Awaited<ReturnType<Dependencies['install']>>
type Install = (onDone: OnDone) => Promise<Outcomes>

async function runInstalls(gateway: Gateway, isJson: boolean, output: Output, run: Install): Promise<void> {
  const follower = isJson ? null : followInstalls(gateway, output)
  const outcomes = await run(({ key, error }) => follower?.end(key, error)).finally(() => follower?.close())
  const shown = outcomes.map(({ key, error }) => ({ key, error: error?.message ?? null }))
  if (isJson) output.result(JSON.stringify(shown, null, 2))
  if (shown.some(({ error }) => error !== null)) process.exitCode = 1
}

/** Prints progress, installed packages and the outcome of each function. */
function followInstalls(gateway: Gateway, output: Output) {
  const status = createBuildStatus(output)
  const stops = [
    gateway.on('build', record => {
      if (status !== null) status.on(record)
      else if (record.state === 'began') output.note(output.clean(`${record.action} ${record.key}`))
    }),
    // Failures are printed with their function.
    gateway.on('log', ({ level, code, message }) => {
      if (code === undefined && (level === 'info' || level === 'warn')) output.note(output.clean(message))
    }),
  ]
  return {
    end(key: string, error: Error | null) {
      output.note(output.clean(error === null ? `ready ${key}` : `failed ${key}: ${error.message}`))
      const hint = (error as { detail?: { hint?: string } } | null)?.detail?.hint
      if (hint !== undefined) output.note(`  hint: ${output.clean(hint)}`)
    },
    close() {
      for (const stop of stops) stop()
      status?.close()
    },
  }
}

/** Reads the tree without serving it. */
async function withTree(options: GatewayOptions, use: (gateway: Gateway) => void | Promise<void>): Promise<void> {
  const gateway = await createGateway({ ...options, inspect: true })
  try {
    await use(gateway)
  } finally {
    await gateway.close()
  }
}
