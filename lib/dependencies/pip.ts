/** pip, or uv where it is there: its requirement lines, how it is run, and how its output and its packages are read. Owner: §2.16, page dependencies/python. */

import { join } from 'node:path'
import { INLINE_REQUIREMENTS_LINES } from '../core/limits.ts'
import { namesIn, type OwnFolder } from '../files/own-folder.ts'
import { tryRead } from './build.ts'
import type { BuildTools } from './run-tool.ts'
import { readFailure, type ToolFailure, toSigns } from './tool-failure.ts'

/** A package, or a version of it, that the index does not have. */
const NOT_FOUND: readonly [RegExp][] = [
  [/No matching distribution found for ([A-Za-z0-9][\w.-]*)/],
  [/Because ([A-Za-z0-9][\w.-]*) was not found in/],
  [/there (?:is|are) no versions? of ([A-Za-z0-9][\w.-]*)/],
  [/[Nn]o wheels? (?:with|found)[^\n]* for ([A-Za-z0-9][\w.-]*)/],
]

const SIGNS = [
  ...toSigns('passing', [
    [/No module named pip\b/, 'install python3-pip, or uv (https://docs.astral.sh/uv), or set FN_UV_BIN to it'],
    [
      /No space left on device/i,
      'make room on the disk of the functions root, of the temporary folder and of the cache; it is tried again',
    ],
    [
      /NewConnectionError|ConnectTimeout|ReadTimeout|Read timed out|Max retries exceeded|name resolution|Connection (?:refused|reset)|ProxyError|RemoteDisconnected|ConnectionError|HTTP error 5\d\d|5\d\d (?:Server|Client) Error|error sending request|dns error|Failed to fetch|operation timed out/i,
      'the package index could not be reached; it is tried again',
    ],
  ]),
  ...toSigns('lasting', NOT_FOUND),
]

const PIP_FLAGS = ['--no-input', '--disable-pip-version-check', '--no-warn-script-location', '--progress-bar', 'off']
const UV_FLAGS = ['--no-progress', '--color', 'never']
/**
 * As `-m pip` does, but not named so: pyenv's programs would remake their own folder after each, and two at once
 * fail where pip has succeeded.
 */
const RUN_PIP = 'import runpy; runpy.run_module("pip", run_name="__main__", alter_sys=True)'

interface PipRun {
  /** The interpreter that the packages are for. */
  python: string
  /** uv's program; null for pip. */
  uv: string | null
  /** Full path of the folder that is filled; it may be missing. */
  target: string
  /** Full paths of requirement files. */
  files: readonly string[]
  /** Where relative paths in them start. */
  cwd: string
  /** The folder that the tool may write to, `target` in it; absent where it runs as the gateway. */
  draft?: OwnFolder
}

/** @returns null when the packages are installed */
export async function runPip(run: PipRun, tools: BuildTools): Promise<ToolFailure | null> {
  const { python, uv, target, files, cwd, draft } = run
  const last = ['--target', target, ...files.flatMap(file => ['--requirement', file])]
  const call =
    uv === null
      ? { command: python, args: ['-c', RUN_PIP, 'install', ...PIP_FLAGS, ...last] }
      : { command: uv, args: ['pip', 'install', ...UV_FLAGS, '--python', python, ...last] }
  // Nothing of the folder it runs in is imported by pip.
  const env = { PYTHONSAFEPATH: '1', PIP_ROOT_USER_ACTION: 'ignore', UV_NO_PROGRESS: '1', NO_COLOR: '1' }
  const result = await tools.run({ ...call, cwd, env, ...(draft !== undefined && { owns: draft }) })
  if (result.code === 0) return null
  return readFailure(result, {
    tool: uv === null ? 'pip' : 'uv',
    signs: SIGNS,
    otherwise: 'lasting',
    maxLines: 4,
    maxChars: 1000,
    toLines,
    nameOf: toPackageName,
  })
}

/** All but the last five of the versions that pip lists, oldest first: there may be hundreds. */
const OLDER_VERSIONS = /(\(from versions: )[^()]*, (?=(?:[^(),]+, ){4}[^(),]+\))/

/** The lines that name the cause: pip marks them, uv draws a tree. */
function toLines(output: string): string[] {
  const lines = output
    .split('\n')
    .map(line => line.replace(/^[\s×╰├│─▶]+/u, '').trim())
    .filter(line => line !== '')
  const because = lines.findIndex(line => /^(?:Because|(?:error: )?(?:No solution found|Failed to))/.test(line))
  if (because >= 0) return lines.slice(because)
  const marked = lines.filter(line => /^(?:ERROR|error):/.test(line))
  if (marked.length === 0) return lines.slice(-4)
  return marked.map(line => line.replace(/^(?:ERROR|error):\s*/, '').replace(OLDER_VERSIONS, '$1..., '))
}

/** A package in a folder of installed ones. */
export interface Installed {
  name: string
  version: string
  /** Names of the packages that it needs, without those of its extras. */
  needs: readonly string[]
}

/** The packages in a folder, by name. */
export function listDistributions(folder: string): Installed[] {
  return namesIn(folder)
    .filter(name => name.endsWith('.dist-info'))
    .flatMap(name => readMetadata(join(folder, name, 'METADATA')))
    .sort((a, b) => (toPackageName(a.name) < toPackageName(b.name) ? -1 : 1))
}

/** Top modules that a folder has, as imports name them. */
export function listModules(folder: string): Set<string> {
  const names = namesIn(folder).filter(name => {
    return !/\.(?:dist-info|egg-info|data|libs)$/.test(name) && name !== '__pycache__' && name !== 'bin'
  })
  const pattern = /^([A-Za-z_]\w*)(?:\.(?:py|pyc)|(?:\.[\w-]+)*\.(?:so|pyd))?$/
  return new Set(names.flatMap(name => pattern.exec(name)?.[1] ?? []))
}

function readMetadata(path: string): Installed[] {
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
/** `pack.whl` could be the name of a package, and would be a file to pip. */
const FILE = /\.(?:whl|zip|tar\.(?:gz|bz2|xz))$/i

export interface Requirement {
  /** As it is written, on one line. */
  text: string
  /** As indexes compare it: lower case, `-` between words. */
  name: string
  /** From 1. */
  line: number
}

/** A line that is not a plain name. */
export interface OddLine {
  text: string
  line: number
  /** `option`: an option of pip; `address`: a URL or path; `unreadable`: none of these. */
  kind: 'option' | 'address' | 'unreadable'
}

export interface Requirements {
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
  const lines = source.split(/\r\n|\n|\r/, INLINE_REQUIREMENTS_LINES)
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

function addLine({ named, odd }: Requirements, text: string, line: number): void {
  const refuse = (kind: OddLine['kind'], end = '') =>
    odd.push({ text: text.slice(0, MAX_SHOWN_CHARS) + end, line, kind })
  if (text.length > MAX_REQUIREMENT_CHARS) return void refuse('unreadable', '...')
  const bare = text.replace(HASH, '')
  if (bare.startsWith('-')) return void refuse('option')
  const [stated = '', marker, ...rest] = bare.split(';').map(part => part.trim())
  const name = PLAIN.exec(stated)?.[1]
  const isMarked = marker === undefined || (rest.length === 0 && MARKER.test(marker))
  if (name !== undefined && isMarked && !FILE.test(stated)) named.push({ text, name: toPackageName(name), line })
  else refuse(ADDRESS.test(bare) ? 'address' : 'unreadable')
}
