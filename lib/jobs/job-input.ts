/** What somebody who makes a job may say, checked field by field; every problem is told at once. Spec: page jobs/jobs. */

import { isUtf8 } from 'node:buffer'
import { createHash, randomBytes } from 'node:crypto'
import { nearest, showText, showValue } from '../config/findings.ts'
import { isSecretName } from '../config/function-env.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import { GatewayError } from '../core/errors.ts'
import { findUnsendable, isHeaderName } from '../core/http-text.ts'
import {
  isFunctionName,
  isMethod,
  isRuntimeName,
  isVersion,
  type Method,
  METHODS,
  type RuntimeName,
  RUNTIMES,
} from '../core/identity.ts'
import { isObject } from '../core/json.ts'
import { JOB_BACKOFF, JOB_MAX_ATTEMPTS, JOB_RETRY_DELAY_MS, MAX_JOB_DELAY_MS } from '../core/limits.ts'
import { parsePattern } from '../core/pattern.ts'
import { toFunctionPath } from '../core/versions.ts'
import { toCallBody, withBodyType } from '../invocation/call-body.ts'
import { checkPolicy, isMethodAllowed, toMethodError } from '../invocation/policy.ts'
import { fillRoute } from '../router/call-route.ts'
import { normalizePath, unescapeCanonical } from '../router/path.ts'
import type { Idempotency, Job, JobRequest, JobRetry } from './job.ts'

/** The fields of `POST /_fn/jobs` and of `gateway.jobs.create()`. */
export interface JobInput {
  name: string
  runtime?: RuntimeName | null
  version?: string | null
  method?: Method
  /** One of the function's routes; by default the first one that allows the method. */
  route?: string | null
  params?: Readonly<Record<string, string | number | boolean>>
  query?: Readonly<Record<string, unknown>>
  headers?: Readonly<Record<string, string>>
  /** Text, or a JSON value that becomes its text; bytes in base64 as `body_base64`. */
  body?: unknown
  body_base64?: string
  /** Said beside `body_base64`, as in answers; it changes nothing. */
  is_base64?: boolean
  /** Becomes `event.context.user`. */
  context?: Readonly<Record<string, unknown>> | null
  max_attempts?: number
  retry_delay_ms?: number
  /** Each delay is so many times the one before it. */
  backoff?: number
  /** Milliseconds before the first attempt. */
  delay_ms?: number
  /** Told of the end of the job by a POST. */
  callback_url?: string | null
}

/** A checked input with its defaults. */
export interface CheckedInput {
  name: string
  runtime: RuntimeName | null
  version: string | null
  /** null: the function's own choice. */
  method: Method | null
  route: string | null
  params: Readonly<Record<string, string>>
  query: Readonly<Record<string, unknown>>
  headers: Readonly<Record<string, string>>
  body: Buffer | null
  context: Readonly<Record<string, unknown>> | null
  retry: JobRetry
  delayMs: number
  callbackUrl: string | null
}

const FIELDS = [
  ...[
    'name',
    'runtime',
    'version',
    'method',
    'route',
    'params',
    'query',
    'headers',
    'body',
    'body_base64',
    'is_base64',
  ],
  ...['context', 'max_attempts', 'retry_delay_ms', 'backoff', 'delay_ms', 'callback_url'],
]
/** What a job carries may be secret, and a refusal is written to the log: their values are not shown. */
const CARRIED: ReadonlySet<string> = new Set(['params', 'query', 'headers', 'body_base64', 'context', 'callback_url'])
const MAX_ROUTE_CHARS = 4096
const MAX_URL_CHARS = 4096
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/
const IDEMPOTENCY_KEY = /^[\x21-\x7e]{1,255}$/

