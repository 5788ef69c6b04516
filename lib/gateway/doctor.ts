/** The checks of `fngw doctor` and `GET /_fn/doctor`: the machine, the settings, the tree, and whether functions load. Owner: page gateway/doctor. */

import { execFile } from 'node:child_process'
import { accessSync, constants, existsSync, lstatSync, readFileSync, readlinkSync, statSync } from 'node:fs'
import { statfs } from 'node:fs/promises'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { isLoopback } from '../config/setting-checks.ts'
import type { Settings } from '../config/settings.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { toUsers } from '../config/texts.ts'
import type { Clock } from '../core/clock.ts'
import { orNull, type Warning } from '../core/errors.ts'
import { readDescriptorLimit } from '../core/host.ts'
import { RUNTIMES, type RuntimeName } from '../core/identity.ts'
import { mapSome } from '../core/semaphore.ts'
import { toShownUrl } from '../core/store-url.ts'
import { nameSome, toCount } from '../core/text.ts'
import type { DirNode } from '../discovery/snapshot.ts'
import { namesIn, OwnFolder } from '../files/own-folder.ts'
import { RootLock } from '../files/root-lock.ts'
import { LineLog } from '../jobs/file-store.ts'
import { findProgram, findTool, findVersionProblem, toInstallAdvice, toInstallHint } from '../runtime/binaries.ts'
import { checkReachable } from '../runtime/function-files.ts'
import { packageFile } from '../runtime/package-files.ts'
import type { Runtimes } from '../runtime/runtimes.ts'
import type { Catalog } from './catalog-loader.ts'

/** One check of `gateway.doctor()`. */
export interface DoctorCheck {
  /** Stable, such as `runtime.python.version`; several checks may share one. */
  id: string
  status: 'ok' | 'warning' | 'error'
  /** What was found, with file, field or value. */
  message: string
  /** What to do; null when nothing has to be done. */
  fix: string | null
}

/** What is examined. */
interface Examined {
  settings: Settings
  host: { readonly clock: Clock; readonly hostEnv: Readonly<Record<string, string | undefined>> }
  catalog: Catalog
  warnings: readonly Warning[]
  runtimes: Pick<Runtimes, 'byName' | 'dispatcher'>
}

const MIB = 1024 * 1024
/** Bytes free below which jobs and logs are about to fail, and below which packages may not fit. */
const FULL_BYTES = 100 * MIB
const LOW_BYTES = 1024 * MIB
/** Descriptors below which a few hundred clients are too many. */
const LOW_DESCRIPTORS = 4096
/** Part of the watches of the user that may be in use. */
const WATCH_SHARE = 0.9
/** Milliseconds that a program may take to name its version. */
const VERSION_MS = 10_000
/** Milliseconds that a function may take to be built, installed and loaded. */
const LOAD_MS = 300_000
/** Wall clock before which a machine has no time yet: 2024. */
const EARLIEST = Date.UTC(2024)

/** Warnings that keep something from being served. */
const BROKEN: ReadonlySet<string> = new Set([
  'CALLABLE_MISSING',
  'CONFIG_BROKEN',
  'INVALID_ROUTE',
  'ISOLATION_UNREADABLE',
  'JOBS_NOT_KEPT',
  'ROUTE_CONFLICT',
  'SCHEDULES_NOT_KEPT',
  'SYNTAX_ERROR',
  'UNREADABLE_FILE',
])

/** Warnings that have separate checks. */
const OWN_CHECKS: ReadonlySet<string> = new Set(['RUNTIME_MISSING', 'STORE_EVICTS', 'STORE_NOT_PERSISTENT'])

/** @param fix - of a warning or an error */
function check(id: string, message: string, status: DoctorCheck['status'] = 'ok', fix = ''): DoctorCheck {
  return { id, status, message, fix: status === 'ok' ? null : fix }
}

/**
 * Runs every check.
 * @param loads - true loads each function in a worker that ends right after; false reports failures that are known already
 */
export async function examine(gateway: Examined, loads: boolean): Promise<DoctorCheck[]> {
  const { settings, warnings, host } = gateway
  const used = TOOLS.filter(([runtime]) => countOf(gateway, runtime) > 0)
  return [
    checkPackage(),
    ...(await Promise.all(RUNTIMES.map(name => checkRuntime(name, gateway)))),
    ...checkGuard(settings),
    ...(await Promise.all(used.map(([runtime, tools]) => checkTool(runtime, tools, gateway)))),
    ...checkFolders(settings.functionsRoot),
    ...checkIsolation(gateway),
    ...(await Promise.all([checkDisk('disk.functions', settings.functionsRoot), checkDisk('disk.temp', tmpdir())])),
    ...checkLimits(gateway),
    ...checkClock(host.clock),
    ...checkAccess(settings),
    checkLock(gateway),
    await checkJobs(settings.functionsRoot),
    ...(await checkStore(settings)),
    ...warnings.filter(({ code }) => !OWN_CHECKS.has(code)).map(toCheck),
    ...(await checkFunctions(gateway, loads)),
  ]
}

