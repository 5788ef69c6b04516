/**
 * A copy of a schema that counts the steps of a check, about 10 ns each, before it takes them. Owner: page validation/request-schema.
 *
 * A client chooses the value: each of its items is checked against each branch of a union, and each of its names against each
 * pattern. Without the count a small body takes seconds.
 */

import { isObject } from '../core/json.ts'
import { childrenOf, copySchema, sameValueChildren, type Schema } from './schema-tree.ts'

/** Steps of one check: some 50 ms. */
export const MAX_STEPS = 5_000_000
/** Keywords of the copy: the steps of a value, and how many keywords look at each character of a text. */
export const STEPS = 'x-steps'
export const TEXT_STEPS = 'x-text-steps'

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
export const CHARACTERS_PER_STEP = 4

const DEFINITIONS = '#/$defs/'
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
  readonly #isTracked: boolean
  readonly #least = new Map<string, number>()

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
    if (typeof counted.$ref !== 'string') return steps
    const name = counted.$ref.slice(DEFINITIONS.length)
    if (!this.#least.has(name)) {
      // A loop is reported elsewhere and must not be followed here.
      this.#least.set(name, 0)
      this.#least.set(name, this.leastOf(this.definitions[name] ?? true))
    }
    return steps + this.#least.get(name)!
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
  const isReference = isObject(branch) && '$ref' in branch
  const inline = factor === 1 ? BRANCH_STEPS.compiled : BRANCH_STEPS.interpreted
  const once = isReference ? BRANCH_STEPS.reference + (index >> 1) : inline
  return toEntry(once, branch)
}

function toSteps(schema: Keywords, isTracked: boolean, factor: number): Steps {
  const { required, dependentRequired, enum: values, const: constant } = schema
  const patterns = countNames(schema.patternProperties)
  const compared = [required, dependentRequired, values, constant].reduce<number>(
    (sum, one) => sum + countValues(one),
    0,
  )
  const once = Object.keys(schema).length + countNames(schema.properties) + patterns + compared * COMPARED_STEPS
  const tracked = isTracked ? 1 : 0
  // Patterns count their own steps.
  const names = countKeys(schema, NAME_KEYWORDS) + tracked
  const items = countKeys(schema, ITEM_KEYWORDS) + tracked
  return { once: once * factor, item: items * ITEM_STEPS * factor, name: names * NAME_STEPS * factor }
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
