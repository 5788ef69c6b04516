/**
 * Schemas to functions that check values, by ajv. Owner: page validation/request-schema.
 *
 * ajv writes a function for each schema, which is why it is here: a check takes microseconds. Keywords whose time a client can
 * stretch are replaced (patterns, `uniqueItems`) or counted.
 */

import { isIP } from 'node:net'
import type { Ajv2020, CodeKeywordDefinition, ErrorObject, KeywordCxt, ValidateFunction } from 'ajv/dist/2020.js'
import { itemOf, keyOf, type Place, showValue, toPlace } from '../config/fields.ts'
import { isObject } from '../core/json.ts'
import { LinearPattern, TooMuchWork, WorkBudget } from './linear-pattern.ts'
import { childrenOf, copySchema, DEFINITIONS, sameValueChildren, type Schema } from './schema-tree.ts'

/** A problem of a value. */
export interface Difference {
  /** Field, such as `body.items[0].id`. */
  name: string
  /** Continues the sentence that begins with the name. */
  text: string
}

/** @returns null for a value that passes */
export type Check = (value: unknown) => Difference | null

export class SchemaCompiler {
  readonly #ajv: Ajv2020
  readonly #budget: WorkBudget

  private constructor(ajv: Ajv2020, budget: WorkBudget) {
    this.#ajv = ajv
    this.#budget = budget
  }

  /** Loads ajv, which takes some 50 ms and a few megabytes: only when the first check is needed. */
  static async load(): Promise<SchemaCompiler> {
    // A default: the build joins ajv, whose named exports are lost there.
    const { default: ajvModule } = await import('ajv/dist/2020.js')
    const { Ajv2020: Validator, _ } = ajvModule
    const budget = new WorkBudget(MAX_STEPS)
    const regExp = Object.assign((pattern: string) => new LinearPattern(pattern, budget), { code: 'unused' })
    const ajv = new Validator({
      strict: false,
      // The keywords were looked at when the file was read.
      validateSchema: false,
      logger: false,
      verbose: true,
      ownProperties: true,
      inlineRefs: false,
      formats: { ...FORMATS },
      // ajv's optimizer takes ten times as long as the rest and saves a request nothing that is measured.
      code: { regExp, optimize: false, process: toEager },
    })
    // Written into the code that ajv makes, before the keywords whose work they count.
    const whole: CodeKeywordDefinition = {
      keyword: STEPS,
      before: '$ref',
      code({ gen, data, schema }: KeywordCxt) {
        const { once, item, name } = schema as Steps
        const counter = gen.scopeValue('obj', { ref: budget })
        const items = item === 0 ? _`` : _` + (Array.isArray(${data}) ? ${data}.length * ${item} : 0)`
        const isMap = _`typeof ${data} == "object" && ${data} !== null && !Array.isArray(${data})`
        const names = name === 0 ? _`` : _` + (${isMap} ? Object.keys(${data}).length * ${name} : 0)`
        gen.code(_`${counter}.spend(${once}${items}${names})`)
      },
    }
    const text: CodeKeywordDefinition = {
      keyword: TEXT_STEPS,
      type: 'string',
      before: 'maxLength',
      code({ gen, data, schema }: KeywordCxt) {
        gen.code(
          _`${gen.scopeValue('obj', { ref: budget })}.spend(Math.floor(${data}.length * ${schema as number} / ${CHARACTERS_PER_STEP}))`,
        )
      },
    }
    for (const keyword of [whole, text]) ajv.addKeyword(keyword)
    ajv.removeKeyword('uniqueItems')
    ajv.addKeyword({
      keyword: 'uniqueItems',
      type: 'array',
      schemaType: 'boolean',
      errors: false,
      validate: (wanted: boolean, list: unknown[]) => !wanted || isUnique(list, budget),
    })
    return new SchemaCompiler(ajv, budget)
  }

  /**
   * @param counter - of the file that the schema is of
   * @param name - what the value is called in messages: `body`, `query`
   * @param hidesValues - true leaves values out of messages
   * @throws Error whose message says what is wrong with the schema
   */
  compile(schema: Schema, counter: StepCounter, name: string, hidesValues = false): Check {
    const whole = { $defs: counter.definitions, allOf: [counter.count(schema)] }
    const at = toPlace(null, name, [], hidesValues)
    try {
      const validate = this.#ajv.compile(whole)
      return value => this.#check(validate, value, at)
    } catch (error) {
      if (!(error instanceof RangeError)) throw error
      throw new Error(`${name} has a schema too large for one function: move parts of it to $defs`, { cause: error })
    } finally {
      // The function lives by itself; the instance must not collect the schemas of every reload.
      this.#ajv.removeSchema(whole)
    }
  }

