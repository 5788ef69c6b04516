/**
 * Kinds of fields, and the messages about them. One declaration parses JSON values and text, gives the JSON Schema, and words
 * the message. Every problem of a value is noted, none is thrown. Owner: page config/fields (§2.7, §2.14, §2.15).
 */

import { GatewayError, type Warning } from '../core/errors.ts'
import { isObject } from '../core/json.ts'
import { cutText, escapeUnsafe } from '../core/text.ts'
import { parseJsonText } from './json-text.ts'

export type JsonSchema = { readonly [keyword: string]: unknown }

/** How one field is read. */
export interface Field<T> {
  /** Continues "<name> must be ". */
  readonly rule: string
  /** Other keys that mean the same field. */
  readonly aliases: readonly string[]
  readonly schema: JsonSchema
  /** Fields of an object by their keys, for what is written from the declarations. */
  readonly fields?: Readonly<Record<string, Field<unknown>>>
  /** Reads a JSON value; a wrong one is noted at `at` and gives undefined. */
  read(value: unknown, at: Place): T | undefined
  /** Reads a flag or variable. */
  readText(text: string, at: Place): T | undefined
}

interface Common {
  description?: string
  aliases?: readonly string[]
  /** How to fix a wrong value. */
  hint?: string
}

interface Range extends Common {
  min?: number
  max?: number
  /** A value outside the range becomes the nearest one inside, with a note; only where §8 says so. */
  clamp?: boolean
}

/** Makes a field from its parts; `read` gets only values that are not null. @param readText - default: the text is JSON */
function toField<T>(
  options: Common,
  rule: string,
  schema: JsonSchema,
  read: (value: unknown, at: Place) => T | undefined,
  readText = (text: string, at: Place) => readJson(text, rule, at, read),
): Field<T> {
  const { description, aliases = [] } = options
  return { rule, aliases, schema: description === undefined ? schema : { description, ...schema }, read, readText }
}

function toRangeText(kind: string, { min, max }: Range): string {
  if (min !== undefined && max !== undefined) return `${kind} from ${min} to ${max}`
  if (min !== undefined) return `${kind} of at least ${min}`
  return max === undefined ? kind : `${kind} of at most ${max}`
}

function numeric(kind: 'integer' | 'number', options: Range): Field<number> {
  const { min = -Infinity, max = Infinity, clamp = false, hint } = options
  const rule = toRangeText(kind === 'integer' ? 'an integer' : 'a number', options)
  const fits = kind === 'integer' ? Number.isSafeInteger : Number.isFinite
  const schema = {
    type: kind,
    ...(options.min === undefined ? {} : { minimum: options.min }),
    ...(options.max === undefined ? {} : { maximum: options.max }),
  }
  const check = (value: unknown, given: unknown, at: Place) => {
    const used = typeof value === 'number' && fits(value) ? Math.min(max, Math.max(min, value)) : undefined
    if (used === undefined || (used !== value && !clamp)) return reportWrong(at, rule, given, hint)
    if (used === value) return used
    report(at, 'CONFIG_CLAMPED', `is ${value}, ${used} is used: it must be ${rule}`, `Make it ${rule}.`, rule)
    return used
  }
  const pattern = kind === 'integer' ? /^[+-]?\d+$/ : /^[+-]?(\d+(\.\d+)?|\.\d+)$/
  return toField(
    options,
    rule,
    schema,
    (value, at) => check(value, value, at),
    (text, at) => check(pattern.test(text.trim()) ? Number(text) : undefined, text, at),
  )
}

export const integer = (options: Range = {}): Field<number> => numeric('integer', options)
export const number = (options: Range = {}): Field<number> => numeric('number', options)

const TRUE_WORDS = ['1', 'true', 'yes', 'on']
const FALSE_WORDS = ['0', 'false', 'no', 'off']

/** Text form: `1 true yes on` and `0 false no off`, in any case. */
export function boolean(options: Common = {}): Field<boolean> {
  const rule = 'true or false'
  const readText = (text: string, at: Place) => {
    const word = text.trim().toLowerCase()
    if (TRUE_WORDS.includes(word)) return true
    if (FALSE_WORDS.includes(word)) return false
    return reportWrong(at, `one of ${[...TRUE_WORDS, ...FALSE_WORDS].join(', ')}`, text, options.hint)
  }
  const read = (value: unknown, at: Place) => {
    // Command-line switches arrive as booleans, in files they are booleans.
    return typeof value === 'boolean' ? value : reportWrong(at, rule, value, options.hint)
  }
  return toField(options, rule, { type: 'boolean' }, read, readText)
}

