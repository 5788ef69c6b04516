/** Composer in an empty folder: its arguments, its environment, and the meaning of its errors. Owner: page dependencies/php. */

import { openSync, readSync } from 'node:fs'
import { type GatewayError, orNull } from '../core/errors.ts'
import { INSTALL_TIMEOUT_SECONDS } from '../core/limits.ts'
import { closing, type OwnFolder } from '../files/own-folder.ts'
import type { BuildTools } from './build.ts'
import type { ComposerManifest } from './composer-manifest.ts'
import { installError, passingError } from './install-step.ts'
import type { ToolResult } from './run-tool.ts'

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

/** The folder that asked for the packages, for messages. */
interface ComposerAsker {
  /** Folder below the functions root. */
  label: string
  manifest: ComposerManifest
}

interface ComposerInstall extends ComposerAsker {
  /** Full path of the PHP that runs the functions. */
  php: string
  /** Full path of Composer. */
  composer: string
  /** Holds `composer.json`, and `composer.lock` when `hasLock`. */
  cwd: string
  /** The folder that Composer may write to, `cwd` in it; absent where it runs as the gateway. */
  draft?: OwnFolder
  /** Full path of a folder above it: repositories there and further up do not belong to the function. */
  ceiling: string
  hasLock: boolean
  /** Names of packages whose plugins may run. */
  plugins: readonly string[]
  /** Repositories of any kind are allowed. */
  allowSources: boolean
}

/**
 * Installs what the lock file pins, or what fits best where there is none. A lock file that lacks what the manifest
 * requires gets that, and keeps its other versions.
 * @returns true when the lock file was made from another manifest and is used all the same
 */
export async function installWithComposer(install: ComposerInstall, tools: BuildTools): Promise<boolean> {
  const run = (command: 'install' | 'update', flags: readonly string[] = [], names: readonly string[] = []) =>
    runComposer(install, [command, ...FLAGS, ...flags, '--', ...names], tools)
  let result = await run(install.hasLock ? 'install' : 'update')
  if (install.hasLock && result.code === LOCK_IS_OLD) {
    const names = [...new Set([...result.output.matchAll(NOT_IN_LOCK)].map(([, name]) => name!))]
    result = await run('update', ['--with-all-dependencies'], names)
  } else if (result.code === 0) return LOCK_DIFFERS.test(result.output)
  if (result.code !== 0) throw toComposerError(result, install)
  return false
}

function runComposer(install: ComposerInstall, args: readonly string[], tools: BuildTools): Promise<ToolResult> {
  const { php, composer, cwd, draft, ceiling, plugins, allowSources } = install
  const [command, ...rest] = isPhp(composer) ? [php, composer] : [composer]
  const all = [...args.slice(0, 1), ...(plugins.length === 0 ? ['--no-plugins'] : []), ...args.slice(1)]
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
  return tools.run({
    command: command!,
    args: [...rest, ...all],
    cwd,
    env,
    ...(draft !== undefined && { owns: draft }),
  })
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

/** A sign of a failure in Composer's output, and how to mend it; `%s` is the entry of the manifest that failed. */
type Reading = readonly [pattern: RegExp, hint: string]

/** Failures for which trying again may help. */
const PASSING: readonly Reading[] = [
  [
    /curl error (?:5|6|7|28|35|52|55|56)\b|could not resolve (?:host|proxy)|getaddrinfo|connection (?:refused|reset|timed out)|network (?:is unreachable|disabled)|could not be fully loaded|failed to open stream: (?:operation|connection)/i,
    'check the network and the repositories; it is tried again after a while',
  ],
  [
    /could not authenticate|invalid credentials|HTTP\/[\d.]+ 40[137]|authentication required/i,
    'a repository wants a login: put it into the auth.json of the user that runs the gateway',
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
]

/** Failures that last until a file changes. */
const LASTING: readonly Reading[] = [
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
    'two packages want different versions of a third: change one of the constraints',
  ],
]

/** A Composer that ended badly, in the words of a folder that wants what it was to install. */
export function toComposerError(result: ToolResult, { label, manifest }: ComposerAsker): GatewayError {
  if (result.timedOut) {
    const message = `${label}: composer took longer than ${INSTALL_TIMEOUT_SECONDS} s and was stopped`
    return passingError(message, PASSING[0]![1], result)
  }
  const tail = toTail(result.output)
  const cause = findCause(result.output, manifest)
  // Composer works without a cache too.
  const said = result.output.replace(/^Cannot create cache directory.*$/gm, '')
  const reading = [...PASSING, ...LASTING].find(([pattern]) => pattern.test(said))
  const message = `${label}: composer: ${tail === '' ? (result.problem ?? `exited with code ${result.code}`) : tail}`
  if (reading === undefined) return passingError(message, undefined, result)
  const hint = reading[1].replace('%s', () => cause ?? 'the package')
  if (PASSING.includes(reading)) return passingError(message, hint, result)
  const line = cause === null ? 1 : manifest.lineOf(cause)
  return installError(`${manifest.label}:${line}: ${message}`, { file: manifest.label, line }, hint, result)
}

/** The entry of the manifest that a failure is about: a package, else a text of the file. */
const CAUSES: readonly RegExp[] = [
  /Root composer\.json requires (?:PHP extension |linked library )?([\w./-]+)/i,
  /version constraint (.+?): Invalid/,
  /scan for classes inside "([^"]+)"/,
  /^ *- ([\w-]+)(?:[.[]\S*)? : /m,
]

function findCause(output: string, manifest: ComposerManifest): string | null {
  const found = CAUSES.map(pattern => pattern.exec(output)?.[1]).find(one => one !== undefined)
  return found ?? manifest.packages.find(name => output.includes(name)) ?? null
}

/** Steps, advice for a terminal, and how commands are written. */
const NOISE =
  /^(?:In \S+ line \d+:|(?:install|update) \[--|Loading |Updating dependencies|Installing dependencies|Verifying |Running update with|Lock file operations|Package operations|Problem \d+$|Writing lock|Generating |No composer\.lock|Warning: The lock file|Composer is operating|Cannot create cache directory|This usually happens|and prefer using|Nothing to|Your requirements could not|Potential causes|Use the option|Alternatively|Read (?:<|more)|see <|You can also try|To enable extensions|- (?:Locking|Downloading|Installing|A typo|It's a private|The package is not available)|[-/]\S+\.ini$|\d+ packages? )/i

const MAX_TAIL_LINES = 5
const MAX_TAIL_CHARS = 800

/** The lines of Composer's output that matter, in one. */
function toTail(output: string): string {
  const lines = output
    .split('\n')
    .map(line => line.replace(/\s+/g, ' ').trim())
    .filter(line => line !== '' && !NOISE.test(line))
  const text = lines
    .slice(0, MAX_TAIL_LINES)
    .map(line => line.replace(/^- /, ''))
    .join(' | ')
  return text.length <= MAX_TAIL_CHARS ? text : `${text.slice(0, MAX_TAIL_CHARS)}...`
}
