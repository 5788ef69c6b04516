/** The route table as an OpenAPI 3.1 document. Pure; the caller brings hints and schemas. Spec: §1, 5; page http/openapi. */

import { STATUS_CODES } from 'node:http'
import type { FunctionVersion } from '../core/catalog.ts'
import { orNull } from '../core/errors.ts'
import { isJsonType } from '../core/http-text.ts'
import { type Method, METHODS } from '../core/identity.ts'
import { DEFAULT_VERSION_LABEL, toVersionPath } from '../core/versions.ts'
import { ADMIN_TOKEN_HEADER } from '../invocation/forwarded-headers.ts'
import { allowsNull, mediaTypeOf, type Parameter, parametersOf } from '../validation/request-schema.ts'
import { type SchemaFile, type Sections, sectionsOf, type Security } from '../validation/schema-file.ts'
import { copySchema, DEFINITIONS, type Schema } from '../validation/schema-tree.ts'

/** One mapped route: its pattern and who answers which methods, each with its own spelling of the route. */
interface DocumentedRoute {
  pattern: string
  owners: readonly { fn: FunctionVersion; methods: readonly Method[]; pattern?: string }[]
}

/** Hints in a handler's comments. */
export interface HandlerHints {
  summary: string | null
  query: Readonly<Record<string, unknown>> | null
  body: unknown
  contentType: string | null
}

export interface OpenApiFacts {
  /** Name of the API: `info` of the document. */
  info: { title: string; version: string; description: string }
  routes: readonly DocumentedRoute[]
  /** Pinned versions, each at its own address. */
  versions: readonly FunctionVersion[]
  hints: ReadonlyMap<string, HandlerHints>
  /** A function's `schema.json`; null without one. */
  schemaOf: (fn: FunctionVersion) => SchemaFile | null
  baseUrl: string
  /** Paths of the control plane with their methods; empty unless they are wanted. */
  internal: readonly { path: string; methods: readonly string[] }[]
}

type Json = Record<string, unknown>

const JSON_TYPE = 'application/json'
const TAGS = [
  { name: 'functions', description: 'Routes of functions.' },
  { name: 'internal', description: 'The control plane of the gateway.' },
]
const WITH_BODY: ReadonlySet<string> = new Set(['POST', 'PUT', 'PATCH', 'DELETE'])
/** OpenAPI has other places for these. */
const NO_PARAMETERS: ReadonlySet<string> = new Set(['accept', 'content-type', 'authorization'])
/** Answers without a body. */
const BODYLESS = /^(?:1(?:\d\d|XX)|204|304)$/

/** The gateway's own refusals: written once, named by every operation. */
const REFUSALS: ReadonlyMap<number, string> = new Map([
  [400, 'malformed request, or one that is not what the schema of the function asks for'],
  [404, 'not found'],
  [405, 'method not allowed'],
  [413, 'payload too large'],
  [415, 'body of another type than the schema of the function says'],
  [421, 'host not allowed'],
  [429, 'concurrency limit reached'],
  [500, 'the function failed, or the gateway did'],
  [502, 'invalid runtime response'],
  [503, 'runtime down'],
  [504, 'runtime timeout'],
])

const ERROR_SCHEMA = { $ref: '#/components/schemas/Error' }
const ERROR_COMPONENT = {
  type: 'object',
  required: ['error'],
  properties: {
    error: { type: 'string' },
    detail: { type: 'object', description: 'In development: where it failed.' },
  },
}

function toErrorResponse(description: string): Json {
  return { description, content: { [JSON_TYPE]: { schema: ERROR_SCHEMA } } }
}

interface TemplateParam {
  name: string
  isRest: boolean
}

/** `/users/:id` to `/users/{id}`; an optional catch-all has two paths, with and without it. */
export function toOpenApiPaths(pattern: string): { path: string; params: TemplateParam[] }[] {
  const params: TemplateParam[] = []
  const segments = pattern.split('/').map(segment => {
    if (!segment.startsWith(':') && segment !== '*') return segment
    const wanted = segment === '*' ? 'wildcard' : segment.slice(1).replace(/\*\??$/, '')
    // A template has each name once.
    const name = params.some(param => param.name === wanted) ? `${wanted}2` : wanted
    params.push({ name, isRest: segment.endsWith('*') || segment.endsWith('*?') })
    return `{${name}}`
  })
  const path = segments.join('/') || '/'
  if (!pattern.endsWith('*?')) return [{ path, params }]
  return [
    { path: segments.slice(0, -1).join('/') || '/', params: params.slice(0, -1) },
    { path, params },
  ]
}

