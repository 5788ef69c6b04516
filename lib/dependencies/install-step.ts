/**
 * What a language's step provides to the installing of packages, and how it tells failures. `install.ts` is the mechanism.
 * Owner: §2.16, page dependencies/install.
 */

import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError } from '../core/errors.ts'
import type { HostEnv } from '../core/host.ts'
import { toShellWord } from '../core/text.ts'
import type { OwnFolder } from '../files/own-folder.ts'
import type { BuildTools, Toolchain } from './build.ts'
import type { DependencyFacts } from './dependency-state.ts'
import type { PackageSet, SetOutcome } from './package-set.ts'

/** A folder that wants packages: that of functions, or a shared pack. */
export interface InstallUnit {
  /** Full path. */
  folder: string
  /** Below the functions root, `.` for the root itself; as messages name it. */
  label: string
  /** Of this language, in this folder: file routes of one folder share its packages. None for a pack. */
  functions: readonly FunctionVersion[]
  isPack: boolean
  /** Names of the shared packs of its functions. */
  packs: readonly string[]
  /** Full paths of their folders. They are installed before the step looks at the unit. */
  packFolders: readonly string[]
  /** Packages to add to the manifest (`fngw deps add`), as its language writes them. */
  asked: readonly string[]
  /** Imported packages that could not be installed, and why. They are left out until a file of the folder changes. */
  failed: ReadonlyMap<string, FailedImport>
}

/**
 * Whether packages that only imports ask for are installed (`FN_AUTO_INFER_*_DEPS`). `report` reads the imports and says which are
 * missing.
 */
export type InferMode = boolean | 'report'

/** How to get a package that only an import asks for. @param setting - that turns inference on */
export function toAddHint({ label }: Pick<InstallUnit, 'label'>, name: string, setting: string): string {
  return `run: fngw deps add ${toShellWord(name)} --to ${toShellWord(label)}; or set ${setting}=1 to install what is imported`
}

/** Why an imported package could not be installed. */
export interface FailedImport {
  message: string
  hint: string
}

/** An import that no package answers. */
export interface UnmetImport {
  /** Handlers that need it, full paths. */
  entries: readonly string[]
  error: GatewayError
}

/** How one language's packages are installed. */
export interface InstallStep {
  readonly runtime: 'python' | 'node' | 'php'
  /** Folder of installed packages in a function's folder. */
  readonly target: '.deps' | 'node_modules' | 'vendor'
  /** Files in a function's folder that decide, lock files that are used among them. */
  readonly manifests: readonly string[]
  /** Installs that may run at once. */
  readonly concurrency: number
  /** As of `Builder`. */
  readonly looksAtOnce?: number
  /** Made before the first call (`FN_PREINSTALL_*_ON_START`). */
  readonly isAhead: boolean
  /** False when the setting says so: nothing is read and nothing written. */
  readonly isOn: boolean
  /** What turns it off, for records: `FN_AUTO_REQUIREMENTS`. */
  readonly setting: string
  /** Settings that decide about the outcome, as text: part of the signature. */
  readonly rules: string
  /** `FN_AUTO_INFER_STRICT`: an import that no package answers fails the functions that need it. */
  readonly isStrict: boolean
  /** Logs a warning that stops nothing. */
  onNote(text: string): void
  /** Logs what is installed for imports alone, before it is. */
  onInfer?(text: string): void
  /** The tools' environment: what they may see of the host's. */
  toEnv(hostEnv: HostEnv): Record<string, string>
  /** A quick look, done for every function at every reload: false when nothing can be wanted. */
  isWanted(unit: InstallUnit): boolean
  /** Of what the folder's functions find in folders above it; another one when that changed. */
  stampAbove?(folder: string): string
  /** What of the interpreter decides about the packages: version, system. `program` is the runtime's own. */
  readVersion(program: string, tools: BuildTools, cwd: string): Promise<string>
  /**
   * Reads what a folder wants. Nothing is written.
   * @returns null when it wants nothing
   * @throws GatewayError by `installError`
   */
  plan(unit: InstallUnit, toolchain: Toolchain, tools: BuildTools): Promise<InstallPlan | null>
}

export interface InstallPlan {
  /** Digest of everything that decides about the files (`BuildKey`): packages asked for, lock file, toolchain. */
  key: string
  facts: DependencyFacts
  /** The outcome where there is nothing to install: no folder is made. */
  emptyOutcome?(): Promise<SetOutcome>
  /** Packages that imports alone ask for, each with the place of its import: `left-pad (hello/handler.js:1)`. */
  inferred?: readonly string[]
  /**
   * Fills an empty folder of the gateway's: the packages into `draft.below(target)`, and what `settle` needs beside it. Run
   * once for all folders with this key; nothing of the result may depend on the folder that asked first.
   */
  fill(draft: OwnFolder, tools: BuildTools): Promise<SetOutcome>
  /**
   * The error of a fill that this folder did not run itself, in its own words: the same packages are asked for elsewhere in it.
   * @param cause - that of the error that `fill` threw
   */
  retell?(cause: unknown): GatewayError
  /**
   * The inferred packages that a failure of `fill` comes from: the set is filled without them. Empty for what an edit of imports
   * does not mend, such as a network that is down.
   */
  blame?(cause: unknown): ReadonlyMap<string, FailedImport>
  /** Imports that the set leaves without a package. */
  unmet?(outcome: SetOutcome): readonly UnmetImport[]
  /**
   * Writes manifests and lock files beside the function, after the set is in place. Done again when something was touched
   * that decided nothing: then `set.folder` is the function's own.
   */
  settle?(set: PackageSet): Settled
}

export interface Settled {
  /** The manifest was made by the gateway. */
  isManifestGenerated: boolean
  /** Name of the manifest, null when there is none. */
  manifest: string | null
  /** Name of the lock file, null when there is none. */
  lockFile: string | null
}

/** Where a failure comes from: file below the functions root, line from 1. */
export interface InstallPlace {
  file: string
  line?: number
}

/**
 * A failure that lasts until a file changes.
 * @param cause - for `InstallPlan.retell`
 */
export function installError(message: string, place: InstallPlace, hint?: string, cause?: unknown): GatewayError {
  const detail = { ...place, ...(hint !== undefined && { hint }) }
  return new GatewayError('LOAD_FAILED', `install failed: ${message}`, { detail, cause })
}

/** A failure that may be over when it is tried again after a while: network, disk, time. */
export function passingError(message: string, hint?: string, cause?: unknown): GatewayError {
  const detail = hint === undefined ? {} : { detail: { hint } }
  return new GatewayError('LOAD_FAILED', `install failed: ${message}`, { ...detail, cause })
}
