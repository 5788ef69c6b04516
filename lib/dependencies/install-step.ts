/**
 * The interface of a language to the installer (`install.ts`), and what languages share: errors, files of a folder, manifests as text.
 * Owner: §2.16, page dependencies/install.
 */

import { lstatSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { parseJsonText } from '../config/json-text.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError } from '../core/errors.ts'
import type { HostEnv } from '../core/host.ts'
import { isObject } from '../core/json.ts'
import { toShellWord } from '../core/text.ts'
import type { OwnFolder } from '../files/own-folder.ts'
import { type BuildTools, lineOf, type Toolchain } from './build.ts'
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
  /** The setting that turns it off, for records: `FN_AUTO_REQUIREMENTS`. */
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
  /** Facts of the interpreter that decide about the packages: version, system. `program` is the runtime's own. */
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
  toUserError?(cause: unknown): GatewayError
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

/** Findings from a function's files, before anything is installed. */
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
 * @param cause - for `InstallPlan.toUserError`
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

/** Facts of an interpreter that it prints itself. @throws GatewayError when it does not run */
export async function askInterpreter(command: string, args: string[], tools: BuildTools, cwd: string): Promise<string> {
  const { code, output, problem } = await tools.run({ command, args, cwd })
  if (code !== 0) throw passingError(`${command} does not run: ${problem ?? output.trim().slice(-200)}`)
  return output.trim()
}

/** `shop/cart/package.json`: below the functions root. */
export function labelOf({ label }: Pick<InstallUnit, 'label'>, name: string): string {
  return label === '.' ? name : `${label}/${name}`
}

/** True for an entry of that name, also for a broken link. */
export function hasFile(folder: string, name: string): boolean {
  return lstatSync(join(folder, name), { throwIfNoEntry: false }) !== undefined
}

/** False for a link: its target is not the gateway's to write. True for a missing file. */
export function isWritable(folder: OwnFolder, name: string): boolean {
  return lstatSync(folder.pathOf(name), { throwIfNoEntry: false })?.isFile() !== false
}

/** Bytes of a manifest or lock file that is read. */
const MAX_MANIFEST_BYTES = 8 * 1024 * 1024

/** @returns null when it is not there @throws GatewayError when it is too large or no file */
export function readSmallFile(path: string, label: string): string | null {
  const stats = statSync(path, { throwIfNoEntry: false })
  if (stats === undefined) return null
  const isRight = stats.isFile() && stats.size <= MAX_MANIFEST_BYTES
  if (isRight) return readFileSync(path, 'utf8').replace(/^\uFEFF/, '')
  const what = stats.isFile() ? `has ${stats.size} bytes; ${MAX_MANIFEST_BYTES} are the most` : 'is not a regular file'
  throw installError(`${label} ${what}`, { file: label })
}

/**
 * The object of a JSON manifest.
 * @param example - the field that people write, for the hint
 * @throws GatewayError with file and line when it is not one
 */
export function parseManifest(text: string, label: string, example: string): Record<string, unknown> {
  const parsed = parseJsonText(text, MAX_MANIFEST_BYTES)
  if (!parsed.ok) {
    const line = Math.max(1, parsed.line)
    throw installError(`${label}:${line}: is not JSON: ${parsed.reason}`, { file: label, line }, parsed.hint)
  }
  if (isObject(parsed.value)) return parsed.value
  throw installError(`${label}: must be a JSON object`, { file: label, line: 1 }, `write { "${example}": { } }`)
}

const MAX_SHOWN_CHARS = 80

/**
 * A value as messages show it: its first word without credentials, query or text after a `=`. The line around it may
 * hold a secret: the manifest may be a link to another file.
 */
export function showToken(value: unknown): string {
  if (Array.isArray(value)) return 'a list'
  if (typeof value === 'object' && value !== null) return 'an object'
  if (typeof value !== 'string') return String(value)
  const [word = ''] = value.trim().split(/[\s?#=;]/, 1)
  const bare = word.replace(/:\/\/[^/]*@/, '://')
  return JSON.stringify(bare.length <= MAX_SHOWN_CHARS ? bare : `${bare.slice(0, MAX_SHOWN_CHARS)}...`)
}

/** Line of a word in quotes, from 1; of the file's first when it is not there. */
export function lineOfWord(text: string, word: string): number {
  const at = text.indexOf(JSON.stringify(word))
  return at === -1 ? 1 : lineOf(text, at)
}

/** A failure that names the line of a word of a manifest: `message` begins with its label. */
export function manifestError(
  { text, label }: { text: string; label: string },
  message: string,
  word: string,
  hint: string,
): GatewayError {
  const line = lineOfWord(text, word)
  return installError(message.replace(label, `${label}:${line}`), { file: label, line }, hint)
}
