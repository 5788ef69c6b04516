/** The interface of a language to the installer (`install.ts`), and JSON manifests that languages share. Owner: §2.16, page dependencies/install. */

import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { parseJsonText } from '../config/json-text.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import type { GatewayError } from '../core/errors.ts'
import { isObject } from '../core/json.ts'
import { cutText, toShellWord } from '../core/text.ts'
import type { OwnFolder } from '../files/own-folder.ts'
import { type Builder, labelOf, lineOf, type Toolchain } from './build.ts'
import type { DependencyRecord, PackageSet, SetOutcome } from './package-set.ts'
import type { BuildTools } from './run-tool.ts'
import { installError, passingError, type ToolFailure } from './tool-failure.ts'

export interface InstallUnit {
  /** Full path. */
  folder: string
  /** Below the functions root, `.` for the root itself; as messages name it. */
  label: string
  /** Of this language, in this folder: file routes of one folder share its packages. None for a pack. */
  functions: readonly FunctionVersion[]
  isPack: boolean
  packs: readonly string[]
  /** Full paths of their folders. They are installed before the unit is planned. */
  packFolders: readonly string[]
  /** Packages to add to the manifest (`fngw deps add`), as its language writes them. */
  asked: readonly string[]
  /** Imported packages that could not be installed. They are left out until a file of the folder changes. */
  failed: ReadonlyMap<string, ToolFailure>
}

/**
 * Whether packages that only imports ask for are installed (`FN_AUTO_INFER_*_DEPS`). `report` reads the imports and reports the
 * missing ones.
 */
export type InferMode = boolean | 'report'

/** How to get a package that only an import asks for. @param setting - that turns inference on */
export function toAddHint(label: string, name: string, setting: string): string {
  return `run: fngw deps add ${toShellWord(name)} --to ${toShellWord(label)}; or set ${setting}=1 to install what is imported`
}

export interface UnmetImport {
  /** Handlers that need it, full paths. */
  entries: readonly string[]
  error: GatewayError
}

/** What a `Builder` says of itself: its manifests are the lock files that are used too; it is ahead by `FN_PREINSTALL_*_ON_START`. */
type BuilderFacts = Pick<Required<Builder>, 'concurrency' | 'isAhead' | 'manifests' | 'readVersion' | 'toEnv'>

export interface InstallStep extends Readonly<BuilderFacts>, Pick<Builder, 'looksAtOnce'> {
  readonly runtime: 'python' | 'node' | 'php'
  readonly target: '.deps' | 'node_modules' | 'vendor'
  /** False when the setting says so: nothing is read and nothing written. */
  readonly isOn: boolean
  /** The setting that turns it off, for records: `FN_AUTO_REQUIREMENTS`. */
  readonly setting: string
  /** Settings that decide about the outcome, as text: part of the signature. */
  readonly rules: string
  /** `FN_AUTO_INFER_STRICT`: an import without a package fails the functions that need it. */
  readonly isStrict: boolean
  onNote(text: string): void
  onInfer?(text: string): void
  /** A quick check, for every function at every reload: false when nothing is asked for. */
  isWanted(unit: InstallUnit): boolean
  /** Changes with the packages that the folder's functions find in folders above it. */
  stampAbove?(folder: string): string
  /**
   * Reads what a folder asks for. Nothing is written.
   * @returns null when it asks for nothing
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
  /** Packages that imports alone ask for, each with the place of its import: `left-pad` to `hello/handler.js:1`. */
  inferred?: ReadonlyMap<string, string>
  /** True for a package that a file names, and for '' where a file may name others. */
  declares?(name: string): boolean
  /**
   * Fills an empty folder of the gateway's: the packages into `draft.below(target)`, and what `settle` needs beside it. Run
   * once for all folders with this key; nothing of the result may depend on the folder that asked first.
   * @throws ToolFailure
   */
  fill(draft: OwnFolder, tools: BuildTools): Promise<SetOutcome>
  /** A failed fill, with the place in this folder that asks for the package: another folder may have run it. */
  toUserError(failure: ToolFailure): GatewayError
  unmet?(outcome: SetOutcome): readonly UnmetImport[]
  /**
   * Writes manifests and lock files beside the function, after the set is in place. Done again when something was touched
   * that decided nothing: then `set.folder` is the function's own.
   */
  settle?(set: PackageSet): Settled
}