export function toOpenApi({ info, routes, versions, hints, schemaOf, baseUrl, internal }: OpenApiFacts): Json {
  const paths: Record<string, Record<string, Json>> = Object.create(null)
  const components = new OpenApiSchemas()
  const usedIds = new Set<string>()
  /** The ids of a document are unique: each further route of a function counts up. */
  const toFreeId = (toId: (count: number) => string): string => {
    let count = 1
    while (usedIds.has(toId(count))) count += 1
    usedIds.add(toId(count))
    return toId(count)
  }
  /** @param own - the function's own spelling of the route */
  const add = (pattern: string, own: string, fn: FunctionVersion, methods: readonly Method[]): void => {
    const schemas = components.add(fn, schemaOf(fn))
    const ownParams = toOpenApiPaths(own).at(-1)!.params
    for (const { path, params: names } of toOpenApiPaths(pattern)) {
      const params = names.map((param, index) => ({ ...param, own: ownParams[index]?.name ?? param.name }))
      for (const method of METHODS) {
        const key = method.toLowerCase()
        if (!methods.includes(method) || paths[path]?.[key] !== undefined) continue
        const operationId = toFreeId(count => toOperationId(method, fn, count))
        paths[path] ??= {}
        paths[path][key] = toOperation({ method, fn, params, hints: hints.get(fn.key), schemas, operationId })
      }
    }
  }
  for (const { pattern, owners } of routes)
    for (const { fn, methods, pattern: own = pattern } of owners) add(pattern, own, fn, methods)
  for (const fn of versions) {
    const path = toVersionPath(fn.name, fn.version!)
    add(path, path, fn, fn.policy.methods)
  }
  for (const { path: pattern, methods } of internal) {
    const { path, params } = toOpenApiPaths(pattern)[0]!
    for (const method of methods) {
      const operationId = toFreeId(count => toInternalId(method, path, count))
      paths[path] ??= {}
      paths[path][method.toLowerCase()] = toInternalOperation(method, path, params, operationId)
    }
  }
  const { schemas, securitySchemes } = components
  if (internal.length > 0) securitySchemes.adminToken = { type: 'apiKey', in: 'header', name: ADMIN_TOKEN_HEADER }
  return {
    openapi: '3.1.0',
    info,
    servers: [{ url: baseUrl }],
    // Functions authenticate their callers themselves, each in its own way.
    security: [],
    tags: internal.length > 0 ? TAGS : TAGS.slice(0, 1),
    paths,
    components: {
      schemas: { Error: ERROR_COMPONENT, ...schemas },
      responses: toErrorComponents(Object.values(paths).flatMap(operations => Object.values(operations))),
      ...(Object.keys(securitySchemes).length > 0 && { securitySchemes }),
    },
  }
}

/** The `components.responses` that some of the operations name. */
function toErrorComponents(operations: readonly Json[]): Json {
  const used = new Set(
    operations
      .flatMap(({ responses }) => Object.values(responses as Record<string, { $ref?: unknown }>))
      .map(({ $ref }) => $ref),
  )
  const refusals = [...REFUSALS].filter(([status]) => used.has(toErrorRef(status).$ref))
  return Object.fromEntries(refusals.map(([status, text]) => [`Error${status}`, toErrorResponse(text)]))
}

function toErrorRef(status: number): { $ref: string } {
  return { $ref: `#/components/responses/Error${status}` }
}

function toInternalOperation(
  method: string,
  path: string,
  params: readonly TemplateParam[],
  operationId: string,
): Json {
  return {
    tags: ['internal'],
    summary: `${method} ${path}`,
    operationId,
    parameters: params.map(({ name }) => ({ name, in: 'path', required: true, schema: { type: 'string' } })),
    // Without the token too, for local callers.
    security: [{}, { adminToken: [] }],
    responses: { 200: { description: 'ok' }, default: toErrorResponse('access refused, or a failure') },
  }
}

function toInternalId(method: string, path: string, count: number): string {
  const id = `${method.toLowerCase()}_internal${path.replace(/[^a-zA-Z0-9_]/g, '_')}`
  return count === 1 ? id : `${id}_${count}`
}

