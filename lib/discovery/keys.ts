/** One function version per handler and key. Owner: §2.1, page discovery/layouts. */

import type { Claim, FunctionVersion } from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import { METHODS } from '../core/identity.ts'
import { compareLists, countUpTo, mergeSorted } from '../core/list-change.ts'
import { compareText } from '../core/text.ts'
import { pathWarning } from './disk.ts'
import type { FunctionMaker } from './functions.ts'

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

/** What a walk over the folders made, before keys are settled. */
export interface Made {
  /** What folders and file names made. */
  functions: readonly FunctionVersion[]
  /** What `fn.routes.json` names; a handler that is a function already is not made twice. */
  targets: readonly FunctionVersion[]
  claims: readonly Claim[]
}

/**
 * Gives each function a key of its own, and a signature of its own to those whose loaded files changed.
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

/** Each function of few is looked up: whoever edits all day has some revisions, and none of the other thousands has one. */
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
