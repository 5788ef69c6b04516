/** The functions root as immutable data: what discovery works on. Owner: §2.2, page discovery/layouts. */

import { setImmediate } from 'node:timers/promises'
import { orNull, type Warning } from '../core/errors.ts'
import { MAX_CONFIG_FILE_BYTES } from '../core/limits.ts'
import { RUNTIME_OF_EXTENSION } from '../core/identity.ts'
import { countUpTo } from '../core/collections.ts'
import { compareText } from '../core/text.ts'
import { mayBeHandler } from './callable.ts'
import * as disk from './disk.ts'
import { below, leadsBack, parentOf, toChild } from './disk.ts'
import { CONFIG_FILES, extensionOf, isConfigName, isSchemaName, isSourceName, manifestRuntime } from './file-name.ts'
import { skippedReason, usualRole } from './layouts.ts'

/** Folder levels below the functions root that are read at all; helper sources may be deeper than routes. */
export const MAX_TREE_DEPTH = 12

export interface FileEntry {
  readonly name: string
  /** Bytes. */
  readonly size: number
  readonly mtimeMs: number
  /** True for a file that is often a test, script or configuration, and whose text shows that it is not a handler. */
  readonly hasNoCallable?: true
}

/** One of the config files of a folder. */
export interface ConfigText {
  /** null when it cannot be read; a warning of the folder says why. */
  readonly text: string | null
  /** The last text before this one that had nothing wrong, null when there was none. */
  readonly lastGood: string | null
}

interface ConfigTexts {
  readonly config: ConfigText | null
  readonly routes: ConfigText | null
  readonly env: ConfigText | null
  readonly dotenv: ConfigText | null
}

export type ConfigKind = keyof ConfigTexts
const KINDS = Object.keys(CONFIG_FILES) as ConfigKind[]

/** One folder. Never changed: a later snapshot holds the same object while nothing in or below the folder changed. */
export interface DirNode {
  /** Last part of the path; empty for the root. */
  readonly name: string
  /** Below the root, posix separators; empty for the root. */
  readonly path: string
  readonly realPath: string
  /** Source, config and schema files and manifests of compiled functions, sorted by name. */
  readonly files: readonly FileEntry[]
  /** Names of the other files, sorted. Without sizes and times: data may change at every call. */
  readonly otherFiles: readonly string[]
  /** Sorted by name. */
  readonly dirs: readonly DirNode[]
  readonly texts: ConfigTexts
  /** Warnings about files and folders here that could not be read. */
  readonly problems: readonly Warning[]
  /** Why the folder was not read; null when it was. */
  readonly skipped: string | null
}

export interface Snapshot {
  /** Full path. */
  readonly rootPath: string
  readonly root: DirNode
  /** Folders that are not read because the root's config names them, below the root. */
  readonly excluded: ReadonlySet<string>
  /** Set when the machine had not enough left to read the tree: what was known before is kept. Null otherwise. */
  readonly shortage: Warning | null
}

export interface SnapshotOptions {
  rootPath: string
  /** The snapshot before this one. Unchanged folders keep their objects. */
  previous?: Snapshot | null
  /**
   * Changed files and folders below the root, `''` for the root. Folders that none of them touches are taken from
   * `previous` unread. Without it everything is read.
   */
  changed?: Iterable<string> | null
  /** True when a config text has nothing wrong: it is then remembered as the last good one. */
  isGood: (kind: ConfigKind, text: string) => boolean
  /** Folders that are not read because the root's config says so: the static assets. */
  excluded: (rootConfig: string) => ReadonlySet<string>
  disk?: disk.Disk
  /** Gets the times of each folder that is listed. */
  times?: disk.ListingTimes
}

/** Of a folder without config files; compared by identity. */
export const NO_TEXTS: ConfigTexts = Object.freeze({ config: null, routes: null, env: null, dotenv: null })
/** Folders read before other work of the process gets its turn. */
const FOLDERS_PER_TURN = 50

