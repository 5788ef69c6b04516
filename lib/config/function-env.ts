/** The environment of a function: `fn.env.json`, `.env`, and the values from outside. Spec: §2.14. */

import { parseEnv } from 'node:util'
import type { EnvValue } from '../core/catalog.ts'
import { type HostEnv, isFunctionHostVariable } from '../core/host.ts'
import { isObject } from '../core/json.ts'
import { HIDDEN } from '../core/text.ts'
import {
  type Finding,
  keyOf,
  type Parsed,
  type Place,
  readJsonFile,
  report,
  reportUnknownKey,
  reportWrong,
  toPlace,
  toWarnings,
} from './fields.ts'
import { BINARY_ENV, SETTING_OPTIONS, type SettingOption } from './setting-options.ts'
import { toScalarText } from './texts.ts'

/** Keys that a file names, with null for one that is to be left out. Without prototype: a key may be any text. */
export type DeclaredEnv = Readonly<Record<string, EnvValue | null>>

interface EnvFile {
  env: DeclaredEnv
  /** Why the file as a whole cannot be used; null when it can. */
  problem: string | null
}

const SECRET_WORDS = /secret|token|password|passwd|pwd|api_key|apikey|private_key|auth|credential/

/** True for a key whose plain value is taken for a secret: its name says so. */
export function isSecretName(key: string): boolean {
  return SECRET_WORDS.test(key.toLowerCase())
}

/** True for a key that may be a process variable: not empty, no `=`, no NUL, at most 256 characters. */
export function isEnvKey(key: string): boolean {
  return /^[^=\0]{1,256}$/.test(key)
}

/**
 * Reads one `fn.env.json`. A wrong entry is a warning and left out; no message ever holds a value.
 * @param source - text or bytes of the file; null when it cannot be read
 * @param fileLabel - path below the functions root, for messages
 */
export function parseFunctionEnv(source: string | Uint8Array | null, fileLabel: string): Parsed<EnvFile> {
  const findings: Finding[] = []
  const value = readJsonFile(source, fileLabel, findings)
  if (value !== undefined) return parseFunctionEnvValue(value, fileLabel)
  const problem = findings[0]?.message ?? `${fileLabel} cannot be read`
  return { value: { env: emptyEnv(), problem }, warnings: toWarnings(findings) }
}

/** Reads an already parsed `fn.env.json`. */
export function parseFunctionEnvValue(value: unknown, fileLabel: string): Parsed<EnvFile> {
  const findings: Finding[] = []
  const env = readEnv(value, toPlace(fileLabel, '', findings, true))
  const problem = isObject(value) ? null : findings[0]!.message
  return { value: { env, problem }, warnings: toWarnings(findings) }
}

/** Keys to what may be shown of them; a secret's value is `<hidden>`. */
export function maskEnv(
  env: Readonly<Record<string, EnvValue>>,
): Record<string, { is_secret: boolean; value: string }> {
  const masked: Record<string, { is_secret: boolean; value: string }> = Object.create(null)
  for (const [key, { value, isSecret }] of Object.entries(env))
    masked[key] = { is_secret: isSecret, value: isSecret ? HIDDEN : value }
  return masked
}

function emptyEnv(): Record<string, EnvValue | null> {
  return Object.create(null)
}

function readEnv(value: unknown, at: Place): DeclaredEnv {
  const env = emptyEnv()
  if (!isObject(value)) {
    reportWrong(at, 'an object', value)
    return env
  }
  for (const key of Object.keys(value)) {
    if (key === '$schema') continue
    const place = keyOf(at, key)
    if (!isEnvKey(key)) {
      reportWrong(place, 'under a key of 1 to 256 characters without =', value[key], 'Rename the key.')
      continue
    }
    const entry = value[key] === null ? null : readEntry(key, value[key], place)
    if (entry !== undefined) env[key] = entry
  }
  return env
}

const ENTRY_RULE = 'a text, number, boolean or { value, is_secret }'

function readEntry(key: string, given: unknown, at: Place): EnvValue | null | undefined {
  if (!isObject(given)) {
    const value = readScalar(given, at)
    return value === undefined ? undefined : { value, isSecret: isSecretName(key) }
  }
  for (const name of Object.keys(given)) {
    if (name !== 'value' && name !== 'is_secret') reportUnknownKey(keyOf(at, name), name, ['value', 'is_secret'])
  }
  const isSecret = readFlag(given, key, keyOf(at, 'is_secret'))
  if (!Object.hasOwn(given, 'value')) return reportWrong(at, ENTRY_RULE, given, 'Add "value".')
  if (given.value === null) return null
  const value = readScalar(given.value, keyOf(at, 'value'))
  return value === undefined ? undefined : { value, isSecret }
}

function readFlag(given: Record<string, unknown>, key: string, at: Place): boolean {
  const flag = Object.hasOwn(given, 'is_secret') ? given.is_secret : undefined
  if (typeof flag === 'boolean') return flag
  if (flag === undefined || flag === null) return isSecretName(key)
  reportWrong(at, 'true or false', flag, 'The value is treated as a secret until this is fixed.')
  return true
}

function readScalar(given: unknown, at: Place): string | undefined {
  const text = toScalarText(given)
  if (text === undefined) return reportWrong(at, ENTRY_RULE, given, 'Write lists and objects as one JSON text.')
  return text.includes('\0') ? reportWrong(at, 'a text without NUL characters', given) : text
}