interface TextOptions extends Common {
  /** Continues "must be "; needed with `pattern` or `parse`. */
  rule?: string
  pattern?: RegExp
  /** Gives the text to keep, or null when it breaks the rule. */
  parse?: (text: string) => string | null
  /** Characters; default 1024. */
  maxLength?: number
  /** Line breaks and other control characters are allowed, and so is the empty text. */
  multiline?: boolean
}

const CONTROL = /[\u0000-\u001f\u007f]/

export function string(options: TextOptions = {}): Field<string> {
  const { pattern, parse, maxLength = 1024, multiline = false, hint } = options
  const rule = options.rule ?? (multiline ? 'a text' : `a text of 1 to ${maxLength} characters on one line`)
  const read = (value: unknown, at: Place) => {
    if (typeof value !== 'string') return reportWrong(at, rule, value, hint)
    if (multiline) return value
    const broken = value === '' || value.length > maxLength || CONTROL.test(value) || pattern?.test(value) === false
    const kept = broken ? null : parse ? parse(value) : value
    return kept ?? reportWrong(at, rule, value, hint)
  }
  const limits = multiline ? {} : { minLength: 1, maxLength }
  const schema = { type: 'string', ...limits, ...(pattern ? { pattern: pattern.source } : {}) }
  return toField(options, rule, schema, read, (text, at) => read(text.trim(), at))
}

interface ChoiceOptions<V> extends Common {
  /** Other spellings that mean a value. */
  spellings?: Readonly<Record<string, V>>
}

/** One of a few words or numbers. Words are compared without case; numbers are numbers in JSON, digits in text. */
export function oneOf<const V extends string | number>(values: readonly V[], options: ChoiceOptions<V> = {}): Field<V> {
  const rule = values.length === 2 ? `${values[0]} or ${values[1]}` : `one of ${values.join(', ')}`
  const words = new Map<string | number, V>()
  for (const value of values) words.set(typeof value === 'string' ? value.toLowerCase() : value, value)
  for (const [word, value] of Object.entries(options.spellings ?? {})) words.set(word, value)
  const read = (value: unknown, at: Place) => {
    const word = typeof value === 'string' ? value.trim().toLowerCase() : value
    return words.get(word as string | number) ?? reportWrong(at, rule, value, options.hint)
  }
  const readText = (text: string, at: Place) => {
    const digits = /^\d+$/.test(text.trim()) ? Number(text) : text
    return words.has(digits) ? words.get(digits) : read(text, at)
  }
  return toField(options, rule, { enum: [...values, ...Object.keys(options.spellings ?? {})] }, read, readText)
}

interface ListOptions extends Common {
  /** Continues "must be "; default from the item's rule. */
  rule?: string
  maxItems?: number
  minItems?: number
}

/**
 * A list without repetitions, as a JSON array or as one comma-separated text. A wrong item is noted and left out; a list
 * of nothing but wrong items counts as wrong.
 */
export function list<T extends string | number>(item: Field<T>, options: ListOptions = {}): Field<T[]> {
  const { minItems = 0, maxItems = 1000 } = options
  const rule = options.rule ?? `a list, each item ${item.rule}`
  const read = (value: unknown, at: Place) => {
    if (typeof value === 'string') return readText(value, at)
    if (!Array.isArray(value)) return reportWrong(at, rule, value, options.hint)
    if (value.length < minItems || value.length > maxItems) {
      return reportWrong(at, `${rule}, ${minItems} to ${maxItems} of them`, value, options.hint)
    }
    return readItems(value, at, (entry, place) => item.read(entry, place))
  }
  const readText = (text: string, at: Place) => {
    const parts = text.split(',').flatMap(part => (part.trim() === '' ? [] : [part.trim()]))
    if (parts.length < minItems || parts.length > maxItems) return reportWrong(at, rule, text, options.hint)
    return readItems(parts, at, (entry, place) => item.readText(entry, place))
  }
  const array = { type: 'array', items: item.schema, ...(minItems > 0 ? { minItems } : {}), maxItems }
  return toField(options, rule, { anyOf: [array, { type: 'string' }] }, read, readText)
}

