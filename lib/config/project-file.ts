/** Finds and reads `fngw.json` and the env files beside it: the only file of this folder that touches the disk. Spec: §2.15. */

import { existsSync, readFileSync, statSync } from 'node:fs'
import { basename, dirname, join, relative, resolve } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import type { HostEnv } from '../core/host.ts'
import { isObject } from '../core/json.ts'
import { MAX_CONFIG_FILE_BYTES } from '../core/limits.ts'
import {
  type Finding,
  isProblem,
  keyOf,
  type Place,
  readJsonFile,
  report,
  reportNoEffect,
  reportWrong,
  showText,
  toPlace,
  toWarning,
} from './fields.ts'
import { type OuterEnv, parseDotenv, toFunctionDefaults } from './function-env.ts'
import { type Problem, type ResolvedSettings, resolveSettings, type SettingInputs } from './settings.ts'

const PROJECT_FILE = 'fngw.json'
/** Env files of a project; a later one wins. */
export const ENV_FILES = ['.env', '.env.local'] as const

interface ProjectFile {
  /** Full path. */
  path: string
  /** Name in messages: the path relative to the working directory, or `package.json#fngw`. */
  label: string
  /** Parsed, unchecked. */
  value: unknown
}

interface ProjectSearch {
  cwd: string
  /** Value of `--config`. */
  explicit?: string | null
  /** User whose files are trusted besides root's; default the user of this process, null trusts all. */
  uid?: number | null
}

/**
 * Looks for the project file: `explicit`; else `fngw.json` in `cwd` and its parents up to the folder that holds `.git` (or
 * the file-system root); else the key `fngw` of `package.json` in `cwd`; else `fastfn.json` where `fngw.json` may be. Findings
 * with code CONFIG_VALUE or CONFIG_NOT_JSON are problems: a file that was found and cannot be used is never skipped silently.
 * @returns `file` - null: there is none, or it cannot be used (see `findings`)
 */
export function findProjectFile({ cwd, explicit = null, uid }: ProjectSearch) {
  const findings: Finding[] = []
  if (explicit !== null) return { file: read(resolve(cwd, explicit), cwd, findings, '--config'), findings }
  const owner = uid === undefined ? (process.getuid?.() ?? null) : uid
  const own = search(PROJECT_FILE, cwd, owner, findings)
  if (own !== null) return { file: read(own, cwd, findings, null), findings }
  const inPackage = readPackage(cwd, findings)
  if (inPackage !== null || findings.some(isProblem)) return { file: inPackage, findings }
  const foreign = search(FASTFN_FILE, cwd, owner, findings)
  return { file: foreign === null ? null : read(foreign, cwd, findings, null), findings }
}

function search(name: string, cwd: string, uid: number | null, findings: Finding[]): string | null {
  for (let folder = resolve(cwd); ; folder = dirname(folder)) {
    const path = join(folder, name)
    if (existsSync(path) && (folder === resolve(cwd) || isTrusted(path, uid, cwd, findings))) return path
    if (existsSync(join(folder, '.git')) || dirname(folder) === folder) return null
  }
}

/** A file planted in a shared parent folder (`/tmp/fngw.json`) could name programs to run: another user's is not used. */
function isTrusted(path: string, uid: number | null, cwd: string, findings: Finding[]): boolean {
  if (uid === null) return true
  const stat = statSync(path, { throwIfNoEntry: false })
  if (stat !== undefined && (stat.uid === uid || stat.uid === 0) && (stat.mode & 0o002) === 0) return true
  const at = toPlace(relative(cwd, path), '', findings)
  const text = 'is not used: it is in a parent folder and another user can change it'
  report(at, 'CONFIG_NO_EFFECT', text, `Run from its folder, or give --config ${showText(path)}.`)
  return false
}

function read(path: string, cwd: string, findings: Finding[], askedBy: string | null): ProjectFile | null {
  const label = relative(cwd, path) || path
  const bytes = readBytes(path, label, findings, askedBy)
  if (bytes === null) return null
  const value = readJsonFile(bytes, label, findings)
  if (value === undefined) return null
  return { path, label, value: basename(path) === FASTFN_FILE ? fromFastFn(value, label, findings) : value }
}

