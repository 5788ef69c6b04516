/** The route table as an OpenAPI 3.1 document. Pure; the caller brings the hints. Spec: §1, 5; page http/openapi. */

import type { FunctionVersion } from '../core/catalog.ts'
import { isJsonType } from '../core/http-text.ts'
import { type Method, METHODS } from '../core/identity.ts'
import { DEFAULT_VERSION_LABEL, toVersionPath } from '../core/versions.ts'
import { ADMIN_TOKEN_HEADER } from '../invocation/forwarded-headers.ts'
import type { HandlerHints } from './hints.ts'

/** One mapped route: its pattern and who answers which methods. */
export interface DocumentedRoute {
  pattern: string
  owners: readonly { fn: FunctionVersion; methods: readonly Method[] }[]
}

interface OpenApiFacts {
  routes: readonly DocumentedRoute[]
  /** Pinned versions, each at its own address. */
  versions: readonly FunctionVersion[]
  hints: ReadonlyMap<string, HandlerHints>
  /** Base address in `servers`. */
  baseUrl: string
  /** Paths of the control plane with their methods; empty unless they are wanted. */
  internal: readonly { path: string; methods: readonly string[] }[]
}

type Json = Record<string, unknown>

const ERRORS: readonly [status: number, description: string][] = [
  [404, 'not found'],
  [405, 'method not allowed'],
  [413, 'payload too large'],
  [429, 'concurrency limit reached'],
  [502, 'invalid runtime response'],
  [503, 'runtime down'],
  [504, 'runtime timeout'],
]
const WITH_BODY: ReadonlySet<string> = new Set(['POST', 'PUT', 'PATCH', 'DELETE'])
const ERROR_REF = { $ref: '#/components/schemas/Error' }

/** `/users/:id` to `/users/{id}`; an optional catch-all has two paths, with and without it. */
export function toOpenApiPaths(pattern: string): { path: string; params: string[] }[] {
  const params: string[] = []
  const segments = pattern.split('/').map(segment => {
    if (segment === '*') {
      params.push('wildcard')
      return '{wildcard}'
    }
    if (!segment.startsWith(':')) return segment
    const name = segment.slice(1).replace(/\*\??$/, '')
    params.push(name)
    return `{${name}}`
  })
  const path = segments.join('/') || '/'
  if (!pattern.endsWith('*?')) return [{ path, params }]
  return [
    { path: segments.slice(0, -1).join('/') || '/', params: params.slice(0, -1) },
    { path, params },
  ]
}

/** `<method>_<runtime>_<name>_<version>`; every other character is `_`. */
export function toOperationId(method: string, fn: FunctionVersion): string {
  const text = `${method.toLowerCase()}_${fn.runtime}_${fn.name}_${fn.version ?? DEFAULT_VERSION_LABEL}`
  return text.replace(/[^a-zA-Z0-9_]/g, '_')
}

export function toOpenApi(facts: OpenApiFacts): Json {
  const paths: Record<string, Json> = Object.create(null)
  const usedIds = new Set<string>()
  const add = (pattern: string, fn: FunctionVersion, methods: readonly Method[]): void => {
    for (const { path, params } of toOpenApiPaths(pattern)) {
      for (const method of METHODS) {
        if (!methods.includes(method)) continue
        paths[path] ??= Object.create(null) as Json
        paths[path][method.toLowerCase()] ??= toOperation(method, fn, params, facts.hints.get(fn.key), usedIds)
      }
    }
  }
  for (const { pattern, owners } of facts.routes) for (const { fn, methods } of owners) add(pattern, fn, methods)
  for (const fn of facts.versions) add(toVersionPath(fn.name, fn.version!), fn, fn.policy.methods)
  for (const { path, methods } of facts.internal) {
    for (const method of methods) {
      paths[path] ??= Object.create(null) as Json
      paths[path][method.toLowerCase()] = {
        tags: ['internal'],
        summary: `${method} ${path}`,
        operationId: `${method.toLowerCase()}_internal${path.replace(/[^a-zA-Z0-9_]/g, '_')}`,
        // Without the token too, for local callers.
        security: [{}, { adminToken: [] }],
        responses: { 200: { description: 'ok' }, default: toErrorResponse('access refused, or a failure') },
      }
    }
  }
  return {
    openapi: '3.1.0',
    info: { title: 'fngw', version: '1.0.0', description: 'Functions served by this gateway.' },
    servers: [{ url: facts.baseUrl }],
    // Functions authenticate their callers themselves, each in its own way.
    security: [],
    tags: [{ name: 'functions' }, ...(facts.internal.length > 0 ? [{ name: 'internal' }] : [])],
    paths,
    components: {
      schemas: { Error: { type: 'object', required: ['error'], properties: { error: { type: 'string' } } } },
      ...(facts.internal.length > 0
        ? { securitySchemes: { adminToken: { type: 'apiKey', in: 'header', name: ADMIN_TOKEN_HEADER } } }
        : {}),
    },
  }
}

function toErrorResponse(description: string): Json {
  return { description, content: { 'application/json': { schema: ERROR_REF } } }
}

function toOperation(
  method: Method,
  fn: FunctionVersion,
  params: readonly string[],
  hints: HandlerHints | undefined,
  usedIds: Set<string>,
): Json {
  const { policy } = fn
  const version = fn.version === null ? '' : `@${fn.version}`
  const summary = policy.summary ?? hints?.summary ?? null
  const query = policy.exampleQuery ?? hints?.query ?? {}
  const contentType = policy.exampleContentType ?? hints?.contentType ?? 'application/json'
  const body = toExample(policy.exampleBody ?? hints?.body ?? null, contentType)
  const responses: Json = { 200: { description: 'answer of the function' } }
  for (const [status, description] of ERRORS) responses[status] = toErrorResponse(description)
  responses.default = { description: 'any other answer of the function' }
  return {
    tags: ['functions'],
    summary: summary === null ? `${method} invoke ${fn.runtime}/${fn.name}${version}` : `${method} ${summary}`,
    operationId: toFreeId(toOperationId(method, fn), usedIds),
    parameters: [
      ...params.map(name => ({ name, in: 'path', required: true, schema: { type: 'string' } })),
      ...Object.entries(query).map(([name, example]) => ({ name, in: 'query', required: false, schema: {}, example })),
    ],
    ...(WITH_BODY.has(method)
      ? {
          requestBody: {
            required: false,
            content: { [contentType]: body === null ? { schema: {} } : { schema: {}, example: body } },
          },
        }
      : {}),
    responses,
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

/** The ids of a document are unique: a function with several routes gets a number behind the second one's. */
function toFreeId(id: string, used: Set<string>): string {
  let free = id
  for (let count = 2; used.has(free); count++) free = `${id}_${count}`
  used.add(free)
  return free
}