/** The server of a fleet, over a separate connection: `fngw doctor` runs without a gateway. */
async function checkStore({ storeUrl, storePrefix }: Settings): Promise<DoctorCheck[]> {
  if (storeUrl === null) return []
  const id = 'store.reachable'
  const { examineStore } = await import('../fleet/fleet-store.ts')
  try {
    const { version, problem, warnings } = await examineStore(storeUrl, storePrefix)
    const shown = toShownUrl(storeUrl)
    if (problem === null) {
      const ids: Readonly<Record<string, string>> = { STORE_EVICTS: 'store.eviction' }
      const losses = warnings.map(one => check(ids[one.code] ?? 'store.persistence', one.message, 'warning', one.hint))
      return [check(id, `the store ${shown} answers: version ${version}`), ...losses]
    }
    const fix = 'Start the server, or correct FN_STORE_URL.'
    return [check(id, `the store ${shown} cannot be used: ${problem}`, 'error', fix)]
  } catch (error) {
    return [check(id, (error as Error).message, 'error', 'npm install bullmq@6 ioredis@5')]
  }
}

function toCheck({ code, path, message, hint }: Warning): DoctorCheck {
  const id = `tree.${code.toLowerCase().replaceAll('_', '-')}`
  // Most messages name the file; the others are about the root or a setting.
  const text = path === '.' || message.includes(path) ? message : `${path}: ${message}`
  return check(id, text, BROKEN.has(code) ? 'error' : 'warning', hint)
}

function countOf({ catalog }: Examined, name: RuntimeName): number {
  return [...catalog.functions.values()].filter(({ runtime }) => runtime === name).length
}

async function checkRuntime(name: RuntimeName, gateway: Examined): Promise<DoctorCheck> {
  const { settings, host, runtimes } = gateway
  const id = `runtime.${name}.version`
  const functions = countOf(gateway, name)
  const used = toCount(functions, 'function')
  if (name === 'lua') return check(id, `lua runs inside the gateway, ${used}`)
  const uris = settings.runtimeSockets[name] ?? []
  if (uris.length > 0) {
    const health = runtimes.byName.get(name)?.health()
    const message = `${name} daemons: ${uris.join(', ')}, ${used}`
    if (health?.up !== false || functions === 0) return check(id, message)
    const fix = 'Start fngw daemon there, and check FN_RUNTIME_SECRET on both sides.'
    return check(id, `${message}: ${health.reason}`, 'error', fix)
  }
  const toMissing = (problem: string, unused = problem): DoctorCheck =>
    functions === 0
      ? check(id, `${unused}; no function needs it`)
      : check(id, `${problem}; needed by ${used}`, 'error', toInstallAdvice(name))
  const { path, problem } = findProgram(name, settings.binaries, host.hostEnv.PATH ?? '')
  if (path === null) return toMissing(problem, `${name} is not installed`)
  const flag = name === 'go' ? 'version' : '--version'
  const version = path === process.execPath ? process.versions.node : await readVersion(path, flag)
  if (version === null) return toMissing(`${path} does not run or does not report a version`)
  const tooOld = findVersionProblem(name, version)
  if (tooOld !== null) return check(id, `${tooOld} (${path})`, 'error', toInstallAdvice(name))
  return check(id, `${name} ${version} at ${path}, ${used}`)
}

/** @returns null for a program that fails, or takes too long */
function readVersion(path: string, flag: string): Promise<string | null> {
  return new Promise(resolve => {
    execFile(path, [flag], { timeout: VERSION_MS }, (error, stdout, stderr) => {
      const found = /\d+\.\d+[\w.-]*/.exec(`${stdout}${stderr}`)?.[0] ?? null
      resolve(error === null ? found : null)
    })
  })
}

/** Package managers of the languages that have functions. Go and Rust have theirs in the toolchain. */
const TOOLS = [
  ['python', ['uv', 'pip3', 'pip']],
  ['node', ['npm']],
  ['php', ['composer']],
] as const

