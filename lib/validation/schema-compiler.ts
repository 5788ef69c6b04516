/**
 * Schemas to functions that check values, by ajv. Owner: page validation/request-schema.
 *
 * ajv writes a function for each schema, which is why it is here: checking takes microseconds. What it does in time that a client can stretch
 * is replaced: patterns, `uniqueItems`, and references, whose steps are counted.
 */

import type { Ajv2020, ErrorObject, ValidateFunction } from 'ajv/dist/2020.js'
import { keyOf, itemOf, type Place, showValue, toPlace } from '../config/findings.ts'
import { FORMATS } from './formats.ts'
import { LinearPattern, TooMuchWork, type WorkBudget } from './linear-pattern.ts'
import type { Schema } from './schema-tree.ts'

/** Steps of one check: some 50 ms. */
const MAX_STEPS = 5_000_000
/** What following a reference counts. */
const REFERENCE_STEPS = 10
const STEP = 'x-step'

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
    const { Ajv2020: Validator } = await import('ajv/dist/2020.js')
    const budget: WorkBudget = { left: MAX_STEPS }
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
      code: { regExp },
    })
    ajv.addKeyword({ keyword: STEP, schemaType: 'boolean', errors: false, validate: () => countStep(budget) })
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
   * @param name - what the value is called in messages: `body`, `query`
   * @param hidesValues - true leaves values out of messages
   * @throws Error whose message says what is wrong with the schema
   */
  compile(schema: Schema, definitions: ReadonlyMap<string, Schema>, name: string, hidesValues = false): Check {
    const whole = { $defs: toCounted(definitions), allOf: [schema] }
    const validate = this.#ajv.compile(whole)
    // The function lives by itself; the instance must not collect the schemas of every reload.
    this.#ajv.removeSchema(whole)
    const at: Place = toPlace(null, name, [], hidesValues)
    return value => this.#check(validate, value, at)
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

function toPattern(source: string, budget: WorkBudget): { test: (text: string) => boolean; toString: () => string } {
  const pattern = new LinearPattern(source, budget)
  // ajv keeps patterns by their text.
  return { test: text => pattern.test(text), toString: () => `/${source}/u` }
}

function countStep(budget: WorkBudget): true {
  budget.left -= REFERENCE_STEPS
  if (budget.left < 0) throw new TooMuchWork()
  return true
}

/** Definitions that count when they are entered: a value of n parts can be checked in 2^n ways by few references. */
function toCounted(definitions: ReadonlyMap<string, Schema>): Record<string, Schema> {
  const counted: Record<string, Schema> = {}
  for (const [name, schema] of definitions)
    counted[name] = typeof schema === 'boolean' ? schema : { [STEP]: true, ...schema }
  return counted
}

/** Compares texts of the items, where ajv compares each item with each. */
function isUnique(list: readonly unknown[], budget: WorkBudget): boolean {
  const seen = new Set<string>()
  for (const item of list) {
    const text = toSortedJson(item)
    budget.left -= text.length
    if (budget.left < 0) throw new TooMuchWork()
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
