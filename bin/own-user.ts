/**
 * `fngw dev` and `run` with `FN_ISOLATION=user`: the gateway runs as a user of its own. Owner: page runtime/isolation.
 *
 *   root ──► makes what only root can make ──► fngw as user 20000, with CAP_SETUID and CAP_SETGID
 *    └────► becomes user 20000 as well, without them: passes signals on and the exit code back
 */

import { spawn } from 'node:child_process'
import { lstatSync } from 'node:fs'
import { constants } from 'node:os'
import { dirname, join } from 'node:path'
import { canChangeUser, isFullRoot, type ProcessPowers, readPowers } from '../lib/config/isolation.ts'
import type { Settings } from '../lib/config/settings.ts'
import { toUsers, type UidRange } from '../lib/config/uid-range.ts'
import { handOver } from '../lib/files/hand-over.ts'
import { OwnFolder } from '../lib/files/own-folder.ts'
import { readSettings } from '../lib/gateway-inputs.ts'
import { createGateway, type GatewayOptions } from '../lib/index.ts'
import { findOnPath } from '../lib/runtime/binaries.ts'
import { FunctionFiles, SECRET_FILES } from '../lib/runtime/function-files.ts'
import { packageFile } from '../lib/runtime/package-files.ts'
import { checkReachable } from '../lib/runtime/reachable.ts'
import { CommandError } from './usage-error.ts'

/** Kept where root has it: a port below 1024 may be asked for. */
const CAP_NET_BIND_SERVICE = 10n
/** What taking capabilities away for good takes. */
const CAP_SETPCAP = 8n
/** Folders of `.svc` that the gateway does not write to. */
const READ_ONLY = ['packs']
const HOME = 'home'

/**
 * Gives root up, where functions have users of their own.
 * @returns exit code of the gateway that ran meanwhile; null when this process is to be the gateway
 * @throws CommandError when its user could not reach what it needs; SettingsError
 */
export async function serveAsOwnUser(options: GatewayOptions): Promise<number | null> {
  const { settings, problems } = readSettings(options)
  const powers = readPowers()
  // Whatever is wrong is told by the gateway.
  if (problems.length > 0 || settings.isolation !== 'user' || !canChangeUser(powers)) return null
  const { gateway, functions } = toUsers(settings.isolationUids)
  if (powers.uid !== 0) {
    joinGroups(functions)
    return null
  }
  const reached = [process.execPath, packageFile('package.json'), settings.functionsRoot, process.cwd()]
  checkPaths(reached, gateway)
  if (isFullRoot(powers)) await prepareTree(options, settings, gateway)
  return runAs(gateway, toCapabilities(powers), isFullRoot(powers) ? join(settings.functionsRoot, '.svc', HOME) : null)
}

/** Files of functions are closed to all but their groups. */
function joinGroups({ first, last }: UidRange): void {
  process.setgroups!(Array.from({ length: last - first + 1 }, (_, at) => first + at))
}

function checkPaths(paths: readonly string[], uid: number): void {
  try {
    checkReachable(paths, `user ${uid}, as whom the gateway runs,`)
  } catch (error) {
    throw new CommandError((error as Error).message)
  }
}

/** Chooses users, closes files where that is asked for, and gives what gateways write to the gateway's user. */
async function prepareTree(options: GatewayOptions, settings: Settings, uid: number): Promise<void> {
  const probe = await createGateway({ ...options, inspect: true })
  const state = new OwnFolder(settings.functionsRoot, '.svc')
  try {
    state.below(HOME).make()
    handOver(state, uid, READ_ONLY)
    const functions = listFunctions(probe.catalog(), settings.functionsRoot)
    for (const { folder, runtime } of functions) {
      if (runtime === 'go' || runtime === 'rust') handOver(new OwnFolder(folder, `.${runtime}-build`), uid)
    }
    if (settings.isolationFiles === 'close') openSecrets(functions, settings)
  } catch (error) {
    const message = `user ${uid}, as whom the gateway runs, cannot be given what it writes to: ${(error as Error).message}`
    throw new CommandError(message)
  } finally {
    await probe.close()
  }
}

/** Runtimes and folders of functions. */
function listFunctions(catalog: Record<string, unknown>, root: string): { runtime: string; folder: string }[] {
  const found = new Map<string, { runtime: string; folder: string }>()
  const runtimes = catalog.runtimes as Record<string, { functions: { file: unknown; version_files: object }[] }>
  for (const [runtime, { functions }] of Object.entries(runtimes)) {
    for (const { file, version_files } of functions) {
      for (const entry of [file, ...Object.values(version_files)]) {
        if (typeof entry !== 'string') continue
        const folder = dirname(join(root, entry))
        found.set(`${runtime} ${folder}`, { runtime, folder })
      }
    }
  }
  return [...found.values()]
}

/** Secrets that are root's alone become readable for the gateway, and for nobody else. */
function openSecrets(functions: readonly { folder: string }[], { functionsRoot, isolationUids }: Settings): void {
  const { gateway, functions: range } = toUsers(isolationUids)
  const files = new FunctionFiles(range, functionsRoot, [])
  for (const { folder } of functions) {
    for (const name of SECRET_FILES) {
      const path = join(folder, name)
      const stats = lstatSync(path, { throwIfNoEntry: false })
      if (stats?.isFile() !== true || stats.uid === gateway || (stats.mode & 0o044) !== 0) continue
      files.close({ path, mode: stats.mode }, gateway)
    }
  }
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
  const env = home === null ? process.env : { ...process.env, HOME: home }
  const child = spawn(setpriv, [...user, ...powers, '--', ...self], { stdio: 'inherit', env })
  passSignals(signal => child.kill(signal))
  // Nobody is root from here on.
  process.setgroups!([])
  process.setgid!(uid)
  process.setuid!(uid)
  return new Promise((resolve, reject) => {
    child.once('error', error => reject(new CommandError(`cannot run ${setpriv}: ${error.message}`)))
    child.once('exit', (code, signal) => resolve(code ?? 128 + (constants.signals[signal!] ?? 0)))
  })
}

function passSignals(pass: (signal: NodeJS.Signals) => void): void {
  // What is typed at a terminal reaches both.
  const typed = process.stdin.isTTY === true
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
    process.on(signal, () => {
      if (!typed || signal !== 'SIGINT') pass(signal)
    })
}
