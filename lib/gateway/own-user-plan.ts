/**
 * Prepares a gateway as root before it changes to its own user. Owner: page runtime/isolation.
 */

import { lstatSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { canChangeUser, isFullRoot, type ProcessPowers } from '../config/setting-checks.ts'
import { toUsers, type UidRange } from '../config/texts.ts'
import { PackageFolder, TARGETS } from '../dependencies/package-set.ts'
import { giveFolder, handOver, OwnFolder } from '../files/own-folder.ts'
import { USERS } from '../files/tool-user.ts'
import { checkReachable, FunctionFiles, SECRET_FILES } from '../runtime/function-files.ts'
import { packageFile } from '../runtime/package-files.ts'
import { installedRuntimes } from './compose.ts'
import { createGateway } from './gateway.ts'
import type { Settings } from '../config/settings.ts'
import { type GatewayOptions, readSettings } from './options.ts'

/** How the gateway is to run. */
interface OwnUserPlan {
  /** Its user and group id. */
  uid: number
  /** Its home folder; null for the one it has. */
  home: string | null
  /** Groups of functions, whose files it reads. */
  groups: UidRange
}

/** Folders of `.svc` that the gateway does not write to, or that users of functions have a part of. */
const NOT_GIVEN = ['packs', USERS]
const HOME = 'home'

/**
 * Where functions have users of their own: who the gateway is to be, with everything made for it that only root can make.
 * @returns null when it stays the user of this process, or when the gateway reports the problem itself
 * @throws Error with a message for people when its user could not reach what it needs; SettingsError
 */
export async function planOwnUser(options: GatewayOptions, powers: ProcessPowers): Promise<OwnUserPlan | null> {
  const { settings, problems } = readSettings(options)
  if (problems.length > 0 || settings.isolation !== 'user' || !canChangeUser(powers)) return null
  const { gateway, functions } = toUsers(settings.isolationUids)
  if (powers.uid !== 0) return { uid: powers.uid ?? gateway, home: null, groups: functions }
  const reached = [process.execPath, packageFile('package.json'), settings.functionsRoot, process.cwd()]
  checkReachable(reached, `user ${gateway}, as whom the gateway runs,`)
  const isPrepared = isFullRoot(powers)
  if (isPrepared) await prepareTree(options, settings, gateway)
  return { uid: gateway, home: isPrepared ? join(settings.functionsRoot, '.svc', HOME) : null, groups: functions }
}

/** Chooses users, closes files where that is asked for, and gives what gateways write to the gateway's user. */
async function prepareTree(options: GatewayOptions, settings: Settings, uid: number): Promise<void> {
  const probe = await createGateway({ ...options, inspect: true })
  const state = new OwnFolder(settings.functionsRoot, '.svc')
  try {
    state.below(HOME).make()
    // Caches of builds, of a gateway with another user.
    if (lstatSync(state.pathOf(USERS), { throwIfNoEntry: false })?.uid !== uid) state.remove(USERS)
    handOver(state, uid, NOT_GIVEN)
    const functions = listFunctions(probe.catalog(), settings.functionsRoot)
    for (const { folder, runtime } of functions) {
      if (runtime === 'go' || runtime === 'rust') handOver(new OwnFolder(folder, `.${runtime}-build`), uid)
    }
    if (settings.isolationFiles === 'close') {
      openSecrets(functions, settings)
      openInstallFolders([...functions, ...listPacks(state)], settings)
    }
  } catch (error) {
    const message = `user ${uid}, as whom the gateway runs, cannot be given what it writes to: ${(error as Error).message}`
    throw new Error(message)
  } finally {
    await probe.close()
  }
}

/** The runtime and folder of a function or of a shared pack. */
interface Unit {
  runtime: string
  folder: string
}

function listFunctions(catalog: Record<string, unknown>, root: string): Unit[] {
  const found = new Map<string, Unit>()
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

function listPacks(state: OwnFolder): Unit[] {
  return ['python', 'node'].flatMap(runtime => {
    const packs = state.below('packs', runtime)
    const folders = packs.list(/^/).filter(({ stats }) => stats.isDirectory())
    return folders.map(({ name }) => ({ runtime, folder: packs.pathOf(name) }))
  })
}

/** Folders that packages are put into become the gateway's, and so do packages that root put there for it. */
function openInstallFolders(units: readonly Unit[], settings: Settings): void {
  const { gateway } = toUsers(settings.isolationUids)
  const runtimes = installedRuntimes(settings)
  for (const { runtime, folder } of units) {
    const target = TARGETS[runtime]
    if (target === undefined || !runtimes.has(runtime)) continue
    giveFolder(settings.functionsRoot, folder, gateway)
    const isOurs = new PackageFolder(folder, target).set !== null
    const installed = new OwnFolder(folder, target)
    if (isOurs && lstatSync(installed.path).uid === 0) handOver(installed, gateway)
  }
}

/** Secrets that only root can read become readable for the gateway, and for no other user. */
function openSecrets(functions: readonly Unit[], { functionsRoot, isolationUids }: Settings): void {
  const { gateway, functions: range } = toUsers(isolationUids)
  const files = new FunctionFiles(range, functionsRoot, [])
  for (const { folder } of functions) {
    for (const name of SECRET_FILES) {
      const path = join(folder, name)
      const stats = lstatSync(path, { throwIfNoEntry: false })
      if (stats?.isFile() !== true || stats.uid === gateway || (stats.mode & 0o044) !== 0) continue
      try {
        files.close({ path, mode: stats.mode }, gateway)
      } catch {
        // Outside the root: the gateway reports that it cannot be read.
      }
    }
  }
}
