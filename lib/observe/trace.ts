/**
 * The trace of a call, by the rules of W3C Trace Context: from the client when its header is well-formed, else a new one; and spans
 * for the OpenTelemetry API of a host application. Owner: page observe/trace.
 */

import { randomFillSync } from 'node:crypto'
import type * as OpenTelemetry from '@opentelemetry/api'
import { cutText } from '../core/text.ts'

/** `00`, 32 digits of a trace, 16 of the calling span, 2 of flags; later versions add fields after a further `-`. */
const TRACEPARENT = /^(?!ff)[0-9a-f]{2}-((?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})(-.*)?$/
const TRACEPARENT_CHARS = 55

/** Limits of a `tracestate`: a longer one need not be passed on, and would grow every call. */
const MAX_STATE_ENTRIES = 32
const MAX_STATE_CHARS = 512
const STATE_KEY = '[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13}'
const STATE_VALUE = '[\\x20-\\x2b\\x2d-\\x3c\\x3e-\\x7e]{0,255}[\\x21-\\x2b\\x2d-\\x3c\\x3e-\\x7e]'
const STATE_ENTRY = new RegExp(`^(${STATE_KEY})=${STATE_VALUE}$`)

/** A `traceparent` header in version 00; null for a malformed one: then a new trace begins. */
export function readTraceparent(text: string): string | null {
  if (text.length === TRACEPARENT_CHARS && text.startsWith('00-')) return TRACEPARENT.test(text) ? text : null
  const match = TRACEPARENT.exec(text)
  return match === null || text.startsWith('00-') ? null : `00-${match[1]}`
}

/** A `tracestate` header to pass on; null when it is empty or malformed: a part of it would have another meaning. */
export function readTracestate(text: string): string | null {
  if (text.length > MAX_STATE_CHARS) return null
  const entries = text
    .split(',')
    .map(entry => entry.replace(/^[ \t]+|[ \t]+$/g, ''))
    .filter(entry => entry !== '')
  const keys = entries.map(entry => STATE_ENTRY.exec(entry)?.[1])
  if (keys.includes(undefined) || new Set(keys).size < keys.length) return null
  return entries.length === 0 || entries.length > MAX_STATE_ENTRIES ? null : entries.join(',')
}

/** The id of the trace in a `traceparent` from `readTraceparent` or `TraceIds`. */
export function traceIdOf(traceparent: string): string {
  return traceparent.slice(3, 35)
}

/** A part of a trace. */
interface Traced {
  trace: string
  traceState: string | null
  /** Its trace comes before those of headers. */
  span: { readonly trace: string; readonly traceState: string | null } | null
}

const ID_BYTES = 24
const POOL_BYTES = 340 * ID_BYTES

/** Begins traces. Random bytes come from a pool, because a syscall for a few of them costs more than routing a request. */
export class TraceIds {
  readonly #bytes = Buffer.alloc(POOL_BYTES)
  #digits = ''
  #at = POOL_BYTES * 2

  /** A new `traceparent`, sampled: the access line of the call is the promised record. */
  next(): string {
    if (this.#at >= POOL_BYTES * 2) {
      this.#digits = randomFillSync(this.#bytes).toString('hex')
      this.#at = 0
    }
    const at = this.#at
    this.#at = at + ID_BYTES * 2
    return `00-${this.#digits.slice(at, at + 32)}-${this.#digits.slice(at + 32, at + 48)}-01`
  }

  /** Adds a call without a trace to that of its span or headers, or to a new one. */
  join(call: Traced, traceparent: string | null, tracestate: string | null): void {
    if (call.span !== null) {
      call.trace = call.span.trace
      call.traceState = call.span.traceState
      return
    }
    const taken = traceparent === null ? null : readTraceparent(traceparent)
    call.trace = taken ?? this.next()
    // The state of a trace that does not continue has no meaning here.
    if (taken !== null && tracestate !== null) call.traceState = readTracestate(tracestate)
  }
}

type Api = typeof OpenTelemetry
type Context = OpenTelemetry.Context

/** The place where every copy of the API keeps registered tracers. */
const REGISTRY = Symbol.for('opentelemetry.js.api.1')
const TRACER = 'fngw'
/** Characters of an attribute. */
const MAX_TEXT_CHARS = 1024

interface Outcome {
  /** 0 for none. */
  status: number
  /** A short word for a failure that has no status. */
  failure?: string
  /** Replaces the name from the start. */
  name?: string
  attributes?: Readonly<Record<string, string | number>>
}

