/** The checks of `fngw doctor` and `GET /_fn/doctor`: the machine, the settings, the tree, and whether functions load. Owner: page gateway/doctor. */

import { execFile } from 'node:child_process'
import { accessSync, constants, existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { statfs } from 'node:fs/promises'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Settings } from '../config/settings.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import type { Clock } from '../core/clock.ts'
import type { GatewayError, Warning } from '../core/errors.ts'
import { readDescriptorLimit } from '../core/host.ts'
import { RUNTIMES, type RuntimeName } from '../core/identity.ts'
import type { DirNode } from '../discovery/snapshot.ts'
import { OwnFolder } from '../files/own-folder.ts'
import { RootLock } from '../files/root-lock.ts'
import { LineLog } from '../jobs/file-store.ts'
import { findProgram, findTool, findVersionProblem, toInstallAdvice, toInstallHint } from '../runtime/binaries.ts'
import type { Runtimes } from '../runtime/runtimes.ts'
import type { Catalog } from './catalog-loader.ts'

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

const ok = (id: string, message: string): DoctorCheck => ({ id, status: 'ok', message, fix: null })
const warning = (id: string, message: string, fix: string): DoctorCheck => ({ id, status: 'warning', message, fix })
const failure = (id: string, message: string, fix: string): DoctorCheck => ({ id, status: 'error', message, fix })

/**
 * Runs every check.
 * @param loads - true loads each function in a worker that ends right after; false reports failures that are known already
 */
export async function examine(gateway: Examined, loads: boolean): Promise<DoctorCheck[]> {
  const { settings, warnings } = gateway
  return [
    ...(await Promise.all(RUNTIMES.map(name => checkRuntime(name, gateway)))),
    ...checkTools(gateway),
    ...checkFolders(settings.functionsRoot),
    ...(await checkDisk(settings.functionsRoot)),
    ...checkLimits(gateway),
    ...checkClock(gateway.host.clock),
    ...checkAccess(settings),
    ...checkLock(gateway),
    ...(await checkJobs(settings.functionsRoot)),
    ...warnings.filter(({ code }) => code !== 'RUNTIME_MISSING').map(toCheck),
    ...(await checkFunctions(gateway, loads)),
  ]
}

function toCheck({ code, path, message, hint }: Warning): DoctorCheck {
  const id = `tree.${code.toLowerCase().replaceAll('_', '-')}`
  // Most messages name the file; the others are about the root or a setting.
  const text = path === '.' || message.includes(path) ? message : `${path}: ${message}`
  return { id, status: BROKEN.has(code) ? 'error' : 'warning', message: text, fix: hint }
}

function countOf({ catalog }: Examined, name: RuntimeName): number {
  let count = 0
  for (const { runtime } of catalog.functions.values()) if (runtime === name) count += 1
  return count
}

async function checkRuntime(name: RuntimeName, gateway: Examined): Promise<DoctorCheck> {
  const { settings, host, runtimes } = gateway
  const id = `runtime.${name}.version`
  const functions = countOf(gateway, name)
  const used = functions === 1 ? '1 function' : `${functions} functions`
  if (name === 'lua') return ok(id, `lua runs inside the gateway, ${used}`)
  const uris = settings.runtimeSockets[name] ?? []
  if (uris.length > 0) {
    const health = runtimes.byName.get(name)?.health()
    const message = `${name} daemons: ${uris.join(', ')}, ${used}`
    if (health?.up !== false || functions === 0) return ok(id, message)
    return failure(
      id,
      `${message}: ${health.reason}`,
      'Start fngw daemon there, and check FN_RUNTIME_SECRET on both sides.',
    )
  }
  const { path, problem } = findProgram(name, settings.binaries, host.hostEnv.PATH ?? '')
  if (path === null) {
    if (functions === 0) return ok(id, `${name} is not installed; no function needs it`)
    return failure(id, `${problem}; needed by ${used}`, toInstallAdvice(name))
  }
  const version = path === process.execPath ? process.versions.node : await readVersion(path, name)
  if (version === null) {
    if (functions === 0) return ok(id, `${path} does not run; no function needs it`)
    return failure(id, `${path} does not run or does not report a version; needed by ${used}`, toInstallAdvice(name))
  }
  const tooOld = findVersionProblem(name, version)
  if (tooOld !== null) return failure(id, `${tooOld} (${path})`, toInstallAdvice(name))
  return ok(id, `${name} ${version} at ${path}, ${used}`)
}