/** @throws GatewayError BAD_REQUEST that names every field that is wrong, its rule and its value */
export function checkJobInput(input: unknown): CheckedInput {
  if (!isObject(input)) throw refuse([`a job must be an object, got ${showValue(input)}`])
  const reader = new InputReader(input)
  const checked: CheckedInput = {
    name: reader.required('name', 'the name of a function', isName),
    runtime: reader.optional('runtime', `one of ${RUNTIMES.join(', ')}`, isRuntimeName),
    version: reader.optional('version', 'the name of a version', isVersionText),
    method: reader.optional('method', `one of ${METHODS.join(', ')}`, isMethod),
    route: reader.optional('route', 'a route such as /users/:id', isRoute),
    params: toTexts(reader.optional('params', 'an object of texts, numbers and booleans', isScalars)),
    query: reader.optional('query', 'an object', isObject) ?? {},
    headers: withBodyType(
      reader.optional('headers', 'an object of header names and texts', isHeaders) ?? {},
      input.body_base64 == null ? input.body : null,
    ),
    body: reader.body(),
    context: reader.optional('context', 'an object', isObject),
    retry: {
      maxAttempts: reader.number('max_attempts', { ...JOB_MAX_ATTEMPTS, whole: true }),
      delayMs: reader.number('retry_delay_ms', { ...JOB_RETRY_DELAY_MS, whole: true }),
      backoff: reader.number('backoff', { ...JOB_BACKOFF, whole: false }),
    },
    delayMs: reader.number('delay_ms', { min: 0, max: MAX_JOB_DELAY_MS, default: 0, whole: true }),
    callbackUrl: reader.optional('callback_url', 'an http or https URL without a user name', isCallbackUrl),
  }
  reader.end()
  return checked
}

/** @throws GatewayError BAD_REQUEST */
export function checkIdempotencyKey(key: string | null): string | null {
  if (key === null || IDEMPOTENCY_KEY.test(key)) return key
  throw refuse([`Idempotency-Key must be 1 to 255 visible ASCII characters, got ${showValue(key)}`])
}

class InputReader {
  readonly #input: Readonly<Record<string, unknown>>
  readonly #problems: string[] = []

  constructor(input: Readonly<Record<string, unknown>>) {
    this.#input = input
    for (const key of Object.keys(input)) {
      if (FIELDS.includes(key)) continue
      const near = nearest(key, FIELDS)
      this.#problems.push(`"${showText(key)}" is no field of a job${near === null ? '' : `, did you mean ${near}?`}`)
    }
  }

  required<T>(name: string, rule: string, check: (value: unknown) => value is T): T {
    const value = this.#input[name]
    if (value === undefined || value === null) this.#problems.push(`${name} is required`)
    else if (!check(value)) this.#wrong(name, rule, value)
    return value as T
  }

  /** null is as good as absent. */
  optional<T>(name: string, rule: string, check: (value: unknown) => value is T): T | null {
    const value = this.#input[name] ?? null
    if (value === null || check(value)) return value
    this.#wrong(name, rule, value)
    return null
  }

  number(name: string, rule: { min: number; max: number; default: number; whole: boolean }): number {
    const value = this.#input[name] ?? rule.default
    const fits = rule.whole ? Number.isInteger : Number.isFinite
    if (typeof value === 'number' && fits(value) && value >= rule.min && value <= rule.max) return value
    this.#wrong(name, `${rule.whole ? 'an integer' : 'a number'} from ${rule.min} to ${rule.max}`, value)
    return rule.default
  }

  body(): Buffer | null {
    const { body = null, body_base64: encoded = null } = this.#input
    if (encoded === null) return toCallBody(body)
    if (body !== null) this.#problems.push('body and body_base64 must not both be given')
    if (typeof encoded === 'string' && BASE64.test(encoded)) return Buffer.from(encoded, 'base64')
    this.#wrong('body_base64', 'base64 text', encoded)
    return null
  }

  /** @throws when anything was wrong */
  end(): void {
    if (this.#problems.length > 0) throw refuse(this.#problems)
  }

  #wrong(name: string, rule: string, value: unknown): void {
    this.#problems.push(`${name} must be ${rule}, got ${showValue(value, CARRIED.has(name))}`)
  }
}

/** Problems that are told of one input. */
const MAX_PROBLEMS = 10

function refuse(problems: readonly string[]): GatewayError {
  return new GatewayError('BAD_REQUEST', problems.slice(0, MAX_PROBLEMS).join('; '))
}

function isName(value: unknown): value is string {
  // A file route is called by its path, brackets included.
  return typeof value === 'string' && isFunctionName(value.replace(/\[{1,2}(?:\.\.\.)?([\w-]+)\]{1,2}/g, '$1'))
}

function isVersionText(value: unknown): value is string {
  return typeof value === 'string' && isVersion(value)
}

function isRoute(value: unknown): value is string {
  return typeof value === 'string' && value.startsWith('/') && value.length <= MAX_ROUTE_CHARS
}

function isScalars(value: unknown): value is Record<string, string | number | boolean> {
  return isObject(value) && Object.values(value).every(one => ['string', 'number', 'boolean'].includes(typeof one))
}

function toTexts(values: Readonly<Record<string, unknown>> | null): Record<string, string> {
  const texts: Record<string, string> = Object.create(null)
  for (const [name, value] of Object.entries(values ?? {})) texts[name] = String(value)
  return texts
}