type Tool = (typeof TOOLS)[number][1][number]

/** Oldest npm that reads and writes the lock files of functions. */
const OLDEST_NPM = 7

async function checkTool(
  runtime: RuntimeName,
  tools: readonly Tool[],
  { settings, host }: Examined,
): Promise<DoctorCheck> {
  const id = `tool.${runtime}`
  const [first] = tools
  for (const tool of tools) {
    const path = findTool(tool, settings.binaries, host.hostEnv.PATH ?? '')
    if (path === null) continue
    const version = await readVersion(path, '--version')
    const unusable = `packages of ${runtime} functions cannot be installed`
    if (version === null) return check(id, `${path} does not run: ${unusable}`, 'warning', `Install ${tool} again.`)
    if (tool === 'npm' && Number.parseInt(version, 10) < OLDEST_NPM)
      return check(
        id,
        `npm ${version} is too old: ${OLDEST_NPM} or later is needed (${path})`,
        'warning',
        'Update Node.js, which brings npm.',
      )
    return check(id, `${tool} ${version} at ${path}`)
  }
  const fix = first === 'composer' ? toInstallHint('composer') : `install ${first}`
  return check(id, `${first} is not installed: packages of ${runtime} functions cannot be installed`, 'warning', fix)
}

/** This package, and whether the Node.js that runs it is supported. */
function checkPackage(): DoctorCheck {
  const { version, engines } = JSON.parse(readFileSync(packageFile('package.json'), 'utf8'))
  const message = `fngw ${version} on Node.js ${process.versions.node}`
  const problem = findVersionProblem('node', process.versions.node)
  if (problem === null) return check('fngw.version', message)
  return check('fngw.version', `${message}, which is too old: ${engines.node} is supported`, 'error', 'Update Node.js.')
}

/** Where the Node daemon looks for the interpreter of its guard. */
const PERL = '/usr/bin/perl'

/** Workers of node, go and rust start behind a guard, a perl program, that ends what their handlers leave behind. */
function checkGuard({ isolation }: Settings): DoctorCheck[] {
  if (process.platform !== 'linux' || isolation === 'user') return []
  if (existsSync(PERL)) return [check('tool.perl', `perl at ${PERL}`)]
  const message = `${PERL} is missing: a detached process of a node, go or rust function can outlive its worker`
  return [check('tool.perl', message, 'warning', 'Install perl, or set FN_ISOLATION=user.')]
}

function checkFolders(root: string): DoctorCheck[] {
  const state = join(root, '.svc')
  const fix = 'Give the user that runs the gateway the right to write there.'
  const checkFolder = (id: string, path: string, can: string, loss: string, status: 'warning' | 'error') =>
    orNull(() => accessSync(path, constants.R_OK | constants.W_OK | constants.X_OK)) === null
      ? check(id, `${path} cannot be written: ${loss}`, status, fix)
      : check(id, `${path} can be ${can}`)
  const unchangeable = 'the console and the API cannot change functions'
  const functions = checkFolder('folder.functions', root, 'read and written', unchangeable, 'warning')
  const stats = lstatSync(state, { throwIfNoEntry: false })
  if (stats?.isSymbolicLink()) {
    const message = `${state} is a symbolic link, which is not followed: jobs, schedules and logs are not kept`
    return [functions, check('folder.state', message, 'error', 'Replace it by a folder, or mount one there.')]
  }
  if (stats === undefined) return [functions]
  return [functions, checkFolder('folder.state', state, 'written', 'jobs, schedules and logs are not kept', 'error')]
}

/**
 * With a user for each function the gateway gives up root: whether its own user, or the groups of functions that it joins, can read the
 * tree. The files that a function's user needs are warnings of the tree.
 */