/** Reads the tree at once. Never throws: an unreadable entry is a warning of its folder. */
export function readSnapshotSync(options: SnapshotOptions): Snapshot {
  const steps = new Reader(options).read()
  for (;;) {
    const step = steps.next()
    if (step.done === true) return step.value
  }
}

/** Reads the tree in slices of a few milliseconds, so that requests go on while a large one is read. Never rejects. */
export async function readSnapshot(options: SnapshotOptions): Promise<Snapshot> {
  const steps = new Reader(options).read()
  for (let count = 1; ; count++) {
    const step = steps.next()
    if (step.done === true) return step.value
    if (count % FOLDERS_PER_TURN === 0) await setImmediate()
  }
}

/** A folder before it is read. */
interface Place {
  name: string
  path: string
  level: number
  /** Real paths of the folder, last, and of all above it: a link back to one of them is a loop. */
  chain: readonly string[]
}

class Reader {
  readonly #options: SnapshotOptions
  readonly #disk: disk.Disk
  readonly #before: DirNode | null
  /** Folders to read again; null means all. */
  readonly #dirty: Set<string> | null
  /** Those and the folders on the way to them. */
  readonly #touched = new Set<string>()
  #excluded: ReadonlySet<string> = new Set()
  #foldersLeft = disk.MAX_TREE_FOLDERS
  #shortage: Warning | null = null

