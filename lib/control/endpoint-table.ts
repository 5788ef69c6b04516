/** The endpoints by path: a map for plain paths, a short list for those with parameters. Owner: §4.2. */

import type { Endpoint } from './endpoint.ts'

/** A path that exists, its endpoints, and what stands in its parameters. */
interface FoundPath {
  endpoints: readonly Endpoint[]
  params: Readonly<Record<string, string>>
}

/** A path of the table with its methods, for documents. */
export interface EndpointPath {
  path: string
  methods: readonly string[]
}

const NO_PARAMS: Readonly<Record<string, string>> = Object.freeze(Object.create(null))

export class EndpointTable {
  readonly #plain = new Map<string, Endpoint[]>()
  readonly #withParams = new Map<string, { segments: readonly string[]; endpoints: Endpoint[] }>()

  /** @throws Error when two endpoints have the same method and path */
  constructor(endpoints: readonly Endpoint[]) {
    for (const endpoint of endpoints) this.#add(endpoint)
  }

  #add(endpoint: Endpoint): void {
    const { method, path } = endpoint
    const list = this.#listOf(path)
    if (list.some(other => other.method === method)) throw new Error(`two endpoints for ${method} ${path}`)
    list.push(endpoint)
  }

  #listOf(path: string): Endpoint[] {
    if (!path.includes('/:')) return setDefault(this.#plain, path, [])
    return setDefault(this.#withParams, path, { segments: path.split('/'), endpoints: [] }).endpoints
  }

  /** @param path - decoded; a parameter takes one segment that is not empty, a plain path is found before one with parameters */
  find(path: string): FoundPath | null {
    const plain = this.#plain.get(path)
    if (plain !== undefined) return { endpoints: plain, params: NO_PARAMS }
    const given = path.split('/')
    for (const { segments, endpoints } of this.#withParams.values()) {
      const params = matchSegments(segments, given)
      if (params !== null) return { endpoints, params }
    }
    return null
  }
}

/** The paths of endpoints in their order, each once. */
export function toEndpointPaths(endpoints: readonly Endpoint[]): EndpointPath[] {
  const methods = new Map<string, string[]>()
  for (const { path, method } of endpoints) setDefault(methods, path, []).push(method)
  return [...methods].map(([path, list]) => ({ path, methods: list }))
}

function matchSegments(segments: readonly string[], given: readonly string[]): Record<string, string> | null {
  if (segments.length !== given.length) return null
  const params: Record<string, string> = Object.create(null)
  for (const [index, segment] of segments.entries()) {
    const text = given[index]!
    if (!segment.startsWith(':')) {
      if (segment !== text) return null
    } else if (text === '') return null
    else params[segment.slice(1)] = text
  }
  return params
}

function setDefault<T>(map: Map<string, T>, key: string, value: T): T {
  const known = map.get(key)
  if (known !== undefined) return known
  map.set(key, value)
  return value
}
