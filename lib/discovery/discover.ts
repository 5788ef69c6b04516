/** The functions root to functions, claims and warnings: a pure function of the snapshot. Owner: §2.2, page discovery/layouts. */

import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { NO_OUTER_ENV, type OuterEnv } from '../config/function-env.ts'
import type { AssetsMount, Claim, FunctionVersion, HomeAction, IgnoredPath, PackageManifest } from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import { isMethod, isRuntimeName } from '../core/identity.ts'
import { nameSome } from '../core/text.ts'
import { pathWarning } from './disk.ts'
import { type DiscoverOptions, FolderFacts } from './folder.ts'
import { Contribution, FunctionMaker, type Revisions, type Settled, settleKeys } from './functions.ts'
import { FOLDER_STEMS } from './layouts.ts'
import { type DirNode, findFolder, type Snapshot } from './snapshot.ts'
import { type Context, ROOT_CONTEXT, Visit } from './visit.ts'

export type { DiscoverOptions } from './folder.ts'

/** The outcome of a discovery: data, deeply equal for equal trees. */
export interface Discovery {
  /** By key. */
  readonly functions: readonly FunctionVersion[]
  readonly byKey: ReadonlyMap<string, FunctionVersion>
  /** In the order of the tree. */
  readonly claims: readonly Claim[]
  readonly homes: readonly HomeAction[]
  readonly assets: AssetsMount | null
  readonly warnings: readonly Warning[]
  readonly ignored: readonly IgnoredPath[]
  /** Of functions; one folder may come up several times. */
  readonly manifests: readonly PackageManifest[]
}

const NO_REVISIONS: Revisions = new Map()

/** One discovery, its inputs, and the state that the next one begins with. */
interface Last {
  snapshot: Snapshot
  outerEnv: OuterEnv
  revisions: Revisions
  discovery: Discovery
  settled: Settled
}

export type Discoverer = ReturnType<typeof createDiscoverer>

/**
 * A discoverer with a memory for reloads that never changes the outcome: equal snapshots give deeply equal ones. Never throws:
 * mistakes are warnings.
 */
export function createDiscoverer(options: DiscoverOptions) {
  const facts = new FolderFacts(options)
  let walk = new Walk(facts)
  let last: Last | null = null
  return {
    /**
     * Reads a snapshot, the one of before or a later one. Folders seen before in the same surroundings cost nothing, and unchanged functions keep their objects.
     * @param revisions - by key, how often a file that the function loaded has changed: no worker outlives one
     */
    discover(snapshot: Snapshot, outerEnv: OuterEnv = NO_OUTER_ENV, revisions: Revisions = NO_REVISIONS): Discovery {
      const isSame = last?.snapshot === snapshot && last.outerEnv === outerEnv && last.revisions === revisions
      if (last !== null && isSame) return last.discovery
      // The remembered outcomes contain environments.
      if (last?.outerEnv !== outerEnv) walk = new Walk(facts)
      const known = last?.discovery.byKey ?? new Map<string, FunctionVersion>()
      const maker = new FunctionMaker(snapshot.rootPath, options.defaults, known, outerEnv)
      const part = walk.root(snapshot.root, maker)
      const settled = settleKeys(part, revisions, maker, last?.settled)
      const { functions, claims, warnings } = settled
      const byKey = new Map<string, FunctionVersion>()
      for (const fn of functions) byKey.set(fn.key, fn)
      const assets = findAssets(snapshot, facts, warnings)
      const ignored = withoutHandlers(part.ignored, functions)
      const discovery: Discovery = {
        functions,
        byKey,
        claims,
        homes: part.homes,
        assets,
        warnings: [...part.warnings, ...warnings, ...toTestWarnings(ignored)],
        ignored,
        manifests: part.manifests,
      }
      last = { snapshot, outerEnv, revisions, discovery, settled }
      return discovery
    },
  }
}

/** The outcome of a folder that was walked, or of one that was not entered. */
interface Known {
  /** What led to it. */
  readonly surroundings: Context
  /** Surroundings of the folders in it; null without any. */
  readonly inside: Context | null
  readonly outcome: Contribution
}

/**
 * Goes through the folders and remembers each outcome while the folder's object lives. A folder in the same surroundings as before
 * has the same outcome: of ten thousand folders in one, a reload walks only those that changed.
 */
class Walk {
  readonly #facts: FolderFacts
  readonly #known = new WeakMap<DirNode, Known>()
  /** The root of the walk before this one. */
  #last: DirNode | null = null

  constructor(facts: FolderFacts) {
    this.#facts = facts
  }

  root(root: DirNode, maker: FunctionMaker): Contribution {
    const outcome = this.#outcomeOf(root, ROOT_CONTEXT, maker, null)
    this.#last = root
    this.#facts.endWalk()
    return outcome
  }

