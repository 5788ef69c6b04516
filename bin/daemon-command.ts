/** `fngw daemon`: the daemon of one runtime by itself, for gateways on other machines. Owner: page bin/daemon. */

import { resolve } from 'node:path'
import { Argument, type Command, Option } from 'commander'
import { RUNTIMES } from '../lib/core/identity.ts'
import {
  type GatewayOptions,
  type LogRecord,
  type RemoteDaemon,
  RemoteDaemonError,
  type RemoteDaemonOptions,
  startRemoteDaemon,
} from '../lib/index.ts'
import { toJsonLogLines } from '../lib/observe/log-line.ts'
import type { Output } from './output.ts'
import { addSettingFlags } from './setting-flags.ts'
import { followSignals } from './stop-signals.ts'
import { CommandError, UsageError } from './usage-error.ts'

interface DaemonFlags {
  listen: string
  functions?: string
  tlsCert?: string
  tlsKey?: string
  json?: boolean
}

/** Settings of a daemon: its tools and packages; the others belong to the gateway. */
const SHOWN = ['workerMemoryMb', 'workerNice']
const MAX_PORT = 65_535

export function addDaemon(
  program: Command,
  output: Output,
  toOptions: (command: Command, dir: string | undefined) => GatewayOptions,
): void {
  const command = program
    .command('daemon')
    .description('Run the daemon of one runtime by itself, for FN_RUNTIME_SOCKETS of a gateway elsewhere.')
    .addArgument(new Argument('<runtime>', 'Language of its functions.').choices([...RUNTIMES]))
    .requiredOption('--listen <address>', 'Where gateways connect: unix:/path or tcp://host:port.')
    .option('--functions <dir>', 'Functions root on this machine: the same files as at the gateway.')
    .addOption(new Option('--tls-cert <file>', 'Certificate (PEM): gateways connect to tls://host:port.'))
    .addOption(new Option('--tls-key <file>', 'Its key (PEM).'))
    .option('--json', 'One JSON object per line on standard output: ready, log.')
  addSettingFlags(command, { defaults: {}, shown: SHOWN })
    .addHelpText('after', '\nOver tcp both sides prove that they know FN_RUNTIME_SECRET, or the content of')
    .addHelpText('after', 'FN_RUNTIME_SECRET_FILE: at least 32 characters, such as openssl rand -hex 32.')
    .addHelpText('after', '\nExample:\n  fngw daemon python --listen tcp://0.0.0.0:9001 --functions functions')
    .action(async (runtime: string) => {
      const flags = command.opts<DaemonFlags>()
      await runDaemon(runtime, flags, toOptions(command, flags.functions), output)
    })
}

/** Serves until a signal. @throws UsageError, CommandError */
export async function runDaemon(
  runtime: string,
  flags: DaemonFlags,
  options: GatewayOptions,
  output: Output,
): Promise<void> {
  const asked = readFlags(runtime, flags)
  const signals = followSignals(process.env)
  try {
    const daemon = await start({ ...options, ...asked, onLog: toLog(flags.json === true, output) })
    if (flags.json === true) output.result(JSON.stringify({ event: 'ready', uri: daemon.uri }))
    else {
      output.note(`${runtime} functions of ${output.clean(daemon.settings.functionsRoot)}`)
      output.result(`ready ${daemon.uri}`)
    }
    await signals.first
    await daemon.close()
  } finally {
    signals.forget()
  }
}

async function start(options: RemoteDaemonOptions): Promise<RemoteDaemon> {
  try {
    return await startRemoteDaemon(options)
  } catch (error) {
    if (error instanceof RemoteDaemonError) throw new CommandError(error.message)
    throw error
  }
}

function readFlags(
  runtime: string,
  { listen, tlsCert, tlsKey }: DaemonFlags,
): Pick<RemoteDaemonOptions, 'runtime' | 'listen' | 'tls'> {
  if (runtime === 'lua') throw new UsageError('Lua runs inside the gateway process and has no daemon')
  if ((tlsCert === undefined) !== (tlsKey === undefined))
    throw new UsageError('--tls-cert and --tls-key belong together')
  const tls = tlsCert === undefined ? null : { certFile: resolve(tlsCert), keyFile: resolve(tlsKey!) }
  const address = readAddress(listen)
  if (tls !== null && address.startsWith('unix:')) throw new UsageError('--tls-cert is for --listen tcp://host:port')
  return { runtime: runtime as RemoteDaemonOptions['runtime'], listen: address, tls }
}

function readAddress(listen: string): string {
  const path = /^unix:(?:\/\/(?=\/))?(.+)$/.exec(listen)?.[1]
  if (path !== undefined) return `unix:${resolve(path)}`
  const port = /^tcp:\/\/(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})$/.exec(listen)?.[1]
  if (port === undefined || Number(port) > MAX_PORT)
    throw new UsageError(`--listen must be unix:/path or tcp://host:port, got ${JSON.stringify(listen)}`)
  return listen
}

function toLog(isJson: boolean, output: Output): (record: LogRecord) => void {
  return record => {
    if (record.level === 'debug') return
    if (isJson)
      for (const line of toJsonLogLines(record)) output.result(JSON.stringify({ event: 'log', ...JSON.parse(line) }))
    else output.note(`${record.level}: ${output.clean(record.message)}`)
  }
}
