/** Which file of a folder is its handler. Spec: §2.3. */

import { RUNTIMES, type RuntimeName } from '../core/identity.ts'
import type { RouteFile } from './file-name.ts'

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
 * The handler among the files that stand for one folder (`handler.*`, `main.*`, `index.*`): the table's order, and after
 * it, such as `index.py`, the order of the runtimes.
 * @returns null when there is none
 */
export function chooseEntry(files: readonly RouteFile[]): Choice | null {
  return choose(
    files.filter(file => file.isFolderFile),
    compareEntries,
  )
}

/** The one of several files with the same route in the same folder: the runtimes' order, then the extensions'. */
export function chooseRoute(files: readonly RouteFile[]): Choice | null {
  return choose(files, compareRoutes)
}

function choose(files: readonly RouteFile[], compare: (a: RouteFile, b: RouteFile) => number): Choice | null {
  const [chosen, ...ignored] = [...files].sort(compare)
  return chosen === undefined ? null : { chosen, ignored }
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
