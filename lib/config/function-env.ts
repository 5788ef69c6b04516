/** `fn.env.json`: values of a function and which of them are secret. Spec: §2.14. */

import type { EnvValue } from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import type { JsonSchema } from './fields.ts'
import { isObject } from '../core/json.ts'
import { HIDDEN } from '../core/text.ts'
import { type Finding, keyOf, type Place, reportUnknownKey, reportWrong, toPlace, toWarnings } from './findings.ts'
import { readJsonFile } from './json-text.ts'
import { toScalarText } from './texts.ts'

/** Keys that a file names, with null for one that is to be left out. Without prototype: a key may be any text. */
export type DeclaredEnv = Readonly<Record<string, EnvValue | null>>

interface ParsedEnv {
  env: DeclaredEnv
  /** Why the file as a whole cannot be used; null when it can. */
  problem: string | null
  problems: Warning[]
}

// A key becomes the name of a process variable in the worker.
const ENV_KEY = /^[^=\0]{1,256}$/
const SECRET_WORDS = /secret|token|password|passwd|pwd|api_key|apikey|private_key|auth|credential/

/** True for a key whose plain value is taken for a secret: its name says so. */
export function isSecretName(key: string): boolean {
  return SECRET_WORDS.test(key.toLowerCase())
}

/** True for a key that may be a process variable: not empty, no `=`, no NUL, at most 256 characters. */
export function isEnvKey(key: string): boolean {
  return ENV_KEY.test(key)
}

/**
 * Reads one `fn.env.json`. A wrong entry is a warning and left out; no message ever holds a value.
 * @param source - text or bytes of the file
 * @param fileLabel - path below the functions root, for messages
 */
export function parseFunctionEnv(source: string | Uint8Array, fileLabel: string): ParsedEnv {
  const findings: Finding[] = []
  const value = readJsonFile(source, fileLabel, findings)
  if (value !== undefined) return parseFunctionEnvValue(value, fileLabel)
  return { env: emptyEnv(), problem: findings[0]!.message, problems: toWarnings(findings) }
}

/** Reads an already parsed `fn.env.json`. */
export function parseFunctionEnvValue(value: unknown, fileLabel: string): ParsedEnv {
  const findings: Finding[] = []
  const env = readEnv(value, toPlace(fileLabel, '', findings, true))
  return { env, problem: isObject(value) ? null : findings[0]!.message, problems: toWarnings(findings) }
}

/** Keys to what may be shown of them; a secret's value is `<hidden>`. */
export function maskEnv(
  env: Readonly<Record<string, EnvValue>>,
): Record<string, { is_secret: boolean; value: string }> {
  const masked: Record<string, { is_secret: boolean; value: string }> = Object.create(null)
  for (const [key, { value, isSecret }] of Object.entries(env)) {
    masked[key] = { is_secret: isSecret, value: isSecret ? HIDDEN : value }
  }
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

const SCALAR_SCHEMA = { type: ['string', 'number', 'boolean'] }

/** JSON Schema of the file. */
export const FUNCTION_ENV_SCHEMA: JsonSchema = {
  type: 'object',
  properties: { $schema: { type: 'string' } },
  propertyNames: { pattern: '^[^=\\u0000]{1,256}$' },
  additionalProperties: {
    anyOf: [
      { ...SCALAR_SCHEMA, description: 'A plain value; secret when its name says so.' },
      { type: 'null', description: 'The same as leaving the key out.' },
      {
        type: 'object',
        properties: {
          value: SCALAR_SCHEMA,
          is_secret: { type: 'boolean', description: 'Hide the value wherever it is shown.' },
        },
        required: ['value'],
        additionalProperties: false,
      },
    ],
  },
}