function checkIsolation({ settings, catalog }: Examined): DoctorCheck[] {
  const { isolation, isolationUids, functionsRoot } = settings
  if (isolation !== 'user') return []
  const { gateway, functions } = toUsers(isolationUids)
  const uid = process.getuid?.() || gateway
  const isGroup = (gid: number): boolean => gid === uid || (gid >= functions.first && gid <= functions.last)
  const closed: string[] = []
  const look = (path: string, needed: number): boolean => {
    const stats = statSync(join(functionsRoot, path), { throwIfNoEntry: false })
    if (stats === undefined) return false
    const shift = stats.uid === uid ? 6 : isGroup(stats.gid) ? 3 : 0
    if (((stats.mode >> shift) & needed) === needed) return true
    closed.push(`${path || '.'} (${(stats.mode & 0o777).toString(8)})`)
    return false
  }
  const visit = ({ path, files, dirs, skipped }: DirNode): void => {
    // What is in a closed folder is not looked at.
    if (skipped !== null || !look(path, 0o5)) return
    for (const { name } of files) look(path === '' ? name : `${path}/${name}`, 0o4)
    dirs.forEach(visit)
  }
  visit(catalog.snapshot.root)
  const id = 'isolation.files'
  try {
    checkReachable(
      [process.execPath, packageFile('package.json'), functionsRoot],
      `user ${uid}, as whom the gateway runs,`,
    )
  } catch (error) {
    return [check(id, (error as Error).message, 'error', 'Open the folder, or move what is in it.')]
  }
  if (closed.length === 0) return [check(id, `user ${uid}, as whom the gateway runs, can read the functions root`)]
  const fix = `Give them the group of their function or ${uid}: chgrp ${uid} FILE && chmod g=rX FILE.`
  return [check(id, `closed to user ${uid}, as whom the gateway runs: ${nameSome(closed)}`, 'error', fix)]
}

async function checkDisk(id: string, path: string): Promise<DoctorCheck> {
  const { bavail, bsize, files, ffree } = await statfs(path)
  const free = bavail * bsize
  if (files > 0 && ffree === 0) return check(id, `no inodes are free at ${path}`, 'error', 'Remove files there.')
  const status = free < FULL_BYTES ? 'error' : free < LOW_BYTES ? 'warning' : 'ok'
  return check(id, `${Math.floor(free / MIB)} MiB free at ${path}`, status, 'Free some space there.')
}

function checkLimits({ catalog }: Examined): DoctorCheck[] {
  const checks = [check('machine.processors', `${availableParallelism()} processors`)]
  const watches = Number(readText('/proc/sys/fs/inotify/max_user_watches'))
  if (watches > 0) {
    const needed = countFolders(catalog.snapshot.root)
    const used = countWatches()
    const message = `${watches} inotify watches per user, ${used} in use, ${needed} folders to watch`
    const fix = 'Raise it: sysctl fs.inotify.max_user_watches=524288. Without watches the tree is polled.'
    const isLow = Math.max(used, needed) > watches * WATCH_SHARE
    checks.unshift(check('limit.inotify', message, isLow ? 'warning' : 'ok', fix))
  }
  const descriptors = readDescriptorLimit()
  if (descriptors !== null) {
    const message = `${descriptors} open files per process, ${namesIn('/proc/self/fd').length} in use`
    const fix = 'Raise it: ulimit -n 65536, or LimitNOFILE=65536 in the unit.'
    checks.unshift(check('limit.files', message, descriptors < LOW_DESCRIPTORS ? 'warning' : 'ok', fix))
  }
  return checks
}

function countFolders({ dirs }: DirNode): number {
  return dirs.reduce((count, dir) => count + countFolders(dir), 1)
}

/** Watches of this user's processes, as far as they may be read. */
function countWatches(): number {
  let count = 0
  for (const pid of namesIn('/proc').filter(name => /^\d+$/.test(name))) {
    for (const fd of namesIn(`/proc/${pid}/fd`)) {
      if (orNull(() => readlinkSync(`/proc/${pid}/fd/${fd}`)) !== 'anon_inode:inotify') continue
      count += readText(`/proc/${pid}/fdinfo/${fd}`).match(/^inotify /gm)?.length ?? 0
    }
  }
  return count
}

function readText(path: string): string {
  return orNull(() => readFileSync(path, 'latin1')) ?? ''
}

function checkClock(clock: Clock): DoctorCheck[] {
  const now = clock.wall()
  const text = new Date(now).toISOString()
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone
  const checks = [
    now < EARLIEST
      ? check('clock.time', `the clock says ${text}`, 'error', 'Set it: timedatectl set-ntp true.')
      : check('clock.time', `${text}, local time zone ${zone}`),
  ]
  if (orNull(() => new Intl.DateTimeFormat('en', { timeZone: 'Europe/Berlin' })) === null)
    checks.push(check('clock.zones', 'this Node has no time zones', 'error', 'Use a build of Node with full ICU.'))
  return checks
}

/** Networks of at most this many bits are the whole internet, or nearly. */
const WIDE_BITS = 4

