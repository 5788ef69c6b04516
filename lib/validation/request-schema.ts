/** Requests and answers of one function against its `schema.json`. Spec: page validation/request-schema. */

import { isUtf8 } from 'node:buffer'
import { badRequest, GatewayError, orNull } from '../core/errors.ts'
import { isJsonType } from '../core/http-text.ts'
import { type Method, METHODS } from '../core/identity.ts'
import { isObject, parseObject } from '../core/json.ts'
import { type Check, type Difference, type SchemaCompiler, StepCounter } from './schema-compiler.ts'
import { type SchemaFile, type Sections, sectionsOf } from './schema-file.ts'
import { DEFINITIONS, sameValueChildren, type Schema } from './schema-tree.ts'

/** The texts of a request besides its body. */
export interface RequestTexts {
  /** HEAD is looked at as GET. */
  method: string
  params: Readonly<Record<string, string>> | null
  /** JSON text: name to text, or to a list of texts. */
  queryJson: string
  /** JSON text: lower-case name to text. */
  headersJson: string
}

/** Characters of a text that stand for a list in paths and headers, as OpenAPI has it by default. */
const LIST_SEPARATOR = ','
/** Type of a body of which nothing else is said. */
const JSON_TYPE = 'application/json'

type Texts = Readonly<Record<string, string | readonly string[]>>
type TextCheck = (texts: Texts) => Difference | null

interface MethodChecks {
  params: TextCheck | null
  query: TextCheck | null
  headers: TextCheck | null
  body: Check | null
  bodyType: string
  /** Fields of a form, which come as text. */
  bodyFields: readonly Parameter[]
  responses: ReadonlyMap<string, Check>
}

interface RequestSchemaOptions {
  methods: readonly Method[]
  /** `Content-Type` of bodies of which the file says nothing. */
  bodyType: string | null
  compiler: SchemaCompiler
  /** False leaves out the checks of responses. */
  checksAnswers?: boolean
}

type Compile = (schema: Schema, name: string, hidesValues?: boolean) => Check

/** How a function's requests are checked. Made at reload; a check compiles nothing. */
export class RequestSchema {
  readonly #methods: ReadonlyMap<string, MethodChecks>

  /**
   * @throws Error whose message says what is wrong with the schemas
   */
  constructor(file: SchemaFile, options: RequestSchemaOptions) {
    const { methods, bodyType, compiler, checksAnswers = true } = options
    const made = new Map<Schema, Check>()
    const counter = new StepCounter(file.definitions)
    // Most methods share most sections; compiling takes a millisecond.
    const compile: Compile = (schema, name, hidesValues) => {
      const check = made.get(schema) ?? compiler.compile(schema, counter, name, hidesValues)
      if (typeof schema === 'object') made.set(schema, check)
      return check
    }
    this.#methods = new Map(
      METHODS.filter(method => methods.includes(method)).map(method => {
        const { responses, ...sections } = sectionsOf(file, method)
        const checked = checksAnswers && responses !== undefined ? { ...sections, responses } : sections
        return [method, toChecks(checked, file.definitions, bodyType, compile)]
      }),
    )
  }

  /** @returns a refusal that names the field, or null */
  checkTexts({ method, params, queryJson, headersJson }: RequestTexts): GatewayError | null {
    const checks = this.#of(method)
    if (checks === undefined) return null
    const found =
      checks.params?.(params ?? {}) ??
      (checks.query === null ? null : checks.query(JSON.parse(queryJson) as Texts)) ??
      (checks.headers === null ? null : checks.headers(JSON.parse(headersJson) as Texts))
    return found && badRequest(found.name, found.text)
  }

  /**
   * @param contentType - the request's own; null when it names none
   * @returns a refusal that names the field, or null
   */
  checkBody(method: string, contentType: string | null, body: Buffer | null): GatewayError | null {
    const checks = this.#of(method)
    if (checks === undefined || checks.body === null) return null
    const { bodyType } = checks
    if (body !== null && contentType !== null && !isSameType(contentType, bodyType)) {
      const message = `body must be ${bodyType}, got ${JSON.stringify(contentType.slice(0, 100))} in Content-Type`
      return new GatewayError('UNSUPPORTED_TYPE', message)
    }
    const found = checkValue(body, bodyType, checks.bodyFields, checks.body)
    return found && badRequest(found.name, found.text)
  }

  /** The first problem of a response; null without one, or without a schema for its status. */
  checkResponse(method: string, status: number, contentType: string | null, body: Buffer): Difference | null {
    const responses = this.#of(method)?.responses
    const check =
      responses?.get(String(status)) ?? responses?.get(`${Math.floor(status / 100)}XX`) ?? responses?.get('default')
    if (check === undefined) return null
    return checkValue(body.length === 0 ? null : body, contentType ?? JSON_TYPE, [], check)
  }

  #of(method: string): MethodChecks | undefined {
    return this.#methods.get(method === 'HEAD' ? 'GET' : method)
  }
}

