/** Files that Composer reads beside `composer.json`: packages in paths, and classes to be listed. Owner: page dependencies/php. */

import { readdirSync } from 'node:fs'
import { dirname, join, relative, sep } from 'node:path'
import type { ComposerLock } from './composer-lock.ts'
import type { ComposerManifest } from './composer-manifest.ts'
import { FileCollector, type FilePackages, findInside, type PackageChecks, toPackageBounds } from './file-packages.ts'
import { installError } from './install-step.ts'
import { showToken } from './manifest-text.ts'

const INSTALLED = 'vendor'
/** Folders that one pattern may stand for. */
const MAX_MATCHES = 1000
const SOURCES_SETTING = 'FN_PHP_PACKAGE_SOURCES'

/**
 * Checks where a manifest and a lock file have their packages from.
 * @param folder - full path of the function's folder, below the root
 * @returns the files that their paths lead to
 * @throws GatewayError naming the line of the manifest, or the lock file
 */
export function checkComposerSources(
  manifest: ComposerManifest,
  lock: ComposerLock | null,
  folder: string,
  checks: PackageChecks,
): FilePackages {
  const { allowSources } = checks
  const collector = new FileCollector(INSTALLED)
  for (const { kind, text, word } of manifest.sources) {
    if (kind === 'wrong') throw manifest.error(text, word, 'write { "type": "path", "url": "../package" }')
    if (kind === 'address' && !allowSources) {
      const why = `repositories: packages come from ${showToken(text)}, not from packagist.org`
      throw manifest.error(why, word, `take it out, or set ${SOURCES_SETTING}=1`)
    }
    if (kind !== 'path') continue
    const fail = (why: string, hint: string) => manifest.error(`repositories: ${why}`, word, hint)
    addPath(collector, text, { ...checks, folder, fail })
  }
  for (const path of manifest.classPaths) {
    const fail = (why: string, hint: string) => manifest.error(`autoload: ${why}`, path, hint)
    // A folder that is not there is Composer's to tell.
    addPath(collector, path, { ...checks, folder, fail, mayLack: true })
  }
  if (lock !== null) addLocked(collector, lock, { ...checks, folder })
  return collector
}

function addLocked(collector: FileCollector, lock: ComposerLock, checks: PackageChecks & { folder: string }): void {
  const fail = (why: string, hint: string) => installError(`${lock.label}: ${why}`, { file: lock.label }, hint)
  for (const { name, kind, url } of lock.sources) {
    if (kind === 'path') addPath(collector, url, { ...checks, fail })
    if (kind !== 'address' || checks.allowSources) continue
    const why = `${name} comes from ${showToken(url)}, not from packagist.org`
    throw fail(why, `delete the lock file, or set ${SOURCES_SETTING}=1`)
  }
}

interface PathChecks extends PackageChecks {
  folder: string
  /** A path that leads nowhere is left out. */
  mayLack?: boolean
  fail(why: string, hint: string): Error
}

function addPath(
  collector: FileCollector,
  path: string,
  { folder, mayLack = false, fail, ...checks }: PathChecks,
): void {
  const { bound, boundName } = toPackageBounds(checks, folder)
  // Composer puts variables and the home in.
  if (/^[/\\~]|[$%{}[\]\p{Cc}]|^[a-z]:/iu.test(path))
    throw fail(
      `${JSON.stringify(path)} is no plain path`,
      'write it as it leads there from composer.json, with * at most',
    )
  if (bound !== '' && climbsOut(path, folder, checks.root)) {
    const hint = `run composer install in the folder, move the package into ${boundName}, or set ${SOURCES_SETTING}=1`
    throw fail(`${JSON.stringify(path)} is not in ${boundName}`, hint)
  }
  const isPattern = /[*?]/.test(path)
  for (const place of expand(folder, path)) {
    const target = place === bound ? bound : findInside(place, bound)
    if (target === place) collector.add(target, why => fail(why, 'name a smaller folder'))
    else if (!isPattern && !(mayLack && target === null)) {
      const why = target === null ? `is not there, or leads out of ${boundName}` : 'leads over a link'
      throw fail(`${JSON.stringify(path)} ${why}`, `name a folder in ${boundName}`)
    }
  }
}

/** True for a path that leaves the root on its way, be it to come back: from a copy of the folder it would lead elsewhere. */
function climbsOut(path: string, folder: string, root: string): boolean {
  let depth = folder === root ? 0 : relative(root, folder).split(sep).length
  for (const part of path.split('/')) {
    if (part === '' || part === '.') continue
    depth += part === '..' ? -1 : 1
    if (depth < 0) return true
  }
  return false
}

/** Full paths that a path with `*` and `?` stands for. */
function expand(folder: string, path: string): string[] {
  let found = [folder]
  for (const part of path.split('/')) {
    if (part === '' || part === '.') continue
    if (part === '..') found = found.map(dirname)
    else if (!/[*?]/.test(part)) found = found.map(place => join(place, part))
    else found = found.flatMap(place => matchesIn(place, part)).slice(0, MAX_MATCHES)
  }
  return found
}

function matchesIn(folder: string, pattern: string): string[] {
  try {
    const names = readdirSync(folder).filter(name => !name.startsWith('.') && isMatch(name, pattern))
    return names.sort().map(name => join(folder, name))
  } catch {
    return []
  }
}

/** True when `*` stands for any signs and `?` for one. Only the last `*` is ever taken back, so that no pattern takes long. */
function isMatch(name: string, pattern: string): boolean {
  let at = 0
  let star = -1
  let afterStar = 0
  for (let i = 0; i < name.length; ) {
    if (pattern[at] === '*') {
      star = at++
      afterStar = i
    } else if (at < pattern.length && (pattern[at] === '?' || pattern[at] === name[i])) {
      at += 1
      i += 1
    } else if (star >= 0) {
      at = star + 1
      i = ++afterStar
    } else return false
  }
  return /^\**$/.test(pattern.slice(at))
}
