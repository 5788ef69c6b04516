/** What is known of a function's packages: `.svc-deps-state.json` among them, and `metadata.dependency_resolution`. Owner: §2.16, §2.17. */

import { isObject } from '../core/json.ts'
import { OwnFolder } from '../files/own-folder.ts'
import { PackageFolder, STATE_FILE, TARGETS } from './package-set.ts'

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
