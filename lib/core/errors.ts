/** The one error class and its table of codes. Spec: §7. */

/** Code to HTTP status. The code is for logs and tests, the client sees status and message. */
export const ERROR_STATUS = {
  BAD_REQUEST: 400,
  UNAUTHORIZED: 401,
  FORBIDDEN: 403,
  NOT_FOUND: 404,
  METHOD_NOT_ALLOWED: 405,
  ROUTE_CONFLICT: 409,
  CONFLICT: 409,
  BODY_TOO_LARGE: 413,
  TARGET_TOO_LONG: 414,
  UNSUPPORTED_TYPE: 415,
  HOST_NOT_ALLOWED: 421,
  CONCURRENCY_LIMIT: 429,
  POOL_OVERFLOW: 429,
  HEADERS_TOO_LARGE: 431,
  HANDLER_FAILED: 500,
  LOAD_FAILED: 500,
  INTERNAL: 500,
  NOT_IMPLEMENTED: 501,
  CONTRACT_BROKEN: 502,
  EDGE_FAILED: 502,
  RUNTIME_DOWN: 503,
  WORKER_DIED: 503,
  SHUTTING_DOWN: 503,
  BUILD_PENDING: 503,
  CONFIG_BROKEN: 503,
  OVERLOADED: 503,
  TIMEOUT: 504,
  STORAGE_FULL: 507,
} as const

/** Code of a refusal or failure; each has its [status](errors.md). */
export type ErrorCode = keyof typeof ERROR_STATUS

interface GatewayErrorOptions {
  /** Replaces the status of the table (`overflow_status`, §2.8). */
  status?: number
  /** Response headers the status needs, such as `Allow` or `Retry-After`. */
  headers?: Record<string, string>
  /** File, line and hint for developers. Never sent in production. */
  detail?: ErrorDetail
  cause?: unknown
}

/** The place where a handler failed, for logs and development responses. */
export interface ErrorDetail {
  file?: string
  line?: number
  stack?: string
  hint?: string
}

/** A refusal or failure, with the status and message that the client gets. */
export class GatewayError extends Error {
  readonly code: ErrorCode
  /** HTTP status. */
  readonly status: number
  /** Response headers, such as `Allow` or `Retry-After`. */
  readonly headers: Record<string, string> | undefined
  /** For developers; not part of a response in production. */
  readonly detail: ErrorDetail | undefined

  constructor(code: ErrorCode, message: string, options: GatewayErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause })
    this.name = 'GatewayError'
    this.code = code
    this.status = options.status ?? ERROR_STATUS[code]
    this.headers = options.headers
    this.detail = options.detail
  }
}

/** Refuses a request. @param place - such as `query field version` @param why - continues it, such as `must be 1 or 0` */
export function badRequest(place: string, why: string): GatewayError {
  return new GatewayError('BAD_REQUEST', `${place} ${why}`)
}

/** True for a call that admission refused: it found no slot, and no room in the queue or no slot in time. */
export function isThrottled(error: GatewayError | null): boolean {
  return error !== null && (error.code === 'CONCURRENCY_LIMIT' || error.code === 'POOL_OVERFLOW')
}

/** A problem found outside a request. Never thrown. */
export interface Warning {
  /** Stable rule id, such as `AMBIGUOUS_METHOD_PREFIX`. */
  code: string
  /** Path below the functions root, posix separators; `.` is the root itself. */
  path: string
  /** With field, rule and value. */
  message: string
  /** How to fix it. */
  hint: string
}

/** The body of every refusal: `{ "error": message }`. */
export function toErrorBody(message: string): string {
  return JSON.stringify({ error: message })
}

/** Any thrown value as a GatewayError; an unknown one becomes 500 with a fixed message, its cause only in the log. */
export function toGatewayError(error: unknown): GatewayError {
  if (error instanceof GatewayError) return error
  return new GatewayError('INTERNAL', 'gateway exception', { cause: error })
}

/** The result of work; null when it fails, for whatever reason. */
export function orNull<T>(work: () => T): T | null {
  try {
    return work()
  } catch {
    return null
  }
}
