/**
 * A call as JSON, as `POST /_fn/invoke` takes it, and the input of a job: a call that runs later. Input is checked, made into a job,
 * and shown or run again afterwards. Spec: pages jobs/jobs, control/invoke.
 */

import { isUtf8 } from 'node:buffer'
import { createHash, randomUUID } from 'node:crypto'
import {
  boolean,
  hidden,
  integer,
  json,
  jsonObject,
  mapOf,
  mapped,
  number,
  object,
  type ObjectOf,
  oneOf,
  type Place,
  readRequest,
  reportWrong,
  showText,
  showValue,
  string,
} from '../config/fields.ts'
import { isSecretName } from '../config/function-env.ts'
import { base64, toScalarText } from '../config/texts.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { badRequest, GatewayError } from '../core/errors.ts'
import { findUnsendable, isHeaderName } from '../core/http-text.ts'
import {
  isFunctionName,
  isVersion,
  MAX_NAME_CHARS,
  type Method,
  METHODS,
  type RuntimeName,
  RUNTIMES,
} from '../core/identity.ts'
import { isObject } from '../core/json.ts'
import { JOB_BACKOFF, JOB_MAX_ATTEMPTS, JOB_RETRY_DELAY_MS, MAX_JOB_DELAY_MS } from '../core/limits.ts'
import { parsePattern } from '../core/pattern.ts'
import { HIDDEN } from '../core/text.ts'
import { toFunctionPath } from '../core/versions.ts'
import { toCallBody, withBodyType } from '../invocation/internal-call.ts'
import { checkPolicy, isMethodAllowed, toMethodError } from '../invocation/invoke.ts'
import { fillRoute } from '../router/call-route.ts'
import { normalizePath, unescapeCanonical } from '../router/radix-tree.ts'
import type { Idempotency, Job, JobRequest } from './job.ts'

const MAX_HEADER_CHARS = 16 * 1024
const MAX_ROUTE_CHARS = 4096
const MAX_URL_CHARS = 4096

/** A list is one header with its texts joined, as when a client repeats it. */
const headerValue = mapped(json(), (value, at) => {
  const texts = (Array.isArray(value) ? value : [value]).map(toScalarText)
  const text = texts.includes(undefined) ? null : texts.join(', ')
  const isRight = text !== null && text.length <= MAX_HEADER_CHARS && findUnsendable(text) === null
  return isRight ? text : reportWrong(at, 'text that a header can carry, or a list of texts', value)
})

const param = mapped(json(), (value, at) => {
  const text = toScalarText(value)
  // Half a character has no percent escape.
  if (text === undefined || text === '' || /\p{Surrogate}/u.test(text))
    return reportWrong(at, 'text that is not empty, or a number', value)
  return text
})

/** Fields that name a function. */
export const TARGET = {
  name: string({ rule: 'the name of a function', maxLength: MAX_NAME_CHARS }),
  runtime: oneOf(RUNTIMES),
  version: string({
    rule: 'the label of a version: letters, digits, _ . and -',
    parse: text => (isVersion(text) ? text : null),
  }),
}