  #check(validate: ValidateFunction, value: unknown, at: Place): Difference | null {
    this.#budget.left = MAX_STEPS
    try {
      if (validate(value)) return null
    } catch (error) {
      if (error instanceof TooMuchWork) return { name: at.name, text: 'is too large to be checked against its schema' }
      // The stack: the value goes deeper than a schema that refers to itself can follow.
      if (error instanceof RangeError) return { name: at.name, text: 'is nested too deep' }
      throw error
    }
    const error = pickError(validate.errors ?? [])
    validate.errors = null
    return error === undefined ? { name: at.name, text: 'does not match its schema' } : toDifference(error, at, value)
  }
}

/** The parentheses make the engine compile the function now, which takes up to a second, and not during the first request. */
function toEager(code: string): string {
  const at = code.indexOf('return function ')
  return at === -1 ? code : `${code.slice(0, at)}return (${code.slice(at + 'return '.length)})`
}

/** Compares texts of the items, where ajv compares each item with each. */
function isUnique(list: readonly unknown[], budget: WorkBudget): boolean {
  const seen = new Set<string>()
  for (const item of list) {
    const text = toSortedJson(item)
    budget.spend(text.length)
    if (seen.has(text)) return false
    seen.add(text)
  }
  return true
}

/** JSON text that is the same for objects with the same properties. */
function toSortedJson(value: unknown): string {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  if (Array.isArray(value)) return `[${value.map(toSortedJson).join()}]`
  const keys = Object.keys(value).sort()
  return `{${keys.map(key => `${JSON.stringify(key)}:${toSortedJson((value as Record<string, unknown>)[key])}`).join()}}`
}

/** The place of a JSON pointer in a value. */
function placeOf(at: Place, pointer: string, value: unknown): Place {
  let place = at
  let here = value
  for (const token of pointer.split('/').slice(1)) {
    const key = token.replaceAll('~1', '/').replaceAll('~0', '~')
    place = Array.isArray(here) ? itemOf(place, Number(key)) : keyOf(place, key)
    here = typeof here === 'object' && here !== null ? (here as Record<string, unknown>)[key] : undefined
  }
  return place
}

/** Of several alternatives that all failed, their types together, or what the first of them says. */
function pickError(errors: readonly ErrorObject[]): ErrorObject | undefined {
  const [first] = errors
  const last = errors.at(-1)
  if (first === undefined || last?.keyword !== 'anyOf') return first
  const branches = errors.slice(0, -1)
  const isTypes = branches.every(
    ({ keyword, instancePath }) => keyword === 'type' && instancePath === last.instancePath,
  )
  if (!isTypes) return first
  return { ...first, params: { type: [...new Set(branches.flatMap(({ params }) => params.type))] } }
}

function toDifference(error: ErrorObject, at: Place, value: unknown): Difference {
  const { keyword, params, data, schema, message } = error
  const place = placeOf(at, error.instancePath, value)
  if (error.propertyName !== undefined)
    return { name: keyOf(place, error.propertyName).name, text: 'is not an allowed name' }
  if (keyword === 'required') return { name: keyOf(place, params.missingProperty).name, text: 'is required' }
  const unknown = params.additionalProperty ?? params.unevaluatedProperty
  if (unknown !== undefined) return { name: keyOf(place, unknown).name, text: 'is not known' }
  if (keyword === 'false schema') return { name: place.name, text: 'is not allowed' }
  const rule =
    RULES[keyword]?.(params, schema) ??
    `valid against its schema (${keyword}${message === undefined ? '' : `: ${message}`})`
  return { name: place.name, text: `must be ${rule}, got ${showValue(data, at.hidden)}` }
}

type Rule = (params: ErrorObject['params'], schema: unknown) => string

/** `1 item`, `2 items` */
const count = (limit: number, noun: string): string => `${limit} ${noun}${limit === 1 ? '' : 's'}`

const compared: Rule = ({ comparison, limit }) => `${comparison} ${limit}`

/** The rule that a value breaks, by keyword. */
const RULES: Readonly<Record<string, Rule>> = {
  minLength: ({ limit }) => `at least ${count(limit, 'character')} long`,
  maxLength: ({ limit }) => `at most ${count(limit, 'character')} long`,
  minItems: ({ limit }) => `at least ${count(limit, 'item')} long`,
  maxItems: ({ limit }) => `at most ${count(limit, 'item')} long`,
  minProperties: ({ limit }) => `at least ${limit} properties long`,
  maxProperties: ({ limit }) => `at most ${limit} properties long`,
  type: ({ type }) => `of type ${[type].flat().join(' or ')}`,
  enum: (_, values) => `one of ${(values as unknown[]).slice(0, 20).map(toJson).join(', ')}`,
  const: (_, value) => toJson(value),
  pattern: ({ pattern }) => `a string that matches ${pattern}`,
  format: ({ format }) => `a valid ${format}`,
  uniqueItems: () => 'a list without duplicates',
  multipleOf: ({ multipleOf }) => `a multiple of ${multipleOf}`,
  minimum: compared,
  maximum: compared,
  exclusiveMinimum: compared,
  exclusiveMaximum: compared,
}

