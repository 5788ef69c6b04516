/** Global settings: one declaration per option. Spec: §2.15. */

import { dirname, relative } from 'node:path'
import type { Warning } from '../core/errors.ts'
import { isObject } from '../core/json.ts'
import type { Field } from './fields.ts'
import {
  type Finding,
  isProblem,
  keyOf,
  type Place,
  report,
  reportNoEffect,
  reportUnknownKey,
  reportWrong,
  toPlace,
  toWarning,
} from './findings.ts'
import {
  BINARY_ENV,
  ENV_WITHOUT_EFFECT,
  PROGRAM,
  SETTING_OPTIONS,
  type SettingOption,
  type Settings,
  toFullProgram,
} from './setting-options.ts'

export type { Settings } from './setting-options.ts'

/** Settings in code: `createGateway(options)` takes the same settings in camelCase; null is the same as absent. */
export type SettingsInput = { [K in keyof Omit<Settings, Derived>]?: Settings[K] | null }
type Derived = 'runtimesExplicit' | 'portExplicit'

type SourceKind = 'option' | 'flag' | 'env' | 'file' | 'default'

/** Where a setting got its value; `name` is such as `options.port`, `--port`, `FN_PORT`, `fngw.json: port`. */
export interface SettingSource {
  source: SourceKind
  name: string
}

/** A given value that breaks its rule; the gateway must not start with it. */
export interface Problem extends Finding {
  source: SourceKind
}

/** Everything settings come from, strongest first. */
export interface SettingInputs {
  /** Of `createGateway`. */
  options?: Readonly<Record<string, unknown>> | SettingsInput
  /** By setting name, as commander gives them; only what was typed. */
  flags?: Readonly<Record<string, unknown>>
  env?: Readonly<Record<string, string | undefined>>
  /** Variables that come from an env file, with its full path (see `readEnvFiles`). */
  envFiles?: Readonly<Record<string, string>>
  /** The parsed project file, unchecked. */
  file?: unknown
  /** Its full path, for relative paths. */
  filePath?: string | null
  /** Its name in messages; default `filePath` relative to `cwd`. */
  fileLabel?: string
  cwd: string
  /** Defaults that the command changes, such as `{ production: true }` of `fngw run`. */
  defaults?: SettingsInput
}

export interface ResolvedSettings {
  /** Complete; a setting with a problem has its default here. */
  settings: Settings
  problems: Problem[]
  warnings: Warning[]
  /** By setting name; programs as `binaries.python`. */
  sources: Record<string, SettingSource>
  /** Full path of the project file that was read. */
  configFile: string | null
}

type Name = keyof SettingsInput
const OPTIONS = SETTING_OPTIONS as unknown as Readonly<Record<Name, SettingOption<unknown>>>

/** One place where a value was given. */
interface Candidate extends SettingSource {
  at: Place
  value: unknown
  /** Folder that relative paths start from. */
  base: string
  /** Reads it, where its form is not that of its setting. */
  field?: Field<unknown> | undefined
}

/**
 * Every setting from option, flag, environment, project file and default, in this order. Nothing is thrown: all problems
 * come back at once. A wrong value that a stronger source overrides is a warning.
 */
export function resolveSettings(inputs: SettingInputs): ResolvedSettings {
  const run = new Resolution(inputs)
  for (const name of Object.keys(OPTIONS) as Name[]) {
    if (name !== 'binaries') run.settle(name, run.candidates(name), OPTIONS[name])
  }
  run.settleBinaries()
  run.checkNames()
  return run.finish()
}

class Resolution {
  readonly problems: Problem[] = []
  readonly warnings: Warning[] = []
  readonly sources: Record<string, SettingSource> = {}
  readonly values = new Map<string, unknown>()
  readonly inputs: SettingInputs
  readonly fileLabel: string
  readonly fileDir: string
  readonly file: Record<string, unknown>
  readonly options: Record<string, unknown>

  constructor(inputs: SettingInputs) {
    const { file, filePath, cwd } = inputs
    this.inputs = inputs
    this.fileLabel = inputs.fileLabel ?? (filePath ? relative(cwd, filePath) || filePath : 'fngw.json')
    this.fileDir = filePath ? dirname(filePath) : cwd
    this.file = this.#checkHolder(file, toPlace(this.fileLabel, '', []), 'file')
    this.options = this.#checkHolder(inputs.options, toPlace(null, 'options', []), 'option')
  }

