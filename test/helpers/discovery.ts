/** Discovery of temporary trees for tests. */

import type { OuterEnv } from '../../lib/config/function-env.ts'
import { createDiscoverer, type Discovery, type DiscoverOptions } from '../../lib/discovery/discover.ts'
import { type Snapshot, type SnapshotOptions, SnapshotReader } from '../../lib/discovery/snapshot.ts'
import type { WatchedTree } from '../../lib/discovery/watch.ts'
import { makeTree, type TreeEntry } from './tree.ts'

export const OPTIONS: DiscoverOptions = {
  runtimes: ['python', 'node', 'php', 'lua'],
  namespaceDepth: 3,
  forceUrl: false,
  defaults: {
    defaultTimeoutMs: 2500,
    defaultMaxConcurrency: 20,
    defaultQueue: { maxQueue: 500, timeoutMs: 5000, maxWaitMs: 0 },
    defaultMaxBodyBytes: 1_048_576,
  },
}

export function snapshotOf(rootPath: string, more: Partial<SnapshotOptions> = {}): Snapshot {
  const steps = new SnapshotReader({ rootPath, ...more }).read()
  for (;;) {
    const step = steps.next()
    if (step.done === true) return step.value
  }
}

/** A tree as a gateway reads it, for watchers. */
export class ReadTree implements WatchedTree {
  snapshot: Snapshot

  constructor(rootPath: string) {
    this.snapshot = snapshotOf(rootPath)
  }

  /** Reads it again after changes; null reads all of it. */
  read(changed: Iterable<string> | null): void {
    this.snapshot = snapshotOf(this.snapshot.rootPath, { previous: this.snapshot, changed })
  }

  async findChanged(): Promise<string[] | null> {
    return snapshotOf(this.snapshot.rootPath, { previous: this.snapshot }) === this.snapshot ? [] : null
  }
}

/** Discovers once. */
export function discover(snapshot: Snapshot, options: DiscoverOptions, outerEnv?: OuterEnv): Discovery {
  return createDiscoverer(options).discover(snapshot, outerEnv)
}

/** Makes a tree, discovers it once, and removes it. */
export function discoverTree(entries: Record<string, TreeEntry>, options: Partial<DiscoverOptions> = {}): Discovery {
  const tree = makeTree(entries)
  try {
    return discover(snapshotOf(tree.root), { ...OPTIONS, ...options })
  } finally {
    tree.cleanup()
  }
}

/** Sorted `GET,POST /path entry/file`. */
export function routesOf({ claims }: Discovery): string[] {
  return claims.map(claim => `${claim.methods.join()} ${claim.pattern.text} ${claim.fn.entryFile}`).sort()
}

/** Sorted `CODE path`. */
export function codesOf({ warnings }: Pick<Discovery, 'warnings'>): string[] {
  return warnings.map(({ code, path }) => `${code} ${path}`).sort()
}

/** Names of the functions, with versions. */
export function namesOf({ functions }: Discovery): string[] {
  return functions.map(fn => (fn.version === null ? fn.name : `${fn.name}@${fn.version}`))
}

/** The only function with that name. */
export function fnOf({ functions }: Discovery, name: string) {
  const found = functions.filter(fn => fn.name === name && fn.version === null)
  if (found.length !== 1) throw new Error(`${found.length} functions are named ${name}`)
  return found[0]!
}
