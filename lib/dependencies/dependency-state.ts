/** What is known of a function's packages: `.svc-deps-state.json` among them, and `metadata.dependency_resolution`. Owner: §2.16, §2.17. */

import type { Clock } from '../core/clock.ts'
import { isObject } from '../core/json.ts'
import { OwnFolder } from '../files/own-folder.ts'
import { PackageFolder, type SetOutcome, STATE_FILE, TARGETS } from './package-set.ts'

/** What reading a function's files found, before anything is installed. */
export interface DependencyFacts {
  /** `manifest` when the function or its comments name packages, `inferred` when only imports or a manifest generated from them do. */
  mode: 'manifest' | 'inferred'
  /** Name of the manifest in the function's folder; null when there is none. */
  manifest: string | null
  inferBackend: string | null
  inferenceDurationMs: number
  inferredImports: readonly string[]
}

/** Where a manifest alone decides. */
export function toManifestFacts(manifest: string | null): DependencyFacts {
  return { mode: 'manifest', manifest, inferBackend: null, inferenceDurationMs: 0, inferredImports: [] }
}

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
  const bytes = stateFolder(folder, runtime).read(STATE_FILE)
  if (bytes === null) return null
  try {
    const value: unknown = JSON.parse(bytes.toString('utf8'))
    return isObject(value) && value.runtime === runtime ? (value as unknown as DependencyRecord) : null
  } catch {
    return null
  }
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

// What is known of the packages of each folder: kept while the gateway runs, and written beside the function.

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