  /** A file or `options` of another type is a problem and sets nothing. */
  #checkHolder(holder: unknown, at: Place, source: SourceKind): Record<string, unknown> {
    if (isObject(holder)) return holder
    if (holder !== undefined && holder !== null) {
      reportWrong(at, 'an object', holder, 'Write { "functions-dir": "functions" }, or functionsRoot in code.')
      this.#take(at.findings, source, null)
    }
    return {}
  }

  /** Where `name` is given, strongest first. */
  candidates(name: Name): Candidate[] {
    const { key, keyAliases } = OPTIONS[name]
    const found = [...this.#fromCode(name), ...OPTIONS[name].env.flatMap(variable => this.fromEnv(variable, name))]
    for (const word of key === null ? [] : [key, ...keyAliases]) {
      if (isGiven(this.file, word)) found.push(this.#fromFile(word, this.file[word]))
    }
    return found
  }

  #fromCode(name: Name): Candidate[] {
    const { flags = {}, cwd } = this.inputs
    const found: Candidate[] = []
    const { secret, flags: spellings } = OPTIONS[name]
    const add = (source: SourceKind, shown: string, value: unknown) => {
      found.push({ source, name: shown, at: toPlace(null, shown, [], secret), value, base: cwd })
    }
    if (isGiven(this.options, name)) add('option', `options.${name}`, this.options[name])
    if (isGiven(flags, name)) add('flag', spellings[0]?.split(' ')[0] ?? `--${name}`, flags[name])
    return found
  }

  fromEnv(variable: string, name: Name): Candidate[] {
    const { env = {}, envFiles = {}, cwd } = this.inputs
    const value = Object.hasOwn(env, variable) ? env[variable] : undefined
    // `FN_PORT=` is how a shell or a compose file says that it sets nothing.
    if (value === undefined || value.trim() === '') return []
    const path = Object.hasOwn(envFiles, variable) ? envFiles[variable]! : null
    const label = path === null ? null : relative(cwd, path)
    const at = toPlace(label, variable, [], OPTIONS[name].secret)
    const shown = label === null ? variable : `${label}: ${variable}`
    const { envFields } = OPTIONS[name]
    return [
      { source: 'env', name: shown, at, value, base: path === null ? cwd : dirname(path), field: envFields[variable] },
    ]
  }

  #fromFile(key: string, value: unknown): Candidate {
    const at = toPlace(this.fileLabel, key, [])
    return { source: 'file', name: `${this.fileLabel}: ${key}`, at, value, base: this.fileDir }
  }

  /** Reads every candidate, keeps the first, and notes what is wrong with any. */
  settle(name: string, candidates: readonly Candidate[], option: Reader): void {
    const used = candidates[0]
    for (const candidate of candidates) {
      const { at, value, base } = candidate
      const given = readCandidate(candidate.field ?? option.field, candidate)
      this.#take(at.findings, candidate.source, candidate === used ? null : used!.name)
      if (candidate === used && given !== undefined && !at.findings.some(isProblem)) {
        this.values.set(name, option.locate ? option.locate(given, base) : given)
        this.sources[name] = { source: candidate.source, name: candidate.name }
      } else if (candidate !== used && used?.source === 'env' && candidate.source === 'env' && value !== used.value) {
        const findings: Finding[] = []
        const place = toPlace(at.file, at.name, findings)
        report(place, 'CONFIG_REPEATED', `is not used, because ${used.name} is given`, 'Keep one of them.')
        this.#take(findings, 'env', null)
      }
    }
  }

  /** Programs are settled tool by tool, so that a variable for one does not hide the file's others. */
  settleBinaries(): void {
    const { field } = SETTING_OPTIONS.binaries
    const maps = this.candidates('binaries').map(candidate => {
      const map = readCandidate(field, candidate)
      this.#take(candidate.at.findings, candidate.source, null)
      return { candidate, map: map ?? {} }
    })
    const binaries: Record<string, string> = {}
    for (const [tool, variable] of Object.entries(BINARY_ENV)) {
      const toCandidate = ({ candidate, map }: (typeof maps)[number]): Candidate[] => {
        const name = `${candidate.name}.${tool}`
        return map[tool] === undefined
          ? []
          : [{ ...candidate, name, at: { ...keyOf(candidate.at, tool), findings: [] }, value: map[tool] }]
      }
      const strong = maps.filter(({ candidate }) => candidate.source === 'option').flatMap(toCandidate)
      const weak = maps.filter(({ candidate }) => candidate.source !== 'option').flatMap(toCandidate)
      this.settle(`binaries.${tool}`, [...strong, ...this.fromEnv(variable, 'binaries'), ...weak], {
        field: PROGRAM,
        locate: toFullProgram,
      })
      const program = this.values.get(`binaries.${tool}`)
      if (typeof program === 'string') binaries[tool] = program
    }
    this.values.set('binaries', binaries)
    this.sources.binaries ??= { source: 'default', name: 'default' }
  }

  /** Names that nothing reads. */
  checkNames(): void {
    this.#take(checkOptionNames(this.options), 'option', null)
    this.#take(checkVariableNames(this.inputs), 'env', null)
    this.#take(checkFileKeys(this.file, this.fileLabel), 'file', null)
  }

  /** Files findings under problems or warnings. `overriddenBy`: the name of the stronger source that made them harmless. */
  #take(findings: readonly Finding[], source: SourceKind, overriddenBy: string | null): void {
    for (const finding of findings) {
      if (isProblem(finding) && overriddenBy === null) this.problems.push({ ...finding, source })
      else if (overriddenBy === null) this.warnings.push(toWarning(finding))
      else {
        const message = `${finding.message}; not used, because ${overriddenBy} is given`
        this.warnings.push(toWarning({ ...finding, message }))
      }
    }
  }

  finish(): ResolvedSettings {
    const { sources, inputs } = this
    const settings: Record<string, unknown> = {}
    for (const [name, row] of Object.entries(OPTIONS)) {
      settings[name] = this.values.get(name) ?? inputs.defaults?.[name as Name] ?? row.fallback
      sources[name] ??= { source: 'default', name: 'default' }
    }
    settings.functionsRoot ??= this.fileDir
    settings.hotReload ??= settings.production === false
    settings.runtimesExplicit = sources.runtimes!.source !== 'default'
    settings.portExplicit = sources.port!.source !== 'default'
    // Complete by construction: `Settings` has the rows of the table, and the four lines above give the rest.
    const { problems, warnings } = this
    return {
      settings: settings as unknown as Settings,
      problems,
      warnings,
      sources,
      configFile: inputs.filePath ?? null,
    }
  }
}

