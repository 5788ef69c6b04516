/** Global settings: one declaration per option. Spec: §2.15. */

import { dirname, relative } from 'node:path'
import type { Warning } from '../core/errors.ts'
import { isObject } from '../core/json.ts'
import {
  type Field,
  type Finding,
  isProblem,
  keyOf,
  type Place,
  reportNoEffect,
  reportRepeated,
  reportUnknownKey,
  reportWrong,
  toPlace,
  toWarning,
} from './fields.ts'
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

/** The settings as options of `createGateway`. Null is the same as absent. */
export type SettingsInput = { [K in keyof Omit<Settings, Derived>]?: Settings[K] | null }
type Derived = 'runtimesExplicit' | 'portExplicit'

type SourceKind = 'option' | 'flag' | 'env' | 'file' | 'default'

/** Where a setting got its value. `name` is for example `options.port`, `--port`, `FN_PORT` or `fngw.json: port`. */
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

/** One place where a value is given. */
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
  return new Resolution(inputs).run()
}

/** Options of `createGateway` that are not settings. */
const HOST_OPTIONS = ['env', 'project', 'cwd', 'clock', 'inspect', 'flags', 'defaults', 'beforeStart']

class Resolution {
  readonly #problems: Problem[] = []
  readonly #warnings: Warning[] = []
  readonly #sources: Record<string, SettingSource> = {}
  readonly #values = new Map<string, unknown>()
  readonly #inputs: SettingInputs
  readonly #fileLabel: string
  readonly #fileDir: string
  readonly #file: Record<string, unknown>
  readonly #options: Record<string, unknown>

  constructor(inputs: SettingInputs) {
    const { file, filePath, cwd } = inputs
    this.#inputs = inputs
    this.#fileLabel = inputs.fileLabel ?? (filePath ? relative(cwd, filePath) || filePath : 'fngw.json')
    this.#fileDir = filePath ? dirname(filePath) : cwd
    this.#file = this.#checkHolder(file, toPlace(this.#fileLabel, '', []), 'file')
    this.#options = this.#checkHolder(inputs.options, toPlace(null, 'options', []), 'option')
  }

