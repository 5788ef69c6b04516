/** The route table as an OpenAPI 3.1 document. Pure; the caller brings hints and schemas. Spec: §1, 5; page http/openapi. */

import type { FunctionVersion } from '../core/catalog.ts'
import { type Method, METHODS } from '../core/identity.ts'
import { toVersionPath } from '../core/versions.ts'
import { ADMIN_TOKEN_HEADER } from '../invocation/forwarded-headers.ts'
import type { SchemaFile } from '../validation/schema-file.ts'
import type { HandlerHints } from './hints.ts'
import { ERROR_COMPONENT, toErrorComponents, toErrorResponse } from './openapi-errors.ts'
import { toOperation, toOperationId } from './openapi-operation.ts'
import { OpenApiSchemas } from './openapi-schemas.ts'

/** One mapped route: its pattern and who answers which methods, each with its own spelling of the route. */
export interface DocumentedRoute {
  pattern: string
  owners: readonly { fn: FunctionVersion; methods: readonly Method[]; pattern?: string }[]
}

/** What the user calls the API: `info` of the document. */
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
  /** What a function's `schema.json` says; null without one. */
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
