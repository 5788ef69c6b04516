/** Which file of a folder is its handler. Spec: §2.3. */

import { RUNTIME_OF_EXTENSION, RUNTIMES, type RuntimeName } from '../core/identity.ts'
import { extensionOf, type RouteFile } from './file-name.ts'
import { toTurnOnHint } from './layouts.ts'
import type { DirNode, FileEntry } from './snapshot.ts'

/** Default entry files in order of precedence; the same stem with another module extension comes after them. */
export const ENTRY_CANDIDATES: Readonly<Record<RuntimeName, readonly string[]>> = {
  python: ['handler.py', 'main.py'],
  node: [
    ...['handler.js', 'handler.ts', 'index.js', 'index.ts'],
    ...['handler.mjs', 'handler.cjs', 'handler.mts', 'handler.cts', 'index.mjs', 'index.cjs', 'index.mts', 'index.cts'],
  ],
  php: ['handler.php', 'index.php'],
  lua: ['handler.lua', 'main.lua', 'index.lua'],
  go: ['handler.go', 'main.go'],
  rust: ['handler.rs'],
}

/** Precedence of files that differ only in their extension. */
const EXTENSIONS = ['.py', '.js', '.ts', '.mjs', '.cjs', '.mts', '.cts', '.php', '.lua', '.go', '.rs']

const RANK: ReadonlyMap<string, number> = new Map(
  RUNTIMES.flatMap(runtime => ENTRY_CANDIDATES[runtime]).map((fileName, index) => [fileName, index]),
)

/** True for a file of the table: it makes its folder one function. */
export function isEntryName(fileName: string): boolean {
  return RANK.has(fileName)
}

export interface Choice {
  chosen: RouteFile
  /** Files that would have been the handler if the chosen one did not exist. */
  ignored: RouteFile[]
}

/**
 * The handlers among the files that stand for one folder (`handler.*`, `main.*`, `index.*`): the first one of the table.
 * Without a file of the table, as with `index.py` and `main.js`, each language has one of equal right.
 */
export function chooseEntries(files: readonly RouteFile[]): Choice[] {
  const folderFiles = files.filter(file => file.isFolderFile)
  if (folderFiles.some(file => isEntryName(file.fileName))) return choose(folderFiles, compareEntries)
  return chooseRoutes(folderFiles)
}

/** The files that answer, of several with the same route in the same folder: one of each language, the first extension. */
export function chooseRoutes(files: readonly RouteFile[]): Choice[] {
  return RUNTIMES.flatMap(runtime =>
    choose(
      files.filter(file => file.runtime === runtime),
      compareRoutes,
    ),
  )
}

function choose(files: readonly RouteFile[], compare: (a: RouteFile, b: RouteFile) => number): Choice[] {
  const [chosen, ...ignored] = [...files].sort(compare)
  return chosen === undefined ? [] : [{ chosen, ignored }]
}

function compareEntries(a: RouteFile, b: RouteFile): number {
  return entryRank(a) - entryRank(b) || compareRoutes(a, b)
}

function compareRoutes(a: RouteFile, b: RouteFile): number {
  const byRuntime = RUNTIMES.indexOf(a.runtime) - RUNTIMES.indexOf(b.runtime)
  return byRuntime || EXTENSIONS.indexOf(a.extension) - EXTENSIONS.indexOf(b.extension) || (a.stem < b.stem ? -1 : 1)
}

function entryRank(file: RouteFile): number {
  return RANK.get(file.fileName) ?? RANK.size
}

/** A handler file that `entrypoint` or `fn.routes.json` names. */
export interface Target {
  ok: true
  runtime: RuntimeName
  /** Folders from below the starting one down to the file's. */
  folders: readonly DirNode[]
  /** Folder of the file, below the root. */
  folder: string
  file: FileEntry
}

interface NoTarget {
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
      return { ok: false, problem: `is in ${dir.path}, which is not read: ${dir.skipped}`, hint: 'Move the file.' }
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
    return { ok: false, problem: `is not a handler: no runtime runs "${extension}" files`, hint }
  }
  if (file === undefined) return missing(start, path)
  if (!enabled.has(runtime)) {
    const problem = `needs the runtime ${runtime}, which is not enabled`
    return { ok: false, problem, hint: toTurnOnHint([...enabled, runtime]) }
  }
  return { ok: true, runtime, folders, folder: node.path, file }
}

function missing(start: DirNode, path: string): NoTarget {
  const where = start.path === '' ? 'the functions root' : start.path
  return { ok: false, problem: `does not exist below ${where}`, hint: `Create ${path}, or fix the path.` }
}
