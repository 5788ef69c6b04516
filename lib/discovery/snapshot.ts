/** The functions root as immutable data: what discovery works on, and which of it may have changed. Owner: §2.2, page discovery/layouts. */

import type { Stats } from 'node:fs'
import { setImmediate } from 'node:timers/promises'
import { isProblem } from '../config/fields.ts'
import { parseFunctionConfig, parseRoutesFile } from '../config/function-config.ts'
import { parseFunctionDotenv, parseFunctionEnv } from '../config/function-env.ts'
import { countUpTo, isSameList } from '../core/collections.ts'
import { orNull, type Warning } from '../core/errors.ts'
import { RUNTIME_OF_EXTENSION } from '../core/identity.ts'
import { MAX_CONFIG_FILE_BYTES } from '../core/limits.ts'
import { compareText } from '../core/text.ts'
import { mayBeHandler } from './callable.ts'
import {
  below,
  type Disk,
  type DiskEntry,
  fileWarning,
  folderWarning,
  isWithin,
  loopWarning,
  NODE_DISK,
  parentOf,
  pathWarning,
  reasonOf,
  toChild,
  watchShortage,
} from './disk.ts'
import { CONFIG_FILES, extensionOf, isConfigName, isReadName, skippedReason, usualRole } from './layouts.ts'

/** Folder levels below the functions root that are read at all; helper sources may be deeper than routes. */
const MAX_TREE_DEPTH = 12
/** Folders of one tree that are read; the rest is skipped with a warning. */
const MAX_TREE_FOLDERS = 100_000
/** Entries of one folder from which on a warning says that it slows every reload. */
const LARGE_FOLDER_ENTRIES = 10_000

