/** What one folder and all below it contribute to a discovery. Owner: §2.2. */

import type { AssetsMount, Claim, FunctionVersion, HomeAction, IgnoredPath } from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import { type ClaimRequest, isWarning, toClaim } from './claims.ts'

/** The outcome of a discovery: data, deeply equal for equal trees. */
export interface Discovery {
  /** By key. */
  readonly functions: readonly FunctionVersion[]
  readonly byKey: ReadonlyMap<string, FunctionVersion>
  /** In the order of the tree. */
  readonly claims: readonly Claim[]
  readonly homes: readonly HomeAction[]
  readonly assets: AssetsMount | null
  readonly warnings: readonly Warning[]
  readonly ignored: readonly IgnoredPath[]
}

export class Part {
  readonly functions: FunctionVersion[] = []
  /** Handlers that a manifest names; they may be functions already. */
  readonly targets: FunctionVersion[] = []
  readonly claims: Claim[] = []
  readonly homes: HomeAction[] = []
  readonly warnings: Warning[] = []
  readonly ignored: IgnoredPath[] = []

  /** Adds the outcome of a folder below. */
  add(part: Part): void {
    for (const fn of part.functions) this.functions.push(fn)
    for (const fn of part.targets) this.targets.push(fn)
    for (const claim of part.claims) this.claims.push(claim)
    for (const home of part.homes) this.homes.push(home)
    this.warn(part.warnings)
    for (const ignored of part.ignored) this.ignored.push(ignored)
  }

  /** Adds a claim, or the warning why it is none; true for a claim. */
  claim(request: ClaimRequest): boolean {
    const outcome = toClaim(request)
    if (isWarning(outcome)) {
      this.warnings.push(outcome)
      return false
    }
    this.claims.push(outcome)
    return true
  }

  ignore(path: string, reason: string): void {
    this.ignored.push({ path, reason })
  }

  warn(warnings: readonly Warning[]): void {
    for (const warning of warnings) this.warnings.push(warning)
  }
}
