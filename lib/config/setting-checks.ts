/** Settings that depend on this machine: isolation by users and trusted daemons. Owner: §2.15, pages runtime/isolation and runtime/greeting. */

import { readFileSync, realpathSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { type Finding, report, toPlace, toWarning } from './findings.ts'
import { SECRET_FILES } from './secret-file.ts'
import type { Problem, ResolvedSettings } from './settings.ts'
import { toUsers, type UidRange } from './texts.ts'

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
  return {
    platform: process.platform,
    uid: process.geteuid?.() ?? null,
    groups: process.getgroups?.() ?? [],
    capabilities: readCapabilities(),
  }
}

function readCapabilities(): bigint | null {
  try {
    const digits = /^CapEff:\s*([0-9a-f]+)$/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1]
    return digits === undefined ? null : BigInt(`0x${digits}`)
  } catch {
    return null
  }
}

/** Problems of `FN_ISOLATION=user` here: it must never run as if it isolated. */
export function checkIsolation(resolved: ResolvedSettings, powers: ProcessPowers): Problem[] {
  const { settings, sources } = resolved
  if (settings.isolation !== 'user') return []
  const findings: Finding[] = []
  const { source, name } = sources.isolation ?? { source: 'default' as const, name: 'isolation' }
  const why = toObstacle(powers, toUsers(settings.isolationUids).functions)
  if (why !== null) report(toPlace(null, name, findings), 'CONFIG_VALUE', `cannot be user: ${why}`, HINT)
  return [...findings.map(finding => ({ ...finding, source })), ...checkSecretFiles(resolved)]
}

/** The image names a user: one that runs functions as root does so by mistake. @param env - of this process */
export function checkImageUser(
  resolved: ResolvedSettings,
  { uid }: ProcessPowers,
  env: Readonly<Record<string, string | undefined>>,
): ResolvedSettings {
  const { settings, warnings } = resolved
  if (env.FNGW_IMAGE !== '1' || uid !== 0 || settings.isolation !== 'process' || !settings.production) return resolved
  const noted: Finding[] = []
  const at = toPlace(null, 'FN_ISOLATION', noted)
  const text = 'is process, and the container was started as root: functions can change the gateway and all files in it'
  report(at, 'CONFIG_UNSAFE', text, 'Start the container without --user 0, or set FN_ISOLATION=user.')
  return { ...resolved, warnings: [...warnings, ...noted.map(toWarning)] }
}

/** With the admin token a function could do whatever users keep it from. */
function checkSecretFiles({ settings, sources }: ResolvedSettings): Problem[] {
  const { gateway, functions } = toUsers(settings.isolationUids)
  return SECRET_FILES.flatMap(setting => {
    const path = settings[setting]
    const mode = path === null || settings.isolationFiles === 'warn' ? null : toOpenMode(path, functions)
    if (mode === null) return []
    const findings: Finding[] = []
    const { source, name } = sources[setting]!
    const why = `can be read by functions (mode ${mode.toString(8)})`
    report(
      toPlace(null, name, findings),
      'CONFIG_VALUE',
      why,
      `Close it: chown ${gateway} ${path} && chmod 400 ${path}`,
    )
    return findings.map(finding => ({ ...finding, source }))
  })
}

/** Permission bits of a file that functions' users can read; null when they cannot, or there is none. */
function toOpenMode(path: string, { first, last }: UidRange): number | null {
  try {
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
  } catch {
    return null
  }
}

const HINT =
  'Start the gateway as root, or with CAP_SETUID and CAP_SETGID (in a container: with its default capabilities), or set it to process.'

function toObstacle({ platform, uid, groups, capabilities }: ProcessPowers, functions: UidRange): string | null {
  if (platform !== 'linux') return `it needs Linux, this is ${platform}`
  const missing = listMissing(capabilities, uid === 0 ? ROOT : CHANGE_USER)
  if (uid === 0) return missing.length === 0 ? null : `root was started without ${missing.join(', ')}`
  if (missing.length > 0)
    return `it needs root or capabilities, this process runs as user ${uid} without ${missing.join(', ')}`
  if (uid !== null && uid >= functions.first && uid <= functions.last)
    return `this process runs as user ${uid}, which FN_ISOLATION_UIDS gives to functions`
  return isInAll(groups, functions)
    ? null
    : `this process is not in the groups ${functions.first}-${functions.last} of functions; fngw dev and run join them, other programs call process.setgroups()`
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

function isInAll(groups: readonly number[], { first, last }: UidRange): boolean {
  return new Set(groups.filter(gid => gid >= first && gid <= last)).size === last - first + 1
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
  const found: Finding[] = []
  const noted: Finding[] = []
  const file = sources.runtimeTlsCaFile
  if (settings.runtimeTlsCaFile !== null && !isCertificate(settings.runtimeTlsCaFile)) {
    const at = toPlace(null, file?.name ?? 'runtimeTlsCaFile', found)
    report(
      at,
      'CONFIG_VALUE',
      'must name a file with a certificate (PEM) that can be read',
      'Check its name and rights.',
    )
  }
  const open = Object.values(settings.runtimeSockets)
    .flat()
    .filter(uri => uri !== undefined && !isLoopback(uri))
  if (open.length > 0 && settings.runtimeSecret === null) {
    const at = toPlace(null, sources.runtimeSockets?.name ?? 'runtimeSockets', noted)
    const text = `names ${open[0]}, and without FN_RUNTIME_SECRET any process that listens there gets the requests`
    report(at, 'CONFIG_UNSAFE', text, 'Set FN_RUNTIME_SECRET_FILE here and for fngw daemon.')
  }
  const problems = found.map(finding => ({ ...finding, source: file?.source ?? ('default' as const) }))
  return {
    ...resolved,
    problems: [...resolved.problems, ...problems],
    warnings: [...resolved.warnings, ...noted.map(toWarning)],
  }
}

function isCertificate(path: string): boolean {
  try {
    return readFileSync(path, 'utf8').includes('-----BEGIN CERTIFICATE-----')
  } catch {
    return false
  }
}
