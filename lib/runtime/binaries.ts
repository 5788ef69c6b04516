/** Host programs behind runtimes: which one, where, how to get it. Owner: §2.15 (`FN_*_BIN`), page runtime/daemon. */

import { orNull } from '../core/errors.ts'
import { spawnSync } from 'node:child_process'
import { accessSync, constants, existsSync, statSync } from 'node:fs'
import { delimiter, join, resolve } from 'node:path'
import type { RuntimeName } from '../core/identity.ts'

/** Milliseconds that a tool may take to name its version. */
const PROBE_MS = 10_000
/** Characters of what it says when it fails. */
const PROBE_CHARS = 300

const MANAGERS = {
  'apt-get': { paths: ['/usr/bin/apt-get'], command: 'apt-get install' },
  dnf: { paths: ['/usr/bin/dnf'], command: 'dnf install' },
  pacman: { paths: ['/usr/bin/pacman'], command: 'pacman -S' },
  apk: { paths: ['/sbin/apk'], command: 'apk add' },
  brew: { paths: ['/opt/homebrew/bin/brew', '/usr/local/bin/brew'], command: 'brew install' },
} as const
type Manager = keyof typeof MANAGERS

/** How to get a program. */
interface Source {
  /** Packages by manager. Only those that give a program new enough, under the name that is looked for. */
  packages: Readonly<Partial<Record<Manager, string>>>
  website: string
  /** Hint for the images of the Dockerfile, whose user cannot install programs. */
  inImage: string
}

interface ProgramInfo extends Source {
  /** Key in `Settings.binaries`. */
  tool: string
  setting: string
  /** Names searched on PATH, in order; none when this process's own program is the default. */
  names: readonly string[]
  /** Oldest version that works. */
  oldest: readonly [major: number, minor: number]
  /** Argument with which it ends at once, for a tool that the gateway starts only when it builds. */
  probe?: string
}

const PROGRAMS: Readonly<Partial<Record<RuntimeName, ProgramInfo>>> = {
  python: {
    ...{ tool: 'python', setting: 'FN_PYTHON_BIN', names: ['python3', 'python'], oldest: [3, 9] },
    packages: { 'apt-get': 'python3', dnf: 'python3', pacman: 'python', apk: 'python3', brew: 'python' },
    website: 'https://www.python.org/downloads/',
    inImage: 'use the image target python or full',
  },
  node: {
    ...{ tool: 'node', setting: 'FN_NODE_BIN', names: [], oldest: [20, 19] },
    packages: {},
    website: 'https://nodejs.org',
    inImage: 'build the image with another NODE_IMAGE',
  },
  php: {
    ...{ tool: 'php', setting: 'FN_PHP_BIN', names: ['php'], oldest: [8, 0] },
    // Process control is a separate package with dnf; apk has it only under names with a version.
    packages: { 'apt-get': 'php-cli', dnf: 'php-cli php-process', pacman: 'php', brew: 'php' },
    website: 'https://www.php.net/downloads',
    inImage: 'use the image target php or full',
  },
  go: {
    ...{ tool: 'go', setting: 'FN_GO_BIN', names: ['go'], oldest: [1, 20], probe: 'version' },
    // Stable Debian's is older than what is needed.
    packages: { dnf: 'golang', pacman: 'go', apk: 'go', brew: 'go' },
    website: 'https://go.dev/dl/',
    inImage: 'add it to an image made from the target full',
  },
  rust: {
    ...{ tool: 'cargo', setting: 'FN_CARGO_BIN', names: ['cargo'], oldest: [1, 70], probe: '-V' },
    packages: {},
    website: 'https://rustup.rs',
    inImage: 'add it to an image made from the target full',
  },
}

const COMPOSER: Source = {
  packages: { 'apt-get': 'composer', dnf: 'composer', pacman: 'composer', apk: 'composer', brew: 'composer' },
  website: 'https://getcomposer.org/download/',
  inImage: 'use the image target full',
}

/** A program that was found, or why not. `version` is that of a build tool that was started. */
type Program = { path: string; problem: null; version?: string } | { path: null; problem: string; version?: never }

/**
 * The program a runtime needs. Lua needs none.
 * @param binaries - `Settings.binaries`: full paths or names, by tool
 * @param pathText - the PATH to search
 */
