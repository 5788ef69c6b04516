/** A request as it is built on the page Try: its parts, its place in the address, what it sends. Owner: page console/try. */

export interface FormField {
  readonly name: string
  readonly value: string
  /** Instead of the value; never kept. */
  readonly file: File | null
}

/** How the body is written. */
export const BODY_KINDS = ['none', 'json', 'text', 'form', 'file'] as const
export type BodyKind = (typeof BODY_KINDS)[number]

export interface TryRequest {
  readonly method: string
  /** With its query, as it was typed. */
  readonly path: string
  /** `Name: value`, one a line. */
  readonly headers: string
  readonly as: BodyKind
  /** Of `json` and `text`. */
  readonly text: string
  /** Of `form`. */
  readonly fields: readonly FormField[]
  /** Of `file`; never kept. */
  readonly file: File | null
}

export type HeaderPair = readonly [name: string, value: string]

export const EMPTY_REQUEST: TryRequest = {
  method: 'GET',
  path: '/',
  headers: '',
  as: 'none',
  text: '',
  fields: [],
  file: null,
}

/** Characters of a body that is still put in the address. */
const MAX_ADDRESS_CHARS = 2000

/** Names of headers that may hold a secret: their values stay on the page. */
const SECRET_NAME = /auth|cookie|token|secret|password|api-?key|signature|session/i
const HEADER_NAME = /^[!#$%&'*+.^_`|~\w-]+$/
// Characters that no header can carry: control characters, and those that are not bytes.
const UNSENDABLE = /[\x00-\x08\x0a-\x1f\x7f]|[^\x00-\xff]/

/** GET and HEAD have no body here: browsers, caches and many a function take none. */
export function hasBody({ method, as }: Pick<TryRequest, 'method' | 'as'>): boolean {
  return as !== 'none' && method !== 'GET' && method !== 'HEAD'
}

/** @returns the headers, or what is wrong with a line */
export function readHeaders(text: string): { headers: HeaderPair[]; problem: string | null } {
  const headers: HeaderPair[] = []
  for (const [index, line] of text.split('\n').entries()) {
    if (line.trim() === '') continue
    const colon = line.indexOf(':')
    const name = line.slice(0, Math.max(0, colon)).trim()
    const value = line.slice(colon + 1).trim()
    const where = `line ${index + 1} of the headers`
    if (colon === -1) return { headers, problem: `${where} has no colon: write Name: value` }
    if (!HEADER_NAME.test(name))
      return { headers, problem: `${where}: ${JSON.stringify(name)} is not a valid header name` }
    if (UNSENDABLE.test(value))
      return { headers, problem: `${where}: the value has characters that headers cannot contain` }
    headers.push([name, value])
  }
  return { headers, problem: null }
}

/** Why a request cannot be sent; null when it can. */
export function findProblem(request: TryRequest): string | null {
  const { method, path, headers, as, text, file } = request
  if (!HEADER_NAME.test(method)) return 'the method must be one word, such as GET'
  if (!path.startsWith('/')) return 'the path must start with /'
  const { problem } = readHeaders(headers)
  if (problem !== null) return problem
  if (!hasBody(request)) return null
  if (as === 'json' && text.trim() !== '') return findJsonProblem(text)
  return as === 'file' && file === null ? 'choose the file to send' : null
}

function findJsonProblem(text: string): string | null {
  try {
    JSON.parse(text)
    return null
  } catch (error) {
    return `the body is not JSON: ${(error as Error).message}`
  }
}

/** Address of the page that shows a request again, as far as it may be kept: no file, no value of a header that may be secret. */
export function toFields(request: TryRequest): Record<string, string | null> {
  const { method, path, headers, as, text, fields } = request
  const body = as === 'form' ? JSON.stringify(fields.map(({ name, value }) => [name, value])) : text
  const isKept = (as === 'json' || as === 'text' || as === 'form') && body.length <= MAX_ADDRESS_CHARS
  return {
    method: method === EMPTY_REQUEST.method ? null : method,
    path: path === EMPTY_REQUEST.path ? null : path,
    headers: withoutSecrets(headers),
    as: as === 'none' ? null : as,
    body: isKept ? body : null,
  }
}

function withoutSecrets(headers: string): string {
  return headers
    .split('\n')
    .map(line => (SECRET_NAME.test(line.split(':', 1)[0] ?? '') ? line.replace(/:.*/, ':') : line))
    .join('\n')
}

/** The other way; what cannot be read is as if it were not there. */
export function fromFields(fields: Pick<URLSearchParams, 'get'>): TryRequest {
  const body = fields.get('body') ?? ''
  const as = BODY_KINDS.find(kind => kind === fields.get('as')) ?? 'none'
  return {
    method: fields.get('method') ?? EMPTY_REQUEST.method,
    path: fields.get('path') ?? EMPTY_REQUEST.path,
    headers: fields.get('headers') ?? '',
    as,
    text: as === 'form' ? '' : body,
    fields: as === 'form' ? toFormFields(body) : [],
    file: null,
  }
}

function toFormFields(text: string): FormField[] {
  try {
    const pairs: unknown = JSON.parse(text)
    if (!Array.isArray(pairs)) return []
    return pairs.map(pair => ({ name: String(pair?.[0] ?? ''), value: String(pair?.[1] ?? ''), file: null }))
  } catch {
    return []
  }
}

/** Fields of a form that are sent: those that have a name. */
export function namedFields({ fields }: TryRequest): FormField[] {
  return fields.filter(({ name }) => name !== '')
}

/** Headers with the content type that the body has where none is given; a form with files has one only when it is written. */
export function toHeaders(request: TryRequest): HeaderPair[] {
  const { headers } = readHeaders(request.headers)
  const type = toType(request)
  const hasType = headers.some(([name]) => name.toLowerCase() === 'content-type')
  return type === null || hasType || !hasBody(request) ? headers : [['Content-Type', type], ...headers]
}

function toType({ as, file, fields }: TryRequest): string | null {
  if (as === 'json') return 'application/json'
  if (as === 'text') return 'text/plain; charset=utf-8'
  if (as === 'file') return file?.type || 'application/octet-stream'
  return as === 'form' && fields.every(field => field.file === null) ? 'application/x-www-form-urlencoded' : null
}

/** The body as it is sent, with the content type that a form with files gets; null for none. */
export async function toBody(request: TryRequest): Promise<{ bytes: Uint8Array; type: string | null } | null> {
  if (!hasBody(request)) return null
  const { as, text, file } = request
  const encode = (body: string): Uint8Array => new TextEncoder().encode(body)
  if (as === 'json' || as === 'text') return { bytes: encode(text), type: null }
  if (as === 'file') return { bytes: new Uint8Array((await file?.arrayBuffer()) ?? new ArrayBuffer(0)), type: null }
  const fields = namedFields(request)
  if (fields.every(field => field.file === null)) {
    const form = new URLSearchParams(fields.map(({ name, value }): [string, string] => [name, value]))
    return { bytes: encode(form.toString()), type: null }
  }
  const form = new FormData()
  for (const { name, value, file: part } of fields) part === null ? form.append(name, value) : form.append(name, part)
  const written = new Response(form)
  return { bytes: new Uint8Array(await written.arrayBuffer()), type: written.headers.get('content-type') }
}

/** The query of a typed path as names with their values, in order. */
export function toQuery(search: string): Record<string, string | string[]> {
  const query: Record<string, string | string[]> = Object.create(null)
  for (const [name, value] of new URLSearchParams(search)) {
    const known = query[name]
    query[name] = known === undefined ? value : [known, value].flat()
  }
  return query
}