/** The content of a call may be secret, and a refusal is logged: messages do not show hidden values. */
export const CALL_FIELDS = {
  ...TARGET,
  route: string({ rule: 'a path that starts with /, such as /users/:id', pattern: /^\//, maxLength: MAX_ROUTE_CHARS }),
  params: hidden(mapOf(param)),
  query: hidden(jsonObject()),
  headers: hidden(mapOf(headerValue, { keyRule: 'a header name' })),
  body: json(),
  is_base64: boolean(),
  body_base64: hidden(base64),
  context: hidden(jsonObject()),
}

type CallValues = ObjectOf<typeof CALL_FIELDS>

/** Notes problems of several fields together. */
export function checkCall({ headers, body, bodyBase64, isBase64 }: CallValues, at: Place): void {
  for (const name of Object.keys(headers ?? {})) {
    if (!isHeaderName(name)) reportWrong({ ...at, name: 'headers' }, 'an object of header names', name)
  }
  if (body !== undefined && bodyBase64 !== undefined)
    reportWrong({ ...at, name: 'body_base64' }, 'absent where body is given', 'both')
  if (isBase64 === true && bodyBase64 === undefined)
    reportWrong({ ...at, name: 'is_base64' }, 'false where body_base64 is not given', true)
}

export type CallParts = ReturnType<typeof toCallParts>

/** A call whose fields were checked; absent ones are null. */
export function toCallParts({ body, bodyBase64, ...call }: CallValues) {
  return {
    name: call.name!,
    runtime: call.runtime ?? null,
    version: call.version ?? null,
    /** A path of the function, or one of its routes to put `params` into. */
    route: call.route ?? null,
    params: call.params ?? null,
    query: call.query ?? null,
    /** Names as written; lists are joined. */
    headers: withBodyType(call.headers ?? {}, body),
    body: bodyBase64 ?? toCallBody(body),
    context: call.context ?? null,
  }
}

/** The input of `gateway.jobs.create()` and the body of `POST /_fn/jobs`. */
export interface JobInput {
  /** Name of the function. */
  name: string
  /** Runtime of the function, when several have one of this name. */
  runtime?: RuntimeName | null
  /** Version of the function; the one without a version by default. */
  version?: string | null
  /** By default `GET` when the function allows it, else the first method that it allows. */
  method?: Method
  /** One of the function's routes; by default the first one that allows the method. */
  route?: string | null
  /** Values for the params of the route. */
  params?: Readonly<Record<string, string | number | boolean>>
  query?: Readonly<Record<string, unknown>>
  headers?: Readonly<Record<string, string>>
  /** Text, or a value that is sent as JSON. */
  body?: unknown
  /** Bytes in base64, instead of `body`. */
  body_base64?: string
  /** Accepted together with `body_base64`, as results have both. */
  is_base64?: boolean
  /** Becomes `event.context.user`. */
  context?: Readonly<Record<string, unknown>> | null
  /** Maximum number of runs; 1 by default. */
  max_attempts?: number
  /** Delay before the first retry; 1000 by default. */
  retry_delay_ms?: number
  /** Factor from one delay to the next; 1 by default. */
  backoff?: number
  /** Milliseconds before the first attempt. */
  delay_ms?: number
  /** URL that receives a POST request when the job has finished. */
  callback_url?: string | null
}

/** A checked input with its defaults. */
export type CheckedInput = ReturnType<typeof checkJobInput>

const JOB = object(
  {
    ...CALL_FIELDS,
    // A file route is called by its path, brackets included.
    name: string({
      rule: 'the name of a function',
      parse: text => (isFunctionName(text.replace(/\[{1,2}(?:\.\.\.)?([\w-]+)\]{1,2}/g, '$1')) ? text : null),
    }),
    method: oneOf(METHODS),
    max_attempts: integer(JOB_MAX_ATTEMPTS),
    retry_delay_ms: integer(JOB_RETRY_DELAY_MS),
    backoff: number(JOB_BACKOFF),
    delay_ms: integer({ min: 0, max: MAX_JOB_DELAY_MS }),
    callback_url: hidden(
      string({
        rule: 'an http or https URL without a user name',
        maxLength: MAX_URL_CHARS,
        parse: text => (isCallbackUrl(text) ? text : null),
      }),
    ),
  },
  { required: ['name'], strict: true },
)

function isCallbackUrl(text: string): boolean {
  if (!URL.canParse(text)) return false
  const { protocol, username, password } = new URL(text)
  return (protocol === 'http:' || protocol === 'https:') && username === '' && password === ''
}

/** @throws GatewayError BAD_REQUEST that names every wrong field with its rule and its value */
export function checkJobInput(input: unknown) {
  if (!isObject(input)) throw badRequest('a job', `must be an object, got ${showValue(input)}`)
  const job = readRequest(JOB, input, checkCall)
  const call = toCallParts(job)
  // The order counts in `digestOf`, whose results are stored.
  return {
    name: call.name,
    runtime: call.runtime,
    version: call.version,
    /** null: the function's own choice. */
    method: job.method ?? null,
    route: call.route,
    params: call.params ?? {},
    query: call.query ?? {},
    headers: call.headers,
    body: call.body,
    context: call.context,
    retry: {
      maxAttempts: job.maxAttempts ?? JOB_MAX_ATTEMPTS.default,
      delayMs: job.retryDelayMs ?? JOB_RETRY_DELAY_MS.default,
      backoff: job.backoff ?? JOB_BACKOFF.default,
    },
    delayMs: job.delayMs ?? 0,
    callbackUrl: job.callbackUrl ?? null,
  }
}

const IDEMPOTENCY_KEY = /^[\x21-\x7e]{1,255}$/

/** @throws GatewayError BAD_REQUEST */
export function checkIdempotencyKey(key: string | null): string | null {
  if (key === null || IDEMPOTENCY_KEY.test(key)) return key
  throw badRequest('Idempotency-Key', `must be 1 to 255 visible ASCII characters, got ${showValue(key)}`)
}

const SECRET_HEADERS: ReadonlySet<string> = new Set(['authorization', 'proxy-authorization', 'cookie'])
/** Bytes of a body that are shown. */
const SHOWN_BODY_BYTES = 1024 * 1024

/** The fields of `POST /_fn/jobs`; a long body is left out. */
export type ShownInput = JobInput & { body_bytes: number; body_omitted: boolean }

export function toShownInput(job: Job, request: JobRequest, body: Buffer | null): ShownInput {
  const omitted = body !== null && body.length > SHOWN_BODY_BYTES
  const { callback_url: _callback, ...input } = toInput(job, request, omitted ? null : body)
  const shown = Object.entries(request.headers).map(([name, value]) => [name, isSecret(name) ? HIDDEN : value])
  return { ...input, headers: Object.fromEntries(shown), body_bytes: body?.length ?? 0, body_omitted: omitted }
}

/**
 * @param changes - fields that replace the job's own, as a client sends them
 * @returns what `checkJobInput` checks
 */
export function toRetryInput(job: Job, request: JobRequest, body: Buffer | null, changes: unknown): unknown {
  if (!isObject(changes)) throw badRequest('the changes of a job', 'must be an object')
  const input: Record<string, unknown> = { ...toInput(job, request, body), ...changes }
  if ('body' in changes) delete input.body_base64
  if ('body_base64' in changes) delete input.body
  if (isObject(changes.headers)) input.headers = withHidden(changes.headers, request.headers)
  return input
}

function toInput(job: Job, request: JobRequest, body: Buffer | null): JobInput {
  const { runtime, name, version, method, routeTemplate, params, query, headers, context, callbackUrl } = request
  return {
    ...{ runtime, name, version, method, route: routeTemplate, params, query, headers, context },
    ...(body !== null && (isUtf8(body) ? { body: body.toString('utf8') } : { body_base64: body.toString('base64') })),
    max_attempts: job.retry.maxAttempts,
    retry_delay_ms: job.retry.delayMs,
    backoff: job.retry.backoff,
    callback_url: callbackUrl,
  }
}

function withHidden(headers: Record<string, unknown>, own: JobRequest['headers']): Record<string, unknown> {
  const entries = Object.entries(headers).map(([name, value]) => [name, value === HIDDEN ? own[name] : value])
  return Object.fromEntries(entries.filter(([, value]) => value !== undefined))
}

function isSecret(name: string): boolean {
  return SECRET_HEADERS.has(name.toLowerCase()) || isSecretName(name.replaceAll('-', '_'))
}

/** Bytes of a body that is kept with its job; a longer one is a separate part. */
const INLINE_BODY_BYTES = 16 * 1024

export interface DraftOptions {
  /** The function of that name. @throws GatewayError NOT_FOUND, ROUTE_CONFLICT */
  find: (name: string, version: string | null, runtime: string | null) => FunctionVersion
  /** Routes of a function and method, in text order. */
  routesOf: (fn: FunctionVersion, method: Method) => readonly string[]
}

/**
 * A new job: finds its function, fills in its route and applies the rules of the function.
 * @param now - wall clock, ms
 * @param nextSeq - number of the job; asked for when nothing is wrong with it
 * @throws GatewayError NOT_FOUND, ROUTE_CONFLICT, METHOD_NOT_ALLOWED, BODY_TOO_LARGE, BAD_REQUEST
 */
export function draftJob(
  input: CheckedInput,
  { find, routesOf }: DraftOptions,
  now: number,
  nextSeq: () => number,
  idempotency: Idempotency | null,
): { job: Job; request: JobRequest } {
  const fn = find(input.name, input.version, input.runtime)
  const { methods } = fn.policy
  const method = input.method ?? (methods.includes('GET') ? 'GET' : (methods[0] ?? 'GET'))
  if (!isMethodAllowed(fn, method)) throw toMethodError(methods)
  const refused = checkPolicy(fn, input.body?.length ?? 0)
  if (refused !== null) throw refused
  const { body, callbackUrl } = input
  const hasBodyPart = body !== null && body.length > INLINE_BODY_BYTES
  const target = toJobTarget(fn, method, input.route, routesOf(fn, method), input.params)
  const request: JobRequest = {
    runtime: fn.runtime,
    name: fn.name,
    version: fn.version,
    method,
    routeTemplate: target.routeTemplate,
    path: target.path,
    rawPath: target.rawPath,
    params: target.params,
    query: input.query,
    headers: input.headers,
    context: input.context,
    callbackUrl,
    hasBodyPart,
    body: body === null || hasBodyPart ? null : body.toString('base64'),
  }
  const seq = nextSeq()
  const job: Job = {
    // The last digits of a UUID are random: Node.js has them in stock.
    id: `job-${now}-${seq}-${randomUUID().slice(-12)}`,
    seq,
    key: fn.key,
    state: 'queued',
    attempt: 0,
    attempts: [],
    retry: input.retry,
    createdAt: now,
    updatedAt: now,
    dueAt: now + input.delayMs,
    finishedAt: null,
    resultStatus: null,
    lastError: null,
    result: null,
    callback: callbackUrl === null ? null : { state: 'pending', attempts: 0, lastError: null },
    idempotency,
  }
  return { job, request }
}

/** Equal for two requests that ask for the same. */
export function digestOf(input: CheckedInput): string {
  const { body, ...rest } = input
  return createHash('sha256')
    .update(JSON.stringify(rest))
    .update(body ?? '')
    .digest('hex')
    .slice(0, 32)
}

/**
 * The route of its function that a job calls, and the path that results from its params.
 * @param route - as asked for; null takes the first one
 * @param routes - of the function and method, in text order
 * @throws GatewayError NOT_FOUND for a route that is none of them, BAD_REQUEST for params that are missing, not its own, or fit no path
 */
export function toJobTarget(
  fn: FunctionVersion,
  method: Method,
  route: string | null,
  routes: readonly string[],
  params: Readonly<Record<string, string>>,
): Pick<JobRequest, 'routeTemplate' | 'path' | 'rawPath' | 'params'> {
  const template = route === null ? (routes[0] ?? null) : findRoute(fn, method, route, routes)
  if (template === null) {
    const path = toFunctionPath(fn.name, fn.version)
    return { routeTemplate: null, path, rawPath: path, params }
  }
  const rawPath = fillRoute(template, params)
  const canonical = normalizePath(rawPath)
  if (typeof canonical !== 'string') throw badRequest('params:', canonical.problem)
  return { routeTemplate: template, path: unescapeCanonical(canonical), rawPath, params }
}

function findRoute(fn: FunctionVersion, method: Method, route: string, routes: readonly string[]): string {
  const wanted = parsePattern(route)
  if (!('problem' in wanted) && routes.includes(wanted.text)) return wanted.text
  const has = routes.length === 0 ? 'it has none' : `it has ${routes.slice(0, 10).join(', ')}`
  throw new GatewayError('NOT_FOUND', `"${showText(route)}" is not a route of ${fn.key} for ${method}: ${has}`)
}
