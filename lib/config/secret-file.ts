/** A secret that is given as the name of a file: what is in the environment of a process is easier to read. Owner: §2.15. */

import { readFileSync, statSync } from 'node:fs'
import { type Finding, report, toPlace, toWarning } from './findings.ts'
import { SETTING_OPTIONS } from './setting-options.ts'
import type { ResolvedSettings, Settings } from './settings.ts'

/** A token is one line; a larger file is another one, named by mistake. */
const MAX_SECRET_FILE_BYTES = 4096

/** A setting that is a secret, and the one that names a file which holds it. */
const FILE_OF = {
  adminToken: 'adminTokenFile',
  consoleLoginPasswordHash: 'consoleLoginPasswordHashFile',
  runtimeSecret: 'runtimeSecretFile',
  jobsCallbackSecret: 'jobsCallbackSecretFile',
} as const

/** Settings that name files with secrets. */
export const SECRET_FILES = Object.values(FILE_OF)

/** The files that hold secrets of these settings, full paths. */
export function toSecretFiles(settings: Settings): string[] {
  return SECRET_FILES.map(name => settings[name]).filter(file => file !== null)
}

/**
 * Takes the admin token out of a file. `FN_ADMIN_TOKEN` itself is stronger.
 * @param path - `settings.adminTokenFile`
 */
export function readAdminToken(resolved: ResolvedSettings, path: string | null): ResolvedSettings {
  return readSecret(resolved, 'adminToken', path)
}

/** Reads every secret that is given as a file. */
export function readSecrets(resolved: ResolvedSettings): ResolvedSettings {
  const secrets = Object.keys(FILE_OF) as (keyof typeof FILE_OF)[]
  return secrets.reduce((all, secret) => readSecret(all, secret, resolved.settings[FILE_OF[secret]]), resolved)
}

function readSecret(resolved: ResolvedSettings, secret: keyof typeof FILE_OF, path: string | null): ResolvedSettings {
  const { settings, sources, problems, warnings } = resolved
  if (path === null) return resolved
  const { source, name } = sources[FILE_OF[secret]]!
  const findings: Finding[] = []
  const at = toPlace(null, name, findings, true)
  if (settings[secret] !== null) {
    report(at, 'CONFIG_REPEATED', `is not used, because ${sources[secret]!.name} is given`, 'Keep one of them.')
    return { ...resolved, warnings: [...warnings, ...findings.map(toWarning)] }
  }
  const text = readText(path)
  const value = text === null ? undefined : SETTING_OPTIONS[secret].field.readText(text, at)
  if (text === null)
    report(at, 'CONFIG_VALUE', 'must name a file of one line that can be read', 'Check its name and its permissions.')
  // Without the secret the gateway would be open to everyone.
  if (value === undefined)
    return { ...resolved, problems: [...problems, ...findings.map(found => ({ ...found, source }))] }
  return {
    ...resolved,
    settings: { ...settings, [secret]: value },
    sources: { ...sources, [secret]: { source, name } },
  }
}

function readText(path: string): string | null {
  try {
    const stats = statSync(path)
    return stats.isFile() && stats.size <= MAX_SECRET_FILE_BYTES ? readFileSync(path, 'utf8') : null
  } catch {
    return null
  }
}
