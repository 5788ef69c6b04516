/** What is written beside Python functions after an install: a list of what is there, and the manifest. Owner: §2.16, page dependencies/python. */

import { lstatSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { OwnFolder } from '../files/own-folder.ts'
import { readOptional } from './build.ts'
import type { InstallUnit, Settled } from './install-step.ts'
import type { PackageSet } from './package-set.ts'
import { listDistributions } from './pip.ts'
import { MANIFEST_HEADER, PYTHON_MANIFEST, PYTHON_TARGET, type PythonWishes } from './python-wishes.ts'
import { parseRequirements, toPackageName } from './requirements.ts'
import { isWritable } from './unit-files.ts'

const LOCK = 'requirements.lock.txt'
/** @param wishes - null where manifests are left alone */
export function settlePythonFiles(
  { folder, asked }: Pick<InstallUnit, 'folder' | 'asked'>,
  set: PackageSet,
  wishes: PythonWishes | null,
): Settled {
  const own = new OwnFolder(folder)
  const isListed = writeLock(own, set)
  if (wishes !== null) writeManifest(own, set, wishes, asked)
  const manifest = readOptional(join(folder, PYTHON_MANIFEST))
  return {
    isManifestGenerated: manifest?.startsWith(MANIFEST_HEADER) ?? false,
    manifest: manifest === null ? null : PYTHON_MANIFEST,
    lockFile: isListed ? LOCK : null,
  }
}

/** @returns false when there is nothing to list */
function writeLock(own: OwnFolder, { folder }: PackageSet): boolean {
  const lines = listDistributions(folder.below(PYTHON_TARGET).path).map(({ name, version }) => `${name}==${version}\n`)
  if (lines.length === 0) return false
  const text = `# What is installed in .deps, for your information: nothing reads this file.\n${lines.join('')}`
  if (own.read(LOCK)?.toString('utf8') !== text) own.write(LOCK, text)
  return true
}

/** Appends what imports asked for; not a byte of what is there changes. A link stays one, and is not written through. */
function writeManifest(
  own: OwnFolder,
  { outcome }: PackageSet,
  { named, guesses }: PythonWishes,
  asked: readonly string[],
): void {
  if (!isWritable(own, PYTHON_MANIFEST)) return
  const stats = lstatSync(own.pathOf(PYTHON_MANIFEST), { throwIfNoEntry: false })
  const text = stats === undefined ? null : readFileSync(own.pathOf(PYTHON_MANIFEST), 'utf8')
  const known = new Set(text === null ? [] : parseRequirements(text).named.map(({ name }) => name))
  const inline = new Set(named.map(({ name }) => name))
  const resolved = new Set(outcome.resolvedPackages.map(one => toPackageName(one.split('==', 1)[0]!)))
  const inferred = guesses
    .map(({ name }) => name)
    .filter(name => resolved.has(name) && !known.has(name) && !inline.has(name))
  const added = [...parseRequirements(asked.join('\n')).named.filter(({ name }) => !known.has(name))]
    .map(({ text }) => text)
    .concat(inferred)
  if (added.length === 0) return
  const newline = text?.includes('\r\n') === true ? '\r\n' : '\n'
  const gap = text === null || text === '' || text.endsWith('\n') ? '' : newline
  const lines = added.map(name => `${name}${newline}`).join('')
  own.write(PYTHON_MANIFEST, `${text ?? MANIFEST_HEADER}${gap}${lines}`, stats?.mode, stats ?? null)
}
