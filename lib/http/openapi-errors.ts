/** The gateway's own refusals in the OpenAPI document: written once, named by every operation. Owner: page http/openapi. */

type Json = Record<string, unknown>

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

export const ERROR_SCHEMA = { $ref: '#/components/schemas/Error' }

export function toErrorRef(status: number): Json {
  return { $ref: `#/components/responses/Error${status}` }
}

export function toErrorResponse(description: string): Json {
  return { description, content: { 'application/json': { schema: ERROR_SCHEMA } } }
}

/** The `components.responses` that some of the operations name by `toErrorRef`. */
export function toErrorComponents(used: ReadonlySet<string>): Json {
  return Object.fromEntries(
    REFUSALS.filter(([status]) => used.has(toErrorRef(status).$ref as string)).map(([status, description]) => [
      `Error${status}`,
      toErrorResponse(description),
    ]),
  )
}

export const ERROR_COMPONENT = {
  type: 'object',
  required: ['error'],
  properties: {
    error: { type: 'string' },
    detail: { type: 'object', description: 'In development: where it failed.' },
  },
}