function readPackage(cwd: string, findings: Finding[]): ProjectFile | null {
  const path = join(cwd, 'package.json')
  if (!existsSync(path)) return null
  const ignored: Finding[] = []
  const bytes = readBytes(path, 'package.json', ignored, null)
  // A package.json that cannot be read says nothing about this project; its own tools complain about it.
  const value = bytes === null ? undefined : readJsonFile(bytes, 'package.json', ignored)
  if (!isObject(value) || !Object.hasOwn(value, 'fngw')) return null
  if (isObject(value.fngw)) return { path, label: 'package.json#fngw', value: value.fngw }
  reportWrong(toPlace('package.json', 'fngw', findings), 'an object', value.fngw, 'Write "fngw": {}.')
  return null
}

function readBytes(path: string, label: string, findings: Finding[], askedBy: string | null): Uint8Array | null {
  const at = askedBy === null ? toPlace(label, '', findings) : toPlace(null, `${askedBy} ${showText(label)}`, findings)
  const refuse = (text: string, hint: string): null => {
    report(at, 'CONFIG_VALUE', text, hint)
    return null
  }
  try {
    const stat = statSync(path)
    // Reading a pipe or a device could wait for ever.
    if (!stat.isFile()) return refuse('cannot be read: it is not a regular file', 'Name a file.')
    if (stat.size <= MAX_CONFIG_FILE_BYTES) return readFileSync(path)
    return refuse(`has ${stat.size} bytes, at most ${MAX_CONFIG_FILE_BYTES} are read`, 'Make the file smaller.')
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown'
    return refuse(`cannot be read: ${REASONS[code] ?? code}`, 'Check its name and its permissions.')
  }
}

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file',
  EACCES: 'permission denied',
  ENOTDIR: 'a part of its path is not a folder',
  ELOOP: 'its links form a loop',
}

interface ReadEnv {
  /** `env` over the files' variables. */
  env: Record<string, string | undefined>
  /** Full path of the file a variable comes from; absent for those of the process. */
  envFiles: Record<string, string>
  /** Values of the files, without those of the process. */
  values: Record<string, string>
  findings: Finding[]
}

/**
 * The variables of `.env` and `.env.local` in `dir` below those of the process, which always win.
 * @param env - variables of the process
 * @param cwd - folder that names in messages are relative to
 */
export function readEnvFiles(dir: string, env: Readonly<Record<string, string | undefined>>, cwd: string): ReadEnv {
  const findings: Finding[] = []
  const envFiles: Record<string, string> = Object.create(null)
  const values: Record<string, string> = Object.create(null)
  for (const name of ENV_FILES) {
    const path = join(dir, name)
    const label = relative(cwd, path)
    const bytes = existsSync(path) ? readBytes(path, label, findings, null) : null
    if (bytes === null) continue
    for (const [key, value] of Object.entries(parseDotenv(new TextDecoder().decode(bytes), label, findings))) {
      values[key] = value
      if (env[key] === undefined) envFiles[key] = path
    }
  }
  const given = Object.entries(env).filter(([, value]) => value !== undefined)
  return { env: Object.assign(Object.create(null), values, Object.fromEntries(given)), envFiles, values, findings }
}

/**
 * Reads what functions get from outside their root: the project's env files, read at each call, and the process. The object
 * is the same one while nothing changed. A file that cannot be read sets nothing; `loadSettings` has reported it.
 * @param dir - folder of the project's env files; null reads none
 */
export function createOuterEnvReader(dir: string | null, process: HostEnv): () => OuterEnv {
  let last: OuterEnv = { defaults: {}, process }
  return () => {
    if (dir === null) return last
    const defaults = toFunctionDefaults(readEnvFiles(dir, {}, dir).values)
    if (!isDeepStrictEqual(defaults, last.defaults)) last = { defaults, process }
    return last
  }
}

interface LoadedSettings extends ResolvedSettings {
  /** Folder whose env files were read. */
  envDir: string
}

/** The inputs that `loadSettings` cannot find by itself. */
type LoadInputs = Pick<SettingInputs, 'options' | 'flags' | 'env' | 'cwd' | 'defaults'> &
  Pick<ProjectSearch, 'explicit'>