function toJson(value: unknown): string {
  return JSON.stringify(value)
}

// A copy of a schema that counts the steps of a check, about 10 ns each, before it takes them.
// A client chooses the value: each of its items is checked against each branch of a union, and each of its names against each
// pattern. Without the count a small body takes seconds.

/** Steps of one check: some 50 ms. */
export const MAX_STEPS = 5_000_000
/** Keywords of the copy: the steps of a value, and how many keywords look at each character of a text. */
export const STEPS = 'x-steps'
const TEXT_STEPS = 'x-text-steps'

export interface Steps {
  once: number
  /** For each item of an array, and each name of an object. */
  item: number
  name: number
}

/** A function of more schemas is too large for the engine to compile; it is interpreted, which takes so much longer. */
const MAX_COMPILED_SCHEMAS = 48
const INTERPRETED = 6
/** A branch that does not match makes an error. A reference also copies the errors of the branches before it. */
const BRANCH_STEPS = { compiled: 10, interpreted: 60, reference: 60 } as const
const REFERENCE_STEPS = 10
/** Of what is compared, of an item and of a name that a keyword looks at. */
const COMPARED_STEPS = 2
const ITEM_STEPS = 3
const NAME_STEPS = 5
/** Characters of a text that are one step. */
const CHARACTERS_PER_STEP = 4

const UNIONS = ['anyOf', 'oneOf']
const ITEM_KEYWORDS = ['items', 'contains', 'unevaluatedItems']
const NAME_KEYWORDS = [
  'patternProperties',
  'additionalProperties',
  'propertyNames',
  'unevaluatedProperties',
  'minProperties',
  'maxProperties',
]
const TEXT_KEYWORDS = ['minLength', 'maxLength', 'format']

type Keywords = Readonly<Record<string, unknown>>

/** Counts in the schemas of one file. */
export class StepCounter {
  /** Counted; references to them are `#/$defs/<name>`. */
  readonly definitions: Readonly<Record<string, Schema>>
  /** Definitions that lead back to themselves without a step into the value, as far as `leastOf` came upon them. */
  readonly loops = new Set<string>()
  readonly #isTracked: boolean
  readonly #least = new Map<string, number>()
  readonly #following = new Set<string>()

