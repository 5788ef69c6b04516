/**
 * Packages of PHP functions: from `composer.json` and `composer.lock` to `vendor`, by Composer. Owner: page dependencies/php.
 *
 *   composer.json ─ names and sources checked ─► composer.lock ─ there ─► composer install, and update for what it lacks
 *                                                              └ none  ─► composer update
 *   afterwards, beside the function: composer.lock with what was installed
 */

import { openSync, readSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { dirname, resolve, sep } from 'node:path'
import { type GatewayError, orNull } from '../core/errors.ts'
import { toComposerHostEnv } from '../core/host.ts'
import { closing, OwnFolder } from '../files/own-folder.ts'
import { hasFile, isWritable, type Toolchain } from './build.ts'
import { BuildKey } from './build-cache.ts'
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
import { FilePackages, type FilePackagesOptions, readMade, unstage } from './file-packages.ts'
import {
  askInterpreter,
  type InstallPlan,
  type InstallStep,
  type InstallUnit,
  type Settled,
  toManifestFacts,
} from './install-step.ts'
import { PackageFolder, type PackageSet, type SetOutcome } from './package-set.ts'
import type { BuildTools, ToolResult } from './run-tool.ts'
import { passingError, readFailure, type ToolFailure, toSigns } from './tool-failure.ts'

export interface PhpStepOptions extends FilePackagesOptions, Pick<InstallStep, 'isOn' | 'isAhead' | 'onNote'> {
  /** Full path of Composer; null when it is missing. */
  findComposer(): string | null
  /** Why it is missing, such as `composer is not on PATH`, and how to get it: `install it (apt-get install composer)`. */
  composerProblem: string
  composerHint: string
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
/** PHP's version and extensions decide which packages fit. */
const VERSION_SCRIPT =
  '$names = get_loaded_extensions(); sort($names); echo PHP_MAJOR_VERSION, ".", PHP_MINOR_VERSION, " ", implode(" ", $names);'

export function createPhpStep(options: PhpStepOptions): InstallStep {
  return {
    ...options,
    runtime: 'php',
    target: TARGET,
    manifests: [COMPOSER_MANIFEST, COMPOSER_LOCK, 'fn.config.json'],
    concurrency: availableParallelism(),
    setting: 'FN_AUTO_PHP_DEPS',
    rules: JSON.stringify([RECIPE, options.allowSources]),
    isStrict: false,
    toEnv: toComposerHostEnv,
    isWanted: ({ folder }) => hasFile(folder, COMPOSER_MANIFEST),
    readVersion: (program, tools) => askInterpreter(program, ['-r', VERSION_SCRIPT], tools),
    plan: async (unit, toolchain) => {
      const manifest = readComposerManifest(unit.folder, unit.label)
      return manifest?.isAsking ? new PhpFolder(unit, options, toolchain, manifest).plan() : null
    },
  }
}

class PhpFolder {
  readonly #unit: InstallUnit
  readonly #options: PhpStepOptions
  readonly #toolchain: Toolchain
  readonly #manifest: ComposerManifest
  /** Names of packages whose plugins may run, in small letters as Composer has them. */
  readonly #plugins: readonly string[]
  #lock: ComposerLock | null
  #files: FilePackages
  #digest = ''

  constructor(unit: InstallUnit, options: PhpStepOptions, toolchain: Toolchain, manifest: ComposerManifest) {
    this.#unit = unit
    this.#options = options
    this.#toolchain = toolchain
    this.#manifest = manifest
    this.#lock = readComposerLock(unit.folder, unit.label)
    this.#files = this.#checked(this.#lock)
    const names = unit.functions.flatMap(({ policy }) => policy.allowScripts.map(name => name.toLowerCase()))
    this.#plugins = [...new Set(names)].filter(isComposerName).sort()
  }

  #checked(lock: ComposerLock | null): FilePackages {
    return checkComposerSources(this.#manifest, lock, new FilePackages(this.#options, this.#unit.label, TARGET))
  }

  async plan(): Promise<InstallPlan> {
    const { folder, label } = this.#unit
    const { targets, folder: realFolder } = this.#checked(null)
    const isNamed = (url: string) => {
      const place = resolve(realFolder, url)
      return [...targets].some(target => place === target || place.startsWith(target + sep))
    }
    this.#lock = this.#lock?.withoutStalePaths(isNamed) ?? null
    this.#files = this.#checked(this.#lock)
    this.#digest = await this.#files.digest()
    const key = this.#keyOf(this.#lock)
    const { set } = new PackageFolder(folder, TARGET)
    const pins = new OwnFolder(folder, TARGET).read(PINS)?.toString('utf8')
    return {
      // The lock file that was written after the install stands for the same packages as the manifest alone before it.
      key: set !== null && pins === key ? set.key : key,
      facts: toManifestFacts(COMPOSER_MANIFEST),
      fill: (draft, tools) => this.#fill(draft, tools),
      toUserError: failure => toComposerError(failure, label, this.#manifest),
      settle: made => this.#settle(made),
    }
  }

  #keyOf(lock: ComposerLock | null): string {
    return new BuildKey()
      .add('recipe', RECIPE)
      .add('toolchain', this.#toolchain.version)
      .add('manifest', JSON.stringify(this.#manifest.toStaged(this.#plugins)))
      .add('lock', lock?.digest ?? null)
      .add('files', this.#digest)
      .toString()
  }

  async #fill(draft: OwnFolder, tools: BuildTools): Promise<SetOutcome> {
    const { label } = this.#unit
    const { findComposer, composerProblem, composerHint, allowSources, onNote } = this.#options
    const manifest = this.#manifest
    const composer = findComposer()
    if (composer === null) {
      const hint = `${composerHint}, set FN_COMPOSER_BIN to it, or set FN_AUTO_PHP_DEPS=0`
      throw passingError(composerProblem, hint)
    }
    const cwd = await this.#files.stage(draft)
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
      manifest,
    }
    const isLockOld = await installWithComposer(install, tools)
    if (isLockOld) {
      const rule = 'run composer update, or delete it'
      onNote(`${this.#lock!.label} was made from another composer.json and is used as it is: ${rule}`)
    }
    const lock = new ComposerLock(readMade(cwd, COMPOSER_LOCK), COMPOSER_LOCK)
    const plugins = lock.packages.filter(({ type }) => PLUGIN_TYPE.test(type)).map(({ name }) => name)
    const left = plugins.filter(name => !this.#plugins.includes(name))
    if (left.length > 0) {
      const rule = 'name what needs them in allow_scripts of fn.config.json'
      onNote(`${label}: the plugins of ${left.join(', ')} did not run; ${rule}`)
    }
    unstage(cwd, draft, [TARGET, COMPOSER_LOCK])
    draft.below(TARGET).write(PINS, this.#keyOf(lock))
    draft.below(TARGET).write(LOCK_COPY, lock.text)
    const resolvedPackages = manifest.packages.flatMap(name => {
      const version = lock.versionOf(name)
      return version === null ? [] : `${name}:${version}`
    })
    return { resolvedPackages, unresolvedImports: [] }
  }

  #settle({ folder }: PackageSet): Settled {
    const lock = this.#lock
    const settled = { isManifestGenerated: false, manifest: COMPOSER_MANIFEST }
    if (!this.#manifest.wantsLock) return { ...settled, lockFile: lock === null ? null : COMPOSER_LOCK }
    // In place there is the function's own file, or none when a gateway was killed before it wrote it.
    const bytes = folder.read(COMPOSER_LOCK) ?? folder.below(TARGET).read(LOCK_COPY)
    const text = bytes?.toString('utf8')
    const own = new OwnFolder(this.#unit.folder)
    const isWritten = text !== undefined && text !== lock?.toStaged() && isWritable(own, COMPOSER_LOCK)
    if (isWritten && text !== lock?.text) {
      const stats = lock === null ? null : own.statFile(COMPOSER_LOCK)
      own.write(COMPOSER_LOCK, text, stats?.mode, stats)
    }
    return { ...settled, lockFile: isWritten || lock !== null ? COMPOSER_LOCK : null }
  }
}

// Composer in an empty folder: its arguments, its environment, and the meaning of its errors.

/** Given to every command. These win over files and the environment. */
const FLAGS = [
  ...['--no-interaction', '--no-ansi', '--no-progress'],
  // Packages for run time, as archives; scripts of manifests do not run.
  ...['--no-dev', '--prefer-dist', '--no-scripts'],
] as const

/** Exit code of a lock file that lacks what the manifest requires. */
const LOCK_IS_OLD = 4
const NOT_IN_LOCK =
  /Required(?: \([^)]*\))? package "([^"\s]+)" is (?:not present in the lock file|in the lock file as)/g
const LOCK_DIFFERS = /The lock file is not up to date with the latest changes in composer\.json/

interface ComposerInstall {
  php: string
  composer: string
  /** Holds `composer.json`, and `composer.lock` when `hasLock`. */
  cwd: string
  /** The folder that Composer may write to, `cwd` in it; absent where it runs as the gateway. */
  draft?: OwnFolder
  /** Full path of a folder above it: repositories there and further up do not belong to the function. */
  ceiling: string
  hasLock: boolean
  plugins: readonly string[]
  allowSources: boolean
  manifest: ComposerManifest
}

/**
 * Installs what the lock file pins, or what fits best where there is none. A lock file that lacks what the manifest
 * requires gets that, and keeps its other versions.
 * @returns true when the lock file was made from another manifest and is used all the same
 * @throws ToolFailure
 */
export async function installWithComposer(install: ComposerInstall, tools: BuildTools): Promise<boolean> {
  const { hasLock, manifest } = install
  let result = await runComposer(install, hasLock ? 'install' : 'update', ['--'], tools)
  if (result.code === 0) return hasLock && LOCK_DIFFERS.test(result.output)
  if (hasLock && result.code === LOCK_IS_OLD) {
    const names = new Set([...result.output.matchAll(NOT_IN_LOCK)].map(([, name]) => name!))
    result = await runComposer(install, 'update', ['--with-all-dependencies', '--', ...names], tools)
    if (result.code === 0) return false
  }
  throw readFailure(result, {
    tool: 'composer',
    signs: SIGNS,
    lateHint: NETWORK_HINT,
    maxLines: 5,
    maxChars: 800,
    toLines,
    // Composer works without a cache too.
    toText: output => output.replace(/^Cannot create cache directory.*$/gm, ''),
    nameOf: (_, output) => findCause(output, manifest) ?? 'the package',
  })
}

function runComposer(
  { php, composer, cwd, draft, ceiling, plugins, allowSources }: ComposerInstall,
  command: 'install' | 'update',
  rest: readonly string[],
  tools: BuildTools,
): Promise<ToolResult> {
  const args = [command, ...(plugins.length === 0 ? ['--no-plugins'] : []), ...FLAGS, ...rest]
  const env = {
    COMPOSER_NO_INTERACTION: '1',
    // Messages are not broken into lines.
    COLUMNS: '1000',
    // Without scripts and plugins nothing of a package runs, so that it need not ask about that.
    COMPOSER_ALLOW_SUPERUSER: '1',
    COMPOSER_DISABLE_XDEBUG_WARN: '1',
    COMPOSER_NO_AUDIT: '1',
    COMPOSER_MIRROR_PATH_REPOS: '1',
    COMPOSER_VENDOR_DIR: 'vendor',
    COMPOSER_BIN_DIR: 'vendor/bin',
    // Versions are not guessed from a repository that the functions root happens to be in.
    COMPOSER_ROOT_VERSION: '1.0.0',
    GIT_CEILING_DIRECTORIES: ceiling,
    GIT_TERMINAL_PROMPT: '0',
    ...(!allowSources && { GIT_ALLOW_PROTOCOL: 'https' }),
  }
  const call = isPhp(composer) ? { command: php, args: [composer, ...args] } : { command: composer, args }
  return tools.run({ ...call, cwd, env, ...(draft !== undefined && { owns: draft }) })
}

const HEAD_BYTES = 256

/** True for Composer itself, which the functions' own PHP runs; false for a program around it, such as a shell script. */
function isPhp(composer: string): boolean {
  const text = orNull(() => {
    const file = openSync(composer, 'r')
    const head = Buffer.alloc(HEAD_BYTES)
    return closing(file, () => head.subarray(0, readSync(file, head)).toString('latin1'))
  })
  return /^(?:#![^\n]*\bphp[^\n]*\n)?\s*<\?php/.test(text ?? '')
}

const NETWORK_HINT = 'check the network and the repositories; it is tried again after a while'

const SIGNS = [
  ...toSigns('passing', [
    [
      /curl error (?:5|6|7|28|35|52|55|56)\b|could not resolve (?:host|proxy)|getaddrinfo|connection (?:refused|reset|timed out)|network (?:is unreachable|disabled)|could not be fully loaded|failed to open stream: (?:operation|connection)/i,
      NETWORK_HINT,
    ],
    [
      /could not authenticate|invalid credentials|HTTP\/[\d.]+ 40[137]|authentication required/i,
      'a repository requires a login: put it into the auth.json of the user that runs the gateway',
    ],
    [/no space left on device/i, 'the disk is full'],
    [/requires PHP's zip extension/i, "install PHP's zip extension: artifact repositories are read with it"],
    [
      /zip extension and unzip|unzip(?:\/7z)? commands? (?:are|is) (?:both )?missing/i,
      "install unzip or PHP's zip extension",
    ],
    [
      /HOME or COMPOSER_HOME|is not writable|permission denied/i,
      'Composer writes to its home and cache: set COMPOSER_HOME to a folder that can be written',
    ],
  ]),
  ...toSigns('lasting', [
    [/blocked by your allow-plugins config/i, 'name the package in allow_scripts of fn.config.json'],
    [
      /could not be found in any version|could not find (?:a matching version of )?package/i,
      'no repository has %s: correct the name, or add the repository that has it',
    ],
    [
      /missing from your system|your php version|is disabled by/i,
      'install what is missing and start the gateway again, or change the requirement',
    ],
    [
      /does not match (?:the|your) (?:constraint|minimum-stability)/i,
      'change the version of %s in composer.json to one that there is',
    ],
    [
      /checksum verification of the file failed/i,
      'the archive is not what composer.lock pins: delete composer.lock when that is meant',
    ],
    [
      /could not parse version constraint|expected JSON schema|is invalid/i,
      'correct composer.json: composer validate lists its errors',
    ],
    [/does not exist|does not appear to be a file nor a folder/, 'correct the path %s in composer.json'],
    [/lock file does not contain/i, 'run composer update in the folder, or delete composer.lock'],
    [
      /could not be resolved to an installable set/i,
      'two packages require different versions of a third: change one of the constraints',
    ],
  ]),
]

export function toComposerError(failure: ToolFailure, label: string, manifest: ComposerManifest): GatewayError {
  const place = { file: manifest.label, line: manifest.lineOf(failure.packageName) }
  return failure.toError(`${label}: ${failure.message}`, place)
}

/** The entry of the manifest that a failure is about: a package, else a text of the file. */
const CAUSES: readonly RegExp[] = [
  /Root composer\.json requires (?:PHP extension |linked library )?([\w./-]+)/i,
  /version constraint (.+?): Invalid/,
  /scan for classes inside "([^"]+)"/,
  /^ *- ([\w-]+)(?:[.[]\S*)? : /m,
]

function findCause(output: string, manifest: ComposerManifest): string | undefined {
  const found = CAUSES.map(pattern => pattern.exec(output)?.[1]).find(one => one !== undefined)
  return found ?? manifest.packages.find(name => output.includes(name))
}

/** Steps, advice for a terminal, and how commands are written. */
const NOISE =
  /^(?:In \S+ line \d+:|(?:install|update) \[--|Loading |Updating dependencies|Installing dependencies|Verifying |Running update with|Lock file operations|Package operations|Problem \d+$|Writing lock|Generating |No composer\.lock|Warning: The lock file|Composer is operating|Cannot create cache directory|This usually happens|and prefer using|Nothing to|Your requirements could not|Potential causes|Use the option|Alternatively|Read (?:<|more)|see <|You can also try|To enable extensions|- (?:Locking|Downloading|Installing|A typo|It's a private|The package is not available)|[-/]\S+\.ini$|\d+ packages? )/i

function toLines(output: string): string[] {
  const lines = output.split('\n').map(line => line.replace(/\s+/g, ' ').trim())
  return lines.filter(line => line !== '' && !NOISE.test(line)).map(line => line.replace(/^- /, ''))
}