/** Finds the project file and the env files beside it (else in `cwd`), and resolves every setting. Never throws. */
export function loadSettings({ explicit = null, env = {}, ...inputs }: LoadInputs): LoadedSettings {
  const { cwd } = inputs
  const project = findProjectFile({ cwd, explicit })
  const envDir = project.file === null ? cwd : dirname(project.file.path)
  const read = readEnvFiles(envDir, env, cwd)
  const resolved = resolveSettings({
    ...inputs,
    env: read.env,
    envFiles: read.envFiles,
    ...(project.file && { file: project.file.value, filePath: project.file.path, fileLabel: project.file.label }),
  })
  const findings = [...project.findings, ...read.findings]
  if (resolved.sources.functionsRoot?.source === 'flag')
    reportUnread(resolved.settings.functionsRoot, cwd, resolved.configFile, findings)
  const problems = findings.filter(isProblem).map(finding => ({ ...finding, source: 'file' as const }))
  const warnings = findings.filter(finding => !isProblem(finding)).map(toWarning)
  return {
    ...resolved,
    problems: [...problems, ...resolved.problems],
    warnings: [...warnings, ...resolved.warnings],
    envDir,
  }
}

/** A user who names a folder on the command line may expect the project file in it to be read. */
function reportUnread(folder: string, cwd: string, used: string | null, findings: Finding[]): void {
  const path = join(folder, PROJECT_FILE)
  if (path === used || !existsSync(path)) return
  const label = relative(cwd, path)
  const why = 'fngw reads the project file of the working directory, or of a folder above it'
  const hint = `Start fngw in ${relative(cwd, folder)} and name no folder, or write --config ${label} instead of the folder.`
  report(toPlace(label, '', findings), 'CONFIG_NO_EFFECT', `has no effect: ${why}`, hint)
}

/** A mistyped functions root is a problem; one that goes away later is waited for. */
export function checkRoot({ settings, sources }: Pick<ResolvedSettings, 'settings' | 'sources'>): Problem[] {
  const { functionsRoot } = settings
  if (statSync(functionsRoot, { throwIfNoEntry: false })?.isDirectory() === true) return []
  const { source, name } = sources.functionsRoot ?? { source: 'default', name: 'functions root' }
  const rule = 'a folder that exists'
  const value = `${JSON.stringify(functionsRoot)} (string)`
  const message = `${name} must be ${rule}, got ${value}`
  const hint = 'make the folder, or name the one that holds the handler files'
  return [{ code: 'CONFIG_VALUE', file: null, name, rule, value, message, hint, source }]
}

// `fastfn.json`, the project file of FastFN, in the words of `fngw.json`.

const FASTFN_FILE = 'fastfn.json'

/** Keys that have no counterpart, with what there is instead. */
const WITHOUT_COUNTERPART: Readonly<Record<string, string>> = {
  domains: 'names and certificates are the business of the proxy in front',
}
const PROGRAMS = 'runtime-binaries'
const PROGRAMS_WITHOUT_COUNTERPART: Readonly<Record<string, string>> = { openresty: 'the gateway serves HTTP itself' }

/**
 * The content of a `fastfn.json` as that of a `fngw.json`: keys in any of its spellings become ours, those without a
 * counterpart go with a note. Values are checked later, like those of any project file.
 */
export function fromFastFn(value: unknown, label: string, findings: Finding[]): unknown {
  const at = toPlace(label, '', findings)
  report(at, 'CONFIG_FOREIGN_FILE', 'is read as the project file', 'Rename it to fngw.json.')
  if (!isObject(value)) return value
  const result: Record<string, unknown> = Object.create(null)
  for (const [key, item] of Object.entries(value)) {
    const name = toKebab(key)
    if (Object.hasOwn(WITHOUT_COUNTERPART, name)) reportNoEffect(keyOf(at, key), WITHOUT_COUNTERPART[name]!)
    else result[name] = name === PROGRAMS ? withoutForeignPrograms(item, keyOf(at, key)) : item
  }
  return result
}

/** Programs may be an object or a text such as `python=python3,openresty=/usr/bin/openresty`. */
function withoutForeignPrograms(programs: unknown, at: Place): unknown {
  const isForeign = (tool: string): boolean => {
    if (!Object.hasOwn(PROGRAMS_WITHOUT_COUNTERPART, tool)) return false
    reportNoEffect(keyOf(at, tool), PROGRAMS_WITHOUT_COUNTERPART[tool]!)
    return true
  }
  if (typeof programs === 'string') {
    const parts = programs.split(',')
    return parts.filter(part => !isForeign(part.split('=')[0]!.trim())).join(',')
  }
  if (!isObject(programs)) return programs
  return Object.fromEntries(Object.entries(programs).filter(([tool]) => !isForeign(tool)))
}

/** `functionsDir` and `functions_dir` to `functions-dir`. */
function toKebab(key: string): string {
  return key.replace(/(?<=[a-z0-9])_?([A-Z])|(?<=[a-z0-9])_(?=[a-z0-9])/g, '-$1').toLowerCase()
}