/** A span that has not ended. */
export interface OpenSpan {
  /** `traceparent` and `tracestate` for work within it. */
  readonly trace: string
  readonly traceState: string | null
  /** Begins the span of an upstream request. */
  upstream(method: string, host: string, port: number): OpenSpan | null
  /** To be called once. */
  end(outcome: Outcome): void
}

/** @returns null when the host application has not registered a tracer, or its API cannot be found from here */
export async function findSpans(): Promise<Spans | null> {
  const registry = (globalThis as Record<symbol, unknown>)[REGISTRY] as { trace?: unknown } | undefined
  if (registry?.trace === undefined) return null
  return import('@opentelemetry/api').then(api => new Spans(api)).catch(() => null)
}

/**
 * Spans of requests, calls and upstream requests. An exception of a tracer harms no request.
 *
 *   request (SERVER) ─► upstream request (CLIENT)
 *   gateway.invoke (INTERNAL) ─► upstream request (CLIENT)
 */
export class Spans {
  readonly #api: Api
  readonly #tracer: OpenTelemetry.Tracer

  /** @internal Programs without the optional peer are compiled with these declarations: they must not name its types. */
  constructor(api: Api) {
    this.#api = api
    this.#tracer = api.trace.getTracer(TRACER)
  }

  /** A request of HTTP, without its query: in the active span, else in the trace of its headers. */
  request(method: string, path: string, traceparent: string | null, tracestate: string | null): OpenSpan | null {
    const attributes = { 'http.request.method': method, 'url.path': cutText(path.split('?', 1)[0]!, MAX_TEXT_CHARS) }
    return this.#begin(method, this.#api.SpanKind.SERVER, attributes, () => this.#parentOf(traceparent, tracestate))
  }

  /** A call by the host program. */
  call(key: string, traceparent: string | null, tracestate: string | null): OpenSpan | null {
    const { INTERNAL } = this.#api.SpanKind
    return this.#begin(`invoke ${key}`, INTERNAL, {}, () => this.#parentOf(traceparent, tracestate))
  }

  #parentOf(traceparent: string | null, tracestate: string | null): Context {
    const { context, trace, isSpanContextValid, createTraceState, ROOT_CONTEXT } = this.#api
    const active = context.active()
    const around = trace.getSpanContext(active)
    if (around !== undefined && isSpanContextValid(around)) return active
    const taken = traceparent === null ? null : readTraceparent(traceparent)
    if (taken === null) return ROOT_CONTEXT
    const state = tracestate === null ? null : readTracestate(tracestate)
    return trace.setSpanContext(ROOT_CONTEXT, {
      traceId: traceIdOf(taken),
      spanId: taken.slice(36, 52),
      traceFlags: Number.parseInt(taken.slice(53), 16),
      isRemote: true,
      ...(state !== null && { traceState: createTraceState(state) }),
    })
  }

  #begin(
    name: string,
    kind: OpenTelemetry.SpanKind,
    attributes: OpenTelemetry.Attributes,
    parent: () => Context,
  ): OpenSpan | null {
    try {
      const around = parent()
      const span = this.#tracer.startSpan(name, { kind, attributes }, around)
      const { traceId, spanId, traceFlags, traceState } = span.spanContext()
      const trace = readTraceparent(`00-${traceId}-${spanId}-${(traceFlags & 0xff).toString(16).padStart(2, '0')}`)
      // A tracer that gives no ids traces nothing.
      if (trace === null) return null
      return {
        trace,
        traceState: traceState?.serialize() || null,
        upstream: (method, host, port) => {
          const upstream = { 'http.request.method': method, 'server.address': host, 'server.port': port }
          return this.#begin(method, this.#api.SpanKind.CLIENT, upstream, () => this.#api.trace.setSpan(around, span))
        },
        end: outcome => this.#end(span, kind, outcome),
      }
    } catch {
      return null
    }
  }

  #end(span: OpenTelemetry.Span, kind: OpenTelemetry.SpanKind, { status, failure, name, attributes }: Outcome): void {
    const { SpanKind, SpanStatusCode } = this.#api
    try {
      if (name !== undefined) span.updateName(cutText(name, MAX_TEXT_CHARS))
      if (attributes !== undefined) span.setAttributes(attributes)
      if (status > 0) span.setAttribute('http.response.status_code', status)
      // A server's span has no error status when the client was wrong (semantic conventions of HTTP).
      if (failure !== undefined || status === 0 || status >= (kind === SpanKind.CLIENT ? 400 : 500)) {
        span.setStatus({ code: SpanStatusCode.ERROR })
        span.setAttribute('error.type', failure ?? String(status || 'canceled'))
      }
      span.end()
    } catch {
      // Only the tracer loses the span.
    }
  }
}
