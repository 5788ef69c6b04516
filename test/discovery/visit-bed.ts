/** One folder of a temporary tree, visited as the walk does. */

import { NO_OUTER_ENV } from '../../lib/config/function-env.ts'
import { FolderFacts } from '../../lib/discovery/folder.ts'
import { Contribution, FunctionMaker } from '../../lib/discovery/functions.ts'
import { ROOT_CONTEXT, Visit } from '../../lib/discovery/visit.ts'
import { findFolder } from '../../lib/discovery/snapshot.ts'
import type { DiscoverOptions } from '../../lib/discovery/discover.ts'
import { OPTIONS, snapshotOf } from '../helpers/discovery.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'

export interface Visited {
  part: Contribution
  /** Sorted `GET,POST /path file`. */
  claims: string[]
  /** Names of the functions, with versions. */
  names: string[]
  codes: string[]
}

/** Makes a tree, goes down to one folder, and says what its handlers contribute. */
export function visitFolder(
  entries: Record<string, TreeEntry>,
  path: string,
  options: Partial<DiscoverOptions> = {},
): Visited {
  const tree = makeTree(entries)
  try {
    const { root } = snapshotOf(tree.root)
    const facts = new FolderFacts({ ...OPTIONS, ...options })
    let visit = new Visit(root, ROOT_CONTEXT, facts)
    const names = path === '' ? [] : path.split('/')
    for (const index of names.keys()) {
      const node = findFolder(root, names.slice(0, index + 1).join('/'))!
      visit = new Visit(node, visit.enter(node, new Contribution())!, facts)
    }
    const { part } = visit
    part.warnings.length = 0
    part.ignored.length = 0
    visit.addHandlers(new FunctionMaker(tree.root, OPTIONS.defaults, new Map(), NO_OUTER_ENV))
    return {
      part,
      claims: part.claims
        .map(
          claim =>
            `${claim.methods.join()} ${claim.pattern.text} ${claim.fn.entryFile}${claim.forced ? ' forced' : ''}`,
        )
        .sort(),
      names: part.functions.map(fn => (fn.version === null ? fn.name : `${fn.name}@${fn.version}`)),
      codes: part.warnings.map(({ code }) => code),
    }
  } finally {
    tree.cleanup()
  }
}