function toChecks(
  sections: Sections,
  definitions: Definitions,
  bodyType: string | null,
  compile: Compile,
): MethodChecks {
  const { body = null, responses = new Map<string, Schema>() } = sections
  const toTexts = (name: 'params' | 'query' | 'headers', separator: string | null): TextCheck | null => {
    const schema = sections[name]
    if (schema === undefined) return null
    const parameters = parametersOf(schema, definitions)
    if (name === 'headers') return toHeaderCheck(parameters, compile)
    const check = compile(schema, name)
    return texts => check(readTexts(texts, Object.keys(texts), parameters, separator))
  }
  return {
    params: toTexts('params', LIST_SEPARATOR),
    query: toTexts('query', null),
    headers: toTexts('headers', LIST_SEPARATOR),
    body: body === null ? null : compile(body, 'body'),
    bodyType: (body === null ? null : mediaTypeOf(body)) ?? bodyType ?? JSON_TYPE,
    bodyFields: body === null ? [] : parametersOf(body, definitions),
    // Values of a response may be secret: they are not shown.
    responses: new Map([...responses].map(([status, schema]) => [status, compile(schema, 'body', true)])),
  }
}

/** The type that a schema gives its value: `contentMediaType`. */
export function mediaTypeOf(schema: Schema): string | null {
  return typeof schema === 'object' && typeof schema.contentMediaType === 'string' ? schema.contentMediaType : null
}

/** Clients send many headers, with names in any case: only the declared ones are checked, by their lower-case names. */
function toHeaderCheck(parameters: readonly Parameter[], compile: Compile): TextCheck {
  const lower = parameters.map(parameter => ({ ...parameter, name: parameter.name.toLowerCase() }))
  const properties = Object.fromEntries(lower.map(({ name, schema }) => [name, schema]))
  const required = lower.filter(({ isRequired }) => isRequired).map(({ name }) => name)
  const check = compile({ properties, required }, 'headers', true)
  const names = Object.keys(properties)
  return texts => check(readTexts(texts, names, lower, LIST_SEPARATOR))
}

/** @param names - of the texts that are taken, as far as they are there */
function readTexts(
  texts: Texts,
  names: readonly string[],
  parameters: readonly Parameter[],
  separator: string | null,
): unknown {
  const values: Record<string, unknown> = Object.create(null)
  for (const name of names) if (Object.hasOwn(texts, name)) values[name] = texts[name]
  for (const { name, shape } of parameters) if (name in values) values[name] = readText(texts[name]!, shape, separator)
  return values
}

const TEXT_TYPE = /^\s*text\/|[/+](?:xml|yaml)\s*(?:;|$)|;\s*charset=/i
const FORM_TYPE = 'application/x-www-form-urlencoded'

/** Checks the value of a body: JSON, the fields of a form, or its text. No body is null. */
function checkValue(
  body: Buffer | null,
  type: string,
  parameters: readonly Parameter[],
  check: Check,
): Difference | null {
  if (body === null) return check(null)
  if (!isUtf8(body)) {
    if (isTextType(type)) return { name: 'body', text: 'is not UTF-8 text' }
    // One character for each byte, so that maxLength limits the bytes.
    return check(body.toString('latin1'))
  }
  const text = body.toString('utf8')
  if (isJsonType(type)) {
    const parsed = orNull((): { value: unknown } => ({ value: JSON.parse(text) }))
    return parsed === null ? { name: 'body', text: 'is not JSON' } : check(parsed.value)
  }
  if (!isSameType(type, FORM_TYPE)) return check(text)
  const fields: Record<string, string | string[]> = Object.create(null)
  for (const [name, value] of new URLSearchParams(text)) {
    const known = fields[name]
    fields[name] = known === undefined ? value : [...[known].flat(), value]
  }
  return check(readTexts(fields, Object.keys(fields), parameters, null))
}

/** True for types whose content is text: other content may be any bytes. */
function isTextType(type: string): boolean {
  return isJsonType(type) || isSameType(type, FORM_TYPE) || TEXT_TYPE.test(type)
}

/** True for the same type without its parameters; one kind of JSON is as good as another. */
function isSameType(a: string, b: string): boolean {
  if (isJsonType(b)) return isJsonType(a)
  const plain = (text: string) => text.split(';', 1)[0]!.trim().toLowerCase()
  return plain(a) === plain(b)
}

// Parameters, which arrive as text, as the values of their schema: `page=2` is a number where the schema says integer. For the check alone;
// the handler gets the text.

/** The types that a schema allows, as far as they matter for reading text. */
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

type SchemaObject = Readonly<Record<string, unknown>>

/**
 * The schema and others that look at the same value, references followed.
 * @param more - returns those of one schema: by default all that the value has to pass or may pass
 */
function* parts(
  schema: Schema,
  definitions: Definitions,
  more: (schema: SchemaObject) => readonly Schema[] = sameValueChildren,
  left = MAX_REFERENCES,
): Generator<SchemaObject> {
  if (typeof schema === 'boolean' || left <= 0) return
  yield schema
  const { $ref } = schema
  const target = typeof $ref === 'string' ? [definitions.get($ref.slice(DEFINITIONS.length)) ?? true] : []
  for (const child of [...target, ...more(schema)]) yield* parts(child, definitions, more, left - 1)
}

/** Schemas that every value has to pass: not the branches of a choice. */
function requiredParts({ allOf }: SchemaObject): readonly Schema[] {
  return Array.isArray(allOf) ? allOf : []
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

function typeOf(value: unknown): string {
  if (value === null) return 'null'
  return Array.isArray(value) ? 'array' : typeof value
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
  for (const part of parts(section, definitions, requiredParts))
    if (Array.isArray(part.required)) for (const name of part.required) required.add(String(name))
  return [...schemas].map(([name, schema]) => ({
    name,
    schema,
    isRequired: required.has(name),
    shape: shapeOf(schema, definitions),
  }))
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
  if (types.has('object') && given.startsWith('{')) return parseObject(given) ?? given
  return given
}
