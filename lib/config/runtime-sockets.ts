/** Whether daemons of other machines can be trusted as the settings say. Owner: §2.15, page runtime/greeting. */

import { readFileSync } from 'node:fs'
import { type Finding, report, toPlace, toWarning } from './findings.ts'
import type { ResolvedSettings } from './settings.ts'

const LOOPBACK = /^(?:127\.\d+\.\d+\.\d+|\[::1\]|localhost)$/i

/** True when nobody of another machine reaches the address. */
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