/** The part of a row that reads one value. */
interface Reader {
  readonly field: Field<unknown>
  locate?(value: unknown, base: string): unknown
}

/** Variables and flags are texts; options and files hold values of the right type. */
function readCandidate<T>(field: Field<T>, { source, value, at }: Candidate): T | undefined {
  const isText = typeof value === 'string' && (source === 'env' || source === 'flag')
  return isText ? field.readText(value, at) : field.read(value, at)
}

function isGiven(holder: Readonly<Record<string, unknown>>, name: string): boolean {
  const value = Object.hasOwn(holder, name) ? holder[name] : undefined
  return value !== undefined && value !== null
}

// Unknown names of settings: a typo would otherwise be a silent default.

/** Options of `createGateway` that are no settings. */
const HOST_OPTIONS = ['env', 'project', 'cwd', 'clock', 'inspect', 'flags', 'defaults', 'beforeStart']
const ROWS = Object.values(SETTING_OPTIONS)

interface GivenVariables {
  env?: Readonly<Record<string, string | undefined>>
  /** Variables that come from an env file, with its full path. */
  envFiles?: Readonly<Record<string, string>>
  cwd: string
}

/** Of all variables only those that begin with `FN_` are meant for the gateway. */
function checkVariableNames({ env = {}, envFiles = {}, cwd }: GivenVariables): Finding[] {
  const findings: Finding[] = []
  const known = new Set([...ROWS.flatMap(row => [...row.env]), ...Object.values(BINARY_ENV)])
  for (const variable of Object.keys(env).sort()) {
    if (!variable.startsWith('FN_') || known.has(variable) || env[variable] === undefined) continue
    const file = Object.hasOwn(envFiles, variable) ? relative(cwd, envFiles[variable]!) : null
    const at = toPlace(file, variable, findings)
    const why = Object.hasOwn(ENV_WITHOUT_EFFECT, variable) ? ENV_WITHOUT_EFFECT[variable] : undefined
    if (why === undefined) reportUnknownKey(at, variable, known, 'variable')
    else reportNoEffect(at, why)
  }
  return findings
}

/** Keys of the project file; a newer version may know them, so none is a problem. */
function checkFileKeys(file: Readonly<Record<string, unknown>>, fileLabel: string): Finding[] {
  const findings: Finding[] = []
  const known = ROWS.flatMap(row => (row.key === null ? [] : [row.key, ...row.keyAliases]))
  for (const key of Object.keys(file)) {
    if (key === '$schema' || known.includes(key)) continue
    reportUnknownKey(keyOf(toPlace(fileLabel, '', findings), key), key, known)
  }
  return findings
}

/** Options in code: an unknown one is a problem, because the programmer sees it at once. */
function checkOptionNames(options: Readonly<Record<string, unknown>>): Finding[] {
  const findings: Finding[] = []
  const known = [...Object.keys(SETTING_OPTIONS), ...HOST_OPTIONS]
  for (const name of Object.keys(options)) {
    if (Object.hasOwn(SETTING_OPTIONS, name)) continue
    reportUnknownKey(toPlace(null, `options.${name}`, findings), name, known, 'option', true)
  }
  return findings
}
