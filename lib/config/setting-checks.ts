/** Settings that depend on this machine: isolation by users, trusted daemons, secrets in files. Owner: §2.15, pages runtime/isolation and runtime/greeting. */

import { readFileSync, realpathSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { orNull, type Warning } from '../core/errors.ts'
import type { RuntimeName } from '../core/identity.ts'
import { type Finding, report, reportRepeated, toPlace, toWarning } from './fields.ts'
import { SETTING_OPTIONS } from './setting-options.ts'
import type { Problem, ResolvedSettings, Settings } from './settings.ts'
import { toUsers, type UidRange } from './texts.ts'

/** A problem of a setting, named as it was given. @param text - continues the sentence that begins with the name */
function toProblem({ sources }: ResolvedSettings, setting: keyof Settings, text: string, hint: string): Problem {
  const { source, name: given } = sources[setting] ?? { source: 'default', name: setting }
  const name =
    source === 'default' ? (SETTING_OPTIONS[setting as keyof typeof SETTING_OPTIONS]?.env[0] ?? setting) : given
  const findings: Finding[] = []
  report(toPlace(null, name, findings), 'CONFIG_VALUE', text, hint)
  return { ...findings[0]!, source }
}

function toUnsafe(name: string, text: string, hint: string): Warning {
  const findings: Finding[] = []
  report(toPlace(null, name, findings), 'CONFIG_UNSAFE', text, hint)
  return toWarning(findings[0]!)
}

/** Capabilities by their number in Linux: what a gateway needs that is not root, and what root may have been started without. */
const CHANGE_USER = { CAP_SETGID: 6, CAP_SETUID: 7 } as const
const ROOT = { CAP_CHOWN: 0, CAP_DAC_OVERRIDE: 1, CAP_KILL: 5, ...CHANGE_USER } as const

/** The rights of this process to change users. */
export interface ProcessPowers {
  platform: string
  /** Effective user id; null where there are none. */
  uid: number | null
  /** Supplementary groups. */
  groups: readonly number[]
  /** Bits of the effective capabilities; null when unknown. */
  capabilities: bigint | null
}

/** Of the process that runs this. */
export function readPowers(): ProcessPowers {
  const status = orNull(() => readFileSync('/proc/self/status', 'utf8')) ?? ''
  const digits = /^CapEff:\s*([0-9a-f]+)$/m.exec(status)?.[1]
  return {
    platform: process.platform,
    uid: process.geteuid?.() ?? null,
    groups: process.getgroups?.() ?? [],
    capabilities: digits === undefined ? null : BigInt(`0x${digits}`),
  }
}

/** Problems of `FN_ISOLATION=user` here: it must never run as if it isolated. */
export function checkIsolation(resolved: ResolvedSettings, powers: ProcessPowers): Problem[] {
  const { isolation, isolationUids } = resolved.settings
  if (isolation !== 'user') return []
  const why = toObstacle(powers, toUsers(isolationUids).functions)
  const obstacle = why === null ? [] : [toProblem(resolved, 'isolation', `cannot be user: ${why}`, ISOLATION_HINT)]
  return [...obstacle, ...checkSecretFiles(resolved)]
}

/** The image names a user: one that runs functions as root does so by mistake. @param env - of this process */
export function checkImageUser(
  resolved: ResolvedSettings,
  { uid }: ProcessPowers,
  env: Readonly<Record<string, string | undefined>>,
): ResolvedSettings {
  const { settings, warnings } = resolved
  if (env.FNGW_IMAGE !== '1' || uid !== 0 || settings.isolation !== 'process' || !settings.production) return resolved
  const text = 'is process, and the container was started as root: functions can change the gateway and all files in it'
  const hint = 'Start the container without --user 0, or set FN_ISOLATION=user.'
  return { ...resolved, warnings: [...warnings, toUnsafe('FN_ISOLATION', text, hint)] }
}

/** With the admin token a function could do whatever users keep it from. */
function checkSecretFiles(resolved: ResolvedSettings): Problem[] {
  const { settings } = resolved
  const { gateway, functions } = toUsers(settings.isolationUids)
  if (settings.isolationFiles === 'warn') return []
  return Object.values(FILE_OF).flatMap(setting => {
    const path = settings[setting]
    const mode = path === null ? null : orNull(() => toOpenMode(path, functions))
    if (mode === null) return []
    const hint = `Close it: chown ${gateway} ${path} && chmod 400 ${path}`
    return [toProblem(resolved, setting, `can be read by functions (mode ${mode.toString(8)})`, hint)]
  })
}

/** Permission bits of a file that functions' users can read; null when they cannot. @throws when there is none */
function toOpenMode(path: string, { first, last }: UidRange): number | null {
  const real = realpathSync(path)
  const { mode, uid, gid } = statSync(real)
  const isTheirs = (id: number): boolean => id >= first && id <= last
  const isOpen = isTheirs(uid) || (mode & 0o004) !== 0 || (isTheirs(gid) && (mode & 0o040) !== 0)
  if (!isOpen) return null
  for (let folder = dirname(real); folder !== dirname(folder); folder = dirname(folder)) {
    const way = statSync(folder)
    if ((way.mode & 0o001) === 0 && !isTheirs(way.uid) && !isTheirs(way.gid)) return null
  }
  return mode & 0o777
}

const ISOLATION_HINT =
  'Start the gateway as root, or with CAP_SETUID and CAP_SETGID (in a container: with its default capabilities), or set it to process.'

function toObstacle({ platform, uid, groups, capabilities }: ProcessPowers, functions: UidRange): string | null {
  const { first, last } = functions
  if (platform !== 'linux') return `it needs Linux, this is ${platform}`
  const missing = listMissing(capabilities, uid === 0 ? ROOT : CHANGE_USER)
  if (uid === 0) return missing.length === 0 ? null : `root was started without ${missing.join(', ')}`
  if (missing.length > 0)
    return `it needs root or capabilities, this process runs as user ${uid} without ${missing.join(', ')}`
  if (uid !== null && uid >= first && uid <= last)
    return `this process runs as user ${uid}, which FN_ISOLATION_UIDS gives to functions`
  const joined = new Set(groups.filter(gid => gid >= first && gid <= last))
  return joined.size === last - first + 1
    ? null
    : `this process is not in the groups ${first}-${last} of functions; fngw dev and run join them, other programs call process.setgroups()`
}

/** True when the system lets this process become any user. */
export function canChangeUser({ platform, capabilities }: ProcessPowers): boolean {
  return platform === 'linux' && listMissing(capabilities, CHANGE_USER).length === 0
}

/** True when this process is root with all that root can do for users of functions. */
export function isFullRoot({ uid, capabilities }: ProcessPowers): boolean {
  return uid === 0 && listMissing(capabilities, ROOT).length === 0
}

function listMissing(capabilities: bigint | null, needed: Readonly<Record<string, number>>): string[] {
  if (capabilities === null) return []
  return Object.entries(needed).flatMap(([name, bit]) => ((capabilities >> BigInt(bit)) & 1n ? [] : [name]))
}

const LOOPBACK = /^(?:127\.\d+\.\d+\.\d+|\[::1\]|localhost)$/i

/** True when the address cannot be reached from another machine. */
export function isLoopback(uri: string): boolean {
  const host = /^[a-z]+:\/\/(\[[^\]]*\]|[^:]*)/.exec(uri)?.[1]
  return host === undefined || LOOPBACK.test(host)
}

