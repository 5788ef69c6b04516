/** The route table as an OpenAPI 3.1 document. Pure; the caller brings hints and schemas. Spec: §1, 5; page http/openapi. */

import { STATUS_CODES } from 'node:http'
import type { FunctionVersion } from '../core/catalog.ts'
import { isJsonType } from '../core/http-text.ts'
import { type Method, METHODS } from '../core/identity.ts'
import { DEFAULT_VERSION_LABEL, toVersionPath } from '../core/versions.ts'
import { ADMIN_TOKEN_HEADER } from '../invocation/forwarded-headers.ts'
import { allowsNull, mediaTypeOf, type Parameter, parametersOf } from '../validation/request-schema.ts'
import { type SchemaFile, type Sections, sectionsOf, type Security } from '../validation/schema-file.ts'
import { copySchema, type Schema } from '../validation/schema-tree.ts'

/** One mapped route: its pattern and who answers which methods, each with its own spelling of the route. */
export interface DocumentedRoute {
  pattern: string
  owners: readonly { fn: FunctionVersion; methods: readonly Method[]; pattern?: string }[]
}

/** Hints in a handler's comments, see openapi-step. */
export interface HandlerHints {
  summary: string | null
  query: Readonly<Record<string, unknown>> | null
  body: unknown
  contentType: string | null
}

/** Name of the API: `info` of the document. */
export interface ApiInfo {
  title: string
  version: string
  description: string
}

interface OpenApiFacts {
  info: ApiInfo
  routes: readonly DocumentedRoute[]
  /** Pinned versions, each at its own address. */
  versions: readonly FunctionVersion[]
  hints: ReadonlyMap<string, HandlerHints>
  /** A function's `schema.json`; null without one. */
  schemaOf: (fn: FunctionVersion) => SchemaFile | null
  /** Base address in `servers`. */
  baseUrl: string
  /** Paths of the control plane with their methods; empty unless they are wanted. */
  internal: readonly { path: string; methods: readonly string[] }[]
}

type Json = Record<string, unknown>

const TAGS = [
  { name: 'functions', description: 'Routes of functions.' },
  { name: 'internal', description: 'The control plane of the gateway.' },
]

interface TemplateParam {
  name: string
  /** A catch-all. */
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

export function toOpenApi(facts: OpenApiFacts): Json {
  const document = new OpenApiDocument(facts)
  for (const { pattern, owners } of facts.routes)
    for (const { fn, methods, pattern: own = pattern } of owners) document.add(pattern, own, fn, methods)
  for (const fn of facts.versions) {
    const path = toVersionPath(fn.name, fn.version!)
    document.add(path, path, fn, fn.policy.methods)
  }
  for (const { path, methods } of facts.internal) document.addInternal(path, methods)
  return document.toJson()
}

class OpenApiDocument {
  readonly #facts: OpenApiFacts
  readonly #paths: Record<string, Json> = Object.create(null)
  readonly #usedIds = new Set<string>()
  readonly #usedErrors = new Set<string>()
  readonly #schemas = new OpenApiSchemas()

  constructor(facts: OpenApiFacts) {
    this.#facts = facts
  }

  /** @param own - the function's own spelling of the route */
  add(pattern: string, own: string, fn: FunctionVersion, methods: readonly Method[]): void {
    const { hints, schemaOf } = this.#facts
    const schemas = this.#schemas.add(fn, schemaOf(fn))
    const ownParams = toOpenApiPaths(own).at(-1)!.params
    for (const { path, params } of toOpenApiPaths(pattern)) {
      const named = params.map((param, index) => ({ ...param, own: ownParams[index]?.name ?? param.name }))
      for (const method of METHODS) {
        const key = method.toLowerCase()
        const operations = this.#operationsOf(path)
        if (!methods.includes(method) || key in operations) continue
        const operationId = this.#toFreeId(count => toOperationId(method, fn, count))
        const operation = toOperation({ method, fn, params: named, hints: hints.get(fn.key), schemas, operationId })
        for (const { $ref } of Object.values(operation.responses)) if ($ref !== undefined) this.#usedErrors.add($ref)
        operations[key] = operation
      }
    }
  }

