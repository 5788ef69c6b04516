/** How far functions are kept from each other: the settings, and whether this process can do it. Owner: §2.15, page runtime/isolation. */

import { readFileSync } from 'node:fs'
import { type Finding, report, toPlace } from './findings.ts'
import type { Problem, ResolvedSettings } from './settings.ts'
import { toUsers, type UidRange } from './uid-range.ts'

/** Capabilities by their number in Linux: what a gateway needs that is not root, and what root may have been started without. */
const CHANGE_USER = { CAP_SETGID: 6, CAP_SETUID: 7 } as const
const ROOT = { CAP_CHOWN: 0, CAP_DAC_OVERRIDE: 1, CAP_KILL: 5, ...CHANGE_USER } as const

/** What this process is, as far as changing users goes. */
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
  return findings.map(finding => ({ ...finding, source }))
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