/** Adds what is wrong with `runtimeSockets` and what they are trusted by: a problem stops the gateway, a warning does not. */
export function checkRuntimeSockets(resolved: ResolvedSettings): ResolvedSettings {
  const { settings, sources } = resolved
  const problems = [...resolved.problems]
  const warnings = [...resolved.warnings]
  const { runtimeTlsCaFile: file, runtimeSecret } = settings
  const certificates = file === null ? null : (orNull(() => readFileSync(file, 'utf8')) ?? '')
  if (certificates?.includes('-----BEGIN CERTIFICATE-----') === false) {
    const text = 'must name a file with a certificate (PEM) that can be read'
    problems.push(toProblem(resolved, 'runtimeTlsCaFile', text, 'Check its name and rights.'))
  }
  const uris = Object.values(settings.runtimeSockets).flatMap(some => some ?? [])
  const open = uris.find(uri => !isLoopback(uri))
  if (open !== undefined && runtimeSecret === null) {
    const text = `names ${open}, and without FN_RUNTIME_SECRET any process that listens there gets the requests`
    const name = sources.runtimeSockets?.name ?? 'runtimeSockets'
    warnings.push(toUnsafe(name, text, 'Set FN_RUNTIME_SECRET_FILE here and for fngw daemon.'))
  }
  return { ...resolved, problems, warnings }
}

/**
 * Problems of debugging handlers in these languages. A debugger runs any code in its process, so it is for the machine of one developer.
 * @param runtimes - the languages that are debugged
 */
