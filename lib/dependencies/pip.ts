/** pip, or uv where it is there: what files may ask of it, how it is run, and what its output and its packages say. Owner: §2.16, page dependencies/python. */

import { join } from 'node:path'
import { namesIn, type OwnFolder } from '../files/own-folder.ts'
import { type BuildTools, tryRead } from './build.ts'
import type { ToolResult } from './run-tool.ts'

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
  /** The folder that the tool may write to, `target` in it; absent where it runs as the gateway. */
  draft?: OwnFolder
}

export interface PipFailure {
  /** The lines of the tool's output that matter. */
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
 * As `-m pip` does, but not named so: pyenv's programs would remake their own folder after each, and two at once
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

/** An installed package. */
interface Distribution {
  /** As its own metadata write it. */
  name: string
  version: string
  /** Names of the packages that it requires, without those of its extras. */
  needs: string[]
}

/** The packages in a folder, by name. */
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
  const [head = ''] = (tryRead(path) ?? '').split(/\r?\n\r?\n/, 1)
  const fieldsOf = (key: string) =>
    [...head.matchAll(new RegExp(`^${key}:\\s*(.+?)\\s*$`, 'gm'))].map(found => found[1]!)
  const [[name], [version]] = [fieldsOf('Name'), fieldsOf('Version')]
  if (name === undefined || version === undefined) return []
  const needs = fieldsOf('Requires-Dist')
    .filter(text => !/;.*\bextra\b/.test(text))
    .flatMap(text => /^[A-Za-z0-9._-]+/.exec(text)?.[0] ?? [])
  return [{ name, version, needs }]
}

// Requirements: `requirements.txt` line by line, and `#@requirements` comments. Lines that could lead the installer elsewhere (options,
// addresses, paths) are kept apart from names.

/** Lines of a handler that are looked through for `#@requirements` (§8). */
const INLINE_LINES = 30
/** Characters of one requirement with its hashes, and of the part that is shown of another line. */
const MAX_REQUIREMENT_CHARS = 64 * 1024
const MAX_SHOWN_CHARS = 200

const NAME = '[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?'
const VERSION = '(?:===|==|~=|!=|<=|>=|<|>)\\s*[A-Za-z0-9.*+!_-]+'
const SPECIFIER = `(?:\\(\\s*)?${VERSION}(?:\\s*,\\s*${VERSION})*(?:\\s*\\))?`
const EXTRAS = `\\[\\s*${NAME}(?:\\s*,\\s*${NAME})*\\s*\\]`
const PLAIN = new RegExp(`^(${NAME})\\s*(?:${EXTRAS})?\\s*(?:${SPECIFIER})?$`)
/** A condition: names, quoted texts, comparisons and brackets. */
const MARKER = /^[A-Za-z0-9_.,<>=!~()"' +*-]+$/
const HASH = /\s+--hash=[a-z0-9]+:[0-9a-fA-F]+/g
const ADDRESS = /:\/\/|\s@\s|^[.~/\\]|^[A-Za-z]:[\\/]|\.(?:whl|zip|tar\.(?:gz|bz2|xz))\b/

export interface Requirement {
  /** As it is written, on one line. */
  text: string
  /** As indexes compare it: lower case, `-` between words. */
  name: string
  /** From 1. */
  line: number
}

/** A line that is not a plain name. */
interface OddLine {
  text: string
  line: number
  /** `option`: an option of pip; `address`: a URL or path; `unreadable`: none of these. */
  kind: 'option' | 'address' | 'unreadable'
}

interface Requirements {
  named: Requirement[]
  odd: OddLine[]
}

/** `Foo_Bar.baz` and `foo-bar-baz` are one package. */
export function toPackageName(name: string): string {
  return name.toLowerCase().replace(/[-_.]+/g, '-')
}

/** A `requirements.txt`. Nothing in it is looked up: no environment variable, no other file. */
export function parseRequirements(text: string): Requirements {
  const found: Requirements = { named: [], odd: [] }
  const lines = text.replace(/^\ufeff/, '').split(/\r\n|\n|\r/)
  for (let at = 0; at < lines.length; at++) {
    const line = at + 1
    const parts = [lines[at]!]
    while (parts.at(-1)!.endsWith('\\') && at + 1 < lines.length) {
      parts.push(parts.pop()!.slice(0, -1), lines[++at]!)
    }
    const stated = toPlainBlanks(parts.join(' ')).replace(/(^| )#.*$/, '')
    if (stated !== '') addLine(found, stated, line)
  }
  return found
}

/** The `#@requirements` comments of a handler. */
export function parseInline(source: string): Requirements {
  const found: Requirements = { named: [], odd: [] }
  const lines = source.split(/\r\n|\n|\r/, INLINE_LINES)
  for (const [index, line] of lines.entries()) {
    const list = /^\s*#\s*@requirements(?:\s+|:\s*)([\s\S]*)$/.exec(line)?.[1]
    if (list === undefined) continue
    for (const text of splitList(toPlainBlanks(list))) addLine(found, text, index + 1)
  }
  return found
}

/**
 * One blank for each run of them: to pip some of these end a line, and patterns that look for several take long on thousands.
 */
function toPlainBlanks(text: string): string {
  return text.replace(/\s+/g, ' ').trim()
}

/** `a >= 1, < 2, b[x, y] c` to its three requirements. */
function splitList(list: string): string[] {
  const tight = list
    .replace(/\s*(===|==|~=|!=|<=|>=|<|>)\s*/g, '$1')
    .replace(/\[[^\]]*\]/g, extras => extras.replace(/\s+/g, ''))
    .replace(/,\s*(?=[<>=!~])/g, ',')
  return tight.split(/\s+|,(?![<>=!~])(?![^[]*\])/).filter(text => text !== '')
}

function addLine(found: Requirements, text: string, line: number): void {
  if (text.length > MAX_REQUIREMENT_CHARS) {
    found.odd.push({ text: `${text.slice(0, MAX_SHOWN_CHARS)}...`, line, kind: 'unreadable' })
    return
  }
  const bare = text.replace(HASH, '')
  if (bare.startsWith('-')) {
    found.odd.push({ text: text.slice(0, MAX_SHOWN_CHARS), line, kind: 'option' })
    return
  }
  const [stated = '', marker, ...rest] = bare.split(';')
  const name = PLAIN.exec(stated.trim())?.[1]
  const isMarked = marker === undefined || (rest.length === 0 && MARKER.test(marker.trim()))
  if (name !== undefined && isMarked && !isFileName(stated)) found.named.push({ text, name: toPackageName(name), line })
  else
    found.odd.push({ text: text.slice(0, MAX_SHOWN_CHARS), line, kind: ADDRESS.test(bare) ? 'address' : 'unreadable' })
}

/** `pack.whl` could be the name of a package, and would be a file to pip. */
function isFileName(text: string): boolean {
  return /\.(?:whl|zip|tar\.(?:gz|bz2|xz))$/i.test(text.trim())
}
