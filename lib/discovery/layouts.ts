/**
 * Which names are read and what kind each folder is. Spec: §2.2.
 *
 *   root ─┬─ hello.js             routes    every file is a route
 *         ├─ users/index.js       function  one function; explicit files below it stay routes
 *         ├─ python/hello/...     group     the runtime's name is not part of the path
 *         ├─ _lib/ src/           private   read for changes, never published
 *         ├─ tests/ scripts/      routes    at the root alone: files without a callable are left out
 *         └─ node_modules/ .git/  skipped   never read
 */

import type { IgnoredPath } from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import { isReservedPath, isRuntimeName, RUNTIME_OF_EXTENSION, type RuntimeName } from '../core/identity.ts'

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

const SCRIPT_FOLDERS: ReadonlySet<string> = new Set(['tests', '__tests__', 'scripts'])

/** How to serve a file that is not served by its name; ends the reason why it is not. */
export const SERVE_ANYWAY = 'to serve it, name it in fn.routes.json or as "entrypoint" in fn.config.json'

/** True for a folder below the root whose files are often tests or scripts. */
export function isScriptFolder(path: string): boolean {
  return SCRIPT_FOLDERS.has(path)
}

/**
 * The usual role of a file, by its name and folder; it is served only when it has a callable. A script is loaded by no
 * function; the configuration of a tool may be, and its default export is for the tool. Null for all other files.
 */
export function usualRole(folder: string, fileName: string): 'script' | 'configuration' | null {
  if (/^(?:gulpfile|Gruntfile)\.|^(?:setup|noxfile)\.py$/.test(fileName)) return 'configuration'
  if (/^(?!(?:get|post|put|patch|delete)\.).*\.config\.[a-z]+$/i.test(fileName)) return 'configuration'
  const [top = ''] = folder.split('/')
  return isScriptFolder(top) || /_test\.[a-z]+$/.test(fileName) ? 'script' : null
}

export type FolderKind = 'function' | 'routes' | 'group'

interface FolderTraits {
  isRoot: boolean
  /** The parent is the root. */
  isTopLevel: boolean
  name: string
  /** `fn.config.json` declares `runtime`, `name` or `entrypoint`. */
  hasIdentity: boolean
  /** Names of its `handler.*`, `main.*` and `index.*`. */
  canonical: readonly string[]
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
  const { name, canonical, enabled } = traits
  if (traits.hasIdentity) return 'function'
  if (traits.isRoot) return canonical.some(file => !file.startsWith('index.')) ? 'function' : 'routes'
  if (traits.isTopLevel && isRuntimeName(name) && enabled.has(name) && !traits.hasRouteFile) return 'group'
  return canonical.length > 0 ? 'function' : 'routes'
}

const VERSION_LIKE = /^v?\d+(?:[._-][a-zA-Z0-9_.-]*)?$/

/**
 * True for a label such as `v1`, `2.0` or `2024-05-01`: a folder without a handler, but with such children,
 * still has versions.
 */
export function isVersionLike(label: string): boolean {
  return VERSION_LIKE.test(label)
}

/** Files named in one warning. */
const MAX_NAMED_FILES = 5

/** The first of some files, and how many more there are. */
export function nameSome(paths: readonly string[]): string {
  const rest = paths.length > MAX_NAMED_FILES ? ` and ${paths.length - MAX_NAMED_FILES} more` : ''
  return paths.slice(0, MAX_NAMED_FILES).join(', ') + rest
}

/** Why a file of a language that is off is ignored. */
export function toOffReason(runtime: RuntimeName): string {
  return `the runtime ${runtime} is not enabled in FN_RUNTIMES`
}

/** The setting to type. It lists the enabled runtimes too, because a list turns off the others. */
export function toTurnOnHint(runtimes: Iterable<RuntimeName>): string {
  const names = [...runtimes]
  const all = names.join(',')
  return `Turn it on: --runtimes ${all} (FN_RUNTIMES=${all}), or "runtimes": ${JSON.stringify(names)} in fngw.json.`
}

/**
 * One warning for all files of languages that are neither enabled nor disabled.
 * @param enabled - runtimes that are on by default
 */
export function toOffWarnings(ignored: readonly IgnoredPath[], enabled: readonly RuntimeName[]): Warning[] {
  const runtimes = new Set<RuntimeName>()
  const paths: string[] = []
  for (const { path, reason } of ignored) {
    const runtime = RUNTIME_OF_EXTENSION.get(path.slice(path.lastIndexOf('.')))
    if (runtime === undefined || reason !== toOffReason(runtime)) continue
    runtimes.add(runtime)
    paths.push(path)
  }
  const [first] = paths
  if (first === undefined) return []
  const message = `${[...runtimes].join(' and ')} ${runtimes.size > 1 ? 'are' : 'is'} not enabled by default; not served: ${nameSome(paths)}`
  return [{ code: 'RUNTIME_OFF', path: first, message, hint: toTurnOnHint([...enabled, ...runtimes]) }]
}
