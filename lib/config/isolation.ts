/** How far functions are kept from each other: the settings, and whether this process can do it. Owner: §2.15, page runtime/isolation. */

import { readFileSync } from 'node:fs'
import { type Finding, report, toPlace } from './findings.ts'
import type { Problem, ResolvedSettings } from './settings.ts'

/** Capabilities that root may have been started without, by their number in Linux. */
const NEEDED = { CAP_CHOWN: 0, CAP_DAC_OVERRIDE: 1, CAP_KILL: 5, CAP_SETGID: 6, CAP_SETUID: 7 } as const

/** What this process is, as far as changing users goes. */
export interface ProcessPowers {
  platform: string
  /** Effective user id; null where there are none. */
  uid: number | null
  /** Bits of the effective capabilities; null when unknown. */
  capabilities: bigint | null
}

/** Of the process that runs this. */
export function readPowers(): ProcessPowers {
  return { platform: process.platform, uid: process.geteuid?.() ?? null, capabilities: readCapabilities() }
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
  const why = toObstacle(powers)
  if (why !== null) report(toPlace(null, name, findings), 'CONFIG_VALUE', `cannot be user: ${why}`, HINT)
  return findings.map(finding => ({ ...finding, source }))
}

const HINT = 'Start the gateway as root (in a container: with its default capabilities), or set it to process.'

function toObstacle({ platform, uid, capabilities }: ProcessPowers): string | null {
  if (platform !== 'linux') return `it needs Linux, this is ${platform}`
  if (uid !== 0) return `it needs root, this process runs as user ${uid}`
  if (capabilities === null) return null
  const missing = Object.entries(NEEDED).flatMap(([name, bit]) => ((capabilities >> BigInt(bit)) & 1n ? [] : [name]))
  return missing.length === 0 ? null : `root was started without ${missing.join(', ')}`
}