  constructor(options: SnapshotOptions) {
    const { previous, changed, rootPath } = options
    this.#options = options
    const shortage = (error: unknown): void => {
      this.#shortage ??= disk.shortageWarning(error)
    }
    this.#disk = disk.watchShortage(options.disk ?? disk.NODE_DISK, shortage)
    this.#before = previous?.rootPath === rootPath ? previous.root : null
    // After a shortage it is unknown what else has changed.
    const isKnown = this.#before !== null && previous?.shortage === null
    this.#dirty = !isKnown || changed == null ? null : new Set()
    for (const path of changed ?? []) {
      this.#touch(path)
      // Up to a folder that was there before: that one lists what is new.
      let folder = path
      do {
        folder = parentOf(folder)
        this.#touch(folder)
      } while (folder !== '' && findFolder(this.#before, folder) === null)
    }
  }

  *read(): Generator<void, Snapshot> {
    const { previous } = this.#options
    const read = yield* this.#root()
    if (this.#shortage !== null && this.#before !== null && previous != null)
      return { ...previous, shortage: this.#shortage }
    const isSame = previous != null && read.root === this.#before && previous.shortage === null
    return isSame && this.#shortage === null ? previous : { ...read, shortage: this.#shortage }
  }

  *#root(): Generator<void, Omit<Snapshot, 'shortage'>> {
    const { rootPath } = this.#options
    let realPath: string
    try {
      realPath = this.#disk.realpath(rootPath)
    } catch (error) {
      const problem = disk.folderWarning('', error)
      const root = emptyNode({ name: '', path: '', level: 0, chain: [rootPath] }, problem.message, [problem])
      return { rootPath, root: keep(this.#before, root), excluded: this.#excluded }
    }
    // The assets folder is named by the root's config, so that file is read before any folder.
    const excludedBefore = this.#excludedBy(this.#before?.texts.config ?? null)
    this.#excluded = this.#excludedBy(this.#rootConfig())
    for (const path of excludedBefore) if (!this.#excluded.has(path)) this.#touch(path)
    for (const path of this.#excluded) if (!excludedBefore.has(path)) this.#touch(path)
    const root = yield* this.#folder({ name: '', path: '', level: 0, chain: [realPath] }, this.#before)
    return { rootPath, root, excluded: this.#excluded }
  }

  #rootConfig(): ConfigText | null {
    const text = this.#configText('', 'config', this.#before, [])
    // A known config may be a broken link now; its assets must not turn into functions.
    const isBroken = text === null && this.#before?.texts.config != null && this.#isListed('', CONFIG_FILES.config)
    return isBroken ? this.#toText('config', null, this.#before) : text
  }

  #isListed(folder: string, name: string): boolean {
    return orNull(() => this.#disk.readdir(this.#fullPath(folder)))?.some(entry => entry.name === name) ?? true
  }

  #excludedBy(config: ConfigText | null): ReadonlySet<string> {
    if (config === null) return new Set()
    // While the config is broken the last good one counts: its assets must not turn into functions.
    const isGood = config.text !== null && this.#options.isGood('config', config.text)
    const text = isGood ? config.text : (config.lastGood ?? config.text)
    return text === null ? new Set() : this.#options.excluded(text)
  }

  #touch(path: string): void {
    this.#dirty?.add(path)
    for (let above = path; above !== ''; above = parentOf(above)) this.#touched.add(above)
    this.#touched.add('')
  }

  *#folder(place: Place, before: DirNode | null): Generator<void, DirNode> {
    if (this.#dirty !== null && before !== null && before.skipped === null) {
      if (!this.#touched.has(place.path)) return before
      if (!this.#dirty.has(place.path)) {
        const dirs: DirNode[] = []
        for (const dir of before.dirs) dirs.push(yield* this.#kid(place, dir.name, dir.realPath, dir))
        const node = keep(before, { ...before, dirs })
        this.#options.times?.carry(before, node)
        return node
      }
    }
    if (this.#foldersLeft-- <= 0) {
      // One warning for the whole tree, at the first folder left out.
      const problems = this.#foldersLeft === -1 ? [disk.largeTreeWarning(place.path)] : []
      return emptyNode(place, `beyond ${disk.MAX_TREE_FOLDERS} folders`, problems)
    }
    yield
    const times = this.#options.times?.look(this.#fullPath(place.path)) ?? null
    let entries: readonly disk.DiskEntry[]
    try {
      entries = this.#disk.readdir(this.#fullPath(place.path))
    } catch (error) {
      const problem = disk.folderWarning(place.path, error)
      return keep(before, emptyNode(place, `cannot be read: ${disk.reasonOf(error)}`, [problem]))
    }
    const node = keep(before, yield* this.#contents(place, entries, before))
    // The target of a link changes without the folder, and a failed read has to be repeated.
    const isPlain = node.problems.length === 0 && entries.every(entry => entry.isFile() || entry.isDirectory())
    this.#options.times?.keep(node, isPlain ? times : null)
    return node
  }

  *#contents(place: Place, entries: readonly disk.DiskEntry[], before: DirNode | null): Generator<void, DirNode> {
    const problems: Warning[] = []
    const files: FileEntry[] = []
    /** Names of config files that are there and cannot be read. */
    const unreadable = new Set<string>()
    const otherFiles: string[] = []
    const dirs: DirNode[] = []
    const kidsBefore = new Map(before?.dirs.map(dir => [dir.name, dir]))
    const realPath = place.chain.at(-1)!
    if (entries.length >= disk.LARGE_FOLDER_ENTRIES) problems.push(disk.largeFolderWarning(place.path, entries.length))
    for (const entry of [...entries].sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const { name } = entry
      const path = toChild(place.path, name)
      const isConfig = isConfigName(name)
      const known = problems.length
      if (entry.isDirectory() && !isConfig) {
        dirs.push(yield* this.#kid(place, name, below(realPath, name), kidsBefore.get(name) ?? null))
        continue
      }
      const isWanted = isConfig || isSourceName(name) || isSchemaName(name) || manifestRuntime(name) !== undefined
      const stat = isWanted || !entry.isFile() ? this.#stat(path, entry.isSymbolicLink(), problems) : null
      if (stat?.isDirectory() && isConfig) {
        // `.env` is a usual name for a folder of Python packages.
        if (name !== CONFIG_FILES.dotenv) problems.push(disk.notFileWarning(path))
      } else if (stat?.isDirectory()) {
        const target = this.#linkTarget(path, place.chain, problems)
        if (target !== null) dirs.push(yield* this.#kid(place, name, target, kidsBefore.get(name) ?? null))
      } else if (stat?.isFile() && isWanted) files.push(this.#toFile(place.path, name, stat, before))
      else if (stat?.isFile() || (entry.isFile() && !isWanted)) otherFiles.push(name)
      else if (stat !== null && (isWanted || !stat.isSocket())) problems.push(disk.specialWarning(path))
      if (isConfig && problems.length > known) unreadable.add(name)
    }
    const texts = this.#texts(place.path, files, unreadable, before, problems)
    return {
      name: place.name,
      path: place.path,
      realPath,
      files,
      otherFiles,
      dirs,
      texts,
      problems,
      skipped: null,
    }
  }

  *#kid(parent: Place, name: string, realPath: string, before: DirNode | null): Generator<void, DirNode> {
    const path = toChild(parent.path, name)
    const place = { name, path, level: parent.level + 1, chain: [...parent.chain, realPath] }
    const same = before?.realPath === realPath ? before : null
    const skipped = this.#excluded.has(path) ? 'the static assets folder' : skippedReason(name)
    if (skipped !== null) return keep(same, emptyNode(place, skipped, []))
    const isTooDeep = place.level > MAX_TREE_DEPTH
    if (isTooDeep) return keep(same, emptyNode(place, `below ${MAX_TREE_DEPTH} folder levels`, []))
    return yield* this.#folder(place, same)
  }

  #toFile(folder: string, name: string, { size, mtimeMs }: disk.DiskStat, before: DirNode | null): FileEntry {
    const file = { name, size, mtimeMs }
    const role = usualRole(folder, name)
    const runtime = RUNTIME_OF_EXTENSION.get(extensionOf(name))
    if (role === null || runtime === undefined || size > MAX_CONFIG_FILE_BYTES) return file
    const known = before?.files.find(other => other.name === name)
    if (known?.size === size && known.mtimeMs === mtimeMs) return known
    try {
      const text = Buffer.from(this.#disk.readFile(this.#fullPath(toChild(folder, name)))).toString('utf8')
      return mayBeHandler(runtime, text, role === 'configuration') ? file : { ...file, hasNoCallable: true }
    } catch {
      // Its call says why it cannot be read.
      return file
    }
  }

  #stat(path: string, isLink: boolean, problems: Warning[]): disk.DiskStat | null {
    return this.#ask(path, isLink, problems, this.#disk.stat)
  }

  /** A question to the disk about a file; null, and a warning, after an error. */
  #ask<T>(path: string, isLink: boolean, problems: Warning[], ask: (fullPath: string) => T): T | null {
    try {
      return ask(this.#fullPath(path))
    } catch (error) {
      const problem = disk.fileWarning(path, isLink, error)
      if (problem !== null) problems.push(problem)
      return null
    }
  }

  /** Where a linked folder really is; null when following it would not end. */
  #linkTarget(path: string, chain: readonly string[], problems: Warning[]): string | null {
    const target = this.#ask(path, true, problems, this.#disk.realpath)
    if (target === null) return null
    // Descending would come back here for ever, or out of the root into the whole disk.
    if (!leadsBack(target, chain)) return target
    problems.push(disk.loopWarning(path))
    return null
  }

  #texts(
    folder: string,
    files: readonly FileEntry[],
    unreadable: ReadonlySet<string>,
    before: DirNode | null,
    problems: Warning[],
  ): ConfigTexts {
    const names = new Set(files.filter(file => isConfigName(file.name)).map(file => file.name))
    if (names.size === 0 && unreadable.size === 0) return NO_TEXTS
    const read = (kind: ConfigKind) => {
      if (unreadable.has(CONFIG_FILES[kind])) return this.#toText(kind, null, before)
      return names.has(CONFIG_FILES[kind]) ? this.#configText(folder, kind, before, problems) : null
    }
    const texts: ConfigTexts = {
      config: read('config'),
      routes: read('routes'),
      env: read('env'),
      dotenv: read('dotenv'),
    }
    const old = before?.texts
    return old !== undefined && KINDS.every(kind => old[kind] === texts[kind]) ? old : texts
  }

  /** null when the file does not exist. */
  #configText(folder: string, kind: ConfigKind, before: DirNode | null, problems: Warning[]): ConfigText | null {
    const path = toChild(folder, CONFIG_FILES[kind])
    const stat = this.#stat(path, false, problems)
    if (stat === null || !stat.isFile()) return null
    if (stat.size > MAX_CONFIG_FILE_BYTES) problems.push(disk.largeConfigWarning(path, stat.size))
    return this.#toText(kind, stat.size > MAX_CONFIG_FILE_BYTES ? null : this.#readText(path, problems), before)
  }

  /** @param text - null for a file that cannot be read */
  #toText(kind: ConfigKind, text: string | null, before: DirNode | null): ConfigText {
    const old = before?.texts[kind] ?? null
    if (old !== null && old.text === text) return old
    const isOldGood = old !== null && old.text !== null && this.#options.isGood(kind, old.text)
    return { text, lastGood: isOldGood ? old.text : (old?.lastGood ?? null) }
  }

  #readText(path: string, problems: Warning[]): string | null {
    const bytes = this.#ask(path, false, problems, this.#disk.readFile)
    if (bytes === null) return null
    try {
      return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
    } catch {
      problems.push(disk.notUtf8Warning(path))
      return null
    }
  }

  #fullPath(path: string): string {
    return path === '' ? this.#options.rootPath : below(this.#options.rootPath, path)
  }
}

/** The old node when the new one holds the same: whatever was computed from it stays valid. */
function keep(before: DirNode | null, node: DirNode): DirNode {
  if (before === null || before.skipped !== node.skipped || before.realPath !== node.realPath) return node
  const isSame =
    before.texts === node.texts &&
    sameItems(before.dirs, node.dirs, (a, b) => a === b) &&
    sameItems(before.files, node.files, (a, b) => a.name === b.name && a.size === b.size && a.mtimeMs === b.mtimeMs) &&
    sameItems(before.otherFiles, node.otherFiles, (a, b) => a === b) &&
    sameItems(before.problems, node.problems, (a, b) => a.message === b.message)
  return isSame ? before : node
}

function sameItems<T>(a: readonly T[], b: readonly T[], isSame: (a: T, b: T) => boolean): boolean {
  return a === b || (a.length === b.length && a.every((item, index) => isSame(item, b[index]!)))
}

function emptyNode(place: Place, skipped: string, problems: readonly Warning[]): DirNode {
  const { name, path } = place
  const realPath = place.chain.at(-1)!
  return { name, path, realPath, files: [], otherFiles: [], dirs: [], texts: NO_TEXTS, problems, skipped }
}

/** The folder at a path below a folder, null when it is not there. */
export function findFolder(start: DirNode | null, path: string): DirNode | null {
  if (path === '' || start === null) return start
  let node = start
  for (const name of path.split('/')) {
    const dirs: DirNode['dirs'] = node.dirs
    const dir = dirs[countUpTo(dirs, name, (one, wanted) => compareText(one.name, wanted)) - 1]
    if (dir?.name !== name) return null
    node = dir
  }
  return node
}

/** The source, config or manifest file at a path below a folder, null when it is not there. */
export function findFile(start: DirNode | null, path: string): FileEntry | null {
  const folder = findFolder(start, parentOf(path))
  return folder?.files.find(file => file.name === path.slice(path.lastIndexOf('/') + 1)) ?? null
}
