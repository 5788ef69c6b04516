/**
 * Schemas to functions that check values, by ajv. Owner: page validation/request-schema.
 *
 * ajv writes a function for each schema, which is why it is here: checking takes microseconds. What it does in time that a client can stretch
 * is replaced (patterns, `uniqueItems`) or counted.
 */

import type { Ajv2020, CodeKeywordDefinition, ErrorObject, KeywordCxt, ValidateFunction } from 'ajv/dist/2020.js'
import { keyOf, itemOf, type Place, showValue, toPlace } from '../config/findings.ts'
import { FORMATS } from './formats.ts'
import { LinearPattern, TooMuchWork, WorkBudget } from './linear-pattern.ts'
import { CHARACTERS_PER_STEP, MAX_STEPS, STEPS, type StepCounter, type Steps, TEXT_STEPS } from './schema-steps.ts'
import type { Schema } from './schema-tree.ts'

/** What is wrong with a value. */
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

  /** Loads ajv, which takes some 50 ms and a few megabytes: only when somebody asks for a check. */
  static async load(): Promise<SchemaCompiler> {
    const { Ajv2020: Validator, _ } = await import('ajv/dist/2020.js')
    const budget = new WorkBudget(MAX_STEPS)
    const regExp = Object.assign((pattern: string) => toPattern(pattern, budget), { code: 'unused' })
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
    const validate = this.#write(whole, name)
    const at: Place = toPlace(null, name, [], hidesValues)
    return value => this.#check(validate, value, at)
  }

  #write(whole: Record<string, unknown>, name: string): ValidateFunction {
    try {
      return this.#ajv.compile(whole)
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
    return error === undefined
      ? { name: at.name, text: 'is not what its schema asks for' }
      : toDifference(error, at, value)
  }
}

/** The parentheses make the engine compile the function now, which takes up to a second, and not during the first request. */
function toEager(code: string): string {
  const at = code.indexOf('return function ')
  return at === -1 ? code : `${code.slice(0, at)}return (${code.slice(at + 'return '.length)})`
}

function toPattern(source: string, budget: WorkBudget): { test: (text: string) => boolean; toString: () => string } {
  const pattern = new LinearPattern(source, budget)
  // ajv keeps patterns by their text.
  return { test: text => pattern.test(text), toString: () => `/${source}/u` }
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

const AT_LEAST: Readonly<Record<string, string>> = {
  minLength: 'characters',
  minItems: 'items',
  minProperties: 'properties',
}
const AT_MOST: Readonly<Record<string, string>> = {
  maxLength: 'characters',
  maxItems: 'items',
  maxProperties: 'properties',
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
  const { keyword, params, data } = error
  const place = placeOf(at, error.instancePath, value)
  if (error.propertyName !== undefined)
    return { name: keyOf(place, error.propertyName).name, text: 'is not a name that is possible' }
  if (keyword === 'required') return { name: keyOf(place, params.missingProperty).name, text: 'is required' }
  if (keyword === 'additionalProperties' || keyword === 'unevaluatedProperties') {
    const key = params.additionalProperty ?? params.unevaluatedProperty
    return { name: keyOf(place, key).name, text: 'is not known' }
  }
  const rule = toRule(error)
  if (rule === null) return { name: place.name, text: 'is not possible' }
  return { name: place.name, text: `must be ${rule}, got ${showValue(data, at.hidden)}` }
}

/** What a value must be; null when nothing may be there. */
function toRule({ keyword, params, schema, message }: ErrorObject): string | null {
  if (keyword in AT_LEAST) return `at least ${params.limit} ${AT_LEAST[keyword]} long`
  if (keyword in AT_MOST) return `at most ${params.limit} ${AT_MOST[keyword]} long`
  switch (keyword) {
    case 'type':
      return `of type ${[params.type].flat().join(' or ')}`
    case 'enum':
      return `one of ${(schema as unknown[])
        .slice(0, 20)
        .map(item => JSON.stringify(item))
        .join(', ')}`
    case 'const':
      return JSON.stringify(schema)
    case 'pattern':
      return `a text that matches ${params.pattern}`
    case 'format':
      return `a valid ${params.format}`
    case 'uniqueItems':
      return 'a list without repetitions'
    case 'multipleOf':
      return `a multiple of ${params.multipleOf}`
    case 'minimum':
    case 'maximum':
    case 'exclusiveMinimum':
    case 'exclusiveMaximum':
      return `${params.comparison} ${params.limit}`
    case 'false schema':
      return null
    default:
      return `what its schema asks for (${keyword}${message === undefined ? '' : `: ${message}`})`
  }
}
