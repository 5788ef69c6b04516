/** The body of a call that is written as JSON with its other fields. Owner: page control/invoke. */

/** The type of a body that is written as JSON. */
const JSON_TYPE = 'application/json'

/** @param body - text, or a JSON value that becomes its text; undefined and null for none */
export function toCallBody(body: unknown): Buffer | null {
  if (body === undefined || body === null) return null
  return Buffer.from(typeof body === 'string' ? body : JSON.stringify(body))
}

/** A body that is written as JSON says so, unless the caller gave it another type. */
export function withBodyType(
  headers: Readonly<Record<string, string>>,
  body: unknown,
): Readonly<Record<string, string>> {
  if (body === undefined || body === null || typeof body === 'string') return headers
  if (Object.keys(headers).some(name => name.toLowerCase() === 'content-type')) return headers
  return { ...headers, 'Content-Type': JSON_TYPE }
}
