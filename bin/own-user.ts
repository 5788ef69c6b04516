/**
 * `fngw dev` and `run` with `FN_ISOLATION=user`: the gateway runs as a separate user. Owner: page runtime/isolation.
 *
 *   root ──► makes what only root can make ──► fngw as user 20000, with CAP_SETUID and CAP_SETGID
 *    └────► becomes user 20000 as well, without them: passes signals on and the exit code back
 */

import { spawn, type StdioOptions } from 'node:child_process'
import { constants } from 'node:os'
import { sep } from 'node:path'
import { type ProcessPowers, readPowers } from '../lib/config/setting-checks.ts'
import { type GatewayOptions, SettingsError } from '../lib/index.ts'
import { planOwnUser } from '../lib/gateway/own-user-plan.ts'
import { findOnPath } from '../lib/runtime/binaries.ts'
import { listFds, toSuccessorEnv } from './handed-sockets.ts'
import { CommandError } from './usage-error.ts'

/** Kept where root has it: a port below 1024 may be asked for. */
const CAP_NET_BIND_SERVICE = 10n
/** Arguments that drop capabilities permanently. */
const CAP_SETPCAP = 8n

/**
 * Gives root up, where functions have users of their own.
 * @returns exit code of the gateway that ran meanwhile; null when this process is to be the gateway
 * @throws CommandError when its user could not reach what it needs; SettingsError
 */
export async function serveAsOwnUser(options: GatewayOptions): Promise<number | null> {
  const powers = readPowers()
  const plan = await planOwnUser(options, powers).catch(error => {
    throw error instanceof SettingsError ? error : new CommandError((error as Error).message)
  })
  if (plan === null) return null
  if (powers.uid === 0) return runAs(plan.uid, toCapabilities(powers), plan.home)
  // Files of functions are closed to all but their groups.
  const { first, last } = plan.groups
  process.setgroups!(Array.from({ length: last - first + 1 }, (_, at) => first + at))
  return null
}

/** As `setpriv` takes them: without the sign of each. */
function toCapabilities({ capabilities }: ProcessPowers): { kept: string; canBound: boolean } {
  const has = (bit: bigint): boolean => capabilities !== null && ((capabilities >> bit) & 1n) === 1n
  const names = ['setuid', 'setgid', ...(has(CAP_NET_BIND_SERVICE) ? ['net_bind_service'] : [])]
  return { kept: `-all,${names.map(name => `+${name}`).join(',')}`, canBound: has(CAP_SETPCAP) }
}

function runAs(
  uid: number,
  { kept, canBound }: ReturnType<typeof toCapabilities>,
  home: string | null,
): Promise<number> {
  const setpriv = findOnPath('setpriv', process.env.PATH ?? '')
  if (setpriv === null)
    throw new CommandError('FN_ISOLATION=user needs setpriv: install it (apt-get install util-linux)')
  const user = ['--reuid', String(uid), '--regid', String(uid), '--clear-groups', '--pdeathsig', 'KILL']
  const powers = [`--inh-caps=${kept}`, `--ambient-caps=${kept}`, ...(canBound ? [`--bounding-set=${kept}`] : [])]
  const self = [process.execPath, ...process.execArgv, ...process.argv.slice(1)]
  const own = home === null ? process.env : toHomeEnv(process.env, home)
  const fds = listFds(own, process.pid)
  const env = fds.length === 0 ? own : toSuccessorEnv(own)
  const stdio: StdioOptions = ['inherit', 'inherit', 'inherit', ...fds]
  const child = spawn(setpriv, [...user, ...powers, '--', ...self], { stdio, env })
  passSignals(signal => child.kill(signal))
  // No process is root from here on.
  process.setgroups!([])
  process.setgid!(uid)
  process.setuid!(uid)
  return new Promise((resolve, reject) => {
    child.once('error', error => reject(new CommandError(`cannot run ${setpriv}: ${error.message}`)))
    child.once('exit', (code, signal) => resolve(code ?? 128 + (constants.signals[signal!] ?? 0)))
  })
}

/** With another home: the new user cannot use the folders that npm passes to programs. */
function toHomeEnv(env: NodeJS.ProcessEnv, home: string): NodeJS.ProcessEnv {
  const own: NodeJS.ProcessEnv = { ...env, HOME: home }
  for (const name of ['npm_config_cache', 'npm_config_userconfig'])
    if (env.HOME !== undefined && env[name]?.startsWith(`${env.HOME}${sep}`) === true) delete own[name]
  return own
}

function passSignals(pass: (signal: NodeJS.Signals) => void): void {
  // What is typed at a terminal reaches both.
  const typed = process.stdin.isTTY === true
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
    process.on(signal, () => {
      if (!typed || signal !== 'SIGINT') pass(signal)
    })
}
