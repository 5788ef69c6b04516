/** Handler files to frozen function versions and claims. Owner: §2.1 and §2.2, page discovery/layouts. */

import { hash } from 'node:crypto'
import { normalize } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import {
  type FunctionConfig,
  mergePolicies,
  type PolicyDefaults,
  type PolicyTarget,
} from '../config/function-config.ts'
import { type DeclaredEnv, type OuterEnv, toFunctionEnv } from '../config/function-env.ts'
import type {
  Claim,
  EnvValue,
  FunctionVersion,
  HomeAction,
  IgnoredPath,
  PackageManifest,
  Policy,
  SchemaFileRef,
} from '../core/catalog.ts'
import { compareLists, countUpTo, isSameList, mergeSorted, getOrMake } from '../core/collections.ts'
import type { Warning } from '../core/errors.ts'
import {
  type AdapterName,
  hasAdapter,
  METHODS,
  RESERVED_PREFIXES,
  RUNTIME_OF_EXTENSION,
  type RuntimeName,
  toFunctionKey,
} from '../core/identity.ts'
import { isReservedPattern, parsePattern } from '../core/pattern.ts'
import { compareText } from '../core/text.ts'
import { callableOf } from './callable.ts'
import { below, pathWarning, toChild } from './disk.ts'
import { extensionOf, isSourceName, manifestRuntime } from './layouts.ts'
import type { DirNode, FileEntry } from './snapshot.ts'

/** A handler file and what surrounds it. */
export interface Handler {
  runtime: RuntimeName
  /** Folder of the file, below the root. */
  folder: string
  file: FileEntry
  /** Folder of the function, below the root; another one only for an `entrypoint` further down. */
  fnFolder: string
  /** Configs from the root down, the function's own last. */
  layers: readonly (FunctionConfig | null)[]
  /** Declared by the folder's files. */
  env: DeclaredEnv
  /** Why `fn.env.json` cannot be used; null when it can. */
  envProblem: string | null
  helpers: Helpers
  /** Stamps of the manifests of a compiled function. */
  manifests: string
  schema: SchemaFileRef | null
}

export type Identity = Pick<FunctionVersion, 'name' | 'version' | 'kind'>

export class FunctionMaker {
  readonly #rootPath: string
  readonly #defaults: PolicyDefaults
  /** The function versions of the discovery before, by key. */
  readonly #known: ReadonlyMap<string, FunctionVersion>
  readonly #outerEnv: OuterEnv
  /** The last merge. */
  #last: (Pick<Handler, 'layers'> & Required<Pick<PolicyTarget, 'kind' | 'methods'>> & { policy: Policy }) | null = null
  readonly #envs = new WeakMap<DeclaredEnv, FunctionVersion['env']>()

  constructor(
    rootPath: string,
    defaults: PolicyDefaults,
    known: ReadonlyMap<string, FunctionVersion>,
    outerEnv: OuterEnv,
  ) {
    this.#rootPath = normalize(rootPath)
    this.#defaults = defaults
    this.#known = known
    this.#outerEnv = outerEnv
  }

