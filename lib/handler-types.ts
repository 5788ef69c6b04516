/** Types for handlers: `import type { FnEvent, FnContext, FnResponse } from 'fngw'`. Spec: §2.5, §2.6, §2.12. */

/** `event.context`: what the gateway knows of this call. */
export interface FnContext {
  request_id: string
  runtime: string
  function_name: string
  /** `default` when the function has no version. */
  version: string
  timeout_ms: number
  max_concurrency: number
  max_body_bytes: number
  worker_pool: {
    enabled: boolean
    min_warm: number
    max_workers: number
    max_queue: number
    queue_timeout_ms: number
    queue_poll_ms: number
    idle_ttl_seconds: number
    overflow_status: number
  } | null
  gateway: { worker_pid: number }
  debug: { enabled: boolean }
  /** True when the function may answer with a proxy directive. */
  edge: boolean
  /** `context` of `/_fn/invoke`, a job or a schedule; null for public requests. */
  user: unknown
  /** What called, when it was no client: `{ type: 'schedule' | 'keep_warm', ... }`. */
  trigger: { type: string; [field: string]: unknown } | null
  /** W3C `traceparent` of the call: the client's, or one that the gateway began. */
  trace: string
  /** W3C `tracestate` that the client sent beside it. */
  trace_state: string | null
}

/** The event of a handler. Absent values are null. */
export interface FnEvent<Params extends Record<string, string> = Record<string, string>> {
  id: string
  /** Milliseconds since the epoch. */
  ts: number
  method: string
  /** Decoded, without query. */
  path: string
  /** As the client wrote it, with query. */
  raw_path: string
  params: Params
  path_params: Params
  /** A repeated key is an array. */
  query: Record<string, string | string[]>
  /** Lower-case names; repeated headers joined by `, `. */
  headers: Record<string, string>
  /** UTF-8 text; null without a body and for other bytes, which are in `body_base64`. */
  body: string | null
  is_base64: boolean
  body_base64: string | null
  client: { ip: string | null; ua: string | null }
  session: { id: string | null; raw: string; cookies: Record<string, string> } | null
  version: string
  /** Values of fn.env.json. */
  env: Record<string, string>
  context: FnContext
  /** Aborted when the client no longer waits for the response. */
  readonly signal?: AbortSignal
}

/** An upstream request that the gateway sends for the handler. */
export interface FnProxy {
  path?: string
  url?: string
  method?: string
  headers?: Record<string, string>
  body?: string
  timeout_ms?: number
  max_response_bytes?: number
}

type Headers = Record<string, string | readonly string[]>
type Stream = AsyncIterable<string | Uint8Array> | Iterable<Uint8Array> | ReadableStream

/** A response with status and headers, or a proxy directive. */
export type FnEnvelope =
  | { status: number; headers?: Headers; body?: unknown | Stream }
  | { status: number; headers?: Headers; is_base64: true; body_base64: string }
  | { proxy: FnProxy }

/** Return value of a handler: an envelope, a web `Response`, a stream, or any other value, which becomes JSON with status 200. */
export type FnResponse = FnEnvelope | Response | Stream | unknown

/** A handler of the `native` adapter. */
export type FnHandler<Params extends Record<string, string> = Record<string, string>> = (
  event: FnEvent<Params>,
  params: Params,
) => FnResponse | Promise<FnResponse>

/** `event` of the `cloud-lambda` adapter (gateway v2 form). */
export interface FnLambdaEvent {
  version: '2.0'
  routeKey: string
  rawPath: string
  rawQueryString: string
  cookies?: string[] | null
  headers: Record<string, string>
  queryStringParameters?: Record<string, string> | null
  pathParameters?: Record<string, string> | null
  requestContext: {
    requestId: string
    http: { method: string; path: string; protocol: string; sourceIp: string; userAgent: string }
    timeEpoch: number
    [field: string]: unknown
  }
  body?: string | null
  isBase64Encoded: boolean
}

/** `context` of the `cloud-lambda` adapter. */
export interface FnLambdaContext {
  awsRequestId: string
  functionName: string
  functionVersion: string
  getRemainingTimeInMillis(): number
  done(error?: unknown, result?: unknown): void
  fail(error: unknown): void
  succeed(result: unknown): void
}

/** `ctx` of the `edge-worker` adapter. */
export interface FnWorkerContext {
  waitUntil(work: Promise<unknown>): void
  passThroughOnException(): void
}
