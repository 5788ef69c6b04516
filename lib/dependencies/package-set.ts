/**
 * Sets of installed packages: kept once by what they were made from, and linked into the folders that use them.
 * Owner: §2.16, page dependencies/install.
 *
 *   <root>/.svc/deps/<runtime>-<key>/<target>/...      the set; <target> is `.deps`, `node_modules` or `vendor`
 *                                            /.fngw-set   its key and what is known of it: written last
 *   <function>/<target>/...                            the same files by hard links, put in place by a rename
 *   <function>/.svc-deps/<target>/new-*, old                    only while that goes on
 */

import { randomBytes } from 'node:crypto'
import { chmodSync, lstatSync } from 'node:fs'
import { copyFile, lchown, link, lstat, mkdir, readdir, readlink, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import type { Clock } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import { isObject, parseObject } from '../core/json.ts'
import { namesIn, OwnFolder } from '../files/own-folder.ts'
import type { ToolUser } from '../files/tool-user.ts'
import { BuildKey } from './build-cache.ts'
import { BUILD_RETRY_MS, isPassing, mapSome, tryRead } from './build.ts'
import { listDistributions } from './pip.ts'
import { removeStale } from './run-tool.ts'

/** Folder of installed packages by runtime. */
export const TARGETS: Readonly<Record<string, string>> = { python: '.deps', node: 'node_modules', php: 'vendor' }

/** File in the folder of packages that says what is known of them: dependency-state.ts. */
export const STATE_FILE = '.svc-deps-state.json'
/** Any entry but those that may be in the folder of packages when none are installed. */
const IS_FOREIGN = new RegExp(`^(?!\\.gitignore$|${STATE_FILE.replaceAll('.', '\\.')}$)`)

/** File of a set that identifies it. */
const MARK = '.fngw-set'
/** Folder of a function in which a set is made ready. */
const BESIDE = '.svc-deps'
const OLD = 'old'
const DRAFT_PREFIX = 'd-'
const DRAFT_NAME = /^d-[A-Za-z0-9]{6}$/

/** Facts of a set beside its files. JSON. */
export interface SetOutcome {
  /** Names that imports and manifests came to, such as `requests==2.32.3`. */
  resolvedPackages: readonly string[]
  /** Imports that no package of the set has. */
  unresolvedImports: readonly string[]
}

interface SetMark extends SetOutcome {
  key: string
  /** Packages in it, those that others need too. */
  packages: number
  bytes: number
}

interface SetRequest {
  /** `python-<key>`. */
  id: string
  key: string
  target: string
  /** The user of the tools that fill it; absent: that of the gateway. */
  user?: ToolUser | null
  /** Aborted when the caller has no use for it any more. */
  signal: AbortSignal
  asker: Asker
  /** Packages that are in a folder's `<target>`. @param folder - full path */
  count: (folder: string) => number
  /** Puts `<target>` and what else it wants to keep into an empty folder. */
  fill: (draft: OwnFolder) => Promise<SetOutcome>
}

/** The sets of one functions root, `<root>/.svc/deps`. */
export class PackageSets {
  readonly #folder: OwnFolder
  readonly #clock: Clock
  /** True copies instead: other users get rights on a function's own files only. */
  readonly #isPrivate: boolean
  readonly #filling = new Map<string, { signal: AbortSignal; done: Promise<PackageSet> }>()
  readonly #failed: FailedSets

  constructor(folder: OwnFolder, { clock, isPrivate }: { clock: Clock; isPrivate: boolean }) {
    this.#folder = folder
    this.#clock = clock
    this.#isPrivate = isPrivate
    this.#failed = new FailedSets(clock)
  }

  /**
   * The set of an id, filled when it is not there; callers that ask meanwhile wait for the same.
   * @throws what `fill` throws, or threw before: it is not run again until the asker's signature is another
   */
  async ensure(wanted: SetRequest): Promise<PackageSet> {
    const request = { ...wanted, id: toId(wanted) }
    const { id, signal, asker } = request
    for (;;) {
      const filling = this.#filling.get(id)
      if (filling === undefined) break
      try {
        return { ...(await filling.done), isShared: true }
      } catch (error) {
        if (!filling.signal.aborted) this.#failed.note(id, asker, error)
        // Stopped because the function that asked first is gone, which does not concern the others.
        if (!filling.signal.aborted || signal.aborted) throw error
      }
    }
    const done = this.#ensure(request).finally(() => this.#filling.delete(id))
    this.#filling.set(id, { signal, done })
    return done
  }

  async #ensure(request: SetRequest): Promise<PackageSet> {
    const { id, target, signal, asker } = request
    const folder = this.#folder.below(id)
    const known = readMark(folder.below(target))
    if (known !== null) return { ...known, folder, isPrivate: this.#isPrivate, isShared: true }
    this.#failed.check(id, asker)
    try {
      const mark = await this.#fill(request)
      this.#failed.forget(id)
      return { ...mark, folder, isPrivate: this.#isPrivate, isShared: false }
    } catch (error) {
      if (!signal.aborted) this.#failed.note(id, asker, error)
      throw error
    }
  }

  async #fill(request: SetRequest): Promise<SetMark> {
    removeStale(this.#folder, DRAFT_NAME, this.#clock)
    this.#folder.make()
    // Names of sets reveal what other functions use.
    if (this.#isPrivate) chmodSync(this.#folder.path, 0o700)
    const { user, fill } = request
    const draft = this.#folder.makeTemporary(DRAFT_PREFIX)
    if (user == null) return this.#finish(request, draft, () => fill(draft))
    const bench = user.folder.makeTemporary(DRAFT_PREFIX)
    return this.#finish(request, draft, async () => {
      try {
        const outcome = await fill(bench)
        await user.take(bench, draft)
        return outcome
      } finally {
        await user.remove(bench)
      }
    })
  }

  async #finish(
    { id, key, target, count }: SetRequest,
    draft: OwnFolder,
    fill: () => Promise<SetOutcome>,
  ): Promise<SetMark> {
    try {
      const outcome = await fill()
      const bytes = await sizeOf(draft.below(target).path)
      const mark: SetMark = { key, ...outcome, packages: count(draft.path), bytes }
      draft.below(target).write(MARK, `${JSON.stringify(mark)}\n`)
      // An entry that has the name already is not a whole set.
      this.#folder.remove(id)
      this.#folder.rename(draft.path.slice(this.#folder.path.length + 1), id)
      return mark
    } finally {
      draft.removeAll()
    }
  }

  /** Deletes sets that are not wanted any more. @returns their ids */
  prune(wanted: ReadonlySet<string>): string[] {
    const gone = this.#folder.list(/^(?:python|node|php)-[0-9a-f]{32}$/).filter(({ name }) => !wanted.has(name))
    for (const { name } of gone) this.#folder.remove(name)
    removeStale(this.#folder, DRAFT_NAME, this.#clock)
    return gone.map(({ name }) => name)
  }
}

/** A set that tools of a function's user filled is for this function alone: they may have put anything into it. */
function toId({ id, target, user }: SetRequest): string {
  if (user == null) return id
  const [runtime] = id.split('-')
  return `${runtime}-${new BuildKey().add('set', id).add('target', target).add('user', String(user.uid))}`
}

/** A whole set. */
export interface PackageSet extends SetMark {
  /** Holds the target and what else its step keeps, such as a lock file. */
  folder: OwnFolder
  /** As of `PackageSets`. */
  isPrivate: boolean
  /** True when it was there already, or was filled for another function. */
  isShared: boolean
}

/** The packages of one folder: `.deps`, `node_modules` or `vendor` in it. */
export class PackageFolder {
  readonly target: string
  readonly #folder: OwnFolder
  readonly #beside: OwnFolder

  /** @param folder - full path of the function's or pack's folder */
  constructor(folder: string, target: string) {
    this.#folder = new OwnFolder(folder)
    // Languages that share a folder work there at the same time.
    this.#beside = new OwnFolder(folder, BESIDE, target)
    this.target = target
  }

  /** The set that is in place; null when there is none, or when another tool installed the packages. */
  get set(): SetMark | null {
    return readMark(this.#folder.below(this.target))
  }

  /** True for packages, or a link to some, that the gateway did not put there: they stay as they are. */
  get isForeign(): boolean {
    const stats = lstatSync(this.#folder.pathOf(this.target), { throwIfNoEntry: false })
    if (stats === undefined || this.set !== null) return false
    return !stats.isDirectory() || this.#folder.below(this.target).list(IS_FOREIGN).length > 0
  }

  /** A gateway that was killed between two renames left the set that it was about to replace beside its place, after them as waste. */
  recover(): void {
    if (!this.#beside.isThere()) return
    const isThere = lstatSync(this.#folder.pathOf(this.target), { throwIfNoEntry: false }) !== undefined
    if (isThere) this.#beside.remove(OLD)
    else if (this.#beside.below(OLD).isThere()) this.#beside.moveTo(OLD, this.#folder, this.target)
    this.#leave()
  }

  /** Folders that nothing is left in go; another language's work keeps the outer one. */
  #leave(): void {
    for (const folder of [this.#beside, new OwnFolder(this.#folder.path, BESIDE)]) {
      if (folder.isThere() && folder.isEmpty()) folder.removeAll()
    }
  }

  /** Puts a set in the place of what is there. */
  async put(set: PackageSet): Promise<void> {
    const name = `new-${randomBytes(6).toString('hex')}`
    this.#beside.make()
    for (const left of this.#beside.list(/^(?:new-[0-9a-f]{12}|old)$/)) this.#beside.remove(left.name)
    const fresh = this.#beside.below(name)
    fresh.make()
    try {
      const owner = process.geteuid?.() === 0 ? lstatSync(fresh.path) : null
      await linkTree(set.folder.below(this.target).path, fresh.path, { isCopied: set.isPrivate, owner })
      fresh.write('.gitignore', '*\n')
      if (lstatSync(this.#folder.pathOf(this.target), { throwIfNoEntry: false }) !== undefined)
        this.#folder.moveTo(this.target, this.#beside, OLD)
      this.#beside.moveTo(name, this.#folder, this.target)
    } finally {
      this.recover()
      this.#beside.removeAll()
      this.#leave()
    }
  }

  /** Deletes what the gateway put there. @returns true when packages were there */
  remove(): boolean {
    const hadSet = this.set !== null
    if (!this.isForeign && this.#folder.below(this.target).isThere()) this.#folder.remove(this.target)
    return hadSet
  }
}

function readMark(folder: OwnFolder): SetMark | null {
  const value = parseObject(folder.read(MARK)?.toString('utf8') ?? null)
  if (typeof value?.key !== 'string') return null
  return {
    key: value.key,
    resolvedPackages: toTexts(value.resolvedPackages),
    unresolvedImports: toTexts(value.unresolvedImports),
    packages: toCount(value.packages),
    bytes: toCount(value.bytes),
  }
}

function toTexts(value: unknown): string[] {
  return Array.isArray(value) ? value.filter(item => typeof item === 'string') : []
}

function toCount(value: unknown): number {
  return typeof value === 'number' ? value : 0
}

interface Placing {
  isCopied: boolean
  /** The owner of the folders, where this process may give them away. */
  owner: { uid: number; gid: number } | null
}

/** Links stay links: those in a set are its own. Files are linked, or copied where that is not possible. */
async function linkTree(from: string, to: string, how: Placing): Promise<void> {
  await mapSome(await readdir(from, { withFileTypes: true }), async entry => {
    const source = join(from, entry.name)
    const place = join(to, entry.name)
    if (entry.isDirectory()) {
      await mkdir(place)
      if (how.owner !== null) await lchown(place, how.owner.uid, how.owner.gid)
      await linkTree(source, place, how)
    } else if (entry.isSymbolicLink()) await symlink(await readlink(source), place)
    else if (how.isCopied) await copyFile(source, place)
    else await link(source, place).catch(() => copyFile(source, place))
  })
}

/** Sets whose failures are remembered; beyond them the oldest is forgotten, and tried again when it is wanted. */
const MAX_FAILURES = 1000

/** The folder that wants a set. */
export interface Asker {
  /** Full path. */
  folder: string
  /** Of the files that decided, with their times: a save changes it, whatever it says. */
  signature: string
}

interface Failure {
  error: unknown
  failedAt: number
  /** Signatures of the folders that got it, by folder. */
  seen: Map<string, string>
}

/**
 * Failures of sets, so that a set which many folders want and which cannot be installed is tried once.
 *
 *   fails ─► each folder that wants the set gets the failure ─┬► one of them has changed            ─► tried once more
 *                                                             └► it may pass, and some time has gone ─► tried once more
 */
export class FailedSets {
  readonly #clock: Clock
  readonly #byId = new Map<string, Failure>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** @throws what the set failed with, unless it is to be tried */
  check(id: string, { folder, signature }: Asker): void {
    const failure = this.#byId.get(id)
    if (failure === undefined) return
    const seen = failure.seen.get(folder) ?? signature
    if (seen !== signature || this.#mayPass(failure)) {
      this.#byId.delete(id)
      return
    }
    failure.seen.set(folder, signature)
    throw failure.error
  }

  /** It failed, and the asker gets the failure. */
  note(id: string, { folder, signature }: Asker, error: unknown): void {
    const known = this.#byId.get(id)
    if (known !== undefined && known.error === error) {
      known.seen.set(folder, signature)
      return
    }
    this.#byId.delete(id)
    this.#byId.set(id, { error, failedAt: this.#clock.monotonic(), seen: new Map([[folder, signature]]) })
    for (const oldest of this.#byId.keys()) {
      if (this.#byId.size <= MAX_FAILURES) break
      this.#byId.delete(oldest)
    }
  }

  forget(id: string): void {
    this.#byId.delete(id)
  }

  #mayPass({ error, failedAt }: Failure): boolean {
    const isLasting = error instanceof GatewayError && !isPassing(error)
    return !isLasting && this.#clock.monotonic() - failedAt >= BUILD_RETRY_MS
  }
}

/** Bytes of all files below a folder; links are not followed. */
export async function sizeOf(folder: string): Promise<number> {
  const entries = await readdir(folder, { withFileTypes: true, recursive: true })
  const files = entries.filter(entry => entry.isFile())
  const sizes = await mapSome(files, async ({ parentPath, name }) => (await lstat(join(parentPath, name))).size)
  return sizes.reduce((sum, size) => sum + size, 0)
}

/** A package in a folder of installed ones. */
export interface Installed {
  name: string
  version: string
  /** Names of the packages that it needs. */
  needs: readonly string[]
}

/** The packages that are installed beside a function, by name. */
export function listInstalled(runtime: string, folder: string): Installed[] {
  return (READERS[runtime]?.(folder) ?? []).sort((a, b) => (a.name < b.name ? -1 : 1))
}

const READERS: Readonly<Record<string, (folder: string) => Installed[]>> = {
  python: folder => listDistributions(join(folder, TARGETS.python!)),
  node: folder => listNodePackages(join(folder, TARGETS.node!)),
  php: folder => {
    const { packages } = parseObject(tryRead(join(folder, TARGETS.php!, 'composer', 'installed.json'))) ?? {}
    return Array.isArray(packages)
      ? packages.flatMap(one => toInstalled(isObject(one) ? { version: '', ...one } : one, 'require'))
      : []
  },
}

function listNodePackages(folder: string): Installed[] {
  return namesIn(folder).flatMap(name => {
    const path = join(folder, name)
    return name.startsWith('@')
      ? listNodePackages(path)
      : toInstalled(parseObject(tryRead(join(path, 'package.json'))), 'dependencies')
  })
}

/** @param field - names the packages that it needs */
function toInstalled(json: unknown, field: string): Installed[] {
  if (!isObject(json) || typeof json.name !== 'string' || typeof json.version !== 'string') return []
  const needs = json[field]
  return [{ name: json.name, version: json.version, needs: isObject(needs) ? Object.keys(needs) : [] }]
}
