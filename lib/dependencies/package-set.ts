/**
 * Installed packages on disk: sets that are kept once by what they were made from, and linked into the folders that use them, with
 * the record of each folder (`.svc-deps-state.json`, `metadata.dependency_resolution`). Owner: §2.16, §2.17, page dependencies/install.
 *
 *   <root>/.svc/deps/<runtime>-<key>/<target>/...      the set; <target> is `.deps`, `node_modules` or `vendor`
 *                                            /.fngw-set   its key and facts: written last
 *   <function>/<target>/...                            the same files by hard links, put in place by a rename
 *   <function>/.svc-deps/<target>/new-*, old                    only meanwhile
 */

import { randomBytes } from 'node:crypto'
import { chmodSync, lstatSync, type Stats } from 'node:fs'
import { copyFile, lchown, link, lstat, mkdir, readdir, readlink, symlink } from 'node:fs/promises'
import { basename, join } from 'node:path'
import type { Clock } from '../core/clock.ts'
import { GatewayError } from '../core/errors.ts'
import { isObject, parseObject } from '../core/json.ts'
import { mapSome } from '../core/semaphore.ts'
import { namesIn, OwnFolder } from '../files/own-folder.ts'
import type { ToolUser } from '../files/tool-user.ts'
import { BuildKey } from './build-cache.ts'
import { hasFile, tryRead } from './build.ts'
import { type Installed, listDistributions } from './pip.ts'
import { removeStale } from './run-tool.ts'
import { BUILD_RETRY_MS, isPassing, ToolFailure } from './tool-failure.ts'

/** Folder of installed packages by runtime. */
export const TARGETS: Readonly<Record<string, string>> = { python: '.deps', node: 'node_modules', php: 'vendor' }

const MARK = '.fngw-set'
const STATE_FILE = '.svc-deps-state.json'
/** Any entry but those that may be in the folder of packages when none are installed. */
const IS_FOREIGN = new RegExp(`^(?!\\.gitignore$|${STATE_FILE.replaceAll('.', '\\.')}$)`)
/** Folder of a function in which a set is made ready. */
const BESIDE = '.svc-deps'
const OLD = 'old'
const DRAFT_PREFIX = 'd-'
const DRAFT_NAME = /^d-[A-Za-z0-9]{6}$/
/** Sets whose failures are remembered; beyond them the oldest is forgotten, and tried again when it is asked for. */
const MAX_FAILURES = 1000

/** Facts of a set beside its files. JSON. */
export interface SetOutcome {
  /** Names that imports and manifests came to, such as `requests==2.32.3`. */
  resolvedPackages: readonly string[]
  unresolvedImports: readonly string[]
}

interface SetMark extends SetOutcome {
  key: string
  /** Packages in it, those that others need too. */
  packages: number
  bytes: number
}

export interface PackageSet extends SetMark {
  /** Holds the target and what else its step keeps, such as a lock file. */
  folder: OwnFolder
  /** True copies are used: other users get rights on a function's own files only. */
  isPrivate: boolean
  /** True when it was there already, or was filled for another function. */
  isShared: boolean
}

export interface Asker {
  /** Full path. */
  folder: string
  /** Of the files that decided, with their times: a save changes it, whatever it says. */
  signature: string
}

interface SetRequest {
  runtime: string
  key: string
  asker: Asker
  /** The user of the tools that fill it; null: that of the gateway. */
  user: ToolUser | null
  signal: AbortSignal
  /** Puts the target and what else is to be kept into an empty folder. */
  fill(draft: OwnFolder): Promise<SetOutcome>
}

/** The work for one set, which callers share. One that failed is kept. */
interface Attempt {
  done: Promise<PackageSet>
  /** Of the caller that began it. */
  signal: AbortSignal
  /** null while it goes on. */
  failure: { error: unknown; at: number } | null
  /** Signatures of the folders that get its outcome, by folder. */
  seen: Map<string, string>
}

