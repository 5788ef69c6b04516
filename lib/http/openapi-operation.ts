/** One function at one path and method, as an operation of the OpenAPI document. Pure. Owner: page http/openapi. */

import { STATUS_CODES } from 'node:http'
import type { FunctionVersion } from '../core/catalog.ts'
import { isJsonType } from '../core/http-text.ts'
import type { Method } from '../core/identity.ts'
import { DEFAULT_VERSION_LABEL } from '../core/versions.ts'
import { allowsNull, mediaTypeOf, type Parameter, parametersOf } from '../validation/request-schema.ts'
import { type Sections, sectionsOf } from '../validation/schema-file.ts'
import type { Schema } from '../validation/schema-tree.ts'
import type { HandlerHints } from './hints.ts'
import { ERROR_SCHEMA, toErrorRef } from './openapi-errors.ts'
import type { FunctionSchemas } from './openapi-schemas.ts'

type Json = Record<string, unknown>

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
  /** What its `schema.json` says; null without one. */
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

/** What the gateway itself may answer for a function. */
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
