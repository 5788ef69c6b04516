/** What is known of a function's packages: `.svc-deps-state.json` beside it, and `metadata.dependency_resolution`. Owner: §2.16, §2.17. */

import { isObject } from '../core/json.ts'
import { OwnFolder } from '../files/own-folder.ts'
import { PackageFolder } from './package-set.ts'

const STATE_FILE = '.svc-deps-state.json'

/** What reading a function's files found, before anything is installed. */
export interface DependencyFacts {
  /** `manifest` when the function or its comments name packages, `inferred` when imports alone do. */
  mode: 'manifest' | 'inferred'
  /** Name of the manifest in the function's folder; null when there is none. */
  manifest: string | null
  inferBackend: string | null
  inferenceDurationMs: number
  inferredImports: readonly string[]
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

/** Beside a PHP function nothing is written but its packages (§2.16): its state lies in their folder. */
const PHP_FOLDER = 'vendor'

/** The record in a function's folder; null when there is none of the language that can be read. */
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

export function writeState(folder: string, record: DependencyRecord): void {
  // Without packages of the gateway's there is no place: what failed is told as long as the gateway runs.
  if (record.runtime === 'php' && new PackageFolder(folder, PHP_FOLDER).set === null) return
  stateFolder(folder, record.runtime).write(STATE_FILE, `${JSON.stringify(record, null, 2)}\n`)
}

export function removeState(folder: string, runtime: string): void {
  stateFolder(folder, runtime).remove(STATE_FILE)
}

function stateFolder(folder: string, runtime: string): OwnFolder {
  return runtime === 'php' ? new OwnFolder(folder, PHP_FOLDER) : new OwnFolder(folder)
}
