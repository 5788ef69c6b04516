/** Packages that manifests beside functions name and that are not there. Owner: §2.16, page dependencies/shared-packs. */

import { readFileSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { PackageManifest } from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import { isObject } from '../core/json.ts'

/** Manifests that are read at most, the bytes of one, and names in one warning. */
const MAX_MANIFESTS = 200
const MAX_MANIFEST_BYTES = 256 * 1024
const MAX_NAMES = 5

interface Kind {
  file: string
  /** Names of packages that are wanted and missing. */
  missing: (text: string, folder: string) => string[]
  hint: string
}

const KINDS: ReadonlyMap<string, Kind> = new Map<string, Kind>([
  [
    'python',
    {
      file: 'requirements.txt',
      missing: requirementsOf,
      hint: 'Run in the folder: pip install -r requirements.txt -t .deps. Nothing to do when the python that runs handlers has them.',
    },
  ],
  ['node', { file: 'package.json', missing: missingModules, hint: 'Run in the folder: npm install' }],
  ['php', { file: 'composer.json', missing: composerPackages, hint: 'Run in the folder: composer install' }],
])

/**
 * One warning for each runtime whose functions lack packages.
 * @param manifests - those without a folder of installed packages beside them
 * @param isInstalling - true for a runtime whose packages the gateway installs itself
 */
export function findUnmet(
  manifests: readonly PackageManifest[],
  rootPath: string,
  isInstalling: (runtime: string) => boolean = () => false,
): Warning[] {
  return [...KINDS].flatMap(([runtime, kind]) => {
    if (isInstalling(runtime)) return []
    const own = manifests.filter(manifest => manifest.runtime === runtime)
    return toWarning(
      kind,
      own.map(({ folder }) => folder),
      rootPath,
    )
  })
}

function toWarning({ file, missing, hint }: Kind, folders: readonly string[], rootPath: string): Warning[] {
  const unmet: string[] = []
  const names = new Set<string>()
  for (const folder of [...new Set(folders)].slice(0, MAX_MANIFESTS)) {
    const found = missing(read(join(rootPath, folder, file)), join(rootPath, folder))
    if (found.length === 0) continue
    unmet.push(folder === '' ? file : `${folder}/${file}`)
    for (const name of found) names.add(name)
  }
  if (unmet.length === 0) return []
  const message = `${shorten(unmet)}: not installed: ${shorten([...names].sort())}`
  return [{ code: 'PACKAGES_MISSING', path: unmet[0]!, message, hint }]
}

function shorten(names: readonly string[]): string {
  const rest = names.length - MAX_NAMES
  return names.slice(0, MAX_NAMES).join(', ') + (rest > 0 ? ` and ${rest} more` : '')
}

/** Empty for a file that is gone, too large or no file: its own tool complains about that. */
function read(path: string): string {
  try {
    const stats = statSync(path)
    return stats.isFile() && stats.size <= MAX_MANIFEST_BYTES ? readFileSync(path, 'utf8') : ''
  } catch {
    return ''
  }
}

/** `Flask[async]>=2 ; python_version > "3"` to `Flask`; options and comments name nothing. */
function requirementsOf(text: string): string[] {
  return text.split('\n').flatMap(line => /^\s*([A-Za-z0-9][\w.-]*)/.exec(line)?.[1] ?? [])
}

/** Packages that node finds in no `node_modules` from the folder up. */
function missingModules(text: string, folder: string): string[] {
  return Object.keys(objectAt(text, 'dependencies')).filter(name => !isInstalled(name, folder))
}

function isInstalled(name: string, folder: string): boolean {
  for (let at = folder; ; at = dirname(at)) {
    if (statSync(join(at, 'node_modules', name), { throwIfNoEntry: false }) !== undefined) return true
    if (at === dirname(at)) return false
  }
}

/** Without `php` and its extensions, which Composer does not install. */
function composerPackages(text: string): string[] {
  return Object.keys(objectAt(text, 'require')).filter(name => name.includes('/'))
}

function objectAt(text: string, key: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text)
    const inner = isObject(value) ? value[key] : null
    return isObject(inner) ? inner : {}
  } catch {
    return {}
  }
}