function checkAccess(settings: Settings): DoctorCheck[] {
  const { consoleApiEnabled, consoleLocalCidrs, trustedProxyCidrs } = settings
  if (!consoleApiEnabled) return [check('access.control', 'the control plane is off')]
  const checkWide = (id: string, name: string, cidrs: readonly string[], why: string, fix: string): DoctorCheck[] => {
    const wide = cidrs.filter(cidr => Number(cidr.split('/')[1] ?? 32) <= WIDE_BITS).join(', ')
    return wide === '' ? [] : [check(id, `${name} has ${wide}: ${why}`, 'error', `Name the ${fix} only.`)]
  }
  const local = 'everyone counts as a local caller'
  const pretends = 'every client can pretend to have another address, 127.0.0.1 too'
  const own = 'networks of your own machines'
  const checks = [
    ...checkWide('access.local-networks', 'FN_CONSOLE_LOCAL_CIDRS', consoleLocalCidrs, local, own),
    ...checkWide('access.proxies', 'FN_TRUSTED_PROXY_CIDRS', trustedProxyCidrs, pretends, 'addresses of your proxies'),
  ]
  if (checks.length === 0) checks.push(check('access.control', 'local callers and proxies are named narrowly'))
  return [...checks, ...checkToken(settings)]
}

/** Beyond loopback a proxy may be in front, whose requests seem to be local. */
function checkToken({ host, controlPort, adminToken, uiEnabled, consoleLoginPasswordHash }: Settings): DoctorCheck[] {
  const id = 'access.admin-token'
  if (adminToken !== null) return [check(id, 'the admin token is set')]
  const isPublic = !isLoopback(`http://${host.includes(':') ? `[${host}]` : host}`)
  if (!isPublic || controlPort !== null || (uiEnabled && consoleLoginPasswordHash !== null)) return []
  const message = `the gateway listens on ${host} without an admin token: a proxy on this machine would make every client local`
  return [check(id, message, 'warning', 'Set FN_ADMIN_TOKEN or FN_ADMIN_TOKEN_FILE.')]
}

function checkLock({ settings, host }: Examined): DoctorCheck {
  const id = 'state.lock'
  try {
    const found = new RootLock(new OwnFolder(settings.functionsRoot, '.svc'), host.clock).look()
    if (found === null) return check(id, 'no gateway keeps jobs and schedules here now')
    const { pid, host: machine } = found.holder
    if (found.isAlive) return check(id, `process ${pid} on ${machine} keeps jobs and schedules here`)
    const fix = 'fngw doctor --fix removes it; the next start does, too.'
    return check(id, `the lock of process ${pid}, which has ended, is left`, 'warning', fix)
  } catch (error) {
    return check(id, (error as Error).message, 'error', 'Remove what is in its place.')
  }
}

async function checkJobs(root: string): Promise<DoctorCheck> {
  const id = 'state.jobs'
  const folder = new OwnFolder(root, '.svc', 'jobs')
  try {
    const log = await LineLog.openToRead(folder.pathOf('log'), () => true)
    await log?.close()
    const aside = namesIn(folder.path).filter(name => name.startsWith('log.set-aside-'))
    if (aside.length === 0) return check(id, log === null ? 'no jobs were kept yet' : 'the job log can be read')
    const message = `${aside.length} job logs that could not be used are kept in .svc/jobs: ${aside.join(', ')}`
    return check(id, message, 'warning', 'Remove them when their jobs are not needed.')
  } catch (error) {
    const fix = 'Use the version of fngw that wrote it, or move it away.'
    return check(id, `.svc/jobs/log: ${(error as Error).message}`, 'error', fix)
  }
}

async function checkFunctions({ catalog, runtimes }: Examined, loads: boolean): Promise<DoctorCheck[]> {
  const { dispatcher, byName } = runtimes
  const id = 'function.load'
  const all = [...catalog.functions.values()].filter(({ runtime }) => byName.has(runtime))
  const failed: DoctorCheck[] = []
  const load = async (fn: FunctionVersion): Promise<void> => {
    const error = loads ? await dispatcher.tryLoad(fn, LOAD_MS) : dispatcher.loadErrorOf(fn.key)
    if (error === null) return
    const { file, line, hint = 'Correct the file and save it.' } = error.detail ?? {}
    const place = file === undefined ? '' : ` (${file}${line === undefined ? '' : `:${line}`})`
    failed.push(check(id, `${fn.key}: ${error.message}${place}`, 'error', hint))
  }
  // Each is a process, and some are built first.
  await mapSome(all, load, 2)
  failed.sort((a, b) => (a.message < b.message ? -1 : 1))
  const counted = toCount(all.length - failed.length, 'function')
  return [check(id, loads ? `${counted} loaded` : `${counted} without a known failure`), ...failed]
}