function readItems<E, T>(items: readonly E[], at: Place, read: (item: E, at: Place) => T | undefined): T[] | undefined {
  const kept = new Set<T>()
  items.forEach((item, index) => {
    const result = read(item, items.length === 1 ? at : itemOf(at, index))
    if (result !== undefined) kept.add(result)
  })
  return items.length > 0 && kept.size === 0 ? undefined : [...kept]
}

/** `max_workers` and `force-url` to `maxWorkers` and `forceUrl`. */
type Camel<K extends string> = K extends `${infer Head}_${infer Tail}`
  ? `${Head}${Capitalize<Camel<Tail>>}`
  : K extends `${infer Head}-${infer Tail}`
    ? `${Head}${Capitalize<Camel<Tail>>}`
    : K

type Shape = Readonly<Record<string, Field<unknown>>>
/** The value of an object field: camelCase keys, absent ones undefined. */
export type ObjectOf<S extends Shape> = {
  [K in keyof S as Camel<K & string>]?: S[K] extends Field<infer T> ? T : never
}

function toCamel(key: string): string {
  return key.replace(/[-_]([a-z])/g, (_, letter: string) => letter.toUpperCase())
}

interface ObjectOptions extends Common {
  required?: readonly string[]
  /** An unknown key makes the value wrong instead of a note. */
  strict?: boolean
  /** Keys that are accepted and do nothing, with what to know about them. */
  noEffect?: Readonly<Record<string, string>>
}

/**
 * An object with known keys, read key by key: a wrong one is noted and absent, an unknown one is noted with the nearest
 * known one, null is the same as absent. `__proto__` and the like are unknown keys like any other.
 */
export function object<S extends Shape>(shape: S, options: ObjectOptions = {}): Field<ObjectOf<S>> {
  const rule = 'an object'
  const names = new Map<string, string>()
  for (const [key, field] of Object.entries(shape)) {
    names.set(key, key)
    for (const alias of field.aliases) names.set(alias, key)
  }
  const noEffect = new Map(Object.entries(options.noEffect ?? {}))
  const read = (value: unknown, at: Place) => {
    if (!isObject(value)) return reportWrong(at, rule, value, options.hint)
    const result: Record<string, unknown> = {}
    const keyUsed = new Map<string, string>()
    for (const key of Object.keys(value)) {
      const name = names.get(key)
      if (name === undefined) {
        const why = noEffect.get(key)
        if (why === undefined) reportUnknownKey(keyOf(at, key), key, Object.keys(shape), 'key', options.strict)
        else reportNoEffect(keyOf(at, key), why)
        continue
      }
      if (value[key] === null || value[key] === undefined) continue
      const parsed = shape[name]!.read(value[key], keyOf(at, key))
      const other = keyUsed.get(name)
      const used = other === undefined || key === name ? key : other
      const unused = used === key ? other : key
      if (unused !== undefined) reportRepeated(keyOf(at, used), `is also given as ${unused}`)
      if (used !== key) continue
      keyUsed.set(name, key)
      if (parsed === undefined) delete result[toCamel(name)]
      else result[toCamel(name)] = parsed
    }
    for (const key of options.required ?? []) {
      if (!keyUsed.has(key)) return report(keyOf(at, key), 'CONFIG_VALUE', 'is missing', `Add ${key}.`) as undefined
    }
    return result as ObjectOf<S>
  }
  const properties: Record<string, JsonSchema> = {}
  for (const [key, field] of Object.entries(shape)) {
    properties[key] = field.schema
    for (const alias of field.aliases) properties[alias] = { ...field.schema, deprecated: true }
  }
  const required = options.required ? { required: options.required } : {}
  const schema = { type: 'object', properties, ...required, additionalProperties: false }
  return { ...toField(options, rule, schema, read), fields: shape }
}

interface MapOptions extends Common {
  /** Rule of every key, in `keys must be ...` form. */
  keyRule?: string
  keyPattern?: RegExp
}