  addInternal(pattern: string, methods: readonly string[]): void {
    const { path, params } = toOpenApiPaths(pattern)[0]!
    for (const method of methods) {
      this.#operationsOf(path)[method.toLowerCase()] = {
        tags: ['internal'],
        summary: `${method} ${path}`,
        operationId: this.#toFreeId(count => toInternalId(method, path, count)),
        parameters: params.map(({ name }) => ({ name, in: 'path', required: true, schema: { type: 'string' } })),
        // Without the token too, for local callers.
        security: [{}, { adminToken: [] }],
        responses: { 200: { description: 'ok' }, default: toErrorResponse('access refused, or a failure') },
      }
    }
  }

  toJson(): Json {
    const { info, baseUrl, internal } = this.#facts
    const hasInternal = internal.length > 0
    const { schemas, securitySchemes } = this.#schemas
    if (hasInternal) securitySchemes.adminToken = { type: 'apiKey', in: 'header', name: ADMIN_TOKEN_HEADER }
    for (const [path, operations] of Object.entries(this.#paths))
      if (Object.keys(operations).length === 0) delete this.#paths[path]
    return {
      openapi: '3.1.0',
      info,
      servers: [{ url: baseUrl }],
      // Functions authenticate their callers themselves, each in its own way.
      security: [],
      tags: hasInternal ? TAGS : TAGS.slice(0, 1),
      paths: this.#paths,
      components: {
        schemas: { Error: ERROR_COMPONENT, ...schemas },
        responses: toErrorComponents(this.#usedErrors),
        ...(Object.keys(securitySchemes).length > 0 && { securitySchemes }),
      },
    }
  }

  #operationsOf(path: string): Json {
    this.#paths[path] ??= Object.create(null) as Json
    return this.#paths[path]
  }

  /** The ids of a document are unique: each further route of a function counts up. */
  #toFreeId(toId: (count: number) => string): string {
    let count = 1
    while (this.#usedIds.has(toId(count))) count += 1
    const free = toId(count)
    this.#usedIds.add(free)
    return free
  }
}

function toInternalId(method: string, path: string, count: number): string {
  const id = `${method.toLowerCase()}_internal${path.replace(/[^a-zA-Z0-9_]/g, '_')}`
  return count === 1 ? id : `${id}_${count}`
}

const JSON_TYPE = 'application/json'
const WITH_BODY: ReadonlySet<string> = new Set(['POST', 'PUT', 'PATCH', 'DELETE'])
/** OpenAPI has other places for these. */
const NO_PARAMETERS: ReadonlySet<string> = new Set(['accept', 'content-type', 'authorization'])
/** Answers without a body. */
const BODYLESS = /^(?:1(?:\d\d|XX)|204|304)$/

/** One operation; a refusal of the gateway is named by its `$ref`. */
type Operation = Json & { responses: Record<string, { $ref?: string }> }

export interface OperationFacts {
  method: Method
  fn: FunctionVersion
  /** Names of the template's parameters, and of the same ones in the function's own route. */
  params: readonly { name: string; own: string; isRest: boolean }[]
  hints: HandlerHints | undefined
  /** Its `schema.json`; null without one. */
  schemas: FunctionSchemas | null
  operationId: string
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

/** One function at one path and method. */
export function toOperation({ method, fn, params, hints, schemas, operationId }: OperationFacts): Operation {
  const { policy } = fn
  const version = fn.version === null ? '' : `@${fn.version}`
  const summary = policy.summary ?? hints?.summary ?? null
  const sections = schemas === null ? {} : sectionsOf(schemas.file, method)
  const parameters = [
    ...toPathParameters(params, sections.params, schemas),
    ...toQueryParameters(policy.exampleQuery ?? hints?.query ?? {}, sections.query, schemas),
    ...toHeaderParameters(sections.headers, schemas),
  ]
  const type = policy.exampleContentType ?? hints?.contentType ?? JSON_TYPE
  const requestBody = toRequestBody(method, type, policy.exampleBody ?? hints?.body ?? null, sections.body, schemas)
  return {
    tags: ['functions'],
    summary: summary === null ? `${method} invoke ${fn.runtime}/${fn.name}${version}` : `${method} ${summary}`,
    operationId,
    parameters,
    ...(requestBody !== null && { requestBody }),
    responses: toResponses(fn, requestBody !== null, sections, schemas),
    ...(schemas !== null && schemas.security.length > 0 && { security: schemas.security }),
  }
}

function declared(section: Schema | undefined, schemas: FunctionSchemas | null): Parameter[] {
  return section === undefined || schemas === null ? [] : parametersOf(section, schemas.file.definitions)
}

function toPathParameters(
  params: OperationFacts['params'],
  section: Schema | undefined,
  schemas: FunctionSchemas | null,
) {
  const known = new Map(declared(section, schemas).map(parameter => [parameter.name, parameter.schema]))
  return params.map(({ name, own, isRest }) => {
    const schema = known.get(own)
    return {
      name,
      in: 'path',
      required: true,
      ...(isRest && { description: 'the rest of the path' }),
      schema: schema === undefined ? { type: 'string' } : schemas!.embed(schema),
    }
  })
}

function toQueryParameters(
  examples: Readonly<Record<string, unknown>>,
  section: Schema | undefined,
  schemas: FunctionSchemas | null,
): Json[] {
  const parameters = declared(section, schemas)
  const names = new Set(parameters.map(({ name }) => name))
  const rest = Object.keys(examples).filter(name => !names.has(name))
  return [
    ...parameters.map(({ name, schema, isRequired, shape }) => {
      const embedded = schemas!.embed(schema)
      const example = Object.hasOwn(examples, name) ? { example: examples[name] } : {}
      // An object is one text of JSON, which OpenAPI says by a type of content.
      const isJson = shape.types.has('object') && !shape.types.has('string')
      const value = isJson
        ? { content: { [JSON_TYPE]: { schema: embedded, ...example } } }
        : { schema: embedded, ...example }
      return { name, in: 'query', required: isRequired, ...value }
    }),
    ...rest.map(name => ({ name, in: 'query', required: false, schema: {}, example: examples[name] })),
  ]
}

function toHeaderParameters(section: Schema | undefined, schemas: FunctionSchemas | null): Json[] {
  return declared(section, schemas)
    .filter(({ name }) => !NO_PARAMETERS.has(name.toLowerCase()))
    .map(({ name, schema, isRequired }) => ({
      name,
      in: 'header',
      required: isRequired,
      schema: schemas!.embed(schema),
    }))
}

function toRequestBody(
  method: Method,
  type: string,
  example: unknown,
  section: Schema | undefined,
  schemas: FunctionSchemas | null,
): Json | null {
  if (section === undefined && !WITH_BODY.has(method)) return null
  const contentType = (section === undefined ? null : mediaTypeOf(section)) ?? type
  const shown = toExample(example, contentType)
  const schema = section === undefined ? {} : schemas!.embed(section)
  return {
    required: section !== undefined && !allowsNull(section, schemas!.file.definitions),
    content: { [contentType]: shown === null ? { schema } : { schema, example: shown } },
  }
}

/** An example of JSON that was written as a text is shown as what it says, or a reader would send it in quotes. */
function toExample(body: unknown, contentType: string): unknown {
  if (typeof body !== 'string' || !isJsonType(contentType)) return body
  try {
    const value: unknown = JSON.parse(body)
    return typeof value === 'object' && value !== null ? value : body
  } catch {
    return body
  }
}

function toResponses(
  fn: FunctionVersion,
  hasBody: boolean,
  { responses }: Sections,
  schemas: FunctionSchemas | null,
): Operation['responses'] {
  const own = new Map(responses ?? [])
  const refusals = refusalsOf(fn, hasBody)
  const answers: Record<string, Json> = {}
  const saysSuccess = [...own.keys()].some(status => status.startsWith('2'))
  if (!saysSuccess) answers[200] = { description: 'answer of the function' }
  for (const [status, schema] of own)
    answers[status] = toResponse(status, schema, refusals.has(Number(status)), schemas!)
  for (const status of refusals) answers[status] ??= toErrorRef(status)
  answers.default ??= { description: 'any other answer of the function' }
  return answers
}

/** Statuses with which the gateway itself may answer for a function. */
function refusalsOf({ policy }: FunctionVersion, hasBody: boolean): Set<number> {
  return new Set([
    ...[400, 404, 405],
    ...(hasBody ? [413] : []),
    ...(hasBody && policy.validate ? [415] : []),
    ...(policy.allowHosts.length > 0 ? [421] : []),
    ...[429, 500, 502, 503, 504],
  ])
}

/** @param isShared - the gateway answers with this status too */
function toResponse(status: string, schema: Schema, isShared: boolean, schemas: FunctionSchemas): Json {
  const text = typeof schema === 'object' && typeof schema.description === 'string' ? schema.description : null
  const description = text ?? STATUS_CODES[status] ?? 'answer of the function'
  if (BODYLESS.test(status)) return { description }
  const embedded = schemas.embed(schema)
  const type = mediaTypeOf(schema) ?? JSON_TYPE
  // A schema that takes everything takes the refusal too.
  const hasBoth = isShared && Object.keys(embedded).length > 0
  return {
    description,
    content: { [type]: { schema: hasBoth ? { anyOf: [embedded, ERROR_SCHEMA] } : embedded } },
  }
}

const DEFINITIONS = '#/$defs/'

/** The part of one function's file. */
interface FunctionSchemas {
  file: SchemaFile
  /** A schema of the file with its references leading into the document. */
  embed: (schema: Schema) => Schema
  /** Requirements of an operation. */
  security: readonly Json[]
}

/** Collects the components of a document: schemas of `schema.json` files, and the ways to log in that they name. */
export class OpenApiSchemas {
  readonly schemas: Json = {}
  readonly securitySchemes: Json = {}
  readonly #byFunction = new Map<FunctionVersion, FunctionSchemas>()

  /** Adds the definitions of a function's file, once. */
  add(fn: FunctionVersion, file: SchemaFile | null): FunctionSchemas | null {
    const known = this.#byFunction.get(fn)
    if (known !== undefined) return known
    if (file === null) return null
    const names = new Map([...file.definitions.keys()].map(name => [name, this.#freeName(fn, name)]))
    const rename = (reference: string) =>
      `#/components/schemas/${names.get(reference.slice(DEFINITIONS.length)) ?? 'Error'}`
    const embed = (schema: Schema) => copySchema(schema, { rename, spellsOut: true })
    for (const [name, schema] of file.definitions) this.schemas[names.get(name)!] = embed(schema)
    const added = { file, embed, security: (file.security ?? []).map(way => this.#toRequirement(way)) }
    this.#byFunction.set(fn, added)
    return added
  }

  #freeName({ runtime, name, version }: FunctionVersion, definition: string): string {
    const wanted = `${runtime}_${name}_${version ?? DEFAULT_VERSION_LABEL}_${definition}`.replace(
      /[^A-Za-z0-9._-]/g,
      '_',
    )
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
    const name = `${way.place}_${way.name}`.replace(/[^A-Za-z0-9._-]/g, '_')
    this.securitySchemes[name] = { type: 'apiKey', in: way.place, name: way.name }
    return { [name]: [] }
  }
}

/** The gateway's own refusals: written once, named by every operation. */
const REFUSALS: readonly [status: number, description: string][] = [
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
]

const ERROR_SCHEMA = { $ref: '#/components/schemas/Error' }

function toErrorRef(status: number): Json {
  return { $ref: `#/components/responses/Error${status}` }
}

function toErrorResponse(description: string): Json {
  return { description, content: { 'application/json': { schema: ERROR_SCHEMA } } }
}

/** The `components.responses` that some of the operations name by `toErrorRef`. */
function toErrorComponents(used: ReadonlySet<string>): Json {
  return Object.fromEntries(
    REFUSALS.filter(([status]) => used.has(toErrorRef(status).$ref as string)).map(([status, description]) => [
      `Error${status}`,
      toErrorResponse(description),
    ]),
  )
}

const ERROR_COMPONENT = {
  type: 'object',
  required: ['error'],
  properties: {
    error: { type: 'string' },
    detail: { type: 'object', description: 'In development: where it failed.' },
  },
}
