/** The keywords of JSON Schema 2020-12: what each may hold, where schemas are, and copies of schemas. Owner: page validation/schema-file. */

import { keyOf, nearest, type Place, report, reportUnknownKey, reportWrong } from '../config/fields.ts'
import { isObject } from '../core/json.ts'
import { LinearPattern, WorkBudget } from './linear-pattern.ts'

/** A JSON Schema: an object of keywords, or true for everything and false for nothing. */
export type Schema = boolean | Readonly<Record<string, unknown>>

/** References to definitions of a file begin with this. */
export const DEFINITIONS = '#/$defs/'

export const SCHEMA_RULE = 'a JSON Schema: an object, true or false'

export function isSchema(value: unknown): value is Schema {
  return typeof value === 'boolean' || isObject(value)
}

/** Values that a keyword may have, and where schemas are in them. */
interface Kind {
  rule: string
  accepts: (value: unknown) => boolean
  holds: 'schema' | 'list' | 'map' | 'data'
}

const KEYWORDS = new Map<string, Kind>()

function define(keywords: string, rule: string, accepts: Kind['accepts'], holds: Kind['holds'] = 'data'): void {
  for (const keyword of keywords.split(' ')) KEYWORDS.set(keyword, { rule, accepts, holds })
}

const isAny = (): boolean => true
const isNumber = (value: unknown): value is number => typeof value === 'number'
const isString = (value: unknown): value is string => typeof value === 'string'
const isNames = (value: unknown): value is string[] =>
  Array.isArray(value) && value.every(isString) && new Set(value).size === value.length
const TYPES = ['string', 'number', 'integer', 'boolean', 'object', 'array', 'null']
const isTypes = (value: unknown): boolean => {
  const types = [value].flat()
  return types.length > 0 && isNames(types) && types.every(type => TYPES.includes(type))
}

// A single schema is checked where it is walked.
define('additionalProperties items contains not if then else propertyNames', SCHEMA_RULE, isAny, 'schema')
define('unevaluatedItems unevaluatedProperties contentSchema', SCHEMA_RULE, isAny, 'schema')
define(
  'allOf anyOf oneOf prefixItems',
  'a list of at least one schema',
  list => Array.isArray(list) && list.length > 0,
  'list',
)
define('properties patternProperties dependentSchemas $defs definitions', 'an object', isObject, 'map')
define('type', `one of ${TYPES.join(', ')}, or a list of some of them`, isTypes)
define('multipleOf', 'a number above 0', value => isNumber(value) && value > 0)
define('minimum maximum exclusiveMinimum exclusiveMaximum', 'a number', isNumber)
for (const of of ['Length', 'Items', 'Properties', 'Contains'])
  define(`min${of} max${of}`, 'an integer of at least 0', value => Number.isInteger(value) && (value as number) >= 0)
define('$ref $id $schema $anchor $comment title description format pattern', 'a string', isString)
define('contentMediaType contentEncoding', 'a string', isString)
define('uniqueItems deprecated readOnly writeOnly', 'true or false', value => typeof value === 'boolean')
define('enum examples', 'a list', Array.isArray)
define('required', 'a list of distinct strings', isNames)
define(
  'dependentRequired',
  'an object of lists of distinct strings',
  value => isObject(value) && Object.values(value).every(isNames),
)
define('const default', 'anything', isAny)

/** Words that OpenAPI knows beside JSON Schema. */
const OPENAPI = new Set(['example', 'nullable', 'discriminator', 'externalDocs', 'xml'])

/** Keywords that would be ignored, or that other tools read differently, with the replacement. */
const IMPOSSIBLE: readonly [keyword: string, hint: string][] = [
  ['$dynamicRef', 'Write a plain $ref.'],
  ['$recursiveRef', 'Write a plain $ref.'],
  ['dependencies', 'Write dependentRequired or dependentSchemas.'],
  ['additionalItems', 'Write prefixItems and items.'],
]