/** An object whose keys are the user's. The result has no prototype, so that a key such as `__proto__` is plain data. */
export function mapOf<T>(item: Field<T>, options: MapOptions = {}): Field<Record<string, T>> {
  const { keyPattern, keyRule = 'a known name' } = options
  const rule = 'an object'
  const read = (value: unknown, at: Place) => {
    if (!isObject(value)) return reportWrong(at, rule, value, options.hint)
    const result: Record<string, T> = Object.create(null)
    for (const key of Object.keys(value)) {
      const place = keyOf(at, key)
      if (keyPattern?.test(key) === false) {
        report(place, 'CONFIG_VALUE', `is not a usable key: a key must be ${keyRule}`, 'Rename it.', keyRule)
        continue
      }
      if (value[key] === null || value[key] === undefined) continue
      const parsed = item.read(value[key], place)
      if (parsed !== undefined) result[key] = parsed
    }
    return result
  }
  const names = keyPattern ? { propertyNames: { pattern: keyPattern.source } } : {}
  const schema = { type: 'object', ...names, additionalProperties: item.schema }
  return toField(options, rule, schema, read)
}

/** Any JSON value, kept as it is. */
export function json(options: Common = {}): Field<unknown> {
  return toField(options, 'a JSON value', {}, value => value)
}

/** A JSON object, kept as it is. */
export function jsonObject(options: Common = {}): Field<Record<string, unknown>> {
  return toField(options, 'an object', { type: 'object' }, (value, at) =>
    isObject(value) ? value : reportWrong(at, 'an object', value, options.hint),
  )
}

/** A text or boolean, or an object. */
export function either<A, B>(scalar: Field<A>, block: Field<B>, options: Common = {}): Field<A | B> {
  const rule = `${scalar.rule}, or ${block.rule}`
  const read = (value: unknown, at: Place): A | B | undefined => {
    if (isObject(value)) return block.read(value, at)
    return typeof value === scalar.schema.type ? scalar.read(value, at) : reportWrong(at, rule, value, options.hint)
  }
  const schema = { anyOf: [scalar.schema, block.schema] }
  const made = toField(options, rule, schema, read, (text, at) => scalar.readText(text, at))
  return block.fields === undefined ? made : { ...made, fields: block.fields }
}

/** A field whose checked value is turned into another; `map` may add findings and give undefined. */
export function mapped<T, U>(field: Field<T>, map: (value: T, at: Place) => U | undefined): Field<U> {
  const next = (value: T | undefined, at: Place) => (value === undefined ? undefined : map(value, at))
  return {
    ...field,
    read: (value, at) => next(field.read(value, at), at),
    readText: (text, at) => next(field.readText(text, at), at),
  }
}

/** An object field that may also be written as one text: `node=2,python=2`. */
export function pairs<T>(field: Field<T>, example: string): Field<T> {
  const rule = `an object, or a text such as ${example}`
  const readText = (text: string, at: Place) => {
    if (text.trim().startsWith('{')) return field.readText(text, at)
    const result: Record<string, unknown> = Object.create(null)
    for (const part of text.split(',')) {
      if (part.trim() === '') continue
      const [key = '', ...rest] = part.split('=')
      const name = key.trim()
      const value = rest.join('=').trim()
      if (name === '' || value === '' || name in result) return reportWrong(at, rule, text, 'Name each one once.')
      result[name] = /^\d+$/.test(value) ? Number(value) : value
    }
    return field.read(result, at)
  }
  return {
    ...field,
    rule,
    schema: { anyOf: [field.schema, { type: 'string' }] },
    read: (value, at) => (typeof value === 'string' ? readText(value, at) : field.read(value, at)),
    readText,
  }
}

function readJson<T>(text: string, rule: string, at: Place, read: (value: unknown, at: Place) => T | undefined) {
  const result = parseJsonText(text)
  if (result.ok) return read(result.value, at)
  return reportWrong(at, `${rule} written as JSON`, text, `The text is not JSON: ${result.reason}.`)
}

/** A field whose values may be secret: messages do not show them. */
export function hidden<T>(field: Field<T>): Field<T> {
  return { ...field, read: (value, at) => field.read(value, { ...at, hidden: true }) }
}

/** Problems of a request that one message names. */
const MAX_SHOWN_PROBLEMS = 5

/**
 * Reads the fields of a request.
 * @param check - notes problems of several fields together
 * @param notes - receives messages about values that are not used, such as unknown keys
 * @throws GatewayError BAD_REQUEST that names every wrong field with its rule and its value
 */