  /** @param above - visit of the folder above; null for the root */
  #outcomeOf(node: DirNode, surroundings: Context, maker: FunctionMaker, above: Visit | null): Contribution {
    const known = this.#known.get(node)
    // The same object, see #surroundingsIn.
    if (known?.surroundings === surroundings) return known.outcome
    const outcome = new Contribution()
    const context = above === null ? surroundings : above.enter(node, outcome)
    let inside: Context | null = null
    if (context !== null) {
      const visit = new Visit(node, context, this.#facts, outcome)
      visit.addHandlers(maker)
      inside = node.dirs.length === 0 ? null : this.#surroundingsIn(visit)
      for (const dir of node.dirs) outcome.add(this.#outcomeOf(dir, inside!, maker, visit))
    }
    outcome.close()
    this.#known.set(node, { surroundings, inside, outcome })
    return outcome
  }

  /** The object of the walk before where nothing in it changed. */
  #surroundingsIn(visit: Visit): Context {
    const nodeBefore = findFolder(this.#last, visit.node.path)
    const before = nodeBefore === null ? null : (this.#known.get(nodeBefore)?.inside ?? null)
    const now = visit.surroundings
    return before !== null && isDeepStrictEqual(before, now) ? before : now
  }
}

/** A file that publishes nothing by its name may be a handler because a config names it. */
function withoutHandlers(
  ignored: readonly IgnoredPath[],
  functions: readonly FunctionVersion[],
): readonly IgnoredPath[] {
  if (ignored.length === 0) return ignored
  const handlers = new Set(functions.map(fn => fn.entryFile))
  return ignored.filter(({ path }) => !handlers.has(path))
}

/** One warning for all test files that would be routes by the other rules. */
function toTestWarnings(ignored: readonly IgnoredPath[]): Warning[] {
  const paths = ignored.filter(({ kind }) => kind === 'test').map(({ path }) => path)
  if (paths.length === 0) return []
  const message = `test files are not served: ${nameSome(paths)}`
  const hint = 'To serve one, name it in fn.routes.json. Rename it with "_" in front, or move it, to end this warning.'
  return [{ code: 'TEST_FILE', path: paths[0]!, message, hint }]
}

/** The static mount of the root's config, when its folder exists. */
function findAssets(snapshot: Snapshot, facts: FolderFacts, warnings: Warning[]): AssetsMount | null {
  const assets = facts.configs(snapshot.root).config?.assets
  if (assets === undefined) return null
  const { directory, notFoundHandling, runWorkerFirst } = assets
  const hasDotName = directory.split('/').some(part => part.startsWith('.'))
  if (!hasDotName && findFolder(snapshot.root, directory) !== null) {
    return { directory: join(snapshot.rootPath, directory), notFoundHandling, runWorkerFirst }
  }
  const rule = hasDotName ? 'must not contain a name that starts with "."' : 'must be a folder below the functions root'
  const text = `assets.directory ${rule}, got ${JSON.stringify(directory)} (string); no static files are served`
  warnings.push(pathWarning('ASSETS_MISSING', 'fn.config.json', text, 'Create the folder, or fix the path.'))
  return null
}

export interface IgnoredExplanation {
  /** Files and folders that expose nothing, and why. */
  ignored: IgnoredPath[]
  /** Warnings about files that would have answered. */
  warnings: Warning[]
}

/**
 * The part of a discovery that explains why a URL is not answered, or by another file than expected. Names are compared
 * generously: without private marks, method prefixes, runtime folders and case.
 * @param urlPath - decoded request path
 */
export function explainIgnored(
  discovery: Pick<Discovery, 'ignored' | 'warnings'>,
  urlPath: string,
): IgnoredExplanation {
  const wanted = urlPath.toLowerCase().split('/').filter(Boolean)
  return {
    ignored: discovery.ignored.filter(({ path }) => couldMean(path, wanted)),
    warnings: discovery.warnings.filter(({ path }) => couldMean(path, wanted)),
  }
}

/** True when a file, or what a folder could hold, might stand for the path. */
function couldMean(path: string, wanted: readonly string[]): boolean {
  // The name of the file itself may be asked for, with or without its extension.
  const asked = wanted.join('/')
  const literal = path.toLowerCase()
  if (asked !== '' && (literal === asked || literal.replace(/\.[a-z]+$/, '') === asked)) return true
  const names = path.split('/')
  const last = names.pop()!
  if (/^fn\.\w+\.json$/.test(last)) return startsWith(wanted, names.flatMap(toWords))
  const dot = last.search(/\.[a-z]+$/)
  const isFile = dot > 0
  const folderWords = names.flatMap(toWords)
  if (!isFile) return startsWith(wanted, [...folderWords, ...toWords(last)])
  const words = [...folderWords, ...toWords(last.slice(0, dot))]
  const short = FOLDER_STEMS.has(words.at(-1) ?? '') ? words.slice(0, -1) : words
  return [words, short, withoutRuntime(short)].some(text => isSame(wanted, text))
}

/** `_post.users.[id]` to `users`, `[id]`. */
function toWords(name: string): string[] {
  const words = name.replace(/^_+/, '').match(/\[\[?\.{0,3}[^\]]*\]\]?|[^.[\]]+/g) ?? []
  return words.map(word => word.toLowerCase()).filter(word => !isMethod(word.toUpperCase()))
}

function withoutRuntime(words: readonly string[]): readonly string[] {
  return isRuntimeName(words[0]) ? words.slice(1) : words
}

function startsWith(wanted: readonly string[], words: readonly string[]): boolean {
  const heads = [words, withoutRuntime(words)]
  return heads.some(head => head.length <= wanted.length && isSame(wanted.slice(0, head.length), head))
}

function isSame(wanted: readonly string[], words: readonly string[]): boolean {
  for (const [index, word] of words.entries()) {
    if (word.startsWith('[...') || word.startsWith('[[...')) return wanted.length >= index
    const text = wanted[index]
    if (text === undefined || !(word.startsWith('[') || word === text)) return false
  }
  return words.length === wanted.length
}