/**
 * `<method>_<runtime>_<name>_<version>`; every other character is `_`.
 * @param count - above 1 it follows the name, so that the id of a further route ends with the version too
 */
export function toOperationId(method: string, fn: FunctionVersion, count = 1): string {
  const name = count === 1 ? fn.name : `${fn.name}_${count}`
  const text = `${method.toLowerCase()}_${fn.runtime}_${name}_${fn.version ?? DEFAULT_VERSION_LABEL}`
  return text.replace(/[^a-zA-Z0-9_]/g, '_')
}

export interface OperationFacts {
  method: Method
  fn: FunctionVersion
  /** Names of the template's parameters, and of the same ones in the function's own route. */
  params: readonly { name: string; own: string; isRest: boolean }[]
  hints: HandlerHints | undefined
  schemas: FunctionSchemas
  operationId: string
}

/** One operation; a refusal of the gateway is named by its `$ref`. */
export function toOperation({ method, fn, params, hints, schemas, operationId }: OperationFacts): Json {
  const { policy } = fn
  const version = fn.version === null ? '' : `@${fn.version}`
  const summary = policy.summary ?? hints?.summary ?? `invoke ${fn.runtime}/${fn.name}${version}`
  const sections = schemas.sectionsOf(method)
  const examples = policy.exampleQuery ?? hints?.query ?? {}
  const type = policy.exampleContentType ?? hints?.contentType ?? JSON_TYPE
  const requestBody = toRequestBody(method, type, policy.exampleBody ?? hints?.body ?? null, sections.body, schemas)
  return {
    tags: ['functions'],
    summary: `${method} ${summary}`,
    operationId,
    parameters: toParameters(params, examples, sections, schemas),
    ...(requestBody !== null && { requestBody }),
    responses: toResponses(refusalsOf(fn, requestBody !== null), sections, schemas),
    ...(schemas.security.length > 0 && { security: schemas.security }),
  }
}

function toParameters(
  params: OperationFacts['params'],
  examples: Readonly<Record<string, unknown>>,
  sections: Sections,
  { definitions, embed }: FunctionSchemas,
): Json[] {
  const declared = (section: Schema | undefined): Parameter[] =>
    section === undefined ? [] : parametersOf(section, definitions)
  const inPath = new Map(declared(sections.params).map(({ name, schema }) => [name, embed(schema)]))
  const inQuery = declared(sections.query)
  const names = new Set(inQuery.map(({ name }) => name))
  return [
    ...params.map(({ name, own, isRest }) => ({
      name,
      in: 'path',
      required: true,
      ...(isRest && { description: 'the rest of the path' }),
      schema: inPath.get(own) ?? { type: 'string' },
    })),
    ...inQuery.map(({ name, schema, isRequired, shape }) => {
      const value = { schema: embed(schema), ...(Object.hasOwn(examples, name) && { example: examples[name] }) }
      // An object is one text of JSON, which OpenAPI says by a type of content.
      const isJson = shape.types.has('object') && !shape.types.has('string')
      return { name, in: 'query', required: isRequired, ...(isJson ? { content: { [JSON_TYPE]: value } } : value) }
    }),
    ...Object.entries(examples)
      .filter(([name]) => !names.has(name))
      .map(([name, example]) => ({ name, in: 'query', required: false, schema: {}, example })),
    ...declared(sections.headers)
      .filter(({ name }) => !NO_PARAMETERS.has(name.toLowerCase()))
      .map(({ name, schema, isRequired }) => ({ name, in: 'header', required: isRequired, schema: embed(schema) })),
  ]
}

function toRequestBody(
  method: Method,
  type: string,
  example: unknown,
  section: Schema | undefined,
  { definitions, embed }: FunctionSchemas,
): Json | null {
  if (section === undefined && !WITH_BODY.has(method)) return null
  const contentType = (section === undefined ? null : mediaTypeOf(section)) ?? type
  const shown = toShown(example, contentType)
  const schema = section === undefined ? {} : embed(section)
  return {
    required: section !== undefined && !allowsNull(section, definitions),
    content: { [contentType]: shown === null ? { schema } : { schema, example: shown } },
  }
}

/** An example of JSON that was written as a text is shown as what it says, or a reader would send it in quotes. */
function toShown(example: unknown, contentType: string): unknown {
  if (typeof example !== 'string' || !isJsonType(contentType)) return example
  const value = orNull<unknown>(() => JSON.parse(example))
  return typeof value === 'object' && value !== null ? value : example
}