export function readRequest<T>(
  field: Field<T>,
  value: unknown,
  check: (value: T, at: Place) => void = () => {},
  notes: string[] = [],
): T {
  const findings: Finding[] = []
  const at = toPlace(null, '', findings)
  const read = field.read(value, at)
  if (read !== undefined) check(read, at)
  const problems = findings.filter(isProblem)
  for (const finding of findings) if (!isProblem(finding)) notes.push(finding.message)
  if (read !== undefined && problems.length === 0) return read
  const shown = problems.slice(0, MAX_SHOWN_PROBLEMS).map(({ message }) => message)
  const more = problems.length - shown.length
  throw new GatewayError('BAD_REQUEST', `${shown.join('; ')}${more > 0 ? `; and ${more} more` : ''}`)
}

// Messages: one grammar for files, variables, flags, options and requests.

/** `CONFIG_VALUE` and `CONFIG_NOT_JSON` mean that something was not used as written; the others are notes. */
type FindingCode =
  | 'CONFIG_NOT_JSON'
  | 'CONFIG_VALUE'
  | 'CONFIG_UNKNOWN_KEY'
  | 'CONFIG_CLAMPED'
  | 'CONFIG_REPEATED'
  | 'CONFIG_NO_EFFECT'
  | 'CONFIG_FOREIGN_FILE'
  | 'CONFIG_IGNORED_LINE'
  | 'CONFIG_UNSAFE'

export interface Finding {
  code: FindingCode
  /** Label of the file, null for a variable, flag or option. */
  file: string | null
  /** Field, variable, flag or option, such as `worker_pool.max_workers` or `FN_PORT`. */
  name: string
  /** The rule for the value, such as `an integer of at least 1`. */
  rule: string
  /** The value and its type as shown to people, such as `"four" (string)`. */
  value: string
  message: string
  /** How to fix it. */
  hint: string
}

/** Where a value stands, and the list that takes what is found there. */
export interface Place {
  readonly file: string | null
  readonly name: string
  /** True when a value found here may be a secret and must not appear in a message. */
  readonly hidden: boolean
  readonly findings: Finding[]
}

export function toPlace(file: string | null, name: string, findings: Finding[], hidden = false): Place {
  return { file, name, hidden, findings }
}

/** The place of a key inside the object at `at`. */
export function keyOf(at: Place, key: string): Place {
  return { ...at, name: at.name === '' ? showKey(key) : `${at.name}.${showKey(key)}` }
}

/** The place of an item inside the list at `at`. */
export function itemOf(at: Place, index: number): Place {
  return { ...at, name: `${at.name}[${index}]` }
}

/** Notes a value that breaks its rule. Always returns undefined: the field counts as absent. */
export function reportWrong(at: Place, rule: string, value: unknown, hint = ''): undefined {
  const shown = showValue(value, at.hidden)
  report(at, 'CONFIG_VALUE', `must be ${rule}, got ${shown}`, hint || `Make it ${rule}, or leave it out.`, rule, shown)
}

/** Notes a key that no declaration has. `at` is the place of the key itself. */
export function reportUnknownKey(at: Place, key: string, known: Iterable<string>, what = 'key', isWrong = false): void {
  // The search costs time: a file full of foreign keys gets no more suggestions than it gets messages.
  const near = at.findings.length > MAX_WARNINGS ? null : nearest(key, known)
  const hint = near === null ? `Remove it, or see the table of ${what}s.` : `Write ${near}.`
  const text = near === null ? `is not a known ${what}` : `is not a known ${what}, did you mean ${near}?`
  report(at, isWrong ? 'CONFIG_VALUE' : 'CONFIG_UNKNOWN_KEY', text, hint, `a known ${what}`, showText(key))
}

/** Notes a value that is accepted and changes nothing. */
export function reportNoEffect(at: Place, why: string): void {
  report(at, 'CONFIG_NO_EFFECT', `has no effect: ${why}`, 'Remove it.')
}

/** Notes that something is given twice. */
export function reportRepeated(at: Place, text: string): void {
  report(at, 'CONFIG_REPEATED', text, 'Keep one of them.')
}

/** Notes anything else; `text` continues the sentence that begins with the name. */
export function report(at: Place, code: FindingCode, text: string, hint: string, rule = '', value = ''): void {
  const subject = [at.file === null ? '' : at.file, at.name].filter(part => part !== '').join(': ')
  at.findings.push({ code, file: at.file, name: at.name, rule, value, message: `${subject} ${text}`, hint })
}

/**
 * Reads a config file's text and notes what is wrong with it.
 * @param label - name of the file in messages
 * @returns undefined when it is not JSON
 */