export function findProgram(
  runtime: RuntimeName,
  binaries: Readonly<Record<string, string>>,
  pathText: string,
): Program {
  const info = PROGRAMS[runtime]
  const configured = binaries[info?.tool ?? ''] ?? ''
  if (info === undefined || (configured === '' && info.names.length === 0))
    return { path: process.execPath, problem: null }
  const tools = configured === '' ? info.names : [info.tool]
  for (const tool of tools) {
    const path = findTool(tool, binaries, pathText)
    if (path !== null) return { path, problem: null }
  }
  const problem =
    configured === ''
      ? `${info.names[0]} not found: ${toFix(runtime, info)}`
      : `${info.setting} is ${configured}, which is not an executable program`
  return { path: null, problem }
}

/**
 * As `findProgram`, and starts a build tool once: a shim of rustup without a toolchain behind it counts as missing.
 * @param hostEnv - variables of the host, with its PATH
 */
export function findToolchain(
  runtime: RuntimeName,
  binaries: Readonly<Record<string, string>>,
  hostEnv: Readonly<Record<string, string | undefined>>,
): Program {
  const found = findProgram(runtime, binaries, hostEnv.PATH ?? '')
  const info = PROGRAMS[runtime]
  if (found.path === null || info?.probe === undefined) return found
  const options = { env: hostEnv, encoding: 'utf8', timeout: PROBE_MS } as const
  const { status, error, stdout, stderr } = spawnSync(found.path, [info.probe], options)
  if (status === 0) {
    const version = /\d+\.\d+[\w.-]*/.exec(stdout)?.[0]
    return version === undefined ? found : { ...found, version }
  }
  const said = error?.message ?? stderr.trim().replace(/\s*\n\s*/g, ' ')
  const reason = said === '' ? `it ended with code ${status}` : said.slice(0, PROBE_CHARS)
  return { path: null, problem: `${found.path} does not run: ${reason}; ${toFix(runtime, info, true)}` }
}

/**
 * Why a version is too old for the runtime, null when it is not.
 * @param version - such as `3.11.7`
 */
export function findVersionProblem(runtime: RuntimeName, version: string): string | null {
  const info = PROGRAMS[runtime]
  const match = /^(\d+)\.(\d+)/.exec(version)
  if (info === undefined || match === null) return null
  const [major, minor] = info.oldest
  const given = [Number(match[1]), Number(match[2])] as const
  if (given[0] > major || (given[0] === major && given[1] >= minor)) return null
  return `${runtime} ${version} is too old: ${major}.${minor} or newer is needed; ${toFix(runtime, info, true)}`
}

/** How to get the runtime's program, for warnings. */
export function toInstallAdvice(runtime: RuntimeName): string {
  const info = PROGRAMS[runtime]
  if (info === undefined) return ''
  return isInImage() ? info.inImage : `${toInstallHint(runtime)}, or set ${info.setting} to its full path`
}

/** The same, in a message. An image has the programs it has. */
function toFix(runtime: RuntimeName, { setting, inImage }: ProgramInfo, isThere = false): string {
  return isInImage() ? inImage : `${toInstallHint(runtime, isThere)} or set ${setting}`
}

/** As `findProgram`, for a tool such as `uv`. @returns full path; null when it is not there */
export function findTool(tool: string, binaries: Readonly<Record<string, string>>, pathText: string): string | null {
  const configured = binaries[tool] ?? ''
  if (configured.includes('/')) return toExecutable(resolve(configured))
  return findOnPath(configured === '' ? tool : configured, pathText)
}

/** Full path of a program, null when no folder of PATH has it. */
export function findOnPath(name: string, pathText: string): string | null {
  for (const folder of pathText.split(delimiter)) {
    const found = folder === '' ? null : toExecutable(join(folder, name))
    if (found !== null) return found
  }
  return null
}

function toExecutable(path: string): string | null {
  return orNull(() => {
    accessSync(path, constants.X_OK)
    return statSync(path).isFile() ? path : null
  })
}

/** True in the images of the Dockerfile. */
function isInImage(): boolean {
  return process.env.FNGW_IMAGE === '1'
}

/**
 * Words such as `install it (apt-get install php-cli)`: a command only where its package manager is on this machine.
 * @param isTooOld - true when the program is there: the package manager would give the same one again
 * @param exists - whether a file is there
 */
export function toInstallHint(
  wanted: RuntimeName | 'composer',
  isTooOld = false,
  exists: (path: string) => boolean = existsSync,
  inImage = isInImage(),
): string {
  const source = wanted === 'composer' ? COMPOSER : PROGRAMS[wanted]
  if (source === undefined) return ''
  if (inImage) return source.inImage
  for (const [name, { paths, command }] of Object.entries(MANAGERS)) {
    const packages = source.packages[name as Manager]
    if (!isTooOld && packages !== undefined && paths.some(exists)) return `install it (${command} ${packages})`
  }
  return `install it from ${source.website}`
}
