/** What is written beside node functions after an install: the manifest, and the lock file. Owner: page dependencies/node. */

import { OwnFolder } from '../files/own-folder.ts'
import type { InstallUnit, Settled } from './install-step.ts'
import { NODE_LOCK, NodeLock } from './node-lock.ts'
import { makeNodeManifest, NODE_MANIFEST, NodeManifest, readNodeManifest } from './node-manifest.ts'
import { isLockOf, type NodeWishes } from './node-wishes.ts'
import type { PackageSet } from './package-set.ts'
import { isWritable, labelOf } from './unit-files.ts'

/** @param writesManifest - false where manifests are left alone */
export function settleNodeFiles(
  unit: InstallUnit,
  set: PackageSet,
  wishes: NodeWishes,
  writesManifest: boolean,
): Settled {
  const { manifest } = wishes
  const isAdding = Object.keys(wishes.added).length > 0
  if (isAdding && !writesManifest) {
    return {
      isManifestGenerated: false,
      manifest: manifest === null ? null : NODE_MANIFEST,
      lockFile: wishes.lock?.fileName ?? null,
    }
  }
  const bytes = set.folder.read(NODE_LOCK)
  const lock = bytes === null ? null : new NodeLock(NODE_LOCK, bytes.toString('utf8'), labelOf(unit, NODE_LOCK))
  const folder = new OwnFolder(unit.folder)
  const written = isAdding && lock !== null ? writeManifest(unit, folder, lock, wishes.added) : manifest
  const locked = written?.without(wishes.provided)
  return {
    isManifestGenerated: manifest?.isGenerated ?? isAdding,
    manifest: NODE_MANIFEST,
    lockFile: lock !== null && locked !== undefined ? writeLock(folder, wishes.lock, lock, locked) : null,
  }
}

/** What was installed for an import becomes a wish: any version that is as good. */
function writeManifest(
  unit: InstallUnit,
  folder: OwnFolder,
  lock: NodeLock,
  added: NodeWishes['added'],
): NodeManifest | null {
  const ranges: Record<string, string> = {}
  for (const [name, range] of Object.entries(added)) {
    const version = lock.versionOf(name)
    ranges[name] = range === '*' && version !== null ? `^${version}` : range
  }
  // Somebody may have saved it meanwhile.
  const manifest = readNodeManifest(unit.folder, unit.label)
  const slug = unit.functions[0]?.name ?? unit.label
  const text = manifest === null ? makeNodeManifest(slug, ranges) : manifest.append(ranges)
  if (manifest === null || isWritable(folder, NODE_MANIFEST)) folder.write(NODE_MANIFEST, text)
  return new NodeManifest(text, labelOf(unit, NODE_MANIFEST))
}

/** @param own - that of the function */
function writeLock(folder: OwnFolder, own: NodeLock | null, lock: NodeLock, manifest: NodeManifest): string {
  const name = own?.fileName ?? NODE_LOCK
  if (own !== null && own.digest === lock.digest && isLockOf(own, manifest)) return name
  if (own === null || isWritable(folder, name)) folder.write(name, lock.toTextFor(manifest))
  return name
}