  /** A file or `options` of another type is a problem and sets nothing. */
  #checkHolder(holder: unknown, at: Place, source: SourceKind): Record<string, unknown> {
    if (isObject(holder)) return holder
    if (holder !== undefined && holder !== null) {
      reportWrong(at, 'an object', holder, 'Write { "functions-dir": "functions" }, or functionsRoot in code.')
      this.#take(at.findings, source)
    }
    return {}
  }

  run(): ResolvedSettings {
    for (const name of Object.keys(OPTIONS) as Name[]) {
      if (name !== 'binaries') this.#settle(name, this.#candidates(name), OPTIONS[name])
    }
    this.#settleBinaries()
    this.#checkNames()
    const sources = this.#sources
    const settings: Record<string, unknown> = {}
    for (const [name, { fallback }] of Object.entries(OPTIONS)) {
      settings[name] = this.#values.get(name) ?? this.#inputs.defaults?.[name as Name] ?? fallback
      sources[name] ??= { source: 'default', name: 'default' }
    }
    settings.functionsRoot ??= this.#fileDir
    settings.hotReload ??= settings.production === false
    settings.runtimesExplicit = sources.runtimes!.source !== 'default'
    settings.portExplicit = sources.port!.source !== 'default'
    return {
      // Complete by construction: `Settings` has the rows of the table, and the four lines above give the rest.
      settings: settings as unknown as Settings,
      problems: this.#problems,
      warnings: this.#warnings,
      sources,
      configFile: this.#inputs.filePath ?? null,
    }
  }

  /** Where a setting is given, strongest first. */
  #candidates(name: Name): Candidate[] {
    const { flags = {}, cwd } = this.#inputs
    const { env, key, keyAliases, flags: spellings, secret } = OPTIONS[name]
    const inCode = (source: SourceKind, shown: string, value: unknown): Candidate => {
      return { source, name: shown, at: toPlace(null, shown, [], secret), value, base: cwd }
    }
    const inFile = (word: string): Candidate => {
      const shown = `${this.#fileLabel}: ${word}`
      const at = toPlace(this.#fileLabel, word, [])
      return { source: 'file', name: shown, at, value: ownValue(this.#file, word), base: this.#fileDir }
    }
    const candidates = [
      inCode('option', `options.${name}`, ownValue(this.#options, name)),
      inCode('flag', spellings[0]?.split(' ')[0] ?? `--${name}`, ownValue(flags, name)),
      ...env.map(variable => this.#fromEnv(variable, name)),
      ...(key === null ? [] : [key, ...keyAliases]).map(inFile),
    ]
    return candidates.filter(isGiven)
  }

  #fromEnv(variable: string, name: Name): Candidate {
    const { env = {}, envFiles = {}, cwd } = this.#inputs
    const { envFields, secret } = OPTIONS[name]
    const text = ownValue(env, variable)
    const path = ownValue(envFiles, variable) ?? null
    const label = path === null ? null : relative(cwd, path)
    return {
      source: 'env',
      name: label === null ? variable : `${label}: ${variable}`,
      at: toPlace(label, variable, [], secret),
      // `FN_PORT=` is how a shell or a compose file sets nothing.
      value: text?.trim() === '' ? undefined : text,
      base: path === null ? cwd : dirname(path),
      field: envFields[variable],
    }
  }

  /** Reads every candidate, keeps the first, and notes what is wrong with any. */
  #settle(
    name: string,
    candidates: readonly Candidate[],
    { field, locate }: Pick<SettingOption<unknown>, 'field' | 'locate'>,
  ): void {
    const used = candidates[0]
    for (const candidate of candidates) {
      const { at, source, value, base } = candidate
      const given = readCandidate(candidate.field ?? field, candidate)
      const isUsed = candidate === used
      this.#take(at.findings, source, isUsed ? null : used!.name)
      if (isUsed && given !== undefined && !at.findings.some(isProblem)) {
        this.#values.set(name, locate ? locate(given, base) : given)
        this.#sources[name] = { source, name: candidate.name }
      } else if (!isUsed && used?.source === 'env' && source === 'env' && value !== used.value) {
        const place = toPlace(at.file, at.name, [])
        reportRepeated(place, `is not used, because ${used.name} is given`)
        this.#take(place.findings, 'env')
      }
    }
  }

  /** Programs are settled tool by tool, so that a variable for one does not hide the file's others. */
  #settleBinaries(): void {
    const maps = this.#candidates('binaries').map(candidate => {
      const map = readCandidate(SETTING_OPTIONS.binaries.field, candidate)
      this.#take(candidate.at.findings, candidate.source)
      return { candidate, map: map ?? {} }
    })
    const binaries: Record<string, string> = {}
    for (const [tool, variable] of Object.entries(BINARY_ENV)) {
      const given = maps.map(({ candidate, map }): Candidate => {
        const at = { ...keyOf(candidate.at, tool), findings: [] }
        return { ...candidate, name: `${candidate.name}.${tool}`, at, value: map[tool] }
      })
      const options = given.filter(({ source }) => source === 'option')
      const others = given.filter(({ source }) => source !== 'option')
      const candidates = [...options, this.#fromEnv(variable, 'binaries'), ...others].filter(isGiven)
      this.#settle(`binaries.${tool}`, candidates, { field: PROGRAM, locate: toFullProgram })
      const program = this.#values.get(`binaries.${tool}`)
      if (typeof program === 'string') binaries[tool] = program
    }
    this.#values.set('binaries', binaries)
  }

  /** Notes names that nothing reads: a typo would otherwise be a silent default. */
  #checkNames(): void {
    const { env = {}, envFiles = {}, cwd } = this.#inputs
    const rows = Object.values(OPTIONS)
    const variables = new Set([...rows.flatMap(row => row.env), ...Object.values(BINARY_ENV)])
    const keys = rows.flatMap(row => (row.key === null ? [] : [row.key, ...row.keyAliases]))
    const ofOptions: Finding[] = []
    for (const name of Object.keys(this.#options)) {
      if (Object.hasOwn(OPTIONS, name)) continue
      // A problem, because the programmer sees it at once.
      const at = toPlace(null, `options.${name}`, ofOptions)
      reportUnknownKey(at, name, [...Object.keys(OPTIONS), ...HOST_OPTIONS], 'option', true)
    }
    const ofEnv: Finding[] = []
    for (const variable of Object.keys(env).sort()) {
      // Of all variables only those that begin with `FN_` are meant for the gateway.
      if (!variable.startsWith('FN_') || variables.has(variable) || env[variable] === undefined) continue
      const path = ownValue(envFiles, variable)
      const at = toPlace(path === undefined ? null : relative(cwd, path), variable, ofEnv)
      const why = ownValue(ENV_WITHOUT_EFFECT, variable)
      if (why === undefined) reportUnknownKey(at, variable, variables, 'variable')
      else reportNoEffect(at, why)
    }
    const ofFile: Finding[] = []
    for (const key of Object.keys(this.#file)) {
      // A newer version may know the key: it is no problem.
      if (key !== '$schema' && !keys.includes(key)) {
        reportUnknownKey(keyOf(toPlace(this.#fileLabel, '', ofFile), key), key, keys)
      }
    }
    this.#take(ofOptions, 'option')
    this.#take(ofEnv, 'env')
    this.#take(ofFile, 'file')
  }

  /** @param overriddenBy - name of the stronger source that made problems harmless */
  #take(findings: readonly Finding[], source: SourceKind, overriddenBy: string | null = null): void {
    for (const finding of findings) {
      if (isProblem(finding) && overriddenBy === null) this.#problems.push({ ...finding, source })
      else if (overriddenBy === null) this.#warnings.push(toWarning(finding))
      else {
        const message = `${finding.message}; not used, because ${overriddenBy} is given`
        this.#warnings.push(toWarning({ ...finding, message }))
      }
    }
  }
}

/** Variables and flags are texts; options and files hold values of the right type. */
function readCandidate<T>(field: Field<T>, { source, value, at }: Candidate): T | undefined {
  const isText = typeof value === 'string' && (source === 'env' || source === 'flag')
  return isText ? field.readText(value, at) : field.read(value, at)
}

function isGiven({ value }: Candidate): boolean {
  return value !== undefined && value !== null
}

function ownValue<T>(holder: Readonly<Record<string, T>>, name: string): T | undefined {
  return Object.hasOwn(holder, name) ? holder[name] : undefined
}
