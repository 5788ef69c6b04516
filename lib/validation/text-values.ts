/**
 * Parameters, which come as text, as the values their schema speaks of: `page=2` is a number where the schema says integer. For the check alone;
 * the handler gets the text. Owner: page validation/request-schema.
 */

import { isObject } from '../core/json.ts'
import { sameValueChildren, type Schema } from './schema-tree.ts'

type Type = 'string' | 'number' | 'integer' | 'boolean' | 'object' | 'array' | 'null'

/** What a schema lets a value be, as far as its text has to be read for it. */
interface TextShape {
  types: ReadonlySet<string>
  /** Of a list's items. */
  items: TextShape | null
}

/** The parameters that a section declares, and how their texts are read. */
export interface Parameter {
  name: string
  schema: Schema
  isRequired: boolean
  shape: TextShape
}

type Definitions = ReadonlyMap<string, Schema>

/** References followed for one schema. */
const MAX_REFERENCES = 20
/** As JSON writes a number: `0x10`, ` 1 ` and `Infinity` are text. */
const JSON_NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/

/** A schema with the definition it refers to in its place. */
function deref(schema: Schema, definitions: Definitions): Schema {
  let found = schema
  for (let i = 0; i < MAX_REFERENCES && typeof found === 'object' && typeof found.$ref === 'string'; i++)
    found = definitions.get(found.$ref.slice('#/$defs/'.length)) ?? true
  return found
}

/** The schema and all that the same value has to pass or may pass, references followed. */
function* parts(
  schema: Schema,
  definitions: Definitions,
  left = MAX_REFERENCES,
): Generator<Readonly<Record<string, unknown>>> {
  if (typeof schema === 'boolean' || left <= 0) return
  yield schema
  if (typeof schema.$ref === 'string') yield* parts(deref({ $ref: schema.$ref }, definitions), definitions, left - 1)
  for (const child of sameValueChildren(schema)) yield* parts(child, definitions, left - 1)
}

export function shapeOf(schema: Schema, definitions: Definitions, depth = 0): TextShape {
  const types = new Set<string>()
  let items: TextShape | null = null
  for (const part of parts(schema, definitions)) {
    for (const type of Array.isArray(part.type) ? part.type : [part.type]) if (typeof type === 'string') types.add(type)
    for (const value of Array.isArray(part.enum) ? part.enum : 'const' in part ? [part.const] : [])
      types.add(typeOf(value))
    if (depth === 0 && isObject(part.items)) items ??= shapeOf(part.items, definitions, 1)
  }
  return { types, items }
}

function typeOf(value: unknown): Type {
  if (value === null) return 'null'
  if (Array.isArray(value)) return 'array'
  return typeof value as Type
}

/** True for a schema that takes null, or anything. */
export function allowsNull(schema: Schema, definitions: Definitions): boolean {
  if (typeof schema === 'boolean') return schema
  const { types } = shapeOf(schema, definitions)
  return types.size === 0 || types.has('null')
}

/** The declared parameters of a section, in the order of the file. */
export function parametersOf(section: Schema, definitions: Definitions): Parameter[] {
  const schemas = new Map<string, Schema>()
  const required = new Set<string>()
  for (const part of parts(section, definitions)) {
    if (isObject(part.properties))
      for (const [name, schema] of Object.entries(part.properties))
        if (!schemas.has(name)) schemas.set(name, schema as Schema)
  }
  for (const part of mustPass(section, definitions))
    if (Array.isArray(part.required)) for (const name of part.required) required.add(String(name))
  return [...schemas].map(([name, schema]) => ({
    name,
    schema,
    isRequired: required.has(name),
    shape: shapeOf(schema, definitions),
  }))
}

/** The schema itself, what it refers to and what `allOf` adds: what every value has to pass. */
function* mustPass(
  schema: Schema,
  definitions: Definitions,
  left = MAX_REFERENCES,
): Generator<Readonly<Record<string, unknown>>> {
  if (typeof schema === 'boolean' || left <= 0) return
  yield schema
  if (typeof schema.$ref === 'string') yield* mustPass(deref({ $ref: schema.$ref }, definitions), definitions, left - 1)
  if (Array.isArray(schema.allOf))
    for (const child of schema.allOf) yield* mustPass(child as Schema, definitions, left - 1)
}

/**
 * The value that a text stands for.
 * @param separator - between the items of a list that is one text; null where a list comes as several texts
 */
export function readText(
  given: string | readonly string[],
  { types, items }: TextShape,
  separator: string | null,
): unknown {
  if (typeof given !== 'string') return given.map(item => (items === null ? item : readText(item, items, null)))
  if (types.has('array')) {
    const texts = separator === null ? [given] : given.split(separator).map(text => text.trim())
    return texts.map(text => (items === null ? text : readText(text, items, null)))
  }
  if (types.has('string') || types.size === 0) return given
  if ((types.has('integer') || types.has('number')) && JSON_NUMBER.test(given)) return Number(given)
  if (types.has('boolean') && (given === 'true' || given === 'false')) return given === 'true'
  if (types.has('null') && given === '') return null
  if (types.has('object') && given.startsWith('{')) return parseOr(given)
  return given
}

function parseOr(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}