  /**
   * @param target - which layers are the function's own, and fixed methods
   * @param isScheduled - false leaves out schedule and keep_warm, which one function of a folder carries
   */
  make(handler: Handler, identity: Identity, target: PolicyTarget, isScheduled: boolean): FunctionVersion {
    const { runtime, helpers, manifests, layers } = handler
    const env = this.#envOf(handler.env)
    const entryFile = toChild(handler.folder, handler.file.name)
    const merged = this.#mergePolicies(layers, target)
    if (merged.adapter !== null && !hasAdapter(runtime, merged.adapter)) {
      target.warnings?.push(toAdapterWarning(entryFile, runtime, merged.adapter, target.label ?? entryFile))
    }
    const open = isScheduled ? merged : toUnscheduled(merged)
    const { envProblem } = handler
    const policy = envProblem === null || open.configProblem !== null ? open : { ...open, configProblem: envProblem }
    const fnDir = handler.fnFolder === '' ? this.#rootPath : below(this.#rootPath, handler.fnFolder)
    return this.reuse({
      key: toFunctionKey(runtime, identity.name, identity.version),
      runtime,
      name: identity.name,
      version: identity.version,
      kind: identity.kind,
      fnDir,
      entryPath: below(this.#rootPath, entryFile),
      entryFile,
      policy,
      callable: callableOf(runtime, policy),
      env,
      signature: toSignature(entryFile, handler.file, helpers[runtime], manifests, policy, env),
      schema: handler.schema,
    })
  }

  /** Functions that come one after the other mostly have the same configs above them: their policy is then one object. */
  #mergePolicies(layers: Handler['layers'], target: PolicyTarget): Policy {
    const { kind, methods = [] } = target
    const last = this.#last
    if (last?.kind === kind && isSameList(last.layers, layers) && isSameList(last.methods, methods)) return last.policy
    const warned = target.warnings?.length
    const policy = mergePolicies(layers, this.#defaults, target)
    // Each function has its own warnings.
    this.#last = warned === target.warnings?.length ? { kind, layers, methods, policy } : null
    return policy
  }

  /** Functions of one folder share their environment. */
  #envOf(declared: DeclaredEnv): FunctionVersion['env'] {
    return getOrMake(this.#envs, declared, () => toFunctionEnv(declared, this.#outerEnv))
  }

  /** The object of the discovery before when nothing about the function changed. */
  reuse(fn: FunctionVersion): FunctionVersion {
    const known = this.#known.get(fn.key)
    if (known !== undefined && isDeepStrictEqual(known, fn)) return known
    Object.freeze(fn.policy)
    return Object.freeze(fn)
  }
}

function toUnscheduled(policy: Policy): Policy {
  const { schedule, scheduleProblem, keepWarm } = policy
  if (schedule === null && scheduleProblem === null && keepWarm === null) return policy
  return { ...policy, schedule: null, scheduleProblem: null, keepWarm: null }
}

/** Its calls answer 500 (§2.12); the routes stay, so that nothing else takes them silently. */
function toAdapterWarning(entryFile: string, runtime: RuntimeName, adapter: AdapterName, path: string): Warning {
  return {
    code: 'ADAPTER_UNAVAILABLE',
    path,
    message: `${path}: invoke.adapter is "${adapter}", which ${runtime} does not have: calls of ${entryFile} fail with 500`,
    hint: 'Remove invoke.adapter, or write the handler for node or python.',
  }
}

/** Per runtime a text that changes when a helper file in reach changes; empty without helpers. */
export type Helpers = Readonly<Record<RuntimeName, string>>

export const NO_HELPERS: Helpers = Object.freeze({ python: '', node: '', php: '', lua: '', go: '', rust: '' })

/** Lists a helper file as text that differs when the file does. */
export function stampOf(folder: string, file: FileEntry): string {
  return `${toChild(folder, file.name)}|${file.size}|${file.mtimeMs}`
}

/** Source files of a folder and all below it, such as `_lib` or `src`. */
export function sourcesBelow(node: DirNode): { folder: string; file: FileEntry }[] {
  const own = node.files.filter(file => isSourceName(file.name)).map(file => ({ folder: node.path, file }))
  return [...own, ...node.dirs.flatMap(sourcesBelow)]
}

/** A text that changes when a manifest of a folder's functions does; empty without one. */
export function manifestsOf(node: DirNode, runtime: RuntimeName): string {
  const found = node.files.filter(file => manifestRuntime(file.name) === runtime)
  return found.map(file => stampOf(node.path, file)).join('\n')
}

/** Per runtime the list of packages beside a function, and the folder they are installed into. */
const PACKAGES: Partial<Record<RuntimeName, readonly [manifest: string, installed: string]>> = {
  python: ['requirements.txt', '.deps'],
  node: ['package.json', 'node_modules'],
  php: ['composer.json', 'vendor'],
}

/** True for a folder with a list of packages and no folder of installed ones. */
export function lacksPackages(node: DirNode, runtime: RuntimeName): boolean {
  const names = PACKAGES[runtime]
  if (names === undefined || !node.files.some(file => file.name === names[0])) return false
  return !node.dirs.some(dir => dir.name === names[1])
}

/** Adds the helpers of one folder to those in reach from above. */
export function addHelpers(above: Helpers, found: readonly { folder: string; file: FileEntry }[]): Helpers {
  if (found.length === 0) return above
  const texts = new Map<RuntimeName, string>()
  for (const { folder, file } of found) {
    const runtime = RUNTIME_OF_EXTENSION.get(extensionOf(file.name))
    if (runtime !== undefined) texts.set(runtime, `${texts.get(runtime) ?? above[runtime]}\n${stampOf(folder, file)}`)
  }
  const helpers: Record<RuntimeName, string> = { ...above }
  for (const [runtime, text] of texts) helpers[runtime] = digest(text)
  return helpers
}

/**
 * The signature of a function version: the handler, its helpers and what its workers are started with. Limits are not
 * part of it, they hold from the next call on; data files are not, since a handler may write them at every call.
 */
export function toSignature(
  entryFile: string,
  entry: FileEntry,
  helpers: string,
  manifests: string,
  policy: Policy,
  env: Readonly<Record<string, EnvValue>>,
): string {
  const { handler, adapterName, sharedDeps, allowScripts } = policy
  const started = JSON.stringify([handler, adapterName, sharedDeps, allowScripts, Object.entries(env)])
  return digest(`${entryFile}|${entry.size}|${entry.mtimeMs}|${helpers}|${manifests}|${started}`)
}

/** Short, and no way back to the env values in it. */
function digest(text: string): string {
  return hash('sha256', text, 'buffer').toString('base64url', 0, 18)
}

/** @property route - in any accepted spelling */
type ClaimRequest = Omit<Claim, 'pattern' | 'hosts'> & { route: string }

/**
 * The outcome of a folder and all below it. Claims come from three sources; the router decides which one wins.
 *
 *   file      a file's or folder's own path      users/[id].js         GET /users/:id
 *   manifest  fn.routes.json                     "GET /items": "x.py"  GET /items
 *   config    invoke.routes, or /<name> and /<name>/* of a named function
 */
export class Contribution {
  /** From folders and file names. */
  functions: FunctionVersion[] = []
  /** From `fn.routes.json`; they may be functions already. */
  readonly targets: FunctionVersion[] = []
  claims: Claim[] = []
  readonly homes: HomeAction[] = []
  readonly warnings: Warning[] = []
  readonly ignored: IgnoredPath[] = []
  readonly manifests: PackageManifest[] = []

