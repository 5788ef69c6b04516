/**
 * Which names are read and what kind each folder is. Spec: §2.2.
 *
 *   root ─┬─ hello.js             routes    every file is a route
 *         ├─ users/index.js       function  one function; explicit files below it stay routes
 *         ├─ python/hello/...     group     the runtime's name is not part of the path
 *         ├─ _lib/ src/           private   read for changes, never published
 *         ├─ tests/ scripts/      tools     at the root alone, published only on purpose
 *         └─ node_modules/ .git/  skipped   never read
 */

import { isReservedPath, isRuntimeName, type RuntimeName } from '../core/identity.ts'

const SKIPPED: ReadonlySet<string> = new Set(['node_modules', 'vendor', '__pycache__', 'target'])

/** Why a folder is never read, by its name alone; null when it is read. */
export function skippedReason(folderName: string): string | null {
  if (folderName.startsWith('.')) return 'the name starts with "."'
  return SKIPPED.has(folderName) ? 'a folder of packages or build results' : null
}

/** Why a folder that is read for changes publishes nothing; null when it may publish. */
export function privateReason(folderName: string): string | null {
  if (folderName.startsWith('_')) return 'private: the name starts with "_"'
  return folderName === 'src' ? 'a source folder of the function around it' : null
}

/** Why nothing in a folder of that name would ever be served; null for a name that a function may have. */
export function unservedReason(name: string): string | null {
  for (const segment of name.split('/')) {
    const reason = skippedReason(segment) ?? privateReason(segment)
    if (reason !== null) return `a function in a folder "${segment}" is never served: ${reason}`
  }
  return isReservedPath(`/${name}`) ? `/${name} is reserved for the gateway itself; choose another name` : null
}

const TOOL_FOLDERS: ReadonlySet<string> = new Set(['tests', '__tests__', 'scripts'])

/** How to publish what is taken for a tool's; ends the reason why it is not. */
export const PUBLISH_TOOL = 'to publish it, name it in fn.routes.json or as "entrypoint" in fn.config.json'

/** Why a folder at the top of a project publishes nothing by the names of its files; null when it may. */
export function toolFolderReason(folderName: string): string | null {
  if (!TOOL_FOLDERS.has(folderName)) return null
  return `a folder of tests or scripts, as at the top of a project; ${PUBLISH_TOOL}, or set "functions-dir" in fngw.json`
}

export type FolderKind = 'function' | 'routes' | 'group'

interface FolderTraits {
  isRoot: boolean
  /** The parent is the root. */
  isTopLevel: boolean
  name: string
  /** `fn.config.json` declares `runtime`, `name` or `entrypoint`. */
  hasIdentity: boolean
  /** Files of the entry table, of enabled runtimes. */
  entryNames: readonly string[]
  /** Any file that would be a route here. */
  hasRouteFile: boolean
  enabled: ReadonlySet<RuntimeName>
}

/**
 * The kind of a folder that is read and not private. A folder named like an enabled runtime groups functions only at
 * the top and only while it holds no route file itself. The functions root has no name to be a function under, so
 * `index.*` there is its home page and hides nothing.
 */
export function kindOf(traits: FolderTraits): FolderKind {
  const { name, entryNames, enabled } = traits
  if (traits.hasIdentity) return 'function'
  if (traits.isRoot) return entryNames.some(entry => !entry.startsWith('index.')) ? 'function' : 'routes'
  if (traits.isTopLevel && isRuntimeName(name) && enabled.has(name) && !traits.hasRouteFile) return 'group'
  return entryNames.length > 0 ? 'function' : 'routes'
}

const VERSION_LIKE = /^v?\d+(?:[._-][a-zA-Z0-9_.-]*)?$/

/**
 * True for a label such as `v1`, `2.0` or `2024-05-01`: a folder without a handler of its own, but with such children,
 * still has versions.
 */
export function isVersionLike(label: string): boolean {
  return VERSION_LIKE.test(label)
}