export function checkDebug(resolved: ResolvedSettings, runtimes: readonly RuntimeName[]): Problem[] {
  const { production, host, gatewayWorkers, runtimeSockets } = resolved.settings
  const uri = `http://${host.includes(':') ? `[${host}]` : host}`
  const rules: [isBroken: boolean, setting: keyof Settings, text: string, hint: string][] = [
    [production, 'production', 'must be development where handlers are debugged', 'Use fngw dev.'],
    [!isLoopback(uri), 'host', 'must be a loopback address where handlers are debugged', 'Use --host 127.0.0.1.'],
    [gatewayWorkers !== 1, 'gatewayWorkers', 'must be 1 where handlers are debugged', 'Leave FN_GATEWAY_WORKERS out.'],
    [
      runtimes.some(name => (runtimeSockets[name] ?? []).length > 0),
      'runtimeSockets',
      'must not name daemons of a language that is debugged: their workers may be on another machine',
      'Leave the language out of FN_RUNTIME_SOCKETS.',
    ],
  ]
  return runtimes.length === 0
    ? []
    : rules.filter(([isBroken]) => isBroken).map(([, setting, text, hint]) => toProblem(resolved, setting, text, hint))
}

// Secrets that are given as the name of a file: the environment of a process is easier to read.

/** A token is one line; a larger file is another one, named by mistake. */
const MAX_SECRET_FILE_BYTES = 4096

/** A setting that is a secret, and the one that names a file which holds it. */
const FILE_OF = {
  adminToken: 'adminTokenFile',
  consoleLoginPasswordHash: 'consoleLoginPasswordHashFile',
  runtimeSecret: 'runtimeSecretFile',
  jobsCallbackSecret: 'jobsCallbackSecretFile',
  storeUrl: 'storeUrlFile',
} as const

/** The files that hold secrets of these settings, full paths. */
export function toSecretFiles(settings: Settings): string[] {
  return Object.values(FILE_OF).flatMap(name => settings[name] ?? [])
}

/** Reads every secret that is given as a file. */
export function readSecrets(resolved: ResolvedSettings): ResolvedSettings {
  const secrets = Object.keys(FILE_OF) as (keyof typeof FILE_OF)[]
  return secrets.reduce((all, secret) => readSecret(all, secret, resolved.settings[FILE_OF[secret]]), resolved)
}

/** Takes a secret out of a file. A secret that is given itself is stronger. */
export function readSecret(
  resolved: ResolvedSettings,
  secret: keyof typeof FILE_OF,
  path: string | null,
): ResolvedSettings {
  const { settings, sources, problems, warnings } = resolved
  if (path === null) return resolved
  const { source, name } = sources[FILE_OF[secret]]!
  const findings: Finding[] = []
  const at = toPlace(null, name, findings, true)
  if (settings[secret] !== null) {
    reportRepeated(at, `is not used, because ${sources[secret]!.name} is given`)
    return { ...resolved, warnings: [...warnings, ...findings.map(toWarning)] }
  }
  const { text, obstacle } = readSecretFile(path)
  const value = obstacle === null ? SETTING_OPTIONS[secret].field.readText(text, at) : undefined
  if (obstacle !== null)
    report(
      at,
      'CONFIG_VALUE',
      `must name a file of one line that can be read: ${path} ${obstacle}`,
      'Check its name and its permissions.',
    )
  // Without the secret the gateway would be open to everyone.
  if (value === undefined)
    return { ...resolved, problems: [...problems, ...findings.map(found => ({ ...found, source }))] }
  return {
    ...resolved,
    settings: { ...settings, [secret]: value },
    sources: { ...sources, [secret]: { source, name } },
  }
}

/** @returns its text, or why it cannot be used */
function readSecretFile(path: string): { text: string; obstacle: string | null } {
  const fail = (obstacle: string) => ({ text: '', obstacle })
  try {
    const stats = statSync(path)
    if (stats.isDirectory()) return fail('is a folder')
    if (!stats.isFile()) return fail('is not a file')
    if (stats.size > MAX_SECRET_FILE_BYTES) return fail(`has more than ${MAX_SECRET_FILE_BYTES} bytes`)
    const text = readFileSync(path, 'utf8')
    return text.trim() === '' ? fail('is empty') : { text, obstacle: null }
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    return fail(code === 'ENOENT' ? 'does not exist' : `cannot be read (${code})`)
  }
}