/**
 * The sets of one functions root, `<root>/.svc/deps`.
 *
 *   fails ─► each folder that asks for the set gets the failure ─┬► one of them has changed            ─► tried once more
 *                                                                └► it may pass, and some time has gone ─► tried once more
 */
export class PackageSets {
  readonly #folder: OwnFolder
  readonly #clock: Clock
  readonly #isPrivate: boolean
  /** By id of the set, the oldest failure first. */
  readonly #attempts = new Map<string, Attempt>()

  constructor(functionsRoot: string, { clock, isPrivate }: { clock: Clock; isPrivate: boolean }) {
    this.#folder = new OwnFolder(functionsRoot, '.svc', 'deps')
    this.#clock = clock
    this.#isPrivate = isPrivate
  }

  /** The set of a key, filled when it is missing. @throws what `fill` throws, or threw before */
  async ensure(request: SetRequest): Promise<PackageSet> {
    const id = toId(request)
    const { asker, runtime, signal } = request
    for (;;) {
      const folder = this.#folder.below(id)
      const mark = readMark(folder.below(TARGETS[runtime]!))
      if (mark !== null) return { ...mark, folder, isPrivate: this.#isPrivate, isShared: true }
      const known = this.#attempts.get(id)
      const isShared = known !== undefined && !this.#mayRetry(known, asker)
      const attempt = isShared ? known : this.#begin(id, request)
      attempt.seen.set(asker.folder, asker.signature)
      try {
        return { ...(await attempt.done), isShared }
      } catch (error) {
        // Stopped because the function that asked first is deleted, which does not concern the others.
        if (!attempt.signal.aborted || signal.aborted) throw error
      }
    }
  }

  #mayRetry({ failure, seen }: Attempt, { folder, signature }: Asker): boolean {
    if (failure === null) return false
    if ((seen.get(folder) ?? signature) !== signature) return true
    const { error, at } = failure
    const isLasting =
      error instanceof ToolFailure ? error.kind === 'lasting' : error instanceof GatewayError && !isPassing(error)
    return !isLasting && this.#clock.monotonic() - at >= BUILD_RETRY_MS
  }