function isHeaders(value: unknown): value is Record<string, string> {
  if (!isObject(value)) return false
  return Object.entries(value).every(
    ([name, text]) => isHeaderName(name) && typeof text === 'string' && findUnsendable(text) === null,
  )
}

function isCallbackUrl(value: unknown): value is string {
  if (typeof value !== 'string' || value.length > MAX_URL_CHARS || !URL.canParse(value)) return false
  const { protocol, username, password } = new URL(value)
  return (protocol === 'http:' || protocol === 'https:') && username === '' && password === ''
}

// The input of a job, to be read and to be run again. Spec: page jobs/jobs.

/** Stands for the value of a header that looks like a secret. */
const HIDDEN = '<hidden>'
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
  if (!isObject(changes)) throw new GatewayError('BAD_REQUEST', 'the changes of a job must be an object')
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

// A new job from what somebody asked for: its function found, its route filled in, the function's own rules applied. Page jobs/jobs.

/** Bytes of a body that is kept with its job; a longer one is a part of its own. */
const INLINE_BODY_BYTES = 16 * 1024

export interface DraftOptions {
  /** The function of that name. @throws GatewayError NOT_FOUND, ROUTE_CONFLICT */
  find: (name: string, version: string | null, runtime: string | null) => FunctionVersion
  /** Routes of a function and method, in text order. */
  routesOf: (fn: FunctionVersion, method: Method) => readonly string[]
}

/**
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
  const method = input.method ?? ownMethod(fn)
  if (!isMethodAllowed(fn, method)) throw toMethodError(fn.policy.methods)
  const refused = checkPolicy(fn, input.body?.length ?? 0)
  if (refused !== null) throw refused
  const request = toRequest(input, fn, method, routesOf(fn, method))
  const seq = nextSeq()
  const job: Job = {
    id: `job-${now}-${seq}-${randomBytes(6).toString('hex')}`,
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
    callback: input.callbackUrl === null ? null : { state: 'pending', attempts: 0, lastError: null },
    idempotency,
  }
  return { job, request }
}

/** Tells whether a second request with the same idempotency key asks for the same. */
export function digestOf(input: CheckedInput): string {
  const { body, ...rest } = input
  return createHash('sha256')
    .update(JSON.stringify(rest))
    .update(body ?? '')
    .digest('hex')
    .slice(0, 32)
}

function ownMethod({ policy }: FunctionVersion): Method {
  return policy.methods.includes('GET') ? 'GET' : (policy.methods[0] ?? 'GET')
}

function toRequest(input: CheckedInput, fn: FunctionVersion, method: Method, routes: readonly string[]): JobRequest {
  const { body, query, headers, context, callbackUrl } = input
  const hasBodyPart = body !== null && body.length > INLINE_BODY_BYTES
  return {
    runtime: fn.runtime,
    name: fn.name,
    version: fn.version,
    method,
    ...toJobTarget(fn, method, input.route, routes, input.params),
    query,
    headers,
    context,
    body: body === null || hasBodyPart ? null : body.toString('base64'),
    hasBodyPart,
    callbackUrl,
  }
}

// Which route of its function a job calls, and the path that its params make of it. Spec: page jobs/jobs.

interface JobTarget {
  /** null for a function that no route leads to. */
  routeTemplate: string | null
  path: string
  rawPath: string
  params: Readonly<Record<string, string>>
}

/**
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
): JobTarget {
  const template = route === null ? (routes[0] ?? null) : findRoute(fn, method, route, routes)
  if (template === null) {
    const path = toFunctionPath(fn.name, fn.version)
    return { routeTemplate: null, path, rawPath: path, params }
  }
  const rawPath = fillRoute(template, params)
  const canonical = normalizePath(rawPath)
  if (typeof canonical !== 'string') throw new GatewayError('BAD_REQUEST', `params: ${canonical.problem}`)
  return { routeTemplate: template, path: unescapeCanonical(canonical), rawPath, params }
}

function findRoute(fn: FunctionVersion, method: Method, route: string, routes: readonly string[]): string {
  const wanted = parsePattern(route)
  if (!('problem' in wanted) && routes.includes(wanted.text)) return wanted.text
  const has = routes.length === 0 ? 'it has none' : `it has ${routes.slice(0, 10).join(', ')}`
  throw new GatewayError('NOT_FOUND', `"${showText(route)}" is no route of ${fn.key} for ${method}: ${has}`)
}