export interface DependencyFacts
  extends Pick<DependencyRecord, 'mode' | 'infer_backend' | 'inference_duration_ms' | 'inferred_imports'> {
  /** Name of the manifest in the function's folder; null when there is none. */
  manifest: string | null
}

export function toManifestFacts(manifest: string | null): DependencyFacts {
  return { mode: 'manifest', manifest, infer_backend: null, inference_duration_ms: 0, inferred_imports: [] }
}

export interface Settled {
  isManifestGenerated: boolean
  /** Name of the manifest, null when there is none. */
  manifest: string | null
  /** Name of the lock file, null when there is none. */
  lockFile: string | null
}

/** Facts of an interpreter that it prints itself. @throws GatewayError when it does not run */
export async function askInterpreter(command: string, args: string[], tools: BuildTools): Promise<string> {
  const { code, output, problem } = await tools.run({ command, args, cwd: '/' })
  if (code !== 0) throw passingError(`${command} does not run: ${problem ?? output.trim().slice(-200)}`)
  return output.trim()
}

const MAX_MANIFEST_BYTES = 8 * 1024 * 1024

/**
 * Reads a manifest or lock file beside a function.
 * @param label - of the folder
 * @param make - gets its text and its path below the functions root
 * @returns null when it does not exist @throws GatewayError when it is too large or no file
 */
export function readBeside<T>(
  folder: string,
  label: string,
  name: string,
  make: (text: string, label: string) => T,
): T | null {
  const path = join(folder, name)
  const stats = statSync(path, { throwIfNoEntry: false })
  if (stats === undefined) return null
  const file = labelOf(label, name)
  const isRight = stats.isFile() && stats.size <= MAX_MANIFEST_BYTES
  if (isRight) return make(readFileSync(path, 'utf8').replace(/^\uFEFF/, ''), file)
  const what = stats.isFile() ? `has ${stats.size} bytes; ${MAX_MANIFEST_BYTES} are the most` : 'is not a regular file'
  throw installError(`${file} ${what}`, { file })
}

/** A JSON manifest; errors name the line of a word in it. */
export class JsonManifest {
  readonly text: string
  /** Below the functions root, for messages. */
  readonly label: string
  readonly json: Readonly<Record<string, unknown>>

  /** @param example - a field, for the hint @throws GatewayError with file and line when it is not a JSON object */
  constructor(text: string, label: string, example: string) {
    this.text = text.replace(/^\uFEFF/, '')
    this.label = label
    const parsed = parseJsonText(this.text, MAX_MANIFEST_BYTES)
    if (!parsed.ok) {
      const line = Math.max(1, parsed.line)
      throw installError(`${label}:${line}: is not JSON: ${parsed.reason}`, { file: label, line }, parsed.hint)
    }
    if (!isObject(parsed.value))
      throw installError(`${label}: must be a JSON object`, { file: label, line: 1 }, `write { "${example}": { } }`)
    this.json = parsed.value
  }

  objectOf(field: string): Readonly<Record<string, unknown>> {
    return toObject(this.json[field])
  }

  /** Line of a word in quotes, from 1; that of the file's beginning when it is not there. */
  lineOf(word: string): number {
    return lineOf(this.text, Math.max(0, this.text.indexOf(JSON.stringify(word))))
  }

  error(why: string, word: string, hint: string): GatewayError {
    const line = this.lineOf(word)
    return installError(`${this.label}:${line}: ${why}`, { file: this.label, line }, hint)
  }
}

export function toObject(value: unknown): Readonly<Record<string, unknown>> {
  return isObject(value) ? value : {}
}

const MAX_SHOWN_CHARS = 80

/**
 * A value as messages show it: its first word without credentials, query or text after a `=`. The line around it may
 * hold a secret: the manifest may be a link to another file.
 */
export function showToken(value: unknown): string {
  if (Array.isArray(value)) return 'a list'
  if (isObject(value)) return 'an object'
  if (typeof value !== 'string') return String(value)
  const [word = ''] = value.trim().split(/[\s?#=;]/, 1)
  const bare = word.replace(/:\/\/[^/]*@/, '://')
  return JSON.stringify(cutText(bare, MAX_SHOWN_CHARS))
}
