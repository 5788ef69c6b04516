/** A handler file named by `entrypoint` or `fn.routes.json`. Owner: §2.3, page discovery/entry-file. */

import { RUNTIME_OF_EXTENSION, type RuntimeName } from '../core/identity.ts'
import { extensionOf } from './file-name.ts'
import type { DirNode, FileEntry } from './snapshot.ts'

export interface Target {
  ok: true
  runtime: RuntimeName
  /** Folders from below the starting one down to the file's. */
  folders: readonly DirNode[]
  /** Folder of the file, below the root. */
  folder: string
  file: FileEntry
}

export interface NoTarget {
  ok: false
  /** Continues the sentence that begins with the path. */
  problem: string
  hint: string
}

/**
 * Finds a file below a folder. Private folders may be entered, folders that are not read may not.
 * @param path - relative, checked: no `..`, no leading slash
 */
export function findTarget(start: DirNode, path: string, enabled: ReadonlySet<RuntimeName>): Target | NoTarget {
  const names = path.split('/')
  const fileName = names.pop()!
  const folders: DirNode[] = []
  let node = start
  for (const name of names) {
    const dir = node.dirs.find(candidate => candidate.name === name)
    if (dir === undefined) return missing(start, path)
    if (dir.skipped !== null) {
      return { ok: false, problem: `lies in ${dir.path}, which is not read: ${dir.skipped}`, hint: 'Move the file.' }
    }
    folders.push(dir)
    node = dir
  }
  const file = node.files.find(candidate => candidate.name === fileName)
  const extension = extensionOf(fileName)
  const runtime = RUNTIME_OF_EXTENSION.get(extension)
  if (runtime === undefined) {
    const isThere = file !== undefined || node.otherFiles.includes(fileName)
    if (!isThere) return missing(start, path)
    const hint = `Name a file with one of ${[...RUNTIME_OF_EXTENSION.keys()].join(' ')}.`
    return { ok: false, problem: `is no handler: no runtime runs "${extension}" files`, hint }
  }
  if (file === undefined) return missing(start, path)
  if (!enabled.has(runtime)) {
    const problem = `needs the runtime ${runtime}, which is not enabled`
    return { ok: false, problem, hint: `Add ${runtime} to FN_RUNTIMES.` }
  }
  return { ok: true, runtime, folders, folder: node.path, file }
}

function missing(start: DirNode, path: string): NoTarget {
  const where = start.path === '' ? 'the functions root' : start.path
  return { ok: false, problem: `does not exist below ${where}`, hint: `Make ${path}, or mend the path.` }
}
