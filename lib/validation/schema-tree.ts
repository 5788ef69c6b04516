/** Where schemas stand in a schema, and a copy of one with its references changed. Owner: page validation/schema-file. */

import { isObject } from '../core/json.ts'

/** A JSON Schema: an object of keywords, or true for everything and false for nothing. */
export type Schema = boolean | Readonly<Record<string, unknown>>

/** References to definitions of a file begin with this. */
export const DEFINITIONS = '#/$defs/'

const SINGLE =
  'additionalProperties items contains not if then else propertyNames unevaluatedItems unevaluatedProperties contentSchema'

/** Keywords whose value is a schema, a list of them, or a map to them. Everything else is plain data. */
const HOLDERS: ReadonlyMap<string, 'schema' | 'list' | 'map'> = new Map([
  ...SINGLE.split(' ').map(keyword => [keyword, 'schema'] as const),
  ...['allOf', 'anyOf', 'oneOf', 'prefixItems'].map(keyword => [keyword, 'list'] as const),
  ...['properties', 'patternProperties', 'dependentSchemas', '$defs', 'definitions'].map(
    keyword => [keyword, 'map'] as const,
  ),
])

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
    const holder = HOLDERS.get(keyword)
    if (holder === 'schema') return [{ keyword, path: [keyword], value }]
    if (holder === undefined || (holder === 'list' ? !Array.isArray(value) : !isObject(value))) return []
    return Object.entries(value as object).map(([key, item]) => ({ keyword, path: [keyword, key], value: item }))
  })
}

/** Schemas that a value of this one has to pass as well. */
export function sameValueChildren(schema: Readonly<Record<string, unknown>>): Schema[] {
  return childrenOf(schema).flatMap(({ keyword, value }) => (SAME_VALUE.has(keyword) && isSchema(value) ? [value] : []))
}

export function isSchema(value: unknown): value is Schema {
  return typeof value === 'boolean' || isObject(value)
}

/** Keywords that name a schema or a dialect: within one file `#` is name enough. Definitions are collected elsewhere. */
const LEFT_OUT: ReadonlySet<string> = new Set(
  '$id $schema $anchor $dynamicAnchor $vocabulary $defs definitions'.split(' '),
)

interface CopyOptions {
  /** Gives the new text of a `$ref`. */
  rename: (reference: string) => string
  /** True writes `{}` for true and `{ "not": {} }` for false: tools of OpenAPI take objects only. */
  spellsOut?: boolean
  /** Changes the copy of each schema that is an object. */
  complete?: (copy: Record<string, unknown>) => void
}

/** A copy without definitions and names. */
export function copySchema(schema: Schema, options: CopyOptions): Schema {
  if (typeof schema === 'boolean') return options.spellsOut !== true ? schema : schema ? {} : { not: {} }
  const copy: Record<string, unknown> = {}
  for (const [keyword, value] of Object.entries(schema)) {
    if (!LEFT_OUT.has(keyword)) define(copy, keyword, copyValue(keyword, value, options))
  }
  options.complete?.(copy)
  return copy
}

function copyValue(keyword: string, value: unknown, options: CopyOptions): unknown {
  if (keyword === '$ref' && typeof value === 'string') return options.rename(value)
  const holder = HOLDERS.get(keyword)
  if (holder === 'list' && Array.isArray(value)) return value.map(item => copySchema(item as Schema, options))
  // Every tool takes `additionalProperties: false` and the like.
  if (holder === undefined || !isObject(value)) return value
  if (holder === 'schema') return copySchema(value, options)
  const copy: Record<string, unknown> = {}
  for (const [name, item] of Object.entries(value)) define(copy, name, copySchema(item as Schema, options))
  return copy
}

/** As `copy[name] = value`, for names that mean something to objects too: `__proto__`. */
function define(copy: Record<string, unknown>, name: string, value: unknown): void {
  Object.defineProperty(copy, name, { value, enumerable: true, writable: true, configurable: true })
}