  constructor(definitions: ReadonlyMap<string, Schema>) {
    this.#isTracked = [...definitions.values()].some(tracksParts)
    const entry = (one: Schema): Schema => toEntry(REFERENCE_STEPS, withSteps(one, this.#isTracked))
    this.definitions = Object.fromEntries([...definitions].map(([name, one]) => [name, entry(one)]))
  }

  count(schema: Schema): Schema {
    return withSteps(schema, this.#isTracked || tracksParts(schema))
  }

  /** Steps that a value without items, names and characters may take. @param counted - see count */
  leastOf(counted: Schema): number {
    if (typeof counted === 'boolean') return 0
    let steps = (counted[STEPS] as Steps).once
    for (const child of sameValueChildren(counted)) steps += this.leastOf(child)
    return typeof counted.$ref === 'string' ? steps + this.leastOfName(counted.$ref.slice(DEFINITIONS.length)) : steps
  }

  leastOfName(name: string): number {
    const known = this.#least.get(name)
    if (known !== undefined) return known
    if (this.#following.has(name)) {
      this.loops.add(name)
      return 0
    }
    this.#following.add(name)
    const least = this.leastOf(this.definitions[name] ?? true)
    this.#least.set(name, least)
    return least
  }
}

function withSteps(schema: Schema, isTracked: boolean): Schema {
  const factor = sizeOf(schema) > MAX_COMPILED_SCHEMAS ? INTERPRETED : 1
  const complete = (copy: Record<string, unknown>): void => {
    copy[STEPS] = toSteps(copy, isTracked, factor)
    const texts = countKeys(copy, TEXT_KEYWORDS)
    if (texts > 0) copy[TEXT_STEPS] = texts
    // The schema file may define a keyword with this name.
    else delete copy[TEXT_STEPS]
    for (const union of UNIONS) {
      const branches = copy[union]
      if (Array.isArray(branches)) copy[union] = branches.map((branch, i) => toBranch(branch, i, factor))
    }
  }
  return copySchema(schema, { rename: String, complete })
}

/** Steps that count however the schema ends: its own count is not reached when the type differs. */
function toEntry(once: number, schema: Schema): Schema {
  return { [STEPS]: { once, item: 0, name: 0 } satisfies Steps, allOf: [schema] }
}

function toBranch(branch: Schema, index: number, factor: number): Schema {
  const inline = factor === 1 ? BRANCH_STEPS.compiled : BRANCH_STEPS.interpreted
  const isReference = isObject(branch) && '$ref' in branch
  return toEntry(isReference ? BRANCH_STEPS.reference + (index >> 1) : inline, branch)
}

function toSteps(schema: Keywords, isTracked: boolean, factor: number): Steps {
  const { required, dependentRequired, enum: values, const: constant, properties, patternProperties } = schema
  const compared = [required, dependentRequired, values, constant].reduce<number>(
    (sum, one) => sum + countValues(one),
    0,
  )
  // Patterns count their own steps.
  const names = countNames(properties) + countNames(patternProperties)
  const once = Object.keys(schema).length + names + compared * COMPARED_STEPS
  const tracked = isTracked ? 1 : 0
  const name = (countKeys(schema, NAME_KEYWORDS) + tracked) * NAME_STEPS
  const item = (countKeys(schema, ITEM_KEYWORDS) + tracked) * ITEM_STEPS
  return { once: once * factor, item: item * factor, name: name * factor }
}

function countKeys(schema: Keywords, keywords: readonly string[]): number {
  return keywords.filter(keyword => keyword in schema).length
}

function countNames(value: unknown): number {
  return isObject(value) ? Object.keys(value).length : 0
}

/** Values that a comparison may look at; a long text counts for more. */
function countValues(value: unknown): number {
  if (value === undefined) return 0
  if (typeof value === 'string') return 1 + (value.length >> 6)
  if (typeof value !== 'object' || value === null) return 1
  return Object.values(value).reduce<number>((sum, one) => sum + countValues(one), 1)
}

/** Schemas in a schema. */
function sizeOf(schema: Schema): number {
  if (typeof schema === 'boolean') return 0
  return childrenOf(schema).reduce((sum, { value }) => sum + sizeOf(value as Schema), 1)
}

/** True when a check notes which parts of a value were looked at. */
function tracksParts(schema: Schema): boolean {
  if (typeof schema === 'boolean') return false
  if ('unevaluatedProperties' in schema || 'unevaluatedItems' in schema) return true
  return childrenOf(schema).some(({ value }) => tracksParts(value as Schema))
}

// The formats that are checked; others are annotations only, as in the standard.

/** No expression here has a repetition in a repetition: each takes time that grows with the text alone. */
const DATE = /^(\d{4})-(\d\d)-(\d\d)$/
const TIME = /^([01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d{1,9})?(?:[zZ]|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i
const SCHEME = /^[a-z][a-z0-9+.-]{0,100}:/i
const LABEL = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/i
const MAX_TEXT = 4096

export const FORMATS: Readonly<Record<string, (text: string) => boolean>> = {
  date: isDate,
  time: text => TIME.test(text),
  'date-time': isDateTime,
  email: isEmail,
  hostname: isHostname,
  ipv4: text => isIP(text) === 4,
  ipv6: text => isIP(text) === 6 && !text.includes('%'),
  uri: text => text.length <= MAX_TEXT && SCHEME.test(text) && !/[\s<>"{}|\\^`]/.test(text) && URL.canParse(text),
  uuid: text => UUID.test(text),
}

function isDate(text: string): boolean {
  const found = DATE.exec(text)
  if (found === null) return false
  const [year, month, day] = found.slice(1).map(Number) as [number, number, number]
  const date = new Date(0)
  date.setUTCFullYear(year, month - 1, day)
  return date.getUTCMonth() === month - 1 && date.getUTCDate() === day
}

function isDateTime(text: string): boolean {
  return (
    (text[10] === 'T' || text[10] === 't' || text[10] === ' ') && isDate(text.slice(0, 10)) && TIME.test(text.slice(11))
  )
}

/** One `@` between a plain name and a host: what mail servers take in practice. */
function isEmail(text: string): boolean {
  const at = text.lastIndexOf('@')
  if (at < 1 || at > 64) return false
  const name = text.slice(0, at)
  if (!/^[\w.!#$%&'*+/=?^`{|}~-]+$/.test(name) || /^\.|\.$|\.\./.test(name)) return false
  return isHostname(text.slice(at + 1))
}

function isHostname(text: string): boolean {
  return text.length <= 253 && text.split('.').every(label => LABEL.test(label))
}