// The environment of a function from all its sources; the last one adds no keys, it replaces values of keys that a file names:
//
//   .env, .env.local of the project  <  .env of the function  <  fn.env.json  <  variables of the gateway's process

/** Values from outside the functions root. The same object as long as nothing in it changed. */
export interface OuterEnv {
  /** Values of the project's env files, for every function. */
  readonly defaults: Readonly<Record<string, string>>
  /** Variables of the gateway's process. */
  readonly process: HostEnv
}

export const NO_OUTER_ENV: OuterEnv = Object.freeze({ defaults: {}, process: {} })

const SETTING_VARIABLES: ReadonlySet<string> = new Set([
  ...(Object.values(SETTING_OPTIONS) as SettingOption<unknown>[]).flatMap(option => option.env),
  ...Object.values(BINARY_ENV),
])

/** True for a variable that steers the gateway: it may hold its secrets and is never handed to a function. */
function isGatewayVariable(name: string): boolean {
  return name.startsWith('FN_') || SETTING_VARIABLES.has(name)
}

/** The values of the project's env files that functions get: all but those that steer the gateway. */
export function toFunctionDefaults(values: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(values).filter(([name]) => !isGatewayVariable(name)))
}

/** One file's declarations over another's: the upper entry counts whole, its null included. */
export function mergeDeclared(lower: DeclaredEnv, upper: DeclaredEnv): DeclaredEnv {
  return Object.assign(emptyEnv(), lower, upper)
}

/** Values of a `.env` file as declarations; their names say which of them are secret. */
export function toDeclared(values: Readonly<Record<string, string>>): DeclaredEnv {
  const declared = emptyEnv()
  for (const [key, value] of Object.entries(values)) declared[key] = { value, isSecret: isSecretName(key) }
  return declared
}

/** The environment of a handler. A key that a file sets to null is left out, even if another source has it. */
export function toFunctionEnv(declared: DeclaredEnv, outer: OuterEnv): Readonly<Record<string, EnvValue>> {
  const env: Record<string, EnvValue> = Object.create(null)
  for (const [key, entry] of Object.entries(mergeDeclared(toDeclared(outer.defaults), declared))) {
    if (entry === null) continue
    env[key] = { value: readProcess(key, outer.process) ?? entry.value, isSecret: entry.isSecret }
  }
  return Object.freeze(env)
}

/**
 * The value that the gateway's process has for a key of a function, if it may replace the function's. Variables that every
 * process has (`PATH`, `HOME`, `TZ`) do not: a function that sets one means its own. A blank one counts as unset, as for
 * settings.
 */
function readProcess(key: string, process: HostEnv): string | null {
  const value = Object.hasOwn(process, key) ? process[key] : undefined
  if (value === undefined || value.trim() === '') return null
  return isGatewayVariable(key) || isFunctionHostVariable(key) ? null : value
}

const ENTRY = /^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]{0,255})\s*=\s*(.*)$/
const BLANK = /^\s*(#.*)?$/

/**
 * Reads `KEY=value` lines with quotes, comments and `export` as other tools do. A line of another form is a note and left
 * out, no problem: files of other tools must not keep the gateway from starting. No note holds anything of the line.
 * @param label - name of the file in messages
 * @returns an object without prototype
 */
export function parseDotenv(text: string, label: string, findings: Finding[]): Record<string, string> {
  const values: Record<string, string> = Object.create(null)
  const entries = keepEntries(text.replace(/^\uFEFF/, ''), number => reportLine(label, number, findings))
  for (const [key, value] of Object.entries(parseEnv(entries))) if (value !== undefined) values[key] = value
  return values
}

/** Reads the `.env` of a function. @param text - null when it cannot be read */
export function parseFunctionDotenv(text: string | null, label: string): Parsed<DeclaredEnv> {
  const findings: Finding[] = []
  const values = parseDotenv(text ?? '', label, findings)
  return { value: toDeclared(values), warnings: toWarnings(findings) }
}

function reportLine(label: string, number: number, findings: Finding[]): void {
  // The line may be a piece of a key or certificate, so it is named by its number.
  const at = toPlace(label, `line ${number}`, findings)
  const hint = 'Write one KEY=value to a line, and quotes around a value of several lines.'
  report(at, 'CONFIG_IGNORED_LINE', 'is ignored: it is not of the form KEY=value', hint)
}

/** The text without lines of another form: versions of Node differ in what they make of those. */
function keepEntries(text: string, onOther: (lineNumber: number) => void): string {
  const lines = text.split(/\r\n|\n|\r/)
  const kept: string[] = []
  for (let index = 0; index < lines.length; index++) {
    const line = lines[index]!
    const value = ENTRY.exec(line)?.[2]
    if (value === undefined || line.includes('\0')) {
      if (!BLANK.test(line)) onOther(index + 1)
      continue
    }
    const end = lastLineOf(value, lines, index)
    kept.push(...lines.slice(index, end + 1))
    index = end
  }
  return kept.join('\n')
}

/** Index of the line that closes the quotes a value opens; that of the value when nothing is open. */
function lastLineOf(value: string, lines: readonly string[], index: number): number {
  const quote = value[0]
  if (quote !== '"' && quote !== "'" && quote !== '`') return index
  if (value.includes(quote, 1)) return index
  const end = lines.findIndex((line, at) => at > index && line.includes(quote))
  return end < 0 ? index : end
}