  /** Adds the outcome of a folder below. */
  add(below: Contribution): void {
    append(this.functions, below.functions)
    append(this.targets, below.targets)
    append(this.claims, below.claims)
    append(this.homes, below.homes)
    append(this.warnings, below.warnings)
    append(this.ignored, below.ignored)
    append(this.manifests, below.manifests)
  }

  /** Adds a claim, or the warning why it cannot be one; true for a claim, and for a private function, which needs none. */
  claim(request: ClaimRequest): boolean {
    if (request.fn.policy.isPrivate) return true
    const outcome = toClaim(request)
    if ('code' in outcome) {
      this.warnings.push(outcome)
      return false
    }
    this.claims.push(outcome)
    return true
  }

  /** Nothing is added from now on: gives back the room for sixteen more that a list keeps after its first push. */
  close(): void {
    this.functions = this.functions.slice()
    this.claims = this.claims.slice()
  }

  ignore(path: string, reason: string): void {
    this.ignored.push({ path, reason })
  }

  warn(warnings: readonly Warning[]): void {
    append(this.warnings, warnings)
  }
}

/** Not `push(...items)`: a folder may have more functions than a call takes arguments. */
function append<T>(list: T[], items: readonly T[]): void {
  for (let i = 0; i < items.length; i++) list.push(items[i]!)
}

/** Makes a claim, or the warning why it cannot be one. */
function toClaim(request: ClaimRequest): Claim | Warning {
  const { fn, route, methods, source, forced, origin, implied } = request
  const pattern = parsePattern(route)
  if ('problem' in pattern) {
    const text = `cannot have the route ${JSON.stringify(route)}: it ${pattern.problem}`
    const hint = 'Routes look like /users/:id, /docs/:slug*, /docs/:slug*? or /files/*.'
    return pathWarning('INVALID_ROUTE', origin, text, hint)
  }
  if (isReservedPattern(pattern)) {
    const text = `cannot have the route ${pattern.text}: ${RESERVED_PREFIXES.join(' and ')} are reserved`
    const hint = 'Rename the file or folder, or list another route in invoke.routes of fn.config.json.'
    return pathWarning('RESERVED_PREFIX', origin, text, hint)
  }
  return { pattern, methods, hosts: fn.policy.allowHosts, fn, source, forced, origin, implied }
}

export interface Settled {
  /** By key, unique. */
  functions: readonly FunctionVersion[]
  claims: readonly Claim[]
  warnings: Warning[]
  /** The functions as the walk made them, and in the order of their keys; null where a manifest names handlers. */
  sorted: (Pick<Made, 'functions'> & { inOrder: readonly FunctionVersion[] }) | null
}

type Replacements = Map<FunctionVersion, FunctionVersion>

/** By key of a function. */
export type Revisions = ReadonlyMap<string, number>

/** The functions of a walk over the folders, before keys are settled. */
export interface Made extends Pick<Settled, 'functions' | 'claims'> {
  targets: readonly FunctionVersion[]
}

/**
 * Gives each function a unique key, and a new signature to those whose loaded files changed.
 * @param before - the outcome before this one, which is mostly the same
 */
export function settleKeys(
  { functions, targets, claims }: Made,
  revisions: Revisions,
  maker: FunctionMaker,
  before: Settled | null = null,
): Settled {
  const replaced: Replacements = new Map()
  const inOrder =
    targets.length === 0
      ? sortFunctions(functions, before)
      : joinTargets(functions, targets, replaced, maker).sort(compareFunctions)
  const sorted = targets.length === 0 ? { functions, inOrder } : null
  const warnings: Warning[] = []
  let unique = hasTwins(inOrder) ? renameTwins(inOrder, replaced, maker, warnings) : inOrder
  if (revisions.size > 0) unique = revise(unique, revisions, replaced, maker)
  if (replaced.size === 0) return { functions: unique, claims, warnings, sorted }
  return { functions: unique, claims: claims.map(claim => withLatest(claim, replaced)), warnings, sorted }
}

/** @param functions - by key */
function hasTwins(functions: readonly FunctionVersion[]): boolean {
  for (let i = 1; i < functions.length; i++) if (functions[i]!.key === functions[i - 1]!.key) return true
  return false
}

function sortFunctions(functions: readonly FunctionVersion[], before: Settled | null): FunctionVersion[] {
  const last = before?.sorted ?? null
  if (last === null) return [...functions].sort(compareFunctions)
  const { gone, fresh } = compareLists(last.functions, functions)
  const lost = new Set(gone)
  const kept = lost.size === 0 ? last.inOrder : last.inOrder.filter(fn => !lost.has(fn))
  return mergeSorted(kept, [...fresh].sort(compareFunctions), compareFunctions)
}

/** @param functions - by key; the first of several with one key keeps it */
function renameTwins(
  functions: readonly FunctionVersion[],
  replaced: Replacements,
  maker: FunctionMaker,
  warnings: Warning[],
): FunctionVersion[] {
  const unique: FunctionVersion[] = []
  let holder: FunctionVersion | null = null
  for (const fn of functions) {
    if (holder === null || fn.key !== holder.key) {
      holder = fn
      unique.push(fn)
      continue
    }
    const renamed = maker.reuse({ ...fn, key: `${fn.key}#${fn.entryFile}` })
    unique.push(renamed)
    replaced.set(fn, renamed)
    warnings.push(duplicateWarning(holder, fn))
  }
  return unique.sort(compareKeys)
}

/** Looks up each revised function: there are few of them among thousands. */
function revise(
  functions: readonly FunctionVersion[],
  revisions: Revisions,
  replaced: Replacements,
  maker: FunctionMaker,
): FunctionVersion[] {
  const revised = functions.slice()
  for (const [key, revision] of revisions) {
    const index = countUpTo(revised, { key }, compareKeys) - 1
    const fn = revised[index]
    if (fn?.key !== key) continue
    revised[index] = maker.reuse({ ...fn, signature: `${fn.signature}.${revision}` })
    replaced.set(fn, revised[index])
  }
  return revised
}

function compareKeys(a: Pick<FunctionVersion, 'key'>, b: Pick<FunctionVersion, 'key'>): number {
  return compareText(a.key, b.key)
}

function joinTargets(
  functions: readonly FunctionVersion[],
  targets: readonly FunctionVersion[],
  replaced: Replacements,
  maker: FunctionMaker,
): FunctionVersion[] {
  const byFile = new Map<string, FunctionVersion>()
  const all = new Set(functions)
  for (const fn of functions) if (fn.version === null) byFile.set(fn.entryFile, fn)
  for (const target of targets) {
    const same = byFile.get(target.entryFile)
    const fn = same === undefined ? target : withMethodsOf(same, target, maker)
    if (same !== undefined) all.delete(same)
    all.add(fn)
    if (same !== undefined && same !== fn) replaced.set(same, fn)
    if (target !== fn) replaced.set(target, fn)
    byFile.set(fn.entryFile, fn)
  }
  return [...all]
}

/** The function's own methods limit every call, so they must hold those of all its routes. */
function withMethodsOf(fn: FunctionVersion, target: FunctionVersion, maker: FunctionMaker): FunctionVersion {
  const wanted = new Set([...fn.policy.methods, ...target.policy.methods])
  if (wanted.size === fn.policy.methods.length) return fn
  return maker.reuse({ ...fn, policy: { ...fn.policy, methods: METHODS.filter(method => wanted.has(method)) } })
}

function withLatest(claim: Claim, replaced: Replacements): Claim {
  const fn = latest(claim.fn, replaced)
  return fn === claim.fn ? claim : { ...claim, fn }
}

function latest(fn: FunctionVersion, replaced: Replacements): FunctionVersion {
  const next = replaced.get(fn)
  return next === undefined ? fn : latest(next, replaced)
}

/** A function folder keeps the plain key before a file route, then the text order of files decides. */
function compareFunctions(a: FunctionVersion, b: FunctionVersion): number {
  return compareText(a.key, b.key) || compareText(b.kind, a.kind) || compareText(a.entryFile, b.entryFile)
}

function duplicateWarning(holder: FunctionVersion, fn: FunctionVersion): Warning {
  const name = fn.version === null ? fn.name : `${fn.name}@${fn.version}`
  const text = `has the name ${name} of ${holder.entryFile} in the same runtime`
  const hint = 'Rename one of them: calls by name reach the other.'
  return pathWarning('DUPLICATE_NAME', fn.entryFile, text, hint)
}
