/** Requests and answers of one function against its `schema.json`. Spec: page validation/request-schema. */

import { isUtf8 } from 'node:buffer'
import { GatewayError } from '../core/errors.ts'
import { isJsonType } from '../core/http-text.ts'
import { type Method, METHODS } from '../core/identity.ts'
import type { Check, Difference, SchemaCompiler } from './schema-compiler.ts'
import { type SchemaFile, type Sections, sectionsOf } from './schema-file.ts'
import { StepCounter } from './schema-steps.ts'
import type { Schema } from './schema-tree.ts'
import { type Parameter, parametersOf, readText } from './text-values.ts'

/** What a request carries beside its body. */
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

interface MethodChecks {
  params: ((texts: Texts) => Difference | null) | null
  query: ((texts: Texts) => Difference | null) | null
  headers: ((texts: Texts) => Difference | null) | null
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
  /** False leaves out the checks of answers: where nobody looks at them. */
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
    return found === null ? null : toRefusal(found)
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
    const read = readBody(body, bodyType, checks.bodyFields)
    const found = 'problem' in read ? { name: 'body', text: read.problem } : checks.body(read.value)
    return found === null ? null : toRefusal(found)
  }

  /** What is wrong with an answer; null when nothing is, or nothing is said of its status. */
  checkResponse(method: string, status: number, contentType: string | null, body: Buffer): Difference | null {
    const responses = this.#of(method)?.responses
    const check =
      responses?.get(String(status)) ?? responses?.get(`${Math.floor(status / 100)}XX`) ?? responses?.get('default')
    if (check === undefined) return null
    const read = readBody(body.length === 0 ? null : body, contentType ?? JSON_TYPE, [])
    return 'problem' in read ? { name: 'body', text: read.problem } : check(read.value)
  }

  #of(method: string): MethodChecks | undefined {
    return this.#methods.get(method === 'HEAD' ? 'GET' : method)
  }
}

function toRefusal({ name, text }: Difference): GatewayError {
  return new GatewayError('BAD_REQUEST', `${name} ${text}`)
}

function toChecks(
  sections: Sections,
  definitions: SchemaFile['definitions'],
  bodyType: string | null,
  compile: Compile,
): MethodChecks {
  const toTexts = (name: 'params' | 'query' | 'headers', separator: string | null) => {
    const schema = sections[name]
    if (schema === undefined) return null
    const parameters = parametersOf(schema, definitions)
    // Clients send headers that nobody has declared: only those that are declared are looked at.
    if (name === 'headers') return toHeaderCheck(parameters, compile(withLowerNames(schema, parameters), name, true))
    const check = compile(schema, name)
    return (texts: Texts) => check(readTexts(texts, parameters, separator))
  }
  return {
    params: toTexts('params', LIST_SEPARATOR),
    query: toTexts('query', null),
    headers: toTexts('headers', LIST_SEPARATOR),
    body: sections.body === undefined ? null : compile(sections.body, 'body'),
    bodyType: (sections.body === undefined ? null : mediaTypeOf(sections.body)) ?? bodyType ?? JSON_TYPE,
    bodyFields: sections.body === undefined ? [] : parametersOf(sections.body, definitions),
    // What an answer holds may be a secret: it is not shown.
    responses: new Map(
      [...(sections.responses ?? [])].map(([status, schema]) => [status, compile(schema, 'body', true)]),
    ),
  }
}

/** The type that a schema gives its value: `contentMediaType`. */
export function mediaTypeOf(schema: Schema): string | null {
  return typeof schema === 'object' && typeof schema.contentMediaType === 'string' ? schema.contentMediaType : null
}

/** Names of headers in any case mean the same: the declared ones as an object of lower-case names. */
function withLowerNames(_schema: Schema, parameters: readonly Parameter[]): Schema {
  return {
    properties: Object.fromEntries(parameters.map(({ name, schema }) => [name.toLowerCase(), schema])),
    required: parameters.filter(({ isRequired }) => isRequired).map(({ name }) => name.toLowerCase()),
  }
}

function toHeaderCheck(parameters: readonly Parameter[], check: Check) {
  const lower = parameters.map(parameter => ({ ...parameter, name: parameter.name.toLowerCase() }))
  return (texts: Texts): Difference | null => {
    const declared: Record<string, string | readonly string[]> = Object.create(null)
    for (const { name } of lower) if (Object.hasOwn(texts, name)) declared[name] = texts[name]!
    return check(readTexts(declared, lower, LIST_SEPARATOR))
  }
}

function readTexts(texts: Texts, parameters: readonly Parameter[], separator: string | null): unknown {
  const values: Record<string, unknown> = Object.create(null)
  for (const name of Object.keys(texts)) values[name] = texts[name]
  for (const { name, shape } of parameters) if (name in values) values[name] = readText(texts[name]!, shape, separator)
  return values
}

const FORM_TYPE = 'application/x-www-form-urlencoded'

/** The value of a body: JSON, the fields of a form, or its text. No body is null. */
function readBody(
  body: Buffer | null,
  type: string,
  parameters: readonly Parameter[],
): { value: unknown } | { problem: string } {
  if (body === null) return { value: null }
  if (!isUtf8(body)) return { problem: 'is not UTF-8 text' }
  const text = body.toString('utf8')
  if (isJsonType(type)) {
    try {
      return { value: JSON.parse(text) }
    } catch {
      return { problem: 'is not JSON' }
    }
  }
  if (!isSameType(type, FORM_TYPE)) return { value: text }
  const fields: Record<string, string | string[]> = Object.create(null)
  for (const [name, value] of new URLSearchParams(text)) {
    const known = fields[name]
    fields[name] = known === undefined ? value : [...[known].flat(), value]
  }
  return { value: readTexts(fields, parameters, null) }
}

/** True for the same type without its parameters; one kind of JSON is as good as another. */
function isSameType(a: string, b: string): boolean {
  if (isJsonType(b)) return isJsonType(a)
  const plain = (text: string) => text.split(';', 1)[0]!.trim().toLowerCase()
  return plain(a) === plain(b)
}
