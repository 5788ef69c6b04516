/** What of a function's files on disk is not as it was discovered. Owner: §2.2, page discovery/layouts. */

import { statSync } from 'node:fs'
import { join } from 'node:path'
import type { FunctionVersion } from '../core/catalog.ts'
import { RUNTIME_OF_EXTENSION } from '../core/identity.ts'
import { extensionOf, manifestRuntime } from './file-name.ts'
import { sourcesBelow, stampOf } from './signature.ts'
import { type DirNode, type FileEntry, findFolder, type Snapshot } from './snapshot.ts'
import { parentOf } from './tree-path.ts'

/** Files looked at most: it is asked for while somebody waits. */
const MAX_LOOKED_AT = 1000

/**
 * Looks at the files in reach of a function: of its folder and what is below it, of the folders above, and of private
 * folders there.
 * @returns a text that is another one when the files are; null when all are as they were
 */
export function findChange(
  { root, rootPath }: Snapshot,
  { entryFile, runtime }: Pick<FunctionVersion, 'entryFile' | 'runtime'>,
): string | null {
  const changes: string[] = []
  for (const { folder, file } of filesInReach(root, parentOf(entryFile)).slice(0, MAX_LOOKED_AT)) {
    const owner = RUNTIME_OF_EXTENSION.get(extensionOf(file.name)) ?? manifestRuntime(file.name)
    if (owner !== runtime) continue
    const now = lookAt(join(rootPath, folder, file.name), file.name)
    const stamp = now === null ? `${folder}/${file.name}|gone` : stampOf(folder, now)
    if (stamp !== stampOf(folder, file)) changes.push(stamp)
  }
  return changes.length === 0 ? null : changes.join('\n')
}

/** Nearest first. */
function filesInReach(root: DirNode, folder: string): { folder: string; file: FileEntry }[] {
  const found: { folder: string; file: FileEntry }[] = []
  for (let path = folder; ; path = parentOf(path)) {
    const node = findFolder(root, path)
    if (node !== null) {
      found.push(...node.files.map(file => ({ folder: path, file })))
      const isOwn = path === folder && path !== ''
      found.push(...node.dirs.filter(dir => isOwn || dir.name.startsWith('_')).flatMap(sourcesBelow))
    }
    if (path === '') return found
  }
}

function lookAt(path: string, name: string): FileEntry | null {
  try {
    const { size, mtimeMs } = statSync(path)
    return { name, size, mtimeMs }
  } catch {
    return null
  }
}