  #begin(id: string, request: SetRequest): Attempt {
    const { signal } = request
    const attempt: Attempt = { done: this.#fill(id, request), signal, failure: null, seen: new Map() }
    this.#attempts.set(id, attempt)
    const end = (error: unknown) => {
      this.#attempts.delete(id)
      if (error === null || signal.aborted) return
      attempt.failure = { error, at: this.#clock.monotonic() }
      this.#attempts.set(id, attempt)
      for (const [oldest, { failure }] of this.#attempts) {
        if (this.#attempts.size <= MAX_FAILURES) break
        if (failure !== null) this.#attempts.delete(oldest)
      }
    }
    attempt.done.then(() => end(null), end)
    return attempt
  }

  async #fill(id: string, { runtime, key, user, fill }: SetRequest): Promise<PackageSet> {
    removeStale(this.#folder, DRAFT_NAME, this.#clock)
    this.#folder.make()
    // Names of sets reveal what other functions use.
    if (this.#isPrivate) chmodSync(this.#folder.path, 0o700)
    const draft = this.#folder.makeTemporary(DRAFT_PREFIX)
    try {
      const outcome = user === null ? await fill(draft) : await fillAs(user, draft, fill)
      const packages = draft.below(TARGETS[runtime]!)
      const count = listInstalled(runtime, draft.path).length
      const mark: SetMark = { key, ...outcome, packages: count, bytes: await sizeOf(packages.path) }
      packages.write(MARK, `${JSON.stringify(mark)}\n`)
      // An entry that has the name already is not a whole set.
      this.#folder.remove(id)
      this.#folder.rename(basename(draft.path), id)
      return { ...mark, folder: this.#folder.below(id), isPrivate: this.#isPrivate, isShared: false }
    } finally {
      draft.removeAll()
    }
  }

  /** Deletes sets that are not used any more. @returns their ids */
  prune(used: ReadonlySet<string>): string[] {
    const unused = this.#folder.list(/^(?:python|node|php)-[0-9a-f]{32}$/).filter(({ name }) => !used.has(name))
    for (const { name } of unused) this.#folder.remove(name)
    removeStale(this.#folder, DRAFT_NAME, this.#clock)
    return unused.map(({ name }) => name)
  }
}

/** Fills a draft by way of a folder of the user, whose tools may write nowhere else. */
async function fillAs(user: ToolUser, draft: OwnFolder, fill: SetRequest['fill']): Promise<SetOutcome> {
  const bench = user.folder.makeTemporary(DRAFT_PREFIX)
  try {
    const outcome = await fill(bench)
    await user.take(bench, draft)
    return outcome
  } finally {
    await user.remove(bench)
  }
}

/** A set that tools of a function's user filled is for this function alone: they may have put anything into it. */
function toId({ runtime, key, user }: SetRequest): string {
  if (user === null) return `${runtime}-${key}`
  const own = new BuildKey().add('set', `${runtime}-${key}`).add('target', TARGETS[runtime]!)
  own.add('user', String(user.uid))
  return `${runtime}-${own}`
}

/** The packages of one folder: `.deps`, `node_modules` or `vendor` in it. */
export class PackageFolder {
  readonly target: string
  readonly #folder: OwnFolder
  readonly #packages: OwnFolder
  readonly #beside: OwnFolder

  constructor(folder: string, target: string) {
    this.target = target
    this.#folder = new OwnFolder(folder)
    this.#packages = this.#folder.below(target)
    // Languages that share a folder work there at the same time.
    this.#beside = new OwnFolder(folder, BESIDE, target)
  }

  /** The set that is in place; null when there is none, or when another tool installed the packages. */
  get set(): SetMark | null {
    return readMark(this.#packages)
  }

  /** True for packages, or a link to some, that the gateway did not put there: they stay as they are. */
  get isForeign(): boolean {
    if (!hasFile(this.#folder.path, this.target) || this.set !== null) return false
    return !this.#packages.isThere() || this.#packages.list(IS_FOREIGN).length > 0
  }

  /** A gateway that was killed between two renames left the set that it was about to replace beside its place, after them as waste. */
  recover(): void {
    if (!this.#beside.isThere()) return
    if (hasFile(this.#folder.path, this.target)) this.#beside.remove(OLD)
    else if (this.#beside.below(OLD).isThere()) this.#beside.moveTo(OLD, this.#folder, this.target)
    this.#leave()
  }

  /** Removes empty folders; another language's work keeps the outer one. */
  #leave(): void {
    for (const folder of [this.#beside, this.#folder.below(BESIDE)]) {
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
      await linkTree(set.folder.below(this.target).path, fresh.path, set.isPrivate, owner)
      fresh.write('.gitignore', '*\n')
      if (hasFile(this.#folder.path, this.target)) this.#folder.moveTo(this.target, this.#beside, OLD)
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
    if (!this.isForeign && this.#packages.isThere()) this.#folder.remove(this.target)
    return hadSet
  }
}

function readMark(packages: OwnFolder): SetMark | null {
  const mark = parseObject(packages.read(MARK)?.toString('utf8') ?? null)
  if (typeof mark?.key !== 'string') return null
  return { resolvedPackages: [], unresolvedImports: [], packages: 0, bytes: 0, ...mark } as unknown as SetMark
}

/**
 * Links stay links: those in a set are its own. Files are linked, or copied where that is not possible.
 * @param owner - of the folders, where this process may give them away
 */
async function linkTree(from: string, to: string, isCopied: boolean, owner: Stats | null): Promise<void> {
  await mapSome(await readdir(from, { withFileTypes: true }), async entry => {
    const source = join(from, entry.name)
    const place = join(to, entry.name)
    if (entry.isDirectory()) {
      await mkdir(place)
      if (owner !== null) await lchown(place, owner.uid, owner.gid)
      await linkTree(source, place, isCopied, owner)
    } else if (entry.isSymbolicLink()) await symlink(await readlink(source), place)
    else if (isCopied) await copyFile(source, place)
    else await link(source, place).catch(() => copyFile(source, place))
  })
}

/** Bytes of all files below a folder; links are not followed. */
export async function sizeOf(folder: string): Promise<number> {
  const entries = await readdir(folder, { withFileTypes: true, recursive: true })
  const files = entries.filter(entry => entry.isFile())
  const sizes = await mapSome(files, async ({ parentPath, name }) => (await lstat(join(parentPath, name))).size)
  return sizes.reduce((sum, size) => sum + size, 0)
}

/** The names are those of the JSON. */
export interface DependencyRecord {
  runtime: string
  /** `manifest` when the function or its comments name packages, `inferred` when only imports or a manifest generated from them do. */
  mode: 'manifest' | 'inferred'
  manifest_path: string | null
  manifest_generated: boolean
  infer_backend: string | null
  inference_duration_ms: number
  inferred_imports: readonly string[]
  resolved_packages: readonly string[]
  unresolved_imports: readonly string[]
  last_install_status: 'ok' | 'skipped' | 'error'
  last_error: string | null
  lockfile_path: string | null
  /** Of everything that decided, so that an equal one needs no second look. */
  install_signature: string | null
  /** Key of the set in place. */
  set: string | null
  updated_at: string
}

/** The record of a folder; null when there is none of the language that can be read. */
export function readState(folder: string, runtime: string): DependencyRecord | null {
  const packages = new OwnFolder(folder, TARGETS[runtime]!)
  const state = parseObject(packages.read(STATE_FILE)?.toString('utf8') ?? null)
  return state?.runtime === runtime ? (state as unknown as DependencyRecord) : null
}

/** The record of each folder: in memory, and written among its packages, unless another tool installed these. */
export class InstallRecords {
  readonly #runtime: string
  readonly #clock: Clock
  readonly #known = new Map<string, DependencyRecord>()

  constructor(runtime: string, clock: Clock) {
    this.#runtime = runtime
    this.#clock = clock
  }

  of(folder: string): DependencyRecord | null {
    return this.#known.get(folder) ?? readState(folder, this.#runtime)
  }

  note(folder: string, fields: Omit<DependencyRecord, 'runtime' | 'updated_at'>): void {
    const record = { runtime: this.#runtime, ...fields, updated_at: new Date(this.#clock.wall()).toISOString() }
    this.#known.set(folder, record)
    try {
      const target = TARGETS[this.#runtime]!
      if (new PackageFolder(folder, target).isForeign) return
      new OwnFolder(folder, target).write(STATE_FILE, `${JSON.stringify(record, null, 2)}\n`)
    } catch {
      // A folder that cannot be written keeps its packages in the shared store; the record is shown all the same.
    }
  }
}

/** The packages that are installed beside a function, by name. */
export function listInstalled(runtime: string, folder: string): Installed[] {
  return (READERS[runtime]?.(join(folder, TARGETS[runtime]!)) ?? []).sort((a, b) => (a.name < b.name ? -1 : 1))
}

const READERS: Readonly<Record<string, (target: string) => Installed[]>> = {
  python: listDistributions,
  node: listNodePackages,
  php: target => {
    const { packages } = parseObject(tryRead(join(target, 'composer', 'installed.json'))) ?? {}
    const list = Array.isArray(packages) ? packages.filter(isObject) : []
    return list.flatMap(one => toInstalled({ version: '', ...one }, 'require'))
  },
}

function listNodePackages(folder: string): Installed[] {
  return namesIn(folder).flatMap(name => {
    const path = join(folder, name)
    if (name.startsWith('@')) return listNodePackages(path)
    return toInstalled(parseObject(tryRead(join(path, 'package.json'))), 'dependencies')
  })
}

function toInstalled(json: Record<string, unknown> | null, field: string): Installed[] {
  if (typeof json?.name !== 'string' || typeof json.version !== 'string') return []
  const needs = json[field]
  return [{ name: json.name, version: json.version, needs: isObject(needs) ? Object.keys(needs) : [] }]
}
