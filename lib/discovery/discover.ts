/** The functions root to functions, claims and warnings: a pure function of the snapshot. Owner: §2.2, page discovery/layouts. */

import { join } from 'node:path'
import { NO_OUTER_ENV, type OuterEnv } from '../config/env-layers.ts'
import type { AssetsMount, FunctionVersion, IgnoredPath } from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import { ConfigReader } from './configs.ts'
import { pathWarning } from './disk.ts'
import { type DiscoverOptions, FolderFacts } from './folder.ts'
import { FunctionMaker } from './functions.ts'
import { addHandlers } from './handlers.ts'
import { type Revisions, type Settled, settleKeys } from './keys.ts'
import { type Discovery, type KeptPart, toPartOutcome } from './part.ts'
import { type DirNode, findFolder, type Snapshot } from './snapshot.ts'
import { type Context, ROOT_CONTEXT, sameContext, Visit } from './visit.ts'

export type { DiscoverOptions } from './folder.ts'
export type { Discovery } from './part.ts'

const NO_REVISIONS: Revisions = new Map()

/** One discovery, what it was made of, and what the next one begins with. */
interface Last {
  snapshot: Snapshot
  outerEnv: OuterEnv
  revisions: Revisions
  discovery: Discovery
  settled: Settled
}

export interface Discoverer {
  /**
   * Reads a snapshot, the one of before or a later one. Folders seen before in the same surroundings cost nothing, and unchanged functions keep their objects.
   * @param revisions - by key, how often a file that the function loaded has changed: no worker outlives one
   */
  discover: (snapshot: Snapshot, outerEnv?: OuterEnv, revisions?: Revisions) => Discovery
}

/** Discovers once. Equal snapshots give deeply equal outcomes. Never throws: what is wrong is a warning. */
export function discover(snapshot: Snapshot, options: DiscoverOptions, outerEnv?: OuterEnv): Discovery {
  return createDiscoverer(options).discover(snapshot, outerEnv)
}

/** A discoverer with a memory for reloads; what it remembers never changes the outcome. */
export function createDiscoverer(options: DiscoverOptions): Discoverer {
  const configs = new ConfigReader()
  const facts = new FolderFacts(configs, options)
  let walk = new Walk(facts)
  let last: Last | null = null
  return {
    discover(snapshot, outerEnv = NO_OUTER_ENV, revisions = NO_REVISIONS) {
      const isSame = last?.snapshot === snapshot && last.outerEnv === outerEnv && last.revisions === revisions
      if (last !== null && isSame) return last.discovery
      // What is remembered of folders holds environments.
      if (last?.outerEnv !== outerEnv) walk = new Walk(facts)
      const known = last?.discovery.byKey ?? new Map<string, FunctionVersion>()
      const maker = new FunctionMaker(snapshot.rootPath, options.defaults, known, outerEnv)
      const part = toPartOutcome(walk.folder(snapshot.root, ROOT_CONTEXT, maker))
      facts.endWalk(snapshot.root)
      const settled = settleKeys(part, revisions, maker, last?.settled)
      const { functions, claims, warnings } = settled
      const assets = findAssets(snapshot, configs, warnings)
      const ignored = withoutHandlers(part.ignored, functions)
      const discovery: Discovery = {
        functions,
        byKey: toByKey(functions),
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

/** What is remembered of a folder with folders in it, and of one of which something was to be said. */
interface Known {
  readonly part: KeptPart
  /** Where it stands; null when that follows from the folder above. */
  context: Context | null
  /** Where the folders in it stand that follow from this one; null without any folders. */
  readonly surroundings: Context | null
}

/** Goes through the folders and remembers each outcome while the folder's object lives and its surroundings are the same. */
class Walk {
  readonly #facts: FolderFacts
  /** Of most folders the outcome is all: they hold no folders, and stand where the folder above says. */
  readonly #known = new WeakMap<DirNode, Known | KeptPart>()

  constructor(facts: FolderFacts) {
    this.#facts = facts
  }

  /** The outcome of a folder and all below it. */
  folder(node: DirNode, context: Context, maker: FunctionMaker): KeptPart {
    const known = this.#knownOf(node)
    if (known !== null && known.context !== null && sameContext(known.context, context)) return known.part
    const visit = new Visit(node, context, this.#facts)
    addHandlers(visit, maker)
    const surroundings = node.dirs.length > 0 ? this.#enterAll(visit, maker) : null
    const part = visit.part.toKept()
    this.#known.set(node, { part, context, surroundings })
    return part
  }

  #knownOf(node: DirNode): Known | null {
    const known = this.#known.get(node)
    return known !== undefined && 'part' in known ? known : null
  }

  /**
   * A folder that is the same in the same surroundings stands where it stood: of ten thousand only the others are entered.
   * @returns where they stand
   */
  #enterAll(visit: Visit, maker: FunctionMaker): Context {
    const { node, part } = visit
    const [before, now] = [this.#surroundingsBefore(node), visit.surroundings]
    const isSame = before !== null && sameContext(before, now)
    for (const dir of node.dirs) {
      const kept = isSame ? this.#plainPartOf(dir) : null
      if (kept !== null) {
        part.add(kept)
        continue
      }
      const [warned, ignored] = [part.warnings.length, part.ignored.length]
      const below = visit.enter(dir)
      const isPlain = part.warnings.length === warned && part.ignored.length === ignored
      if (below === null) this.#known.delete(dir)
      else {
        part.add(this.folder(dir, below, maker))
        if (isPlain) this.#makePlain(dir)
      }
    }
    return isSame ? before : now
  }

  #surroundingsBefore(node: DirNode): Context | null {
    const before = this.#facts.before(node)
    return before === null ? null : (this.#knownOf(before)?.surroundings ?? null)
  }

  /** The outcome of a folder of which nothing was to be said but where it stands; null for others. */
  #plainPartOf(dir: DirNode): KeptPart | null {
    const known = this.#known.get(dir)
    if (known === undefined || !('part' in known)) return known ?? null
    return known.context === null ? known.part : null
  }

  #makePlain(dir: DirNode): void {
    const known = this.#knownOf(dir)
    if (known?.surroundings === null) this.#known.set(dir, known.part)
    else if (known !== null) known.context = null
  }
}

function toByKey(functions: readonly FunctionVersion[]): ReadonlyMap<string, FunctionVersion> {
  const byKey = new Map<string, FunctionVersion>()
  for (const fn of functions) byKey.set(fn.key, fn)
  return byKey
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

/** Test files named in one warning. */
const MAX_NAMED_TESTS = 5

/** One warning for all test files that would be routes by the other rules. */
function toTestWarnings(ignored: readonly IgnoredPath[]): Warning[] {
  const paths = ignored.filter(({ kind }) => kind === 'test').map(({ path }) => path)
  if (paths.length === 0) return []
  const rest = paths.length > MAX_NAMED_TESTS ? ` and ${paths.length - MAX_NAMED_TESTS} more` : ''
  const message = `test files are not served: ${paths.slice(0, MAX_NAMED_TESTS).join(', ')}${rest}`
  const hint = 'To serve one, name it in fn.routes.json. Rename it with "_" in front, or move it, to end this warning.'
  return [{ code: 'TEST_FILE', path: paths[0]!, message, hint }]
}

/** The static mount of the root's config, when its folder exists. */
function findAssets(snapshot: Snapshot, configs: ConfigReader, warnings: Warning[]): AssetsMount | null {
  const assets = configs.read(snapshot.root).config?.assets
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
