/** What is known of the packages of each folder: kept while the gateway runs, and written beside the function. Owner: §2.16, page dependencies/install. */

import type { Clock } from '../core/clock.ts'
import { type DependencyFacts, type DependencyRecord, readState, writeState } from './dependency-state.ts'
import type { SetOutcome } from './package-set.ts'

/** What a look at a folder, or an install, came to. */
interface Noted {
  status: DependencyRecord['last_install_status']
  error: string | null
  /** The set that is in place now. */
  outcome?: SetOutcome
  /** What was written beside the function. */
  settled?: { isManifestGenerated: boolean; manifest: string | null; lockFile: string | null }
}

export class InstallRecords {
  readonly #runtime: string
  readonly #clock: Clock
  /** By full path of the folder. */
  readonly #known = new Map<string, DependencyRecord>()

  constructor(runtime: string, clock: Clock) {
    this.#runtime = runtime
    this.#clock = clock
  }

  /** @param folder - full path. @returns null when nothing is known */
  of(folder: string): DependencyRecord | null {
    return this.#known.get(folder) ?? readState(folder, this.#runtime)
  }

  /** @param signature - of everything that decided */
  note(
    { folder, label }: { folder: string; label: string },
    { facts, key }: { facts: DependencyFacts; key: string | null },
    signature: string,
    { status, error, outcome, settled }: Noted,
  ): void {
    const manifest = settled?.manifest ?? facts.manifest
    const before = this.of(folder)
    const record: DependencyRecord = {
      runtime: this.#runtime,
      mode: facts.mode,
      manifest_path: manifest === null ? null : toChild(label, manifest),
      manifest_generated: settled?.isManifestGenerated ?? before?.manifest_generated ?? false,
      infer_backend: facts.inferBackend,
      inference_duration_ms: facts.inferenceDurationMs,
      inferred_imports: facts.inferredImports,
      resolved_packages: outcome?.resolvedPackages ?? [],
      unresolved_imports: outcome?.unresolvedImports ?? facts.inferredImports,
      last_install_status: status,
      last_error: error,
      lockfile_path: settled?.lockFile == null ? null : toChild(label, settled.lockFile),
      install_signature: signature,
      set: outcome === undefined ? (before?.set ?? null) : key,
      updated_at: new Date(this.#clock.wall()).toISOString(),
    }
    this.#known.set(folder, record)
    try {
      writeState(folder, record)
    } catch {
      // A folder that cannot be written keeps its packages in the shared store; the record is shown all the same.
    }
  }
}

function toChild(label: string, name: string): string {
  return label === '.' ? name : `${label}/${name}`
}