/** Reports keywords of one schema that hold something else than they may, and patterns that are not taken. */
export function checkKeywords(schema: Readonly<Record<string, unknown>>, at: Place): void {
  for (const [keyword, value] of Object.entries(schema)) {
    const kind = KEYWORDS.get(keyword)
    if (kind?.accepts(value) === false) reportWrong(keyOf(at, keyword), kind.rule, value)
    // Words of other tools are fine; one that is nearly a keyword is a slip that would check nothing.
    if (kind === undefined && !OPENAPI.has(keyword) && nearest(keyword, KEYWORDS.keys()) !== null)
      reportUnknownKey(keyOf(at, keyword), keyword, KEYWORDS.keys(), 'keyword')
  }
  for (const [keyword, hint] of IMPOSSIBLE)
    if (Object.hasOwn(schema, keyword)) report(keyOf(at, keyword), 'CONFIG_VALUE', 'is not supported here', hint)
  const { pattern, properties, patternProperties } = schema
  if (isObject(properties) && Object.hasOwn(properties, '__proto__')) {
    // ajv passes over it, so it would go unchecked.
    const place = keyOf(keyOf(at, 'properties'), '__proto__')
    report(place, 'CONFIG_VALUE', 'cannot be used as a name', 'Choose another name.')
  }
  if (typeof pattern === 'string') checkPattern(pattern, keyOf(at, 'pattern'))
  if (isObject(patternProperties))
    for (const name of Object.keys(patternProperties)) checkPattern(name, keyOf(keyOf(at, 'patternProperties'), name))
}

function checkPattern(pattern: string, at: Place): void {
  try {
    new LinearPattern(pattern, new WorkBudget(0))
  } catch (error) {
    const hint = 'Write a simpler pattern; maxLength and enum often do without one.'
    report(at, 'CONFIG_VALUE', (error as Error).message, hint)
  }
}

/** Keywords that look at the same value again, not at a part of it. */
const SAME_VALUE: ReadonlySet<string> = new Set('allOf anyOf oneOf not if then else dependentSchemas'.split(' '))

interface Child {
  keyword: string
  /** Keys from the schema to the child. */
  path: readonly string[]
  value: unknown
}

/** The values in places of schemas. */
export function childrenOf(schema: Readonly<Record<string, unknown>>): Child[] {
  return Object.entries(schema).flatMap(([keyword, value]) => {
    const holds = KEYWORDS.get(keyword)?.holds
    if (holds === 'schema') return [{ keyword, path: [keyword], value }]
    if (holds === 'list' ? !Array.isArray(value) : holds !== 'map' || !isObject(value)) return []
    return Object.entries(value as object).map(([key, item]) => ({ keyword, path: [keyword, key], value: item }))
  })
}

/** Schemas that a value of this one has to pass as well. */
export function sameValueChildren(schema: Readonly<Record<string, unknown>>): Schema[] {
  return childrenOf(schema).flatMap(({ keyword, value }) => (SAME_VALUE.has(keyword) && isSchema(value) ? [value] : []))
}

/** Keywords that name a schema or a dialect: within one file `#` is name enough. Definitions are collected elsewhere. */
const LEFT_OUT: ReadonlySet<string> = new Set(
  '$id $schema $anchor $dynamicAnchor $vocabulary $defs definitions'.split(' '),
)

interface CopyOptions {
  /** Gives the new text of the `$ref` of a schema. */
  rename: (reference: string, schema: Schema) => string
  /** True writes `{}` for true and `{ "not": {} }` for false: tools of OpenAPI take objects only. */
  spellsOut?: boolean
  /** Changes the copy of each schema that is an object. */
  complete?: (copy: Record<string, unknown>) => void
}

/** A copy without definitions and names. @param schema - valid */
export function copySchema(schema: Schema, options: CopyOptions): Schema {
  if (typeof schema === 'boolean') return options.spellsOut !== true ? schema : schema ? {} : { not: {} }
  const copyItem = (item: unknown) => copySchema(item as Schema, options)
  const copyValue = (keyword: string, value: unknown): unknown => {
    const holds = KEYWORDS.get(keyword)?.holds
    if (keyword === '$ref') return options.rename(value as string, schema)
    if (holds === 'list') return (value as unknown[]).map(copyItem)
    if (holds === 'map') return mapEntries(value as object, (_, item) => copyItem(item))
    // Every tool takes `additionalProperties: false` and the like.
    return holds === 'schema' && isObject(value) ? copyItem(value) : value
  }
  const kept = Object.fromEntries(Object.entries(schema).filter(([keyword]) => !LEFT_OUT.has(keyword)))
  const copy = mapEntries(kept, copyValue)
  options.complete?.(copy)
  return copy
}

/** `Object.fromEntries` also takes names that mean something to objects: `__proto__`. */
function mapEntries(map: object, toValue: (name: string, value: unknown) => unknown): Record<string, unknown> {
  return Object.fromEntries(Object.entries(map).map(([name, value]) => [name, toValue(name, value)]))
}
