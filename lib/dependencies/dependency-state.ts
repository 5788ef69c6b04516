/** Records of a function's packages: `.svc-deps-state.json` among them, and `metadata.dependency_resolution`. Owner: §2.16, §2.17. */

import type { Clock } from '../core/clock.ts'
import { parseObject } from '../core/json.ts'
import { OwnFolder } from '../files/own-folder.ts'
import { type DependencyFacts, labelOf, type Settled } from './install-step.ts'
import { PackageFolder, type SetOutcome, STATE_FILE, TARGETS } from './package-set.ts'

/** The names are those of the JSON. */
export interface DependencyRecord {
  runtime: string
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
  /** The set of packages that is in place. */
  set: string | null
  updated_at: string
}

/** The record of a folder; null when there is none of the language that can be read. */
export function readState(folder: string, runtime: string): DependencyRecord | null {
  const state = parseObject(stateFolder(folder, runtime).read(STATE_FILE)?.toString('utf8') ?? null)
  return state?.runtime === runtime ? (state as unknown as DependencyRecord) : null
}

/** Nothing is written among packages that others installed: their record is known while the gateway runs. */
export function writeState(folder: string, record: DependencyRecord): void {
  if (new PackageFolder(folder, TARGETS[record.runtime]!).isForeign) return
  stateFolder(folder, record.runtime).write(STATE_FILE, `${JSON.stringify(record, null, 2)}\n`)
}

/** The folder of packages: git ignores it, and each language of a function's folder has its own. */
function stateFolder(folder: string, runtime: string): OwnFolder {
  return new OwnFolder(folder, TARGETS[runtime]!)
}

/** The outcome of a look at a folder, or of an install. */
interface Noted {
  status: DependencyRecord['last_install_status']
  error: string | null
  /** The set that is in place now. */
  outcome?: SetOutcome
  /** Files that were written beside the function. */
  settled?: Settled
}

/** The record of each folder: in memory, and written beside the function. */
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
      manifest_path: manifest === null ? null : labelOf({ label }, manifest),
      manifest_generated: settled?.isManifestGenerated ?? before?.manifest_generated ?? false,
      infer_backend: facts.inferBackend,
      inference_duration_ms: facts.inferenceDurationMs,
      inferred_imports: facts.inferredImports,
      resolved_packages: outcome?.resolvedPackages ?? [],
      unresolved_imports: outcome?.unresolvedImports ?? facts.inferredImports,
      last_install_status: status,
      last_error: error,
      lockfile_path: settled?.lockFile == null ? null : labelOf({ label }, settled.lockFile),
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
