/** Runs pip, or uv where it is there, for one set of Python packages, and reads what went wrong. Owner: §2.16, page dependencies/python. */

import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { OwnFolder } from '../files/own-folder.ts'
import type { BuildTools } from './build.ts'
import type { ToolResult } from './run-tool.ts'
import { toPackageName } from './requirements.ts'

/** Lines of a tool's output that an error shows. */
const MAX_LINES = 4
const MAX_CHARS = 1000

/** Failures of the way to the packages, not of what was asked for. */
const PASSING =
  /NewConnectionError|ConnectTimeout|ReadTimeout|Read timed out|Max retries exceeded|name resolution|Connection (?:refused|reset)|ProxyError|RemoteDisconnected|ConnectionError|HTTP error 5\d\d|5\d\d (?:Server|Client) Error|error sending request|dns error|Failed to fetch|operation timed out|No space left on device/i
/** A package, or a version of it, that the index does not have. */
const NOT_FOUND = [
  /No matching distribution found for ([A-Za-z0-9][\w.-]*)/,
  /Because ([A-Za-z0-9][\w.-]*) was not found in/,
  /there (?:is|are) no versions? of ([A-Za-z0-9][\w.-]*)/,
  /[Nn]o wheels? (?:with|found)[^\n]* for ([A-Za-z0-9][\w.-]*)/,
]

interface PipRun {
  /** The interpreter that the packages are for. */
  python: string
  /** uv's program; null for pip. */
  uv: string | null
  /** Full path of the folder that is filled; it need not be there. */
  target: string
  /** Full paths of requirement files. */
  files: readonly string[]
  /** Where relative paths in them start. */
  cwd: string
  /** What the tool may write to, `target` in it; absent where it runs as the gateway. */
  draft?: OwnFolder
}

export interface PipFailure {
  /** What the tool said, the lines that matter. */
  message: string
  hint: string | null
  /** True when trying again may help. */
  isPassing: boolean
  /** A package that the index does not have, as indexes compare names. */
  missing: string | null
}

/** @returns null when the packages are there */
export async function runPip(
  { python, uv, target, files, cwd, draft }: PipRun,
  tools: BuildTools,
): Promise<PipFailure | null> {
  const requirements = files.flatMap(file => ['--requirement', file])
  const run =
    uv === null
      ? { command: python, args: ['-c', RUN_PIP, 'install', ...PIP_FLAGS, '--target', target, ...requirements] }
      : { command: uv, args: ['pip', 'install', ...UV_FLAGS, '--python', python, '--target', target, ...requirements] }
  // Nothing of the folder it runs in is imported by pip.
  const env = { PYTHONSAFEPATH: '1', PIP_ROOT_USER_ACTION: 'ignore', UV_NO_PROGRESS: '1', NO_COLOR: '1' }
  const result = await tools.run({ ...run, cwd, env, ...(draft !== undefined && { owns: draft }) })
  if (result.code === 0) return null
  return toFailure(uv === null ? 'pip install' : 'uv pip install', result)
}

/**
 * As `-m pip` does, but not named so: pyenv's programs would make their own folder anew after each, and two at once
 * fail where pip has succeeded.
 */
const RUN_PIP = 'import runpy; runpy.run_module("pip", run_name="__main__", alter_sys=True)'

const PIP_FLAGS = ['--no-input', '--disable-pip-version-check', '--no-warn-script-location', '--progress-bar', 'off']
const UV_FLAGS = ['--no-progress', '--color', 'never']

function toFailure(action: string, { output, code, timedOut, problem }: ToolResult): PipFailure {
  if (timedOut)
    return { message: `${action} took too long and was stopped`, hint: null, isPassing: true, missing: null }
  if (/No module named pip\b/.test(output)) {
    const message = 'the interpreter has no pip'
    const hint = 'install python3-pip, or uv (https://docs.astral.sh/uv), or set FN_UV_BIN to it'
    return { message, hint, isPassing: true, missing: null }
  }
  const isPassing = PASSING.test(output) || problem !== null
  const missing = isPassing ? null : (NOT_FOUND.map(pattern => pattern.exec(output)?.[1]).find(Boolean) ?? null)
  const tail = toTail(output)
  return {
    message: tail === '' ? (problem ?? `${action} exited with code ${code}`) : tail,
    hint: isPassing ? toPassingHint(output) : null,
    isPassing,
    missing: missing === null ? null : toPackageName(missing),
  }
}

function toPassingHint(output: string): string {
  return /No space left on device/i.test(output)
    ? 'make room on the disk of the functions root, of the temporary folder and of the cache; it is tried again'
    : 'the package index could not be reached; it is tried again'
}

/** All but the last five of the versions that pip lists, oldest first: there may be hundreds. */
const OLDER_VERSIONS = /(\(from versions: )[^()]*, (?=(?:[^(),]+, ){4}[^(),]+\))/

/** The lines that name the cause: pip marks them, uv draws a tree. */
function toTail(output: string): string {
  const lines = output
    .split('\n')
    .map(line => line.replace(/^[\s×╰├│─▶]+/u, '').trim())
    .filter(line => line !== '')
  const marked = lines
    .filter(line => /^(?:ERROR|error):/.test(line))
    .map(line => line.replace(/^(?:ERROR|error):\s*/, '').replace(OLDER_VERSIONS, '$1..., '))
  const because = lines.findIndex(line => /^(?:Because|(?:error: )?(?:No solution found|Failed to))/.test(line))
  const shown =
    because >= 0
      ? lines.slice(because, because + MAX_LINES)
      : marked.length > 0
        ? marked.slice(0, MAX_LINES)
        : lines.slice(-MAX_LINES)
  return shown.join(' | ').slice(0, MAX_CHARS)
}

/** A package of a set. */
interface Distribution {
  /** As its own metadata write it. */
  name: string
  version: string
}

/** What is installed in a folder, by name. */
export function listDistributions(folder: string): Distribution[] {
  return namesIn(folder)
    .filter(name => name.endsWith('.dist-info'))
    .flatMap(name => readMetadata(join(folder, name, 'METADATA')))
    .sort((a, b) => (toPackageName(a.name) < toPackageName(b.name) ? -1 : 1))
}

/** Top modules that a folder has, as imports name them. */
export function listModules(folder: string): Set<string> {
  const modules = new Set<string>()
  for (const name of namesIn(folder)) {
    if (/\.(?:dist-info|egg-info|data|libs)$/.test(name) || name === '__pycache__' || name === 'bin') continue
    const module = /^([A-Za-z_]\w*)(?:\.(?:py|pyc)|(?:\.[\w-]+)*\.(?:so|pyd))?$/.exec(name)?.[1]
    if (module !== undefined) modules.add(module)
  }
  return modules
}

function readMetadata(path: string): Distribution[] {
  try {
    const head = readFileSync(path, 'utf8').split('\n\n', 1)[0]!
    const name = /^Name:\s*(.+)$/m.exec(head)?.[1]?.trim()
    const version = /^Version:\s*(.+)$/m.exec(head)?.[1]?.trim()
    return name === undefined || version === undefined ? [] : [{ name, version }]
  } catch {
    return []
  }
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}