/** @returns null for a program that fails, or takes too long */
function readVersion(path: string, name: RuntimeName): Promise<string | null> {
  return new Promise(resolve => {
    const flag = name === 'go' ? 'version' : '--version'
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

function checkTools(gateway: Examined): DoctorCheck[] {
  const { settings, host } = gateway
  return [
    ...checkGuard(gateway),
    ...TOOLS.flatMap(([runtime, tools]) => {
      if (countOf(gateway, runtime) === 0) return []
      const id = `tool.${runtime}`
      const { binaries } = settings
      for (const tool of tools) {
        const path = findTool({ tool, binaries, path: host.hostEnv.PATH ?? '' })
        if (path !== null) return [ok(id, `${tool} at ${path}`)]
      }
      const fix = tools[0] === 'composer' ? toInstallHint('composer') : `install ${tools[0]}`
      return [warning(id, `${tools[0]} is not installed: packages of ${runtime} functions cannot be installed`, fix)]
    }),
  ]
}

/** Where the Node daemon looks for the interpreter of its guard. */
const PERL = '/usr/bin/perl'

/** Workers of node, go and rust start behind a guard, a perl program, that ends what their handlers leave behind. */
function checkGuard({ settings }: Examined): DoctorCheck[] {
  if (process.platform !== 'linux' || settings.isolation === 'user') return []
  if (existsSync(PERL)) return [ok('tool.perl', `perl at ${PERL}`)]
  const message = `${PERL} is missing: a detached process of a node, go or rust function can outlive its worker`
  return [warning('tool.perl', message, 'Install perl, or set FN_ISOLATION=user.')]
}

function checkFolders(root: string): DoctorCheck[] {
  const state = join(root, '.svc')
  const rights = 'Give the user that runs the gateway the right to write there.'
  const checks = [
    canWrite(root)
      ? ok('folder.functions', `${root} can be read and written`)
      : warning(
          'folder.functions',
          `${root} cannot be written: the console and the API cannot change functions`,
          rights,
        ),
  ]
  if (existsSync(state))
    checks.push(
      canWrite(state)
        ? ok('folder.state', `${state} can be written`)
        : failure('folder.state', `${state} cannot be written: jobs, schedules and logs are not kept`, rights),
    )
  return checks
}

function canWrite(path: string): boolean {
  try {
    accessSync(path, constants.R_OK | constants.W_OK | constants.X_OK)
    return true
  } catch {
    return false
  }
}

async function checkDisk(root: string): Promise<DoctorCheck[]> {
  const places = [
    ['disk.functions', root],
    ['disk.temp', tmpdir()],
  ] as const
  const checks = await Promise.all(
    places.map(async ([id, path]) => {
      const { bavail, bsize, files, ffree } = await statfs(path)
      const free = bavail * bsize
      const text = `${Math.floor(free / MIB)} MiB free at ${path}`
      const fix = 'Free some space there.'
      if (files > 0 && ffree === 0) return failure(id, `no inodes are free at ${path}`, 'Remove files there.')
      if (free < FULL_BYTES) return failure(id, text, fix)
      return free < LOW_BYTES ? warning(id, text, fix) : ok(id, text)
    }),
  )
  return checks
}

function checkLimits({ catalog }: Examined): DoctorCheck[] {
  const checks: DoctorCheck[] = []
  const descriptors = readDescriptorLimit()
  if (descriptors !== null) {
    const message = `${descriptors} open files per process, ${countDir('/proc/self/fd')} in use`
    const fix = 'Raise it: ulimit -n 65536, or LimitNOFILE=65536 in the unit.'
    checks.push(descriptors < LOW_DESCRIPTORS ? warning('limit.files', message, fix) : ok('limit.files', message))
  }
  const watches = Number(readText('/proc/sys/fs/inotify/max_user_watches'))
  if (watches > 0) {
    const needed = countFolders(catalog.snapshot.root)
    const used = countWatches()
    const message = `${watches} inotify watches per user, ${used} in use, ${needed} folders to watch`
    const isLow = Math.max(used, needed) > watches * WATCH_SHARE
    const fix = 'Raise it: sysctl fs.inotify.max_user_watches=524288. Without watches the tree is polled.'
    checks.push(isLow ? warning('limit.inotify', message, fix) : ok('limit.inotify', message))
  }
  checks.push(ok('machine.processors', `${availableParallelism()} processors`))
  return checks
}

function countFolders({ dirs }: DirNode): number {
  return dirs.reduce((count, dir) => count + countFolders(dir), 1)
}

/** Watches of this user's processes, as far as they may be read. */
function countWatches(): number {
  let count = 0
  for (const pid of listDir('/proc').filter(name => /^\d+$/.test(name))) {
    for (const fd of listDir(`/proc/${pid}/fd`)) {
      if (readLink(`/proc/${pid}/fd/${fd}`) !== 'anon_inode:inotify') continue
      count += readText(`/proc/${pid}/fdinfo/${fd}`).match(/^inotify /gm)?.length ?? 0
    }
  }
  return count
}

function countDir(path: string): number {
  return listDir(path).length
}

function listDir(path: string): string[] {
  try {
    return readdirSync(path)
  } catch {
    return []
  }
}

function readText(path: string): string {
  try {
    return readFileSync(path, 'latin1')
  } catch {
    return ''
  }
}

function readLink(path: string): string {
  try {
    return readlinkSync(path)
  } catch {
    return ''
  }
}

function checkClock(clock: Clock): DoctorCheck[] {
  const now = clock.wall()
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone
  const checks = [
    now < EARLIEST
      ? failure('clock.time', `the clock says ${new Date(now).toISOString()}`, 'Set it: timedatectl set-ntp true.')
      : ok('clock.time', `${new Date(now).toISOString()}, local time zone ${zone}`),
  ]
  try {
    new Intl.DateTimeFormat('en', { timeZone: 'Europe/Berlin' })
  } catch {
    checks.push(failure('clock.zones', 'this Node has no time zones', 'Use a build of Node with full ICU.'))
  }
  return checks
}

/** Networks of at most this many bits are the whole internet, or nearly. */
const WIDE_BITS = 4

function checkAccess({ consoleApiEnabled, consoleLocalCidrs, trustedProxyCidrs }: Settings): DoctorCheck[] {
  if (!consoleApiEnabled) return [ok('access.control', 'the control plane is off')]
  const isWide = (cidr: string): boolean => Number(cidr.split('/')[1] ?? 32) <= WIDE_BITS
  const local = consoleLocalCidrs.filter(isWide)
  const proxies = trustedProxyCidrs.filter(isWide)
  const checks: DoctorCheck[] = []
  if (local.length > 0)
    checks.push(
      failure(
        'access.local-networks',
        `FN_CONSOLE_LOCAL_CIDRS has ${local.join(', ')}: everyone counts as a local caller`,
        'Name the networks of your own machines only.',
      ),
    )
  if (proxies.length > 0)
    checks.push(
      failure(
        'access.proxies',
        `FN_TRUSTED_PROXY_CIDRS has ${proxies.join(', ')}: every client can pretend to have another address, 127.0.0.1 too`,
        'Name the addresses of your proxies only.',
      ),
    )
  return checks.length > 0 ? checks : [ok('access.control', 'local callers and proxies are named narrowly')]
}

function checkLock({ settings, host }: Examined): DoctorCheck[] {
  const id = 'state.lock'
  try {
    const found = new RootLock(new OwnFolder(settings.functionsRoot, '.svc'), host.clock).look()
    if (found === null) return [ok(id, 'no gateway keeps jobs and schedules here now')]
    const { pid, host: machine } = found.holder
    if (found.isAlive) return [ok(id, `process ${pid} on ${machine} keeps jobs and schedules here`)]
    return [
      warning(
        id,
        `the lock of process ${pid}, which has ended, is left`,
        'fngw doctor --fix removes it; the next start does, too.',
      ),
    ]
  } catch (error) {
    return [failure(id, (error as Error).message, 'Remove what is in its place.')]
  }
}

async function checkJobs(root: string): Promise<DoctorCheck[]> {
  const id = 'state.jobs'
  const folder = new OwnFolder(root, '.svc', 'jobs')
  try {
    const log = await LineLog.openToRead(folder.pathOf('log'), () => true)
    await log?.close()
    const aside = listDir(folder.path).filter(name => name.startsWith('log.set-aside-'))
    if (aside.length > 0)
      return [
        warning(
          id,
          `${aside.length} job logs that could not be used are kept in .svc/jobs: ${aside.join(', ')}`,
          'Remove them when their jobs are not needed.',
        ),
      ]
    return [ok(id, log === null ? 'no jobs were kept yet' : 'the job log can be read')]
  } catch (error) {
    return [
      failure(
        id,
        `.svc/jobs/log: ${(error as Error).message}`,
        'Use the version of fngw that wrote it, or move it away.',
      ),
    ]
  }
}

async function checkFunctions(gateway: Examined, loads: boolean): Promise<DoctorCheck[]> {
  const { catalog, runtimes } = gateway
  const { dispatcher } = runtimes
  const all = [...catalog.functions.values()].filter(({ runtime }) => runtimes.byName.has(runtime))
  const failed: DoctorCheck[] = []
  const look = async (fn: FunctionVersion): Promise<void> => {
    const error = loads ? await dispatcher.tryLoad(fn, LOAD_MS) : dispatcher.loadErrorOf(fn.key)
    if (error !== null) failed.push(toLoadCheck(fn, error))
  }
  const waiting = all.values()
  // Two at a time: each is a process, and some are built first.
  await Promise.all(
    [1, 2].map(async () => {
      for (const fn of waiting) await look(fn)
    }),
  )
  failed.sort((a, b) => (a.message < b.message ? -1 : 1))
  const good = all.length - failed.length
  const counted = good === 1 ? '1 function' : `${good} functions`
  return [ok('function.load', loads ? `${counted} loaded` : `${counted} without a known failure`), ...failed]
}

function toLoadCheck(fn: FunctionVersion, { message, detail }: GatewayError): DoctorCheck {
  const place =
    detail?.file === undefined ? '' : ` (${detail.file}${detail.line === undefined ? '' : `:${detail.line}`})`
  return failure('function.load', `${fn.key}: ${message}${place}`, detail?.hint ?? 'Correct the file and save it.')
}
