/** What can be said of each folder by itself, remembered while the folder's object lives. Owner: §2.2, page discovery/layouts. */

import type { PolicyDefaults } from '../config/policy-layers.ts'
import { EMPTY } from '../core/exact-list.ts'
import type { RuntimeName } from '../core/identity.ts'
import { compareText } from '../core/text.ts'
import type { ConfigReader, FolderConfigs } from './configs.ts'
import { type FolderFiles, type FolderView, sameView, sortFiles } from './folder-files.ts'
import { isScriptFolder, privateReason } from './layouts.ts'
import { sourcesBelow } from './signature.ts'
import { type DirNode, type FileEntry, findFolder } from './snapshot.ts'

export interface DiscoverOptions {
  /** Enabled runtimes; files of others are ignored. */
  runtimes: readonly RuntimeName[]
  /** Name segments below a runtime's folder. */
  namespaceDepth: number
  /** `FN_FORCE_URL`: every config route is forced. */
  forceUrl: boolean
  defaults: PolicyDefaults
}

interface Helper {
  folder: string
  file: FileEntry
}

/** Helper files in reach of the functions of a folder with folders, and where the folders in it stood then. */
interface KnownHelpers {
  view: FolderView
  viewBelow: FolderView
  found: readonly Helper[]
  /** Of the folders in it, those that have some for others. */
  fromBelow: ReadonlyMap<DirNode, readonly Helper[]>
}

/** The facts about folders that the walk and the handlers ask for. */
export class FolderFacts {
  readonly options: DiscoverOptions
  readonly enabled: ReadonlySet<RuntimeName>
  readonly #configs: ConfigReader
  #files = new WeakMap<DirNode, { view: FolderView; files: FolderFiles }>()
  readonly #helpers = new WeakMap<DirNode, KnownHelpers>()
  /** Root of the walk before this one. */
  #last: DirNode | null = null

  constructor(configs: ConfigReader, options: DiscoverOptions) {
    this.#configs = configs
    this.options = options
    this.enabled = new Set(options.runtimes)
  }

  configs(node: DirNode): FolderConfigs {
    return this.#configs.read(node)
  }

  files(node: DirNode, view: FolderView): FolderFiles {
    const known = this.#files.get(node)
    if (known !== undefined && sameView(known.view, view)) return known.files
    const files = sortFiles(node, this.configs(node).config, view, this.enabled)
    this.#files.set(node, { view, files })
    return files
  }

  /** Forgets what is asked for several times in one walk, and seldom after it. */
  endWalk(root: DirNode): void {
    this.#files = new WeakMap()
    this.#last = root
  }

  /** What was at a folder's place in the walk before, null when nothing was. */
  before({ path }: DirNode): DirNode | null {
    return findFolder(this.#last, path)
  }

  /** Where the folders of a folder stand. */
  viewBelow(node: DirNode, view: FolderView): FolderView {
    const { kind } = this.files(node, view)
    if (kind === 'group') return { ...view, group: node.name as RuntimeName }
    // The functions root is no function around others, even when it is one itself.
    return kind === 'function' && node.path !== '' ? { ...view, isInsideFunction: true } : view
  }

  /** Why a folder publishes nothing, whatever its files are called; null when it may. */
  closed({ skipped, name }: DirNode): string | null {
    return skipped ?? privateReason(name)
  }

  /** True when the folder itself holds a handler. */
  hasHandler(node: DirNode, view: FolderView): boolean {
    const { entries, routes } = this.files(node, view)
    return entries.length > 0 || routes.length > 0 || this.configs(node).config?.entrypoint !== undefined
  }

  /** True when the folder or one below it holds a handler. */
  hasHandlerBelow(node: DirNode, view: FolderView): boolean {
    if (this.closed(node) !== null) return false
    if (this.hasHandler(node, view)) return true
    const viewBelow = this.viewBelow(node, view)
    return node.dirs.some(dir => this.hasHandlerBelow(dir, viewBelow))
  }

  /**
   * Helper files whose change concerns the functions of a folder and below: its own, those of its private folders, and
   * those of folders that hold no handler themselves, which exist for the handlers around them.
   */
  helpers(node: DirNode, view: FolderView): readonly Helper[] {
    const known = this.#helpers.get(node)
    if (known !== undefined && sameView(known.view, view)) return known.found
    const own = this.files(node, view).helpers.map(file => ({ folder: node.path, file }))
    // A folder without folders is as soon looked at again.
    if (node.dirs.length === 0) return own
    const viewBelow = this.viewBelow(node, view)
    const fromBelow = this.#helpersBelow(node, viewBelow)
    const found = [...own, ...[...fromBelow.values()].flat()]
    this.#helpers.set(node, { view, viewBelow, found, fromBelow })
    return found
  }

  /** Of ten thousand folders in one, those that were there before are not looked at again. */
  #helpersBelow(node: DirNode, view: FolderView): ReadonlyMap<DirNode, readonly Helper[]> {
    const before = this.before(node)
    const known = before === null ? undefined : this.#helpers.get(before)
    const [dirsBefore, knownBelow] =
      known !== undefined && sameView(known.viewBelow, view) ? [before!.dirs, known.fromBelow] : [EMPTY, null]
    const fromBelow = new Map<DirNode, readonly Helper[]>()
    let at = 0
    for (const dir of node.dirs) {
      while (at < dirsBefore.length && compareText(dirsBefore[at]!.name, dir.name) < 0) at++
      const helpers = dirsBefore[at] === dir ? knownBelow?.get(dir) : this.#helpersOf(dir, view)
      if (helpers !== undefined && helpers.length > 0) fromBelow.set(dir, helpers)
    }
    return fromBelow
  }

  /** What a folder has for those around it. */
  #helpersOf(dir: DirNode, view: FolderView): readonly Helper[] {
    if (isScriptFolder(dir.path)) return []
    if (this.closed(dir) !== null) return sourcesBelow(dir)
    return this.hasHandler(dir, view) ? [] : this.helpers(dir, view)
  }
}
