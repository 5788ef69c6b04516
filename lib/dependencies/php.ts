/**
 * Packages of PHP functions: `composer.json` and `composer.lock` to `vendor`, by Composer. Owner: page dependencies/php.
 *
 *   composer.json ─ names and sources checked ─► composer.lock ─ there ─► composer install, and update for what it lacks
 *                                                              └ none  ─► composer update
 *   afterwards, beside the function: composer.lock with what was installed
 */

import { realpathSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { dirname, join, resolve, sep } from 'node:path'
import { toComposerHostEnv } from '../core/host.ts'
import type { FileReader } from '../files/function-file.ts'
import { OwnFolder } from '../files/own-folder.ts'
import { BuildKey } from './build-cache.ts'
import type { BuildTools, Toolchain } from './build.ts'
import {
  checkComposerSources,
  COMPOSER_LOCK,
  COMPOSER_MANIFEST,
  ComposerLock,
  type ComposerManifest,
  isComposerName,
  readComposerLock,
  readComposerManifest,
} from './composer-manifest.ts'
import { installWithComposer, toComposerError } from './composer.ts'
import { CHANGED_MEANWHILE, digestFiles, FileCollector, readMade, stageFiles } from './file-packages.ts'
import {
  askInterpreter,
  hasFile,
  type InstallPlan,
  type InstallStep,
  type InstallUnit,
  isWritable,
  passingError,
  type Settled,
  toManifestFacts,
} from './install-step.ts'
import { PackageFolder, type PackageSet, type SetOutcome } from './package-set.ts'
import type { ToolResult } from './run-tool.ts'

export interface PhpStepOptions {
  functionsRoot: string
  /** `FN_AUTO_PHP_DEPS`, `FN_PREINSTALL_PHP_DEPS_ON_START`. */
  isOn: boolean
  isAhead: boolean
  /** Packages may come from repositories of any kind: `FN_PHP_PACKAGE_SOURCES`. */
  allowSources: boolean
  /** Reads files of functions that are kept apart by users; null: links are followed. */
  readFile?: FileReader | null
  /** Full path of Composer; null when it is not there. */
  findComposer(): string | null
  /** Why it is not there, such as `composer is not on PATH`, and how to get it: `install it (apt-get install composer)`. */
  composerProblem: string
  composerHint: string
  /** Something that a person should know and that stops nothing. */
  onNote(text: string): void
}

/** Part of the key: a change of how sets are made makes them again. */
const RECIPE = 'php 2'
const TARGET = 'vendor'
/** File of a set: the key that its lock file has, because both stand for the same packages. */
const PINS = '.fngw-pins'
/** File of a set: its lock file, for a gateway that was killed before it put it beside the function. */
const LOCK_COPY = '.fngw-lock'
/** Types of packages that run while others are installed. */
const PLUGIN_TYPE = /^composer-(?:plugin|installer)$/

export function createPhpStep(options: PhpStepOptions): InstallStep {
  const { isOn, isAhead, allowSources } = options
  return {
    runtime: 'php',
    target: TARGET,
    manifests: [COMPOSER_MANIFEST, COMPOSER_LOCK, 'fn.config.json'],
    concurrency: availableParallelism(),
    isAhead,
    isOn,
    setting: 'FN_AUTO_PHP_DEPS',
    rules: JSON.stringify([RECIPE, allowSources]),
    isStrict: false,
    onNote: options.onNote,
    toEnv: toComposerHostEnv,
    isWanted: ({ folder }) => hasFile(folder, COMPOSER_MANIFEST),
    readVersion,
    plan: (unit, toolchain) => new PhpFolder(unit, options, toolchain).plan(),
  }
}

/** PHP's version and extensions decide which packages fit. */
function readVersion(program: string, tools: BuildTools, cwd: string): Promise<string> {
  const script =
    '$names = get_loaded_extensions(); sort($names); echo PHP_MAJOR_VERSION, ".", PHP_MINOR_VERSION, " ", implode(" ", $names);'
  return askInterpreter(program, ['-r', script], tools, cwd)
}

/** One folder: its set of packages, and the lock file beside its functions. */
class PhpFolder {
  readonly #unit: InstallUnit
  readonly #options: PhpStepOptions
  readonly #toolchain: Toolchain
  readonly #root: string
  readonly #manifest: ComposerManifest | null
  #lock: ComposerLock | null
  #files = new FileCollector(TARGET)
  #digest = ''

  constructor(unit: InstallUnit, options: PhpStepOptions, toolchain: Toolchain) {
    this.#unit = unit
    this.#options = options
    this.#toolchain = toolchain
    this.#root = realpathSync(options.functionsRoot)
    this.#manifest = readComposerManifest(unit.folder, unit.label)
    this.#lock = readComposerLock(unit.folder, unit.label)
  }

  async plan(): Promise<InstallPlan | null> {
    const manifest = this.#manifest
    if (manifest === null || !manifest.isAsking) return null
    const { allowSources, readFile: read } = this.#options
    const checks = { root: this.#root, read, allowSources }
    checkComposerSources(manifest, this.#lock, this.#folder, checks)
    const { targets } = checkComposerSources(manifest, null, this.#folder, checks)
    this.#lock =
      this.#lock?.withoutStalePaths(url => {
        const place = resolve(this.#folder, url)
        return [...targets].some(target => place === target || place.startsWith(target + sep))
      }) ?? null
    this.#files = checkComposerSources(manifest, this.#lock, this.#folder, checks)
    this.#digest = await digestFiles(this.#files, this.#folder, read)
    const key = this.#keyOf(manifest, this.#lock)
    const { set } = new PackageFolder(this.#unit.folder, TARGET)
    const pins = new OwnFolder(this.#unit.folder, TARGET).read(PINS)?.toString('utf8')
    return {
      // The lock file that was written after the install stands for the same packages as the manifest alone before it.
      key: set !== null && pins === key ? set.key : key,
      facts: toManifestFacts(COMPOSER_MANIFEST),
      fill: (draft, tools) => this.#fill(manifest, draft, tools),
      toUserError: cause => toComposerError(cause as ToolResult, { label: this.#unit.label, manifest }),
      settle: made => this.#settle(manifest, made),
    }
  }

  #keyOf(manifest: ComposerManifest, lock: ComposerLock | null): string {
    return new BuildKey()
      .add('recipe', RECIPE)
      .add('toolchain', this.#toolchain.version)
      .add('manifest', JSON.stringify(manifest.toStaged(this.#plugins)))
      .add('lock', lock?.digest ?? null)
      .add('files', this.#digest)
      .toString()
  }

  /** Full path below the root without links. */
  get #folder(): string {
    return join(this.#root, this.#unit.label)
  }

  async #fill(manifest: ComposerManifest, draft: OwnFolder, tools: BuildTools): Promise<SetOutcome> {
    const { label } = this.#unit
    const { findComposer, composerProblem, composerHint, allowSources, onNote } = this.#options
    const composer = findComposer()
    if (composer === null) {
      const hint = `${composerHint}, set FN_COMPOSER_BIN to it, or set FN_AUTO_PHP_DEPS=0`
      throw passingError(composerProblem, hint)
    }
    const { cwd, digest } = await stageFiles(draft, this.#files, {
      folder: this.#folder,
      root: this.#root,
      read: this.#options.readFile,
    })
    if (digest !== this.#digest) throw passingError(`${label}: ${CHANGED_MEANWHILE}`)
    cwd.write(COMPOSER_MANIFEST, `${JSON.stringify(manifest.toStaged(this.#plugins), null, 4)}\n`)
    if (this.#lock !== null) cwd.write(COMPOSER_LOCK, this.#lock.toStaged())
    const install = {
      php: this.#toolchain.program,
      composer,
      cwd: cwd.path,
      draft,
      ceiling: dirname(draft.path),
      hasLock: this.#lock !== null,
      plugins: this.#plugins,
      allowSources,
      label,
      manifest,
    }
    const isLockOld = await installWithComposer(install, tools)
    if (isLockOld) {
      const file = this.#lock!.label
      onNote(`${file} was made from another composer.json and is used as it is: run composer update, or delete it`)
    }
    const lock = new ComposerLock(readMade(cwd, COMPOSER_LOCK), COMPOSER_LOCK)
    this.#notePlugins(lock)
    cwd.below(TARGET).make()
    if (cwd.path !== draft.path) for (const name of [TARGET, COMPOSER_LOCK]) cwd.moveTo(name, draft, name)
    draft.below(TARGET).write(PINS, this.#keyOf(manifest, lock))
    draft.below(TARGET).write(LOCK_COPY, lock.text)
    const resolvedPackages = manifest.packages.flatMap(name => {
      const version = lock.versionOf(name)
      return version === null ? [] : `${name}:${version}`
    })
    return { resolvedPackages, unresolvedImports: [] }
  }

  #notePlugins(lock: ComposerLock): void {
    const left = lock.packages
      .filter(({ type, name }) => PLUGIN_TYPE.test(type) && !this.#plugins.includes(name))
      .map(({ name }) => name)
    if (left.length === 0) return
    this.#options.onNote(
      `${this.#unit.label}: the plugins of ${left.join(', ')} did not run; ` +
        'name what needs them in allow_scripts of fn.config.json',
    )
  }

  #settle(manifest: ComposerManifest, { folder }: PackageSet): Settled {
    const settled = { isManifestGenerated: false, manifest: COMPOSER_MANIFEST }
    if (!manifest.wantsLock) return { ...settled, lockFile: this.#lock === null ? null : COMPOSER_LOCK }
    // In place there is the function's own file, or none when a gateway was killed before it wrote it.
    const bytes = folder.read(COMPOSER_LOCK) ?? folder.below(TARGET).read(LOCK_COPY)
    const text = bytes?.toString('utf8')
    const own = new OwnFolder(this.#unit.folder)
    const isWritten = text !== undefined && text !== this.#lock?.toStaged() && isWritable(own, COMPOSER_LOCK)
    if (isWritten && text !== this.#lock?.text) {
      const stats = this.#lock === null ? null : own.statFile(COMPOSER_LOCK)
      own.write(COMPOSER_LOCK, text, stats?.mode, stats)
    }
    return { ...settled, lockFile: isWritten || this.#lock !== null ? COMPOSER_LOCK : null }
  }

  /** Small letters, as Composer has them. */
  get #plugins(): string[] {
    const names = this.#unit.functions.flatMap(({ policy }) => policy.allowScripts.map(name => name.toLowerCase()))
    return [...new Set(names)].filter(isComposerName).sort()
  }
}