export function readJsonFile(source: string | Uint8Array | null, label: string, findings: Finding[]): unknown {
  if (source === null) return undefined
  const result = parseJsonText(source)
  if (result.ok) return result.value
  const where = result.line === 0 ? '' : `line ${result.line}, column ${result.column}: `
  const at = toPlace(label, '', findings)
  report(at, 'CONFIG_NOT_JSON', `is not JSON: ${where}${result.reason}`, result.hint, 'JSON')
  return undefined
}

/** The content of a file, as far as it is usable, and what is wrong with it. */
export interface Parsed<T> {
  value: T
  warnings: Warning[]
}

/** True for a finding that says a given value is not used. */
export function isProblem({ code }: { readonly code: string }): boolean {
  return code === 'CONFIG_VALUE' || code === 'CONFIG_NOT_JSON'
}

/** A finding in the shape of discovery's warnings. */
export function toWarning(finding: Finding): Warning {
  return { code: finding.code, path: finding.file ?? '.', message: finding.message, hint: finding.hint }
}

/** Problems, and notes, of one file that are shown. */
const MAX_WARNINGS = 100

/** The findings of one file as warnings; past 100 problems or 100 notes only their number is shown. */
export function toWarnings(findings: readonly Finding[]): Warning[] {
  const notes = findings.filter(finding => !isProblem(finding))
  if (findings.length - notes.length <= MAX_WARNINGS && notes.length <= MAX_WARNINGS) return findings.map(toWarning)
  return [findings.filter(isProblem), notes].flatMap(kind => {
    const shown = kind.slice(0, MAX_WARNINGS).map(toWarning)
    const more = kind[MAX_WARNINGS]
    if (more === undefined) return shown
    const message = `${more.file ?? ''}: ${kind.length - MAX_WARNINGS} more like these are not shown`
    return [...shown, { ...toWarning(more), message, hint: 'Fix the first ones.' }]
  })
}

const MAX_SHOWN = 60

/** Text on one line, without characters that could forge or hide output, at most 60 characters. */
export function showText(text: string): string {
  return escapeUnsafe(cutText(text, MAX_SHOWN))
}

function showKey(key: string): string {
  return /^[\w$@/.-]{1,60}$/.test(key) ? key : `"${showText(key)}"`
}

/** A value with its type: `"four" (string)`, `3.5 (number)`, `an array of 2 items`. */
export function showValue(value: unknown, hidden = false): string {
  if (value === null) return 'null'
  if (Array.isArray(value)) return `an array of ${value.length} item${value.length === 1 ? '' : 's'}`
  if (typeof value === 'object') return 'an object'
  if (hidden) return `a hidden value (${typeof value})`
  if (typeof value === 'string') return `"${showText(value)}" (string)`
  return `${showText(String(value))} (${typeof value})`
}

const MAX_COMPARED = 64

/** The known word that `word` most likely stands for, or null when none is near. */
export function nearest(word: string, known: Iterable<string>): string | null {
  if (word.length > MAX_COMPARED) return null
  const plain = toPlain(word)
  let best: string | null = null
  let bestDistance = Math.min(3, Math.floor(plain.length / 3)) + 1
  for (const candidate of known) {
    const distance = editDistance(plain, toPlain(candidate))
    if (distance < bestDistance) {
      best = candidate
      bestDistance = distance
    }
  }
  return best
}

/** `maxWorkers`, `max-workers` and `max_workers` are one word. */
function toPlain(word: string): string {
  return word.toLowerCase().replace(/[-_]/g, '')
}

/** Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`. */
export function editDistance(a: string, b: string): number {
  let beforeLast: number[] = []
  let last = Array.from({ length: b.length + 1 }, (_, column) => column)
  for (let row = 1; row <= a.length; row++) {
    const current = [row]
    for (let column = 1; column <= b.length; column++) {
      const same = a[row - 1] === b[column - 1]
      let distance = Math.min(last[column]! + 1, current[column - 1]! + 1, last[column - 1]! + (same ? 0 : 1))
      const swapped = row > 1 && column > 1 && a[row - 1] === b[column - 2] && a[row - 2] === b[column - 1]
      if (swapped) distance = Math.min(distance, beforeLast[column - 2]! + 1)
      current.push(distance)
    }
    beforeLast = last
    last = current
  }
  return last[b.length]!
}