/** Statuses with which the gateway itself may answer for a function. */
function refusalsOf({ policy }: FunctionVersion, hasBody: boolean): ReadonlySet<number> {
  return new Set([
    ...[400, 404, 405],
    ...(hasBody ? [413] : []),
    ...(hasBody && policy.validate ? [415] : []),
    ...(policy.allowHosts.length > 0 ? [421] : []),
    ...[429, 500, 502, 503, 504],
  ])
}

function toResponses(refusals: ReadonlySet<number>, { responses }: Sections, { embed }: FunctionSchemas): Json {
  const own = [...(responses ?? [])]
  const answers: Record<string, Json> = {}
  if (!own.some(([status]) => status.startsWith('2'))) answers[200] = { description: 'answer of the function' }
  for (const [status, schema] of own)
    answers[status] = toResponse(status, schema, embed(schema), refusals.has(Number(status)))
  for (const status of refusals) answers[status] ??= toErrorRef(status)
  answers.default ??= { description: 'any other answer of the function' }
  return answers
}

/** @param isShared - the gateway answers with this status too */
function toResponse(status: string, schema: Schema, embedded: Schema, isShared: boolean): Json {
  const text = typeof schema === 'object' && typeof schema.description === 'string' ? schema.description : null
  const description = text ?? STATUS_CODES[status] ?? 'answer of the function'
  if (BODYLESS.test(status)) return { description }
  // A schema that takes everything takes the refusal too.
  const hasBoth = isShared && Object.keys(embedded).length > 0
  const type = mediaTypeOf(schema) ?? JSON_TYPE
  return { description, content: { [type]: { schema: hasBoth ? { anyOf: [embedded, ERROR_SCHEMA] } : embedded } } }
}

interface FunctionSchemas {
  sectionsOf: (method: Method) => Sections
  definitions: SchemaFile['definitions']
  /** A schema of the file with its references leading into the document. */
  embed: (schema: Schema) => Schema
  /** Requirements of an operation. */
  security: readonly Json[]
}

const NO_SCHEMAS: FunctionSchemas = {
  sectionsOf: () => ({}),
  definitions: new Map(),
  embed: schema => schema,
  security: [],
}

/** Collects the components of a document: schemas of `schema.json` files, and the ways to log in that they name. */
export class OpenApiSchemas {
  readonly schemas: Json = {}
  readonly securitySchemes: Json = {}
  readonly #byFunction = new Map<FunctionVersion, FunctionSchemas>()

  /** Adds the definitions of a function's file, once. */
  add(fn: FunctionVersion, file: SchemaFile | null): FunctionSchemas {
    const known = this.#byFunction.get(fn)
    if (known !== undefined) return known
    if (file === null) return NO_SCHEMAS
    const { definitions } = file
    const names = new Map([...definitions.keys()].map(name => [name, this.#freeName(fn, name)]))
    const rename = (reference: string) =>
      `#/components/schemas/${names.get(reference.slice(DEFINITIONS.length)) ?? 'Error'}`
    const embed = (schema: Schema) => copySchema(schema, { rename, spellsOut: true })
    for (const [name, schema] of definitions) this.schemas[names.get(name)!] = embed(schema)
    const security = (file.security ?? []).map(way => this.#toRequirement(way))
    const added = { sectionsOf: (method: Method) => sectionsOf(file, method), definitions, embed, security }
    this.#byFunction.set(fn, added)
    return added
  }

  #freeName({ runtime, name, version }: FunctionVersion, definition: string): string {
    const wanted = toComponentName(`${runtime}_${name}_${version ?? DEFAULT_VERSION_LABEL}_${definition}`)
    let free = wanted
    for (let count = 2; free in this.schemas; count++) free = `${wanted}_${count}`
    // Taken at once: another definition of the file may want it too.
    this.schemas[free] = true
    return free
  }

  #toRequirement(way: Security): Json {
    if (way.kind === 'none') return {}
    if (way.kind !== 'apiKey') {
      this.securitySchemes[way.kind] = { type: 'http', scheme: way.kind }
      return { [way.kind]: [] }
    }
    const name = toComponentName(`${way.place}_${way.name}`)
    this.securitySchemes[name] = { type: 'apiKey', in: way.place, name: way.name }
    return { [name]: [] }
  }
}

function toComponentName(text: string): string {
  return text.replace(/[^A-Za-z0-9._-]/g, '_')
}