export interface FileEntry {
  readonly name: string
  /** Bytes. */
  readonly size: number
  readonly mtimeMs: number
  /** True for a link: a change of its target is not seen in the folder that holds the link. */
  readonly isLink?: true
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

export type ConfigKind = keyof typeof CONFIG_FILES
type ConfigTexts = Readonly<Record<ConfigKind, ConfigText | null>>
const KINDS = Object.keys(CONFIG_FILES) as ConfigKind[]

export const PARSERS = {
  config: parseFunctionConfig,
  routes: parseRoutesFile,
  env: parseFunctionEnv,
  dotenv: parseFunctionDotenv,
}

/** True when a config text has nothing wrong: it is then remembered as the last good one. */
export function isGood(kind: ConfigKind, text: string): boolean {
  return !PARSERS[kind](text, '').warnings.some(isProblem)
}

/** Folders that are not read because the root's config says so: the static assets. */
export function toExcluded(rootConfig: string): ReadonlySet<string> {
  const directory = parseFunctionConfig(rootConfig, '').value.assets?.directory
  return new Set(directory === undefined ? [] : [directory])
}

/** Of a folder without config files; compared by identity. */
export const NO_TEXTS: ConfigTexts = Object.freeze({ config: null, routes: null, env: null, dotenv: null })

/** One folder. Never changed: a later snapshot holds the same object while nothing in or below the folder changed. */
export interface DirNode {
  /** Last part of the path; empty for the root. */
  readonly name: string
  /** Below the root, posix separators; empty for the root. */
  readonly path: string
  readonly realPath: string
  /** Source, config and schema files and manifests, sorted by name. */
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
  disk?: Disk
  /** Gets the times of each folder that is listed. */
  times?: FolderTimes
}

/** Folders read before other work of the process gets its turn. */
const FOLDERS_PER_TURN = 50

/**
 * Reads the tree in slices of a few milliseconds, so that requests go on while a large one is read. Never rejects: an unreadable entry
 * is a warning of its folder.
 */
export async function readSnapshot(options: SnapshotOptions): Promise<Snapshot> {
  const steps = new SnapshotReader(options).read()
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

/** Reads the tree in steps of one folder. */
export class SnapshotReader {
  readonly #options: SnapshotOptions
  readonly #disk: Disk
  readonly #before: DirNode | null
  /** Folders to read again; null means all. */
  readonly #dirty: Set<string> | null
  /** Those and the folders on the way to them. */
  readonly #touched = new Set<string>()
  #excluded: ReadonlySet<string> = new Set()
  #foldersLeft = MAX_TREE_FOLDERS
  #shortage: Warning | null = null

  constructor(options: SnapshotOptions) {
    const { previous, changed, rootPath } = options
    this.#options = options
    this.#disk = watchShortage(options.disk ?? NODE_DISK, error => {
      const text = `cannot be read now: ${reasonOf(error)}; the previous catalog stays in force`
      const hint = 'fngw retries every second. Raise the limit of open files (ulimit -n), or free memory.'
      this.#shortage ??= pathWarning('TREE_NOT_READ', '', text, hint)
    })
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
    const shortage = this.#shortage
    if (previous == null || this.#before === null) return { ...read, shortage }
    if (shortage !== null) return { ...previous, shortage }
    return read.root === this.#before && previous.shortage === null ? previous : { ...read, shortage }
  }

  *#root(): Generator<void, Omit<Snapshot, 'shortage'>> {
    const { rootPath } = this.#options
    const place = { name: '', path: '', level: 0 }
    let realPath: string
    try {
      realPath = this.#disk.realpath(rootPath)
    } catch (error) {
      const problem = folderWarning('', error)
      const root = emptyNode({ ...place, chain: [rootPath] }, problem.message, [problem])
      return { rootPath, root: keep(this.#before, root), excluded: this.#excluded }
    }
    // The assets folder is named by the root's config, so that file is read before any folder.
    const excludedBefore = this.#excludedBy(this.#before?.texts.config ?? null)
    this.#excluded = this.#excludedBy(this.#rootConfig())
    for (const path of excludedBefore) if (!this.#excluded.has(path)) this.#touch(path)
    for (const path of this.#excluded) if (!excludedBefore.has(path)) this.#touch(path)
    const root = yield* this.#folder({ ...place, chain: [realPath] }, this.#before)
    return { rootPath, root, excluded: this.#excluded }
  }

  #rootConfig(): ConfigText | null {
    const text = this.#configText('', 'config', this.#before, [])
    if (text !== null || this.#before?.texts.config == null) return text
    // A known config may be a broken link now; its assets must not turn into functions.
    const entries = orNull(() => this.#disk.readdir(this.#options.rootPath))
    const isListed = entries?.some(entry => entry.name === CONFIG_FILES.config) ?? true
    return isListed ? this.#toText('config', null, this.#before) : null
  }

  #excludedBy(config: ConfigText | null): ReadonlySet<string> {
    if (config === null) return new Set()
    // While the config is broken the last good one counts: its assets must not turn into functions.
    const isUsed = config.text !== null && isGood('config', config.text)
    const text = isUsed ? config.text : (config.lastGood ?? config.text)
    return text === null ? new Set() : toExcluded(text)
  }

  #touch(path: string): void {
    this.#dirty?.add(path)
    for (let above = path; above !== ''; above = parentOf(above)) this.#touched.add(above)
    this.#touched.add('')
  }

  *#folder(place: Place, before: DirNode | null): Generator<void, DirNode> {
    const { times } = this.#options
    if (this.#dirty !== null && before !== null && before.skipped === null) {
      if (!this.#touched.has(place.path)) return before
      if (!this.#dirty.has(place.path)) {
        const dirs: DirNode[] = []
        for (const dir of before.dirs) dirs.push(yield* this.#kid(place, dir.name, dir.realPath, dir))
        const node = keep(before, { ...before, dirs })
        times?.carry(before, node)
        return node
      }
    }
    if (this.#foldersLeft-- <= 0) {
      // One warning for the whole tree, at the first folder left out.
      const text = `and the folders after it are not read: the tree has more than ${MAX_TREE_FOLDERS} folders`
      const warning = pathWarning('TREE_TOO_LARGE', place.path, text, 'Move data out of the functions root.')
      return emptyNode(place, `beyond ${MAX_TREE_FOLDERS} folders`, this.#foldersLeft === -1 ? [warning] : [])
    }
    yield
    const fullPath = this.#fullPath(place.path)
    const now = times?.look(fullPath) ?? null
    let entries: readonly DiskEntry[]
    try {
      entries = this.#disk.readdir(fullPath)
    } catch (error) {
      const problem = folderWarning(place.path, error)
      return keep(before, emptyNode(place, `cannot be read: ${reasonOf(error)}`, [problem]))
    }
    const node = keep(before, yield* this.#contents(place, entries, before))
    // The target of a link changes without the folder, and a failed read has to be repeated.
    const isPlain = node.problems.length === 0 && entries.every(entry => entry.isFile() || entry.isDirectory())
    times?.keep(node, isPlain ? now : null)
    return node
  }

  *#contents(place: Place, entries: readonly DiskEntry[], before: DirNode | null): Generator<void, DirNode> {
    const { name: ownName, path: ownPath, chain } = place
    const problems: Warning[] = []
    const files: FileEntry[] = []
    /** Names of config files that are there and cannot be read. */
    const unreadable = new Set<string>()
    const otherFiles: string[] = []
    const dirs: DirNode[] = []
    const kidsBefore = new Map(before?.dirs.map(dir => [dir.name, dir]))
    const realPath = chain.at(-1)!
    if (entries.length >= LARGE_FOLDER_ENTRIES) {
      const text = `has ${entries.length} entries; reloads are slow from ${LARGE_FOLDER_ENTRIES} entries on`
      const hint = 'Move data out of the functions root, or spread the files over folders.'
      problems.push(pathWarning('LARGE_FOLDER', ownPath, text, hint))
    }
    for (const entry of [...entries].sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const { name } = entry
      const path = toChild(ownPath, name)
      const isConfig = isConfigName(name)
      if (entry.isDirectory() && !isConfig) {
        dirs.push(yield* this.#kid(place, name, below(realPath, name), kidsBefore.get(name) ?? null))
        continue
      }
      const known = problems.length
      const isLink = entry.isSymbolicLink()
      const isWanted = isReadName(name)
      const stat = isWanted || !entry.isFile() ? this.#ask(path, isLink, problems, this.#disk.stat) : null
      if (stat?.isDirectory() && isConfig) {
        // `.env` is a usual name for a folder of Python packages.
        const text = 'cannot be read: it is a folder'
        if (name !== CONFIG_FILES.dotenv)
          problems.push(pathWarning('UNREADABLE_FILE', path, text, 'Replace the folder by a file.'))
      } else if (stat?.isDirectory()) {
        const target = this.#linkTarget(path, chain, problems)
        if (target !== null) dirs.push(yield* this.#kid(place, name, target, kidsBefore.get(name) ?? null))
      } else if (stat?.isFile() && isWanted) files.push(this.#toFile(ownPath, name, isLink, stat, before))
      else if (stat?.isFile() || (entry.isFile() && !isWanted)) otherFiles.push(name)
      else if (stat !== null && (isWanted || !stat.isSocket())) {
        const hint = 'Keep pipes, sockets and devices outside the functions root.'
        problems.push(pathWarning('SPECIAL_FILE', path, 'is neither a file nor a folder and is not read', hint))
      }
      if (isConfig && problems.length > known) unreadable.add(name)
    }
    const texts = this.#texts(ownPath, files, unreadable, before, problems)
    // Copies, because a list that grew by push keeps room for sixteen more.
    const lists = { files: files.slice(), otherFiles: otherFiles.slice(), dirs: dirs.slice() }
    return { name: ownName, path: ownPath, realPath, ...lists, texts, problems, skipped: null }
  }

  *#kid(parent: Place, name: string, realPath: string, before: DirNode | null): Generator<void, DirNode> {
    const path = toChild(parent.path, name)
    const place = { name, path, level: parent.level + 1, chain: [...parent.chain, realPath] }
    const same = before?.realPath === realPath ? before : null
    const tooDeep = place.level > MAX_TREE_DEPTH ? `below ${MAX_TREE_DEPTH} folder levels` : null
    const skipped = this.#excluded.has(path) ? 'the static assets folder' : (skippedReason(name) ?? tooDeep)
    return skipped === null ? yield* this.#folder(place, same) : keep(same, emptyNode(place, skipped, []))
  }

  #toFile(folder: string, name: string, isLink: boolean, stat: Stats, before: DirNode | null): FileEntry {
    const { size, mtimeMs } = stat
    const file: FileEntry = isLink ? { name, size, mtimeMs, isLink } : { name, size, mtimeMs }
    const role = usualRole(folder, name)
    const runtime = RUNTIME_OF_EXTENSION.get(extensionOf(name))
    if (role === null || runtime === undefined || size > MAX_CONFIG_FILE_BYTES) return file
    const known = before?.files.find(other => other.name === name)
    if (known !== undefined && isSameFile(known, file)) return known
    // Where it cannot be read its call says why.
    const bytes = orNull(() => this.#disk.readFile(this.#fullPath(toChild(folder, name))))
    const isHandler = bytes === null || mayBeHandler(runtime, Buffer.from(bytes).toString(), role === 'configuration')
    return isHandler ? file : { ...file, hasNoCallable: true }
  }

  /** A question to the disk about a file; null, and a warning, after an error. */
  #ask<T>(path: string, isLink: boolean, problems: Warning[], ask: (fullPath: string) => T): T | null {
    try {
      return ask(this.#fullPath(path))
    } catch (error) {
      const problem = fileWarning(path, isLink, error)
      if (problem !== null) problems.push(problem)
      return null
    }
  }

  /** Where a linked folder really is; null when following it would not end. */
  #linkTarget(path: string, chain: readonly string[], problems: Warning[]): string | null {
    const target = this.#ask(path, true, problems, this.#disk.realpath)
    if (target === null) return null
    // Descending would come back here for ever, or out of the root into the whole disk.
    if (!chain.some(folder => isWithin(folder, target))) return target
    problems.push(loopWarning(path))
    return null
  }

  #texts(
    folder: string,
    files: readonly FileEntry[],
    unreadable: ReadonlySet<string>,
    before: DirNode | null,
    problems: Warning[],
  ): ConfigTexts {
    const names = new Set(files.flatMap(({ name }) => (isConfigName(name) ? [name] : [])))
    if (names.size === 0 && unreadable.size === 0) return NO_TEXTS
    const texts: Record<ConfigKind, ConfigText | null> = { ...NO_TEXTS }
    for (const kind of KINDS) {
      const name = CONFIG_FILES[kind]
      if (unreadable.has(name)) texts[kind] = this.#toText(kind, null, before)
      else if (names.has(name)) texts[kind] = this.#configText(folder, kind, before, problems)
    }
    const old = before?.texts
    return old !== undefined && KINDS.every(kind => old[kind] === texts[kind]) ? old : texts
  }

  /** null when the file does not exist. */
  #configText(folder: string, kind: ConfigKind, before: DirNode | null, problems: Warning[]): ConfigText | null {
    const path = toChild(folder, CONFIG_FILES[kind])
    const stat = this.#ask(path, false, problems, this.#disk.stat)
    if (stat === null || !stat.isFile()) return null
    if (stat.size <= MAX_CONFIG_FILE_BYTES) return this.#toText(kind, this.#readText(path, problems), before)
    const text = `is not read: it has ${stat.size} bytes, at most ${MAX_CONFIG_FILE_BYTES} are allowed`
    problems.push(pathWarning('CONFIG_NOT_JSON', path, text, 'Make the file smaller.'))
    return this.#toText(kind, null, before)
  }

  /** @param text - null for a file that cannot be read */
  #toText(kind: ConfigKind, text: string | null, before: DirNode | null): ConfigText {
    const old = before?.texts[kind] ?? null
    if (old !== null && old.text === text) return old
    const isOldGood = old !== null && old.text !== null && isGood(kind, old.text)
    return { text, lastGood: isOldGood ? old.text : (old?.lastGood ?? null) }
  }

  #readText(path: string, problems: Warning[]): string | null {
    const bytes = this.#ask(path, false, problems, this.#disk.readFile)
    if (bytes === null) return null
    try {
      return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
    } catch {
      const text = 'is not JSON: the file is not UTF-8 text'
      problems.push(pathWarning('CONFIG_NOT_JSON', path, text, 'Save the file as UTF-8.'))
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
    isSameList(before.dirs, node.dirs) &&
    isSameList(before.otherFiles, node.otherFiles) &&
    sameItems(before.files, node.files, isSameFile) &&
    sameItems(before.problems, node.problems, (a, b) => a.message === b.message)
  return isSame ? before : node
}

function isSameFile(a: FileEntry, b: FileEntry): boolean {
  return a.name === b.name && a.size === b.size && a.mtimeMs === b.mtimeMs && a.isLink === b.isLink
}

function sameItems<T>(a: readonly T[], b: readonly T[], isSame: (a: T, b: T) => boolean): boolean {
  return a === b || (a.length === b.length && a.every((item, index) => isSame(item, b[index]!)))
}

function emptyNode({ name, path, chain }: Place, skipped: string, problems: readonly Warning[]): DirNode {
  const realPath = chain.at(-1)!
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

// What may have changed since a tree was read: a check of the times of a folder and its files takes a tenth of listing it.
//
//   listed ─► times of the folder, kept ─► reload of everything ─► same times, and its files of the same size and time ─► kept
//                                                               └► listed again, by the reader

/**
 * Milliseconds since its last change after which a folder's times show every later one: some file systems count in steps of two
 * seconds, and a change in the step of the listing would not be seen.
 */
const SETTLED_MS = 2000
/** Folders checked before other work of the process gets its turn: about a millisecond. */
const CHECKS_PER_TURN = 200

/** Of a folder, from before it was listed. */
interface Times {
  readonly dev: number
  readonly ino: number
  /** Unlike the other, it cannot be set back. */
  readonly ctimeMs: number
  readonly mtimeMs: number
}

/** Remembers when folders changed last, to find those that changed later. */
export class FolderTimes {
  readonly #now: () => number
  readonly #disk: Disk
  readonly #known = new WeakMap<DirNode, Times>()

  /** @param now - wall clock, ms */
  constructor(now: () => number, disk: Disk = NODE_DISK) {
    this.#now = now
    this.#disk = disk
  }

  /**
   * To be called before a folder is listed.
   * @param path - full path
   * @returns its times; null when they would not show a change right after the listing
   */
  look(path: string): Times | null {
    const now = this.#now()
    const stats = this.#stat(path)
    if (stats === null) return null
    const { dev, ino, mtimeMs, ctimeMs } = stats
    // A clock of another machine that is ahead of ours never settles, which costs time and no change.
    return now - Math.max(mtimeMs, ctimeMs) < SETTLED_MS ? null : { dev, ino, ctimeMs, mtimeMs }
  }

  /** A folder as it was listed after `look`; null when the times alone do not show whether it is still the same. */
  keep(node: DirNode, times: Times | null): void {
    if (times === null) this.#known.delete(node)
    else this.#known.set(node, times)
  }

  /** The same listing, another object. */
  carry(from: DirNode, to: DirNode): void {
    this.keep(to, this.#known.get(from) ?? null)
  }

  /**
   * Checks every folder of a tree and every file that matters.
   * @returns files that are different, and folders that have to be listed again, below the root; null when that is all of them
   */
  async findChanged({ root, rootPath, shortage }: Snapshot): Promise<string[] | null> {
    const isRoot = orNull(() => this.#disk.realpath(rootPath)) === root.realPath
    if (shortage !== null || root.skipped !== null || !isRoot) return null
    const changed: string[] = []
    const left = [root]
    let changedFolders = 0
    let count = 0
    for (let node = left.pop(); node !== undefined; node = left.pop()) {
      // A name that is never read, or a folder that could not be.
      if (node.skipped !== null && node.problems.length === 0) continue
      // Only a full scan knows which folders are beyond the limit.
      if (++count > MAX_TREE_FOLDERS) return null
      const changes = this.#changesIn(node)
      if (changes.length > 0) changedFolders++
      for (const path of changes) changed.push(path)
      for (const dir of node.dirs) left.push(dir)
      if (count % CHECKS_PER_TURN === 0) await setImmediate()
    }
    // Each of them is looked up in the tree: more than half is sooner read as a whole.
    return changedFolders * 2 > count ? null : changed
  }

  #changesIn(node: DirNode): readonly string[] {
    const times = this.#known.get(node)
    // A link on the way to it that leads elsewhere now is found in the folder that holds the link.
    const now = times === undefined || node.skipped !== null ? null : this.#stat(node.realPath)
    if (now === null || now.ctimeMs !== times!.ctimeMs || now.mtimeMs !== times!.mtimeMs) return [node.path]
    if (now.ino !== times!.ino || now.dev !== times!.dev) return [node.path]
    return node.files.filter(file => !this.#isSame(node, file)).map(({ name }) => toChild(node.path, name))
  }

  #isSame({ realPath, texts }: DirNode, { name, size, mtimeMs }: FileEntry): boolean {
    const path = `${realPath}/${name}`
    const now = this.#stat(path)
    if (now === null || now.size !== size || now.mtimeMs !== mtimeMs) return false
    const kind = texts === NO_TEXTS ? undefined : KINDS.find(one => CONFIG_FILES[one] === name)
    if (kind === undefined) return true
    // Configs are compared by what is in them, as they always are.
    const text = texts[kind]?.text ?? null
    const bytes = orNull(() => this.#disk.readFile(path))
    return text !== null && bytes !== null && Buffer.from(text).equals(bytes)
  }

  /** null for what is missing or cannot be inspected: the reader has the warning for it. */
  #stat(path: string): Stats | null {
    return orNull(() => this.#disk.stat(path))
  }
}
